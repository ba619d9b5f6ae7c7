"""What nccl-tests says of a run, in its text as in the JSON of ``-J``; and the runs of the latter."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from pathlib import PurePath
from typing import Any, NoReturn

from tpsim.calibrate.logs.log import WRONG, Log, LogRow, with_points
from tpsim.calibrate.run import MeasuredRun
from tpsim.machine.algorithms import NCCL

TOOL = "nccl-tests"
PROGRAM = re.compile(r"^(?!# Collective test concluded).*\b(\w+)_perf(?:_mpi)?\b")
"""A program's name; built with MPI for a container it has a suffix."""
FORCED = re.compile(r"NCCL_(ALGO|PROTO)(?: set by environment to |=)\s*[\"']?([\w^,;:]+)")
KEYS: Mapping[str, str] = {"ALGO": "algorithm", "PROTO": "protocol"}

MANY_CALLS = 20
"""That nccl-tests times, unless told otherwise."""

INSIDE_NODES: Mapping[str, str] = {"collnetdirect": "straight from each to each", "collnetchain": "along chains"}
"""How NCCL goes inside nodes whose network sums, where tpsim goes as the machine offers: NCCL, src/graph/tuning.cc."""

NAMES: Mapping[str, str] = {"alltoall": "all_to_all", "sendrecv": "permute"}
"""Programs that tpsim calls by another name, less ``_perf``."""


def doubts(rows: Sequence[LogRow]) -> Iterator[str]:
    """What to know of rows before trusting them."""
    if all(row.in_place for row in rows):
        yield "measured in place only: taken as if out of place"
    if all(row.unchecked for row in rows):
        yield "values were not checked"


def collective(text: str) -> str | None:
    """What tpsim calls the collective whose program a text names; None if it names none."""
    match = PROGRAM.search(text)
    return NAMES.get(match[1], match[1]) if match else None


def version(code: int) -> str:
    """NCCL's version by its number; the scheme changed with 2.9.

    >>> version(22703), version(2708)
    ('2.27.3', '2.7.8')
    """
    thousand = 10000 if code >= 10000 else 1000  # noqa: PLR2004  # the scheme's own
    return f"{code // thousand}.{code % thousand // 100}.{code % 100}"


def launched(devices_per_thread: int, graph: int) -> str:
    """The harness: launches captured in a graph, one thread that launches on several devices, a thread per device."""
    return "graph" if graph else "process" if devices_per_thread > 1 else "threads"


def way_of_running(
    texts: Iterable[str], *, calls: int, warmed: int, aggregated: int, blocking: bool
) -> tuple[dict[str, Any], list[str]]:
    """Algorithm and protocol that the environment forced, in tpsim's names where it has one; remarks on options.

    texts   in which the environment may stand
    calls   timed for each size; warmed: before them; aggregated: launched together

    Remarked upon is what changes the meaning of a time, and a forced algorithm that has only a near relative here.
    """
    forced = [(match[1], match[2]) for text in texts for match in FORCED.finditer(text)]
    words = {KEYS[key]: NCCL.get(word.lower(), word.lower()) for key, word in forced}
    remarks = [f"{aggregated} calls were launched together: launch is paid by all of them at once"] * (aggregated > 1)
    remarks += ["each size was timed by a single call (-n 1): times scatter"] * (calls == 1)
    remarks += ["no call came before those timed (-w 0): times hold what the first ones set up"] * (warmed == 0)
    remarks += ["each call was waited for (-z): times hold the wait too"] * blocking
    for word in dict.fromkeys(word for key, word in forced if key == "ALGO" and word.lower() in INSIDE_NODES):
        near, way = NCCL[word.lower()], INSIDE_NODES[word.lower()]
        remarks.append(f"{word} is taken for {near}, but inside nodes NCCL then goes {way}")
    return words, remarks


def several_groups(log: Log, line: int) -> NoReturn:
    """Refuse groups that shared the links."""
    log.refuse("several-groups", "several groups ran at once", line, "measure one group at a time: links are shared")


def hosts(log: Log, line: int, names: Iterable[str]) -> int:
    """Hosts of ranks, or of processes that have as many each; `names` has a host for each.

    Raises InputError if some have more than others: tpsim lays as many on each, and would lay these elsewhere.
    """
    counts = Counter(names)
    if len({*counts.values()}) > 1:
        listed = ", ".join(f"{many} on {host}" for host, many in counts.items())
        log.refuse("uneven-hosts", f"hosts have unequal shares: {listed}", line, "measure as many ranks on each host")
    return len(counts)


def one_rank(log: Log, line: int) -> NoReturn:
    """Refuse a run that moved nothing."""
    log.refuse("one-rank", "the run has one rank: nothing moved", line, "under mpirun, build nccl-tests with MPI=1")


NEEDED = {"args": list, "config": dict, "results": list}
NUMBERS = ("nthreads", "ngpus", "graph", "iterations", "warmup_iters", "aggregated_iterations")
"""Whole numbers of ``config``."""
LAST_VERSION = 3
"""Of the file format; later ones are read with a warning. Source: NVIDIA/nccl-tests, src/util.cu, July 2026."""


