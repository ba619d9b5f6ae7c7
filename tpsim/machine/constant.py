"""A figure of a machine: its value in SI units, what it is of, where it was read and how sure it is."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Literal

from tpsim.frozen import dataclass

if TYPE_CHECKING:
    from tpsim.quantity.units import Dimension


Kind = Literal["datasheet", "stated", "measured", "derived", "guess"]


@dataclass(frozen=True, slots=True)
class Constant:
    """A figure in SI units with its provenance.

    source       key of the machine's sources; "" for a guess without one
    path         where it stands: ``levels.ici.link.bandwidth``, a level by its name
    note         how it was derived or measured
    stated_kind  False if the file gives no kind: then it counts as a guess
    stated       False if the file leaves the figure out: then it is tpsim's guess
    file         the path of the file that states it, which need not be the machine's own; "" without one
    """

    value: float
    dimension: Dimension
    source: str
    kind: Kind
    path: str
    note: str = ""
    stated_kind: bool = True
    stated: bool = True
    file: str = field(default="", compare=False)
