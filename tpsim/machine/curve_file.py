"""Measured curves as a profile writes them: what they mean, and what is wrong with them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from tpsim.fabric.wires import Route, Segment, capacity, joined
from tpsim.machine.timing import predicted_by_constants
from tpsim.quantity.errors import InputError, Problem, unknown
from tpsim.quantity.size import over
from tpsim.quantity.units import show

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from tpsim.machine.curve import MeasuredCurve
    from tpsim.machine.hardware_file import CurveFields, KnotFields, SegmentFields
    from tpsim.machine.parts import Level, Machine
    from tpsim.quantity.spec import Document


def curves(several: Sequence[CurveFields], machine: Machine, document: Document) -> tuple[MeasuredCurve, ...]:
    """The curves, each knot at its ratio over what the machine's constants predict now.

    Raises InputError for one that the machine cannot price.
    """
    return tuple(_scaled(_curve(fields, machine.levels), machine, document, at) for at, fields in enumerate(several))


def _scaled(curve: MeasuredCurve, machine: Machine, document: Document, at: int) -> MeasuredCurve:
    try:
        return curve.scaled_to(lambda V: predicted_by_constants(machine, curve, V))
    except InputError as error:
        raise error.at(document.place("measured", at)) from None


def _curve(fields: CurveFields, levels: Sequence[Level]) -> MeasuredCurve:
    from tpsim.machine.curve import Knot, MeasuredCurve

    topologies = {level.name: joined(level.topology) or level.topology for level in levels}
    shared, inside = {level.name for level in levels if level.shared}, 1
    route: Route = ()
    for segment in fields.route:
        topology, sharing = segment.topology or topologies[segment.level], inside if segment.level in shared else None
        route += (Segment(segment.level, _axis(segment), topology, segment.ranks, sharing=sharing),)  # type: ignore[arg-type]  # a torus has one stated
        inside *= segment.ranks
    knots = tuple(Knot(knot.size, knot.predicted, knot.fitted) for knot in fields.knots)
    return MeasuredCurve(fields.collective, route, fields.launch, fields.source or "", knots)


def fields_of(curve: MeasuredCurve, levels: Sequence[Level]) -> dict[str, object]:
    """A curve as a profile writes it; what a level says of itself is left out."""
    plain = {level.name: level.topology for level in levels}
    return {
        "collective": curve.kind,
        "route": [_part(segment, plain[segment.level]) for segment in curve.route],
        **({"launch": curve.launch} if curve.launch else {}),
        **({"source": curve.source} if curve.source else {}),
        "knots": [
            {"size": exact(knot.V), "predicted": _time(knot.predicted), "fitted": _time(knot.fitted)}
            for knot in curve.knots
        ],
    }


DIGITS = 5
PREFIXES = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))


def _time(seconds: float) -> str:
    return show(seconds, "seconds", DIGITS)


def _part(segment: Segment, topology: str) -> dict[str, object]:
    axis = {} if segment.axis == segment.level else {"axis": segment.axis}
    ends = {} if segment.topology == topology else {"topology": segment.topology}
    return {"level": segment.level, **axis, **ends, "ranks": segment.n}


def exact(V: float) -> str:
    """Bytes as text, none lost.

    >>> exact(16384), exact(1536), exact(1000)
    ('16 KiB', '1536 B', '1000 B')
    """
    unit, size = next((unit, size) for unit, size in PREFIXES if not int(V) % size)
    return f"{over(int(V), size)} {unit}"


def summary(curve: MeasuredCurve) -> str:
    """The curve in a line: how far it goes, how far off the constants are, and the key of its source."""
    from tpsim.machine.curve import describe

    first, *_, last = curve.knots
    ratios = [knot.fitted / knot.predicted for knot in curve.knots]
    ends = f"{len(ratios)} sizes from {exact(first.V)} to {exact(last.V)}"
    source = f" ({curve.source})" if curve.source else ""
    return f"{describe(curve)}: {ends}, {min(ratios):.3g} to {max(ratios):.3g} of what the constants predict{source}"


# What is wrong ---------------------------------------------------------------------------------------------------


Here = tuple[str | int, ...]


def misfits(
    several: Sequence[CurveFields], levels: Sequence[Level], sources: Collection[str], document: Document
) -> Iterator[Problem]:
    """What contradicts itself, or the rest of the profile."""
    for at, curve in enumerate(several):
        here = ("measured", at)
        if curve.source is not None and curve.source not in sources:
            place = document.place(*here, "source")
            yield from unknown(curve.source, "source", sources, place, "add it to sources").problems
        if any(_about(curve) == _about(other) for other in several[:at]):
            message = "a curve of this collective on this route stands above"
            yield Problem("duplicate-curve", message, document.place(*here), "keep one of them")
        yield from _wrong_route(curve.route, levels, (*here, "route"), document)
        yield from _wrong_knots(curve.knots, (*here, "knots"), document)


def _about(curve: CurveFields) -> object:
    return curve.collective, curve.launch, [(_axis(part), part.topology, part.ranks) for part in curve.route]


def _axis(part: SegmentFields) -> str:
    return part.level if part.axis is None else part.axis


def _wrong_route(
    route: Sequence[SegmentFields], levels: Sequence[Level], here: Here, document: Document
) -> Iterator[Problem]:
    named = {level.name: level for level in levels}
    for at, part in enumerate(route):
        if part.level not in named:
            yield from unknown(part.level, "level", named, document.place(*here, at, "level")).problems
        elif _axis(part) in map(_axis, route[:at]):
            message = f"the route goes over {_axis(part)} twice"
            yield Problem("duplicate-axis", message, document.place(*here, at), "write one part with all its ranks")
        else:
            yield from _wrong_part(part, named[part.level], (*here, at), document)


def _wrong_part(part: SegmentFields, level: Level, here: Here, document: Document) -> Iterator[Problem]:
    torus = level.topology == "torus"
    axes = [f"{level.name}.{at}" for at in range(len(level.shape))] if torus else [level.name]
    ends = CUT.get(level.topology, (level.topology,))
    most = capacity(level)
    if _axis(part) not in axes:
        place = document.place(*here, "axis")
        yield from unknown(_axis(part), f"axis of {level.name}", axes, place, f"write axis: {axes[0]}").problems
    if (part.topology or level.topology) not in ends:
        place, message = document.place(*here, "topology"), f"{_axis(part)} is a {' or a '.join(ends)}"
        yield Problem("bad-topology", message, place, f"write topology: {ends[0]}")
    if most is not None and part.ranks > most:
        place, message = document.place(*here, "ranks"), f"{part.ranks} ranks do not fit on {level.name}"
        yield Problem("too-many-ranks", message, place, f"write {most} or less")


CUT: Mapping[str, tuple[str, ...]] = {"torus": ("ring", "line"), "ring": ("ring", "line")}
"""What a piece of a level is, where that depends on the piece."""


def _wrong_knots(knots: Sequence[KnotFields], here: Here, document: Document) -> Iterator[Problem]:
    for at, (before, knot) in enumerate(pairwise(knots), 1):
        if knot.size <= before.size:
            message = f"{knot.size:.15g} B come after {before.size:.15g} B"
            yield Problem("unsorted-sizes", message, document.place(*here, at, "size"), "sort the knots by size")
        if knot.fitted < before.fitted:
            was, now = (show(entry.fitted, "seconds", DIGITS) for entry in (before, knot))
            message = f"the time falls from {was} to {now}, and more bytes never take less"
            yield Problem("falling-times", message, document.place(*here, at, "fitted"), f"write {was} or more")
