"""The derivations of a plan's numbers: its collectives, one layer, memory, and the step."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

from tpsim.answers.derivation import CHECKS, Derivation
from tpsim.answers.stages import listed
from tpsim.cost.compute import FLOPS_COUNTED
from tpsim.cost.memory import memory
from tpsim.cost.peak import kept
from tpsim.machine.cost import SIMPLE
from tpsim.machine.curve_file import said as curve_said
from tpsim.program.dims import LOOPS, MEANINGS, ROLES
from tpsim.program.kinds import ALIKE, kinds
from tpsim.quantity.size import total
from tpsim.quantity.units import show
from tpsim.question.prices import route_over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tpsim.answers.plan import PlanResult
    from tpsim.cost.peak import Kept
    from tpsim.cost.rollup import Row
    from tpsim.cost.sizes import Sizes
    from tpsim.machine.profile import Constant
    from tpsim.machine.timing import CostModel, Timing
    from tpsim.program.op import Where
    from tpsim.quantity.units import Dimension

LAYER = "per_layer"
PHASES = ("forward", "backward", "total")
MEMORY = ("parameters", "gradients", "optimizer", "static")
STEP = ("time_s", "compute_s", "communication_s", "exposed_s", "bubble_s", "flops_per_device")
RATES = {
    "mfu": "mfu",
    "hfu": "hfu",
    "tokens_per_s": "tokens_per_s",
    "breakeven": "breakeven_tokens_per_chip",
    "breakeven_tokens_per_chip": "breakeven_tokens_per_chip",
}
"""What a verdict says of the step beside its seconds, by the names it goes by."""

RATE = {
    "mfu": "useful FLOPs per second over the peak of all chips",
    "hfu": "FLOPs per second that a chip runs, recompute and repeated work among them, over its peak",
    "tokens_per_s": "tokens per second of all chips",
    "breakeven_tokens_per_chip": "tokens per chip and step above which compute outlasts exposed communication",
}
"""What these are."""

SHARES = ("mfu", "hfu")
"""Those that are shares of peak."""

FORCEABLE = 2
"""What of a way can be forced: its algorithm and its protocol."""

PARTS = (LAYER, "memory", "step", "pipeline", *RATES)
"""What the name of a number begins with that only a plan has."""


def names_in(result: PlanResult) -> dict[str, str]:
    """Every name that can be explained of `result` but the constants of its machine, and what bears it."""
    rows = result.rows
    arrays = [name for row in rows for name in row.array.split() if not name[0].isdigit() and name != "arrays"]
    blocks = [block for row in rows for block in row.block.split(",")]
    calls: dict[str, str] = {row.collective: f"every {row.collective}" for row in rows}
    calls |= {name: f"the calls of array {name}" for name in arrays}
    calls |= {name: f"the calls of block {name}" for name in blocks}
    return {**calls, **numbers()}


def numbers() -> dict[str, str]:
    """The names of the numbers that every plan has, and what they are."""
    layer = {
        f"{LAYER}{phase and '.'}{phase}.{part}": f"{part} bytes of one layer and one microbatch, {words}"
        for phase, words in {"": "all phases", **dict(zip(PHASES, (*PHASES[:2], "all phases"), strict=True))}.items()
        for part in ("wire", "payload")
    }
    held = {f"memory.{one}": f"bytes of {one} on one chip" for one in (*MEMORY, *OVER_TIME)}
    step = {f"step.{one}": f"{one.removesuffix('_s').replace('_', ' ')} of one step" for one in STEP}
    whole = {"step": "seconds of one step, and what they are made of", "pipeline.bubble": "what stages wait for others"}
    return {**layer, **held, **whole, **step, **{name: RATE[key] for name, key in RATES.items()}}


def derivations(result: PlanResult, name: str) -> tuple[Derivation, ...]:
    """The derivations of the numbers called `name`; none if the plan has no such name."""
    head, _, rest = name.removeprefix("result.").partition(".")
    read: Mapping[str, Callable[[PlanResult, str], Iterator[Derivation]]] = {
        LAYER: _layer,
        "memory": _memory,
        "step": _step,
        "pipeline": _pipeline,
    }
    if head in read:
        return tuple(read[head](result, rest))
    if head in RATES and not rest:
        return (_rate(result, RATES[head]),)
    return tuple(_rows(result, name.removeprefix("result.collectives.")))


def values(result: PlanResult) -> dict[str, Any]:
    """The number that each symbol of the plan's formulas stands for."""
    mesh, roles = result.question.mesh, result.question.layout.roles
    return {
        **result.sizes.known,
        **{one.symbol: mesh.size(*roles[role]) for role, one in ROLES.items() if roles.get(role)},
    }


