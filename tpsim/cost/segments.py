"""Nodes in order as tasks without seconds, cut where all that was issued has been waited for."""

from __future__ import annotations

from bisect import bisect_right
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.cost.piece import Node, Piece
from tpsim.cost.timeline import Task
from tpsim.quantity.size import total

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


class Step(NamedTuple):
    """A task without its seconds: the pieces that it runs one after the other, and what it comes after."""

    pieces: tuple[Piece, ...]
    after: tuple[int, ...]

    def task(self, seconds: Callable[[Piece], Any]) -> Task:
        """The task."""
        first, *others = self.pieces
        worked = total(map(seconds, self.pieces)) if others else seconds(first)
        return Task(first.waits, first.holds, worked, self.after)


Segment = tuple[Step, ...]


def apart(segment: Segment) -> Segment:
    """The same with a step for every piece."""
    steps: list[Step] = []
    ends: list[int] = []
    for step in segment:
        first, *others = step.pieces
        steps += [Step((first,), tuple(ends[index] for index in step.after)), *(Step((piece,), ()) for piece in others)]
        ends.append(len(steps) - 1)
    return tuple(steps)


def joined(segments: Iterable[Segment]) -> Segment:
    """Segments in a row as one, with a step for every piece."""
    steps: list[Step] = []
    for segment in segments:
        base = len(steps)
        steps += [Step(step.pieces, tuple(index + base for index in step.after)) for step in apart(segment)]
    return tuple(steps)


def runs(
    nodes: Sequence[Node], order: Sequence[int], starts: Sequence[int], unseen: Iterable[tuple[range, int]] = ()
) -> tuple[tuple[Segment, int], ...] | None:
    """Segments and how often each follows itself.

    starts  the first node of each run of a part of the stack
    unseen  of parts that run more often than their nodes are given: these nodes, in runs, and how often more

    None where the runs of such a part do not tell what those that are unseen would be.
    """
    cuts = list(_segments(nodes, order, starts))
    ends = [*(place for _, place in cuts[1:]), len(order)]
    often = [1 for _ in cuts]
    for repeats, times in unseen:
        steady = (
            at
            for at in range(len(cuts) - 1)
            if cuts[at][0] == cuts[at + 1][0]
            and _shifted(order[cuts[at][1] : ends[at]], order[ends[at] : ends[at + 1]], repeats)
        )
        if (at := next(steady, None)) is None:
            return None
        often[at] += times
    alike = groupby(zip(cuts, often, strict=True), key=lambda pair: pair[0][0])
    return tuple((segment, sum(many for _, many in group)) for segment, group in alike)


def _shifted(indices: Sequence[int], other: Sequence[int], repeats: range) -> bool:
    """True if both are every node of a part once, of whichever of its runs, and all of `other` are a run later.

    What is held back for later, or done ahead, is then the same before and behind each: so all that follow are alike.
    """
    step = repeats.step
    return (
        len(indices) == len({at % step for at in indices}) == step
        and [at + step for at in indices] == [*other]
        and repeats.start <= min(indices)
        and max(other) < repeats.stop
    )


def _segments(nodes: Sequence[Node], order: Sequence[int], starts: Sequence[int]) -> Iterator[tuple[Segment, int]]:
    """The tasks, cut behind each part of the stack as soon as compute has waited for all that is in flight.

    Each with the place in the order that it begins at.
    """
    steps: list[tuple[list[Piece], tuple[int, ...]]] = []
    numbers: dict[int, int] = {}
    flying: dict[int, None] = {}
    awaited = [bool(node.piece.call) and not node.piece.settles for node in nodes]
    begin, layer = 0, bisect_right(starts, order[0]) if order else 0
    cut = layer
    for place, at in enumerate(order):
        piece, reads = nodes[at]
        waited = [read for read in reads if awaited[read]]
        after = tuple(sorted(numbers[read] for read in waited if read in numbers)) if waited else ()
        if not piece.call and not after and steps and steps[-1][0][0].call is None:
            steps[-1][0].append(piece)
        else:
            steps.append(([piece], after))
        numbers[at] = len(steps) - 1
        if piece.beside:
            if not piece.settles:
                flying[at] = None
            continue
        for read in (
            waited if not piece.call else [*waited, *(call for call in flying if nodes[call].piece.lane == piece.lane)]
        ):
            _land(nodes, flying, read)
        if place + 1 < len(order):
            layer = max(layer, bisect_right(starts, order[place + 1]))
            if layer > cut and not flying:
                yield _segment(steps), begin
                steps, numbers, cut, begin = [], {}, layer, place + 1
    if flying:
        steps.append(([END], tuple(sorted(numbers[at] for at in flying))))
    if steps:
        yield _segment(steps), begin


def _segment(steps: Iterable[tuple[list[Piece], tuple[int, ...]]]) -> Segment:
    return tuple([Step(tuple(pieces), after) for pieces, after in steps])


END = Piece()
"""What stands behind all that an action waits for."""


def _land(nodes: Sequence[Node], flying: dict[int, None], at: int) -> None:
    """A call has been waited for, and with it those before it on its lane and those that it reads."""
    if at in flying:
        before = [call for call in flying if nodes[call].piece.lane == nodes[at].piece.lane]
        for call in before[: before.index(at) + 1]:
            flying.pop(call, None)
            for read in nodes[call].reads:
                _land(nodes, flying, read)
