"""Holds the collectives that are planned against the calls that devices made: how many, and how many bytes."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.answers.stages import calls_of_all
from tpsim.claims.checks import Check, counted, judged
from tpsim.claims.sorts import planned, sort_of
from tpsim.claims.wiring import BOOK
from tpsim.machine.algorithms import EVERY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tpsim.algebra.moves import Move, MoveKind
    from tpsim.answers.plan import PlanResult
    from tpsim.claims.sorts import Sort
    from tpsim.cost.rollup import Row
    from tpsim.machine.timing import Timing
    from tpsim.program.op import Reshard
    from tpsim.reference.devices import Call
    from tpsim.reference.execute import Run

OWN_WIRE = frozenset(one.name for one in EVERY if one.copies)
"""Algorithms that inject other bytes than the least, which is what `wire` is; they are held by what they carry."""


class Made(NamedTuple):
    """A call that devices made: the op that caused it, which of its moves, and what was sent."""

    op: Reshard
    move: Move
    call: Call

    @property
    def sort(self) -> Sort:
        """What it is in a plan."""
        return sort_of(self.op, self.move)


def made(run: Run) -> list[Made]:
    """Every call of a run, in order; free slices and calls of one device are none."""
    moves = {cause.op: iter(cause.op.moves) for cause in run.causes}
    found = [Made(cause.op, next(moves[cause.op]), cause.call) for cause in run.causes]
    axes = run.grid.mesh.axes
    return [one for one in found if one.call.kind != "slice" and one.move.ranks(axes) > 1]


def by_sort(calls: Iterable[Made]) -> dict[Sort, list[Call]]:
    """Calls by their sort, each list in order."""
    found: dict[Sort, list[Call]] = {}
    for one in calls:
        found.setdefault(one.sort, []).append(one.call)
    return found


def collectives_check(plan: PlanResult, calls: Mapping[Sort, Sequence[Call]]) -> Check:
    """Nothing missing, nothing extra, and every call as many bytes as its row says."""
    total = sum((injected(call) for found in calls.values() for call in found), Fraction(0))
    sent_in_all = f"{exact_bytes(total)} injected per device"
    ran = sum(map(len, calls.values()))
    both = f"{counted(ran, 'call')} of {counted(len(plan.rows), 'planned collective')}"
    seen = f"{both}, {sent_in_all}: none missing, none extra"
    wrong = [text for row in plan.rows for text in _wrong_bytes(row, calls)]
    return judged("collectives", seen, [*_wrong_counts(plan, calls), *wrong], tried=max(ran, len(plan.rows)))


def _wrong_counts(plan: PlanResult, calls: Mapping[Sort, Sequence[Call]]) -> Iterator[str]:
    due: Counter[Sort] = Counter()
    for row in plan.rows:
        for sort in planned(row.call):
            due[sort] += calls_of_all(plan.question, row.call, plan.sizes)
    for sort in {**due, **calls}:
        ran = len(calls.get(sort, ()))
        if ran != due[sort]:
            yield f"{sort}: planned {due[sort]} times, ran {ran} times"


def _wrong_bytes(row: Row, calls: Mapping[Sort, Sequence[Call]]) -> Iterator[str]:
    """What a row says of its wire and what it carries, where the devices of its calls sent something else."""
    found = [calls.get(sort, ()) for sort in planned(row.call)]
    if not all(found):
        return
    for what, claimed, measure in measures(row.collective, row.wire_bytes_per_device, row.timing):
        ran = {sum(measure(call) for call in together) for together in zip(*found, strict=False)}
        if ran != {Fraction(claimed)}:
            seen = " or ".join(map(exact_bytes, sorted(ran)))
            yield f"{planned(row.call)[0]}: {what} planned {exact_bytes(claimed)}, counted {seen}"


def measures(kind: MoveKind, wire: Any, priced: Timing | None) -> Iterator[tuple[str, Any, Callable[[Call], Fraction]]]:
    """What is claimed of one call, and how it is counted in a run: what devices inject, and what they send."""
    if least_injected(priced):
        yield "wire", wire, injected_most if kind == "permute" else injected
    if priced is not None and priced.algorithm != BOOK and kind != "send":
        yield "carried", priced.carried, sent


def injected(call: Call) -> Fraction:
    """Bytes that a device injects, on average."""
    return Fraction(sum(map(int, call.injected)), len(call.injected))


def injected_most(call: Call) -> Fraction:
    """Bytes that the busiest device injects: a permute moves no shard that is in its place."""
    return Fraction(max(map(int, call.injected)))


def sent(call: Call) -> Fraction:
    """Bytes that a device sends, on average, forwarded ones included."""
    return Fraction(sum(map(int, call.sent)), len(call.sent))


def exact_bytes(value: Any) -> str:
    """Exactly, since a byte too few is a mistake."""
    number = Fraction(value)
    return f"{number.numerator:,} B" if number.denominator == 1 else f"{float(number):,.6g} B"


def least_injected(priced: Timing | None) -> bool:
    """True if the algorithm injects the least bytes that any could, which is what `wire` says."""
    return priced is None or not OWN_WIRE & {priced.algorithm, *(stage.algorithm for stage in priced.stages)}
