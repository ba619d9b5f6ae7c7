"""The order in which nodes of an action are issued, with buckets and what is gathered ahead: it knows no seconds."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from tpsim.cost.piece import Node, Piece


@dataclass(slots=True)
class Issue:
    """All nodes of an action, and those that stand in order already.

    starts  the first node of each layer
    surely  how many stand where they do whatever is issued behind all of these; the others wait for calls in flight
    readers, missing  calls that are issued once all that they read is, by what they read, and how much of it is not yet

    What the stream's cotangent needs (B) goes in traced order, its moves as soon as their inputs are there. Before
    something reads a move that is in flight, all that only gradients of parameters need (W) if it can, is run; a
    gather that only this reads goes before the product ahead of it. So B's moves run beside W's products. The rest of
    a layer's W follows its B, as frameworks go back layer by layer: gradients are complete as early as they can be.
    """

    nodes: Sequence[Node]
    starts: Collection[int] = ()
    surely: int = 0
    out: list[int] = field(default_factory=list)
    done: set[int] = field(default_factory=set)
    flying: set[int] = field(default_factory=set)
    pending: list[int] = field(default_factory=list)
    readers: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    missing: dict[int, int] = field(default_factory=dict)
    casting: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        """The casts, which stand right before who reads them."""
        self.casting = frozenset([at for at, node in enumerate(self.nodes) if node.piece.casts])

    def order(self) -> list[int]:
        """All nodes but the gathers of weights, and the casts that these read."""
        for at, (piece, reads) in enumerate(self.nodes):
            if piece.call and (piece.settles or not piece.late):
                for read in reads:
                    self.readers[read].append(at)
                self.missing[at] = sum(not _stands_apart(self.nodes[read].piece) for read in reads)
        starts, done, flying = self.starts, self.done, self.flying
        for at, (piece, reads) in enumerate(self.nodes):
            if at in starts:
                self._group()
            if at in done or _stands_apart(piece) or (piece.settles and reads):
                continue
            if piece.late:
                self.pending.append(at)
                continue
            if flying and not flying.isdisjoint(reads):
                self._group()
                flying.difference_update(reads)
            self._emit(at)
        self._group()
        self.surely = len(self.out)
        while self.pending:
            flying.clear()
            self._group()
        return self.out

    def _emit(self, at: int) -> None:
        piece, reads = self.nodes[at]
        for read in reads if self.casting else ():
            if read in self.casting and read not in self.done:
                self._emit(read)
        self.out.append(at)
        self.done.add(at)
        if piece.beside and not piece.settles and not piece.streamed:
            self.flying.add(at)
        for reader in self.readers.get(at, ()):
            self.missing[reader] -= not _stands_apart(piece)
            if not self.missing[reader] and reader not in self.done:
                self._emit(reader)

    def _there(self, at: int) -> bool:
        return at in self.done or _stands_apart(self.nodes[at].piece)

    def _group(self) -> None:
        """All of W that could run now."""
        start, left, early = len(self.out), [], set()
        for at in self.pending:
            piece, reads = self.nodes[at]
            if not all(self._there(read) and (read not in self.flying or read in early) for read in reads):
                left.append(at)
            elif piece.call:
                self._fetch(at, start)
                early.add(at)
            else:
                self._emit(at)
        self.flying -= early
        self.pending = left

    def _hides(self, at: int) -> bool:
        """True for a product, or for the part of one that begins it."""
        piece = self.nodes[at].piece
        return piece.is_product and not (piece.cut and piece.cut.alone)

    def _fetch(self, at: int, start: int) -> None:
        """A gather goes before the last product ahead of the group, if what it reads is there by then."""
        place = next((earlier for earlier in range(start - 1, -1, -1) if self._hides(self.out[earlier])), start)
        if set(self.out[place:start]).intersection(self.nodes[at].reads):
            place = start
        end = len(self.out)
        self._emit(at)
        self.out.insert(place, self.out.pop(end))


def _stands_apart(piece: Piece) -> bool:
    """True for gathers of weights and the casts that they read, which are put in their places behind all else."""
    return piece.fetches or piece.casts


def bucketed(nodes: Sequence[Node], order: Iterable[int], limit: Any, size: Callable[[Piece], Any]) -> Iterator[int]:
    """Calls on gradients beside compute wait until those that are ready reach the limit, or the action ends."""
    bucket: list[int] = []
    filled: Any = 0
    for at in order:
        piece = nodes[at].piece
        if not (piece.settles and piece.beside):
            yield at
            continue
        bucket.append(at)
        filled += size(piece)
        if filled >= limit:
            yield from bucket
            bucket, filled = [], 0
    yield from bucket


def gathered(nodes: Sequence[Node], order: Sequence[int], limit: Any, size: Callable[[Piece], Any]) -> Iterator[int]:
    """Gathers of weights stand at the first product at which those not yet begun to be read are within the limit.

    At the latest one stands before what reads it first; at the end what nothing reads, as a module is gathered whole.
    Those that block are not issued early: it would gain nothing.
    """
    gathers = [at for at, node in enumerate(nodes) if node.piece.fetches]
    brought = {read for at in gathers for read in nodes[at].reads}
    fetched = dict.fromkeys(at for at in gathers if at not in brought)
    first: dict[int, int] = {}
    for place, at in enumerate(order):
        for read in nodes[at].reads:
            if read in fetched:
                first.setdefault(read, place)
    queue = deque(sorted((at for at in fetched if at in first), key=lambda at: (first[at], at)))
    early: deque[tuple[int, Any]] = deque()
    done: set[int] = set()
    ahead: Any = 0
    full = False  # until one of those ahead is read, or the next one stands where it is
    for place, at in enumerate(order):
        while early and early[0][0] == place:
            ahead, full = ahead - early.popleft()[1], False
        while queue and first[queue[0]] == place:
            full = False
            yield from _with_casts(nodes, queue.popleft(), done)
        while queue and not full and nodes[at].piece.is_product:
            piece = nodes[queue[0]].piece
            if full := not piece.beside or (then := ahead + (own := size(piece))) > limit:
                break
            early.append((first[queue[0]], own))
            ahead = then
            yield from _with_casts(nodes, queue.popleft(), done)
        yield at
    for at in (at for at in fetched if at not in first):
        yield from _with_casts(nodes, at, done)


def _with_casts(nodes: Sequence[Node], at: int, done: set[int]) -> tuple[int, ...]:
    """A gather of weights behind the casts of what it gathers, or what brings it from a host: it reads nothing else.

    done  what is issued already: several gathers may wait for one that brings what they gather
    """
    issued = tuple(read for read in (*nodes[at].reads, at) if read not in done)
    done.update(issued)
    return issued
