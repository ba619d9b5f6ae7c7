"""The paths of the planner `cheapest`: for every array that which takes the fewest seconds for it alone."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from tpsim.algebra.reshard import Routes
from tpsim.program.dims import ROWS
from tpsim.program.dtypes import DTYPE_BYTES
from tpsim.program.trace import book_path
from tpsim.quantity.errors import InputError
from tpsim.question.prices import pricer, sizes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpsim.algebra.moves import Move
    from tpsim.algebra.sharding import Sharding
    from tpsim.program.op import Array
    from tpsim.question.question import Question


class CheapestPath:
    """Reshards every array by the path that takes the fewest seconds for it alone; never through an uneven split.

    Ragged rows split as they come. Nothing goes over stages, which hold other layers,
    but what they owe each other, which goes by the book.

    differs  True once a path has been taken that is not the book's
    """

    def __init__(self, question: Question) -> None:
        self.differs = False
        self._question, self._known = question, dict[str, Routes]()

    def __call__(self, x: Array, to: Sharding, order: Sequence[str]) -> tuple[Move, ...]:
        """The moves that bring an array to a type. Raises ShardingError where none do.

        What stages owe together, as the norm of all gradients, has one way alone: the book's.
        """
        book = book_path(x, to, order)
        if x.type.owed_axes.intersection(self._question.layout.stages):
            return book
        if x.dtype not in self._known:
            self._known[x.dtype] = _routes(self._question, x.dtype)
        path = self._known[x.dtype].path(x.type, to)
        self.differs |= path != book
        return path


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

    return Routes([axis for axis in question.mesh.order if axis not in question.layout.stages], price, even)
