"""What is taken for figures that a profile leaves out, and figures far outside of those of all shipped machines."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from tpsim.fabric.wires import LevelTopology, joined
from tpsim.machine.chips import PARTS, figures
from tpsim.machine.constant import Constant, LatencyConstant, RatioConstant
from tpsim.quantity import spec
from tpsim.quantity.errors import Place, Problem
from tpsim.quantity.units import Dimension, other_units, parse, show

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tpsim.machine.parts import Machine


class UnstatedLink(spec.Strict):
    """What is taken for a link's figures."""

    efficiency: RatioConstant
    hop_latency: LatencyConstant


class UnstatedLevel(spec.Strict):
    """What is taken for a level's figures."""

    launch: LatencyConstant
    link: UnstatedLink


class UnstatedChip(spec.Strict):
    """What is taken for a chip's figures."""

    matmul_efficiency: RatioConstant
    memory_efficiency: RatioConstant


class UnstatedFile(spec.Strict):
    """What is taken for figures that a profile leaves out: of the chip, and by how a level joins its members."""

    tpsim: Literal["unstated/1"]
    chip: UnstatedChip
    levels: dict[Literal["wired", "joined", "network"], UnstatedLevel]

    def level(self, topology: LevelTopology, shape: Sequence[int]) -> UnstatedLevel:
        """The guesses for such a level."""
        return self.levels["network" if not shape else "joined" if joined(topology) else "wired"]


def unstated() -> UnstatedFile:
    """The guesses that tpsim ships, a file beside its machines."""
    return spec.read(file(), UnstatedFile)[0]


def file() -> Path:
    """Where they stand."""
    return spec.shipped("hardware") / "unstated" / "figures.yaml"


SLIP = 3.0
"""How far outside of all machines a figure lies that another unit would put among them, to be called a slip."""

FAR = 30.0
"""How far outside a figure lies that is called far off whatever its unit: half of a prefix, on a logarithm's scale."""

Field = tuple[str, ...]
"""A constant's path without the names of levels, protocols, algorithms and harnesses."""


@dataclass(frozen=True, slots=True)
class Range:
    """The least and the most that machines have of a field, in SI units, but zeros: these say that nothing counts."""

    least: float
    most: float

    def beyond(self, value: float) -> float:
        """By what factor a value is more than the most, or less than the least; at most 1 for one inside."""
        return max(value / self.most, self.least / value)


def doubtful(constant: Constant, machine: Machine, written: object, place: Place | None) -> Problem | None:
    """What is hard to believe of a figure, with the slip that explains it; None if nothing is.

    written  the figure as its file has it
    """
    usual = _range(_field(constant.path, machine), constant.dimension, spec.shipped("hardware"))
    if usual is None or not constant.value or (far := usual.beyond(constant.value)) < SLIP:
        return None
    others = [(max(1, usual.beyond(value)), text) for text, value in other_units(written, constant.dimension)]
    off, meant = min(others, key=lambda other: other[0], default=(FAR, ""))
    if off > 1 and far < FAR:
        return None
    side, bound = ("most", usual.most) if constant.value > usual.most else ("least", usual.least)
    factor = f"{far:,.0f}" if far > FAR else f"{far:.2g}"
    times = f"{factor} times" if side == "most" else f"1/{factor} of"
    message = f"{constant.path} {written} is {times} the library's {side}"
    remedy = f"was {meant} meant?" if meant else "check it"
    return Problem("far-off", f"{message}, {show(bound, constant.dimension)}", place, remedy)


def stated(field: Field, dimension: Dimension) -> list[float]:
    """What the machines that tpsim ships have of a field, in SI units: the least first."""
    written = _written(spec.shipped("hardware")).get(field, set())
    return sorted({value for text in written if (value := parse(text, dimension))})


@cache
def _range(field: Field, dimension: Dimension, folder: Path) -> Range | None:
    """What the machines in a folder have of a field; of a peak that none states what they have of any."""
    written = _written(folder)
    texts = written.get(field, set())
    if not texts and field[:2] == PEAK:
        texts = {text for other, several in written.items() if other[:2] == PEAK for text in several}
    values = [value for text in texts if (value := parse(text, dimension, zero=True))]
    return Range(min(values), max(values)) if values else None


PEAK = ("chip", "peak")


@cache
def _written(folder: Path) -> Mapping[Field, set[Any]]:
    """Every figure of the machines in a folder as their files have it, by field."""
    values: dict[Field, set[Any]] = {}
    documents = {path.stem: spec.load(path) for path in sorted(folder.glob("*.yaml"))}
    for document in documents.values():
        data = spec.extended(document, lambda name, _: documents[name], PARTS).data
        parts = [("chip", data["chip"]), *((_sort(level.get("shape")), level) for level in data["levels"])]
        for first, part in parts:
            for path, figure in figures(part, (first,)):
                if isinstance(figure, dict):
                    values.setdefault(_plain(path), set()).add(figure["value"])
    return values


def _sort(shape: Sequence[int] | None) -> str:
    """Levels with a shape are one sort, the outermost one without is another: links between racks are slower."""
    return "inside" if shape else "outermost"


def _field(path: str, machine: Machine) -> Field:
    first, *rest = path.split(".")
    if first == "levels":
        level, *rest = rest
        first = _sort(machine.level(level).shape)
    return _plain((first, *rest))


def _plain(path: Field) -> Field:
    """The path without names: what protocols, algorithms and harnesses have is compared across all of them."""
    kept: list[str] = []
    for key in path:
        if kept[-1:] in (["protocols"], ["algorithms"]):
            kept[-1] += " of"
        elif kept[-1:] != ["launch"]:
            kept.append(key)
    return tuple(kept)
