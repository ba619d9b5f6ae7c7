"""The claim checker: a ledger held against a counted ledger. Calls, bytes, formulas, what chips hold, and links.

What is claimed of links is held against the schedules that run on them, message by message.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING, Any

from tpsim.claims.checks import Check
from tpsim.claims.trial import BOOK, Sort, Trial, by_sort, exact_bytes, injected, parts, planned, sent, staged
from tpsim.cost import formula
from tpsim.machine.algorithms import EVERY, STREAMED
from tpsim.program.op import Leaf, Reshard
from tpsim.reference.collectives import Stretch, schedule
from tpsim.reference.linkload import Load, load
from tpsim.report.numbers import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tpsim.answers.memory import ChipMemory
    from tpsim.cost.rollup import Row
    from tpsim.fabric.wires import Route
    from tpsim.machine.cost import LevelStage
    from tpsim.machine.groups import LevelGroup
    from tpsim.machine.parts import Machine
    from tpsim.machine.timing import Timing
    from tpsim.reference.calls import Tally
    from tpsim.reference.run import RanCollective, Run


OWN_WIRE = frozenset(check.name for check in EVERY if check.copies)
"""Algorithms that inject other bytes than the least, which is what `wire` is; they are held by what they carry."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A row of a ledger: what is claimed of one of its calls, and the calls that devices made for it.

    due      how often all devices together make it
    machine  whose wires it crosses; without one only its bytes are claimed
    """

    row: Row
    due: int = 1
    machine: Machine | None = None
    route: Route = ()

    @property
    def sorts(self) -> list[Sort]:
        """Of every array that travels in it."""
        return planned(self.row.call)

    @property
    def least_injected(self) -> bool:
        """True if the algorithm injects the least bytes that any could, which is what `wire` says."""
        timing = self.row.timing
        return not OWN_WIRE & {timing.algorithm, *(stage.algorithm for stage in timing.stages)}

    @property
    def measures(self) -> Iterator[tuple[str, Any, Callable[[RanCollective], Fraction]]]:
        """What is claimed of one call, and how it is counted in a run: what devices inject, and what they send."""
        if self.least_injected:
            yield "wire", self.row.wire_bytes_per_device, injected
        if self.machine and self.row.timing.algorithm != BOOK and self.row.collective != "send":
            yield "carried", self.row.timing.carried, sent


@dataclass(frozen=True, slots=True)
class Ledger:
    """The claims of one program beside what devices did when they ran it.

    known  what the symbols in its formulas stand for
    way    in front of what is found: which of several programs it is of
    """

    claims: Sequence[Claim]
    made: Sequence[RanCollective]
    known: Mapping[str, int]
    way: str = ""
    calls: Mapping[Sort, Sequence[RanCollective]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "calls", by_sort(self.made))

    def of(self, claim: Claim) -> list[Sequence[RanCollective]]:
        """The calls of each array that travels in a claimed one, of each layer; none if those of any are missing."""
        layers = claim.row.call.layers
        counted_calls = [self.calls.get(sort, ())[at::layers] for sort in claim.sorts for at in range(layers)]
        return counted_calls if all(counted_calls) else []


def collectives_check(ledgers: Sequence[Ledger], seen: str) -> Check:
    """Nothing missing, nothing extra, and every call as many bytes as its row says."""
    wrong = [text for ledger in ledgers for text in (*_wrong_counts(ledger), *_wrong_bytes(ledger))]
    return Check("collectives", seen, max(ran(ledgers), sum(len(way.claims) for way in ledgers)), wrong)


def ran(ledgers: Sequence[Ledger]) -> int:
    """The calls that devices made."""
    return sum(len(ledger.made) for ledger in ledgers)


def _wrong_counts(ledger: Ledger) -> Iterator[str]:
    due: Counter[Sort] = Counter()
    for claim in ledger.claims:
        for sort in claim.sorts:
            due[sort] += claim.due * claim.row.call.layers
    for sort in {**due, **ledger.calls}:
        calls = len(ledger.calls.get(sort, ()))
        if calls != due[sort]:
            yield f"{ledger.way}{sort}: planned {due[sort]} times, ran {calls} times"


def _wrong_bytes(ledger: Ledger) -> Iterator[str]:
    """What a row says of its wire and what it carries, where the devices of its calls sent something else."""
    for claim in ledger.claims:
        calls = ledger.of(claim)
        for noun, claimed, measure in claim.measures if calls else ():
            ran = {sum(measure(call) for call in together) for together in zip(*calls, strict=False)}
            if ran != {Fraction(claimed)}:
                seen = " or ".join(map(exact_bytes, sorted(ran)))
                yield f"{ledger.way}{claim.sorts[0]}: {noun} planned {exact_bytes(claimed)}, counted {seen}"


def formulas(ledger: Ledger) -> Iterator[str]:
    """Per claim whose calls ran: "" where its formula comes to the bytes that were counted, else what does not."""
    for claim in ledger.claims:
        calls = ledger.of(claim)
        if calls and claim.least_injected:
            text = claim.row.formula
            claimed, seen = formula.evaluated(text, ledger.known), sum(injected(calls[0]) for calls in calls)
            yield "" if claimed == seen else f"{ledger.way}{claim.sorts[0]}: {text} is {claimed}, counted {seen}"


def formulas_check(tried: Sequence[str], seen: str) -> Check:
    """What was tried of formulas, each "" where it holds."""
    return Check("formulas", seen, len(tried), [text for text in tried if text])


def memory_check(seen: Trial) -> Check:
    """Highest point and end of every action on every device, and what is held from step to step, byte for byte.

    Interiors of fused kernels run and are not counted; buffers of buckets do not run, and are left out of both sides.
    """
    chips, run = seen.plan.each, seen.sharded
    actions = sum(len(levels) for levels in run.live.levels.values())
    wrong = [text for rank in chips for text in (*_states(rank, run), *_course(rank, run))]
    text = f"{counted(actions, 'action')} of {counted(len(chips), 'rank')}, each with the bytes that its devices held"
    return Check("memory", text, actions, wrong)


def _course(rank: ChipMemory, run: Run) -> Iterator[str]:
    levels = run.live.levels[rank.peak_rank]
    if len(levels) != len(rank.peak.course):
        yield f"rank {rank.peak_rank} ran {len(levels)} actions, claimed were {len(rank.peak.course)}"
    for (action, most, left), devices in zip(rank.peak.course, levels, strict=False):
        for counts in sorted(set(devices) - {(most, left)}):
            yield (
                f"action {action} of rank {rank.peak_rank} held {counts[0]:,} bytes at most and {counts[1]:,} at its "
                f"end, claimed were {most:,} and {left:,}"
            )


def _states(rank: ChipMemory, run: Run) -> Iterator[str]:
    """Weights and the optimizer's states as they come in, and what is held of them by a device of the rank.

    With weights the copies that microbatches share: the first one makes them.
    """
    shared, ops = run.live.lifetimes.shared, run.program.ops
    first = [op.output for op in ops if op.output in shared and op.where.microbatch == 0]
    leaves = [op.output for op in ops if isinstance(op, Leaf)]
    stored = [op.output for op in ops if isinstance(op, Reshard) and op.output.home == "host"]
    held = {
        "of role param": ([x for x in (*leaves, *first) if x.role == "param"], rank.parameters_bytes),
        "of role state": ([x for x in leaves if x.role == "state" and x.home == "device"], rank.optimizer_bytes),
        "on its host": ([*(x for x in leaves if x.home == "host"), *stored], rank.host_bytes or 0),
    }
    for noun, (arrays, claimed) in held.items():
        for device in run.of_rank(rank.peak_rank):
            size = sum(run.bytes_on(device, array) for array in arrays)
            if size != claimed:
                yield f"device {device} holds {size:,} bytes {noun}, claimed were {claimed:,}"


@dataclass(frozen=True, slots=True)
class LinkClaim:
    """What is claimed of the links under one call on a machine's wires, and what devices did for it.

    what   the call in words
    calls  one for each array that travels in it; none if they were not made
    uplink  bytes that devices counted on the busiest uplink of a node, of the call where that is most
    """

    what: str
    claim: Claim
    machine: Machine
    calls: Sequence[Tally]
    uplink: int

    @property
    def priced(self) -> Timing:
        """Its steps and bytes."""
        return self.claim.row.timing

    @property
    def shared(self) -> bool:
        """True if devices of a node share an uplink of the machine."""
        return any(level.shared for level in self.machine.levels)

    @property
    def parts(self) -> tuple[Stretch, ...]:
        """The algorithm, level by level."""
        return parts(self.machine, self.claim.route, self.priced)

    @property
    def scheduled(self) -> bool:
        """True if it is run message by message; permutes, hops and sends are one each, the book has no algorithm."""
        row = self.claim.row
        return row.collective not in {"permute", "send"} and not row.call.streamed and self.priced.algorithm != BOOK

    @property
    def load(self) -> Load:
        """What its schedule puts on the wires."""
        row = self.claim.row
        return load(row.collective, self.parts, Fraction(row.logical_bytes))

    @property
    def even(self) -> bool:
        """True if every array can be cut as the schedule cuts: then devices send what it says, not about as much.

        What two stages of several exchange was counted on the devices alone, not on links.
        """
        row, plan = self.claim.row, schedule(self.claim.row.collective, self.parts)
        sizes = [int(part.move.logical_elements(row.sizes.dims, row.sizes.axes)) for part in row.call.parts]
        on_links = bool(self.calls) and all(call.levels for call in self.calls)
        return on_links and not any(elements % (plan.blocks * plan.units) for elements in sizes)


def links_check(ledgers: Sequence[Ledger]) -> Check:
    """Steps, carried bytes, and bytes on the busiest link of every level, against the schedule message by message."""
    claims = [
        LinkClaim(f"{ledger.way}{claim.sorts[0]}", claim, claim.machine, [calls[0].call for calls in ways], _up(ways))
        for ledger in ledgers
        for claim in ledger.claims
        if claim.machine
        for ways in [ledger.of(claim)]
    ]
    known = [claim for claim in claims if claim.scheduled]
    names = sorted({part.algorithm for claim in known for part in claim.parts})
    algorithms = f" ({', '.join(names)})" if names else ""
    even = sum(claim.even for claim in known)
    seen = f"steps and link bytes of {counted(len(known), 'call')} are those of their messages{algorithms}"
    seen += f", {even} of them counted on the links of the devices too" if even else ""
    alone = [claim for claim in claims if not claim.scheduled and claim.calls and claim.shared]
    seen += f", {len(alone)} messages and permutes held by the uplinks of nodes" if alone else ""
    left = len(claims) - len(known) - len(alone)
    seen += f"; {left} are not of a schedule (permutes, or priced by the book)" if left else ""
    streamed = [name for name in names if name in STREAMED]
    seen += f"; {', '.join(streamed)}: streamed, the total of a link is held" if streamed else ""
    wrong = [text for claim in known for text in _wrong_links(claim)]
    wrong += [
        f"{claim.what}: uplink of a node claimed {claim.priced.uplink}, counted {claim.uplink}"
        for claim in alone
        if claim.priced.uplink != claim.uplink
    ]
    return Check("links", seen, len(known) + len(alone), wrong)


def _up(calls: Sequence[Sequence[RanCollective]]) -> int:
    """Bytes on the busiest uplink of the calls that devices made, those that travel together added up."""
    return max((sum(made.call.uplink for made in together) for together in zip(*calls, strict=False)), default=0)


def _wrong_links(claim: LinkClaim) -> Iterator[str]:
    run = claim.load
    on_devices = _on_devices(claim, run) if claim.even else ()
    for noun, claimed, seen in (*_whole(claim.priced, run), *_by_level(claim, run), *on_devices):
        if Fraction(claimed) != seen:
            yield f"{claim.what}, {claim.priced.algorithm}: {noun} claimed {claimed}, counted {seen}"


def _on_devices(claim: LinkClaim, run: Load) -> Iterator[tuple[str, Any, Fraction]]:
    """What devices counted, against the schedule; of arrays that travel together the bytes add up."""
    for call in claim.calls:
        yield "steps of devices", run.steps, Fraction(call.steps)
    yield "devices' uplink of a node", run.uplink, Fraction(sum(call.uplink for call in claim.calls))
    for name, level in run.levels.items():
        total, serial = (sum(getattr(call.levels[name], part) for call in claim.calls) for part in ("total", "serial"))
        yield f"devices' link total on {name}", level.total, Fraction(total)
        yield f"devices' link serial on {name}", level.serial, Fraction(serial)


def _whole(priced: Timing, run: Load) -> Iterator[tuple[str, Any, Fraction]]:
    """What is claimed of the call as a whole."""
    yield "steps", priced.steps, Fraction(run.steps)
    yield "carried bytes", priced.carried, run.carried
    yield "link total", priced.link_total, run.link_total
    yield "uplink of a node", priced.uplink, run.uplink
    if not priced.stages:
        waits = run.link_total if priced.algorithm in STREAMED else max(level.serial for level in run.levels.values())
        yield "link serial", priced.link_serial, waits


def _by_level(claim: LinkClaim, run: Load) -> Iterator[tuple[str, Any, Fraction]]:
    """What is claimed of every level: groups of wires on one level work in turn."""
    totals: dict[str, Any] = {}
    serials: dict[str, Any] = {}
    streamed: set[str] = set()
    waits: dict[str, Fraction] = {}
    reaches = Fraction(claim.claim.row.logical_bytes)
    for group, stage in staged(claim.machine, claim.claim.route, claim.priced) if claim.priced.stages else ():
        name = group.level.name
        totals[name] = max(totals.get(name, 0), stage.traffic.link_total)
        serials[name] = serials.get(name, 0) + stage.traffic.link_serial
        streamed |= {name} if stage.algorithm in STREAMED else set()
        waits[name] = waits.get(name, Fraction(0)) + _alone(claim, group, stage, reaches)
        reaches /= group.n
    for name, level in run.levels.items():
        if name in totals:
            yield f"link total on {name}", totals[name], level.total
            yield f"link serial on {name}", serials[name], waits[name] if name in streamed else level.serial


def _alone(claim: LinkClaim, group: LevelGroup, stage: LevelStage, reaches: Fraction) -> Fraction:
    """What is waited for on a group of wires while what `reaches` it is moved: of a stream the busiest link's total.

    Groups work in turn: of one that streams beside others on its level no count of the level as a whole tells it.
    """
    kind = claim.claim.row.collective
    if kind == "all_to_all":
        reaches = Fraction(claim.claim.row.logical_bytes) * group.n / prod(part.n for part in claim.parts)
    alone = load(kind, (Stretch(group.segments, stage.algorithm),), reaches).levels[group.level.name]
    return alone.total if stage.algorithm in STREAMED else alone.serial
