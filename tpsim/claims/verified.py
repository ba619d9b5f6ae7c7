"""What a verification answers: per run what was run and its checks, and all runs together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from tpsim.claims.checks import ROUNDING, below
from tpsim.report.answer import Answer, Assumption
from tpsim.report.numbers import counted
from tpsim.report.record import Count, Record

if TYPE_CHECKING:
    from tpsim.claims.checks import Check

NOT_MODELLED = (
    "the full sizes: what holds at the sizes run is taken to hold at all sizes with the same types",
    "rounding: devices compute in float64, bytes are counted in the dtypes that are declared",
    "seconds: steps and bytes are run, latencies and bandwidths are not",
)
"""What a run does not show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified(Record):
    """What was run: the sizes, and what was compared.

    name         of the scenario or expression
    asked        what a command line names it by, "" if none can
    full_size    what the run stands for, in words; empty if nothing was made smaller
    mesh, dims   the sizes that were run
    placement    where the mesh axes lay, in words
    layers, microbatches  of the step that was run; 0 for an expression
    arrays       arrays compared with those of one device
    collectives  collective calls that the devices made
    difference   the largest relative one of any array
    notes        in what the run differs from the full sizes
    """

    told: ClassVar[tuple[str, ...]] = (
        *("name", "full_size", "mesh", "dims", "placement", "layers", "microbatches", "devices", "arrays"),
        *("collectives", "largest_relative_difference", "ok"),
    )

    name: str
    asked: str
    mesh: Mapping[str, int]
    dims: Mapping[str, int]
    placement: tuple[str, ...]
    devices: Count
    checks: tuple[Check, ...]
    arrays: Count = 0
    collectives: Count = 0
    difference: float = 0.0
    layers: Count = 0
    microbatches: Count = 0
    is_expression: bool = False
    full_size: str = ""
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if every check holds."""
        return all(check.ok for check in self.checks)

    @property
    def failed(self) -> list[Check]:
        """The checks that do not hold."""
        return [check for check in self.checks if not check.ok]

    @property
    def largest_relative_difference(self) -> float | None:
        """Of any array; null if an array is no number or of another shape."""
        return self.difference if self.difference < float("inf") else None


CHECKS = (
    *("values", "gradients", "update", "blocks", "finite_differences"),
    *("collectives", "links", "formulas", "memory", "cache"),
)


@dataclass(frozen=True, slots=True)
class CheckOfRun(Record):
    """One statement that was put to the test.

    name    the scenario's, or the expression
    detail  what was seen; if it does not hold, the first mismatches
    """

    name: str
    check: Annotated[str, ("enum", CHECKS)]
    ok: bool
    detail: str


@dataclass(frozen=True)
class VerifyResult(Answer):
    """Every check of every run, in the order asked for."""

    schema = "tpsim.verify/1"
    not_modelled = NOT_MODELLED
    told: ClassVar[tuple[str, ...]] = ("verdict", "ok", "checks", "runs")
    table = "checks"

    runs: tuple[Verified, ...]
    files: tuple[tuple[str, str], ...] = ()

    @property
    def notes(self) -> list[str]:
        """What has to be known of the runs, each once."""
        return list(dict.fromkeys(note for run in self.runs for note in run.notes))

    @property
    def ok(self) -> bool:
        """True if every check of every run holds."""
        return all(run.ok for run in self.runs)

    @property
    def verdict(self) -> str:
        """The answer in one line."""
        checks = sum(len(run.checks) for run in self.runs)
        if not self.ok:
            return self._failure(checks)
        arrays, calls = (sum(getattr(run, what) for run in self.runs) for what in ("arrays", "collectives"))
        worst = max((run.difference for run in self.runs), default=0.0)
        whose = self.runs[0].name if len(self.runs) == 1 else f"{len(self.runs)} scenarios"
        hold = "its check holds" if checks == 1 else f"all {checks} checks hold"
        return (
            f"{whose}: {hold}; {counted(arrays, 'array')} as on one device with differences {below(worst, ROUNDING)}, "
        ) + (f"{counted(calls, 'collective call')} as claimed" if calls else "no collective calls")

    def _failure(self, checks: int) -> str:
        """Which of the checks fail, and the first mismatch alone: the page has the others."""
        failed = [(run, check) for run in self.runs for check in run.failed]
        names = ", ".join(dict.fromkeys(check.check for _, check in failed))
        (run, check), several = failed[0], len(self.runs) > 1
        whose = f" in {sum(not run.ok for run in self.runs)} of {len(self.runs)} scenarios" if several else ""
        first = f"{run.name}, {check.mismatches[0]}" if several else check.mismatches[0]
        return f"{len(failed)} of {counted(checks, 'check')} fail{whose}: {names}; first: {first}"

    @property
    def checks(self) -> list[CheckOfRun]:
        """One row per check."""
        return [CheckOfRun(run.name, check.check, check.ok, check.detail) for run in self.runs for check in run.checks]

    @property
    def resolved(self) -> Mapping[str, list[str]]:
        """What was run."""
        return {"names": [run.name for run in self.runs]}

    @property
    def assumptions(self) -> list[Assumption]:
        """What has to be known of the runs."""
        return [Assumption(note, "derived") for note in self.notes]
