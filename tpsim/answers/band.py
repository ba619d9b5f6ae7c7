"""How sure a step is: where eight of ten published runs like it would lie."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import exp, hypot, log
from typing import TYPE_CHECKING

from tpsim.machine.evidence import evidence
from tpsim.quantity.units import show
from tpsim.report.record import Count, Record, Seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpsim.machine.evidence import BandFields, EvidenceFile
    from tpsim.question.question import Question


@dataclass(frozen=True, slots=True)
class Band(Record):
    """Where at least eight of ten runs of the kind lie, if they are as the published ones are.

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
        low, high = (show(float(seconds), "seconds") for seconds in (self.low_s, self.high_s))
        return f"{low} to {high} in 8 of 10 published runs {self.of} ({self.runs} runs of {self.sets} sets)"


NORMAL = 1.2816
"""The ninetieth of a hundred of a normal variable, in deviations."""


def band(question: Question, time_s: float, at_launch: Callable[[float], float]) -> Band:
    """The band of a step of so many seconds, from errors that its constants were not fitted by.

    at_launch  seconds of the step with this launch of its host: a guessed one widens the band
    """
    unlike = "".join(f" with {sort}" for sort, there in _unlike(question).items() if there)
    entry = _of_kind(question, known=not unlike)
    ends, guessed = (log(entry.low), log(entry.high)), ""
    launch = question.assume.kernel_launch
    if launch and launch.kind == "guess":
        wide = NORMAL * _evidence().shares.launch
        off = [log(at_launch(launch.value * exp(by)) / time_s) for by in (-wide, wide)]
        ends, guessed = (-hypot(ends[0], off[0]), hypot(ends[1], off[1])), ", wider by its guessed launch"
    low, high = (time_s * exp(end) for end in ends)
    return Band(low, high, _words(entry, unlike) + guessed, entry.runs, entry.sets)


def _of_kind(question: Question, *, known: bool) -> BandFields:
    """The band of its kind; of what no published run has, the last one."""
    chip = question.machine.chip
    measured = any(constant.kind == "measured" for constant in chip.constants() if constant.path.endswith(SHARE))
    return _evidence().band(chip.generation if known else "", calibrated=known and measured)


SHARE = "matmul_efficiency"
"""What own runs move first of all: measured, it makes a machine calibrated."""


def _words(entry: BandFields, unlike: str) -> str:
    if entry.calibrated:
        return "on machines that one of their own runs had moved"
    if entry.generation is None:
        return f"of other kinds, the widest band: several stacks' steps{unlike or ' on such chips'} are not known"
    return f"on {entry.generation} chips"


def _unlike(question: Question) -> dict[str, bool]:
    """What sets a run apart from all published ones that were scored."""
    return {"experts": bool(question.model.experts), "context parallelism": "cp" in question.layout.roles}


@cache
def _evidence() -> EvidenceFile:
    return evidence()
