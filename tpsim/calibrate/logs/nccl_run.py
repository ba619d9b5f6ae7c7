"""What nccl-tests says of a run in its header: program, devices, library, how calls were launched, what was forced."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from tpsim.calibrate.logs.measured import NCCL_NAMES, warning
from tpsim.machine.algorithms import NCCL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpsim.calibrate.logs.log import Log

PROGRAM = re.compile(r"^(?!# Collective test concluded).*\b(\w+)_perf\b")
DEVICE = re.compile(r"#\s+Rank\s+(\d+)(?: Group\s+(\d+))? Pid\s+(\d+)(?: on\s+(\S+))? device")
CUT_LIST = re.compile(r"\.\.\.$")
FORCED = re.compile(r"NCCL_(ALGO|PROTO)(?: set by environment to |=)\s*([\w^,;:]+)")

INSIDE_NODES: Mapping[str, str] = {"collnetdirect": "straight from each to each", "collnetchain": "along chains"}
"""How NCCL goes inside nodes whose network sums, where tpsim goes as the machine offers: NCCL, src/graph/tuning.cc."""

KEYS: Mapping[str, str] = {"ALGO": "algorithm", "PROTO": "protocol"}

GRAPH, PROCESS, THREADS = "graph", "process", "threads"
"""Harnesses: launches captured in a graph; one thread that launches on several devices; a thread per device."""


def harness(devices_per_thread: int, graph: int) -> str:
    """How the calls of a run were launched."""
    return GRAPH if graph else PROCESS if devices_per_thread > 1 else THREADS


def version(code: int) -> str:
    """NCCL's version by its number; the scheme changed with 2.9.

    >>> version(22703), version(2708)
    ('2.27.3', '2.7.8')
    """
    thousand = 10000 if code >= 10000 else 1000  # noqa: PLR2004  # the scheme's own
    return f"{code // thousand}.{code % thousand // 100}.{code % 100}"


def collective(program: str) -> str:
    """What tpsim calls the collective of a program: ``alltoall`` is all_to_all."""
    return NCCL_NAMES.get(program, program)


def forced(texts: Iterator[str]) -> dict[str, str]:
    """Algorithm and protocol that the environment forced, in tpsim's names where it has one."""
    found: dict[str, str] = {}
    for match in (match for text in texts for match in FORCED.finditer(text)):
        word = match[2].lower()
        found[KEYS[match[1]]] = NCCL.get(word, word)
    return found


def not_alike(log: Log, line: int, texts: Iterator[str]) -> Iterator[str]:
    """Remarks on forced algorithms that tpsim has no twin of, only a near relative."""
    words = dict.fromkeys(match[2] for text in texts for match in FORCED.finditer(text) if match[1] == "ALGO")
    for word in words:
        if word.lower() in INSIDE_NODES:
            near, way = NCCL[word.lower()], INSIDE_NODES[word.lower()]
            yield warning(log, line, f"{word} is taken for {near}, but inside nodes NCCL then goes {way}")


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices of a run: ranks, and hosts that they are on; None if the list does not name them."""

    ranks: int
    hosts: int | None


def devices(log: Log, first: int, last: int, per_process: int) -> Devices | None:
    """The devices listed within those lines of a log; None if there are none.

    per_process  devices of one process; a process whose list is too long to print whole ends it with dots

    Raises InputError if some are missing, if there is only one, or if several groups ran at once.
    """
    found = [(number, match) for number in range(first, last + 1) if (match := DEVICE.match(log.lines[number - 1]))]
    if not found:
        return None
    cut = any(CUT_LIST.search(log.lines[number - 1]) for number in range(first, last + 1))
    ranks = {int(match[1]) for _, match in found}
    processes = {(match[3], match[4]) for _, match in found}
    count = len(processes) * per_process if cut else len(ranks)
    line = found[-1][0]
    if not cut and max(ranks) + 1 != count:
        log.refuse("devices-missing", f"{count} devices are listed, the last one is rank {max(ranks)}", line)
    if len({match[2] for _, match in found}) > 1:
        log.refuse(
            "several-groups", "several groups ran at once", line, "measure one group at a time: links are shared"
        )
    if count == 1:
        one_rank(log, line)
    hosts = {match[4] for _, match in found}
    return Devices(count, None if None in hosts else len(hosts))


def one_rank(log: Log, line: int) -> NoReturn:
    """Refuse a run that moved nothing."""
    log.refuse("one-rank", "the run has one rank: nothing moved", line, "under mpirun, build nccl-tests with MPI=1")


def way_of_running(log: Log, line: int, *, aggregated: int, blocking: bool) -> Iterator[str]:
    """Remarks on options that change what a time means."""
    if aggregated > 1:
        yield warning(log, line, f"{aggregated} calls were launched together: launch is paid by all of them at once")
    if blocking:
        yield warning(log, line, "each call was waited for (-z): times hold the wait too")
