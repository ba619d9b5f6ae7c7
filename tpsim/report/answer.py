"""What every public function answers with: a value that prints as its verdict, and as a table in a notebook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from tpsim.report.frame import frame
from tpsim.report.table import Line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd


class Answer(ABC):
    """An answer: a verdict, tidy rows, and a JSON document."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """A dataclass would print all its fields, of a plan 70 kB; it leaves alone what a class has of its own."""
        super().__init_subclass__(**kwargs)
        cls.__repr__ = Answer.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        return self.verdict

    def _repr_html_(self) -> str:
        """What a notebook shows: the verdict over the rows."""
        from tpsim.report import html

        return html.text(self.lines, self.shown())

    @property
    @abstractmethod
    def verdict(self) -> str:
        """The answer in words."""

    @property
    def lines(self) -> tuple[Line, ...]:
        """The verdict as lines."""
        return (Line(self.verdict, ok=bool(getattr(self, "ok", True))),)

    @abstractmethod
    def records(self) -> Sequence[Mapping[str, Any]]:
        """Tidy rows: what is known of each first, then what it comes to."""

    def shown(self) -> Sequence[Mapping[str, Any]]:
        """The rows that a notebook shows: those that cost nothing to make."""
        return self.records()

    def to_frame(self) -> pd.DataFrame:
        """The records as a pandas DataFrame."""
        return frame(self.records())

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """The whole document."""
