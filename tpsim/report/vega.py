"""Pictures as Vega-Lite: what is drawn where; nothing here computes what it shows.

Vega-Lite is a grammar of graphics whose documents are plain data: https://vega.github.io/vega-lite.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from json import dumps
from math import inf
from typing import Any

from tpsim.report.numbers import UnitScale, scale
from tpsim.report.picture import Curve, Curves, Measure, Picture, Span, Spans

MOST_SPANS = 6000
"""Spans that a picture has room for, whatever its lanes are."""

IN_TURN = "several in turn"
"""The sort of a stretch in which several sorts lie, each too short to be seen."""


def thinned(lane: Sequence[Span], whole: float, cells: int) -> list[Span]:
    """A lane as it is, or of more spans than cells what lies in each cell: equal neighbours are one span.

    whole  seconds of all lanes, which the cells share
    """
    if len(lane) <= cells:
        return list(lane)
    sorts: dict[int, set[str]] = {}
    for start, end, sort, _ in lane:
        first = int(start / whole * cells)
        for at in range(first, max(first + 1, round(end / whole * cells))):
            sorts.setdefault(at, set()).add(sort)
    cell = whole / cells
    alone = {at: here.pop() if len(here) == 1 else IN_TURN for at, here in sorts.items()}
    between = {at for at in alone if alone.get(at - 1) == alone.get(at + 1) == IN_TURN}
    seen = [(at, IN_TURN if at in between else sort) for at, sort in sorted(alone.items())]
    runs = (list(run) for _, run in groupby(enumerate(seen), key=lambda place: (place[1][0] - place[0], place[1][1])))
    return [Span(run[0][1][0] * cell, min((run[-1][1][0] + 1) * cell, whole), run[0][1][1]) for run in runs]


SCHEMA, VERSION = "https://vega.github.io/schema/vega-lite/v5.json", "5.21"
"""Which Vega-Lite: what notebooks draw, and what a report is drawn by."""

COLOURS = ("#3b76af", "#e0912f", "#4f9e6a", "#b5547f", "#8268b0", "#c9b037", "#5fa8b8", "#8c8c8c")
"""Of sorts, in the order in which they are met; told apart without red and green, on white and on black."""

INK, FAINT, LIMIT = "#666666", "#99999944", "#c8372d"
"""Of texts and axes, of the grid, and of what should not be exceeded."""


@dataclass(frozen=True, slots=True)
class Look:
    """How a picture is drawn.

    width    pixels of its axes
    colours  of sorts
    legend   True where nobody else says which colour is which
    """

    width: int = 640
    colours: Sequence[str] = COLOURS
    ink: str = INK
    faint: str = FAINT
    limit: str = LIMIT
    legend: bool = True


def document(pictures: Iterable[Picture]) -> dict[str, Any]:
    """Some pictures below each other, each with its title."""
    look = Look()
    drawn = [{"title": picture.title, **chart(thin(picture, look), look)} for picture in pictures]
    return _whole({"vconcat": drawn, "resolve": {"scale": {"color": "independent"}}}, look)


def alone(picture: Picture, look: Look) -> dict[str, Any]:
    """One picture, without its title."""
    return _whole(chart(picture, look), look)


def chart(picture: Picture, look: Look) -> dict[str, Any]:
    """What is drawn of a picture."""
    return _spans(picture, look) if isinstance(picture, Spans) else _curves(picture, look)


def thin(picture: Picture, look: Look) -> Picture:
    """What can be seen of a picture: no more spans on a lane than there are pixels."""
    if isinstance(picture, Curves):
        return picture
    cells, end = min(look.width, MOST_SPANS // max(1, len(picture.lanes))), _end(picture)
    return replace(picture, lanes={name: thinned(lane, end, cells) for name, lane in picture.lanes.items()})


def sorts(picture: Picture) -> list[str]:
    """What the colours of a picture stand for, in the order of the colours."""
    if isinstance(picture, Curves):
        return [curve.name for curve in picture.curves]
    met = {span.sort for lane in picture.lanes.values() for span in lane}
    return [sort for sort in (*picture.sorts, IN_TURN) if sort in met]


def left_out(picture: Picture, seen: Picture) -> str:
    """What of a picture cannot be seen; "" where all can."""
    whole, drawn = (sum(map(len, part.lanes.values())) if isinstance(part, Spans) else 0 for part in (picture, seen))
    return "what is shorter than a pixel or two is drawn together with its neighbours" if drawn < whole else ""


def _whole(drawn: Mapping[str, Any], look: Look) -> dict[str, Any]:
    texts = {"labelColor": look.ink, "titleColor": look.ink, "titleFontWeight": "normal", "labelFontSize": 11}
    lines = {"gridColor": look.faint, "domainColor": look.faint, "tickColor": look.faint}
    config = {
        "aria": False,
        "background": None,
        "font": "system-ui, sans-serif",
        "view": {"stroke": None},
        "axis": {**texts, **lines, "titleFontSize": 11, "labelLimit": 130},
        "legend": {"labelColor": look.ink, "orient": "bottom", "columns": 3, "title": None, "labelLimit": 260},
        "title": {"color": look.ink, "anchor": "start"},
    }
    return {"$schema": SCHEMA, "config": config, **drawn}


def _colour(named: Sequence[str], look: Look) -> dict[str, Any]:
    colours = [look.colours[at % len(look.colours)] for at in range(len(named))]
    legend = {} if look.legend else {"legend": None}
    return {"field": "sort", "type": "nominal", "scale": {"domain": list(named), "range": colours}, **legend}


# Spans ----------------------------------------------------------------------------------------------------------------


def _end(picture: Spans) -> float:
    return max((span.end for lane in picture.lanes.values() for span in lane[-1:]), default=0.0)


TALL, LOW, WHOLE = 24, 8, 360
"""Pixels of a lane, at the most and at the least, and of all lanes where they are many."""

EXTENT = 84
"""Pixels for the names of lanes, in whatever letters a reader's screen has."""

