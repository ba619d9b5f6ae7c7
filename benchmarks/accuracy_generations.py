"""Latencies of a generation of chips over those of Hopper: as shipped, and as its own tables tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accuracy_figures import KB, figures, grouped, spread
from accuracy_tables import datasheet, held_out, load_once, tables
from page import grid
from shared import by_latencies, latency_factor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from accuracy_tables import Measured
    from tpsim.machine.parts import Machine


def generation(table: Measured) -> str:
    """That of the chips: what they share is unknown where all of them are left out."""
    return load_once(table.machine).chip.generation


HELD_OUT = """\
## Blackwell, each table left out

Tables of `tests/data/measured_holdout.json`: Blackwell in a node, in a rack and across nodes. Which profile predicts
them stands in `tests/data/holdout_set.yaml`, chosen by whoever had seen them. One constant is fitted to them, the
factor of NVLink's latencies over those of Hopper (`hardware/chips/blackwell.yaml`), to the two tables that reach down
to the floor. "Left out" takes what the other one tells; for the tables above the floor that is what ships.

- **Latencies** do not follow the clock, which is Hopper's: over 8 GPUs they are twice as long, up to 64 MiB. Over two
  nodes 1.2 times would do, and what ships is too slow there: what a plugin's network takes is in it as well.
- **Rack.** What 72 GPUs reach is 0.48 of their links if they sum in the switch; the profile has the 0.6 that follows
  from nodes of 8. NCCL counts with 0.59 (0.74 of 40.1 of 50 GB/s per link) whatever their number: nothing but the table
  itself says less.
- **Knee.** 4 and 8 MiB on 8 GPUs take as long as 16 MiB: a change of protocol, as on other machines.
- **Four nodes.** A loop in a framework needs 380 us for 256 KiB over EFA; nccl-tests on two nodes starts at 51 us.
"""

OLDER = "dgx-h100"
"""A machine of the generation before."""


def as_hopper(table: Measured) -> Machine:
    """The table's machine with the latencies of the generation before."""
    machine = load_once(table.machine)
    return by_latencies(machine, 1 / over_hopper(table))


def told(measured: Sequence[Measured]) -> float:
    """What the tables that reach the floor tell of latencies over those of the generation before."""
    return latency_factor([(as_hopper(table), [table.run()]) for table in measured if min(table.sizes) <= 64 * KB])


def held_out_sections() -> Iterator[str]:
    """What profiles predict of each table, its latencies told by the others, by all, and by the generation before."""
    found, rows = held_out(), []
    for table in found:
        factor = told([other for other in found if other is not table])
        left, older = table.errors(by_latencies(as_hopper(table), factor)), table.errors(as_hopper(table))
        cells = [
            cell
            for points in (left, datasheet(table), older)
            for cell in (spread(points), f"{figures(points)[2]:+.1f}")
        ]
        rows.append(
            [
                f"{table.name}: {table.machine}, {table.ranks} ranks",
                str(len(left)),
                *cells[:2],
                f"{factor:.2f}",
                *cells[2:],
            ]
        )
    yield f"{HELD_OUT.rstrip()}\n\nBoth together tell a factor of {told(found):.2f}."
    heads = ["left out", "bias", "factor told", "as shipped", "bias", "with Hopper's latencies", "bias"]
    yield grid(["table", "points", *heads], rows)
    shipped = [point for table in found for point in datasheet(table)]
    yield grouped(shipped, "as shipped", lambda point: point.table.name)


MEASURED = ("ampere", "cdna3")
"""Generations with scored tables of a node, beside Hopper, whose latencies all are held against."""

GENERATIONS = """\
## Latencies of a generation

One factor on Hopper's latencies inside a node, those of chunks too: what ships, and what a generation's own tables
tell. A100's say what its clock says as well; Blackwell's do not (below), so that a clock is no rule. MI300X's are an
assumption, by clock: its one table, of all-reduces over 8, tells more, by a floor that no form follows, and comes to
{told} with that and to {shipped} as shipped.
"""


def generation_sections() -> Iterator[str]:
    """What each generation's latencies are over Hopper's, and what its tables tell of that."""
    scored = [table for table in tables() if table.scored and table.nodes == 1]
    groups = {name: [table for table in scored if generation(table) == name] for name in MEASURED}
    rows = [[name, str(len(own)), f"{over_hopper(own[0]):.2f}", f"{told(own):.2f}"] for name, own in groups.items()]
    ((least, machine),) = [(table, as_hopper(table)) for table in groups[MEASURED[-1]]]
    by_own = spread(least.errors(by_latencies(machine, told([least]))))
    yield GENERATIONS.format(told=by_own, shipped=spread(datasheet(least))).rstrip()
    yield grid(["generation", "tables", "as shipped", "as its tables tell"], rows)


def over_hopper(table: Measured) -> float:
    """Latencies of a table's machine over those of the generation before."""
    older, own = (one.levels[0].link.hop_latency.value for one in (load_once(OLDER), load_once(table.machine)))
    return float(own / older)
