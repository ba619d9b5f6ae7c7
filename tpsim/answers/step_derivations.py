"""The derivations of a plan's step: seconds, rates, and where a bound turns."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from tpsim.answers.derivation import CHECKS, Derivation, constant_said, derived
from tpsim.answers.serve import whole_stack
from tpsim.answers.stages import listed
from tpsim.quantity.size import largest, over, product, total
from tpsim.quantity.units import show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tpsim.answers.plan import PlanResult
    from tpsim.answers.trust import Band
    from tpsim.cost.rollup import Row
    from tpsim.cost.sizes import Sizes
    from tpsim.report.record import Seconds

STEP = (
    *("time_s", "compute_s", "communication_s", "exposed_s", "bubble_s", "host_s", "stragglers_s", "update_s"),
    "flops_per_device",
)
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
    "hfu": "FLOPs per second that a chip runs, recompute and repeated work among them, over its peak, in the mean",
    "tokens_per_s": "tokens per second of all chips",
    "breakeven_tokens_per_chip": "tokens per chip and step above which compute outlasts exposed communication",
}
"""What these are."""

SHARES = ("mfu", "hfu")
"""Those that are shares of peak."""


def pipeline(result: PlanResult, rest: str) -> Iterator[Derivation]:
    """What only a pipeline has: its ``bubble``."""
    if rest in ("bubble", "bubble_s"):
        yield from step(result, "bubble_s")


def step(result: PlanResult, rest: str) -> Iterator[Derivation]:
    """Seconds of the step, all of them with ``step`` alone."""
    name = rest or "time_s"
    if name in RATES:
        yield rate(result, RATES[name])
    if name == "band" and result.band:
        yield from band(result.band, result.step.time_s)
    if text := _texts(result).get(name):
        yield Derivation(
            what=f"{name.removesuffix('_s')} of one step",
            dimension="seconds",
            text=text,
            value=float(getattr(result.step, name) or 0),
            because=tuple(_reasons(result, name)),
            sources=tuple(_constants(result, name)),
            checks=CHECKS["stragglers" if name == "stragglers_s" else "compute"],
        )
    if name in ("flops_per_device", "compute_s"):
        yield _flops(result)


def made_of(result: PlanResult) -> str:
    """What the step's seconds are the sum of, in words."""
    return _texts(result)["time_s"]


def _texts(result: PlanResult) -> dict[str, str]:
    """How the step's seconds are made, each in words."""
    step, paused = result.step, " + kernel_pause" if result.question.machine.chip.kernel_pause else ""
    return {
        "time_s": f"compute {show(step.compute_s, 'seconds')} + exposed {show(step.exposed_s, 'seconds')}"
        + _waiting(result),
        "communication_s": _by_kind(result, lambda row: largest(row.busy_s, row.exposed_s)),
        "exposed_s": _by_kind(result, lambda row: row.exposed_s),
        "bubble_s": "of the rank that the step hangs on: from a step's start to the next, what others keep it waiting"
        if result.pipeline
        else "without stages nobody waits",
        "host_s": "what actions take longer as a host launches their kernels one by one"
        if result.question.assume.kernel_launch_s
        else "no launch is stated: assume.kernel_launch",
        "update_s": f"kernels that update weights, of compute {show(step.compute_s, 'seconds')}",
        "stragglers_s": "sum over actions of sqrt(compute x meetings x interruption) x (sqrt(chips of a stage) - 1)",
        "compute_s": "sum over kernels of the longer of FLOPs/(peak x efficiency) and bytes/(bandwidth x efficiency)"
        + paused,
    }


def _by_kind(result: PlanResult, seconds: Callable[[Row], Any]) -> str:
    """The seconds of rows as terms of kinds of call, most first."""
    kinds: dict[str, Any] = {}
    for row in result.step.rows:
        name = f"{row.collective} over {row.axis}"
        kinds[name] = kinds.get(name, 0) + float(seconds(row))
    most = sorted(((spent, name) for name, spent in kinds.items() if spent), reverse=True)
    return " + ".join(f"{name} {show(spent, 'seconds')}" for spent, name in most) or "no call takes any"


def _reasons(result: PlanResult, name: str) -> Iterator[str]:
    """Why seconds of the step are what they are."""
    step = result.step
    if name in ("communication_s", "exposed_s") and result.pipeline:
        yield "of the rank that the step hangs on: its own calls, and messages that it waits for"
    hidden = step.communication_s - step.exposed_s
    if name == "exposed_s" and hidden > 0:
        beside, whole = (show(float(spent), "seconds") for spent in (hidden, step.communication_s))
        yield f"compute runs beside {beside} of the communication of {whole}, as practice.overlap states"
    if name == "bubble_s":
        yield from _waits(result)
    if name == "stragglers_s":
        yield from LATE


