"""How sure a step is: where eight of ten published runs like it would lie."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod
from typing import TYPE_CHECKING

from tpsim.machine.evidence import evidence
from tpsim.quantity.units import show
from tpsim.report.record import Count, Record, Seconds

if TYPE_CHECKING:
    from tpsim.machine.evidence import EvidenceFile
    from tpsim.question.question import Question


@dataclass(frozen=True, slots=True)
class Band(Record):
    """Between the tenth and the ninetieth of a hundred runs of the kind, as far as published ones tell.

    of     what published runs its errors are of
    runs   how many there are, of so many sets
    """

    low_s: Seconds
    high_s: Seconds
    of: str
    runs: Count
    sets: Count

    @property
    def text(self) -> str:
        """In words."""
        low, high = (show(float(one), "seconds") for one in (self.low_s, self.high_s))
        return f"{low} to {high} in 8 of 10 published runs {self.of} ({self.runs} runs of {self.sets} sets)"


def band(question: Question, time_s: Seconds) -> Band:
    """The band of a step of so many seconds, from errors that the shipped constants were not fitted by."""
    unlike = "".join(f" with {sort}" for sort, there in _unlike(question).items() if there)
    several = question.mesh.devices > prod(question.machine.levels[0].shape)
    generation = "" if unlike else question.machine.chip.generation
    found = _evidence().band(generation, "many" if several else "one")
    if found.generation is None:
        kind = f"of other kinds, the widest band: several stacks' steps{unlike or ' on such chips'} are not known"
    else:
        kind = f"on {'one node' if found.nodes == 'one' else 'several nodes'} of {found.generation} chips"
    return Band(time_s * found.low, time_s * found.high, kind, found.runs, found.sets)


def _unlike(question: Question) -> dict[str, bool]:
    """What sets a run apart from all published ones that were scored."""
    return {"experts": bool(question.model.experts), "context parallelism": "cp" in question.layout.roles}


@cache
def _evidence() -> EvidenceFile:
    return evidence()
