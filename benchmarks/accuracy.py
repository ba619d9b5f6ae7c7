"""Scores predicted collective times against the published measurements of tests/data, and writes docs/accuracy.md.

    python benchmarks/accuracy.py            writes the page
    python benchmarks/accuracy.py --check    says whether the page is what a fresh run writes

Which tables count stands in `accuracy_tables`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from accuracy_figures import KB, band, figures, grouped, spread
from accuracy_generations import as_hopper, generation, generation_sections, held_out_sections
from accuracy_hosts import HOST, host_sections
from accuracy_tables import (
    FEW,
    Based,
    Measured,
    Point,
    carried,
    datasheet,
    few_points,
    held_out,
    load_once,
    more_ranks,
    shipped,
    source,
    tables,
    two_points,
)
from page import ROOT, grid, written
from shared import fitted, scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PAGE = ROOT / "docs" / "accuracy.md"

# What the tables themselves scatter ------------------------------------------------------------------------------


def between(table: Measured) -> list[Point]:
    """Each size but the ends from the two beside it: the profile's time by their measured/predicted, interpolated."""
    off = np.log(1 + np.array([point.error for point in datasheet(table)]))
    x = np.log(table.sizes)
    here = np.arange(1, len(x) - 1)
    share = (x[here] - x[here - 1]) / (x[here + 1] - x[here - 1])
    errors = np.exp(off[here] - off[here - 1] - share * (off[here + 1] - off[here - 1])) - 1
    return [Point(table, float(table.sizes[at]), float(error)) for at, error in zip(here, errors, strict=True)]


SCATTER = """\
## What the tables themselves scatter

Each size from the two sizes beside it, both measured: the profile's time by what these were off, interpolated. That
knows all but one size of a table. A fit to eight of 21 sizes cannot be expected to come nearer; a goal that asks for
less asks for less than the tables scatter.
"""


def scatter(measured: Sequence[Measured]) -> Iterator[str]:
    """How far off a size is that lies between two measured ones."""
    scored = [table for table in measured if table.scored and table.nodes == 1]
    points = [point for table in scored for point in between(table)]
    plain = [point for point in points if point.table.machine != HOST]
    yield SCATTER.rstrip()
    rows = [["all", str(len(points)), spread(points)], ["without L40S on PCIe", str(len(plain)), spread(plain)]]
    for name in dict.fromkeys((table.machine, table.ranks) for table in scored):
        own = [point for point in points if (point.table.machine, point.table.ranks) == name]
        rows.append([f"{name[0]}, {name[1]} ranks", str(len(own)), spread(own)])
    yield grid(["between two measured sizes", "points", "median / p90"], rows)


# Cross-validation ------------------------------------------------------------------------------------------------


def left_out(measured: Sequence[Measured], same: Callable[[Measured], str]) -> Iterator[tuple[str, list[Based]]]:
    """Per group its tables, each with its profile, whose shape constants were fitted to all the other groups."""
    for name in dict.fromkeys(map(same, measured)):
        rest = [table for table in measured if same(table) != name]
        held = [table for table in measured if same(table) == name]
        yield name, _shaped(rest, held)


def _shaped(rest: Sequence[Measured], held: Sequence[Measured]) -> list[Based]:
    seen = [
        (load_once(name), [table.run() for table in rest if table.machine == name])
        for name in dict.fromkeys(table.machine for table in rest)
    ]
    factors = fitted(seen).values
    return [(table, scaled(load_once(table.machine), factors)) for table in held]


# The page --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gate:
    """A goal: median and 90th percentile of the errors' size, in percent."""

    name: str
    points: Sequence[Point]
    gate: tuple[float, float]
    aim: tuple[float, float]

    def row(self) -> list[str]:
        """The goal and how it is met, with and without the host-staged boxes."""
        plain = [point for point in self.points if point.table.machine != HOST]
        median, high = figures(self.points)[:2]
        met = "yes" if median <= self.gate[0] and high <= self.gate[1] else "no"
        aimed = "yes" if median <= self.aim[0] and high <= self.aim[1] else "no"
        goals = [f"{one[0]:g} / {one[1]:g}" for one in (self.gate, self.aim)]
        return [self.name, spread(self.points), goals[0], met, goals[1], aimed, spread(plain)]


