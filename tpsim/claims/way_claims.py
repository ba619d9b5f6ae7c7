"""Holds what `shard` says of each way against the calls that devices made on that way."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import zip_longest
from typing import TYPE_CHECKING

from tpsim.answers.symbolic import symbolic, symbols
from tpsim.claims.checks import Check, counted, judged
from tpsim.claims.claims import exact_bytes, injected, injected_most, measures
from tpsim.claims.link_claims import LinkClaim, links_check
from tpsim.cost import formula

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpsim.algebra.moves import Move
    from tpsim.algebra.planner import Plan, Step
    from tpsim.answers.shard import ShardResult
    from tpsim.machine.timing import Timing
    from tpsim.reference.compare import Compared
    from tpsim.reference.devices import Call


@dataclass(frozen=True, slots=True)
class Way:
    """One way to an expression: what is claimed of it, what devices did, and how that compares with one device.

    plan   None for an array alone
    calls  the calls that devices made
    """

    asked: ShardResult
    plan: Plan | None
    calls: tuple[Call, ...]
    compared: tuple[Compared, ...]

    @property
    def steps(self) -> list[Step]:
        """The steps in which devices talk to each other."""
        steps = self.plan.steps if self.plan else ()
        axes = self.asked.mesh.axes
        return [step for step in steps if step.move and step.op != "slice" and step.move.ranks(axes) > 1]

    @property
    def text(self) -> str:
        """The way in words."""
        return way_text(self.plan)

    def priced(self, move: Move) -> Timing | None:
        """What the machine says of a move; None without one."""
        clock = self.asked.clock
        return None if clock is None else clock.move(move, self.asked.pricing.volume(move))


def way_text(plan: Plan | None) -> str:
    """A way in words: its ops in order."""
    return " -> ".join(step.op for step in plan.steps) if plan else ""


def way_checks(ways: Sequence[Way]) -> Iterator[Check]:
    """Collectives, links if there is a machine, and formulas."""
    yield _collectives_check(ways)
    if ways[0].asked.clock is not None:
        yield links_check([claim for way in ways for claim in _link_claims(way)])
    yield _formulas_check(ways)


def _collectives_check(ways: Sequence[Way]) -> Check:
    calls = sum(len(way.calls) for way in ways)
    moves = sum(len(way.steps) for way in ways)
    both = f"{counted(calls, 'call')} for {counted(moves, 'move')}"
    seen = f"{both} on {counted(len(ways), 'way')}, every one with its bytes"
    return judged("collectives", seen, [text for way in ways for text in _wrong_calls(way)], tried=max(calls, moves))


def _wrong_calls(way: Way) -> Iterator[str]:
    claimed = [(step.move.kind, step.move.axes) for step in way.steps if step.move]
    ran = [(call.kind, call.axes) for call in way.calls]
    if claimed != ran:
        yield f"{way.text}: planned {_listed(claimed)}, ran {_listed(ran)}"
        return
    for step, call in zip(way.steps, way.calls, strict=True):
        yield from _wrong_bytes(way, step, call)


def _listed(calls: Sequence[tuple[str, tuple[str, ...]]]) -> str:
    return ", ".join(f"{kind}({','.join(axes)})" for kind, axes in calls) or "nothing"


def _wrong_bytes(way: Way, step: Step, call: Call) -> Iterator[str]:
    if step.move is None:
        return
    wire, priced = way.asked.pricing.wire(step.move), way.priced(step.move)
    for what, claimed, measure in measures(call.kind, wire, priced):
        seen = measure(call)
        if seen != Fraction(claimed):
            yield f"{way.text}, {_named(step)}: {what} planned {exact_bytes(claimed)}, counted {exact_bytes(seen)}"


def _named(step: Step) -> str:
    return f"{step.op} over {','.join(step.move.axes if step.move else ())} of {step.output[0]}"


def _link_claims(way: Way) -> Iterator[LinkClaim]:
    clock, pricing = way.asked.clock, way.asked.pricing
    calls = way.calls if len(way.calls) == len(way.steps) else ()
    for step, call in zip_longest(way.steps, calls):
        priced = way.priced(step.move) if step.move else None
        if clock is not None and step.move is not None and priced is not None:
            route = clock.placement.route(step.move.axes)
            volume, what = pricing.volume(step.move), f"{way.text}, {_named(step)}"
            made = ((int(volume) // pricing.width, call),) if call else ()
            yield LinkClaim(what, step.move.kind, volume, clock.machine, route, priced, made)


def _formulas_check(ways: Sequence[Way]) -> Check:
    """The formulas of every way, at the sizes that were run."""
    texts = [text for way in ways for text in _formulas(way)]
    seen = f"the bytes that were counted are those of {counted(len(texts), 'formula')}"
    return judged("formulas", seen, [text for text in texts if text], tried=len(texts))


def _formulas(way: Way) -> Iterator[str]:
    """Per move that devices made: "" where its formula holds, else what does not."""
    if way.plan is None or len(way.steps) != len(way.calls):
        return
    asked, dims = way.asked, tuple(way.asked.dims or {})
    names, degrees = symbols(dims, asked.mesh)
    known = {str(names[dim]): size for dim, size in (asked.dims or {}).items()}
    known |= {str(degrees[axis]): size for axis, size in asked.mesh.axes.items()}
    lines = zip(way.plan.steps, symbolic(way.plan, asked.mesh, asked.pricing.width, None), strict=True)
    texts = [one.formulas.wire_bytes_per_device for step, one in lines if step in way.steps]
    for step, text, call in zip(way.steps, texts, way.calls, strict=True):
        claimed = formula.evaluated(text, known)
        seen = injected_most(call) if call.kind == "permute" else injected(call)
        yield "" if claimed == seen else f"{way.text}, {_named(step)}: {text} is {claimed}, counted {seen}"