ROW = 13
"""Pixels between names of marks that stand above each other."""

LETTER = 6.5
"""Pixels of a letter: a name is written on a span that has room for it."""


def _spans(picture: Spans, look: Look) -> dict[str, Any]:
    lanes, end = picture.lanes, _end(picture)
    unit = scale([end], picture.kind)
    step = max(LOW, min(TALL, WHOLE // max(1, len(lanes))))
    data = [
        {"lane": name, "from": _cut(span.start, unit), "to": _cut(span.end, unit), "sort": span.sort, "name": span.name}
        for name, lane in lanes.items()
        for span in lane
    ]
    x: dict[str, Any] = {"field": "from", "type": "quantitative", "title": unit.unit}
    x["axis"] = {"grid": False, "tickCount": max(4, look.width // 70)}
    x["scale"] = {"domain": [0, _cut(end, unit)], "nice": False}
    y = {
        "field": "lane",
        "type": "nominal",
        "sort": list(lanes),
        "title": None,
        "axis": {"domain": False, "minExtent": EXTENT},
    }
    bars = {"type": "bar", "height": {"band": 0.86}, "tooltip": look.legend}
    drawn = [{"mark": bars, "encoding": {"color": _colour(sorts(picture), look)}}]
    roomy = [bar for bar in data if _room(bar, end / unit.divisor, look.width)] if step == TALL else []
    if roomy:
        text = {"type": "text", "align": "left", "dx": 3, "fontSize": 10.5, "fill": "#ffffff"}
        drawn.append({"data": {"values": roomy}, "mark": text, "encoding": {"text": {"field": "name"}, "x2": None}})
    drawn += _marks(picture, unit, look)
    ends = {"x": x, "x2": {"field": "to"}, "y": y}
    return {"width": look.width, "height": {"step": step}, "data": {"values": data}, "encoding": ends, "layer": drawn}


def _cut(value: float, unit: UnitScale) -> float:
    """A value in a unit, to the digits that a picture can show."""
    return float(f"{value / unit.divisor:.6g}")


def _room(span: Mapping[str, Any], whole: float, width: int) -> bool:
    """True where the name of a span can be written on it."""
    wide = (span["to"] - span["from"]) / whole * width
    return bool(span["name"]) and len(span["name"]) * LETTER + 6 < wide


def _marks(picture: Spans, unit: UnitScale, look: Look) -> Iterator[dict[str, Any]]:
    """Rules across all lanes, each with its name on top, above those that it would run into."""
    here = {"x": {"field": "at", "type": "quantitative"}, "x2": None, "y": {"value": 0}}
    rule = {"type": "rule", "color": look.ink}
    text = {"type": "text", "align": "left", "baseline": "bottom", "dx": 2, "color": look.ink, "fontSize": 11}
    for row, marks in enumerate(_rows(picture.marks, look.width / _end(picture) if picture.marks else 0)):
        data = {"values": [{"at": _cut(at, unit), "name": name} for name, at in marks]}
        yield {"data": data, "mark": rule, "encoding": {**here, "y2": {"value": "height"}}}
        named = {**text, "dy": -3 - ROW * row}
        yield {"data": data, "mark": named, "encoding": {**here, "text": {"field": "name"}}}


def _rows(marks: Sequence[tuple[str, float]], pixels: float) -> list[list[tuple[str, float]]]:
    """Marks by row, so that no name runs into the next one; pixels: of a second, or whatever they stand at."""
    rows: list[list[tuple[str, float]]] = []
    for mark in sorted(marks, key=lambda mark: mark[1]):
        free = [row for row in rows if row[-1][1] * pixels + (len(row[-1][0]) + 1) * LETTER <= mark[1] * pixels]
        if not free:
            rows.append([])
        (free or rows[-1:])[0].append(mark)
    return rows


# Curves ---------------------------------------------------------------------------------------------------------------

HIGH, EDGE = 220, 0.03
"""Pixels of the axes of curves, and what a log axis has beyond its last points, as a share."""

MARKS: Mapping[str, Mapping[str, Any]] = {
    "line": {"type": "line", "strokeWidth": 1.8},
    "steps": {"type": "line", "interpolate": "step-after", "strokeWidth": 1.4},
    "points": {"type": "point", "filled": True, "size": 48, "opacity": 1},
    "cloud": {"type": "point", "filled": True, "size": 14, "opacity": 0.4},
}


def _curves(picture: Curves, look: Look) -> dict[str, Any]:
    xs = [x for curve in picture.curves for x, _ in curve.points]
    ys = [y for curve in picture.curves for _, y in curve.points] + [limit for _, limit in picture.limits]
    units = _unit(picture.x, xs), _unit(picture.y, ys)
    axes = {"x": _axis(picture.x, "x", units[0], xs), "y": _axis(picture.y, "y", units[1], ys)}
    colour = _colour(sorts(picture), look)
    layers = [
        {"data": {"values": _points(curve, units)}, "mark": MARKS[curve.drawn], "encoding": {"color": colour}}
        for curve in picture.curves
    ]
    return {
        "width": look.width,
        "height": HIGH,
        "encoding": axes,
        "layer": [*layers, *_limits(picture, units[1], look)],
    }


def _unit(measure: Measure, values: Sequence[float]) -> UnitScale:
    """The unit of an axis: that of its largest value; of ratios each value's own, which labels say."""
    return UnitScale("", 1.0) if measure.log else scale([max(values, default=0)], measure.kind)


def _axis(measure: Measure, field: str, unit: UnitScale, values: Sequence[float]) -> dict[str, Any]:
    title = f"{measure.name}, {unit.unit}" if unit.unit else measure.name
    axis: dict[str, Any] = {"field": field, "type": "quantitative", "title": title}
    room = {"minExtent": EXTENT * 2 // 3} if field == "y" else {}
    if not measure.log:
        return {**axis, "scale": {"nice": field == "y", "zero": True}, "axis": {"tickCount": 6, **room}}
    low, high = min(values) * (1 - EDGE), max(values) * (1 + EDGE)
    steps = next(steps for ratio, steps in TICKS if high < ratio * low)
    ticks = [step * 10.0**power for power in range(-12, 22) for step in steps if low <= step * 10.0**power <= high]
    texts = dumps({_key(tick): _label(tick, measure) for tick in ticks})
    labels = {"values": ticks, "labelExpr": f"{texts}[format(datum.value, '.0e')] || ''", "labelOverlap": True, **room}
    return {**axis, "scale": {"type": "log", "domain": [low, high], "nice": False}, "axis": labels}


TICKS: Sequence[tuple[float, Sequence[int]]] = ((30, range(1, 10)), (1e3, (1, 2, 5)), (inf, (1,)))
"""First digits of the ticks of a log axis whose ends have a ratio below the first."""


def _key(value: float) -> str:
    """A number with one digit as ``.0e`` of d3 writes it: ``5e-6``."""
    digit, _, power = f"{value:.0e}".partition("e")
    return f"{digit}e{int(power):+d}"


def _label(value: float, measure: Measure) -> str:
    unit = scale([value], measure.kind)
    return f"{value / unit.divisor:g} {unit.unit}".strip()


def _points(curve: Curve, units: tuple[UnitScale, UnitScale]) -> list[dict[str, Any]]:
    return [{"x": _cut(x, units[0]), "y": _cut(y, units[1]), "sort": curve.name} for x, y in curve.points]


def _limits(picture: Curves, unit: UnitScale, look: Look) -> Iterator[dict[str, Any]]:
    for name, value in picture.limits:
        data = {"values": [{"y": _cut(value, unit), "name": name}]}
        line = {"type": "rule", "color": look.limit, "strokeDash": [5, 3]}
        text = {"type": "text", "align": "right", "baseline": "bottom", "dx": -3, "dy": -2, "color": look.limit}
        yield {"data": data, "mark": line, "encoding": {"x": None}}
        yield {"data": data, "mark": text, "encoding": {"x": {"value": "width"}, "text": {"field": "name"}}}
