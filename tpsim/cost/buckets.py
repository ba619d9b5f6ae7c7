"""Calls of several layers as one: gradients and new weights of a chunk's layers, cut into buckets.

Each layer's call is derived; that several are sent as one is a policy of who sends them, as `practice.bucket` has it.
What stands at the ends of a stack (embedding, final norm, head) is no layer's, and stays a call of its own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any

from tpsim.cost.piece import Node, Piece
from tpsim.quantity.once import Once
from tpsim.quantity.size import largest, over, smallest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tpsim.cost.collectives import Collective
    from tpsim.program.practice import Practice
    from tpsim.program.stages import Chunk, Stages

JOINED = ("gradient", "state")
"""What a collective is for that layers may send together: weights that are sharded are gathered layer by layer."""

Split = tuple["Collective", ...]
"""The calls that a chunk makes instead of one in each layer, in the order of backward: full ones, and what is left."""


@dataclass(eq=False)
class Buckets(Once):
    """The buckets of a program's calls.

    calls     of one layer each
    shards    devices that share a microbatch
    elements  of a call's arrays
    """

    calls: Sequence[Collective]
    practice: Practice
    shards: Any
    elements: Callable[[Collective], Any]

    def joins(self, call: Collective) -> bool:
        """True if layers may send such a call together.

        What every microbatch reduces they do only by elements: until then gradients would stay whole.
        """

        def joins() -> bool:
            bucket = self.practice.bucket
            cut = self.practice.coalesce and (bucket.of == "step" or bucket.elements is not None)
            often = bucket.limit(shards=1, first=self._beside) < inf
            return cut and call.per_layer and call.op in JOINED and (often or not call.per_microbatch)

        return self._once(("joins", id(call.single)), joins)

    def limit(self, chunk: Chunk) -> Any:
        """How much a bucket of a chunk has, in layers or in elements."""
        return self.practice.bucket.limit(shards=self.shards, first=chunk.first and self._beside)

    @property
    def _beside(self) -> bool:
        return self.practice.overlap.gradients != "none"

    def full(self, call: Collective, chunk: Chunk) -> Any:
        """Layers of a chunk in a full bucket: it is sent as soon as what it has reaches the limit.

        A sum that takes several calls is one bucket in all of them: the first one has all elements.
        """
        layers, limit = layers_of(call, chunk), self.limit(chunk)
        if isinstance(limit, float) and limit == inf:
            return 1 if call.per_microbatch else layers
        alike = (self.elements(other) for other in self.calls if self._arrays(other) == self._arrays(call))
        elements = self._once(("elements", id(call)), lambda: largest(*alike))
        return smallest(-(-limit // elements), layers)

    def split(self, call: Collective, chunk: Chunk) -> Split:
        """The calls that a chunk makes of one that each layer has."""

        def split() -> Split:
            layers = layers_of(call, chunk)
            most = int(self.full(call, chunk)) if self.joins(call) and layers else 1
            rest = (call.joined(layers % most),) * (layers % most > 0)
            return (call.joined(most),) * (layers // most) + rest

        return self._once(("split", id(call), chunk.stack, chunk.first), split)

    def priced(self, stages: Stages) -> list[Collective]:
        """All calls of some stages, each once."""
        return [sent for call in self.calls for sent in self.sent(call, stages)]

    def sent(self, call: Collective, stages: Stages) -> list[Collective]:
        """What some stages send instead of one call in each layer, each once."""
        if not self.joins(call):
            return [call]
        return [*{each.layers: each for chunk in stages.chunks for each in self.split(call, chunk)}.values()]

    def often(self, call: Collective, stages: Stages, rank: int) -> int:
        """How often a rank makes a call, per microbatch."""
        if not self.joins(call):
            return stages.count(call.where, rank)
        return sum(each is call for chunk in stages.of(rank) for each in self.split(call.single, chunk))

    def joined(self, nodes: Sequence[Node], starts: Sequence[int], chunk: Chunk) -> tuple[list[Node], list[int]]:
        """Nodes of all layers of a chunk, and where each part of it starts, with buckets for calls of several layers.

        A bucket of gradients stands where the last of them is complete, one of weights where the first is read.
        """
        stands, calls = [*range(len(nodes))], [piece.call for piece, _ in nodes]
        for places in self._places(nodes).values():
            piece, left = nodes[places[0]].piece, iter(places)
            split = self.split(piece.call, chunk)  # type: ignore[arg-type]  # they are of pieces with calls
            for bucket in reversed(split) if piece.fetches else split:
                own = [*islice(left, bucket.layers)]
                at = own[0 if piece.fetches else -1]
                calls[at] = bucket
                for place in own:
                    stands[place] = at
        reads = _reads(nodes, stands)
        among = Counter((bisect_right(starts, at), nodes[at].piece.lane) for at in reads if calls[at])
        shares = {beside: over(1, many) for beside, many in among.items()}
        pieces = [nodes[at].piece for at in reads]
        for number, at in enumerate(reads):
            if call := calls[at]:
                piece = pieces[number]
                pieces[number] = self._piece(piece, call, shares[bisect_right(starts, at), piece.lane])
        numbers = {at: number for number, at in enumerate(reads)}
        renumbered = (tuple(sorted(numbers[read] for read in read_of)) for read_of in reads.values())
        return [*map(Node, pieces, renumbered)], [bisect_left([*reads], start) for start in starts]

    def _places(self, nodes: Sequence[Node]) -> Mapping[int, list[int]]:
        """Of every call that layers send together its nodes."""
        places: dict[int, list[int]] = {}
        for at, (piece, _) in enumerate(nodes):
            if piece.call and self.joins(piece.call):
                places.setdefault(id(piece.call), []).append(at)
        return places

    def _arrays(self, call: Collective) -> frozenset[int]:
        return frozenset(id(part.output) for part in call.parts)

    def _piece(self, piece: Piece, call: Collective, share: Any) -> Piece:
        """A piece with the call of a bucket, and its share of the calls that are left beside it."""
        if piece.call is call and piece.share == share:
            return piece
        return self._once((id(piece), id(call), share), lambda: replace(piece, call=call, share=share))


def layers_of(call: Collective, chunk: Chunk) -> int:
    """The layers of a chunk that have a call."""
    return sum(many for kind, many in chunk.stack if kind == call.where.kind)


def _reads(nodes: Sequence[Node], stands: Sequence[int]) -> dict[int, set[int]]:
    """What is read of nodes that stand for all, in their order; stands: of each the one that stands for it."""
    reads: dict[int, set[int]] = {at: set() for at in sorted({*stands})}
    for at, node in zip(stands, nodes, strict=True):
        reads[at].update(stands[read] for read in node.reads)
    return reads
