"""Holds what is claimed of links against the schedules that run on them, message by message."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tpsim.claims.checks import Check, counted, judged
from tpsim.claims.sorts import planned
from tpsim.claims.wiring import BOOK, parts, staged
from tpsim.machine.algorithms import STREAMED
from tpsim.question.prices import route_over
from tpsim.reference.collectives import schedule
from tpsim.reference.linkload import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpsim.algebra.moves import MoveKind
    from tpsim.answers.plan import PlanResult
    from tpsim.claims.sorts import Sort
    from tpsim.cost.rollup import Row
    from tpsim.fabric.wires import Route
    from tpsim.machine.profile import Machine
    from tpsim.machine.timing import Timing
    from tpsim.reference.collectives import Part
    from tpsim.reference.devices import Call
    from tpsim.reference.linkload import Load


@dataclass(frozen=True, slots=True)
class LinkClaim:
    """What is claimed of the links under one call of V bytes, on a machine's wires.

    made  what devices did for it: per array that travels in it the elements of V, and a call
    """

    what: str
    kind: MoveKind
    V: Any
    machine: Machine
    route: Route
    priced: Timing
    made: tuple[tuple[int, Call], ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        """The algorithm, level by level."""
        return parts(self.machine, self.route, self.priced)

    @property
    def even(self) -> bool:
        """True if every array can be cut as the schedule cuts: then devices send what it says, not about as much.

        What two stages of several exchange was counted on the devices alone, not on links.
        """
        plan = schedule(self.kind, self.parts)
        on_links = bool(self.made) and all(call.levels for _, call in self.made)
        return on_links and not any(elements % (plan.blocks * plan.units) for elements, _ in self.made)


def links_check(claims: Sequence[LinkClaim]) -> Check:
    """Steps, carried bytes, and bytes on the busiest link of every level, against the schedule message by message."""
    known = [claim for claim in claims if _has_schedule(claim)]
    names = sorted({part.algorithm for claim in known for part in claim.parts})
    algorithms = f" ({', '.join(names)})" if names else ""
    even = sum(claim.even for claim in known)
    seen = f"steps and link bytes of {counted(len(known), 'call')} are those of their messages{algorithms}"
    seen += f", {even} of them counted on the links of the devices too" if even else ""
    left = len(claims) - len(known)
    seen += f"; {left} are not of a schedule (permutes, or priced by the book)" if left else ""
    streamed = [name for name in names if name in STREAMED]
    seen += f"; {', '.join(streamed)}: streamed, the total of a link is held" if streamed else ""
    return judged("links", seen, [text for claim in known for text in _wrong_links(claim)], tried=len(known))


def _has_schedule(claim: LinkClaim) -> bool:
    return claim.kind not in {"permute", "slice", "send"} and claim.priced.algorithm != BOOK


def _wrong_links(claim: LinkClaim) -> Iterator[str]:
    run = load(claim.kind, claim.parts, Fraction(claim.V))
    on_devices = _on_devices(claim, run) if claim.even else ()
    for what, claimed, seen in (*_whole(claim.priced, run), *_by_level(claim, run), *on_devices):
        if Fraction(claimed) != seen:
            yield f"{claim.what}, {claim.priced.algorithm}: {what} claimed {claimed}, counted {seen}"


def _on_devices(claim: LinkClaim, run: Load) -> Iterator[tuple[str, Any, Fraction]]:
    """What devices counted, against the schedule; of arrays that travel together the bytes add up."""
    calls = [call for _, call in claim.made]
    for call in calls:
        yield "steps of devices", run.steps, Fraction(call.steps)
    for name, level in run.levels.items():
        total, serial = (sum(getattr(call.levels[name], what) for call in calls) for what in ("total", "serial"))
        yield f"devices' link total on {name}", level.total, Fraction(total)
        yield f"devices' link serial on {name}", level.serial, Fraction(serial)


def _whole(priced: Timing, run: Load) -> Iterator[tuple[str, Any, Fraction]]:
    """What is claimed of the call as a whole."""
    yield "steps", priced.steps, Fraction(run.steps)
    yield "carried bytes", priced.carried, run.carried
    yield "link total", priced.link_total, run.link_total
    if not priced.stages:
        waits = run.link_total if priced.algorithm in STREAMED else max(level.serial for level in run.levels.values())
        yield "link serial", priced.link_serial, waits


def _by_level(claim: LinkClaim, run: Load) -> Iterator[tuple[str, Any, Fraction]]:
    """What is claimed of every level: groups of wires on one level work in turn."""
    totals: dict[str, Any] = {}
    serials: dict[str, Any] = {}
    streamed: set[str] = set()
    for group, stage in staged(claim.machine, claim.route, claim.priced) if claim.priced.stages else ():
        name = group.level.name
        totals[name] = max(totals.get(name, 0), stage.traffic.link_total)
        serials[name] = serials.get(name, 0) + stage.traffic.link_serial
        streamed |= {name} if stage.algorithm in STREAMED else set()
    for name, level in run.levels.items():
        if name in totals:
            yield f"link total on {name}", totals[name], level.total
            yield f"link serial on {name}", serials[name], level.total if name in streamed else level.serial


def link_claim(plan: PlanResult, row: Row, calls: Mapping[Sort, Sequence[Call]]) -> LinkClaim:
    """What a row of a plan claims of the links under one of its calls."""
    one, question, sorts = row.call, plan.question, planned(row.call)
    route = () if one.kind == "send" else route_over(question, one.parts[0].move)
    sizes = [int(part.move.logical_elements(plan.sizes.dims, plan.sizes.axes)) for part in one.parts]
    known = all(calls.get(sort) for sort in sorts)
    made = tuple((size, calls[sort][0]) for size, sort in zip(sizes, sorts, strict=True)) if known else ()
    return LinkClaim(str(sorts[0]), one.kind, row.logical_bytes, question.machine, route, row.timing, made)
