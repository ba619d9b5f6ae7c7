"""Counts the bytes that devices of a run hold: an array is there from its maker until its last reader has run."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tpsim.program.lives import BUFFERS, Lives, in_microbatch
from tpsim.reference.calls import bytes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tpsim.algebra.mesh import Mesh
    from tpsim.program.op import Array, Op
    from tpsim.reference.blocks import Device


@dataclass(slots=True)
class Live:
    """What devices hold of the arrays that microbatches make, beside states.

    beside  name of arrays -> bytes per element that a stack keeps as long as it is there
    mesh    whose devices they are
    levels  rank -> of every action the most bytes that each device of the rank held, and those when it had ended
    """

    lives: Lives
    beside: Mapping[str, int]
    mesh: Mesh
    levels: dict[int, list[list[tuple[int, int]]]] = field(default_factory=lambda: defaultdict(list))
    _held: Counter[Device] = field(default_factory=Counter)
    _most: Counter[Device] = field(default_factory=Counter)
    _sizes: dict[Array, dict[Device, int]] = field(default_factory=dict)
    _left: dict[Array, int] = field(default_factory=dict)

    def made(self, op: Op, elements: Mapping[Device, int]) -> None:
        """The output of `op` is there, with so many elements on every device that has it."""
        array = op.output
        if array not in self.lives.makers:
            return
        each = bytes_of(array.dtype) + sum(self.beside.get(name, 0) for name in self.lives.names(array))
        ways = self.mesh.size(*self.lives.streamed.get(array, ()))
        there = min(BUFFERS, ways)
        self._sizes[array] = {device: many * there // ways * each for device, many in elements.items()}
        self._left[array] = len(self.lives.readers[array])
        for device, size in self._sizes[array].items():
            self._held[device] += size
            self._most[device] = max(self._most[device], self._held[device])

    def read(self, op: Op) -> None:
        """`op` has run, or what it sends has left: what it read as the last one is gone, and what nobody reads."""
        if in_microbatch(op.where):
            for home in self.lives.read_by(op):
                self._left[home] -= 1
                self._drop(home)
            if op.output in self._left:
                self._drop(op.output)

    def ended(self, rank: int, devices: Iterable[Device]) -> None:
        """An action of a rank has ended."""
        mine = list(devices)
        self.levels[rank].append([(self._most[array], self._held[array]) for array in mine])
        self._most.update({array: self._held[array] - self._most[array] for array in mine})

    def _drop(self, array: Array) -> None:
        if not self._left[array] and array in self._sizes:
            for device, size in self._sizes.pop(array).items():
                self._held[device] -= size
