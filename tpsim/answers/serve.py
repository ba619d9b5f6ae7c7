"""What a step of inference means to those who wait for it, and to those who pay for the chips."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from tpsim.answers.memory import ChipMemory, chips, fullest, peaks
from tpsim.cost.compute import is_bytes_bound, kernel_s
from tpsim.cost.memory import stands_at
from tpsim.machine.chip_seconds import pause_s
from tpsim.program.dtypes import DTYPE_BYTES
from tpsim.program.kinds import ALIKE, counted
from tpsim.program.op import Leaf
from tpsim.quantity.size import product, total
from tpsim.question.prices import sizes_of
from tpsim.question.serving import no_room, prefill_of, unit_of
from tpsim.report.record import Bytes, Count, Number, Record, Seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tpsim.answers.mixed import MixedSteps
    from tpsim.answers.plan import PlanResult
    from tpsim.answers.servers import Servers
    from tpsim.answers.speculation import Speculated
    from tpsim.cost.sizes import Sizes
    from tpsim.question.memo import Lowered, Memo
    from tpsim.question.question import Inference, Question


@dataclass(frozen=True)
class Serve(Record):
    """What inference comes to.

    ttft_s               until a prompt is read and its first token is there; no queue before it is counted
    tpot_s               of a step of decoding, of steps that verify drafts by the token that they give; of a whole
                         reply their mean, at the mean of its contexts
    tokens_per_s_user    new tokens of a sequence per second of decoding, of drafts those that are accepted
    tokens_per_s_chip    new tokens of all sequences per second and chip; of a prompt alone those that are read
    bytes_bound_share    of compute, what kernels take that are as long as their bytes: of weights and of the cache;
                         without the pauses behind kernels
    pauses_share         of compute, these pauses
    largest_batch        the sequences for which memory has room, in whole multiples of what the layout splits; 0: none
    requests_per_s       of prompts and replies, prompts and steps of a batch in turn; left out where other servers
                         read prompts, which say how many they do
    prompts_share        of that time, what prompts take
    served_tokens_per_s_chip  new tokens of replies per second and chip, of all chips that read prompts or decode
    speculation          what drafting ahead comes to; left out where nothing is drafted
    mixed                steps that read pieces of prompts beside decoding; left out where these take turns
    cache_bytes_per_token  that a sequence adds, all layers and all chips together, copies not counted; to the cache of
                         a window, which holds no more, nothing
    state_bytes_per_sequence  what linear attention keeps of one, however long it is, all layers and all chips together;
                         left out where there is none
    """

    told: ClassVar[tuple[str, ...]] = (
        *("ttft_s?", "tpot_s?", "reply_s?", "tokens_per_s_user?", "tokens_per_s_chip"),
        *("requests_per_s?", "prompts_share?", "served_tokens_per_s_chip?", "bytes_bound_share", "pauses_share"),
        *("largest_batch", "cache_bytes_per_token", "state_bytes_per_sequence?"),
        *("speculation?", "mixed?", "servers?"),
    )

    late: ClassVar[Mapping[str, str]] = {
        "Speculated": "tpsim.answers.speculation",
        "Servers": "tpsim.answers.servers",
        "MixedSteps": "tpsim.answers.mixed",
    }

    plan: PlanResult
    work: Inference

    @cached_property
    def mixed(self) -> MixedSteps | None:
        """Steps that read prompts beside decoding; left out where these take turns."""
        if self.work.budget is None:
            return None
        from tpsim.answers.mixed import MixedSteps

        return MixedSteps(self.plan, self.work.budget)

    @property
    def ttft_s(self) -> Seconds | None:
        """Until the first token; left out of a step of decoding alone."""
        if self.mixed:
            return self.mixed.ttft_s
        prompt = {"serve": self.plan.prefill, "prefill": self.plan}.get(self.work.kind)
        return None if prompt is None else float(prompt.step.ended_s)

    @property
    def tpot_s(self) -> Seconds | None:
        """Of a step of decoding; left out of a prompt alone."""
        return None if self.work.kind == "prefill" else float(self.plan.step.pace_s)

    @cached_property
    def speculation(self) -> Speculated | None:
        """What drafting ahead comes to; left out where nothing is drafted."""
        if self.work.speculation is None:
            return None
        from tpsim.answers.speculation import Speculated

        return Speculated(self.plan, self.work, self.work.speculation)

    @property
    def reply_s(self) -> Seconds | None:
        """Of a prompt and its reply, with the way of the cache between; left out where both are not asked for."""
        steps = getattr(self.plan.question.stated.file.workload, "steps", None)
        if steps is None or self.ttft_s is None or self.tpot_s is None:
            return None
        read_s = self.speculation.draft_prompt_s or 0 if self.speculation and steps else 0
        moved_s = self.servers.transfer_s if self.servers else 0
        return self.ttft_s + read_s + moved_s + steps * self.tpot_s

    @cached_property
    def servers(self) -> Servers | None:
        """Where servers of their own read prompts what they come to beside these; left out where these do both."""
        prompt = self.plan.prefill if self.plan.question.prompts else None
        if prompt is None:
            return None
        from tpsim.answers.servers import Both, servers_of

        return servers_of(Both(self.plan, prompt))

    @property
    def paid_s(self) -> Seconds | None:
        """Seconds that its chips are paid for of a batch of replies with their prompts; left out of either alone.

        Where other servers read prompts those are in it, at what they cost: as many as keep up.
        """
        if self.servers is None:
            return self.reply_s
        from tpsim.question.prompts import weight

        each = 1 / self.servers.decode_requests_per_s + weight(self.plan.question) / self.servers.prompt_requests_per_s
        return self.work.global_batch * each

    @property
    def reply_tokens(self) -> int:
        """Of the replies of all sequences; 0 where none are asked for."""
        return self.work.global_batch * getattr(self.plan.question.stated.file.workload, "output", 0)

    @property
    def requests_per_s(self) -> Number | None:
        """Requests that are done with per second where the same chips read prompts and decode; else left out."""
        return None if self.reply_s is None or self.servers else self.work.global_batch / self.reply_s

    @property
    def prompts_share(self) -> Number | None:
        """Of that time, what prompts take: all of a request that is no step of decoding; none of mixed steps."""
        if self.mixed or self.requests_per_s is None or self.reply_s is None or self.tpot_s is None:
            return None
        fields: Any = self.plan.question.stated.file.workload
        return 1 - fields.steps * self.tpot_s / self.reply_s

    @property
    def served_tokens_per_s_chip(self) -> Number | None:
        """New tokens of replies per second and chip, prompts and all chips counted; left out of either alone."""
        if self.servers:
            return self.servers.tokens_per_s_chip
        return None if self.reply_s is None else self.reply_tokens / self.reply_s / self.plan.chips

    @property
    def tokens_per_s_user(self) -> Number | None:
        """New tokens of a sequence per second; left out of a prompt alone."""
        return None if self.tpot_s is None else self.plan.tokens / self.work.global_batch / self.tpot_s

    @property
    def tokens_per_s_chip(self) -> Number:
        """Tokens of all sequences per second and chip."""
        return self.plan.tokens / float(self.plan.step.pace_s) / self.plan.chips

    @property
    def bytes_bound_share(self) -> Number:
        """Share of compute in kernels that take as long as their bytes, without pauses."""
        return self._shares[0]

    @property
    def pauses_share(self) -> Number:
        """Share of compute in pauses behind kernels."""
        return self._shares[1]

    @cached_property
    def _shares(self) -> tuple[float, float]:
        """Of compute: kernels that take as long as their bytes, and the pauses behind all kernels."""
        sizes, question, pipeline = self.plan.sizes, self.plan.question, self.plan.pipeline
        priced_on = (question.machine, question.products, question.matmul_efficiency)
        rank = pipeline.pacing_rank if pipeline else 0
        whole_s = bytes_s = pauses_s = 0.0
        for kernel in self.plan.lowered.kernels:
            if not question.stages.runs(kernel.where, rank):
                continue
            count = float(kernel.count(sizes))
            took_s = count * float(kernel_s(kernel, sizes, *priced_on))
            paused_s = count * pause_s(question.machine) * (1 + len(kernel.passes))
            whole_s, pauses_s = whole_s + took_s, pauses_s + paused_s
            bytes_s += (took_s - paused_s) * is_bytes_bound(kernel, sizes, *priced_on)
        return bytes_s / whole_s, pauses_s / whole_s

    @cached_property
    def largest_batch(self) -> Count:
        """Sequences for which memory has room."""
        return largest_batch(self.plan.question, self.plan.lowered, self.plan.memo)

    @property
    def copies(self) -> Number:
        """How many chips hold the same part of the cache."""
        plan = self.plan
        each = [*_step_alone(plan.question, plan.lowered)] if plan.question.draft else plan.each
        held = total(chip.cache_bytes for chip in each) * plan.chips
        longest = replace(plan, sizes=sizes_of(replace(plan.question, workload=self.work.at_peak)))
        return float(held / (len(each) * cache_bytes(plan.lowered, whole_stack(longest))))

    @property
    def demanded(self) -> dict[str, float]:
        """What a scenario may require of it."""
        known = {"ttft": self.ttft_s, "tpot": self.tpot_s, "tokens_per_s_user": self.tokens_per_s_user}
        return {name: value for name, value in known.items() if value is not None}

    @property
    def cache_bytes_per_token(self) -> Bytes:
        """Bytes of the cache for each token of a sequence."""
        return cache_bytes_per_token(self.plan.lowered, whole_stack(self.plan))

    @property
    def state_bytes_per_sequence(self) -> Bytes | None:
        """Bytes of the states of a sequence, however long it is; left out without linear attention."""
        return state_bytes(self.plan.lowered, whole_stack(self.plan)) or None


def whole_stack(plan: PlanResult) -> Sizes:
    """The sizes of a plan where its layers are those of all stages."""
    layers = counted(plan.question.stages.stack)
    return plan.sizes.of_stage({ALIKE: sum(layers.values()), **layers})


def cache_bytes_per_token(lowered: Lowered, sizes: Sizes) -> Any:
    """Bytes that each token of a sequence adds to all layers' caches, however split: nothing to those of windows."""
    return cache_bytes(lowered, of_one(sizes, {"t": 1}), lambda dims: "t" in dims)


