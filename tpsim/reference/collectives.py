"""Every collective by its name: which schedule runs a move over given wires."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING

from tpsim.fabric.wires import Segment, SegmentTopology, joined
from tpsim.quantity.errors import InputError, unknown
from tpsim.quantity.size import whole
from tpsim.reference import levels, permutes, rings, switches
from tpsim.reference.levels import Axis, nested
from tpsim.reference.schedule import Schedule

if TYPE_CHECKING:
    from tpsim.algebra.moves import MoveKind

ScheduleOf = Callable[[int], Schedule]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of the way that one algorithm runs over: a segment, the axes of a torus, or two levels at once."""

    segments: tuple[Segment, ...]
    algorithm: str

    @property
    def n(self) -> int:
        """Devices along it."""
        return prod(whole(segment.n) for segment in self.segments)


@cache
def schedule(kind: MoveKind, parts: tuple[Stretch, ...]) -> Schedule:
    """The steps of a move over `parts`, innermost first: level after level.

    Gathers come from outside in, scatters go from inside out, an all-reduce scatters and gathers on all levels but the
    outermost, which reduces. Ranks count the segments' coordinates as one number, the first segment slowest. A permute
    is the plainest one; `permutes.routed` plays any.

    Raises InputError for an algorithm that a part has not.
    """
    if kind == "slice" or not parts:
        return Schedule(prod(part.n for part in parts), prod(part.n for part in parts), 1, ())
    if kind == "permute":
        return permutes.beside([part.segments for part in parts])
    axes = _axes(parts)
    if len(parts) == 1:
        return axes[0].small(kind)
    return nested(axes, kind, tuple(reversed(range(len(parts)))))


def algorithms(kind: MoveKind, segments: Sequence[Segment]) -> list[str]:
    """Every algorithm that runs a move over these segments together."""
    if kind in {"permute", "slice"}:
        return [kind]
    if len(segments) == 1:
        return list(FAMILIES[segments[0].topology].get(kind, {}))
    if _two_levels(segments):
        return _over_two_levels(kind, segments)
    return list(TORI) if all(segment.topology in {"ring", "line"} for segment in segments) else []


def _axes(parts: Sequence[Stretch]) -> list[Axis]:
    """Every part as one axis of the group; its small schedules count its own segments from 0."""
    ends = list(accumulate(len(part.segments) for part in parts))
    return [
        Axis(part.n, tuple(range(end - len(part.segments), end)), partial(_of_part, part))
        for part, end in zip(parts, ends, strict=True)
    ]


@cache
def _of_part(part: Stretch, kind: MoveKind) -> Schedule:
    known = algorithms(kind, part.segments)
    if not known:
        wires = " x ".join(map(str, part.segments))
        raise InputError.one("no-schedule", f"no schedule of {kind} is known on {wires}")
    if part.algorithm not in known:
        raise unknown(part.algorithm, f"algorithm of {kind} on {' x '.join(map(str, part.segments))}", known)
    if len(part.segments) == 1:
        return _single(part.segments[0], kind, part.algorithm)
    if _two_levels(part.segments):
        return _pair(part, kind)
    closed = [segment.topology == "ring" for segment in part.segments]
    along = partial(_on_torus_axis, part.algorithm)
    axes = [Axis(whole(wire.n), (at,), partial(along, wire)) for at, wire in enumerate(part.segments)]
    return TORI[part.algorithm](axes, closed, kind)


def _single(segment: Segment, kind: MoveKind, algorithm: str) -> Schedule:
    return FAMILIES[segment.topology][kind][algorithm](whole(segment.n))


def _on_torus_axis(algorithm: str, segment: Segment, kind: MoveKind) -> Schedule:
    return _single(segment, kind, EXCHANGES[algorithm][segment.topology] if kind == "all_to_all" else segment.topology)


def _pair(part: Stretch, kind: MoveKind) -> Schedule:
    inner, nodes = (whole(segment.n) for segment in part.segments)
    if kind == "all_to_all":
        return switches.two_level_exchange(inner, nodes)
    if part.algorithm in SUMMED:
        return SUMMED[part.algorithm](inner, nodes)
    scatter, gather = switches.flat_ring_scatter(inner, nodes), switches.flat_ring_gather(inner, nodes)
    return {"all_gather": gather, "reduce_scatter": scatter}.get(kind) or scatter.then(gather)