def datasheet_sections(measured: Sequence[Measured]) -> Iterator[str]:
    """What the shipped profiles predict."""
    scored = [table for table in measured if table.scored]
    inside = [point for table in scored if table.nodes == 1 for point in datasheet(table)]
    across = [point for table in scored if table.nodes > 1 for point in datasheet(table)]
    yield "## Datasheet profiles, one node"
    for what, same in (
        ("machine", lambda point: point.table.machine),
        ("collective", lambda point: point.table.kind),
        ("ranks", lambda point: str(point.table.ranks)),
        ("launch", lambda point: point.table.launch or "not stated"),
    ):
        yield grouped(inside, what, same)
    yield "## Datasheet profiles, across nodes"
    yield grouped(across, "machine", lambda point: f"{point.table.machine}, {point.table.nodes} nodes")
    yield grouped(across, "all", lambda _: "all")
    small = spread([point for point in across if point.size <= 2 * KB])
    yield f"Smallest sizes only, to 2 KiB, where a network's own switch of protocols does not show: {small} %."
    yield "## Reported, not scored"
    beside = [point for table in measured if not table.scored for point in datasheet(table)]
    yield grouped(beside, "table", lambda point: f"{point.table.name}: {point.table.why}")


Goal = tuple[tuple[float, float], tuple[float, float]]
"""A gate and an aim."""


def gates(based: Sequence[Based], goals: Sequence[Goal]) -> Iterator[Gate]:
    """The goals on one node that each table has by itself: of a datasheet, of its plateau, of few points of it."""
    plain = [point for one in based for point in datasheet(*one)]
    plateau = [point for point in plain if band(point) == "plateau"]
    two, few = ([point for one in based for point in fitted_to(*one)] for fitted_to in (two_points, few_points))
    yield Gate("datasheet only, all sizes", plain, *goals[0])
    yield Gate("datasheet only, plateau", plateau, *goals[1])
    yield Gate("two measured points", two, *goals[2])
    yield Gate(f"fitted on {FEW} points, scored on the others", few, *goals[3])


SEEN_GOALS: Sequence[Goal] = (
    ((20, 40), (15, 35)),
    ((8, 15), (5, 10)),
    ((7, 20), (5, 16)),
    ((5, 13), (4, 11)),
)
UNSEEN_GOALS: Sequence[Goal] = (((15, 35), (15, 35)), ((5, 12), (5, 12)), ((7, 20), (5, 16)), ((4, 14), (3, 12)))
"""Where no chip of the generation was measured before."""


NEWEST = "blackwell"
"""The generation whose tables no shape constant was ever fitted to, but for its latencies."""


@cache
def unseen() -> list[tuple[str, list[Based]]]:
    """Per generation the tables of one node, each with what its profile would be had none of them been measured."""
    scored = [table for table in tables() if table.scored and table.nodes == 1]
    newest = [(table, as_hopper(table)) for table in held_out() if table.nodes == 1]
    return [*left_out(scored, generation), (NEWEST, newest)]


UNSEEN_HEAD = """\
With one generation of chips left out at a time: shape constants fitted to the others, Blackwell's latencies those of
Hopper, and what is fitted fitted from there. L40S on PCIe apart.
"""


CARRIED = """\
Two points of one table, carried over to other collectives and rank counts of its machine, its generation left out:
"""


