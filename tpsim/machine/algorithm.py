"""An algorithm as a value: its closed forms, the levels that it crosses, what it needs and what libraries call it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.algebra.moves import MoveKind
from tpsim.machine import cable_forms, forms
from tpsim.machine.forms import Form, Traffic
from tpsim.quantity.size import Size, over

if TYPE_CHECKING:
    from tpsim.fabric.wires import Segment
    from tpsim.machine.cost import TunedLink
    from tpsim.machine.torus_forms import TorusAxis


Forms = Mapping[MoveKind, Form]
"""What moves, per move."""


class Crossing(NamedTuple):
    """A way over two levels together.

    latency, bandwidth  seconds
    carried             bytes that a device sends, on average
    busiest             bytes on the busiest link of any level
    own                 bytes that it sends to itself; None where it never does
    serial              bytes that are waited for on the level where that is most; None: those of its busiest link
    uplink              bytes on a node's uplink, where its devices share one
    fills               seconds in which the links of each level are full
    """

    latency: Any
    bandwidth: Any
    steps: Any
    carried: Any
    busiest: Any
    own: Any
    serial: Any = None
    uplink: Any = 0
    fills: tuple[Any, ...] = ()


class Levels(NamedTuple):
    """Two levels of switches, and what is to move over them: V bytes of the whole array.

    links  the levels' figures as the algorithm meets them
    """

    kind: MoveKind
    V: Any
    inner: Segment
    outer: Segment
    links: tuple[TunedLink, TunedLink]

    @property
    def n(self) -> Any:
        """Devices on both levels."""
        return self.inner.n * self.outer.n

    @property
    def own(self) -> Any:
        """Bytes that a device sends to itself."""
        return forms.own_share(self.kind, self.V, self.n)

    def busiest(self, sent: tuple[Any, Any]) -> tuple[Any, Any]:
        """Bytes on the busiest link of either level where each device sends so many."""
        inner, outer = (
            cable_forms.BUSIEST[segment.topology](part, segment.n) * segment.stride
            for segment, part in zip((self.inner, self.outer), sent, strict=True)
        )
        return inner, outer

    def uplink(self, sent: tuple[Any, Any]) -> Any:
        """Bytes on a node's uplink where each device sends so many over either level."""
        return self.links[1].uplink(sent[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Across:
    """How an algorithm runs over two levels of switches.

    moves    what it moves
    needs    what the profile must offer on the inner and on the outer level; "" for nothing
    met_as   the algorithm as which each level's figures meet it; "" for itself
    run      over both levels together
    message  bytes that one step sends, of V bytes over n devices
    in_turn  instead of `run`: the algorithm on the inner level, and the one on the outer level
    made_of  closed forms of a switch that `run` is made of
    """

    moves: frozenset[MoveKind]
    needs: tuple[str, str] = ("", "")
    met_as: tuple[str, str] = ("", "")
    run: Callable[[Levels], Crossing] | None = None
    message: Callable[[Any, Any], Any] = over
    in_turn: tuple[str, str] | None = None
    made_of: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """A collective algorithm.

    forms     closed forms on one axis, by how its devices are joined
    torus     closed forms on several axes of one torus
    across    over two levels; None: not as one way
    plain     True: every fabric that has its form offers it; else those do whose profile names it
    hardware  True: it needs more than wires, and no level has it whose profile does not name it
    streamed  True: it runs in many small pieces, each of which waits for its own data only. Its `link_serial` is the
              `link_total`: the limit to which the time of ever more pieces tends, as tests/reference/test_stream.py
              shows. In one piece, whose steps all devices wait for, it takes longer
    copies    True: it injects other bytes than the move must: copies of everything, or what a switch sums
    nccl      NCCL's names of it
    on_nodes  what NCCL runs under the same name where the ranks lie on several levels
    met_as    the algorithm as which a level's figures meet it, if the level states none of its own; "" for itself
    """

    name: str
    forms: Mapping[str, Forms] = field(default_factory=dict)
    torus: Mapping[MoveKind, Callable[[Size, Sequence[TorusAxis]], Traffic]] = field(default_factory=dict)
    across: Across | None = None
    plain: bool = False
    hardware: bool = False
    streamed: bool = False
    copies: bool = False
    nccl: tuple[str, ...] = ()
    on_nodes: str = ""
    met_as: str = ""
