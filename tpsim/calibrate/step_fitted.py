"""A machine fitted to measured steps: which shares moved and by how much, what steps could not tell, its profile."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import exp, expm1, inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tpsim.calibrate import run_list
from tpsim.calibrate.fitted import block, extending, figure, source_key, with_entry
from tpsim.calibrate.shares import LAUNCH, SHARES, WHOLE, MovedFigures
from tpsim.quantity.spec import Document, is_path
from tpsim.quantity.units import show
from tpsim.question.inputs import inputs
from tpsim.report.answer import Answer, noted
from tpsim.report.numbers import counted
from tpsim.report.record import Bytes, Of, Record, Seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpsim.calibrate.logs.log import Log
    from tpsim.calibrate.run_list import Listed
    from tpsim.machine.evidence import SharesFields
    from tpsim.machine.parts import Machine

SOURCE = "runs"
"""The key of a profile's source that its list of runs has."""

HARDLY = 0.9
"""A figure whose deviation is still so much of what it was before is held by what runs of others say."""

FAR = 2.0
"""Deviations of a run about its set from which on figures of chips do not explain what it took."""


@dataclass(frozen=True, slots=True)
class StepRow(Record):
    """A measured step, and what base and fitted machine say of it.

    left_out_s  what a machine says that is fitted to the other runs alone; null of a single one
    """

    told = ("line", "scenario", "measured_s", "base_s", "fitted_s", "left_out_s", "measured_bytes", "peak_bytes")

    listed: Listed
    base_s: Seconds
    fitted_s: Seconds
    peak_bytes: Bytes
    left_out_s: Seconds | None = None

    line = Of[int]("listed.scenario.place.line", "where it stands in the list")
    scenario = Of[str]("listed.scenario.text", "as the list names it")
    measured_s = Of[Seconds]("listed.seconds", "of a step")

    @property
    def named(self) -> str:
        """The scenario as it is named here, not from the list's folder."""
        cell = self.listed.scenario
        return str(run_list.folder(cell.place.file) / cell.text) if is_path(cell.text) else cell.text

    measured_bytes = Of["Bytes | None"]("listed.peak_bytes", "of a chip at its peak; null if it was not measured")


@dataclass(frozen=True)
class StepFitResult(Answer):
    """A machine fitted to steps.

    base     how the request names the machine that it started from; `document` is its file
    starts   figure -> its value before: shares of peak, and seconds of a launch where the scenarios state one
    shares    by how much they moved
    scatter  how shares scatter between published runs, which held them
    """

    schema = "tpsim.hw-fit-runs/1"
    told = ("verdict", "parameters", "undetermined", "rows")
    table = "rows"

    name: str
    base: str
    document: Document
    machine: Machine
    log: Log
    rows: tuple[StepRow, ...]
    starts: Mapping[str, float]
    shares: MovedFigures
    scatter: SharesFields

    assumptions = noted("remarks", "what the runs could not tell, and what no figure of a chip explains")

    @cached_property
    def parameters(self) -> list[dict[str, Any]]:
        """One row per figure that moved: before and after, and one deviation of each, relative."""
        by = self.shares
        return [
            {
                "figure": name,
                "base": start,
                "value": min(start * exp(by.by[name]), WHOLE if name in SHARES else inf),
                "deviation_before": expm1(by.before[name]),
                "deviation": expm1(by.after[name]),
            }
            for name, start in self.starts.items()
            if name in by.by
        ]

    @property
    def undetermined(self) -> list[str]:
        """Figures that the runs cannot tell: those that do not matter to them stay, others follow what is known."""
        return [
            name
            for name in self.starts
            if name not in self.shares.by or self.shares.after[name] > HARDLY * self.shares.before[name]
        ]

    @property
    def source(self) -> str:
        """The key of the profile's source; the base may have earlier fits."""
        return source_key(SOURCE, self.machine)

    @property
    def verdict(self) -> str:
        """One line: how far off steps are now, and were."""
        was, now, unseen = (self._off(key) for key in ("base_s", "fitted_s", "left_out_s"))
        moved = ", ".join(
            f"{row['figure']} {shown(row['figure'], row['base'])} -> {shown(row['figure'], row['value'])}"
            for row in self.parameters
        )
        steps = counted(len(self.rows), "step")
        out = "" if unseen is None else f"; {unseen:.1%} where each is left out"
        return f"{moved or 'nothing moved'}: {steps} {was:.1%} off before, {now:.1%} after (mean){out}"

    def _off(self, key: str) -> float | None:
        """How far off runs are on average; None where nothing says so of them."""
        told = [abs(row[key] / row.measured_s - 1) for row in self.rows if row[key] is not None]
        return float(np.mean(told)) if told else None

    @property
    def held(self) -> str:
        """What held the figures."""
        seen = self.machine.chip.generation in self.scatter.known
        among = f"{self.scatter.sets} sets of published runs" + ("" if seen else ", and between generations of chips")
        return f"by how shares differ among {among}; a run scatters about its set by {self.scatter.noise:.1%}"

    @property
    def resolved(self) -> dict[str, Any]:
        """What was fitted to what."""
        return {"base": self.base, "name": self.name, "runs": self.log.path}

    @property
    def files(self) -> list[tuple[str, str]]:
        """The base's file and the list, each with its hash."""
        return [*inputs(self.document), (self.log.path, self.log.sha256)]

    @cached_property
    def remarks(self) -> tuple[str, ...]:
        """What to know before the fit is trusted."""
        return tuple(_remarks(self))

    def to_yaml(self, folder: Path = Path()) -> str:
        """The profile, to stand in `folder`; it extends the base. The same list and base give the same text there."""
        source = {self.source: {"title": f"tpsim hw fit --runs {self.log.path}", "sha256": [self.log.sha256]}}
        lines = extending(folder, self.base, self.name, _comments(self), source)
        chip: dict[str, Any] = {}
        for path, entry in _figures(self).items():
            chip = with_entry(chip, path.split(".")[1:], entry)
        lines += ["chip:", *(f"  {line}" for line in block(chip))] if chip else []
        return "\n".join(lines) + "\n"