def read_json(log: Log) -> MeasuredRun:
    """The one run in a file.

    Raises InputError for what cannot be trusted; a file that was not written to its end among it.
    """
    data = _parsed(log)
    rows = list(_rows(log, data["results"]))
    if not rows:
        log.refuse("no-rows", "the run has no results", 0)
    total = data.get("out_of_bounds", {}).get("count", 0)
    if total:
        log.refuse("wrong-values", f"{total} values were wrong", 0, "mend that first: the times mean nothing")
    run, remarks = _run(log, data)
    version = data.get("version", LAST_VERSION)
    newer = [f"the file is of format {version}; tpsim knows {LAST_VERSION}"] * (version > LAST_VERSION)
    reported = (f"the library reported: {text}" for text in data.get("errors", ()) if text)
    warnings = (log.remark(1, text) for text in (*newer, *doubts(rows), *remarks, *reported))
    return with_points(log, TOOL, run, rows, warnings)


def _parsed(log: Log) -> dict[str, Any]:
    try:
        data = json.loads("\n".join(log.lines))
    except json.JSONDecodeError as error:
        remedy = "the run was stopped before the file was whole, or it is no JSON"
        message = f"the JSON breaks off or is wrong here: {error.msg}"
        log.refuse("bad-json", message, error.lineno, remedy, column=error.colno)
    for key, kind in NEEDED.items():
        if not isinstance(data.get(key), kind):
            log.refuse("not-nccl-json", f"{key} is not there", 0, WRITTEN)
    for key, value, kind in _typed(data):
        if not isinstance(value, kind) or isinstance(value, bool):
            log.refuse("not-nccl-json", f"{key} is {json.dumps(value)[:40]}", 0, WRITTEN)
    return dict(data)


WRITTEN = "give the file that nccl-tests wrote with -J"


def _typed(data: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """What a file states that later code reads without asking: where it stands, its value, what it has to be."""
    config = data["config"]
    own = {"env": list, "errors": list, "out_of_bounds": dict, "version": int, "nccl_version": int}
    yield from ((key, data[key], kind) for key, kind in own.items() if key in data)
    yield from ((f"config.{key}", config[key], int) for key in NUMBERS if key in config)
    yield "config.devices", config.get("devices", []), list
    for device in config.get("devices", []) if isinstance(config.get("devices"), list) else ():
        yield "a device", device, dict
        if isinstance(device, dict):
            yield from ((f"{key} of a device", device[key], kind) for key, kind in DEVICE.items() if key in device)
    for row in data["results"]:
        yield "a result", row, dict
        if isinstance(row, dict):
            yield from ((f"{key} of a result", row[key], dict | None) for key in HALVES if key in row)


DEVICE = {"group": int, "hostname": str}
HALVES = ("out_of_place", "in_place")


def _rows(log: Log, results: Sequence[Mapping[str, Any]]) -> Iterator[LogRow]:
    lines = [number for number, line in enumerate(log.lines, 1) for _ in re.finditer(r'"size"\s*:', line)]
    if len(lines) != len(results):  # the program writes the file as one line
        lines = [1] * len(results)
    for row, line in zip(results, lines, strict=True):
        halves = [row[key] for key in HALVES if row.get(key)]
        if any(half.get("nwrong") for half in halves):
            log.refuse("wrong-values", f"values of {row.get('size')} bytes were wrong", 0, "mend that first")
        size = _number(log, row, "size", line)
        if not halves:
            log.refuse("no-time", f"{size} bytes have no result", line, column=1)
        if "cpu_time" in halves[0]:
            problem = "the file holds CPU times: until calls returned, not until data arrived"
            log.refuse("cpu-times", problem, line, "run without -C", column=1)
        time, counted = _number(log, halves[0], "time", line), halves[0].get("nwrong") is not None
        yield LogRow(
            int(size), line, [{"time": time, **({WRONG[0]: 0} if counted else {})}], not row.get("out_of_place")
        )


def _number(log: Log, row: Mapping[str, Any], key: str, line: int) -> float:
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        log.refuse("bad-number", f"{key} of a result is {json.dumps(value)}", line, column=1)
    return value


def _run(log: Log, data: Mapping[str, Any]) -> tuple[MeasuredRun, list[str]]:
    """The run without its points, and remarks on its options."""
    config = data["config"]
    threads, per_thread = int(config.get("nthreads", 1)), int(config.get("ngpus", 1))
    processes = config.get("devices") or []
    if len({process.get("group") for process in processes}) > 1:
        several_groups(log, 0)
    ranks = max(1, len(processes)) * threads * per_thread
    if ranks == 1:
        one_rank(log, 0)
    program = PurePath(str(next(iter(data["args"]), ""))).name
    kind = collective(program)
    if kind is None:
        log.refuse("unknown-collective", f'"{program}" is no program of nccl-tests', 0, "args starts with the program")
    aggregated, blocking = int(config.get("aggregated_iterations", 1)), config.get("blocking_collectives") == "true"
    calls, warmed = int(config.get("iterations", MANY_CALLS)), int(config.get("warmup_iters", MANY_CALLS))
    forced, remarks = way_of_running(
        map(str, data.get("env", ())), calls=calls, warmed=warmed, aggregated=aggregated, blocking=blocking
    )
    run = MeasuredRun(
        kind,
        ranks,
        launch=launched(per_thread, int(config.get("graph", 0))),
        nodes=hosts(log, 0, (process.get("hostname") for process in processes)) or None,
        library=f"nccl {version(int(data['nccl_version']))}" if "nccl_version" in data else "",
        **forced,
    )
    return run, remarks
