"""Arrays by their texts, and every move out of a type: short for what tests ask of the algebra."""

from tpsim.algebra.moves import leaving, move
from tpsim.algebra.notation import parse_expression
from tpsim.algebra.sharding import Sharding


def parse_array(text, mesh_axes=None):
    """One array from its text."""
    return parse_expression(text, mesh_axes).array


def every_move(now, order):
    """Every move that is legal on an array of type `now`."""
    return (move(kind, now, Sharding(now.dims, on, owes), order) for kind, _, on, owes in leaving(now, order))
