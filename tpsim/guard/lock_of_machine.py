"""The facts of a machine: its figures, its properties that are none, its measured curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.guard.lock_parts import ConstantFact
from tpsim.machine.curve_file import exact
from tpsim.machine.profile import Constant

if TYPE_CHECKING:
    from tpsim.machine.profile import Level, Machine

PROFILE = "profile"
"""The kind of a machine's properties that are no figures: its topologies, its wraparound, what it offers."""


class Property(NamedTuple):
    """What a level states that is no figure."""

    level: str
    name: str
    value: Any

    @property
    def path(self) -> str:
        """What a lock calls it: ``levels.ici.wrap``."""
        return f"levels.{self.level}.{self.name}"


def machine_facts(machine: Machine) -> Iterator[tuple[str, ConstantFact]]:
    """Every figure of a machine, every property of its levels that is none, and every curve, by its path."""
    figures = {constant.path: constant for constant in machine.constants()}
    for path, figure in figures.items():
        source = machine.sources.get(figure.source)
        title = f"{source.title} (read {source.read})" if source else ""
        yield path, ConstantFact(value=figure.value, source=title, kind=figure.kind, dimension=figure.dimension)
    for stated in properties(machine):
        if stated.path not in figures:  # a single launch is a figure, and no list of harnesses
            yield stated.path, ConstantFact(value=stated.value, kind=PROFILE)
    for curve in machine.measured:
        ratios = ", ".join(f"{exact(knot.V)} {knot.fitted / knot.predicted:.4g}" for knot in curve.knots)
        yield curve.path, ConstantFact(value=ratios, source=curve.source, kind="measured")


def properties(machine: Machine) -> Iterator[Property]:
    """What the machine's levels state that is no figure."""
    for at, level in enumerate(machine.levels):
        yield Property(level.name, "place", at)
        yield from (Property(level.name, name, value) for name, value in _stated(level))


def _stated(level: Level) -> Iterator[tuple[str, Any]]:
    """Of a map its keys, since what a level offers and in which order counts."""
    for field in fields(level):
        value = getattr(level, field.name)
        if field.name == "name" or value is None or value == field.default or isinstance(value, Constant):
            continue
        if isinstance(value, Mapping):
            value = ", ".join(map(str, value))
        elif isinstance(value, tuple | list):
            value = " x ".join(map(str, value))
        yield field.name, str(value) if is_dataclass(value) else value