def state_bytes(lowered: Lowered, sizes: Sizes) -> Any:
    """Bytes of what linear attention keeps of a sequence, however split; 0 without any."""
    return cache_bytes(lowered, of_one(sizes), lambda dims: "lg" in dims)


def of_one(sizes: Sizes, dims: Mapping[str, int] = {}) -> Sizes:
    """Those of one sequence alone, with other dims in place of some."""
    return replace(sizes, dims={**sizes.dims, "b": 1, **dims}, loops={**sizes.loops, "microbatches": 1})


def cache_bytes(lowered: Lowered, sizes: Sizes, counted: Callable[[tuple[str, ...]], bool] = lambda _: True) -> Any:
    """Bytes of all layers' caches, however split, each part of them once: of those whose dims are `counted`."""
    return total(
        product(sizes.dims[dim] for dim in op.output.dims)
        * DTYPE_BYTES[op.output.dtype]
        * lowered.program.times(stands_at(op), sizes.loops)
        for op in lowered.program.ops
        if isinstance(op, Leaf) and op.output.role == "cache" and counted(op.output.dims)
    )


def chips_at_most(question: Question, lowered: Lowered, memo: Memo) -> Iterator[ChipMemory]:
    """What a chip of every rank holds where that is most: of training, and of inference when the cache is full.

    Of a prompt and its reply it is while that step runs that needs more, unless other servers read prompts; of a model
    and its draft both.
    """
    return _beside_draft(alone_at_most(question, lowered, memo), question, memo, peaks=True)


