"""The JSON that nccl-tests writes with ``-J``, as a measured run."""

from __future__ import annotations

import json
import re
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from tpsim.calibrate.logs import nccl
from tpsim.calibrate.logs.rows import WRONG, LogRow, with_points
from tpsim.calibrate.run import Run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpsim.calibrate.logs.log import Log

NEEDED = {"args": list, "config": dict, "results": list}
LAST_VERSION = 3
"""Of the file format; later ones are read with a warning. Source: NVIDIA/nccl-tests, src/util.cu, July 2026."""


def read(log: Log) -> Run:
    """The one run in a file.

    Raises InputError for what cannot be trusted; a file that was not written to its end among it.
    """
    data = _parsed(log)
    rows = list(_rows(log, [row for row in data["results"] if isinstance(row, dict)]))
    if not rows:
        log.refuse("no-rows", "the run has no results", 0)
    total = data.get("out_of_bounds", {}).get("count", 0)
    if total:
        log.refuse("wrong-values", f"{total} values were wrong", 0, "mend that first: the times mean nothing")
    run, remarks = _run(log, data)
    version = data.get("version", LAST_VERSION)
    newer = [f"the file is of format {version}; tpsim knows {LAST_VERSION}"] * (version > LAST_VERSION)
    reported = (f"the library reported: {text}" for text in data.get("errors", ()) if text)
    warnings = (log.remark(1, text) for text in (*newer, *nccl.doubts(rows), *remarks, *reported))
    return with_points(log, nccl.TOOL, run, rows, warnings)


def _parsed(log: Log) -> dict[str, Any]:
    try:
        data = json.loads("\n".join(log.lines))
    except json.JSONDecodeError as error:
        remedy = "the run was stopped before the file was whole, or it is no JSON"
        message = f"the JSON breaks off or is wrong here: {error.msg}"
        log.refuse("bad-json", message, error.lineno, remedy, column=error.colno)
    for key, kind in NEEDED.items():
        if not isinstance(data.get(key), kind):
            log.refuse("not-nccl-json", f"{key} is not there", 0, "give the file that nccl-tests wrote with -J")
    return dict(data)


def _rows(log: Log, results: Sequence[Mapping[str, Any]]) -> Iterator[LogRow]:
    lines = [number for number, line in enumerate(log.lines, 1) for _ in re.finditer(r'"size"\s*:', line)]
    if len(lines) != len(results):  # the program writes the file as one line
        lines = [1] * len(results)
    for row, line in zip(results, lines, strict=True):
        halves = [row[key] for key in ("out_of_place", "in_place") if row.get(key)]
        if any(half.get("nwrong") for half in halves):
            log.refuse("wrong-values", f"values of {row.get('size')} bytes were wrong", 0, "mend that first")
        size = _number(log, row, "size", line)
        if not halves:
            log.refuse("no-time", f"{size} bytes have no result", line, column=1)
        if "cpu_time" in halves[0]:
            what = "the file holds CPU times: until calls returned, not until data arrived"
            log.refuse("cpu-times", what, line, "run without -C", column=1)
        time, counted = _number(log, halves[0], "time", line), halves[0].get("nwrong") is not None
        yield LogRow(
            int(size), line, [{"time": time, **({WRONG[0]: 0} if counted else {})}], not row.get("out_of_place")
        )


def _number(log: Log, row: Mapping[str, Any], key: str, line: int) -> float:
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        log.refuse("bad-number", f"{key} of a result is {json.dumps(value)}", line, column=1)
    return value


def _run(log: Log, data: Mapping[str, Any]) -> tuple[Run, list[str]]:
    """The run without its points, and remarks on its options."""
    config = data["config"]
    threads, per_thread = int(config.get("nthreads", 1)), int(config.get("ngpus", 1))
    processes = config.get("devices") or []
    if len({one.get("group") for one in processes}) > 1:
        nccl.several_groups(log, 0)
    ranks = max(1, len(processes)) * threads * per_thread
    if ranks == 1:
        nccl.one_rank(log, 0)
    program = PurePath(str(next(iter(data["args"]), ""))).name
    kind = nccl.collective(program)
    if kind is None:
        log.refuse("unknown-collective", f'"{program}" is no program of nccl-tests', 0, "args starts with the program")
    aggregated, blocking = int(config.get("aggregated_iterations", 1)), config.get("blocking_collectives") == "true"
    forced, remarks = nccl.way_of_running(map(str, data.get("env", ())), aggregated=aggregated, blocking=blocking)
    run = Run(
        kind,
        ranks,
        launch=nccl.launched(per_thread, int(config.get("graph", 0))),
        nodes=len({one.get("hostname") for one in processes}) or None,
        library=f"nccl {nccl.version(int(data['nccl_version']))}" if "nccl_version" in data else "",
        **forced,
    )
    return run, remarks
