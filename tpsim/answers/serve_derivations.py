"""The derivations of what inference comes to: first token, each that follows, rates, room, bytes of the cache."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tpsim.answers.derivation import CHECKS, Derivation
from tpsim.answers.evaluated import derived
from tpsim.answers.serve import cache_bytes_per_token, whole_stack
from tpsim.quantity.units import show

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpsim.answers.plan import PlanResult
    from tpsim.quantity.units import Dimension

SERVED: Mapping[str, tuple[str, Dimension]] = {
    "ttft_s": ("seconds until the first token of a reply, without a queue before it", "seconds"),
    "tpot_s": ("seconds of a step of decoding", "seconds"),
    "reply_s": ("seconds of a prompt and its reply", "seconds"),
    "tokens_per_s_user": ("new tokens of a sequence per second", "count"),
    "tokens_per_s_chip": ("tokens of all sequences per second and chip", "count"),
    "largest_batch": ("sequences for which memory has room", "count"),
    "cache_bytes_per_token": ("bytes of the cache for each token of a sequence, all chips together", "bytes"),
}
"""What can be explained, and what it is a number of."""


def serve(result: PlanResult, rest: str) -> Iterator[Derivation]:
    """One of `SERVED`; of a plan of training none."""
    served = result.serve
    if served is None or rest not in SERVED or (value := getattr(served, rest)) is None:
        return
    what, dimension = SERVED[rest]
    if rest == "cache_bytes_per_token":
        lowered, question = result.shelf.lowered(result.question), result.question
        yield derived(
            replace(result, sizes=whole_stack(result), pipeline=None),
            what,
            dimension,
            lambda sizes: cache_bytes_per_token(lowered, sizes),
            because=(f"keys and values in {question.dtypes.cache or question.dtypes.activations}",),
            checks=CHECKS["memory"],
        )
        return
    yield Derivation(
        what=what, dimension=dimension, text=_text(result)[rest], value=float(value), checks=CHECKS["compute"]
    )


def _text(result: PlanResult) -> dict[str, str]:
    """How each is made, in words."""
    step, chips, work = show(float(result.step.time_s), "seconds"), result.chips, result.question.workload
    prompt = result.prefill or result
    read = f"{show(float(prompt.step.compute_s), 'seconds')} + exposed {show(float(prompt.step.exposed_s), 'seconds')}"
    room = f"the most with peak and overheads within {show(result.memory.capacity_bytes, 'bytes')}, cache full"
    return {
        "ttft_s": f"the prompt's compute {read}",
        "tpot_s": f"compute {show(float(result.step.compute_s), 'seconds')} + exposed communication",
        "reply_s": f"first token + steps x {step}: seconds are linear in the tokens that attention reads",
        "tokens_per_s_user": f"{work.seq}/{step}",
        "tokens_per_s_chip": f"{result.tokens:,}/({step} x {chips} chips)",
        "largest_batch": f"{room}; now {show(float(result.memory.peak_bytes), 'bytes')} at {work.global_batch}",
    }
