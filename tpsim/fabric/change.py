"""A change of axes: the mesh axes that shard a dim come in another order, so that blocks change places."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from tpsim.fabric.wires import Segment, joined
from tpsim.quantity.size import whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tpsim.fabric.slices import AxisPiece


@dataclass(frozen=True, slots=True)
class Change:
    """Every device of a group hands its block to the one whose place in the new order is the block's own.

    Ranks count the devices by the axes as they were, major first: rank r holds block r.

    axes   per mesh axis, major first as it was, the pieces of wires that it lies on, innermost first
    order  the numbers of these axes, major first as they become

    >>> from tpsim.fabric.slices import AxisPiece
    >>> Change(((AxisPiece("ici.0", 2, 1),), (AxisPiece("ici.1", 3, 1),)), (1, 0)).targets()
    [0, 3, 1, 4, 2, 5]
    """

    axes: tuple[tuple[AxisPiece, ...], ...]
    order: tuple[int, ...]

    def targets(self) -> list[int]:
        """For each rank the one to which its block goes."""
        sizes = [prod(piece.n for piece in pieces) for pieces in self.axes]
        apart = [prod(sizes[at + 1 :]) for at in range(len(sizes))]
        return _counted_up([place * apart[at] for place in range(sizes[at])] for at in self.order)

    def places(self, segment: Segment) -> list[int]:
        """For each rank its place on a segment of the group's route."""
        inside, offsets = 1, []
        for pieces in reversed(self.axes):
            devices = [0]
            for piece in pieces:
                if piece.carrier == segment.axis:
                    reach = inside if joined(segment.topology) else piece.stride // whole(segment.stride)
                    inside *= piece.n
                else:
                    reach = 0
                devices = [own + place * reach for place in range(piece.n) for own in devices]
            offsets.append(devices)
        return _counted_up(reversed(offsets))


class Shift(Change):
    """Every device of a group hands its block to the next one, the last one to the first."""

    __slots__ = ()

    def targets(self) -> list[int]:
        """For each rank the one to which its block goes."""
        n = prod(piece.n for pieces in self.axes for piece in pieces)
        return [(rank + 1) % n for rank in range(n)]


def _counted_up(digits: Iterable[Sequence[int]]) -> list[int]:
    """The sums of one value per digit, the last digit running fastest."""
    sums = [0]
    for values in digits:
        sums = [before + value for before in sums for value in values]
    return sums
