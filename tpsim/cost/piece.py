"""What actions are made of: a kernel, a product, a part of one, or a call, and what each reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.cost.collectives import GRADIENTS, WEIGHTS, Collective
from tpsim.cost.timeline import COMPUTE
from tpsim.program.op import Einsum, Op, is_cast
from tpsim.quantity.size import largest, over

if TYPE_CHECKING:
    from tpsim.machine.timing import Timing


class Cut(NamedTuple):
    """A part of a product that is cut along what a collective brings or takes, to run beside its steps.

    alone  True for what no step runs beside: it needs what the last step brings, or makes what the first one takes
    """

    call: Collective
    alone: bool

    def of(self, seconds: Any, share: Any) -> Any:
        """Its seconds of those of the whole product; share: what one step brings of all, see `step_share`."""
        alone = seconds * share
        return alone if self.alone else seconds - alone

    def pieces(self, share: Any) -> Any:
        """Of how many pieces that a kernel each computes."""
        return 1 if self.alone else over(1, share) - 1


def step_share(ranks: Any, timing: Timing) -> Any:
    """What one step of a collective brings of all that comes from others, as a share of the whole: a ring's is 1/n."""
    if timing.asked and timing.asked.streamed:
        return over(1, ranks)
    return over(ranks - 1, ranks * largest(timing.steps, 1))


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """One traced kernel, product or collective call; it stands for as many as there are layers.

    act     what it is a part of
    ops     of a kernel or a product; of the mark at an action's end none
    call    of a collective
    blocks  True if a call holds compute up
    share   of all calls of its sort in its part of the stack
    cut     which part of its products it is; None for all

    What follows from these is asked of every layer that a piece stands for, and worked out once:

    lane        where it runs
    waits       lanes that it waits for
    holds       lanes that it holds
    beside      True for a call that runs beside compute
    streamed    True for a call whose blocks travel beside what a kernel makes of each
    settles     True for a call whose result nothing in its action waits for
    fetches     True for a gather of weights, which waits for nothing but their cast
    casts       True for that, which stands right before who reads it
    is_product  True for a matrix product
    late        True for what only gradients of parameters need: it may stand anywhere behind what it reads
    """

    act: str = ""
    ops: tuple[Op, ...] = ()
    call: Collective | None = None
    blocks: bool = True
    share: Any = 1
    cut: Cut | None = None
    lane: str = field(init=False)
    waits: tuple[str, ...] = field(init=False)
    holds: tuple[str, ...] = field(init=False)
    beside: bool = field(init=False)
    streamed: bool = field(init=False)
    settles: bool = field(init=False)
    fetches: bool = field(init=False)
    casts: bool = field(init=False)
    is_product: bool = field(init=False)
    late: bool = field(init=False)

    def __post_init__(self) -> None:
        lane = self.call.sort if self.call else COMPUTE
        put = object.__setattr__
        put(self, "lane", lane)
        put(self, "beside", self.call is not None and not self.blocks)
        put(self, "waits", tuple(dict.fromkeys((COMPUTE, lane))))
        put(self, "holds", (lane,) if self.beside else self.waits)
        put(self, "streamed", self.call is not None and self.call.streamed)
        put(self, "settles", lane == GRADIENTS)
        put(self, "fetches", lane == WEIGHTS)
        put(self, "casts", bool(self.ops) and is_cast(self.ops[0]))
        put(self, "is_product", any(op.is_matmul for op in self.ops if isinstance(op, Einsum)))
        put(self, "late", self.act == "W")

    @property
    def may_be_cut(self) -> bool:
        """True for products that the stream hangs on, outside of kernels, that are not cut yet."""
        return self.is_product and not (self.ops[0].where.kernel or self.late or self.cut)


class Node(NamedTuple):
    """A piece in a list of tasks, with the nodes that it reads."""

    piece: Piece
    reads: tuple[int, ...]


class Part(NamedTuple):
    """One run of a part of the stack: its nodes, those that read what comes from outside, and those that lead out."""

    nodes: tuple[Node, ...]
    takes: frozenset[int]
    gives: tuple[int, ...]
