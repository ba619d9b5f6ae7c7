"""A fitted machine: what moved, how far off its predictions are, and its profile, laid on the base."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tpsim import __version__
from tpsim.answers.hw import curve_record
from tpsim.machine.curve_file import fields_of
from tpsim.machine.profile_file import DEFAULT
from tpsim.quantity.spec import is_path, path_from
from tpsim.quantity.units import show
from tpsim.question.inputs import inputs
from tpsim.question.save import flow
from tpsim.report.answer import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpsim.calibrate.calibrate import Calibrated, Series
    from tpsim.calibrate.determine import Array
    from tpsim.calibrate.logs import Measured
    from tpsim.machine.profile import Constant, Machine
    from tpsim.quantity.spec import Document

DIGITS = 5
SAYS_ONE = "value"
"""The key of a figure's value: a map that has it is one figure, not several by name."""


SCHEMA = "tpsim.hw-fit/1"

KIBI = 1024
BANDS: Mapping[str, float] = {"floor": 64 * KIBI, "middle": KIBI**2, "knee": 128 * KIBI**2, "plateau": float("inf")}
"""Names of size bands, and the largest logical bytes in each."""

SOURCE = "fit"
"""The key of a profile's source that its logs have."""


@dataclass(frozen=True)
class FitResult(Answer):
    """A machine fitted to logs.

    base      how the request names the machine that it started from; `document` is its file
    measured  runs, with the series of the fit beside them
    warnings  what the logs, and the fit, cannot be trusted in
    """

    name: str
    base: str
    document: Document
    calibrated: Calibrated
    measured: tuple[Measured, ...]
    warnings: tuple[str, ...]

    @property
    def machine(self) -> Machine:
        """The machine with the figures that fit, and the curves; those that the logs tell are from this fit."""
        fitted = self.calibrated.machine
        curves = (one if one.source else replace(one, source=self.source) for one in fitted.measured)
        return replace(fitted, name=self.name, measured=tuple(curves))

    @property
    def source(self) -> str:
        """The key of the profile's source; the base may have earlier fits."""
        keys = (f"{SOURCE}{'' if at == 1 else f'-{at}'}" for at in count(1))
        return next(key for key in keys if key not in self.calibrated.base.sources)

    def records(self) -> list[dict[str, Any]]:
        """One row per measured point: where it stands, what it took, and what base, figures and curves predict."""
        found = self.calibrated
        off = zip(found.before, found.by_constants, found.after, strict=True)
        together = zip(self.measured, found.series, off, strict=True)
        return [row for run, series, each in together for row in _points(run, series, *each)]

    @cached_property
    def parameters(self) -> list[dict[str, Any]]:
        """One row per figure that moved, in the order of the profile."""
        constants = {one.path: one for one in self.calibrated.base.constants()}
        moved = self.calibrated.moved
        return [self._parameter(constants[path]) for path in constants if path in moved]

    def _parameter(self, constant: Constant) -> dict[str, Any]:
        found = self.calibrated.fit
        return {
            "constant": constant.path,
            "dimension": constant.dimension,
            "base": constant.value,
            "base_kind": constant.kind,
            "value": dict(found.values)[constant.path],
            "relative_error": found.errors[constant.path],
        }

    @cached_property
    def bands(self) -> list[dict[str, Any]]:
        """One row per band of sizes that was measured, then all of them: |predicted/measured - 1|, by each."""
        rows = self.records()
        named = {name: [row for row in rows if row["band"] == name] for name in BANDS}
        return [_band(name, inside) for name, inside in {**named, "all": rows}.items() if inside]

    @property
    def verdict(self) -> str:
        """One line: how far off the predictions are now, and were."""
        every = self.bands[-1]
        moved, curves = len(self.parameters), sum(one.source == self.source for one in self.machine.measured)
        over = f", {every['fitted_median']:.1%} with {curves} curve{'s' * (curves != 1)}" if curves else ""
        return (
            f"{moved} figure{'s' * (moved != 1)} fitted to {every['points']} points: median error "
            f"{every['base_median']:.1%} before, {every['figures_median']:.1%} after{over}"
        )

    def to_json(self) -> dict[str, Any]:
        """The whole document."""
        found = self.calibrated.fit
        return {
            "schema": SCHEMA,
            "tpsim": __version__,
            "inputs": [{"path": path, "sha256": digest} for path, digest in self.inputs],
            "resolved": {"base": self.base, "name": self.name, "runs": [_run(one) for one in self.measured]},
            "result": {
                "verdict": self.verdict,
                "parameters": self.parameters,
                "undetermined": list(found.merged),
                "curves": [curve_record(one) for one in self.machine.measured],
                "bands": self.bands,
                "points": self.records(),
            },
            "assumptions": [{"text": text, "kind": "derived"} for text in self.warnings],
            "not_modelled": [],
        }

    @property
    def inputs(self) -> list[tuple[str, str]]:
        """The base's file and the logs, each with its hash."""
        logs = dict.fromkeys((one.log, one.sha256) for one in self.measured)
        return [*inputs(self.document), *logs]

    def to_yaml(self, folder: Path = Path()) -> str:
        """The profile, to stand in `folder`: what `-o profile.yaml` writes."""
        return profile_text(self, folder)


