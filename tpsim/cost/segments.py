"""Nodes in order as tasks without seconds, cut where all that was issued has been waited for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Any, NamedTuple, TypeVar

from tpsim.cost.piece import Node, Piece
from tpsim.cost.timeline import Task
from tpsim.quantity.size import total


class Untimed(NamedTuple):
    """A task without its seconds: the pieces that it runs one after the other, and what it comes after."""

    pieces: tuple[Piece, ...]
    after: tuple[int, ...]

    def task(self, seconds: Callable[[Piece], Any]) -> Task:
        """The task."""
        first, *others = self.pieces
        worked = total(map(seconds, self.pieces)) if others else seconds(first)
        return Task(first.waits, first.holds, worked, self.after)


Segment = tuple[Untimed, ...]

Runs = tuple[tuple[Segment, int], ...]
"""Segments in order, each with how often it follows itself."""


def apart(segment: Segment) -> Segment:
    """The same with a step for every piece."""
    steps: list[Untimed] = []
    ends: list[int] = []
    for step in segment:
        first, *others = step.pieces
        steps += [
            Untimed((first,), tuple(ends[index] for index in step.after)),
            *(Untimed((piece,), ()) for piece in others),
        ]
        ends.append(len(steps) - 1)
    return tuple(steps)


def joined(segments: Iterable[Segment]) -> Segment:
    """Segments in a row as one, with a step for every piece."""
    steps: list[Untimed] = []
    for segment in segments:
        base = len(steps)
        steps += [Untimed(step.pieces, tuple(index + base for index in step.after)) for step in apart(segment)]
    return tuple(steps)


def runs(nodes: Sequence[Node], order: Sequence[int], starts: Sequence[int]) -> Runs:
    """Nodes in an order as segments; starts: the first node of each run of a part of the stack."""
    return tuple((segment, len(list(alike))) for segment, alike in groupby(_segments(nodes, order, starts)))


def grown(few: Runs, more: Runs, many: int) -> Runs | None:
    """The runs of so many equal layers more, from those of a few and of one more; None if that does not tell them.

    What one adds must be a run more of one segment, or what the layer before it is: in one segment, or as segments.
    Nothing else may differ.
    """
    if len(few) != len(more):
        return _stretched(few, more, many, lambda runs, _: runs)
    unlike = [at for at, (run, other) in enumerate(zip(few, more, strict=True)) if run != other]
    if len(unlike) != 1:
        return None
    ((segment, count), (other, counted)), at = (few[unlike[0]], more[unlike[0]]), unlike[0]
    if segment == other and 1 < count == counted - 1:
        return (*few[:at], (segment, count + many), *few[at + 1 :])
    stretched = _stretched(segment, other, many, _later) if count == counted == 1 else None
    return None if stretched is None else (*few[:at], (stretched, 1), *few[at + 1 :])


T = TypeVar("T")
Row = tuple[T, ...]


def _stretched(few: Row[T], more: Row[T], many: int, later: Callable[[Row[T], int], Row[T]]) -> Row[T] | None:
    """What layers are together, with so many more of them; more: with one more; later: they behind so many others."""
    added, pairs = len(more) - len(few), enumerate(zip(few, more, strict=False))
    begin = next((at for at, (one, other) in pairs if one != other), len(few))
    before, layer, behind = more[begin - added : begin], more[begin : begin + added], few[begin:]
    if not 0 < added <= begin or layer != later(before, added) or more[begin + added :] != later(behind, added):
        return None
    layers = (one for n in range(many) for one in later(layer, n * added))
    return (*few[:begin], *layers, *later(behind, many * added))


def _later(steps: Segment, by: int) -> Segment:
    """Steps behind so many others, and all that they come after with them."""
    return tuple([Untimed(pieces, tuple([index + by for index in after])) for pieces, after in steps])


def _segments(nodes: Sequence[Node], order: Sequence[int], starts: Sequence[int]) -> Iterator[Segment]:
    """The tasks, cut behind each part of the stack as soon as compute has waited for all that is in flight."""
    steps: list[tuple[list[Piece], tuple[int, ...]]] = []
    computed: list[Piece] | None = None
    numbers: dict[int, int] = {}
    flying: Flying = defaultdict(dict)
    awaited = [piece.call is not None and not piece.settles for piece, _ in nodes]
    cut, *next_begun = _begun(order, [*starts, len(nodes)])
    for at, begun in zip(order, next_begun, strict=True):
        piece, reads = nodes[at]
        waited = [read for read in reads if awaited[read]]
        after = tuple(sorted(numbers[read] for read in waited if read in numbers)) if waited else ()
        if computed and not piece.call and not after:
            computed.append(piece)
        else:
            steps.append(([piece], after))
            computed = None if piece.call else steps[-1][0]
        numbers[at] = len(steps) - 1
        if piece.beside:
            if not piece.settles:
                flying[piece.lane][at] = None
            continue
        if piece.call:
            waited += flying[piece.lane]
        for read in waited:
            _land(nodes, flying, read)
        if begun > cut and not any(flying.values()):
            yield _segment(steps)
            steps, computed, numbers, cut = [], None, {}, begun
    if left := [numbers[at] for calls in flying.values() for at in calls]:
        steps.append(([END], tuple(sorted(left))))
    if steps:
        yield _segment(steps)


def _begun(order: Sequence[int], starts: Sequence[int]) -> list[int]:
    """The parts that have begun by each place of an order, the last one's number; at its end 0."""
    parts = [part for part, (first, end) in enumerate(pairwise(starts)) for _ in range(first, end)]
    return [*accumulate((parts[at] for at in order), max), 0]


def _segment(steps: Iterable[tuple[list[Piece], tuple[int, ...]]]) -> Segment:
    return tuple([Untimed(tuple(pieces), after) for pieces, after in steps])


END = Piece()
"""What stands behind all that an action waits for."""


Flying = dict[str, dict[int, None]]
"""The calls that nothing has waited for yet, of each lane in the order in which they were issued."""


def _land(nodes: Sequence[Node], flying: Flying, at: int) -> None:
    """A call has been waited for, and with it those before it on its lane and those that they read."""
    calls = flying[nodes[at].piece.lane]
    while at in calls:
        first = next(iter(calls))
        del calls[first]
        for read in nodes[first].reads:
            _land(nodes, flying, read)