def _two_levels(segments: Sequence[Segment]) -> bool:
    return len(segments) == PAIR_OF_LEVELS and all(joined(segment.topology) for segment in segments)


def _over_two_levels(kind: MoveKind, segments: Sequence[Segment]) -> list[str]:
    if kind == "all_to_all":
        return ["pairwise"]
    sums = kind == "all_reduce" and all(segment.topology == "switch" for segment in segments)
    return ["flat-ring", *SUMMED] if sums else ["flat-ring"]


PAIR_OF_LEVELS = 2

SUMMED: Mapping[str, Callable[[int, int], Schedule]] = {
    "in-switch-tree": switches.in_switch_tree,
    "in-switch-network": switches.in_switch_network,
}
"""All-reduces over two levels of switches of which the inner ones sum."""

EXCHANGES: Mapping[str, Mapping[str, str]] = {
    "rotated": {"ring": "shortest", "line": "lockstep"},
    "in-turn": {"ring": "shortest", "line": "farthest-first"},
}
"""The all-to-all along an axis of a torus.

Pieces that wait for their own data alone take a hop each, whatever else the links carry. Where all wait for all, chunks
go one by one, so that the busiest link is never idle.
"""

TORI: Mapping[str, Callable[[Sequence[Axis], Sequence[bool], MoveKind], Schedule]] = {
    "rotated": levels.rotated,
    "in-turn": levels.in_turn,
}


def _both(scatter: ScheduleOf, gather: ScheduleOf) -> ScheduleOf:
    return lambda n: scatter(n).then(gather(n))


def _backwards(gather: ScheduleOf) -> ScheduleOf:
    return lambda n: gather(n).backwards()


def _families(
    gathers: Mapping[str, ScheduleOf],
    exchanges: Mapping[str, ScheduleOf],
    scatters: Mapping[str, ScheduleOf] | None = None,
    **more: ScheduleOf,
) -> Mapping[MoveKind, Mapping[str, ScheduleOf]]:
    """Every move from its gathers, the scatters that mirror them unless others do, and all-reduces of their own."""
    scatters = scatters or {name: _backwards(gather) for name, gather in gathers.items()}
    return {
        "all_gather": gathers,
        "reduce_scatter": scatters,
        "all_reduce": {name: _both(scatters[name], gathers[name]) for name in gathers}
        | {name.replace("_", "-"): family for name, family in more.items()},
        "all_to_all": exchanges,
    }


FAMILIES: Mapping[SegmentTopology, Mapping[MoveKind, Mapping[str, ScheduleOf]]] = {
    "ring": _families(
        {"ring": rings.two_way_gather, "two-rings": rings.opposite_gather},
        {"shortest": rings.shortest_exchange, "shortest-unsplit": partial(rings.shortest_exchange, split=False)},
    ),
    "one_way_ring": _families(
        {"ring": rings.one_way_gather}, {"ring": rings.one_way_exchange}, {"ring": rings.one_way_scatter}
    ),
    "line": _families(
        {"line": rings.line_gather},
        {"lockstep": rings.lockstep_line_exchange, "farthest-first": rings.farthest_first_line_exchange},
        centre_and_back=lambda n: rings.centre_and_back(n, n),
    ),
    "switch": _families(
        {
            "ring": switches.ring_gather,
            "direct": switches.direct_gather,
            "doubling": switches.doubling_gather,
            "pat": switches.doubling_gather,
        },
        {"pairwise": switches.pairwise_exchange, "direct": switches.direct_exchange},
        one_shot=switches.one_shot,
        in_switch=switches.in_switch,
        in_network=switches.in_network,
        tree=switches.tree,
    ),
    "mesh": _families(
        {"ring": partial(switches.flat_ring_gather, nodes=1), "direct": switches.direct_gather},
        {"all-peers": switches.direct_exchange, "pairwise": switches.pairwise_exchange},
        one_shot=switches.one_shot,
    ),
    "host": _families({"ring": switches.ring_gather}, {"pairwise": switches.pairwise_exchange}),
}
"""Every schedule over one segment, by how its devices are joined, what is moved, and the algorithm's name."""
