"""Servers that read prompts beside servers that decode: how many keep up with each other, and the caches between them.

A cache goes when its prompt has been read, beside the prompts and the steps of others, which it holds up nowhere.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.answers.serve import Servers, cache_bytes, whole_stack
from tpsim.quantity.size import over
from tpsim.question.prices import sent, sizes_of
from tpsim.question.prompts import way_out

if TYPE_CHECKING:
    from tpsim.answers.plan import PlanResult
    from tpsim.question.question import Question

NEAR = 0.05
"""Share of the tokens that all chips could make, which whole numbers of servers may lose: the first that lose less."""


class Side(NamedTuple):
    """A server, of either kind.

    chips     of its mesh
    requests  that it works on at once
    busy_s    seconds for which these keep it busy
    port_s    seconds for which their caches fill the port of a chip that sends, or takes, most of them
    """

    chips: int
    requests: int
    busy_s: float
    port_s: float

    @property
    def per_s(self) -> float:
        """Requests that it is done with in a second: where ports are full for longer, they set the pace."""
        return self.requests / max(self.busy_s, self.port_s)


def servers_of(plan: PlanResult, prompt: PlanResult) -> Servers:
    """What servers that decode, and those that read their prompts, come to together."""
    fields: Any = plan.question.stated.file.workload
    at_once, tokens = prompt.question.workload.global_batch, prompt.question.inference.attended  # type: ignore[union-attr]
    batch, one = plan.question.workload.global_batch, replace(whole_stack(prompt), dims={**prompt.sizes.dims, "b": 1})
    sends = _port(prompt.question, sent_bytes(prompt))
    takes, all_of_them = (_port(plan.question, taken_bytes(plan, many, tokens)) for many in (at_once, batch))
    reads = Side(prompt.chips, at_once, float(prompt.step.time_s), float(sends.bandwidth_s))
    decodes = Side(plan.chips, batch, fields.steps * float(plan.step.time_s), float(all_of_them.bandwidth_s))
    several = whole(reads, decodes)
    chips = several[0] * reads.chips + several[1] * decodes.chips
    return Servers(
        prompt_memory=prompt.memory,
        transfer_bytes=cache_bytes(prompt.lowered, one),
        transfer_s=max(float(sends.time_s), float(takes.time_s)),
        port_share=max(side.port_s / side.busy_s for side in (reads, decodes)),
        prompt_requests_per_s=reads.per_s,
        decode_requests_per_s=decodes.per_s,
        ratio=decodes.per_s / reads.per_s,
        prompt_servers=several[0],
        decode_servers=several[1],
        lost_share=lost(*several, reads, decodes),
        tokens_per_s_chip=fields.output * done(*several, reads, decodes) / chips,
    )


def done(prompts: int, decoding: int, reads: Side, decodes: Side) -> float:
    """Requests per second of so many servers of either kind: the slower kind sets the pace."""
    return min(prompts * reads.per_s, decoding * decodes.per_s)


def lost(prompts: int, decoding: int, reads: Side, decodes: Side) -> float:
    """The share of what their chips could do, if none of them waited, that so many servers do not."""
    chips = prompts * reads.chips + decoding * decodes.chips
    least = reads.chips / reads.per_s + decodes.chips / decodes.per_s  # chip seconds of a request
    return max(0.0, 1 - done(prompts, decoding, reads, decodes) * least / chips)


def whole(reads: Side, decodes: Side) -> tuple[int, int]:
    """The fewest servers that read prompts, and that decode, which lose no more than `NEAR`."""
    share = decodes.per_s / (reads.per_s + decodes.per_s)
    for servers in count(2):
        few = min(max(1, int(share * servers)), servers - 1)
        near = [(some, servers - some) for some in (few, few + 1) if some < servers]
        best = min(near, key=lambda both: lost(*both, reads, decodes))
        if lost(*best, reads, decodes) <= NEAR:
            return best
    raise AssertionError(share)


def sent_bytes(prompt: PlanResult) -> Any:
    """Bytes that a chip sends of the caches of a batch: what its stage has, each part once, in equal shares."""
    question, sizes = prompt.question, sizes_of(prompt.question)
    each = (cache_bytes(prompt.lowered, sizes.of_stage(loops)) for loops in map(question.stages.loops, _ranks(question)))
    return max(over(some * question.stages.ranks, question.mesh.devices) for some in each)


def taken_bytes(plan: PlanResult, requests: int, tokens: int) -> Any:
    """Bytes that a chip takes at most of the caches of so many prompts, which come to one server: all that it holds.

    Requests are spread over the chips that have sequences of their own.
    """
    question, stages = plan.question, plan.question.stages
    ways = question.mesh.size(*question.layout.type_in(("b",), "cache").axes("b"))
    spread = -(-requests // ways) * ways
    work = replace(question.workload, global_batch=spread, attended=tokens, steps=1)  # type: ignore[call-arg]  # inference
    sizes, lowered = sizes_of(replace(question, workload=work)), plan.lowered
    held = (
        lowered.standing.on(partial(stages.runs, rank=rank)).memory(sizes.of_stage(stages.loops(rank)))
        for rank in _ranks(question)
    )
    return max(memory.cache_bytes for memory in held)


def _ranks(question: Question) -> range:
    return range(question.stages.ranks)


def _port(question: Question, bytes_: Any) -> Any:
    """What so many bytes take at the port of a chip, towards another server or from it."""
    return sent(question, way_out(question), bytes_)