def _comments(result: StepFitResult) -> Iterator[str]:
    yield result.verdict
    for row in result.rows:
        seconds = ", ".join(
            f"{word} {_s(seconds)}"
            for word, seconds in (
                ("measured", row.measured_s),
                ("before", row.base_s),
                ("now", row.fitted_s),
                ("left out", row.left_out_s),
            )
            if seconds is not None
        )
        yield f"line {row.line}, {row.scenario}: {seconds}"
    yield f"held {result.held}"
    yield from result.remarks


def _figures(result: StepFitResult) -> dict[str, dict[str, Any]]:
    """The constants that moved, by their paths, as a profile writes them."""
    own, figures = {constant.path: constant for constant in result.machine.chip.constants()}, {}
    for row in result.parameters:
        for path in SHARES.get(row["figure"], ()):
            value = min(WHOLE, own[path].value * row["value"] / row["base"])
            note = f"{own[path].value:g} in {result.base}; +-{row['deviation']:.1%}"
            figures[path] = figure(value, own[path], result.source, note)
    return figures


def _remarks(result: StepFitResult) -> Iterator[str]:
    """What the runs could not tell, what is of no machine, and what no figure of a chip explains."""
    shares, list_ = result.shares, result.log.path
    if stay := [name for name in result.undetermined if name not in shares.by]:
        yield f"of no matter to these runs, and as {result.base} has them: {', '.join(stay)}"
    if hardly := [name for name in result.undetermined if name in shares.by]:
        yield f"the runs hardly tell, so that what is known of others holds: {', '.join(hardly)}"
    if LAUNCH in shares.by:
        seconds = result.starts[LAUNCH] * exp(shares.by[LAUNCH])
        yield f"a launch is of a framework's host, no machine's: set assume.kernel_launch={_s(seconds)} in scenarios"
    for row in result.rows:
        off = row.fitted_s / row.measured_s - 1
        if abs(off) > FAR * result.scatter.noise:
            yield f"{list_}:{row.line}: {row.scenario} is still {off:+.1%} off, which no share of peak explains"
    if ratios := [row.peak_bytes / row.measured_bytes for row in result.rows if row.measured_bytes]:
        yield (
            f"peaks of memory move nothing: planned over measured {min(ratios):.3g} to {max(ratios):.3g}; what a stack "
            "keeps is practice.keeps, what stands beside arrays assume.memory"
        )


def _s(seconds: float) -> str:
    return show(float(f"{seconds:.3g}"), "seconds")


def shown(name: str, value: float) -> str:
    """A share, or seconds of a launch."""
    return _s(value) if name == LAUNCH else f"{value:.3g}"
