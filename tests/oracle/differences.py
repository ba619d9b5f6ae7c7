"""Where XLA and tpsim may differ: by name, with the reason and who is the better, so that nothing differs silently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.oracle.calls import Run

Sign = Literal["less", "same", "more"]
Relation = tuple[Sign, Sign] | Literal["alike"]
"""XLA's elements on the wire and XLA's FLOPs against ours; alike if the collectives are the same ones too."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One reason for which XLA does otherwise.

    wire, work  what XLA moves, and what it computes, against ours
    where       the questions on which it does
    """

    why: str
    wire: Sign
    work: Sign
    where: tuple[str, ...]


def named(question: str, differences: Sequence[Difference]) -> Relation:
    """The relation that a table claims; alike for what it does not name."""
    found = [difference for difference in differences if question in difference.where]
    return (found[0].wire, found[0].work) if found else "alike"


def relation(xla: Run, ours: Run) -> Relation:
    """The relation that is found."""
    return "alike" if xla == ours else (_sign(xla.wire, ours.wire), _sign(xla.flops, ours.flops))


def _sign(theirs: int, ours: int) -> Sign:
    if theirs == ours:
        return "same"
    return "less" if theirs < ours else "more"
