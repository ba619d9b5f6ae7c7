"""Holds what is claimed of links against the schedules that run on them, message by message."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING, Any

from tpsim.claims.checks import Check, judged
from tpsim.claims.counted import BOOK, parts, staged
from tpsim.machine.algorithms import STREAMED
from tpsim.reference.collectives import Part, schedule
from tpsim.reference.linkload import load
from tpsim.report.numbers import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpsim.claims.claims import Claim, Ledger
    from tpsim.machine.cost import Stage
    from tpsim.machine.groups import Group
    from tpsim.machine.profile import Machine
    from tpsim.machine.timing import Timing
    from tpsim.reference.calls import Call
    from tpsim.reference.linkload import Load


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
    calls: Sequence[Call]
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
    def parts(self) -> tuple[Part, ...]:
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
        LinkClaim(f"{ledger.way}{claim.sorts[0]}", claim, claim.machine, [calls[0] for calls in ways], _up(ways))
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
    return judged("links", seen, wrong, tried=len(known) + len(alone))


def _up(calls: Sequence[Sequence[Call]]) -> int:
    """Bytes on the busiest uplink of the calls that devices made, those that travel together added up."""
    return max((sum(call.uplink for call in together) for together in zip(*calls, strict=False)), default=0)


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


def _alone(claim: LinkClaim, group: Group, stage: Stage, reaches: Fraction) -> Fraction:
    """What is waited for on a group of wires while what `reaches` it is moved: of a stream the busiest link's total.

    Groups work in turn: of one that streams beside others on its level no count of the level as a whole tells it.
    """
    kind = claim.claim.row.collective
    if kind == "all_to_all":
        reaches = Fraction(claim.claim.row.logical_bytes) * group.n / prod(part.n for part in claim.parts)
    alone = load(kind, (Part(group.segments, stage.algorithm),), reaches).levels[group.level.name]
    return alone.total if stage.algorithm in STREAMED else alone.serial