def unseen_sections() -> Iterator[str]:
    """The goals with a generation left out, and what each generation comes to."""
    groups = {name: [one for one in held if one[0].machine != HOST] for name, held in unseen()}
    yield UNSEEN_HEAD.rstrip()
    found = list(gates([one for held in groups.values() for one in held], UNSEEN_GOALS))
    yield grid(
        ["generation left out, one node", "median / p90", "gate", "met", "aim", "met"],
        (one.row()[:-1] for one in found),
    )
    rows = [[name, *(one.row()[1] for one in gates(held, UNSEEN_GOALS))] for name, held in groups.items() if held]
    yield grid(["generation left out", *(one.name for one in found)], rows)
    before, after = (list(chain(*each)) for each in zip(*map(carried, groups.values()), strict=True))
    pairs = f"{len(after)} pairs of such a table and a point"
    yield f"{CARRIED.rstrip()}\n{spread(after)} over {pairs}, {spread(before)} before."


VALIDATION = """\
## Shape constants without what they are scored on

Every shape constant takes the factor, the same for all machines, that fits what is not left out; a constant that only
the left-out tables tell stays as shipped.
"""


def validation(measured: Sequence[Measured]) -> Iterator[str]:
    """The shape constants without what they are scored on."""
    yield VALIDATION.rstrip()
    scored = [table for table in measured if table.scored and table.nodes == 1]
    ways = {"machine": lambda table: table.machine, "generation": generation, "source": source}
    for what, same in ways.items():
        found = unseen() if same is generation else left_out(scored, same)
        groups = [
            (name, [point for one in held for point in datasheet(*one)], datasheet_of(scored, same, name))
            for name, held in found
            if name != NEWEST
        ]
        sums = [[point for _, *both in groups for point in both[at] if point.table.machine != HOST] for at in (0, 1)]
        rows = [_validated(name, *points) for name, *points in [*groups, ("all, without L40S on PCIe", *sums)]]
        yield grid([f"{what} left out", "points", "median / p90 without it", "with it", "bias without it"], rows)


def _validated(name: str, without: Sequence[Point], shipped: Sequence[Point]) -> list[str]:
    return [name, str(len(without)), spread(without), spread(shipped), f"{figures(without)[2]:+.1f}"]


def datasheet_of(scored: Sequence[Measured], same: Callable[[Measured], str], name: str) -> list[Point]:
    """The errors of one group with the shipped profiles."""
    return [point for table in scored if same(table) == name for point in datasheet(table)]


HEAD = """\
# How near collective times come to measured ones

Written by `python benchmarks/accuracy.py`; do not edit. Errors are predicted over measured time less 1, in percent:
median / 90th percentile of their size, and the median with its sign as bias. Sizes are those of nccl-tests.

The measurements are those of `tests/data/measured_collectives.json`, with their sources. Which of them count was
fixed in `tests/data/scored_set.yaml` before any form or constant was tuned: machine, launch and forced algorithm are
inputs of a prediction; custom kernels, tables with guessed or unstated figures and tables under five rows are
reported, not scored. A profile of the library knows datasheets, what libraries state of themselves (also by what they
choose among their ways), and a handful of shape constants that all machines share: bandwidths scale with a chip's links
and memory; latencies between GPUs are those of their generation (`hardware/chips`): see the section on them.
What is fitted is fitted as `tpsim hw fit` does it, starting from the profile.
"""

