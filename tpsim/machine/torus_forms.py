"""Closed forms on a torus, over several of its axes at once or in turn: functions of bytes and axes, as in forms.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tpsim.algebra.moves import wire
from tpsim.fabric.wires import PAIR
from tpsim.machine.forms import (
    Form,
    Traffic,
    evenly,
    in_turn,
    line_all_reduce,
    line_all_to_all,
    line_all_to_all_lockstep,
    line_gather,
    permute,
    ring_all_to_all,
    ring_gather,
    twice,
)
from tpsim.quantity.errors import InputError
from tpsim.quantity.size import Size, floor_over, largest, over, product, total, where_many


@dataclass(frozen=True, slots=True)
class TorusAxis:
    """An axis of a torus: its devices, and whether its ends are joined.

    Raises InputError for two devices whose ends are joined: with one cable between them they are a line.
    """

    n: Size
    closed: bool

    def __post_init__(self) -> None:
        if self.closed and isinstance(self.n, int) and self.n == PAIR:
            message = "an axis of 2 is no closed ring: that takes two cables between two devices"
            raise InputError.one("no-such-torus", message, remedy="take it as a line, or three devices and more")


def torus_gather(V: Size, axes: Sequence[TorusAxis]) -> Traffic:
    """All-gather or reduce-scatter on a torus in rotated parts that use all links: V(N-1)/(N d).

    d is 2 per closed axis and 1 per line, axes of one device left out. The parts are weighted by the shape.
    """
    sent = wire("all_gather", V, product(axis.n for axis in axes))
    links = total(where_many(axis.n, 2 if axis.closed else 1) for axis in axes)
    steps = total(floor_over(axis.n, 2) if axis.closed else axis.n - 1 for axis in axes)
    return evenly(steps, sent, over(sent, largest(links, 1)))


def torus_all_reduce(V: Size, axes: Sequence[TorusAxis]) -> Traffic:
    """Reduce-scatter and all-gather in rotated parts: closed axes carry twice the gather, lines less.

    On a line scatter and gather load opposite links most, so all of them carry alike: n/(n-1) of the gather's busiest.
    """
    gather = torus_gather(V, axes)
    both = gather.then(gather)
    halves = largest(*(where_many(axis.n, 2 if axis.closed else over(axis.n, largest(axis.n - 1, 1))) for axis in axes))
    busiest = gather.link_total * halves
    return Traffic(both.steps, both.wire, both.carried, busiest, busiest)


def torus_gather_in_turn(V: Size, axes: Sequence[TorusAxis]) -> Traffic:
    """All-gather or reduce-scatter one axis after another, the first one on the smallest part.

    All closed: V(N-1)/(2N) in sum; a link works in its own axis' turn only.
    """
    return in_turn(_axis_by_axis(V, axes, ring_gather, line_gather))


def torus_all_reduce_in_turn(V: Size, axes: Sequence[TorusAxis]) -> Traffic:
    """Reduce-scatter one axis after another and all-gather the same way back: every axis has both halves."""
    return in_turn(_axis_by_axis(V, axes, twice(ring_gather), line_all_reduce))


def _axis_by_axis(V: Size, axes: Sequence[TorusAxis], closed: Form, line: Form) -> list[Traffic]:
    """The runs of all axes, each on what those before it have gathered."""
    gathered: Any = over(V, product(axis.n for axis in axes))
    runs = []
    for axis in axes:
        gathered = gathered * axis.n
        runs.append((closed if axis.closed else line)(gathered, axis.n))
    return runs


def torus_all_to_all(V: Size, axes: Sequence[TorusAxis]) -> Traffic:
    """All-to-all axis by axis in rotated parts, so that the axes work at once: the busiest axis counts.

    A chunk waits for nothing but its own way: floor(n/2) hops along a closed axis, n-1 along a line, summed.
    """
    run = _exchanges(V, axes, line_all_to_all_lockstep)
    return run._replace(link_serial=run.link_total)


def torus_all_to_all_in_turn(V: Size, axes: Sequence[TorusAxis]) -> Traffic:
    """All-to-all axis by axis, one after another: the axes' times add up, each link works in its turn only.

    On a line all wait for each slot of one chunk, see `line_all_to_all`.
    """
    return _exchanges(V, axes, line_all_to_all)


def torus_permute(V: Size, axes: Sequence[TorusAxis]) -> Traffic:
    """`permute` among all devices of a torus."""
    return permute(V, product(axis.n for axis in axes))


def _exchanges(V: Size, axes: Sequence[TorusAxis], line: Form) -> Traffic:
    """All-to-alls along all axes, each of the whole array over them; those with open ends as `line`."""
    n = product(axis.n for axis in axes)
    runs = [(ring_all_to_all if axis.closed else line)(over(V * axis.n, n), axis.n) for axis in axes]
    return in_turn(runs)._replace(wire=wire("all_to_all", V, n))
