"""What every public function answers with: a document, tidy rows, and a value that prints as its verdict."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from tpsim import __version__
from tpsim.report.record import Record, plain
from tpsim.report.table import Line

if TYPE_CHECKING:
    import pandas as pd

    from tpsim.report.bars import Bar
    from tpsim.report.picture import Picture, Pictures


@dataclass(frozen=True, slots=True)
class Input(Record):
    """A file that the answer was computed from."""

    path: str
    sha256: Annotated[str, ("pattern", "^[0-9a-f]{64}$")]


@dataclass(frozen=True, slots=True)
class Assumption(Record):
    """Something that the answer takes for granted.

    kind  stated by the user or a source, guessed about the run, tpsim's default, derived from what is stated, or model
          for what every answer of its sort assumes
    """

    text: str
    kind: Literal["stated", "guess", "default", "derived", "model"]


DOCUMENT = ("schema", "tpsim", "inputs", "resolved", "result", "assumptions", "not_modelled")
"""The parts of every document, in order."""


class Answer(Record):
    """An answer. As a record it is the `result` of its document.

    schema         the name and version of its document
    tpsim          the version of tpsim
    not_modelled   what the answer leaves out
    table          the part of the result that has the answer's rows
    columns        what CSV says above no rows
    """

    schema: ClassVar[str]
    tpsim: ClassVar[str] = __version__
    not_modelled: ClassVar[Sequence[str]] = ()
    table: ClassVar[str] = ""
    columns: ClassVar[Sequence[str]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """A dataclass would print all its fields, of a plan 70 kB; it leaves alone what a class has of its own."""
        super().__init_subclass__(**kwargs)
        cls.__repr__ = Answer.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        return self.verdict

    def _repr_html_(self) -> str:
        """What a notebook shows: the verdict, what it weighs, and the rows."""
        from tpsim.report import html

        return html.cell(self.lines, self.bars, self.shown())

    def plot(self) -> Pictures:
        """The answer's pictures, as a notebook shows them; none where nothing is drawn of it."""
        from tpsim.report.picture import Pictures

        return Pictures(self.pictures)

    @property
    @abstractmethod
    def verdict(self) -> str:
        """The answer in words."""

    @property
    def ok(self) -> bool:
        """False if the answer is "no"."""
        return True

    @property
    def lines(self) -> tuple[Line, ...]:
        """The verdict as lines."""
        return (Line(self.verdict, ok=self.ok),)

    @property
    def bars(self) -> Sequence[Bar]:
        """What the verdict weighs."""
        return ()

    @property
    def pictures(self) -> Sequence[Picture]:
        """What is drawn of it; made when it is asked for."""
        return ()

    @property
    def files(self) -> Sequence[tuple[str, str]]:
        """Path and sha256 of every file that was read."""
        return ()

    @property
    def inputs(self) -> Sequence[Input]:
        """The files that the answer was computed from."""
        return [Input(*one) for one in self.files]

    @property
    def resolved(self) -> Mapping[str, Any]:
        """What files, flags and defaults came to."""
        return {}

    @property
    def result(self) -> Mapping[str, Any]:
        """What is answered."""
        return self

    @property
    def assumptions(self) -> Sequence[Assumption]:
        """What the answer takes for granted."""
        return ()

    def records(self) -> Sequence[Mapping[str, Any]]:
        """Tidy rows: what is known of each first, then what it comes to."""
        rows: Sequence[Mapping[str, Any]] = getattr(self, self.table)
        return rows

    def shown(self) -> Sequence[Mapping[str, Any]]:
        """The rows that a notebook shows: those that cost nothing to make."""
        return self.records()

    def to_frame(self) -> pd.DataFrame:
        """The records as a pandas DataFrame."""
        from tpsim.report.formats import frame

        return frame(self.records())

    def to_json(self) -> dict[str, Any]:
        """The whole document as plain data."""
        return {part: plain(getattr(self, part)) for part in DOCUMENT}
