"""Servers that read prompts beside servers that decode: how many keep up with each other, and the caches between them.

A cache goes when its prompt has been read, beside the prompts and the steps of others, which it holds up nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.answers.derivation import CHECKS, Derivation, derived
from tpsim.answers.memory import ChipMemory  # noqa: TC001 - JSON Schemas read types
from tpsim.answers.serve import cache_bytes, of_one, whole_stack
from tpsim.quantity.size import over
from tpsim.quantity.units import Dimension, show
from tpsim.question.prices import sent, sizes_of
from tpsim.question.prompts import way_out
from tpsim.report.record import Bytes, Count, Number, Record, Seconds

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


@dataclass(frozen=True)
class Both:
    """A server that decodes, with the plan of one that reads its prompts."""

    plan: PlanResult
    prompt: PlanResult

    @property
    def asked(self) -> Any:
        """The workload as it is stated: of prompts and replies."""
        return self.plan.question.stated.file.workload

    @property
    def at_once(self) -> int:
        """Prompts that are read at once, whose caches go at once."""
        return self.prompt.question.workload.global_batch

    @property
    def in_one(self) -> int:
        """Of these as many as go to one server: all, as far as it replies to so many."""
        return min(self.at_once, self.plan.question.workload.global_batch)

    @property
    def of_one(self) -> Sizes:
        """The sizes of one prompt on all stages."""
        return of_one(whole_stack(self.prompt))

    @property
    def sent_bytes(self) -> Any:
        """Bytes of these that a chip sends at most: to each chip that holds a part of a cache what that holds.

        Chips of a stage send as much as each other; those that have the same part share it.
        """
        question, stages, serve = self.prompt.question, self.prompt.question.stages, self.plan.serve
        sizes, lowered = sizes_of(question), self.prompt.lowered
        each = (cache_bytes(lowered, sizes.of_stage(stages.loops(rank))) for rank in range(stages.ranks))
        return over(max(each) * stages.ranks, question.mesh.devices) * (serve.copies if serve else 1)

    def taken_bytes(self, requests: int) -> Any:
        """Bytes that a chip takes at most of the caches of so many prompts: all that it holds of them.

        Requests are spread over the chips that have sequences of their own.
        """
        question, stages = self.plan.question, self.plan.question.stages
        work: Any = question.inference
        ways = question.mesh.size(*question.layout.type_in(("b",), "cache").axes("b"))
        spread: dict[str, Any] = {
            "global_batch": -(-requests // ways) * ways,
            "attended": self.asked.prompt,
            "steps": 1,
            "microbatches": 1,
        }
        sizes = sizes_of(replace(question, workload=replace(work, **spread)))
        standing = self.plan.lowered.standing
        held = (
            standing.on(partial(stages.runs, rank=rank)).memory(sizes.of_stage(stages.loops(rank)))
            for rank in range(stages.ranks)
        )
        return max(memory.cache_bytes or 0 for memory in held)

    @cached_property
    def sends(self) -> Timing:
        """What the fullest port takes that sends caches of prompts that are read at once."""
        return self._port(self.prompt.question, self.sent_bytes)

    @cached_property
    def takes(self) -> Timing:
        """What the fullest port takes that gets them."""
        return self._port(self.plan.question, self.taken_bytes(self.in_one))

    def _port(self, question: Question, bytes_: Any) -> Timing:
        """What so many bytes take at the port of a chip, launched by those that send them: no graph of steps does."""
        return sent(replace(question, force=self.prompt.question.force), way_out(question), bytes_)

    @cached_property
    def reads(self) -> Side:
        """A server of prompts."""
        return Side(self.prompt.chips, self.at_once, float(self.prompt.step.time_s), float(self.sends.bandwidth_s))

    @cached_property
    def decodes(self) -> Side:
        """A server that decodes."""
        batch, steps_s = self.plan.question.workload.global_batch, self.asked.steps * float(self.plan.step.time_s)
        filled = self._port(self.plan.question, self.taken_bytes(batch))
        return Side(self.plan.chips, batch, steps_s, float(filled.bandwidth_s))


@dataclass(frozen=True)
class Servers(Record):
    """Servers that read prompts beside those that decode, in a steady state in which no request queues.

    prompt_memory   what a chip of the former holds at most
    transfer_bytes  of the cache of one prompt, all layers and chips together, copies not counted
    transfer_s      until the caches of all prompts that are read at once are there: from the end of the prompt on
    port_share      of the time of a server for which its fullest port carries caches; above 1 that sets the pace
    prompt_requests_per_s  that one server reads
    decode_requests_per_s  that one server replies to
    ratio           servers of prompts for each that decodes, so that neither waits
    prompt_servers, decode_servers  the fewest, in whole numbers, that lose little
    lost_share      of the tokens that all of their chips could make, what these lose as one kind waits
    tokens_per_s_chip  new tokens of these servers together per second and chip, of all their chips
    """

    prompt_memory: ChipMemory
    transfer_bytes: Bytes
    transfer_s: Seconds
    port_share: Number
    prompt_requests_per_s: Number
    decode_requests_per_s: Number
    ratio: Number
    prompt_servers: Count
    decode_servers: Count
    lost_share: Number
    tokens_per_s_chip: Number


def servers_of(both: Both) -> Servers:
    """What servers that decode, and those that read their prompts, come to together."""
    reads, decodes = both.reads, both.decodes
    several = whole(reads, decodes)
    return Servers(
        prompt_memory=both.prompt.memory,
        transfer_bytes=cache_bytes(both.prompt.lowered, both.of_one),
        transfer_s=max(float(end.time_s) for end in (both.sends, both.takes)),
        port_share=max(side.port_s / side.busy_s for side in (reads, decodes)),
        prompt_requests_per_s=reads.per_s,
        decode_requests_per_s=decodes.per_s,
        ratio=decodes.per_s / reads.per_s,
        prompt_servers=several[0],
        decode_servers=several[1],
        lost_share=lost(*several, reads, decodes),
        tokens_per_s_chip=both.asked.output * done(*several, reads, decodes) / chips(*several, reads, decodes),
    )


def done(prompts: int, decoding: int, reads: Side, decodes: Side) -> float:
    """Requests per second of so many servers of either kind: the slower kind sets the pace."""
    return min(prompts * reads.per_s, decoding * decodes.per_s)


def chips(prompts: int, decoding: int, reads: Side, decodes: Side) -> int:
    """Chips of so many servers."""
    return prompts * reads.chips + decoding * decodes.chips


def request_s(reads: Side, decodes: Side) -> float:
    """Chip seconds of a request where neither kind waits."""
    return reads.chips / reads.per_s + decodes.chips / decodes.per_s


def lost(prompts: int, decoding: int, reads: Side, decodes: Side) -> float:
    """The share of what their chips could do, if none of them waited, that so many servers do not."""
    several = prompts, decoding, reads, decodes
    return max(0.0, 1 - done(*several) * request_s(reads, decodes) / chips(*several))


def whole(reads: Side, decodes: Side) -> tuple[int, int]:
    """The fewest servers that read prompts, and that decode, next to their ratio, which lose no more than `NEAR`."""
    ratio = decodes.per_s / reads.per_s

    def nearest(fewer: int) -> tuple[int, int]:
        many = int(fewer * max(ratio, 1 / ratio))
        near: list[tuple[int, int]] = [(some, fewer) if ratio > 1 else (fewer, some) for some in (many, many + 1)]
        return min(near, key=missed)

    def missed(several: tuple[int, int]) -> float:
        return lost(*several, reads, decodes)

    return next(several for several in map(nearest, count(1)) if missed(several) <= NEAR)


# Explained --------------------------------------------------------------------------------------------------------

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
    """One of `NOUNS`; none of another name, or where the same servers do both."""
    servers = plan.serve and plan.serve.servers
    if name not in NOUNS or plan.prefill is None or not servers:
        return
    (noun, dimension), both = NOUNS[name], Both(plan, plan.prefill)
    if name == "transfer_bytes":
        lowered, one = both.prompt.lowered, replace(both.prompt, sizes=both.of_one, pipeline=None)
        yield derived(one, noun, dimension, lambda sizes: cache_bytes(lowered, sizes), checks=CHECKS["memory"])
        return
    text, value = _texts(both, servers)[name], float(servers[name])
    yield Derivation(what=noun, dimension=dimension, text=text, value=value, checks=("tests/answers/test_servers.py",))


def _texts(both: Both, servers: Servers) -> dict[str, str]:
    """How each but the bytes is made, in words with its figures."""
    reads, decodes = both.reads, both.decodes
    several = (servers.prompt_servers, servers.decode_servers, reads, decodes)
    per_s, of = f"{done(*several):.4g} requests per second", f"{chips(*several):,} chips"
    busy, full = ([show(one, "seconds") for one in side] for side in zip(reads[2:], decodes[2:], strict=True))
    ends = {"sends": (both.sends, both.sent_bytes), "takes": (both.takes, both.taken_bytes(both.in_one))}
    moved = (
        f"{show(float(end.time_s), 'seconds')} in which a chip {verb} {show(float(size), 'bytes')}"
        for verb, (end, size) in ends.items()
    )
    return {
        "transfer_s": f"the longer of {' and '.join(moved)}",
        "port_share": f"the larger of {full[0]}/{busy[0]} of prompts and {full[1]}/{busy[1]} of replies",
        "prompt_requests_per_s": f"{reads.requests}/the longer of {busy[0]} and {full[0]} at a port",
        "decode_requests_per_s": f"{decodes.requests}/the longer of {busy[1]} and {full[1]} at a port",
        "ratio": f"{decodes.per_s:.4g}/{reads.per_s:.4g} requests per second",
        "lost_share": f"1 - {per_s} x {request_s(reads, decodes):.4g} chip seconds of a request/{of}",
        "tokens_per_s_chip": f"{both.asked.output} tokens x {per_s}/{of}",
    }
