"""A fitted machine: what moved, how far off its predictions are, and its profile as text, laid on the base."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tpsim.answers.hw import curve_record
from tpsim.calibrate.calibrate import Calibrated, left_out
from tpsim.machine.curve_file import DIGITS, fields_of
from tpsim.machine.parts import DEFAULT, Machine
from tpsim.quantity.spec import Document, is_path, path_from
from tpsim.quantity.spec.document import VALUE, merge
from tpsim.quantity.units import show
from tpsim.question.inputs import inputs
from tpsim.question.save import flow
from tpsim.report.answer import Answer, noted
from tpsim.report.numbers import counted
from tpsim.report.record import Of

if TYPE_CHECKING:
    from tpsim.calibrate.run import MeasuredRun
    from tpsim.machine.constant import Constant


KIBI = 1024
BANDS: Mapping[str, float] = {"floor": 64 * KIBI, "middle": KIBI**2, "knee": 128 * KIBI**2, "plateau": float("inf")}
"""Names of size bands, and the largest logical bytes in each."""

SOURCE = "fit"
"""The key of a profile's source that its logs have."""


@dataclass(frozen=True)
class FitResult(Answer):
    """A machine fitted to logs.

    base      how the request names the machine that it started from; `document` is its file
    warnings  what the logs, and the fit, cannot be trusted in
    """

    schema = "tpsim.hw-fit/1"
    told = ("verdict", "parameters", "undetermined", "curves", "bands", "points")
    table = "points"

    name: str
    base: str
    document: Document
    calibrated: Calibrated
    warnings: tuple[str, ...]

    undetermined = Of[Sequence[str]](
        "calibrated.fit.merged", "figures that matter and that the logs cannot tell from those that moved"
    )

    assumptions = noted("warnings", "what the logs, and the fit, cannot be trusted in")

    @property
    def machine(self) -> Machine:
        """The machine with the figures that fit, and the curves; those that the logs tell are from this fit."""
        fitted = self.calibrated.machine
        curves = (curve if curve.source else replace(curve, source=self.source) for curve in fitted.measured)
        return replace(fitted, name=self.name, measured=tuple(curves))

    @property
    def source(self) -> str:
        """The key of the profile's source; the base may have earlier fits."""
        return source_key(SOURCE, self.calibrated.base)

    @cached_property
    def points(self) -> list[dict[str, Any]]:
        """One row per measured point: where it stands, what it took, and what base, figures and curves predict.

        left_out_s is what they predict that are fitted to none of its size; null of less than three sizes.
        """
        base, fitted, runs = self.calibrated.base, self.calibrated.machine, self.calibrated.runs
        machines = dict(zip(PREDICTED, (base, replace(fitted, measured=()), fitted), strict=False))
        seconds = left_out(self.calibrated)
        unseen: list[Sequence[float | None]]
        unseen = [[*map(float, those)] for those in seconds] if seconds else [[None] * len(run.V) for run in runs]
        return [row for run, others in zip(runs, unseen, strict=True) for row in _points(run, machines, others)]

    @cached_property
    def parameters(self) -> list[dict[str, Any]]:
        """One row per figure that moved, in the order of the profile."""
        fit = self.calibrated.fit
        return [
            {
                "constant": constant.path,
                "dimension": constant.dimension,
                "base": constant.value,
                "base_kind": constant.kind,
                "value": fit.values[constant.path],
                "relative_error": fit.moved[constant.path],
            }
            for constant in self.calibrated.base.constants()
            if constant.path in fit.moved
        ]

    @cached_property
    def bands(self) -> list[dict[str, Any]]:
        """One row per band of sizes that was measured, then all of them: |predicted/measured - 1|, by each."""
        named = {name: [row for row in self.points if row["band"] == name] for name in BANDS}
        return [_band(name, inside) for name, inside in {**named, "all": self.points}.items() if inside]

    @property
    def verdict(self) -> str:
        """One line: how far off the predictions are now, and were."""
        every = self.bands[-1]
        moved, curves = len(self.parameters), sum(curve.source == self.source for curve in self.machine.measured)
        over = f", {every['fitted_median']:.1%} with {counted(curves, 'curve')}" if curves else ""
        unseen = every["left_out_median"]
        out = "" if unseen is None else f"; {unseen:.1%} at sizes that are left out"
        return (
            f"{counted(moved, 'figure')} fitted to {counted(every['points'], 'point')}: median error "
            f"{every['base_median']:.1%} before, {every['figures_median']:.1%} after{over}{out}"
        )

    @property
    def curves(self) -> list[dict[str, Any]]:
        """The curves of the fitted machine."""
        return [curve_record(curve) for curve in self.machine.measured]

    @property
    def resolved(self) -> dict[str, Any]:
        """What was fitted to what."""
        return {"base": self.base, "name": self.name, "runs": [_run(run) for run in self.calibrated.runs]}

    @property
    def files(self) -> list[tuple[str, str]]:
        """The base's file and the logs, each with its hash."""
        return [*inputs(self.document), *self.logs]

    @property
    def logs(self) -> list[tuple[str, str]]:
        """The logs, each with its hash."""
        return list(dict.fromkeys((run.log, run.sha256) for run in self.calibrated.runs))

    def to_yaml(self, folder: Path = Path()) -> str:
        """The profile, to stand in `folder`: what `-o profile.yaml` writes.

        It extends the base; the same logs and base give the same text there.
        """
        title = f"tpsim hw fit of {', '.join(name for name, _ in self.logs)}"
        source = {self.source: {"title": title, "sha256": [digest for _, digest in self.logs]}}
        lines = extending(folder, self.base, self.name, _comments(self), source)
        lines += ["levels:", *(line for level in _levels(self) for line in item(level))]
        curves = [fields_of(curve, self.machine.levels) for curve in self.machine.measured]
        lines += ["measured:", *(line for curve in curves for line in item(curve))] if curves else []
        return "\n".join(lines) + "\n"


