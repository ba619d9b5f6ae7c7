"""A fitted machine as a profile: what changed and was measured, laid on the base, and how far off that is."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from tpsim.machine.curve_file import fields_of
from tpsim.machine.profile_file import DEFAULT
from tpsim.quantity.spec import is_path, path_from
from tpsim.quantity.units import show
from tpsim.question.save import flow

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tpsim.calibrate.fit import FitResult
    from tpsim.machine.profile import Constant

DIGITS = 5
SAYS_ONE = "value"
"""The key of a figure's value: a map that has it is one figure, not several by name."""


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
