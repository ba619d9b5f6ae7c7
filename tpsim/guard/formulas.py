"""The formulas that a lock holds: exact values at sample sizes, and canonical texts where they are wanted.

Two formulas are equal where their samples are: a rewriting alarms nobody. Sizes are primes times a common multiple, so
that a factor, a power or a summand that moves moves a sample.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from tpsim.algebra.moves import HOMEWARD, MOVES, MoveKind, wire
from tpsim.cost.memory import memory
from tpsim.cost.orders import run
from tpsim.cost.sizes import Sizes
from tpsim.fabric.change import Change
from tpsim.fabric.slices import AxisPiece
from tpsim.fabric.wires import Segment
from tpsim.guard.lock_parts import FormulaFact
from tpsim.machine import timing
from tpsim.machine.algorithms import FORMS, TORUS_FORMS
from tpsim.machine.parts import Level, Machine, changed
from tpsim.machine.permutes import changing
from tpsim.machine.torus_forms import TorusAxis
from tpsim.program.dims import DIMS, LOOPS, completed
from tpsim.program.kinds import ALIKE, KEPT, RECOMPUTED
from tpsim.program.schedules import SCHEDULES, pipeline_schedule
from tpsim.quantity.errors import InputError
from tpsim.quantity.size import total

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tpsim.cost.collectives import Collective
    from tpsim.machine.timing import CostModel
    from tpsim.program.op import Program
    from tpsim.question.memo import Lowered

WHOLE = 27_720
"""Divisible by every number up to twelve: bytes that divide over the sampled devices."""

VOLUMES_AND_RANKS = ((WHOLE, 1), (WHOLE, 2), (3 * WHOLE, 3), (5 * WHOLE, 4), (7 * WHOLE, 8))
"""Where a formula of V bytes over n devices is sampled: one device, an odd and an even number, powers of two."""

PRIMES = tuple(prime for prime in range(2, 400) if all(prime % other for other in range(2, prime)))
"""Sizes of axes and dims at which a program's formulas are sampled."""


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula: what gives its exact samples, and what gives its text, which loads sympy."""

    samples: Callable[[], tuple[str, ...]]
    text: Callable[[], str] = str

    def fact(self, known: FormulaFact | None, *, texts: bool) -> FormulaFact:
        """The formula as a lock holds it; the text that is known stays while the samples do.

        texts  True: also a formula that is not known yet gets its text
        """
        samples = self.samples()
        if known is not None and known.samples == samples and (known.text or not texts):
            return known
        return FormulaFact(text=self.text() if texts or known else "", samples=samples)


def move_formulas() -> Iterator[tuple[str, Formula]]:
    """Wire bytes of every move, in V and n, by the move."""
    for kind in (*MOVES, *sorted(HOMEWARD)):
        if kind != "slice":
            yield kind, _of_volume(partial(_wire, kind))


def form_formulas() -> Iterator[tuple[str, Formula]]:
    """Every closed form: steps, bytes carried, link total and serial: ``ring.all_gather.two-rings``."""
    for topology, moves in FORMS.items():
        for kind, forms in moves.items():
            for name, form in forms.items():
                yield f"{topology}.{kind}.{name}", _of_volume(partial(_loads, form))
    for kind, tori in TORUS_FORMS.items():
        for name, torus in tori.items():
            yield f"torus.{kind}.{name}", _of_volume(partial(_loads, partial(_on_torus, torus)))
    for topology in FORMS:
        summed = Formula(partial(_of_changes, topology), partial(str, "blocks summed one by one"))
        yield f"{topology}.permute.change", summed


RANKS, MICROBATCHES = 4, 8
"""Of the pipelines that schedules are sampled by."""

PASSES, MESSAGE = {"F": 5, "B": 7, "W": 3}, 1
"""Whole seconds of a chunk's passes, and of a message."""


def schedule_formulas() -> Iterator[tuple[str, Formula]]:
    """Every order of actions: a digest of it, and when it ends, by its schedule."""
    for name, maker in SCHEDULES.items():
        chunks = 2 if maker.several else 1
        text = f"digest; end at p {RANKS}, v {chunks}, m {MICROBATCHES}, F, B, W 5, 7, 3, send 1"
        yield name, Formula(partial(_of_order, name, chunks), partial(str, text))