# As a profile ----------------------------------------------------------------------------------------------------


def profile_text(result: FitResult, folder: Path) -> str:
    """The profile, to stand in `folder`: it extends the base; the same logs and base give the same text there."""
    base = path_from(folder, result.base) if is_path(result.base) else result.base
    comments = [line.replace("\n", " ") for line in _comments(result)]
    lines = [*comments, "tpsim: hardware/1", f"extends: {flow(base)}", f"name: {flow(result.name)}"]
    lines += ["sources:", f"  {result.source}: {flow(_source(result))}"]
    lines += ["levels:", *(line for level in _levels(result) for line in _item(level))]
    machine = result.machine
    curves = [fields_of(one, machine.levels) for one in machine.measured]
    lines += ["measured:", *(line for curve in curves for line in _item(curve))] if curves else []
    return "\n".join(lines) + "\n"


def _comments(result: FitResult) -> Iterator[str]:
    yield f"# {result.verdict}"
    yield "# |predicted/measured - 1|, median and 90th percentile:"
    yield f"#   {'sizes':<8}  {'points':>6}  {result.base:>20}  {'figures':>16}  {'with curves':>16}"
    for row in result.bands:
        was, figures, now = (
            f"{row[f'{key}_median']:.1%} {row[f'{key}_p90']:.1%}" for key in ("base", "figures", "fitted")
        )
        yield f"#   {row['band']:<8}  {row['points']:>6}  {was:>20}  {figures:>16}  {now:>16}"
    for one in result.measured:
        run = one.run
        how = ", ".join(filter(None, [run.library, run.harness, f"{len(one.points)} points"]))
        yield f"# measured: {run} ({how}) in {one.log}"
    yield from (f"# warning: {text}" for text in result.warnings)


def _source(result: FitResult) -> dict[str, Any]:
    """Where the figures are from: the logs, by name and hash."""
    logs = dict.fromkeys((one.log, one.sha256) for one in result.measured)
    names = ", ".join(name for name, _ in logs)
    return {"title": f"tpsim hw fit of {names}", "sha256": [digest for _, digest in logs]}


def _levels(result: FitResult) -> list[dict[str, Any]]:
    """The base's levels with what moved put in: lists replace when a profile extends another, so all are repeated."""
    levels: list[dict[str, Any]] = deepcopy(result.document.data["levels"])
    named = {level["name"]: level for level in levels}
    for level, harness, launch in _guessed_launches(result):
        figure = {"value": show(launch.value, "seconds", DIGITS), "kind": launch.kind, "note": launch.note}
        _put(named[level], ["launch", harness], figure)
    for row in result.parameters:
        _, name, *keys = row["constant"].split(".")
        _put(named[name], keys, _figure(row, result))
    return levels


