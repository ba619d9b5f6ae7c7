"""What is taken for the figures that a profile leaves out: guesses, in a file beside the machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tpsim.fabric.wires import joined
from tpsim.machine.figures import LatencyFields, RatioFields
from tpsim.quantity import spec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tpsim.fabric.wires import LevelTopology


class UnstatedLink(spec.Strict):
    """What is taken for a link's figures."""

    efficiency: RatioFields
    hop_latency: LatencyFields


class UnstatedLevel(spec.Strict):
    """What is taken for a level's figures."""

    launch: LatencyFields
    link: UnstatedLink


class UnstatedChip(spec.Strict):
    """What is taken for a chip's figures."""

    matmul_efficiency: RatioFields
    memory_efficiency: RatioFields


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
