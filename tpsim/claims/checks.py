"""What `verify` says: one check, what was run with its checks, and all runs together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from tpsim.reference.compare import TOLERANCE
from tpsim.report.answer import Answer, noted
from tpsim.report.numbers import counted
from tpsim.report.record import Count, Record

if TYPE_CHECKING:
    from tpsim.reference.compare import Compared, Slope

ROUNDING = 1e-12
"""Below this a difference is as small as ever."""

SLOPE_TOLERANCE = 1e-5
"""Difference of a derived slope and a central difference, relative to the gradient's length."""

SHOWN = 3
"""Mismatches that a check names; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Check:
    """One statement that was put to the test; it holds if there are no mismatches.

    seen        what was seen if it holds
    tried       things that were looked at; a check of none of them says nothing
    mismatches  what was not as stated
    """

    check: str
    seen: str
    tried: int
    mismatches: Sequence[str] = ()

    @property
    def ok(self) -> bool:
        """True if it holds."""
        return not self.mismatches

    @property
    def detail(self) -> str:
        """What was seen, or the first few mismatches."""
        more = len(self.mismatches) - SHOWN
        rest = [f"and {more} more"] if more > 0 else []
        return self.seen if self.ok else "; ".join([*self.mismatches[:SHOWN], *rest])


def arising(checks: Iterable[Check]) -> tuple[Check, ...]:
    """The checks that say something: what was looked at nowhere does not hold, it does not arise."""
    return tuple(check for check in checks if check.tried or not check.ok)


def below(value: float, bound: float) -> str:
    """A difference in words that come out alike on every machine while it is ordinary: how numpy rounds differs.

    >>> below(3.1e-15, 1e-12), below(2.5e-3, 1e-12), below(0.0, 1e-12)
    ('below 1e-12', '2.5e-03', 'below 1e-12')
    """
    return f"below {bound:.0e}" if value < bound else f"{value:.1e}"


def stopped(error: Exception) -> Check:
    """A run that could not go on: some device was left without what it needed."""
    return Check("values", "", 1, [str(error)])


def value_checks(compared: Sequence[Compared]) -> Iterator[Check]:
    """Values, gradients and the update: every array of the sharded run equals its counterpart on one device."""
    alone = all(array.phase == "forward" for array in compared)
    handed = "what is sampled from and the caches" if alone else "the loss"
    for check, phase, noun in (
        ("values", "forward", f" of forward, {handed} among them,"),
        ("gradients", "backward", " of backward, cotangents and parameter gradients,"),
        ("update", "update", " of the update, new weights and optimizer states,"),
    ):
        arrays = [array for array in compared if array.phase == phase]
        if arrays:
            yield equal_arrays(check, arrays, noun)


def equal_arrays(check: str, compared: Sequence[Compared], noun: str = "") -> Check:
    """Every array equals its counterpart on one device; `noun` they are, in words behind their number."""
    arrays = distinct(compared)
    worst = max(array.difference for array in compared)
    seen = f"{counted(arrays, 'array')}{noun} as on one device, relative differences {below(worst, ROUNDING)}"
    wrong = [_difference(array) for array in compared if not array.difference <= TOLERANCE]
    return Check(check, seen, arrays, wrong)


def distinct(compared: Iterable[Compared]) -> int:
    """Arrays that were compared; a result is compared under its label and under its name, and is one array."""
    return sum(not array.again for array in compared)


def blocks_check(compared: Sequence[Compared], astray: Sequence[str] = ()) -> Check:
    """Every device holds the block that the array's type declares, and every result has the type that was asked for.

    astray  the results that have another one
    """
    on_devices = [array for array in compared if array.device]
    blocks = sum(array.blocks for array in on_devices if not array.again)
    seen = (
        f"{counted(blocks, 'block')} of {counted(distinct(on_devices), 'array')}, each the one that its type declares"
    )
    wrong = [
        f"device ({array.device}) does not hold its block of {array.name}"
        for array in on_devices
        if not array.difference <= TOLERANCE
    ]
    return Check("blocks", seen, blocks, [*astray, *wrong])


def slopes_check(slopes: Sequence[Slope]) -> Check:
    """The derived gradient of every parameter against central differences of the loss of one device."""
    worst = max((slope.difference for slope in slopes), default=0.0)
    seen = f"{counted(len(slopes), 'gradient')} as the loss's central differences say, "
    seen += f"relative differences {below(worst, SLOPE_TOLERANCE / 10)}"
    wrong = [
        f"the gradient of {slope.parameter} differs from the loss's slope by {slope.difference:.1e} of its length"
        for slope in slopes
        if not slope.difference <= SLOPE_TOLERANCE
    ]
    return Check("finite_differences", seen, len(slopes), wrong)


def _difference(array: Compared) -> str:
    where = f" on device ({array.device})" if array.device else ""
    if array.difference == float("inf"):
        return f"{array.name}{where} has another shape or is no number"
    return f"{array.name}{where} differs by {array.difference:.1e} of its largest value"


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
    compared     every array beside that of one device; none of a run that could not go on
    collectives  collective calls that the devices made
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
    compared: Sequence[Compared] = ()
    collectives: Count = 0
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
    def arrays(self) -> Count:
        """Arrays compared with those of one device."""
        return distinct(self.compared)

    @property
    def difference(self) -> float:
        """The largest relative one of any array."""
        return max((array.difference for array in self.compared), default=0.0)

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

    assumptions = noted("notes", "what has to be known of the runs")

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
        arrays, calls = (sum(getattr(run, figure) for run in self.runs) for figure in ("arrays", "collectives"))
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
