"""What nccl-tests says of a run, in its tables and in its JSON: collective, library, how calls were made."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NoReturn

from tpsim.machine.algorithms import NCCL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tpsim.calibrate.logs.log import Log
    from tpsim.calibrate.logs.rows import LogRow

TOOL = "nccl-tests"
PROGRAM = re.compile(r"^(?!# Collective test concluded).*\b(\w+)_perf\b")
FORCED = re.compile(r"NCCL_(ALGO|PROTO)(?: set by environment to |=)\s*([\w^,;:]+)")
KEYS: Mapping[str, str] = {"ALGO": "algorithm", "PROTO": "protocol"}

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


def way_of_running(texts: Iterable[str], *, aggregated: int, blocking: bool) -> tuple[dict[str, Any], list[str]]:
    """Algorithm and protocol that the environment forced, in tpsim's names where it has one; remarks on options.

    texts  in which the environment may stand

    Remarked upon is what changes the meaning of a time, and a forced algorithm that has only a near relative here.
    """
    forced = [(match[1], match[2]) for text in texts for match in FORCED.finditer(text)]
    words = {KEYS[key]: NCCL.get(word.lower(), word.lower()) for key, word in forced}
    remarks = [f"{aggregated} calls were launched together: launch is paid by all of them at once"] * (aggregated > 1)
    remarks += ["each call was waited for (-z): times hold the wait too"] * blocking
    for word in dict.fromkeys(word for key, word in forced if key == "ALGO" and word.lower() in INSIDE_NODES):
        near, way = NCCL[word.lower()], INSIDE_NODES[word.lower()]
        remarks.append(f"{word} is taken for {near}, but inside nodes NCCL then goes {way}")
    return words, remarks


def several_groups(log: Log, line: int) -> NoReturn:
    """Refuse groups that shared the links."""
    log.refuse("several-groups", "several groups ran at once", line, "measure one group at a time: links are shared")


def one_rank(log: Log, line: int) -> NoReturn:
    """Refuse a run that moved nothing."""
    log.refuse("one-rank", "the run has one rank: nothing moved", line, "under mpirun, build nccl-tests with MPI=1")
