"""What is read of a run by those whom it calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tpsim.program.op import Array, Filled, Program, Where
    from tpsim.reference.blocks import Block, Blocks, Device, Grid
    from tpsim.reference.devices import Devices

Choice = Callable[..., Any]
"""1 where a token chooses an expert, else 0: of sizes, global indices of b, s and experts, and the router's logits."""

Table = NDArray[np.int64]
"""Expert, row -> the global token that fills it, or that none does."""


class Running(Protocol):
    """A run: its program, its devices and what they hold so far.

    positions  in the sequence, of tokens as devices have them one after another; None if they have neighbours
    tables     which token fills each row of an expert, by choice
    """

    program: Program
    devices: Devices
    sizes: Mapping[str, int]
    blocks: dict[Array, Blocks]
    tables: dict[Filled, Table]
    positions: Table | None
    streams: Any

    @property
    def choose(self) -> Choice:
        """Which experts tokens go to."""

    @property
    def grid(self) -> Grid:
        """Where every device stands on the mesh."""

    def holders(self, where: Where) -> list[Device]:
        """The devices that run what stands there."""

    def like(self, device: Device) -> Device:
        """Where a device stands in its stage."""

    def value(self, array: Array) -> Block:
        """The global value of an array."""
