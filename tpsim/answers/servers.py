"""Servers that read prompts beside servers that decode: how many keep up with each other, and the caches between them.

A cache goes when its prompt has been read, beside the prompts and the steps of others, which it holds up nowhere.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.answers.derivation import CHECKS, Derivation, derived
from tpsim.answers.serve import Servers, cache_bytes, whole_stack
from tpsim.quantity.size import over
from tpsim.quantity.units import Dimension, show
from tpsim.question.prices import sent, sizes_of
from tpsim.question.prompts import way_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpsim.answers.plan import PlanResult
    from tpsim.cost.sizes import Sizes
    from tpsim.machine.timing import Timing
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


def sides_of(plan: PlanResult, prompt: PlanResult) -> tuple[Side, Side]:
    """A server that reads prompts, and one that decodes."""
    fields: Any = plan.question.stated.file.workload
    at_once, batch = (side.question.workload.global_batch for side in (prompt, plan))
    filled_s = _port(plan.question, prompt.question, taken_bytes(plan, batch, fields.prompt)).bandwidth_s
    reads = Side(prompt.chips, at_once, float(prompt.step.time_s), float(moved(plan, prompt)[0].bandwidth_s))
    return reads, Side(plan.chips, batch, fields.steps * float(plan.step.time_s), float(filled_s))


def servers_of(plan: PlanResult, prompt: PlanResult) -> Servers:
    """What servers that decode, and those that read their prompts, come to together."""
    fields: Any = plan.question.stated.file.workload
    (sends, takes), (reads, decodes) = moved(plan, prompt), sides_of(plan, prompt)
    several = whole(reads, decodes)
    chips = several[0] * reads.chips + several[1] * decodes.chips
    return Servers(
        prompt_memory=prompt.memory,
        transfer_bytes=cache_bytes(prompt.lowered, of_one(prompt)),
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


def of_one(prompt: PlanResult) -> Sizes:
    """The sizes of one prompt on all stages."""
    return replace(whole_stack(prompt), dims={**prompt.sizes.dims, "b": 1})


def moved(plan: PlanResult, prompt: PlanResult) -> tuple[Timing, Timing]:
    """What the caches of a batch of prompts take at the fullest port that sends them, and at that which takes them."""
    work: Any = prompt.question.inference
    taken, sender = taken_bytes(plan, work.global_batch, work.attended), prompt.question
    return _port(sender, sender, sent_bytes(plan, prompt)), _port(plan.question, sender, taken)


def done(prompts: int, decoding: int, reads: Side, decodes: Side) -> float:
    """Requests per second of so many servers of either kind: the slower kind sets the pace."""
    return min(prompts * reads.per_s, decoding * decodes.per_s)


def lost(prompts: int, decoding: int, reads: Side, decodes: Side) -> float:
    """The share of what their chips could do, if none of them waited, that so many servers do not."""
    chips = prompts * reads.chips + decoding * decodes.chips
    least = reads.chips / reads.per_s + decodes.chips / decodes.per_s  # chip seconds of a request
    return max(0.0, 1 - done(prompts, decoding, reads, decodes) * least / chips)


def whole(reads: Side, decodes: Side) -> tuple[int, int]:
    """The fewest servers that read prompts, and that decode, next to their ratio, which lose no more than `NEAR`."""
    ratio = decodes.per_s / reads.per_s

    def nearest(fewer: int) -> tuple[int, int]:
        many = int(fewer * max(ratio, 1 / ratio))
        near = [(some, fewer) if ratio > 1 else (fewer, some) for some in (many, many + 1)]
        return min(near, key=lambda both: lost(*both, reads, decodes))

    return next(both for both in map(nearest, count(1)) if lost(*both, reads, decodes) <= NEAR)


def sent_bytes(plan: PlanResult, prompt: PlanResult) -> Any:
    """Bytes that a chip sends of the caches of a batch, to each chip that holds a part of them what that holds.

    Chips of a stage send as much as each other, those that have the same part share it.
    """
    question, sizes, copies = prompt.question, sizes_of(prompt.question), plan.serve.copies  # type: ignore[union-attr]  # of inference
    each = (cache_bytes(prompt.lowered, sizes.of_stage(loops)) for loops in map(question.stages.loops, _ranks(question)))
    return max(over(some * question.stages.ranks, question.mesh.devices) for some in each) * copies


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


def _port(question: Question, sender: Question, bytes_: Any) -> Timing:
    """What so many bytes take at the port of a chip, launched by those that send them: no graph of steps has them."""
    return sent(replace(question, force=sender.force), way_out(question), bytes_)


NOUNS: Mapping[str, tuple[str, Dimension]] = {
    "transfer_bytes": ("bytes of the cache of one prompt that go from server to server", "bytes"),
    "transfer_s": ("seconds from the end of prompts until their caches are where they are decoded", "seconds"),
    "port_share": ("share of its time for which the fullest port of a server carries caches", "ratio"),
    "prompt_requests_per_s": ("requests per second whose prompts one server reads", "count"),
    "decode_requests_per_s": ("requests per second to which one server decodes the replies", "count"),
    "ratio": ("servers that read prompts for each that decodes, so that neither waits", "count"),
    "lost_share": ("share of the tokens that all chips could make, lost to whole numbers of servers", "ratio"),
    "tokens_per_s_chip": ("new tokens per second and chip, of the chips of both kinds of servers", "count"),
}
"""What can be explained of these servers, and what it is a number of."""


def explained(plan: PlanResult, name: str) -> Iterator[Derivation]:
    """One of `NOUNS`; none of another name."""
    prompt, servers = plan.prefill, plan.serve and plan.serve.servers
    if name not in NOUNS or prompt is None or not servers:
        return
    noun, dimension = NOUNS[name]
    if name == "transfer_bytes":
        lowered, one = prompt.lowered, replace(prompt, sizes=of_one(prompt), pipeline=None)
        checks = CHECKS["memory"]
        yield derived(one, noun, dimension, lambda sizes: cache_bytes(lowered, sizes), checks=checks)
        return
    text, value = _texts(plan, prompt, servers)[name], float(servers[name])
    yield Derivation(what=noun, dimension=dimension, text=text, value=value, checks=("tests/answers/test_servers.py",))


def _texts(plan: PlanResult, prompt: PlanResult, servers: Servers) -> dict[str, str]:
    """How each but the bytes is made, in words with its figures."""
    reads, decodes = sides_of(plan, prompt)
    both = (servers.prompt_servers, servers.decode_servers)
    chips = both[0] * reads.chips + both[1] * decodes.chips
    output = plan.question.stated.file.workload.output  # type: ignore[union-attr]  # of replies
    per_s = done(*both, reads, decodes)
    busy, full = ([show(one, "seconds") for one in side] for side in zip(reads[2:], decodes[2:], strict=True))
    return {
        "transfer_s": "the longer of " + " and ".join(_ends(plan, prompt)),
        "port_share": f"the larger of {full[0]}/{busy[0]} of prompts and {full[1]}/{busy[1]} of replies",
        "prompt_requests_per_s": f"{reads.requests}/the longer of {busy[0]} and {full[0]} at a port",
        "decode_requests_per_s": f"{decodes.requests}/the longer of {busy[1]} and {full[1]} at a port",
        "ratio": f"{decodes.per_s:.4g}/{reads.per_s:.4g} requests per second",
        "lost_share": f"1 - {per_s:.4g} requests per second of {both[0]} and {both[1]} servers, {chips} chips,"
        f" x {reads.chips / reads.per_s + decodes.chips / decodes.per_s:.4g} chip seconds of a request/{chips}",
        "tokens_per_s_chip": f"{output} tokens x {per_s:.4g} requests per second/{chips} chips",
    }


def _ends(plan: PlanResult, prompt: PlanResult) -> Iterator[str]:
    """What either end of the way takes for the caches of prompts that are read at once."""
    taken = taken_bytes(plan, prompt.question.workload.global_batch, prompt.question.workload.at_peak.attended)  # type: ignore[attr-defined]  # inference
    for verb, bytes_, timing in zip(("sends", "takes"), (sent_bytes(plan, prompt), taken), moved(plan, prompt), strict=True):
        yield f"{show(float(timing.time_s), 'seconds')} in which a chip {verb} {show(float(bytes_), 'bytes')}"