def _derived(
    result: PlanResult, what: str, dimension: Dimension, cost: Callable[[Sizes], Any], **rest: Any
) -> Derivation:
    """A cost, evaluated twice: with numbers and with symbols."""
    known = values(result)
    return Derivation(
        what=what,
        dimension=dimension,
        expression=cost(result.sizes.symbols),
        value=_number(cost(result.sizes)),
        known=known,
        meanings={name: MEANINGS[name] + _of_a_stage(result, name) for name in known if name in MEANINGS},
        **rest,
    )


def _of_a_stage(result: PlanResult, symbol: str) -> str:
    return " of a stage" if result.pipeline and symbol == LOOPS["layers"].symbol else ""


def _rows(result: PlanResult, name: str) -> Iterator[Derivation]:
    """Wire bytes and seconds of the calls of a kind, an array or a block; calls of one formula together."""
    groups: dict[Any, list[Row]] = {}
    for row in result.collectives:
        blocks = row.block.split(",")
        if name in (row.collective, row.array, row.block, *row.array.split(), *blocks):
            groups.setdefault((row.collective, row.axis, row.call.shape), []).append(row)
    for rows in groups.values():
        one = rows[0].call
        arrays = ", ".join(dict.fromkeys(row.array for row in rows))
        yield _derived(
            result,
            f"wire bytes of one {one.kind} over {one.axis} ({arrays})",
            "bytes",
            one.wire_bytes,
            because=tuple(dict.fromkeys(row.because for row in rows if row.because)),
            sources=("How to Scale Your Model, chapter 3, with the finite factor",),
            checks=(*CHECKS["wire"], *CHECKS["program"]),
        )
        yield _seconds(result, rows)


def _seconds(result: PlanResult, rows: Sequence[Row]) -> Derivation:
    """Seconds of one call, with the constants of the levels that it runs over."""
    row = rows[0]
    timing = row.timing
    parts = [("launch", timing.launch_s), ("latency", timing.latency_s), ("bandwidth", timing.bandwidth_s)]
    parts += [("ramp", timing.ramp_s)] if timing.ramp_s else []
    parts += [("measured curve", timing.curve_s)] if timing.curves else []
    way = f"algorithm {timing.algorithm}" + ("" if timing.protocol == SIMPLE else f", protocol {timing.protocol}")
    joined = "max of " if result.question.cost_model == "book" else ""
    said = joined + " + ".join(f"{what} {show(float(part), 'seconds')}" for what, part in parts)
    levels = {segment.level for segment in route_over(result.question, row.call.parts[0].move)}
    calls = _number(sum(one.count for one in rows))
    return Derivation(
        what=f"time of one {row.collective} over {row.axis} ({way})",
        dimension="seconds",
        text=said,
        value=float(timing.time_s),
        because=(f"{calls:,} call{'s' * (calls != 1)} per step", *_taken(timing, result.question.cost_model)),
        sources=(
            *(f"as measured: {curve_said(one)}" for one in timing.curves),
            *_of_levels(result, levels, timing.algorithm, timing.protocol),
        ),
        checks=CHECKS["seconds"],
    )


def _taken(timing: Timing, cost_model: CostModel) -> Iterator[str]:
    """Why this algorithm and protocol: forced, counted least by the library, or least time. The book has one way."""
    if cost_model == "book" or not timing.steps:
        return
    reason = "the library counts least for this way" if timing.counted else "this way takes least"
    if len(timing.forced) == FORCEABLE:
        yield f"forced: {' with '.join(timing.forced)}"
    elif timing.forced:
        yield f"forced: {timing.forced[0]}; of what is then on offer {reason}"
    else:
        yield f"chosen: of what is on offer {reason}"


def _of_levels(result: PlanResult, levels: set[str], algorithm: str, protocol: str) -> Iterator[str]:
    """The constants of the levels; those that hold for another algorithm or protocol only are left out."""
    for one in result.question.machine.constants():
        head, *rest = one.path.split(".")
        tuned, carried = (rest[rest.index(word) + 1] if word in rest else "" for word in ("algorithms", "protocols"))
        if head == "levels" and rest[0] in levels and tuned in algorithm and carried in {"", protocol}:
            yield _said(one)


def _said(one: Constant) -> str:
    origin = ", ".join(dict.fromkeys(filter(None, (one.kind, one.source))))
    return f"{one.path} {show(one.value, one.dimension)} ({origin})"