def _guessed_launches(result: FitResult) -> Iterator[tuple[str, str, Constant]]:
    """Launches of harnesses that the base lacks and the logs have: a curve that such a one measured needs its own."""
    stated = {level["name"]: level.get("launch") for level in result.document.data["levels"]}
    for level in result.machine.levels:
        own = stated[level.name]
        known = own if _several(own) else [DEFAULT] * (own is not None)
        for harness, launch in level.launch.items():
            if harness not in known:
                yield level.name, harness, launch


def _put(inside: dict[str, Any], keys: list[str], figure: dict[str, Any]) -> None:
    """Set the figure at `keys`, with maps made where there are none."""
    first, *rest = keys
    if not rest:
        inside[first] = figure
        return
    there = inside.get(first)
    if first == "launch" and there is not None and not _several(there):
        there = {DEFAULT: there}
    inside[first] = {} if there is None else there
    _put(inside[first], rest, figure)


def _several(launch: Any) -> bool:
    """True for launches by harness, False for a single one."""
    return isinstance(launch, dict) and SAYS_ONE not in launch


def _figure(row: Mapping[str, Any], result: FitResult) -> dict[str, Any]:
    was, now = (show(row[key], row["dimension"], DIGITS) for key in ("base", "value"))
    note = f"{was} in {result.base}; +-{row['relative_error']:.1%}"
    return {
        "value": float(now) if row["dimension"] == "ratio" else now,
        "source": result.source,
        "kind": "measured",
        "note": note,
    }


def _item(part: Mapping[str, Any]) -> Iterator[str]:
    """A level, or a curve, as an item of a list."""
    first, *others = _block(part)
    yield f"  - {first}"
    yield from (f"    {line}" for line in others)


def _block(part: Mapping[str, Any]) -> Iterator[str]:
    """A map in YAML: maps of maps, and lists of maps, line by line, anything else on one line."""
    for key, value in part.items():
        if isinstance(value, dict) and any(isinstance(one, dict) for one in value.values()):
            yield f"{flow(key)}:"
            yield from (f"  {line}" for line in _block(value))
        elif isinstance(value, list) and len(value) > 1 and all(isinstance(one, dict) for one in value):
            yield f"{flow(key)}:"
            yield from (f"  - {flow(one)}" for one in value)
        else:
            yield f"{flow(key)}: {flow(value)}"


# How far off it is -----------------------------------------------------------------------------------------------


def band(V: float) -> str:
    """The band of a size.

    >>> band(65536), band(65537), band(2**30)
    ('floor', 'middle', 'plateau')
    """
    return next(name for name, most in BANDS.items() if not most < V)


def _points(
    measured: Measured, series: Series, before: Array, by_constants: Array, after: Array
) -> Iterator[dict[str, Any]]:
    """The points of a run in rows; the arrays are log(measured/predicted)."""
    run = measured.run
    for point, was, figures, now in zip(measured.points, before, by_constants, after, strict=True):
        yield {
            "log": measured.log,
            "line": point.line,
            "collective": run.collective,
            "ranks": run.ranks,
            "harness": run.harness or None,
            "algorithm": series.algorithm,
            "protocol": series.protocol,
            "logical_bytes": point.V,
            "band": band(point.V),
            "measured_s": point.seconds,
            "base_s": point.seconds * float(np.exp(-was)),
            "figures_s": point.seconds * float(np.exp(-figures)),
            "fitted_s": point.seconds * float(np.exp(-now)),
        }


PREDICTED = ("base", "figures", "fitted")
"""By what points are predicted: the base, the figures that moved, and the curves over them."""


def _band(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How far off a band's points are, relative to what was measured."""
    off = {key: np.abs(np.array([row[f"{key}_s"] / row["measured_s"] for row in rows]) - 1) for key in PREDICTED}
    return {
        "band": name,
        "points": len(rows),
        **{f"{key}_median": float(np.median(values)) for key, values in off.items()},
        **{f"{key}_p90": float(np.percentile(values, 90)) for key, values in off.items()},
    }


def _run(measured: Measured) -> dict[str, Any]:
    run = measured.run
    return {
        "log": measured.log,
        "collective": run.collective,
        "ranks": run.ranks,
        "hosts": run.nodes,
        "library": run.library or None,
        "harness": run.harness or None,
        "points": len(measured.points),
    }