NOTES = """\
## Where the errors come from
- **L40S on PCIe.** More than two devices of such a host stage in its memory. Four of them share what two drive, as the
  profile has it, and on another host, or in another run on the same, eight share it too. In the scored run eight mostly
  reach 0.6 of it, and their times jump: an all-gather of 128, 256 and 512 MiB takes 99, 116 and 400 ms; measured again,
  that of 256 MiB took 198. Times that do not repeat follow from no formula: see the section on hosts below. Every goal
  that is not met is met without this machine (last column).
- **Steps in the measured curves.** NCCL leaves LL where its own table says so, at 1 to 5 MiB, and earlier than pays:
  512 KiB to 1 MiB of an all-reduce on two A100 take 19 to 41 us. Profiles state that table, and the steps are predicted
  at the sizes where they were measured. What is left there: Simple takes 10 to 25 % longer than predicted for one or
  two sizes after it is taken up, most in all-gathers over 4 A100.
- **What was tried for the goals that are not met.** Eight points: straight lines through them without any model,
  4.1 / 17.8; constants alone, 4 / 16; all constants free at once under the curve, 3 / 15; a curve alone, over the
  datasheet's constants, 3 / 14; a curve over times instead of sizes, 3.5 / 15.4. The tables themselves scatter by
  2.4 / 11.2 (see below). Eight ranks from two and four: laws of hosts that stage (see below); the one that fits
  the slow run, four passes instead of two, comes to 6.7 / 26.8 and is twice too slow on hosts measured beside it.
- **Two points** are at 16 KiB and 32 MiB. Beyond them the curve comes back to the constants, by half in 5.5 octaves, as
  the covariance says that it rests on. Before, the last ratio held, which made plateaus worse than the datasheet has
  them (8 / 18 % off for 2.5 / 7.8) and floors too fast: 7.4 / 19.3 in all, a generation left out. The errors of these
  tables by size were seen first; the reach of 8 octaves stood before, and the tables of all generations but one say 5
  to 8 of it by likelihood, whichever is left out.
- **MI300X** measures 17 to 23 us below 512 bytes and 14 us from 1 KiB on, which no form may follow: time never falls.
  From 388 kB on RCCL counts less for Simple; what that takes there, 25 us and more, is not predicted.
- **What a chip nobody measured is scaled by.** Latencies are its generation's, or those of the one before. The own
  share goes through memory at 0.75 of its bandwidth: with a generation left out, plateaus of A100 and Hopper are 1.7 /
  7.1 off; with 1 TB/s for both instead, to which either alone is nearer (0.92 of A100's memory, 0.62 of Hopper's), 3.6
  / 11.7. Sums in the switch between 2 and 64 MiB: of two tables of 8 H100 one is predicted 16 % too slow at 4 MiB and
  the other 10 % too fast, so that no start of theirs fits both; 8 Blackwell take a third longer than predicted at 4 and
  8 MiB. What links between two MI300X reach (0.75) is AMD's own figure: plateau 2.1 / 3.5. The 0.8 of RoCE is of one
  cluster of H100; the one table over RoCE, of another cluster and other chips, has a plateau 8.4 / 11.5 off.
- **Across nodes** the floor of a network is its plugin's. Over Slingshot messages above 4 KiB wait for their receiver:
  the 3.1 us per step that CSCS publishes of it are at most half of what NCCL's times rise by from 4 KiB on. Nothing
  published tells of its 0.9 ms for 1 MiB over two nodes, where 2 MiB take 0.13 ms. The 16 ranks over RoCE and over
  GPUDirect-TCPXO start at 219 and 123 us, five and three times what RCCL and NCCL count; no plugin states a latency of
  these networks. The plateau is the node's egress.
"""


def page() -> str:
    """The whole page."""
    measured = tables()
    scored = [table for table in measured if table.scored]
    rows = sum(len(table.sizes) for table in scored)
    inside = [table for table in scored if table.nodes == 1]
    more = Gate("fitted at n = 2 and 4, scored at n = 8", more_ranks(inside), (7, 20), (5, 15))
    goals = grid(
        ["one node", "median / p90", "gate", "met", "aim", "met", "without L40S on PCIe"],
        [gate.row() for gate in (*gates(shipped(inside), SEEN_GOALS), more)],
    )
    count = f"{len(scored)} tables with {rows} points are scored."
    parts = [
        HEAD + count,
        "## Goals",
        goals,
        *unseen_sections(),
        NOTES.rstrip(),
        *datasheet_sections(measured),
        *scatter(measured),
        *generation_sections(),
        *held_out_sections(),
        *host_sections(),
        *validation(measured),
    ]
    return "\n\n".join(parts) + "\n"


def main(*arguments: str) -> int:
    """Write the page, or compare it."""
    return written(PAGE, page(), arguments)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