def _layer(result: PlanResult, rest: str) -> Iterator[Derivation]:
    """``wire`` or ``payload`` of one layer and microbatch, of a phase if one is named: ``forward.wire``."""
    phase, _, part = rest.rpartition(".")
    phase, part = phase or "total", part.removesuffix("_bytes_per_device").removesuffix("_bytes")
    if phase not in PHASES or part not in ("wire", "payload"):
        return
    rows = result.per_layer[phase].rows  # type: ignore[index]  # one of `PHASES`

    def cost(sizes: Sizes) -> Any:
        calls = [(row.call, row.call.count(sizes)) for row in rows]
        repeats = sizes.repeats
        sums = total((one.wire_bytes(sizes) if part == "wire" else one.logical_bytes(sizes)) * n for one, n in calls)
        return Fraction(sums) / repeats if isinstance(sums, int) else sums / repeats

    word = "all phases" if phase == "total" else phase
    calls = [f"{row.collective} of {row.array}" for row in rows]
    yield _derived(
        result,
        f"{part} bytes of one layer and one microbatch, {word}",
        "bytes",
        cost,
        because=(f"{len(calls)} calls: {', '.join(calls)}",),
        checks=CHECKS["program"],
    )


def _memory(result: PlanResult, rest: str) -> Iterator[Derivation]:
    """What a chip holds: ``parameters``, ``gradients``, ``optimizer``, or all with ``static``."""
    part = rest.removesuffix("_bytes")
    if part in OVER_TIME:
        yield from OVER_TIME[part](result)
    if part not in MEMORY:
        return
    program, fullest = result.shelf.lowered(result.question).program, result.memory.peak_rank
    yield _derived(
        result,
        f"bytes of {part} on one chip",
        "bytes",
        lambda sizes: getattr(memory(program, sizes, _of_rank(result, fullest)), f"{part}_bytes"),
        because=(f"ZeRO {result.question.layout.zero}; {result.memory.verdict}",),
        checks=CHECKS["memory"],
    )


def _peak(result: PlanResult) -> Iterator[Derivation]:
    """What the arrays of a step take together where that is most."""
    held, stage = result.memory, f" of rank {result.memory.peak_rank}" if result.pipeline else ""
    parts = {"states": held.static_bytes, "kept": held.kept_bytes, **held.working}
    yield Derivation(
        what=f"bytes on one chip{stage} where they are most, in {held.peak_action}",
        dimension="bytes",
        text=" + ".join(f"{name} {show(float(size), 'bytes')}" for name, size in parts.items()),
        value=float(held.peak_bytes),
        because=(
            "what every action of the rank's order leaves behind stands beside the next; highest within it",
            held.verdict,
        ),
        checks=CHECKS["peak"],
    )


def _kept(result: PlanResult) -> Iterator[Derivation]:
    """What a microbatch keeps: of a layer from forward, and within backward, and of what is around the layers."""
    sorts: dict[str, Callable[[Kept], bool]] = {}
    for kind in kinds(result.question.practice):
        one_layer = "of one layer" if kind == ALIKE else f"of one {kind} layer"
        sorts[f"{one_layer} from forward to backward"] = partial(_kept_in, kind, forward=True)
        sorts[f"{one_layer} within backward, where gradients of weights wait"] = partial(_kept_in, kind, forward=False)
    for what, belongs in {**sorts, "around the layers": lambda one: not one.per_layer}.items():
        mine = partial(_kept_so, result, belongs)
        yield _derived(
            result,
            f"bytes that one microbatch keeps {what}",
            "bytes",
            lambda sizes, mine=mine: total(one.bytes_each for one in mine(sizes)),  # type: ignore[misc]
            because=tuple(f"{one}, {show(float(one.bytes_each), 'bytes')}" for one in mine(result.sizes)),
            checks=CHECKS["peak"],
        )


def _kept_in(kind: str, one: Kept, *, forward: bool) -> bool:
    return one.per_layer and one.reader.where.kind == kind and (one.maker.where.act == "F") == forward


def _kept_so(result: PlanResult, belongs: Callable[[Kept], bool], sizes: Sizes) -> list[Kept]:
    program, practice = result.shelf.lowered(result.question).program, result.question.practice
    return [one for one in kept(program, sizes, practice.keeps) if belongs(one)]


OVER_TIME: Mapping[str, Callable[[PlanResult], Iterator[Derivation]]] = {"peak": _peak, "kept": _kept}
"""What of memory changes within a step."""


def _pipeline(result: PlanResult, rest: str) -> Iterator[Derivation]:
    """What only a pipeline has: its ``bubble``."""
    if rest in ("bubble", "bubble_s"):
        yield from _step(result, "bubble_s")