def _of_order(name: str, chunks: int) -> tuple[str, ...]:
    schedule = pipeline_schedule(name, RANKS, chunks, MICROBATCHES)
    ran = run(schedule, lambda action: total(PASSES[part.act] for part in action), lambda _: MESSAGE)
    digest = hashlib.sha256(str([list(map(str, order)) for order in schedule.orders]).encode()).hexdigest()
    return digest[:8], _exact(ran.end)


def _wire(kind: MoveKind, V: Any, n: Any) -> tuple[Any, ...]:
    return (wire(kind, V, n),)


def _on_torus(form: Callable[[Any, Any], Any], V: Any, n: Any) -> Any:
    """The traffic on a torus of a closed axis of n + 2, for two devices close no ring, and an open one of n."""
    return form(V, (TorusAxis(n + 2, closed=True), TorusAxis(n, closed=False)))


def _loads(form: Callable[[Any, Any], Any], V: Any, n: Any) -> tuple[Any, ...]:
    traffic = form(V, n)
    return (traffic.steps, traffic.carried, traffic.link_total, traffic.link_serial)


def _of_changes(topology: str) -> tuple[str, ...]:
    """What `_loads` says of an array whose two axes on one segment change places, at a few sizes."""
    figures = []
    for major, minor in ((2, 4), (3, 2), (3, 3)):
        axes = ((AxisPiece("wires", major, minor),), (AxisPiece("wires", minor, 1),))
        wires = Segment("wires", "wires", topology, major * minor)  # type: ignore[arg-type]  # one of FORMS
        run = changing([(wires,)], WHOLE, Change(axes, (1, 0))).whole
        figures += [run.steps, run.carried, run.link_total, run.link_serial]
    return tuple(map(_exact, figures))


def _of_volume(cost: Callable[[Any, Any], tuple[Any, ...]]) -> Formula:

    def text() -> str:
        import sympy

        from tpsim.cost import formula

        V, n = sympy.Symbol("V", positive=True), sympy.Symbol("n", integer=True, positive=True)
        many = {sympy.StrictGreaterThan(n, 1): sympy.true}
        return "; ".join(formula.text(sympy.sympify(value).subs(many)) for value in cost(V, n))

    return Formula(lambda: tuple(_exact(value) for V, n in VOLUMES_AND_RANKS for value in cost(V, n)), text)


def seconds_formulas(machine: Machine, cost_model: CostModel) -> Iterator[tuple[str, Formula]]:
    """How each level's seconds are made, whatever its constants, by the level.

    Every constant is replaced by a whole number of its dimension, so that no figure of the profile moves a sample.
    """
    plain = neutral(machine)
    for level in plain.levels:
        samples = partial(_of_level, plain, level, cost_model)
        yield level.name, Formula(samples, partial(_joined, level, cost_model))


def _joined(level: Level, cost_model: CostModel) -> str:
    """How seconds are made; where devices of a node share an uplink, of its part for each of them."""
    shared = "/min(bandwidth, uplink/devices of a node)" if level.shared else "/bandwidth"
    return JOINED[cost_model].replace("/bandwidth", shared)


JOINED: Mapping[CostModel, str] = {
    "additive": "launch + steps*latency + bytes/bandwidth, the least on offer",
    "book": "max(steps*latency, bytes/bandwidth)",
}
"""What a cost model's formula says; its samples hold what it does."""

SMALL, LARGE = 840, WHOLE * 10**6
"""Bytes where steps decide, and bytes where bandwidth does."""


def _of_level(machine: Machine, level: Level, cost_model: CostModel) -> tuple[str, ...]:
    """Seconds of every move over four devices of a level, of few bytes and of many."""
    joints = ("ring", "line") if level.topology == "torus" else (level.topology,)
    sharing = 8 if level.shared else None
    routes = [(Segment(level.name, level.name, topology, 4, sharing=sharing),) for topology in joints]  # type: ignore[arg-type]
    asked = product(routes, MOVES, (SMALL, LARGE))
    return tuple(_time(machine, route, kind, V, cost_model) for route, kind, V in asked)


