"""What of a layer hangs on each other, in line: seconds that layers of a kind take at least, whatever else is issued.

Kernels run one after the other, calls beside them when what they read is there; what only gradients of parameters need
is left out where it may wait for a call of the next layer. A layer takes over where compute is free and what the one
before it gives is there, and so does the next: from these two to the same two of the next layer it is a matrix of max
and plus, [to, from, cell].
"""

from __future__ import annotations

from collections import defaultdict
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from tpsim.cost.issue import Issue

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpsim.cost.piece import Part, Piece


def layer(part: Part, seconds: Callable[[Piece], Any]) -> Any:
    """The matrix of one layer; what reads of it only what came in leaves at once, before what its last layer left."""
    compute, taken = np.array([[0], [-np.inf]]), np.array([[-np.inf], [0]])
    never = np.full((2, 1), -np.inf)
    free: defaultdict[str, Any] = defaultdict(lambda: never)
    ends: dict[int, Any] = {}
    issue = Issue(part.nodes, frozenset({0}))
    at_once: set[int] = set()
    for at in issue.order()[: issue.surely]:
        piece, reads = part.nodes[at]
        if piece.settles and piece.beside:
            continue
        for read in reads:
            if (fetch := part.nodes[read].piece).fetches and not fetch.beside and read not in ends:
                ends[read] = compute = compute + seconds(fetch)
        there = [ends[read] for read in reads if read in ends] + [taken] * (at in part.takes)
        if there and piece.beside and at_once.issuperset(reads):
            at_once.add(at)
        else:
            there.append(compute)
        ends[at] = reduce(np.maximum, there, free[piece.lane]) + seconds(piece)
        free[piece.lane] = ends[at]
        compute = compute if piece.beside else ends[at]
    gives = reduce(np.maximum, [ends[at] for at in part.gives if at in ends], never)
    return np.stack(np.broadcast_arrays(compute, gives))


def then(first: Any, second: Any) -> Any:
    """Both matrices, one behind the other."""
    return (second[:, :, None] + first[None]).max(axis=1)


def times(matrix: Any, n: int) -> Any:
    """The matrix of n layers in a row."""
    whole = None
    while n:
        if n % 2:
            whole = matrix if whole is None else then(whole, matrix)
        n //= 2
        matrix = then(matrix, matrix) if n else matrix
    return whole
