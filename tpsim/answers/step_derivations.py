"""The derivations of a plan's step and of inference: seconds, rates, room, and where a bound turns."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from tpsim.answers.derivation import CHECKS, Derivation, constant_said, derived
from tpsim.answers.serve import cache_bytes_per_token, whole_stack
from tpsim.answers.stages import listed
from tpsim.quantity.size import largest, over, product, total
from tpsim.quantity.units import Dimension, show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tpsim.answers.plan import PlanResult
    from tpsim.answers.trust import Band
    from tpsim.cost.rollup import Row
    from tpsim.cost.sizes import Sizes
    from tpsim.report.record import Seconds

STEP = ("time_s", "compute_s", "communication_s", "exposed_s", "bubble_s", "stragglers_s", "flops_per_device")
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


SERVED: Mapping[str, tuple[str, Dimension]] = {
    "ttft_s": ("seconds until the first token of a reply, without a queue before it", "seconds"),
    "tpot_s": ("seconds of a step of decoding", "seconds"),
    "reply_s": ("seconds of a prompt and its reply", "seconds"),
    "tokens_per_s_user": ("new tokens of a sequence per second", "count"),
    "tokens_per_s_chip": ("tokens of all sequences per second and chip", "count"),
    "requests_per_s": ("requests per second, prompts and replies on the same chips", "count"),
    "prompts_share": ("share of the time of these chips that prompts take", "ratio"),
    "served_tokens_per_s_chip": ("new tokens of replies per second and chip, all chips and prompts counted", "count"),
    "bytes_bound_share": ("share of compute in kernels that take as long as their bytes", "ratio"),
    "pauses_share": ("share of compute in pauses behind kernels", "ratio"),
    "largest_batch": ("sequences for which memory has room", "count"),
    "cache_bytes_per_token": ("bytes of the cache for each token of a sequence, all chips together", "bytes"),
}
"""What can be explained, and what it is a number of."""


def serve(result: PlanResult, rest: str) -> Iterator[Derivation]:
    """One of `SERVED`, or of what drafts or other servers that read prompts come to; of a plan of training none."""
    served, (part, _, name) = result.serve, rest.partition(".")
    if part == "speculation" and served and served.speculation:
        from tpsim.answers.speculation_derivations import speculated

        yield from speculated(served.speculation, name)
    elif part == "servers" and served and served.servers:
        from tpsim.answers.servers import explained

        yield from explained(result, name)
    if served is None or rest not in SERVED or (value := getattr(served, rest)) is None:
        return
    noun, dimension = SERVED[rest]
    if rest == "cache_bytes_per_token":
        lowered, question = result.memo.lowered(result.question), result.question
        yield derived(
            replace(result, sizes=whole_stack(result), pipeline=None),
            noun,
            dimension,
            lambda sizes: cache_bytes_per_token(lowered, sizes),
            because=(f"keys and values in {question.dtypes.cache or question.dtypes.activations}",),
            checks=CHECKS["memory"],
        )
        return
    ahead = served.speculation
    yield Derivation(
        what=TPOT if ahead and rest == "tpot_s" else noun,
        dimension=dimension,
        text=_text(result)[rest],
        value=float(value),
        because=(EXPECTED,) if ahead and rest in PACED else (),
        checks=(*CHECKS["compute"], *(CHECKS["speculation"] if ahead else ())),
    )


PACED = (
    *("tpot_s", "reply_s", "tokens_per_s_user", "tokens_per_s_chip"),
    *("requests_per_s", "prompts_share", "served_tokens_per_s_chip"),
)
"""What of it hangs on how many drafts are accepted."""

TPOT = "seconds of a token, drafts and verification together"
"""What TPOT is where steps verify drafts."""

EXPECTED = (
    "a step gives drafts up to the first that is rejected and a token of the model's own: 1 + a + ... + a^d in the "
    "mean, where each is accepted with probability a (Leviathan et al. 2023, equation 1)"
)
"""Why tokens of a step that verifies d drafts are what they are."""


def _drafted(result: PlanResult) -> str:
    """Seconds of a token, where a step verifies drafts."""
    ahead = result.serve and result.serve.speculation
    if not ahead:
        return _texts(result)["time_s"]
    return f"({ahead.formula}) / {ahead.expected_tokens:.6g} tokens"


def _served(result: PlanResult) -> str:
    """Tokens of all chips, where other servers read prompts; "" where the same do."""
    if not result.serve or not result.serve.servers:
        return ""
    from tpsim.answers.servers import explained

    return "".join(each.text for each in explained(result, "tokens_per_s_chip"))


def _text(result: PlanResult) -> dict[str, str]:
    step, chips, work = show(float(result.step.pace_s), "seconds"), result.chips, result.question.workload
    prompt, steps = result.prefill or result, getattr(result.question.stated.file.workload, "steps", 0)
    ahead, servers = result.serve and result.serve.speculation, result.serve and result.serve.servers
    moves = f" + {show(servers.transfer_s, 'seconds')} until the cache has moved" if servers else ""
    prompts_s = (prompt.step.ended_s, ahead.draft_prompt_s if ahead and steps else None)
    read = [show(float(seconds), "seconds") for seconds in prompts_s if seconds]
    compute_s = float(result.step.compute_s)
    shares = (result.serve.bytes_bound_share, result.serve.pauses_share) if result.serve else ()
    part = [f"{show(share * compute_s, 'seconds')} of {show(compute_s, 'seconds')}" for share in shares]
    reply = show(result.serve.reply_s or 0, "seconds") if result.serve else ""
    made = result.serve.reply_tokens if result.serve else 0
    room = f"the most with peak and overheads within {show(result.memory.capacity_bytes, 'bytes')}, cache full"
    several = prompt.question.workload.microbatches
    through = f"until the last of {several} microbatches has gone through all stages, from the first start of all"
    return {
        "ttft_s": f"the prompt's {_texts(prompt)['time_s']}" if several == 1 else through,
        "tpot_s": _drafted(result),
        "reply_s": f"{' + '.join(read)}{moves} + {steps} x {step}, the mean of the steps",
        "tokens_per_s_user": f"{result.tokens // work.global_batch}/{step}",
        "tokens_per_s_chip": f"{result.tokens:,}/({step} x {chips} chips)",
        "requests_per_s": f"{work.global_batch}/{reply} of prompts and their replies",
        "prompts_share": f"1 - {steps} x {step}/{reply}",
        "served_tokens_per_s_chip": _served(result) or f"{made:,}/({reply} x {chips} chips)",
        **dict(zip(("bytes_bound_share", "pauses_share"), part, strict=False)),
        "largest_batch": f"{room}; now {show(float(result.memory.peak_bytes), 'bytes')} at {work.global_batch}",
    }
