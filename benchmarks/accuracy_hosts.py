"""What hosts make of a card on PCIe, as a part of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import hosts
from accuracy_figures import grouped
from accuracy_tables import datasheet, other_hosts, tables
from page import grid

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = "l40s-pcie"
CARD = "L40S"


HOSTS = """\
## GPUs on PCIe: one card, several hosts

Tables of `tests/data/measured_hosts.json`: the L40S of the scored host A in two more hosts and there again, and another
card. No figure of them stands in a profile; which profile predicts a host is said in `tests/data/hosts_set.yaml`, by
whoever had seen the tables. GB/s of all GPUs together, all-reduce, largest size:
"""

LAWS = """\
What a law says many GPUs reach, given what few of the same host reach: over measured less 1, in percent.
"""

REPEATED = """\
- **No law fits all hosts.** Where cards write to one another (C; E and G, below PCIe switches), each has a path of its
  own: `l40s-switch` and `rtx-pro-6000`. Where they stage in memory (A, B), eight reach together what four do, but for
  the slow run of A: `l40s-pcie`. Four passes from five GPUs on would fit that run, and miss B and the other by half.
  On F, two sockets without switches, NCCL's search settles on two channels of 15 GB/s (its pull request 2127); D, which
  does not tell its wiring, reaches as little.
- **The host decides.** An all-reduce of 512 MiB over 8 L40S takes 649 and 441 ms on A, 480 on B, 45 on C. Other hosts:
  four L40S below one switch reach 22 GB/s each, as two do (nccl issue 1202); RTX 5090 under two Xeon 8480 reach 35
  each by four and 28 by eight (1639).
- **What sets a host apart** stands in no datasheet. GPUs write to one another below a common switch, and two of them
  under AMD; else they stage in the receiver's memory (src/graph/paths.cc, src/transport/shm.cc). That is said to be
  slow where a socket of EPYC is less than four NUMA nodes (nccl-tests issue 74, nccl 1285), and where buffers of 4 MiB
  per channel leave the processor's cache (nccl 285; with 1 MiB eight RTX 4090 no longer slow down, 1530). Eight cards
  below one root read 73 GB/s from memory, below two 114 (the source of E). A to D tell none of this.
- **Host A does not repeat itself.** The same bytes in another dtype, all-gather and all-to-all from 64 KiB on, took
"""


def host_sections() -> Iterator[str]:
    """What hosts make of a card, laws of it, and what the shipped profiles predict."""
    here = [table for table in tables() if table.scored and table.machine == HOST]
    there = other_hosts()
    found = hosts.sums([*here, *there], f"{CARD}, host A")
    yield HOSTS.rstrip()
    yield grid(["host", *(f"{n} GPUs" for n in hosts.COUNTS)], hosts.sums_rows(found))
    yield LAWS.rstrip()
    several = {host: known for host, known in found.items() if len(known) > 1}
    yield grid(["law", "GPUs", *several], hosts.law_rows(several))
    again = hosts.repeated(here, [table for table in there if table.machine == HOST])
    off = ", ".join(f"{np.median(one):.1f} / {np.percentile(one, 90):.1f} % on {n}" for n, one in again.items())
    yield f"{REPEATED.rstrip()}\n  other times: off by {off} GPUs."
    points = [point for table in there for point in datasheet(table)]
    yield grouped(points, "host", lambda point: f"{point.table.why}: {point.table.machine}, {point.table.ranks} GPUs")
