"""The verb `plan`: what a training step sends, computes and holds, and what bounds it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Literal, Unpack

from tpsim import __version__
from tpsim.algebra.reshard import Routes
from tpsim.answers.changes import best_change
from tpsim.answers.plan_record import asked_record, each, number, row_record, total_record
from tpsim.answers.pricing import fits
from tpsim.answers.stages import Staged, in_stages, ranks_of, route_over, slowest_send
from tpsim.answers.verdict import memory_text, verdict_lines
from tpsim.cost import formula
from tpsim.cost.compute import Compute, compute
from tpsim.cost.memory import Memory, memory
from tpsim.cost.rollup import (
    KEYS,
    Collective,
    Pricer,
    Row,
    Sizes,
    Total,
    price,
    rolled_up,
    total_of,
    travelling,
)
from tpsim.cost.step import Step, bound_by, expose, lost, step, turning_scale
from tpsim.machine import timing
from tpsim.machine.curve_file import said
from tpsim.program.layout import DTYPE_BYTES
from tpsim.quantity.errors import InputError, unknown
from tpsim.quantity.size import total
from tpsim.question.forced import shown_where_forced
from tpsim.question.inputs import asked
from tpsim.question.scenario import resolve
from tpsim.question.shelf import Lowered, Shelf, lowered
from tpsim.report.answer import Answer
from tpsim.report.table import labelled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tpsim.algebra.moves import Move
    from tpsim.algebra.sharding import Sharding
    from tpsim.answers.changes import Change
    from tpsim.program.trace import Path as Paths
    from tpsim.quantity.size import Size
    from tpsim.quantity.spec import Document
    from tpsim.question.flags import Flags
    from tpsim.question.question import Limit, Question
    from tpsim.report.table import Line

SCHEMA = "tpsim.plan/2"

NOT_MODELLED = (
    "seconds and memory traffic of everything but matrix products and collectives (norms, softmax, optimizer)",
    "activation memory; only what is held from step to step is counted",
    "collectives that disturb each other on shared links",
    "stragglers, data loading, checkpoints, failures",
)
"""What a plan leaves out, so that nobody takes its seconds for a promise."""

NOT_OF_STAGES = (
    "collectives of a stage beside its compute: every one of them blocks",
    "the norm of all gradients, which adds a sum over the stages; that all of them end the step together is in it",
    "recompute of activations, which pipelines of large models mostly need: about a third more compute",
)
"""What a plan in stages leaves out beside that."""

ASSUMED = (
    "attention's scores stay on the chip: no memory traffic for arrays of s by s",
    "causal attention computes the whole s by s, and MFU counts it as useful",
    "matrix products run one after another, each at the slower of matrix unit and memory",
    "the optimizer is AdamW: master weights and two moments of every parameter",
)
"""What every plan takes for granted."""


def plan(
    scenario: str | Path | Document | Mapping[str, Any] | None = None,
    *,
    overrides: Sequence[str] = (),
    **flags: Unpack[Flags],
) -> PlanResult:
    """Price one training step.

    scenario   a file, a library name, its content as a mapping, or None for flags alone
    overrides  ``path=value`` each, as ``--set`` takes them
    flags      the command line's options by name: tp=8, batch=512, cost_model="book"; see `tpsim.question.flags`
    Raises InputError for everything that the scenario says wrongly.
    """
    shelf = Shelf()
    return priced(resolve(scenario, overrides=overrides, flags=flags, shelf=shelf), shelf)


def priced(question: Question, shelf: Shelf | None = None) -> PlanResult:
    """The plan of a resolved question.

    shelf  programs that other questions of the same request have lowered

    The planner ``cheapest`` chooses per array and cannot see which arrays will travel together; where that makes the
    step slower than the book's paths, these are taken.
    """
    shelf = shelf or Shelf()
    with shown_where_forced(question.forced_at):
        if question.planner == "cheapest":
            # First the book's: the other takes what cannot be priced for a path that there is not, whatever the reason.
            book = replace(priced(replace(question, planner="book"), shelf), question=question)
            free = _priced(question, lowered(question, cheapest_path(question)), shelf)
            return min((free, book), key=lambda one: one.step.time_s)
        return _priced(question, shelf.lowered(question), shelf)


def _priced(question: Question, lowered: Lowered, shelf: Shelf) -> PlanResult:
    sizes = sizes_of(question)
    found = travelling(lowered.collectives, question.mesh.axes)
    work = compute(lowered.products, sizes, question.machine, question.products, question.matmul_efficiency)
    _algorithm_is_known(question, found)
    rows = expose(price(found, sizes, pricer(question)), work, question.workload.microbatches, question.assume.overlap)
    held, taken = memory(lowered.program, sizes), step(rows, work)
    plan = PlanResult(question, sizes, rows, work, held, taken, lowered.path, shelf)
    plan = _in_stages(plan, lowered) if question.schedule else plan
    if not isfinite(plan.step.time_s):
        message = f"a step takes {plan.step.time_s} s on {question.machine.name}, which is no number"
        remedy = f"look for a slip in its figures: tpsim hw show {asked('hardware', question.machine.path)}"
        raise InputError.one("no-number", message, remedy=remedy)
    return plan


def _in_stages(plan: PlanResult, lowered: Lowered) -> PlanResult:
    """The plan of a pipeline: the step and its sums are those of the rank that sets the pace."""
    staged = in_stages(plan.question, lowered, plan.sizes, plan.rows)
    pacing, useful = staged.step.pacing, (stage.compute.useful_flops for stage in staged.step.stages)
    work = replace(pacing.compute, useful_flops=total(useful))
    busy = total(max(row.busy_s, row.exposed_s) for row in pacing.rows)  # messages that are received, too
    taken = replace(step(pacing.rows, work), bubble_s=pacing.bubble_s, communication_s=busy)
    held = staged.each[staged.fullest]
    return replace(plan, rows=pacing.rows, compute=work, memory=held, step=taken, staged=staged)


def pricer(question: Question) -> Pricer:
    """Seconds of a collective on the question's machine, over the wires that its mesh axes are placed on.

    An algorithm that is forced is taken by the collectives that know it.
    """
    machine, force = question.machine, question.force

    def seconds(move: Move, volume: Size) -> timing.Timing:
        if move.kind == "send" and question.schedule:
            return slowest_send(question, question.schedule, move.axes, volume)
        route = route_over(question, move)
        known = force.algorithm is not None and force.algorithm in timing.algorithms(machine, route, move.kind)
        return timing.time(
            machine,
            route,
            move.kind,
            volume,
            cost_model=question.cost_model,
            launch=force.launch,
            algorithm=force.algorithm if known or question.cost_model == "book" else None,
            protocol=force.protocol,
            change=question.placement.change(move),
        )

    return seconds


def _algorithm_is_known(question: Question, found: Iterable[Collective]) -> None:
    """Refuse an algorithm that none of the plan's collectives could take."""
    wanted = question.force.algorithm
    if wanted is None or question.cost_model == "book":
        return
    moves = [move for one in found if (move := one.parts[0].move).kind != "send"]
    known = [timing.algorithms(question.machine, route_over(question, move), move.kind) for move in moves]
    names = list(dict.fromkeys(chain.from_iterable(known)))
    if wanted not in names:
        raise unknown(wanted, "algorithm of this plan's collectives", names)


