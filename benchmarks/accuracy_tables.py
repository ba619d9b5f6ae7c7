"""The published collective times of tests/data as tables, and how far predictions and fits are off them.

Which tables count, and how each was launched, is fixed in tests/data/scored_set.yaml.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from page import ROOT
from tpsim.algebra.moves import MoveKind, wire
from tpsim.calibrate.calibrate import calibrate
from tpsim.calibrate.run import MeasuredRun
from tpsim.fabric.wires import Route, Segment, joined
from tpsim.machine.parts import Machine
from tpsim.machine.profile import load

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DATA = ROOT / "tests" / "data"

Array = np.ndarray[Any, np.dtype[np.float64]]

load_once = cache(load)


@dataclass(frozen=True)
class Measured:
    """A published table: sizes as nccl-tests counts them, and seconds."""

    name: str
    machine: str
    kind: MoveKind
    ranks: int
    nodes: int
    sizes: Array
    seconds: Array
    launch: str | None
    algorithm: str | None
    scored: bool
    why: str

    def run(self, only: Iterable[int] | None = None) -> MeasuredRun:
        """The points at these places, or all, as the fitter takes them."""
        places = list(range(len(self.sizes)) if only is None else only)
        whole = self.ranks if self.kind == "all_to_all" else 1
        volumes, seconds = map(int, self.sizes[places] * whole), map(float, self.seconds[places])
        return MeasuredRun(
            self.kind, self.ranks, tuple(volumes), tuple(seconds), self.launch, self.algorithm, route=self.route
        )

    @property
    def route(self) -> Route:
        """The ranks on the machine's levels, nodes full."""
        inner, *outer = load_once(self.machine).levels
        each = self.ranks // self.nodes
        first = Segment(inner.name, inner.name, joined(inner.topology) or "line", each)
        rest = [Segment(one.name, one.name, "switch", self.nodes, 1, each if one.shared else None) for one in outer]
        return tuple(one for one in (first, *rest[:1]) if one.n > 1)

    def errors(self, machine: Machine, only: Iterable[int] | None = None) -> list[Point]:
        """Predicted over measured less 1, point by point."""
        run = self.run(only)
        ratios = run.predicted(machine) / run.seconds - 1
        places = list(range(len(self.sizes)) if only is None else only)
        return [Point(self, float(self.sizes[at]), float(error)) for at, error in zip(places, ratios, strict=True)]


@dataclass(frozen=True)
class Point:
    """The error of one point: a share, positive where the prediction is too slow."""

    table: Measured
    size: float
    error: float


def tables() -> list[Measured]:
    """Every table of a collective that a machine of the library could have run."""
    return _tables("measured_collectives.json", "scored_set.yaml")


def held_out() -> list[Measured]:
    """The tables of machines that nobody has tuned to."""
    return _tables("measured_holdout.json", "holdout_set.yaml")


def other_hosts() -> list[Measured]:
    """GPUs on PCIe in hosts beside the scored one, and there again."""
    return _tables("measured_hosts.json", "hosts_set.yaml")


def _tables(measured: str, choice: str) -> list[Measured]:
    found = json.loads((DATA / measured).read_text())["tables"]
    chosen = yaml.safe_load((DATA / choice).read_text())["tables"]
    return [
        _measured(table, chosen[table["id"]])
        for table in found
        if chosen[table["id"]]["machine"] and table["collective"] != "sendrecv" and table["algo"] != "custom"
    ]


def _measured(table: dict[str, Any], chosen: dict[str, Any]) -> Measured:
    kind, ranks = table["collective"], table["n_ranks"]
    rows = [(size, seconds) for size, *row in table["rows"] if (seconds := _seconds(kind, ranks, size, *row))]
    known = load_once(chosen["machine"]).levels[0].launch
    return Measured(
        name=table["id"],
        machine=chosen["machine"],
        kind=kind,
        ranks=ranks,
        nodes=chosen.get("nodes", table["n_nodes"]),
        sizes=np.array([float(size) for size, _ in rows]),
        seconds=np.array([seconds for _, seconds in rows]),
        launch=chosen["launch"] if chosen["launch"] in known else None,
        algorithm=chosen.get("algorithm"),
        scored=chosen["scored"],
        why=chosen.get("why", ""),
    )


LEAST_PRINTED = 1.0
"""GB/s of bus bandwidth from which two decimals say a time."""


def _seconds(
    kind: MoveKind, ranks: int, size: float, printed: float | None, _algbw: float | None, busbw: float | None
) -> float | None:
    """The printed time, or what the bus bandwidth says; None where it is rounded too much."""
    if printed:
        return printed * 1e-6
    if not busbw or busbw < LEAST_PRINTED:
        return None
    whole = ranks if kind == "all_to_all" else 1
    return float(wire(kind, size * whole, ranks)) / (busbw * 1e9)


# Three ways ------------------------------------------------------------------------------------------------------


Based = tuple["Measured", Machine]
"""A table, and the machine that predicts it, or from which a fit starts."""


def shipped(several: Iterable[Measured]) -> list[Based]:
    """With the profiles as they ship."""
    return [(table, load_once(table.machine)) for table in several]


def datasheet(table: Measured, base: Machine | None = None) -> list[Point]:
    """With the profile as it ships, or with another one."""
    return table.errors(base or load_once(table.machine))


SMALL, LARGE = 2**14, 2**25
"""Sizes near which the two points lie: in the floor, and in the knee."""


def two_points(table: Measured, base: Machine) -> list[Point]:
    """Fitted to a small and a large point, scored on the others."""
    return _fitted(table, base, _small_and_large(table))


def _small_and_large(table: Measured) -> set[int]:
    return {int(np.argmin(np.abs(np.log(table.sizes / size)))) for size in (SMALL, LARGE)}


def carried(based: Sequence[Based]) -> tuple[list[Point], list[Point]]:
    """Other collectives and rank counts of whoever measured a table, before and after a fit to two points of it."""
    before, after = [], []
    for table, base in based:
        others = [
            one for one, _ in based if (one.machine, source(one)) == (table.machine, source(table)) and one != table
        ]
        if others:
            fit = calibrate(base, [table.run(sorted(_small_and_large(table)))]).machine
            before += [point for one in others for point in one.errors(base)]
            after += [point for one in others for point in one.errors(fit)]
    return before, after


FEW = 8


def few_points(table: Measured, base: Machine) -> list[Point]:
    """Fitted to points at equal distances, first and last among them, scored on the others."""
    return _fitted(table, base, {round(float(at)) for at in np.linspace(0, len(table.sizes) - 1, FEW)})


def _fitted(table: Measured, base: Machine, known: set[int]) -> list[Point]:
    others = [at for at in range(len(table.sizes)) if at not in known]
    return table.errors(calibrate(base, [table.run(sorted(known))]).machine, others) if others else []


SEEN, UNSEEN = (2, 4), 8


def more_ranks(measured: Sequence[Measured]) -> list[Point]:
    """Fitted to two and four ranks, scored on eight: the series that have all three."""
    groups: dict[tuple[str, str], dict[int, Measured]] = {}
    for table in measured:
        groups.setdefault((table.machine, table.kind), {}).setdefault(table.ranks, table)
    whole = [group for group in groups.values() if {*SEEN, UNSEEN} <= set(group)]
    return [point for group in whole for point in group[UNSEEN].errors(_seen(group))]


def _seen(group: dict[int, Measured]) -> Machine:
    return calibrate(load_once(group[UNSEEN].machine), [group[ranks].run() for ranks in SEEN]).machine


def source(table: Measured) -> str:
    """Who measured: the first word of a table's name."""
    return table.name.split("_")[0]
