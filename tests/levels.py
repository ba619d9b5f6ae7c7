"""Levels of a network as plain values, and routes over them by arithmetic alone, for tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpsim.fabric.wires import ANY, Route, Segment, Slices, Wires, Wrap, capacity, joined
from tpsim.quantity.size import Size, largest, over, smallest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpsim.fabric.wires import LevelTopology


NOWHERE = Wrap()
"""No axis closes."""


@dataclass(frozen=True, slots=True)
class WireLevel:
    """A level of a network as a value: the plainest `Wires`."""

    name: str
    topology: LevelTopology
    shape: tuple[int, ...] = ()
    wrap: Wrap = NOWHERE
    slices: Slices = ANY
    shared: bool = False


def hierarchy_route(levels: Sequence[Wires], inner: Size, n: Size) -> Route:
    """The route of an axis of `n` on switched levels when the axes inside it take `inner` chips: arithmetic only.

    Levels fill up from the innermost; sizes may be ints, arrays or symbols, and are to divide the levels evenly. The
    last level has no bound.
    """
    below: Any = 1
    route = []
    for level in levels:
        most = capacity(level)
        reach = largest(inner * n, below) if most is None or level is levels[-1] else below * most
        start, end = (smallest(largest(chips, below), reach) for chips in (inner, inner * n))
        route.append(Segment(level.name, level.name, joined(level.topology) or "switch", over(end, start)))
        below = reach
    return tuple(route)
