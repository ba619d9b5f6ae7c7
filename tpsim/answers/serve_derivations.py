"""The derivations of what a step of inference means to those who wait for it, and to those who pay for the chips."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tpsim.answers.derivation import CHECKS, Derivation, derived
from tpsim.answers.serve import cache_bytes_per_token, state_bytes, whole_stack
from tpsim.answers.step_derivations import made_of
from tpsim.program.saved import STATISTIC
from tpsim.quantity.units import Dimension, show

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpsim.answers.plan import PlanResult
    from tpsim.answers.serve import Serve

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
    "state_bytes_per_sequence": ("bytes of the states of a sequence, all chips together", "bytes"),
}
"""What can be explained, and what it is a number of."""


def serve(result: PlanResult, rest: str) -> Iterator[Derivation]:
    """One of `SERVED`, or of what drafts or other servers that read prompts come to; of a plan of training none."""
    served, (part, _, name) = result.serve, rest.partition(".")
    if part == "speculation" and served and served.speculation:
        from tpsim.answers.speculation_derivations import speculated

        yield from speculated(served.speculation, name)
    elif part == "mixed" and served and served.mixed:
        from tpsim.answers import mixed

        yield from mixed.explained(served.mixed, name)
    elif part == "servers" and served and served.servers:
        from tpsim.answers.servers import explained

        yield from explained(result, name)
    if served is None or rest not in SERVED or (value := getattr(served, rest)) is None:
        return
    noun, dimension = SERVED[rest]
    if of := HELD_BYTES.get(rest):
        lowered, question = result.memo.lowered(result.question), result.question
        kept = f"keys and values in {question.dtypes.cache or question.dtypes.activations}"
        yield derived(
            replace(result, sizes=whole_stack(result), pipeline=None),
            noun,
            dimension,
            lambda sizes: of(lowered, sizes),
            because=(kept if rest == "cache_bytes_per_token" else STATES_IN,),
            checks=CHECKS["memory"],
        )
        return
    ahead = served.speculation
    yield Derivation(
        what=noun_of(served, rest),
        dimension=dimension,
        text=_text(result)[rest],
        value=float(value),
        because=(EXPECTED,) if ahead and rest in PACED else (),
        checks=(
            *CHECKS["compute"],
            *(name for part in TPOT if getattr(served, part) for name in CHECKS[part]),
        ),
    )


HELD_BYTES = {"cache_bytes_per_token": cache_bytes_per_token, "state_bytes_per_sequence": state_bytes}
"""What of these are bytes of the cache, and what gives them."""

STATES_IN = f"states in {STATISTIC}, last tokens of convolutions as activations are"

PACED = (
    *("tpot_s", "reply_s", "tokens_per_s_user", "tokens_per_s_chip"),
    *("requests_per_s", "prompts_share", "served_tokens_per_s_chip"),
)
"""What of it hangs on how many drafts are accepted."""

TPOT: Mapping[str, str] = {
    "speculation": "seconds of a token, drafts and verification together",
    "mixed": "seconds of a token, steps that read prompts and others together",
}
"""What TPOT is where it is of no step alone."""


def noun_of(served: Serve, name: str) -> str:
    """What one of `SERVED` is."""
    unlike = [noun for part, noun in TPOT.items() if name == "tpot_s" and getattr(served, part)]
    return next(iter(unlike), SERVED[name][0])


EXPECTED = (
    "a step gives drafts up to the first that is rejected and a token of the model's own: 1 + a + ... + a^d in the "
    "mean, where each is accepted with probability a (Leviathan et al. 2023, equation 1)"
)
"""Why tokens of a step that verifies d drafts are what they are."""


def _token(result: PlanResult) -> str:
    """Seconds of a token: of a step, or of what it has of drafts and verification, or of steps that read prompts."""
    if mixed := result.serve and result.serve.mixed:
        slots, share = result.question.workload.global_batch, mixed.share
        step, decode = show(mixed.step_s, "seconds"), show(mixed.decode_s, "seconds")
        weighed = f"{share:.4g} x {mixed.decoding:,.6g} x {step} + {1 - share:.4g} x {slots:,} x {decode}"
        return f"({weighed})/{slots - share * mixed.reading:,.6g} sequences that decode"
    ahead = result.serve and result.serve.speculation
    if not ahead:
        return made_of(result)
    return f"({ahead.formula}) / {ahead.expected_tokens:.6g} tokens"


def _served(result: PlanResult) -> str:
    """Tokens of all chips, where other servers read prompts; "" where the same do."""
    if not result.serve or not result.serve.servers:
        return ""
    from tpsim.answers.servers import explained

    return "".join(each.text for each in explained(result, "tokens_per_s_chip"))


def _first(result: PlanResult, prompt: PlanResult) -> str:
    """Seconds until the first token."""
    if mixed := result.serve and result.serve.mixed:
        return f"{mixed.pieces:.4g} steps of {show(mixed.step_s, 'seconds')} that read a prompt"
    several = prompt.question.workload.microbatches
    if several == 1:
        return f"the prompt's {made_of(prompt)}"
    return f"until the last of {several} microbatches has gone through all stages, from the first start of all"


def _text(result: PlanResult) -> dict[str, str]:
    step, chips, work = show(float(result.step.pace_s), "seconds"), result.chips, result.question.workload
    prompt, steps = result.prefill or result, getattr(result.question.stated.file.workload, "steps", 0)
    ahead, servers = result.serve and result.serve.speculation, result.serve and result.serve.servers
    moves = f" + {show(servers.transfer_s, 'seconds')} until the cache has moved" if servers else ""
    mixed = result.serve and result.serve.mixed
    prompts_s = (mixed.ttft_s if mixed else prompt.step.ended_s, ahead.draft_prompt_s if ahead and steps else None)
    read = [show(float(seconds), "seconds") for seconds in prompts_s if seconds]
    compute_s = float(result.step.compute_s)
    shares = (result.serve.bytes_bound_share, result.serve.pauses_share) if result.serve else ()
    part = [f"{show(share * compute_s, 'seconds')} of {show(compute_s, 'seconds')}" for share in shares]
    reply = show(result.serve.reply_s or 0, "seconds") if result.serve else ""
    made = result.serve.reply_tokens if result.serve else 0
    room = f"the most with peak and overheads within {show(result.memory.capacity_bytes, 'bytes')}, cache full"
    return {
        "ttft_s": _first(result, prompt),
        "tpot_s": _token(result),
        "reply_s": f"{' + '.join(read)}{moves} + {steps} x {step}, the mean of the steps",
        "tokens_per_s_user": f"{result.tokens // work.global_batch}/{step}",
        "tokens_per_s_chip": f"{result.tokens:,}/({step} x {chips} chips)",
        "requests_per_s": f"{work.global_batch}/{reply} of prompts and their replies",
        "prompts_share": f"1 - {steps} x {step}/{reply}",
        "served_tokens_per_s_chip": _served(result) or f"{made:,}/({reply} x {chips} chips)",
        **dict(zip(("bytes_bound_share", "pauses_share"), part, strict=False)),
        "largest_batch": f"{room}; now {show(float(result.memory.peak_bytes), 'bytes')} at {work.global_batch}",
    }
