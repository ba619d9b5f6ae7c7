"""The paths of the planner `cheapest`: for every array that which takes the fewest seconds for it alone."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from tpsim.algebra import reshard
from tpsim.algebra.reshard import Routes
from tpsim.algebra.sharding import Sharding
from tpsim.program.dims import ROWS
from tpsim.program.dtypes import DTYPE_BYTES
from tpsim.program.trace import book_path
from tpsim.quantity.errors import InputError
from tpsim.question.prices import pricer, sizes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpsim.algebra.moves import Move
    from tpsim.program.op import Array
    from tpsim.question.question import Question


MOST_AXES = 5
"""Mesh axes over which all ways are looked at: seconds for each type of array; over six they take minutes."""


def ways_over(question: Question) -> list[str]:
    """The mesh axes that ways lead over, major first: those of several devices, but for stages."""
    axes, stages = question.mesh.axes, question.layout.stages
    return [axis for axis in question.mesh.order if axes[axis] > 1 and axis not in stages]


def too_many(question: Question) -> bool:
    """True where there are more ways than can be looked at."""
    return len(ways_over(question)) > MOST_AXES


def refuse_too_many(question: Question) -> None:
    """Raise InputError where looking at all ways would not end soon."""
    if too_many(question):
        axes = ways_over(question)
        message = f"the planner cheapest looks at all ways over {MOST_AXES} mesh axes at most, not {len(axes)}: "
        message += ", ".join(axes)
        raise InputError.one("too-many-axes", message, remedy="--planner book, or join axes of the same role")


class CheapestPath:
    """Reshards every array by the path that takes the fewest seconds for it alone; never through an uneven split.

    Ragged rows split as they come. Nothing goes over stages, which hold other layers,
    but what they owe each other, which goes by the book; nor over axes of one device, which no path sees.

    differs  True once a path has been taken that is not the book's
    """

    def __init__(self, question: Question) -> None:
        self.differs = False
        self._question, self._known = question, dict[str, Routes]()
        self._axes = frozenset(ways_over(question))

    def __call__(self, x: Array, to: Sharding, order: Sequence[str]) -> tuple[Move, ...]:
        """The moves that bring an array to a type. Raises ShardingError where none do.

        What stages owe together, as the norm of all gradients, has one way alone: the book's.
        """
        book = book_path(x, to, order)
        if x.type.owed_axes.intersection(self._question.layout.stages):
            return book
        if x.dtype not in self._known:
            self._known[x.dtype] = _routes(self._question, x.dtype)
        ends = self._of_several(x.type), self._of_several(to)
        path = self._known[x.dtype].path(*ends)
        if path == reshard.book_path(*ends, order):
            return book
        self.differs = True
        return path

    def _of_several(self, type_: Sharding) -> Sharding:
        """The type without axes of one device, which neither split it nor owe for it."""
        on = tuple(tuple(axis for axis in axes if axis in self._axes) for axes in type_.on)
        return Sharding(type_.dims, on, frozenset(pair for pair in type_.owes if pair[0] in self._axes))


def _routes(question: Question, dtype: str) -> Routes:
    sizes, seconds = sizes_of(question), pricer(question)
    dims = {dim: size for dim, size in sizes.dims.items() if isinstance(size, int)}

    def price(move: Move) -> Any:
        volume = move.logical_elements(sizes.dims, sizes.axes) * DTYPE_BYTES[dtype]
        try:
            return 0 if move.kind == "slice" else seconds(move, volume).time_s
        except InputError:
            return inf  # no closed form is known for this move on these wires: not a way to offer

    def even(type_: Sharding) -> bool:
        return all(question.mesh.divides(type_, dim, dims) for dim in type_.dims if dim not in ROWS)

    return Routes(ways_over(question), price, even)