# As a profile ----------------------------------------------------------------------------------------------------


def _comments(result: FitResult) -> Iterator[str]:
    yield result.verdict
    yield "|predicted/measured - 1|, median and 90th percentile:"
    yield f"  {'sizes':<8}  {'points':>6}  {result.base:>20}  {'figures':>16}  {'with curves':>16}  {'left out':>16}"
    for row in result.bands:
        was, figures, now, unseen = (
            "" if row[f"{key}_median"] is None else f"{row[f'{key}_median']:.1%} {row[f'{key}_p90']:.1%}"
            for key in PREDICTED
        )
        yield f"  {row['band']:<8}  {row['points']:>6}  {was:>20}  {figures:>16}  {now:>16}  {unseen:>16}".rstrip()
    for run in result.calibrated.runs:
        details = ", ".join(filter(None, [run.library, run.launch, f"{len(run.V)} points"]))
        yield f"measured: {run} ({details}) in {run.log}"
    yield from (f"warning: {text}" for text in result.warnings)


def _levels(result: FitResult) -> Iterable[dict[str, Any]]:
    """The base's levels with what moved put in: lists replace when a profile extends another, so all are repeated.

    A launch of a harness that the base lacks and the logs have is put in as well: its curve needs one of its own.
    """
    levels: dict[str, dict[str, Any]] = {level["name"]: level for level in result.document.data["levels"]}
    moved = {row["constant"]: row for row in result.parameters}
    for level in result.machine.levels:
        for constant in level.constants():
            row, (first, *keys) = moved.get(constant.path), constant.path.split(".")[2:]
            if first == "launch" and (len(level.launch) > 1 or row is None):
                keys, launch = keys or [DEFAULT], _by_harness(levels[level.name].get(first))
                if row is None and keys[0] in launch:
                    continue
                levels[level.name] = {**levels[level.name], first: launch}
            elif row is None:
                continue
            entry = _figure(constant, row, result)
            levels[level.name] = with_entry(levels[level.name], [first, *keys], entry)
    return levels.values()


def _by_harness(launch: Any) -> dict[str, Any]:
    """Launches as a profile writes them: none, one for every harness, or several by harness."""
    if launch is None:
        return {}
    return launch if isinstance(launch, dict) and VALUE not in launch else {DEFAULT: launch}


def _figure(constant: Constant, row: Mapping[str, Any] | None, result: FitResult) -> dict[str, Any]:
    """A figure as a profile writes it: what was measured if its row says that it moved, else the guess that it is."""
    if row is None:
        return {
            "value": show(constant.value, constant.dimension, DIGITS),
            "kind": constant.kind,
            "note": constant.note,
        }
    note = f"{show(row['base'], constant.dimension, DIGITS)} in {result.base}; +-{row['relative_error']:.1%}"
    return figure(constant.value, constant, result.source, note)


