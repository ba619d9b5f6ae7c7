"""The paths of the planner `cheapest`: for every array that which takes the fewest seconds for it alone."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from tpsim.algebra.reshard import Routes
from tpsim.program.dims import ROWS
from tpsim.program.layout import DTYPE_BYTES
from tpsim.quantity.errors import InputError
from tpsim.question.prices import pricer, sizes_of

if TYPE_CHECKING:
    from tpsim.algebra.moves import Move
    from tpsim.algebra.sharding import Sharding
    from tpsim.program.trace import Path as Paths
    from tpsim.question.question import Question


def cheapest_path(question: Question) -> Paths:
    """Reshards every array by the path that takes the fewest seconds for it alone; never through an uneven split.

    Ragged rows split as they come. Nothing goes over stages, which hold other layers.
    """
    sizes, seconds = sizes_of(question), pricer(question)
    order = [axis for axis in question.mesh.order if axis not in question.layout.stages]
    dims = {dim: size for dim, size in sizes.dims.items() if isinstance(size, int)}

    def routes(dtype: str) -> Routes:
        def price(move: Move) -> Any:
            volume = move.logical_elements(sizes.dims, sizes.axes) * DTYPE_BYTES[dtype]
            try:
                return 0 if move.kind == "slice" else seconds(move, volume).time_s
            except InputError:
                return inf  # no closed form is known for this move on these wires: not a way to offer

        return Routes(order, price, even)

    def even(type_: Sharding) -> bool:
        return all(question.mesh.divides(type_, dim, dims) for dim in type_.dims if dim not in ROWS)

    known = {dtype: routes(dtype) for dtype in DTYPE_BYTES}
    return lambda x, to, _order: known[x.dtype].path(x.type, to)
