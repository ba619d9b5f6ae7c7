"""The verb `hw fit` of either: logs of collectives, or a list of steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpsim.calibrate.fit import hw_fit
from tpsim.calibrate.step_fit import hw_fit_runs
from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tpsim.calibrate.fitted import FitResult
    from tpsim.calibrate.step_fitted import StepFitResult


def hw_fit_any(
    logs: str | Path | Sequence[str | Path] = (),
    *,
    base: str,
    runs: str | Path | None = None,
    name: str | None = None,
    level: str | None = None,
    collective: str | None = None,
    ranks: int | None = None,
) -> FitResult | StepFitResult:
    """Fit a machine to measured collectives, or what its chips reach of their peaks to measured steps.

    logs   of collectives, one or several; level, collective and ranks are of these: `tpsim.calibrate.fit.hw_fit`
    runs   a list of steps instead: `tpsim.calibrate.step_fit.hw_fit_runs`
    base   a machine of the library, or a profile's file: what they cannot determine stays as it has it
    name   of the new machine; None: the base's, and ``-measured``

    Raises InputError as these do, and for both or neither.
    """
    of_logs: dict[str, Any] = {"level": level, "collective": collective, "ranks": ranks}
    if runs is None:
        if not logs:
            message, remedy = "neither logs of collectives nor measured steps are given", "give logs, or --runs FILE"
            raise InputError.one("nothing-to-fit", message, remedy=remedy)
        return hw_fit(logs, base=base, name=name, **of_logs)
    beside = ["logs"] * bool(logs) + [one for one, value in of_logs.items() if value is not None]
    if beside:
        remedy = "fit the logs first, then --runs with that machine as --base"
        raise InputError.one("logs-beside-runs", f"of measured steps there are no {', '.join(beside)}", remedy=remedy)
    return hw_fit_runs(runs, base=base, name=name)