# How far off it is -----------------------------------------------------------------------------------------------


def band(V: float) -> str:
    """The band of a size.

    >>> band(65536), band(65537), band(2**30)
    ('floor', 'middle', 'plateau')
    """
    return next(name for name, most in BANDS.items() if not most < V)


PREDICTED = ("base", "figures", "fitted", "left_out")
"""By what points are predicted: the base, the figures that moved, the curves over them, and what saw none of them."""


def _points(
    run: MeasuredRun, machines: Mapping[str, Machine], unseen: Sequence[float | None]
) -> Iterator[dict[str, Any]]:
    """The points of a run in rows, each with what the machines predict, and a fit that has none of its size."""
    off = {key: run.off(machine) for key, machine in machines.items()}
    for at, (V, seconds, line) in enumerate(zip(run.V, run.seconds, run.lines, strict=True)):
        yield {
            "log": run.log,
            "line": line,
            "collective": run.kind,
            "ranks": run.ranks,
            "harness": run.launch,
            "algorithm": run.algorithm,
            "protocol": run.protocol,
            "logical_bytes": V,
            "band": band(V),
            "measured_s": seconds,
            **{f"{key}_s": seconds * float(np.exp(-by[at])) for key, by in off.items()},
            "left_out_s": unseen[at],
        }


def _band(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How far off a band's points are, relative to what was measured."""
    off = {
        key: np.abs(np.array([row[f"{key}_s"] / row["measured_s"] for row in rows]) - 1)
        for key in PREDICTED
        if rows[0][f"{key}_s"] is not None
    }
    return {
        "band": name,
        "points": len(rows),
        **{f"{key}_median": float(np.median(off[key])) if key in off else None for key in PREDICTED},
        **{f"{key}_p90": float(np.percentile(off[key], 90)) if key in off else None for key in PREDICTED},
    }


def _run(run: MeasuredRun) -> dict[str, Any]:
    return {
        "log": run.log,
        "collective": run.kind,
        "ranks": run.ranks,
        "hosts": run.nodes,
        "library": run.library or None,
        "harness": run.launch,
        "points": len(run.V),
    }


def source_key(word: str, base: Machine) -> str:
    """The key of a source that the base, which may have earlier fits, has not yet."""
    return next(key for at in count(1) if (key := f"{word}{'' if at == 1 else f'-{at}'}") not in base.sources)


def extending(
    folder: Path, base: str, name: str, comments: Iterable[str], sources: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """The first lines of a profile that stands in `folder` and extends the base."""
    extends = path_from(folder, base) if is_path(base) else base
    head = [f"# {line}".replace("\n", " ") for line in comments]
    head += ["tpsim: hardware/1", f"extends: {flow(extends)}", f"name: {flow(name)}", "sources:"]
    return [*head, *(f"  {key}: {flow(source)}" for key, source in sources.items())]


def figure(value: float, constant: Constant, source: str, note: str) -> dict[str, Any]:
    """A measured figure as a profile writes it."""
    now = show(value, constant.dimension, DIGITS)
    return {
        "value": float(now) if constant.dimension == "ratio" else now,
        "source": source,
        "kind": "measured",
        "note": note,
    }


def with_entry(fields: dict[str, Any], keys: Sequence[str], entry: Any) -> dict[str, Any]:
    """Fields of a profile with an entry at the path of these keys, merged with what stands there."""
    over = reduce(lambda inner, key: {key: inner}, reversed(keys), entry)
    return merge(fields, over)  # type: ignore[no-any-return]  # of two maps it is one


def item(part: Mapping[str, Any]) -> Iterator[str]:
    """A level, or a curve, as an item of a list."""
    first, *others = block(part)
    yield f"  - {first}"
    yield from (f"    {line}" for line in others)


def block(part: Mapping[str, Any]) -> Iterator[str]:
    """A map in YAML: maps of maps, and lists of maps, line by line, anything else on one line."""
    for key, value in part.items():
        if isinstance(value, dict) and any(isinstance(entry, dict) for entry in value.values()):
            yield f"{flow(key)}:"
            yield from (f"  {line}" for line in block(value))
        elif isinstance(value, list) and len(value) > 1 and all(isinstance(entry, dict) for entry in value):
            yield f"{flow(key)}:"
            yield from (f"  - {flow(entry)}" for entry in value)
        else:
            yield f"{flow(key)}: {flow(value)}"
