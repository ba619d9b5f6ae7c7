"""The JSON that nccl-tests writes with ``-J``, as a measured run."""

from __future__ import annotations

import json
import re
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from tpsim.calibrate.logs import nccl_run
from tpsim.calibrate.logs.measured import Measured, Run, points_of, warning
from tpsim.calibrate.logs.nccl_text import MICRO, TOOL
from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpsim.calibrate.logs.log import Log

NEEDED = ("args", "config", "results")
LAST_VERSION = 3
"""Of the file format; later ones are read with a warning. Source: NVIDIA/nccl-tests, src/util.cu, July 2026."""


def read(log: Log) -> tuple[Measured, ...]:
    """The one run in a file.

    Raises InputError for what cannot be trusted; a file that was not written to its end among it.
    """
    data = _parsed(log)
    results = [row for row in data["results"] if isinstance(row, dict)]
    if not results:
        log.refuse("no-rows", "the run has no results", 0)
    _refuse_wrong(log, data, results)
    run = _run(log, data)
    lines = _lines(log, len(results))
    printed = [
        (_number(log, row, "size", line), _seconds(log, row, line), line)
        for row, line in zip(results, lines, strict=True)
    ]
    points, odd = points_of(log, TOOL, run, [(int(size), seconds, line) for size, seconds, line in printed])
    return (Measured(run, log.path, log.sha256, tuple(points), (*_warnings(log, data, results), *odd)),)


def _parsed(log: Log) -> dict[str, Any]:
    try:
        data = json.loads(log.text)
    except json.JSONDecodeError as error:
        place = log.place(error.lineno, error.colno, 1)
        remedy = "the run was stopped before the file was whole, or it is no JSON"
        raise InputError.one("bad-json", f"the JSON breaks off or is wrong here: {error.msg}", place, remedy) from None
    lacking = [key for key in NEEDED if not isinstance(data.get(key), dict if key == "config" else list)]
    if lacking:
        log.refuse("not-nccl-json", f"{lacking[0]} is not there", 0, "give the file that nccl-tests wrote with -J")
    return dict(data)


def _lines(log: Log, results: int) -> list[int]:
    """The line on which each result begins: all on the first one as the program writes the file."""
    found = [number for number, line in enumerate(log.lines, 1) for _ in re.finditer(r'"size"\s*:', line)]
    return found if len(found) == results else [1] * results


def _number(log: Log, row: Mapping[str, Any], key: str, line: int) -> float:
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError.one("bad-number", f"{key} of a result is {json.dumps(value)}", log.place(line, 1, 1))
    return value


def _half(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The figures to use: out of place where measured."""
    return row.get("out_of_place") or row.get("in_place")


def _seconds(log: Log, row: Mapping[str, Any], line: int) -> float:
    half = _half(row)
    if half is None:
        raise InputError.one("no-time", f"{row.get('size')} bytes have no result", log.place(line, 1, 1))
    if "cpu_time" in half:
        what = "the file holds CPU times: until calls returned, not until data arrived"
        raise InputError.one("cpu-times", what, log.place(line, 1, 1), "run without -C")
    return _number(log, half, "time", line) * MICRO


def _refuse_wrong(log: Log, data: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> None:
    for row in results:
        if any(half.get("nwrong") for key in ("out_of_place", "in_place") if (half := row.get(key))):
            log.refuse("wrong-values", f"values of {row.get('size')} bytes were wrong", 0, "mend that first")
    total = data.get("out_of_bounds", {}).get("count", 0)
    if total:
        log.refuse("wrong-values", f"{total} values were wrong", 0, "mend that first: the times mean nothing")


def _run(log: Log, data: Mapping[str, Any]) -> Run:
    config = data["config"]
    threads, per_thread = int(config.get("nthreads", 1)), int(config.get("ngpus", 1))
    processes = config.get("devices") or []
    if len({one.get("group") for one in processes}) > 1:
        log.refuse("several-groups", "several groups ran at once", 0, "measure one group at a time: links are shared")
    ranks = max(1, len(processes)) * threads * per_thread
    if ranks == 1:
        nccl_run.one_rank(log, 0)
    return Run(
        _collective(log, data),
        ranks,
        len({one.get("hostname") for one in processes}) or None,
        f"nccl {nccl_run.version(int(data['nccl_version']))}" if "nccl_version" in data else "",
        nccl_run.harness(per_thread, int(config.get("graph", 0))),
        **nccl_run.forced(_environment(data)),
    )


def _environment(data: Mapping[str, Any]) -> Iterator[str]:
    return (str(one) for one in data.get("env", ()))


def _collective(log: Log, data: Mapping[str, Any]) -> str:
    """By the name of the program that ran."""
    name = PurePath(str(next(iter(data["args"]), ""))).name
    match = nccl_run.PROGRAM.search(name)
    if match is None:
        log.refuse("unknown-collective", f'"{name}" is no program of nccl-tests', 0, "args starts with the program")
    return nccl_run.collective(match[1])


def _warnings(log: Log, data: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    version = data.get("version", LAST_VERSION)
    if version > LAST_VERSION:
        yield warning(log, 1, f"the file is of format {version}; tpsim knows {LAST_VERSION}")
    if all(not row.get("out_of_place") for row in results):
        yield warning(log, 1, "measured in place only: taken as if out of place")
    if all((half := _half(row)) is not None and half.get("nwrong") is None for row in results):
        yield warning(log, 1, "values were not checked")
    config = data["config"]
    blocking = config.get("blocking_collectives") == "true"
    yield from nccl_run.way_of_running(
        log, 1, aggregated=int(config.get("aggregated_iterations", 1)), blocking=blocking
    )
    yield from nccl_run.not_alike(log, 1, _environment(data))
    yield from (warning(log, 1, f"the library reported: {text}") for text in data.get("errors", ()) if text)
