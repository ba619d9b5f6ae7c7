"""The derivations of a plan's step: its seconds, its rates, and where its bound turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.answers.derivation import CHECKS, Derivation
from tpsim.answers.evaluated import constant_said, derived, of_rank
from tpsim.answers.stages import listed
from tpsim.quantity.size import total
from tpsim.quantity.units import show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.answers.band import Band
    from tpsim.answers.plan import PlanResult
    from tpsim.report.record import Seconds

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


def pipeline(result: PlanResult, rest: str) -> Iterator[Derivation]:
    """What only a pipeline has: its ``bubble``."""
    if rest in ("bubble", "bubble_s"):
        yield from step(result, "bubble_s")


def step(result: PlanResult, rest: str) -> Iterator[Derivation]:
    """Seconds of the step, all of them with ``step`` alone."""
    rest = rest or "time_s"
    if rest in RATES:
        yield rate(result, RATES[rest])
        return
    if rest == "band":
        yield from band(result.band, result.step.time_s) if result.band else ()
        return
    step = result.step
    texts = {
        "time_s": f"compute {show(step.compute_s, 'seconds')} + exposed {show(step.exposed_s, 'seconds')}"
        + _waiting(result),
        "communication_s": f"sum of time x calls over {len(result.rows)} kinds of call",
        "exposed_s": "communication - what runs beside compute, as practice.overlap states",
        "bubble_s": "of the rank that the step hangs on: from a step's start to the next, what others keep it waiting"
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
        here = of_rank(result, result.pipeline.step.pacing.rank if result.pipeline else 0)
        kernels = [one for one in result.shelf.lowered(result.question).kernels if here(one.where)]
        yield derived(
            result,
            "FLOPs of one chip per step",
            "flops",
            lambda sizes: total(one.flops(sizes) * one.count(sizes) for one in kernels),
            checks=CHECKS["compute"],
        )


def band(own: Band, time_s: Seconds) -> Iterator[Derivation]:
    """The ends of the band beside the step's seconds."""
    time = show(float(time_s), "seconds")
    for end, which in ((own.low_s, "tenth"), (own.high_s, "ninetieth")):
        yield Derivation(
            what=f"the {which} of a hundred runs like it",
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


def rate(result: PlanResult, name: str) -> Derivation:
    """A number of the step that is no time, made of its times: a share of peak, a rate, or where the bound turns."""
    time, tokens = show(float(result.step.time_s), "seconds"), f"{result.tokens:,} tokens"
    dtype = result.question.products
    peak = result.question.machine.peak(dtype)
    counted = result.step.flops_counted
    useful, run = (show(float(flops), "flops") for flops in result.step.counted)
    text = {
        "mfu": f"{useful} / ({time} x {result.chips:,} chips x {show(peak.value, peak.dimension)}); {counted}",
        "hfu": f"{run} / ({time} x {show(peak.value, peak.dimension)}); {counted}",
        "tokens_per_s": f"{tokens} / {time}",
        "breakeven_tokens_per_chip": _turning(result),
    }[name]
    return Derivation(
        what=RATE[name],
        dimension="ratio" if name in SHARES else "count",
        text=text,
        value=getattr(result.step, name),
        because=(result.step.breakeven,) if name == "breakeven_tokens_per_chip" else (),
        sources=(constant_said(peak),) if name in SHARES else (),
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
    yield constant_said(result.question.machine.peak(result.question.products))
    yield constant_said(chip.memory_bandwidth)
    yield constant_said(chip.memory_efficiency)
    if stated is not None:
        yield f"assume.matmul_efficiency {stated.value:g} (the scenario)"
    elif result.question.matmul_efficiency is not None:
        yield "matrix products at their peak (the cost model book)"
    else:
        kernels = (chip.attention_forward, chip.attention_backward, chip.kernel_pause)
        parts = (chip.matmul_efficiency, *(chip.tile.constants() if chip.tile else ()), *kernels)
        yield from (constant_said(one) for one in parts if one is not None)
