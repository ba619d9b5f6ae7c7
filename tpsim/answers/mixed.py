"""Prompts read in pieces beside decoding (chunked prefill): what a step of both takes, and what follows for a token."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from tpsim.answers.derivation import CHECKS, Derivation
from tpsim.answers.stages import work_of
from tpsim.answers.step_derivations import made_of
from tpsim.cost.collectives import travelling
from tpsim.cost.compute import compute
from tpsim.cost.rollup import price
from tpsim.quantity.size import total
from tpsim.quantity.units import show
from tpsim.question.mixed import Kinds, Mixed, Reads, kinds_of, mixed_of
from tpsim.question.prices import pricer, sizes_of
from tpsim.question.question import unit_of_part
from tpsim.report.record import Count, Number, Of, Record, Seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpsim.answers.plan import PlanResult
    from tpsim.quantity.units import Dimension
    from tpsim.question.memo import Memo
    from tpsim.question.question import Question


@dataclass(frozen=True)
class MixedSteps(Record):
    """Steps that read pieces of prompts beside decoding; all others decode alone. Sequences are those of all chips."""

    told: ClassVar[tuple[str, ...]] = (
        *("step_tokens", "pieces", "piece_tokens", "share", "reading", "decoding"),
        *("step_s", "longest_s", "decode_s"),
    )

    plan: PlanResult
    step_tokens: Count

    pieces = Of[Number]("mixed.pieces", "steps that read a prompt, the last one with what the others leave")
    share = Of[Number]("mixed.share", "of all steps, those that read prompts")

    @cached_property
    def mixed(self) -> Mixed:
        """What its steps have, of chips that have every sequence together."""
        return mixed_of(self.plan.question)

    @property
    def piece_tokens(self) -> Number:
        """Tokens of a prompt that such a step reads at most."""
        return max(reads.tokens for reads in self.mixed.reads)

    @property
    def reading(self) -> Number:
        """Sequences whose prompts such a step reads, in the mean."""
        return self.mixed.reading * unit_of_part(self.plan.question)

    @property
    def decoding(self) -> Number:
        """Sequences that decode in it, in the mean."""
        return self.plan.question.workload.global_batch - self.reading

    @cached_property
    def step_s(self) -> Seconds:
        """Of a step that reads prompts beside decoding, in the mean."""
        return sum(reads.share * seconds for reads, seconds in self._each.items()) / self.share

    @cached_property
    def longest_s(self) -> Seconds:
        """Of the longest of them, which no token of a reply waits longer for."""
        return max(self._of(reads._replace(attended=reads.most)) for reads in self.mixed.reads)

    @property
    def decode_s(self) -> Seconds:
        """Of a step in which every sequence decodes."""
        return float(self.plan.step.time_s)

    @property
    def ttft_s(self) -> Seconds:
        """Until the last piece of a prompt is read, and its first token there."""
        return self.mixed.pieces * self.step_s

    @cached_property
    def tpot_s(self) -> Seconds:
        """Between two tokens of a sequence: each kind of step counts as often as sequences decode in it."""
        slots = self.mixed.slots
        beside = sum(reads.share * (slots - reads.reading) * seconds for reads, seconds in self._each.items())
        return (beside + (1 - self.share) * slots * self.decode_s) / (slots - self.share * self.mixed.reading)

    @cached_property
    def _each(self) -> dict[Reads, float]:
        """Seconds of the steps that read prompts, by how much."""
        return {reads: self._of(reads) for reads in self.mixed.reads}

    @property
    def whole_s(self) -> Seconds:
        """Of a step that reads most, as if all of its tokens were of prompts."""
        return float(step_s(self._kinds(self.mixed.reads[0]).whole, self.plan.memo))

    def _kinds(self, reads: Reads) -> Kinds:
        return kinds_of(self.plan.question, self.mixed, reads)

    def _of(self, reads: Reads) -> float:
        return mixed_s(self._kinds(reads), self.plan.memo)


def mixed_s(kinds: Kinds, memo: Memo) -> float:
    """Seconds of such a step: all tokens together, but that attention to what each kind reads is its own.

    A step runs one thing after another, so that parts can be taken out and put in.
    """
    alone = total(apart_s(question, memo) for question in (kinds.pieces, kinds.replies) if question)
    return float(step_s(kinds.whole, memo) - apart_s(kinds.whole, memo) + alone)


def step_s(question: Question, memo: Memo) -> Any:
    """Seconds of a step of inference, its memory not looked at."""
    lowered, sizes = memo.lowered(question), sizes_of(question)
    rows = price(travelling(lowered.collectives, question.mesh.axes), sizes, pricer(question))
    return work_of(question, lowered, sizes, rows).step(briefly=True).time_s


def apart_s(question: Question, memo: Memo) -> Any:
    """Seconds of what prompts and replies of one step do each alone, from caches to what attention makes."""
    lowered, sizes = memo.lowered(question), sizes_of(question)
    kernels = [kernel for kernel in lowered.kernels if kernel.where.apart]
    calls = [call for call in travelling(lowered.collectives, question.mesh.axes) if call.where.apart]
    stages, priced_on = question.stages, (question.machine, question.products, question.matmul_efficiency)
    each = [sizes.of_stage(stages.loops(rank)) for rank in range(stages.ranks)]
    sent = (row.busy_s for own in each for row in price(calls, own, pricer(question)))
    return total((*(compute(kernels, own, *priced_on).time_s for own in each), *sent))


NOUNS: Mapping[str, tuple[str, Dimension]] = {
    "pieces": ("steps that read a prompt", "count"),
    "piece_tokens": ("tokens of a prompt that a step reads at most", "count"),
    "share": ("share of steps that read prompts", "ratio"),
    "reading": ("sequences whose prompts such a step reads", "count"),
    "decoding": ("sequences that decode in such a step", "count"),
    "step_s": ("seconds of a step that reads prompts beside decoding, in the mean", "seconds"),
    "longest_s": ("seconds of the longest such step", "seconds"),
    "decode_s": ("seconds of a step in which every sequence decodes", "seconds"),
}
"""What can be explained, and what it is a number of."""

STEADY = "a sequence begins as one ends: each has its slot for the steps that read its prompt, and those that decode"
"""Why steps have what they have."""

OWN = "all tokens of a step go through the same kernels and collectives, but for attention to what each kind reads"
"""Why seconds of such a step are what they are."""


def explained(mixed: MixedSteps, name: str) -> Iterator[Derivation]:
    """One of `NOUNS`."""
    if name not in NOUNS:
        return
    noun, dimension = NOUNS[name]
    timed = name in ("step_s", "longest_s")
    yield Derivation(
        what=noun,
        dimension=dimension,
        text=_text(mixed, name),
        value=float(getattr(mixed, name)),
        because=() if name == "decode_s" else (OWN if timed else STEADY,),
        checks=(*CHECKS["compute"], *CHECKS["mixed"]),
    )


def _text(of: MixedSteps, name: str) -> str:
    """How it is made, in words."""
    if name == "decode_s":
        return made_of(of.plan)
    mixed, groups = of.mixed, unit_of_part(of.plan.question)
    room = f"{mixed.tokens:,.6g} tokens of a step less {mixed.slots - 1:,.6g} that decode"
    each = f"{mixed.slots:,.6g} slots/({mixed.pieces:.6g} steps that read + {mixed.steps:,} that decode)"
    alone = f"whole {show(of.whole_s, 'seconds')} - attention as if all were of prompts + that of each kind"
    parts = " and ".join(f"{one.reading} x {one.tokens:,.6g} tokens ({one.share:.4g})" for one in mixed.reads)
    return {
        "pieces": f"{mixed.prompt:,} tokens/({room})",
        "piece_tokens": f"{room}, or all of a prompt",
        "share": f"{each} that begin in a step x {mixed.pieces:.6g}",
        "reading": f"{groups:,.6g} x those that begin in a step, {each}, x {mixed.pieces:.6g}, one at least",
        "decoding": f"{mixed.slots * groups:,.6g} sequences less {of.reading:,.6g} whose prompts are read",
        "step_s": f"the mean of steps that read {parts}; of the first {alone}",
        "longest_s": "with the last full piece of a prompt, or with what is left of it",
    }[name]