def _time(machine: Machine, route: Any, kind: MoveKind, V: int, cost_model: CostModel) -> str:
    try:
        return _exact(timing.time(machine, route, kind, V, cost_model=cost_model).time_s)
    except InputError:
        return "none"  # no closed form is known there: that, too, may change


NEUTRAL = {"bytes_per_s": 1000, "seconds": 3, "ratio": 1, "flops_per_s": 10**6, "bytes": 10**9, "flops": 1, "count": 1}
"""What stands for a constant in the sample of a formula; no figure of any machine."""


def neutral(machine: Machine) -> Machine:
    """The machine with every constant replaced by a whole number, so that only structure is left, and no curve."""
    return changed(replace(machine, measured=()), lambda constant: constant.but(value=NEUTRAL[constant.dimension]))


def program_formulas(lowered: Lowered) -> Iterator[tuple[str, Formula]]:
    """What a structure sends, computes and holds: ``forward.all_gather.tensor``, ``flops`` and the like.

    Of collectives the logical bytes of a step, per phase, kind and axes; those of one device are none.
    """
    groups: dict[str, list[Collective]] = {}
    for call in lowered.collectives:
        groups.setdefault(group(call), []).append(call)
    costs: dict[str, Callable[[Sizes], Any]] = {name: partial(_payload, calls) for name, calls in groups.items()}
    costs["flops"] = lambda sizes: total(kernel.flops(sizes) * kernel.count(sizes) for kernel in lowered.kernels)
    cached = any(op.output.role == "cache" for op in lowered.program.ops)
    costs |= {part: partial(_memory, lowered, part) for part in (*HELD, *((CACHE,) if cached else ()))}
    program = lowered.program
    for name, cost in costs.items():
        yield name, Formula(partial(_sampled, cost, program), partial(_text, cost, program))


def group(call: Collective) -> str:
    """The formula of its program that a collective is part of."""
    return f"{call.where.phase}.{call.kind}.{','.join(call.axes)}"


HELD = ("parameters", "gradients", "optimizer")
"""Of a program's memory, what is held from step to step."""


CACHE = "cache"
"""What inference holds beside parameters."""


def _payload(calls: list[Collective], sizes: Sizes) -> Any:
    return total(call.logical_bytes(sizes) * call.count(sizes) for call in calls)


def _memory(lowered: Lowered, part: str, sizes: Sizes) -> Any:
    return getattr(memory(lowered.program, sizes), f"{part}_bytes")


def _sampled(cost: Callable[[Sizes], Any], program: Program) -> tuple[str, ...]:
    return tuple(_exact(cost(sizes(program, shift))) for shift in (0, 1))


def _text(cost: Callable[[Sizes], Any], program: Program) -> str:
    from tpsim.cost import formula

    sampled = sizes(program, 0)
    return formula.text(cost(sampled.symbols))


def sizes(program: Program, shift: int) -> Sizes:
    """Sizes to sample a program at: another prime per axis, dim and kind, the latter times what all axes divide."""
    axes = {axis: PRIMES[at + shift] for at, axis in enumerate(program.axes)}
    whole = 1
    for size in axes.values():
        whole *= size
    dims = completed({name: PRIMES[at + shift] * whole for at, name in enumerate(DIMS)})
    kinds = enumerate((kind for kind in program.traced if kind not in LOOPS or kind in (RECOMPUTED, KEPT)), 2)
    layers = {ALIKE: PRIMES[shift] * whole, **{kind: PRIMES[at + shift] * whole for at, kind in kinds}}
    return Sizes(dims, axes, {**layers, "microbatches": PRIMES[shift + 1], "chunks": 1})


def _exact(value: Any) -> str:
    """An exact number as text: whole, or a fraction; a float without the digits that the order of its sums decides.

    >>> _exact(6), _exact(Fraction(1, 3)), _exact(0.1 + 0.2)
    ('6', '1/3', '0.3')
    """
    return f"{value:.{DIGITS}g}" if isinstance(value, float) else str(Fraction(value))


DIGITS = 12
"""Of a sample that is no exact number: seconds, where the code brings in a float."""