def _step(result: PlanResult, rest: str) -> Iterator[Derivation]:
    """Seconds of the step, all of them with ``step`` alone."""
    rest = rest or "time_s"
    if rest in RATES:
        yield _rate(result, RATES[rest])
        return
    step = result.step
    texts = {
        "time_s": f"compute {show(step.compute_s, 'seconds')} + exposed {show(step.exposed_s, 'seconds')}"
        + _waiting(result),
        "communication_s": f"sum of time x calls over {len(result.rows)} kinds of call",
        "exposed_s": "communication - what runs beside compute, as practice.overlap states",
        "bubble_s": "of the rank that ends last: from the step's start to its end, what others keep it waiting"
        if result.pipeline
        else "without stages nobody waits",
        "compute_s": "sum over kernels of the longer of FLOPs/(peak x efficiency) and bytes/(bandwidth x efficiency)",
    }
    if rest in texts:
        yield Derivation(
            what=f"{rest.removesuffix('_s')} of one step",
            dimension="seconds",
            text=texts[rest],
            value=float(getattr(step, rest) or 0),
            because=tuple(_waits(result)) if rest == "bubble_s" else (),
            sources=tuple(_roofline(result)) if rest == "compute_s" else (),
            checks=CHECKS["compute"],
        )
    if rest in ("flops_per_device", "compute_s"):
        here = _of_rank(result, result.pipeline.step.pacing.rank if result.pipeline else 0)
        kernels = [one for one in result.shelf.lowered(result.question).kernels if here(one.where)]
        yield _derived(
            result,
            "FLOPs of one chip per step",
            "flops",
            lambda sizes: total(one.flops(sizes) * one.count(sizes) for one in kernels),
            checks=CHECKS["compute"],
        )


def _waits(result: PlanResult) -> Iterator[str]:
    """How the step goes through a pipeline, and what each of its stages waits for others."""
    if result.pipeline:
        waits: dict[str, list[int]] = {}
        for one in result.pipeline.step.stages:
            waits.setdefault(show(float(one.bubble_s), "seconds"), []).append(one.rank)
        yield f"{result.pipeline.schedule}; the step hangs on {result.pipeline.formula}"
        yield f"stages wait: {', '.join(f'{listed(ranks)} {wait}' for wait, ranks in waits.items())}"


def _waiting(result: PlanResult) -> str:
    """What the step's rank waits for others and for its host as terms of the step, which hangs on the critical path."""
    host = f" + host {show(result.step.host_s, 'seconds')}" if result.step.host_s else ""
    if not result.pipeline:
        return host
    return f"{host} + bubble {show(result.step.bubble_s, 'seconds')}; it hangs on {result.pipeline.formula}"


def _rate(result: PlanResult, name: str) -> Derivation:
    """A number of the step that is no time, made of its times: a share of peak, a rate, or where the bound turns."""
    time, tokens = show(float(result.step.time_s), "seconds"), f"{result.tokens:,} tokens"
    dtype = result.question.products
    peak = result.question.machine.chip.peak[dtype]
    useful, run = (show(float(flops), "flops") for flops in (result.compute.useful_flops, result.compute.flops))
    text = {
        "mfu": f"{useful} / ({time} x {result.chips:,} chips x {show(peak.value, peak.dimension)}); {FLOPS_COUNTED}",
        "hfu": f"{run} / ({time} x {show(peak.value, peak.dimension)}); {FLOPS_COUNTED}",
        "tokens_per_s": f"{tokens} / {time}",
        "breakeven_tokens_per_chip": _turning(result),
    }[name]
    return Derivation(
        what=RATE[name],
        dimension="ratio" if name in SHARES else "count",
        text=text,
        value=getattr(result.step, name),
        because=(result.step.breakeven,) if name == "breakeven_tokens_per_chip" else (),
        sources=(_said(peak),) if name in SHARES else (),
        checks=CHECKS["compute"],
    )


def _turning(result: PlanResult) -> str:
    """Where the bound turns, from where the plan is."""
    now, turns = result.tokens / result.chips, result.step.breakeven_tokens_per_chip
    if turns is None:
        return f"at no multiple of {now:,.0f} tokens now"
    return f"{now:,.0f} tokens now x {turns / now:.4g}, where both take as long"


def _roofline(result: PlanResult) -> Iterator[str]:
    """The constants that kernels meet; an efficiency that the scenario assumes replaces the chip's."""
    chip, stated = result.question.machine.chip, result.question.assume.matmul_efficiency
    yield _said(chip.peak[result.question.products])
    yield _said(chip.memory_bandwidth)
    yield _said(chip.memory_efficiency)
    if stated is not None:
        yield f"assume.matmul_efficiency {stated.value:g} (the scenario)"
    elif result.question.matmul_efficiency is not None:
        yield "matrix products at their peak (the cost model book)"
    else:
        kernels = (chip.attention_forward, chip.attention_backward, chip.kernel_pause)
        parts = (chip.matmul_efficiency, *(chip.tile.constants() if chip.tile else ()), *kernels)
        yield from (_said(one) for one in parts if one is not None)


def _of_rank(result: PlanResult, rank: int) -> Callable[[Where], bool]:
    """What a rank of the pipeline runs and holds; without one everything."""
    stages = result.question.stages
    return lambda where: not result.pipeline or stages.runs(where, rank)


def _number(value: Any) -> int | float:
    """The exact int where there is one."""
    return int(value) if value == int(value) else float(value)
