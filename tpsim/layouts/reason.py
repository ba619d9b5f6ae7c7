"""Why a layout is none that `plan` takes: what is counted of those that a search looks at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from tpsim.quantity.errors import InputError, Problem


class Reason(str):
    """The slug of a refusal, which is what it is known and counted by, with what it says of one layout.

    >>> Reason("too-few-layers", "2 layers for 4 stages") == "too-few-layers"
    True
    """

    __slots__ = ("message",)
    message: str

    def __new__(cls, slug: str, message: str) -> Self:
        """The slug as a text."""
        made = super().__new__(cls, slug)
        made.message = message
        return made

    def __reduce__(self) -> tuple[type[Reason], tuple[str, str]]:
        """How another process makes it."""
        return Reason, (str(self), self.message)


def reason(error: InputError) -> Reason:
    """Why a layout was refused: the first thing that was wrong."""
    return reason_of(error.problems[0])


def reason_of(problem: Problem) -> Reason:
    """What is wrong, as a reason."""
    return Reason(problem.slug, problem.message)
