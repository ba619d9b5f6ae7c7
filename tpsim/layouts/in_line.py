"""What of a layer hangs on each other, in line: seconds that layers of a kind take at least, whatever else is issued.

Kernels run one after the other, calls beside them when what they read is there; what only gradients of parameters need
is left out where it may wait for a call of the next layer. A layer takes over where compute is free and what the one
before it gives is there, and so does the next: from these two to the same two of the next layer it is a matrix of max
and plus, [to, from, cell].
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from tpsim.cost.issue import Issue
from tpsim.quantity.once import Once

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tpsim.cost.actions import Actions
    from tpsim.cost.piece import Part, Piece
    from tpsim.program.stages import Chunk


@dataclass
class InLine(Once):
    """Actions of one program.

    issued   by party: what nobody takes part in would hold others up
    party    of every cell
    seconds  of a kernel, of a part of a product, or of one call, in every cell
    """

    issued: Sequence[Actions]
    party: Any
    seconds: Callable[[Piece], Any]

    @property
    def cuts_products(self) -> bool:
        """True if products are cut to run beside steps of calls."""
        return any(self.issued[0].splits(call) for call in self.issued[0].calls)

    def layers_s(self, chunk: Chunk, acts: str) -> Any:
        """Seconds of an action's layers; if it begins with one, of the weights that this waits for, too."""
        stack = [(kind, many) for kind, many in chunk.stack if many][:: 1 if acts == "F" else -1]
        inside = chunk.first if acts == "F" else chunk.last
        each = [self._layers(acts, *row, begins=not (inside or at)) for at, row in enumerate(stack)]
        return reduce(then, each).max(axis=(0, 1)) if each else 0

    def _layers(self, acts: str, kind: str, many: int, *, begins: bool) -> Any:
        if not begins:
            return self._once((acts, kind, many), lambda: times(self._one(kind, acts, begins=False), many))
        first = self._one(kind, acts, begins=True)
        return then(first, self._layers(acts, kind, many - 1, begins=False)) if many > 1 else first

    def _one(self, kind: str, acts: str, *, begins: bool) -> Any:
        """One layer, in every cell as its mesh issues it."""

        def matrix() -> Any:
            numbers = np.unique(self.party).tolist()
            parts = [self.issued[number].layer(kind, acts) for number in numbers]
            if begins and not any(piece.fetches and piece.beside for part in parts for piece, _ in part.nodes):
                return self._one(kind, acts, begins=False)
            shape = 2, 2, len(self.party)
            each = [np.broadcast_to(layer(part, self.seconds, begins=begins), shape) for part in parts]
            return np.select([self.party == number for number in numbers], each)

        return self._once((kind, acts, begins), matrix)


def layer(part: Part, seconds: Callable[[Piece], Any], *, begins: bool = False) -> Any:
    """The matrix of one layer; what reads of it only what came in leaves at once, before what its last layer left.

    begins  True where an action begins with it: its weights are gathered beside compute from there, as they are read
    """
    compute, taken = np.array([[0], [-np.inf]]), np.array([[-np.inf], [0]])
    fetched, never = compute, np.full((2, 1), -np.inf)
    free: defaultdict[str, Any] = defaultdict(lambda: never)
    ends: dict[int, Any] = {}
    issue = Issue(part.nodes, frozenset({0}))
    at_once: set[int] = set()
    for at in issue.order()[: issue.surely]:
        piece, reads = part.nodes[at]
        if piece.settles and piece.beside:
            continue
        for read in reads:
            if (fetch := part.nodes[read].piece).fetches and read not in ends:
                if not fetch.beside:
                    ends[read] = compute = compute + seconds(fetch)
                elif begins:
                    ends[read] = fetched = fetched + seconds(fetch)
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
