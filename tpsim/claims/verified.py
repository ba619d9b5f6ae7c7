"""What a verification answers: per run what was run and its checks, and all runs together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpsim import __version__
from tpsim.claims.checks import ROUNDING, below, counted
from tpsim.report.answer import Answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpsim.claims.checks import Check

SCHEMA = "tpsim.verify/1"

NOT_MODELLED = (
    "the full sizes: what holds at the sizes run is taken to hold at all sizes with the same types",
    "rounding: devices compute in float64, bytes are counted in the dtypes that are declared",
    "seconds: steps and bytes are run, latencies and bandwidths are not",
)
"""What a run does not show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """One run and what it showed.

    name, asked  of the scenario or expression; what a command line names it by, "" if none can
    mesh, dims   the sizes that were run
    placement    where the mesh axes lay, in words
    layers, microbatches  of the step that was run; 0 for an expression
    arrays       arrays compared with those of one device
    calls        collective calls made by the devices
    difference   the largest relative one of any array
    full         the sizes that the run stands for, in words; "" if they are those that were run
    notes        in what the run differs from the full sizes
    """

    name: str
    asked: str
    mesh: Mapping[str, int]
    dims: Mapping[str, int]
    placement: tuple[str, ...]
    devices: int
    checks: tuple[Check, ...]
    arrays: int = 0
    calls: int = 0
    difference: float = 0.0
    layers: int = 0
    microbatches: int = 0
    is_expression: bool = False
    full: str = ""
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if every check holds."""
        return all(check.ok for check in self.checks)

    @property
    def failed(self) -> list[Check]:
        """The checks that do not hold."""
        return [check for check in self.checks if not check.ok]

    def record(self) -> dict[str, Any]:
        """What was run, and how it came out."""
        return {
            "name": self.name,
            "full_size": self.full,
            "mesh": dict(self.mesh),
            "dims": dict(self.dims),
            "placement": list(self.placement),
            "layers": self.layers,
            "microbatches": self.microbatches,
            "devices": self.devices,
            "arrays": self.arrays,
            "collectives": self.calls,
            "largest_relative_difference": self.difference if self.difference < float("inf") else None,
            "ok": self.ok,
        }


@dataclass(frozen=True)
class VerifyResult(Answer):
    """Every run, in the order asked for.

    inputs  (path, sha256) of every file read
    """

    runs: tuple[Verified, ...]
    inputs: tuple[tuple[str, str], ...] = ()

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
        arrays, calls = (sum(getattr(run, what) for run in self.runs) for what in ("arrays", "calls"))
        worst = max((run.difference for run in self.runs), default=0.0)
        whose = self.runs[0].name if len(self.runs) == 1 else f"{len(self.runs)} scenarios"
        return (
            f"{whose}: {_all(checks)}; {counted(arrays, 'array')} as on one device "
            f"with differences {below(worst, ROUNDING)}, "
        ) + (f"{counted(calls, 'collective call')} as claimed" if calls else "no collective calls")

    def _failure(self, checks: int) -> str:
        """Which of the checks fail, and the first mismatch alone: the page has the others."""
        failed = [(run, check) for run in self.runs for check in run.failed]
        names = ", ".join(dict.fromkeys(check.check for _, check in failed))
        (run, check), several = failed[0], len(self.runs) > 1
        whose = f" in {sum(not run.ok for run in self.runs)} of {len(self.runs)} scenarios" if several else ""
        first = f"{run.name}, {check.mismatches[0]}" if several else check.mismatches[0]
        return f"{len(failed)} of {counted(checks, 'check')} fail{whose}: {names}; first: {first}"

    def records(self) -> list[dict[str, Any]]:
        """One row per check."""
        return [{"name": run.name, **check.record()} for run in self.runs for check in run.checks]

    def to_json(self) -> dict[str, Any]:
        """The whole document as the interface states it."""
        return {
            "schema": SCHEMA,
            "tpsim": __version__,
            "inputs": [{"path": path, "sha256": digest} for path, digest in self.inputs],
            "resolved": {"names": [run.name for run in self.runs]},
            "result": {
                "verdict": self.verdict,
                "ok": self.ok,
                "checks": self.records(),
                "runs": [run.record() for run in self.runs],
            },
            "assumptions": [{"text": note, "kind": "derived"} for note in self.notes],
            "not_modelled": list(NOT_MODELLED),
        }


def _all(checks: int) -> str:
    return "its check holds" if checks == 1 else f"all {checks} checks hold"