def chips_in_step(question: Question, lowered: Lowered, memo: Memo) -> Iterator[ChipMemory]:
    """What a chip of every rank holds over the step itself, of inference when the cache is full."""
    return _beside_draft(_step_alone(question, lowered), question, memo, peaks=False)


def _beside_draft(chips: Iterator[ChipMemory], question: Question, memo: Memo, *, peaks: bool) -> Iterator[ChipMemory]:
    """These beside a draft, where there is one."""
    if question.draft is None:
        return chips
    from tpsim.answers.speculation import beside_draft

    return beside_draft(chips, question, memo, peaks=peaks)


def alone_at_most(question: Question, lowered: Lowered, memo: Memo) -> Iterator[ChipMemory]:
    """What a chip of every rank holds of one model where that is most."""
    decoding = _step_alone(question, lowered)
    if question.workload.kind != "serve" or question.prompts:
        return decoding
    prompt = prefill_of(question)
    read = peaks(prompt, memo.lowered(prompt), sizes_of(prompt))
    return (
        replace(chip, peak=peak, peak_action=f"prefill, {action}") if peak.total > chip.peak.total else chip
        for chip, (peak, action) in zip(decoding, read, strict=True)
    )


def prompt_memory(question: Question, memo: Memo) -> ChipMemory | None:
    """What a chip of servers that read prompts alone holds at most; None where there are none."""
    if question.prompts is None:
        return None
    prompt = filled_up(prefill_of(question), memo)
    return fullest(chips_at_most(prompt, memo.lowered(prompt), memo))


def _step_alone(question: Question, lowered: Lowered) -> Iterator[ChipMemory]:
    """What a chip of every rank holds over a step of one model, of inference when the cache is full."""
    full = replace(question, workload=question.workload.at_peak)
    return chips(full, lowered, sizes_of(full))


def filled_up(question: Question, memo: Memo) -> Question:
    """The question with as many sequences as memory has room for, if it asks for those.

    Raises InputError if there is no room for any, and for steps that do not keep up with as many as there are.
    """
    work = question.inference
    if work is None or not work.fills:
        if work and work.budget:
            from tpsim.question.mixed import refuse_empty_slots

            refuse_empty_slots(question)
        return question
    most = largest_batch(question, memo.lowered(question), memo)
    if not most:
        raise no_room(question)
    return replace(question, workload=replace(work, global_batch=most, fills=False))


def largest_batch(question: Question, lowered: Lowered, memo: Memo) -> int:
    """The most sequences with room in memory, a multiple of what the layout splits them into; 0 if not even these.

    Where steps read prompts beside decoding no more than these keep up with.
    Room falls with every sequence, and by about as much.
    """
    from tpsim.quantity.room import most

    unit = unit_of(question)

    def room(units: int) -> float:
        work = replace(question.workload, global_batch=units * unit)
        return float(fullest(chips_at_most(replace(question, workload=work), lowered, memo)).room_bytes)

    found = most(room) * unit
    if (work := question.inference) and work.budget:
        from tpsim.question.mixed import most_slots

        found = min(found, most_slots(question) // unit * unit)
    return found  # type: ignore[no-any-return]  # of a number of units
