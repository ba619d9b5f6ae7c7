"""The derivations of a plan's numbers: its collectives, one layer, memory, and the step."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tpsim.answers.derivation import CHECKS, WIRE_SOURCE, Derivation, constant_said, derived, number
from tpsim.answers.memory_derivations import CACHE, MEMORY, ON_HOST, OVER_TIME, held
from tpsim.answers.serve_derivations import SERVED, noun_of, serve
from tpsim.answers.step_derivations import RATE, RATES, STEP, pipeline, rate, step
from tpsim.cost.collectives import singles
from tpsim.machine.algorithms import ALGORITHMS
from tpsim.machine.cost import SIMPLE
from tpsim.machine.curve_file import summary as curve_summary
from tpsim.machine.timing import CostModel, Timing, limits, sends
from tpsim.quantity.size import total
from tpsim.quantity.units import show
from tpsim.question.prices import route_over
from tpsim.report.numbers import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tpsim.answers.plan import PlanResult
    from tpsim.cost.rollup import Row
    from tpsim.cost.sizes import Sizes

LAYER = "per_layer"
PHASES = ("forward", "backward", "total")
TRAINED = ("per_layer.backward", "memory.gradients", "memory.optimizer", "memory.kept", "breakeven")
"""What the names of numbers begin with that training has, and inference does not."""

FORCEABLE = 2
"""What of a way can be forced: its algorithm and its protocol."""

ROUNDED = 1e-9
"""Share of a time below which a difference is one of rounding."""


def names_in(result: PlanResult) -> dict[str, str]:
    """Every name that can be explained of `result` but the constants of its machine, and what bears it."""
    rows = result.rows
    arrays = [name for row in rows for name in row.array.split() if not name[0].isdigit() and name != "arrays"]
    blocks = [part.block for row in rows for part in row.call.parts]
    calls: dict[str, str] = {row.collective: f"every {row.collective}" for row in rows}
    calls |= {name: f"the calls of array {name}" for name in arrays}
    calls |= {name: f"the calls of block {name}" for name in blocks}
    told = [*result.serve] if result.serve else []
    served = {f"serve.{name}": noun_of(result.serve, name) for name in SERVED if result.serve and name in told}
    if "servers" in told:
        from tpsim.answers import servers

        served |= {f"serve.servers.{name}": noun for name, (noun, _) in servers.NOUNS.items()}
    if "mixed" in told:
        from tpsim.answers import mixed

        served |= {f"serve.mixed.{name}": noun for name, (noun, _) in mixed.NOUNS.items()}
    if result.serve and (ahead := result.serve.speculation):
        from tpsim.answers.speculation_derivations import NOUNS

        known = {f"serve.speculation.{name}": noun for name, (noun, _) in NOUNS.items() if name in [*ahead]}
        served = {**served, **known}
    cache = {f"memory.{CACHE}": f"bytes of {CACHE} on one chip"} if served else {}
    every = {name: noun for name, noun in numbers().items() if not (served and name.startswith(TRAINED))}
    cache |= {f"memory.{ON_HOST}": "bytes of one chip on its host"} if result.memory.host_bytes is not None else {}
    band = {"step.band": "where 8 of 10 published runs like it lie"} if result.band else {}
    return {**calls, **every, **band, **cache, **served}


def numbers() -> dict[str, str]:
    """The names of the numbers that every plan has, and what they are."""
    layer = {
        f"{LAYER}{phase and '.'}{phase}.{part}": f"{part} bytes of one layer and one microbatch, {words}"
        for phase, words in {"": "all phases", **dict(zip(PHASES, (*PHASES[:2], "all phases"), strict=True))}.items()
        for part in ("wire", "payload")
    }
    memory = {f"memory.{name}": f"bytes of {name} on one chip" for name in (*MEMORY, *OVER_TIME)}
    step = {f"step.{name}": f"{name.removesuffix('_s').replace('_', ' ')} of one step" for name in STEP}
    whole = {"step": "seconds of one step, and what they are made of", "pipeline.bubble": "what stages wait for others"}
    return {**layer, **memory, **whole, **step, **{name: RATE[key] for name, key in RATES.items()}}


def derivations(result: PlanResult, name: str) -> tuple[Derivation, ...]:
    """The derivations of the numbers called `name`; none if the plan has no such name."""
    head, _, rest = name.removeprefix("result.").partition(".")
    if head in READ:
        return tuple(READ[head](result, rest))
    if head in RATES and not rest:
        return (rate(result, RATES[head]),)
    return tuple(_rows(result, name.removeprefix("result.collectives.")))


def _rows(result: PlanResult, name: str) -> Iterator[Derivation]:
    """Wire bytes and seconds of the calls of a kind, an array or a block; calls of one formula together."""
    groups: dict[Any, list[Row]] = {}
    for row in result.collectives:
        blocks = [part.block for part in row.call.parts]
        if name in (row.collective, row.array, row.block, *row.array.split(), *blocks):
            groups.setdefault((row.collective, row.axis, row.call.shape), []).append(row)
    for rows in groups.values():
        call = rows[0].call
        arrays = ", ".join(dict.fromkeys(row.array for row in rows))
        yield derived(
            result,
            f"wire bytes of one {call.kind} over {call.axis} ({arrays})",
            "bytes",
            call.wire_bytes,
            because=tuple(dict.fromkeys(row.because for row in rows if row.because)),
            sources=(WIRE_SOURCE,),
            checks=(*CHECKS["wire"], *CHECKS["program"]),
        )
        yield _seconds(result, rows)


def _seconds(result: PlanResult, rows: Sequence[Row]) -> Derivation:
    """Seconds of one call, with the constants of the levels that it runs over."""
    row = rows[0]
    timing = row.timing
    way = f"algorithm {timing.algorithm}" + ("" if timing.protocol == SIMPLE else f", protocol {timing.protocol}")
    route = route_over(result.question, row.call.parts[0].move)
    levels = {segment.level for segment in route}
    calls = number(sum(row.count for row in rows))
    return Derivation(
        what=f"time of one {row.collective} over {row.axis} ({way})",
        dimension="seconds",
        text=_spent(timing, result.question.cost_model),
        value=float(timing.time_s),
        because=(
            f"{counted(calls, 'call')} per step",
            *_taken(timing, result.question.cost_model),
            *limits(result.question.machine, route),
        ),
        sources=(
            *(f"as measured: {curve_summary(curve)}" for curve in timing.curves),
            *_of_levels(result, levels, timing.algorithm, timing.protocol),
        ),
        checks=CHECKS["seconds"],
    )


def _spent(timing: Timing, cost_model: CostModel) -> str:
    """What its seconds are made of, as the cost model joins them, less what passes at once."""
    parts = [("launch", timing.launch_s), ("latency", timing.latency_s), ("bandwidth", timing.bandwidth_s)]
    parts += [("ramp", timing.ramp_s)] if timing.ramp_s else []
    parts += [("measured curve", timing.curve_s)] if timing.curves else []
    told = [f"{noun} {show(float(part), 'seconds')}" for noun, part in parts]
    if cost_model == "book":
        return f"the longer of {told[1]} and {told[2]}"
    once = float(total(part for _, part in parts) - timing.time_s)
    hidden = once > ROUNDED * timing.time_s
    return " + ".join(told) + (f" - {show(once, 'seconds')} where hops or levels work at once" if hidden else "")


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
    if timing.asked:
        yield from sends(timing.asked.machine, timing.asked.route, timing.asked.runs)


def _of_levels(result: PlanResult, levels: set[str], algorithm: str, protocol: str) -> Iterator[str]:
    """The constants of the levels; those that hold for another algorithm or protocol only are left out."""
    met = ALGORITHMS[algorithm].met_as if algorithm in ALGORITHMS else ""
    for constant in result.question.machine.constants():
        head, *rest = constant.path.split(".")
        tuned, carried = (rest[rest.index(word) + 1] if word in rest else "" for word in ("algorithms", "protocols"))
        if (
            head == "levels"
            and rest[0] in levels
            and (tuned in algorithm or tuned == met)
            and carried in {"", protocol}
        ):
            yield constant_said(constant)


def _layer(result: PlanResult, rest: str) -> Iterator[Derivation]:
    """``wire`` or ``payload`` of one layer and microbatch, of a phase if one is named: ``forward.wire``."""
    phase, _, part = rest.rpartition(".")
    phase, part = phase or "total", part.removesuffix("_bytes_per_device").removesuffix("_bytes")
    if phase not in PHASES or part not in ("wire", "payload"):
        return
    rows = result.per_layer[phase].rows  # type: ignore[index]  # one of `PHASES`

    def cost(sizes: Sizes) -> Any:
        calls = [(call, call.count(sizes)) for call in singles(row.call for row in rows)]
        repeats = sizes.repeats
        sums = total((call.wire_bytes(sizes) if part == "wire" else call.logical_bytes(sizes)) * n for call, n in calls)
        return Fraction(sums) / repeats if isinstance(sums, int) else sums / repeats

    word = "all phases" if phase == "total" else phase
    calls = [f"{row.collective} of {row.array}" for row in rows]
    yield derived(
        result,
        f"{part} bytes of {result.layer} and one microbatch, {word}",
        "bytes",
        cost,
        because=(f"{len(calls)} calls: {', '.join(calls)}",),
        checks=CHECKS["program"],
    )


READ: Mapping[str, Callable[[PlanResult, str], Iterator[Derivation]]] = {
    LAYER: _layer,
    "memory": held,
    "step": step,
    "pipeline": pipeline,
    "serve": serve,
}
"""What the name of a number begins with -> what derives it from the rest."""

PARTS = (*READ, *RATES)
"""What the name of a number begins with that only a plan has."""
