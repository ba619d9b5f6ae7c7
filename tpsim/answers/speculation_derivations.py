"""The derivations of what drafting ahead comes to: seconds of drafts and verification, where it pays, bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.answers.derivation import CHECKS, Derivation
from tpsim.answers.serve_derivations import EXPECTED
from tpsim.answers.step_derivations import made_of
from tpsim.quantity.units import show

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpsim.answers.speculation import Speculated
    from tpsim.quantity.units import Dimension

NOUNS: Mapping[str, tuple[str, Dimension]] = {
    "expected_tokens": ("tokens of a sequence that a step gives, in the mean", "count"),
    "draft_s": ("seconds of a step of the draft, of which each token takes one", "seconds"),
    "draft_prompt_s": ("seconds in which the draft reads the prompts, behind the first token", "seconds"),
    "verification_s": ("seconds of the step that verifies", "seconds"),
    "step_s": ("seconds of all drafts and the step that verifies them", "seconds"),
    "plain_s": ("seconds of a step of the same decoding without drafts", "seconds"),
    "speedup": ("tokens per second, as a multiple of those without drafts", "ratio"),
    "breakeven_acceptance": ("the acceptance from which on drafting is faster", "ratio"),
    "draft_parameters_bytes": ("bytes of the draft's parameters on one chip", "bytes"),
    "draft_cache_bytes": ("bytes of the draft's cache on one chip", "bytes"),
}
"""What can be explained, and what it is a number of."""

OF_ACCEPTANCE = ("expected_tokens", "speedup", "breakeven_acceptance")
"""What of it hangs on how many drafts are accepted."""


def speculated(ahead: Speculated, name: str) -> Iterator[Derivation]:
    """One of `NOUNS`; of what there is none of, nothing."""
    if name not in NOUNS or (value := getattr(ahead, name)) is None:
        return
    noun, dimension = NOUNS[name]
    yield Derivation(
        what=noun,
        dimension=dimension,
        text=_text(ahead, name),
        value=float(value),
        because=(EXPECTED,) if name in OF_ACCEPTANCE else (),
        checks=(*CHECKS["memory" if dimension == "bytes" else "compute"], *CHECKS["speculation"]),
    )


def _text(ahead: Speculated, name: str) -> str:
    """How it is made, in words."""
    drafting = ahead.drafting
    plans = {"draft_s": drafting, "draft_prompt_s": drafting and drafting.prefill, "plain_s": ahead.plain}
    if plan := plans.get(name):
        return f"{made_of(plan)}, planned by itself"
    if name in plans:
        return "tokens are looked up, which takes no time here"
    if name == "verification_s":
        return made_of(ahead.plan)
    step, plain = (show(seconds, "seconds") for seconds in (ahead.step_s, ahead.plain_s))
    tokens, pays = f"{ahead.expected_tokens:.6g}", ahead.breakeven_acceptance
    turns = f"the a of which 1 + a + ... + a^{ahead.tokens} is {step} / {plain} without drafts"
    return {
        "expected_tokens": f"1 + a + ... + a^{ahead.tokens}, with a = {ahead.acceptance:g}",
        "step_s": ahead.formula,
        "speedup": f"{tokens} tokens x {plain} without drafts / {step}",
        "breakeven_acceptance": turns if pays else f"a step takes {step}, and {plain} without drafts",
    }.get(name, f"those of {ahead.draft}, decoding by itself in as many sequences")