def _flops(result: PlanResult) -> Derivation:
    """The FLOPs that HFU counts: of all stages, each with as many chips."""
    kernels = result.memo.lowered(result.question).kernels
    by, stages = result.question.assume.mfu, result.question.layout.stages

    def flops(sizes: Sizes) -> Any:
        runs = ((kernel, kernel.flops(sizes), kernel.count(sizes)) for kernel in kernels)
        every = total(kernel.counted(run, sizes, by) * count for kernel, run, count in runs)
        return over(every, product(sizes.axes[axis] for axis in stages))

    noun = f"FLOPs of a chip per step, the mean of all: {result.step.flops_counted}"
    whole = replace(result, sizes=whole_stack(result), pipeline=None)
    return derived(whole, noun, "flops", flops, checks=CHECKS["compute"])


LATE = (
    "where a layer's weights are gathered, or its gradients summed, ranks wait for the one with the longest pause",
    "pauses longer than d are as rare as 1/d^2: the longest of n ranks in t seconds is sqrt(n t x interruption)",
)
"""Why ranks wait for stragglers."""


def _constants(result: PlanResult, name: str) -> Iterator[str]:
    """The machine's constants that seconds of the step are made of."""
    late = result.question.machine.chip.interruption
    if name == "compute_s":
        yield from _roofline(result)
    if name == "stragglers_s" and late:
        yield constant_said(late)


def band(own: Band, time_s: Seconds) -> Iterator[Derivation]:
    """The ends of the band beside the step's seconds."""
    time = show(float(time_s), "seconds")
    for end, which in ((own.low_s, "low"), (own.high_s, "high")):
        yield Derivation(
            what=f"the {which} end of where eight of ten runs like it lie",
            dimension="seconds",
            text=f"{time} x {end / time_s:.3g}, measured over predicted seconds of published runs {own.of}",
            value=float(end),
            because=("the constants that predict a set of runs were fitted to the others; sets weigh alike",),
            sources=(f"docs/steps.md: {own.runs} runs of {own.sets} sets",),
            checks=("tests/test_published_steps.py",),
        )


def _waits(result: PlanResult) -> Iterator[str]:
    """How the step goes through a pipeline, and what each of its stages waits for others."""
    if result.pipeline:
        waits: dict[str, list[int]] = {}
        for stage in result.pipeline.step.told.stages:
            waits.setdefault(show(float(stage.bubble_s), "seconds"), []).append(stage.rank)
        yield f"{result.pipeline.schedule}; the step hangs on {result.pipeline.formula}"
        yield f"stages wait: {', '.join(f'{listed(ranks)} {wait}' for wait, ranks in waits.items())}"


def _waiting(result: PlanResult) -> str:
    """What the step's rank waits for others and for its host as terms of the step, which hangs on the critical path."""
    waits = result.step.own_waits
    if not result.pipeline:
        return waits
    return f"{waits} + bubble {show(result.step.bubble_s, 'seconds')}; it hangs on {result.pipeline.formula}"


def rate(result: PlanResult, name: str) -> Derivation:
    """A number of the step that is no time, made of its times: a share of peak, a rate, or where the bound turns."""
    time, tokens = show(float(result.step.time_s), "seconds"), f"{result.tokens:,} tokens"
    dtype = result.question.products
    peak = result.question.machine.peak(dtype)
    counted = result.step.flops_counted
    useful, run = (show(float(flops), "flops") for flops in result.step.counted)
    value = getattr(result.step, name)
    text = {
        "mfu": f"{useful} / ({time} x {result.chips:,} chips x {show(peak.value, peak.dimension)}); {counted}",
        "hfu": f"{run} / ({time} x {show(peak.value, peak.dimension)}); {counted}",
        "tokens_per_s": f"{tokens} / {show(float(result.step.pace_s), 'seconds')}",
        "breakeven_tokens_per_chip": _turning(result),
    }[name]
    return Derivation(
        what=RATE[name],
        dimension="ratio" if name in SHARES else "count",
        text=text,
        value=value,
        because=(result.step.breakeven,) if name == "breakeven_tokens_per_chip" and value is not None else (),
        sources=(constant_said(peak),) if name in SHARES else (),
        checks=CHECKS["compute"],
    )


def _turning(result: PlanResult) -> str:
    """Where the bound turns, from where the plan is."""
    now, turns = result.tokens / result.chips, result.step.breakeven_tokens_per_chip
    if turns is None:
        return result.step.breakeven
    return f"{now:,.0f} tokens now x {turns / now:.4g}, where both take as long"


def _roofline(result: PlanResult) -> Iterator[str]:
    """The constants that kernels meet; an efficiency that the scenario assumes replaces the chip's."""
    chip, stated = result.question.machine.chip, result.question.assume.matmul_efficiency
    yield constant_said(result.question.machine.peak(result.question.products))
    yield constant_said(chip.memory.bandwidth)
    yield constant_said(chip.memory_efficiency)
    if stated is not None:
        yield f"assume.matmul_efficiency {stated.value:g} (the scenario)"
    elif result.question.matmul_efficiency is not None:
        yield "matrix products at their peak (the cost model book)"
    else:
        parts = (part.constants() for part in (chip.tile, chip.attention_efficiency) if part)
        yield from map(constant_said, (chip.matmul_efficiency, *chain.from_iterable(parts)))
    if chip.kernel_pause:
        yield constant_said(chip.kernel_pause)
