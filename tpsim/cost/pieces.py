"""Seconds of what actions are made of: kernels as the chip runs them, calls as they are priced."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tpsim.cost.compute import Compute, compute, kernel_s
from tpsim.quantity.size import total

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpsim.cost.kernels import Kernel
    from tpsim.cost.nodes import Piece
    from tpsim.cost.rollup import Row
    from tpsim.cost.sizes import Sizes
    from tpsim.cost.timed import Action, Timed
    from tpsim.machine.profile import Machine


@dataclass(frozen=True)
class Clock:
    """How long pieces take.

    rows        every collective once, priced
    kernels     every kernel
    efficiency  share of peak that products reach, None for the machine's own figure
    scale       times which kernels of microbatches take
    launch_s    seconds in which a host launches a kernel or a collective; 0 where none is waited for
    """

    rows: Sequence[Row]
    kernels: Sequence[Kernel]
    sizes: Sizes
    machine: Machine
    dtype: str
    efficiency: float | None
    scale: float = 1
    launch_s: float = 0

    def compute(self, kernels: Sequence[Kernel], sizes: Sizes) -> Compute:
        """FLOPs of some kernels on a device of such sizes, and the seconds of each phase, unscaled."""
        return compute(kernels, sizes, self.machine, self.dtype, self.efficiency)

    def timed(self, tasks: Action) -> Timed:
        """What the tasks of an action take, each list of them worked out once."""
        if id(tasks) not in self._timed:
            self._timed[id(tasks)] = tasks.timed(self._piece_s, self._launches_s if self.launch_s else None)
        return self._timed[id(tasks)]

    def _piece_s(self, piece: Piece) -> Any:
        """Seconds of one kernel or call; a kernel stands where its first op does."""
        if piece.call:
            return self._calls[id(piece.call)].timing.time_s
        if piece not in self._products:
            kernels = total(
                kernel_s(one, self.sizes, self.machine, self.dtype, self.efficiency) * self.scale
                for one in self._kernels_of(piece)
            )
            cut = piece.cut
            self._products[piece] = cut.of(kernels, self._calls[id(cut.call)]) if cut else kernels
        return self._products[piece]

    def _launches_s(self, piece: Piece) -> Any:
        """Seconds in which the host launches one kernel or call, or those that a product is cut into.

        What is once per step it launches together, wherever it stands.
        """
        if piece.call and not piece.call.per_microbatch:
            return 0
        pieces = piece.cut.pieces(self._calls[id(piece.cut.call)]) if piece.cut else 1
        return self.launch_s * (1 if piece.call else pieces * len(self._kernels_of(piece)))

    def _kernels_of(self, piece: Piece) -> list[Kernel]:
        return [one for op in piece.ops if (one := self._firsts.get(id(op)))]

    @cached_property
    def _calls(self) -> dict[int, Row]:
        return {id(row.call): row for row in self.rows}

    @cached_property
    def _firsts(self) -> dict[int, Kernel]:
        return {id(one.ops[0]): one for one in self.kernels}

    @cached_property
    def _timed(self) -> dict[int, Timed]:
        return {}

    @cached_property
    def _products(self) -> dict[Piece, Any]:
        return {}
