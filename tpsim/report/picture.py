"""The two pictures that answers are drawn as, in raw values: spans on lanes, and curves; a writer gives them looks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpsim.report.numbers import CellKind


class Span(NamedTuple):
    """Something that lasts: from where to where, its sort, which is its colour, and its name."""

    start: float
    end: float
    sort: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Spans:
    """What lies where on each lane: what runs when, or what makes up a whole.

    about  what is seen, in a sentence or two
    lanes  by name, in order; each in the order of time
    sorts  in the order of their colours
    marks  places with their names
    kind   of what the lanes run along
    """

    title: str
    about: str
    lanes: Mapping[str, Sequence[Span]]
    sorts: Sequence[str]
    marks: Sequence[tuple[str, float]] = ()
    kind: CellKind = "seconds"


@dataclass(frozen=True, slots=True)
class Measure:
    """What an axis shows.

    log  True for one on which equal distances are equal ratios
    """

    name: str
    kind: CellKind
    log: bool = False


@dataclass(frozen=True, slots=True)
class Curve:
    """Points in a row.

    drawn  as a line, as a line that holds each value until the next, or as the points alone, faint as a background
    """

    name: str
    points: Sequence[tuple[float, float]]
    drawn: Literal["line", "steps", "points", "cloud"] = "line"


@dataclass(frozen=True, slots=True)
class Curves:
    """Curves over one pair of axes.

    limits  values of y that should not be exceeded, with their names
    """

    title: str
    about: str
    x: Measure
    y: Measure
    curves: Sequence[Curve]
    limits: Sequence[tuple[str, float]] = ()


Picture = Spans | Curves


class Pictures(tuple[Picture, ...]):
    """Pictures as a notebook shows them: one document of Vega-Lite, which Jupyter, VS Code and Colab draw."""

    __slots__ = ()

    def to_vega(self) -> dict[str, Any]:
        """Them all, one below the other, as a document of Vega-Lite."""
        from tpsim.report import vega

        return vega.document(self)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """What a notebook shows, and what one that knows no Vega-Lite does."""
        return {"application/vnd.vegalite.v5+json": self.to_vega(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        return "\n".join(f"{picture.title}: {picture.about}" for picture in self) or "no pictures"