def cheapest_path(question: Question) -> Paths:
    """Reshards every array by the path that takes the fewest seconds for it alone; never through an uneven split."""
    sizes, seconds = sizes_of(question), pricer(question)
    dims = question.model.dims(sequences=question.workload.sequences, seq=question.workload.seq)

    def routes(dtype: str) -> Routes:
        def price(move: Move) -> Any:
            volume = move.logical_elements(sizes.dims, sizes.axes) * DTYPE_BYTES[dtype]
            try:
                return 0 if move.kind == "slice" else seconds(move, volume).time_s
            except InputError:
                return inf  # no closed form is known for this move on these wires: not a way to offer

        return Routes(question.mesh.order, price, even)

    def even(type_: Sharding) -> bool:
        return all(fits(type_, dim, dims, question.mesh) for dim in type_.dims)

    known = {dtype: routes(dtype) for dtype in DTYPE_BYTES}
    return lambda x, to, _order: known[x.dtype].path(x.type, to)


def sizes_of(question: Question) -> Sizes:
    """The numbers that the question's program is evaluated at, its loops as a device runs them.

    b is sequences per microbatch over all data shards.
    """
    workload = question.workload
    dims = question.model.dims(sequences=workload.sequences, seq=workload.seq)
    ranks, chunks = (question.schedule.ranks, question.schedule.chunks) if question.schedule else (1, 1)
    loops = {"layers": question.model.layers // ranks, "microbatches": workload.microbatches, "chunks": chunks}
    return Sizes(dims, question.mesh.axes, loops)


@dataclass(frozen=True)
class PlanResult(Answer):
    """A priced step. Bytes are of one chip, seconds of one step, unless a name says otherwise.

    rows     every collective with its numbers
    compute, memory, step  see `tpsim.cost`
    path     how arrays that must change their type get there
    shelf    what the request has read and lowered, for what is asked beside it
    staged   the pipeline, where there is one: then rows, compute and step are those of the rank that sets the pace, and
             memory is that of the rank with the least room
    """

    question: Question
    sizes: Sizes
    rows: tuple[Row, ...]
    compute: Compute
    memory: Memory
    step: Step
    path: Paths
    shelf: Shelf
    staged: Staged | None = None

    @cached_property
    def all_rows(self) -> tuple[Row, ...]:
        """The rows, and those of other ranks: none of these is exposed to the rank that sets the pace."""
        return (*self.rows, *(self.staged.elsewhere if self.staged else ()))

    @property
    def every_row(self) -> tuple[Row, ...]:
        """Every collective once; of a pipeline with its calls on a rank in the middle that has it."""
        return self.staged.rows if self.staged else self.rows

    @cached_property
    def collectives(self) -> list[dict[str, Any]]:
        """The rows under the interface's names, without formulas and reasons."""
        return [{**row_record(row, self.sizes), **self._stage(row)} for row in self.all_rows]

    def _stage(self, row: Row) -> dict[str, str | None]:
        if not self.staged:
            return {}
        layers = f"0-{self.question.model.layers - 1}" if row.collective.per_layer else None
        return {"layer": layers, "stage": ranks_of(self.question, row.collective)}

    @cached_property
    def per_layer(self) -> dict[str, Total]:
        """Forward, backward and total of one layer and one microbatch.

        Of the collectives that run in every layer and every microbatch; what runs once per step (most gradients,
        the update) is in the totals only.
        """
        return {phase: each(total_of(rows), self._repeats) for phase, rows in self.layer_rows.items()}

    @property
    def _repeats(self) -> int:
        return int(self.sizes.repeats)

    @property
    def layer_rows(self) -> dict[str, list[Row]]:
        """The rows that run in every layer and every microbatch: forward, backward, and all of them."""
        repeated = [row for row in self.rows if row.collective.per_layer and row.collective.per_microbatch]
        phases = {
            phase: [r for r in repeated if r.collective.where.phase == phase] for phase in ("forward", "backward")
        }
        return {**phases, "total": repeated}

    @cached_property
    def totals(self) -> dict[str, dict[str, Total]]:
        """Sums over the step: by_axis, by_phase, by_block and so on, each per key."""
        return {f"by_{name}": rolled_up(self.rows, by) for name, by in KEYS.items()}

    @property
    def tokens(self) -> int:
        """Tokens of one step, over all chips."""
        return self.question.workload.tokens

    @property
    def chips(self) -> int:
        """Chips of the mesh."""
        return self.question.mesh.devices

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second of the whole machine."""
        return float(self.tokens / self.step.time_s)

    @property
    def mfu(self) -> float:
        """Useful FLOPs per second over the peak of all chips.

        Counted are the model's matrix products, attention's whole s by s among them, without recompute or replication:
        more than 6 x parameters x tokens by what attention does.
        """
        peak = self.question.machine.chip.peak[self.question.products].value
        return float(self.compute.useful_flops / (self.step.time_s * self.chips * peak))

    @property
    def bound_by(self) -> str:
        """``compute``, ``bubble`` or ``communication (COLLECTIVE over AXES)``."""
        busiest = max(self.step.compute_s, 0, *lost(self.rows).values())
        return "bubble" if self.step.bubble_s > busiest else bound_by(self.rows, self.compute)

    @cached_property
    def breakeven_tokens_per_chip(self) -> float | None:
        """Tokens per chip and step above which compute outlasts the exposed communication; None if none does.

        With stages it is not worked out.
        """
        if self.staged:
            return None
        scale = turning_scale(
            self.rows_at, self.compute, self.question.workload.microbatches, self.question.assume.overlap
        )
        return None if scale is None else scale * self.tokens / self.chips

    def rows_at(self, scale: float) -> list[Row]:
        """The rows at `scale` times the tokens: those on activations priced again, the others as they are."""
        grown = replace(self.sizes, dims={**self.sizes.dims, "b": self.sizes.dims["b"] * scale})
        growing = [row.collective for row in self.rows if row.collective.grows]
        again = iter(price(growing, grown, pricer(self.question)))
        return [next(again) if row.collective.grows else row for row in self.rows]

    @cached_property
    def cheapest_saves_s(self) -> float:
        """Seconds of the step that the planner ``cheapest`` would save; 0 if the book's paths are as good."""
        return float(self.step.time_s - priced(replace(self.question, planner="cheapest"), self.shelf).step.time_s)

    @property
    def breakeven(self) -> str:
        """The break-even in words."""
        if self.staged:
            return "where the bound turns is not worked out with stages"
        tokens = self.breakeven_tokens_per_chip
        if tokens is not None:
            return f"compute outlasts exposed communication above {tokens:,.0f} tokens per chip and step"
        return f"bound by {self.bound_by.partition(' ')[0]} at any number of tokens"

    @property
    def capacity_bytes(self) -> float:
        """Memory of one chip."""
        return float(self.question.machine.chip.memory_capacity.value)

    @property
    def states_fit(self) -> bool:
        """True if what is held from step to step is no more than the chip's memory."""
        return bool(self.memory.static <= self.capacity_bytes)

    @property
    def fits(self) -> Literal[False] | None:
        """False if states alone outgrow the chip; None if they do not, for activations are not counted."""
        return None if self.states_fit else False

    @property
    def room_bytes(self) -> float:
        """What states and logits leave of the chip's memory; below 0 they outgrow it."""
        return self.capacity_bytes - float(self.memory.static + self.memory.logits)

    @cached_property
    def change(self) -> Change | None:
        """The best of a few priced changes; None where none is better."""
        return best_change(self, priced)

    @cached_property
    def requirements(self) -> list[tuple[Limit, float, bool]]:
        """What the scenario requires: the limit, what came out (SI), whether it holds."""
        values = {
            "step": self.step.time_s,
            "exposed": self.step.exposed_s,
            "memory": float(self.memory.static),
            "mfu": self.mfu,
            "tokens_per_s": self.tokens_per_s,
        }
        held = [(limit, float(values[limit.name])) for limit in self.question.limits]
        return [(limit, value, limit.holds(value)) for limit, value in held]

    @property
    def broken(self) -> list[Limit]:
        """The requirements that do not hold."""
        return [limit for limit, _, holds in self.requirements if not holds]

    @property
    def ok(self) -> bool:
        """True if every requirement holds."""
        return not self.broken

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """The answer in lines: time, memory, and a change where one is better."""
        return tuple(verdict_lines(self))

    @property
    def verdict(self) -> str:
        """The lines as text."""
        return "\n".join(map("".join, labelled(self.lines)))

    @property
    def idle(self) -> Iterator[str]:
        """Chips that are paid for in vain: outside the mesh, or on axes without a role, and what would give one."""
        yield from self.question.placement.idle
        roles = self.question.layout.roles
        free = [f"layout.{role}" for role in ("tp", "dp") if not roles.get(role)]
        for axis in self.question.idle_axes:
            size = self.question.mesh.axes[axis]
            remedy = f"set {free[0]}" if free else "add it to layout.tp or layout.dp"
            yield f"axis {axis} {size} is used by no role: its chips repeat the same work; {remedy}"

    @property
    def assumptions(self) -> list[dict[str, str]]:
        """What the plan rests on: the scenario's own assumptions, the measured curves used, then every plan's."""
        own = [{"text": one.text, "kind": one.kind} for one in self.question.assumptions]
        curves = dict.fromkeys(one for row in self.rows for one in row.timing.curves)
        measured = [{"text": f"as measured: {said(one)}", "kind": "stated"} for one in curves]
        ways = (*ASSUMED, *(self.staged.assumed if self.staged else ()))
        return [*own, *measured, *({"text": text, "kind": "model"} for text in ways)]

    @property
    def not_modelled(self) -> list[str]:
        """What the plan leaves out."""
        return [*NOT_MODELLED, *(NOT_OF_STAGES if self.staged else ())]

    @cached_property
    def symbols(self) -> Sizes:
        """The sizes as symbols, for formulas. Loads sympy."""
        return formula.symbols(self.sizes, self.question.layout.roles)

    def formula(self, row: Row) -> str:
        """Wire bytes of one call of `row`, as text."""
        return formula.text(row.collective.wire_bytes(self.symbols))

    def layer_formula(self, phase: str) -> str:
        """Wire bytes of one layer and microbatch in ``forward``, ``backward`` or ``total``, as text."""
        found = [row.collective for row in self.layer_rows[phase]]
        return formula.wire_text(found, self.symbols, per=self.symbols.repeats)

    def shown(self) -> list[dict[str, Any]]:
        """The collectives without formulas, which would load sympy."""
        return self.collectives

    def records(self) -> list[dict[str, Any]]:
        """Tidy rows for CSV and frames: what a row is first, then what it costs, with formulas.

        Each ends with what was asked, so that rows of several plans can be put together.
        """
        return [{**row, **asked_record(self.question)} for row in self.formulated()]

    def formulated(self) -> list[dict[str, Any]]:
        """The collectives with formulas and reasons."""
        return [
            {**record, "formula": self.formula(row), "because": row.collective.because}
            for record, row in zip(self.collectives, self.all_rows, strict=True)
        ]

    def to_json(self) -> dict[str, Any]:
        """The whole document as the interface states it."""
        return {
            "schema": SCHEMA,
            "tpsim": __version__,
            "inputs": [{"path": path, "sha256": digest} for path, digest in self.question.inputs],
            "resolved": self.question.resolved,
            "result": {
                "verdict": self.verdict,
                "collectives": self.formulated(),
                "per_layer": {
                    phase: total_record(total, self.layer_formula(phase)) for phase, total in self.per_layer.items()
                },
                "totals": {f"by_{name}": self._totals_record(by) for name, by in KEYS.items()},
                "memory": self._memory_record(),
                "step": self._step_record(),
                **(self.staged.record() if self.staged else {}),
                "change": self.change and self.change.record(),
                "require": [
                    {"name": limit.name, "required": limit.text, "value": value, "ok": holds}
                    for limit, value, holds in self.requirements
                ],
            },
            "assumptions": self.assumptions,
            "not_modelled": self.not_modelled,
        }

    def _totals_record(self, by: Callable[[Collective], str]) -> dict[str, Any]:
        found = [row.collective for row in self.rows]
        return {
            key: total_record(total, formula.wire_text((one for one in found if by(one) == key), self.symbols))
            for key, total in rolled_up(self.rows, by).items()
        }

    def _memory_record(self) -> dict[str, Any]:
        held = self.memory
        return {
            "parameters_bytes": number(held.parameters),
            "gradients_bytes": number(held.gradients),
            "optimizer_bytes": number(held.optimizer),
            "static_bytes": number(held.static),
            "logits_bytes": number(held.logits),
            "capacity_bytes": number(self.capacity_bytes),
            "fits": self.fits,
            "verdict": memory_text(self),
        }

    def _step_record(self) -> dict[str, Any]:
        return {
            "time_s": self.step.time_s,
            "compute_s": self.step.compute_s,
            "communication_s": self.step.communication_s,
            "exposed_s": self.step.exposed_s,
            **({"bubble_s": float(self.step.bubble_s)} if self.staged else {}),
            "bound_by": self.bound_by,
            "lost": [
                {"collective": name, "exposed_s": float(s), "share": float(s / self.step.time_s)}
                for name, s in lost(self.rows).items()
                if s > 0
            ],
            "tokens_per_s": self.tokens_per_s,
            "mfu": self.mfu,
            "flops_per_device": number(self.compute.flops),
            "useful_flops": number(self.compute.useful_flops),
            "breakeven_tokens_per_chip": self.breakeven_tokens_per_chip,
            "breakeven": self.breakeven,
            "cheapest_saves_s": self.cheapest_saves_s,
        }
