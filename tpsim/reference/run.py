"""A run: its program, its devices, what they hold so far and how many bytes that is, and what its leaves begin with."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from tpsim.program.dims import completed
from tpsim.program.lifetimes import BUFFERS, Lifetimes, in_microbatch, lifetimes
from tpsim.program.tokens import TOKENS, positions
from tpsim.reference.blocks import Block, Blocks, Device, Grid, gap
from tpsim.reference.calls import Tally, bytes_of

if TYPE_CHECKING:
    from tpsim.algebra.mesh import Mesh
    from tpsim.algebra.moves import Move
    from tpsim.program.op import Array, Filled, Op, Program, Reshard, Where
    from tpsim.program.schedules import PipelineSchedule
    from tpsim.reference.devices import Devices
    from tpsim.reference.network import Wiring

Choice = Callable[..., Any]
"""1 where a token chooses an expert, else 0: of sizes, global indices of b, s and experts, and the router's logits."""

Table = NDArray[np.int64]
"""Expert, row -> the global token that fills it, or that none does."""


Positions = NDArray[np.int64]
"""Where tokens stand in their sequence."""

Work = Callable[[Device, list[Block]], Block]
"""What a device makes of its blocks of an op's inputs."""

Steps = list[Blocks]
"""The block that each device has in each step."""


@dataclass
class Live:
    """What devices hold of the arrays that microbatches make, beside states; looked at where an action ends.

    beside  name of arrays -> bytes per element that a stack keeps as long as it is there
    mesh    whose devices they are
    levels  rank -> of every action the most bytes that each device of the rank held, and those when it had ended
    """

    program: Program
    beside: Mapping[str, int]
    mesh: Mesh
    levels: dict[int, list[list[tuple[int, int]]]] = field(default_factory=lambda: defaultdict(list))
    _held: Counter[Device] = field(default_factory=Counter)
    _most: Counter[Device] = field(default_factory=Counter)
    _sizes: dict[Array, dict[Device, int]] = field(default_factory=dict)
    _left: dict[Array, int] = field(default_factory=dict)

    @cached_property
    def lifetimes(self) -> Lifetimes:
        """Which arrays these are, and until when each is there."""
        return lifetimes(self.program)

    @cached_property
    def _reads(self) -> Mapping[Op, Sequence[Array]]:
        """What each op reads, or frees with what it reads; of a fused kernel the one with which it ends."""
        reads: dict[Op, list[Array]] = defaultdict(list)
        for array, ops in self.lifetimes.readers.items():
            for op in ops:
                reads[self.lifetimes.ends.get(op, op)].append(array)
        return reads

    def made(self, op: Op, elements: Mapping[Device, int], inside: int = 0) -> None:
        """The output of `op` is there, with so many elements on every device that has it.

        inside  bytes that were there while it was made
        """
        array = op.output
        if array not in self.lifetimes.makers:
            return
        width = bytes_of(array.dtype) + sum(self.beside.get(name, 0) for name in self.lifetimes.names(array))
        ways = self.mesh.size(*self.lifetimes.streamed.get(array, ()))
        there = min(BUFFERS, ways)
        self._sizes[array] = {device: many * there // ways * width for device, many in elements.items()}
        self._left[array] = len(self.lifetimes.readers[array])
        for device, size in self._sizes[array].items():
            self._held[device] += size
            self._most[device] = max(self._most[device], self._held[device] + inside)

    def read(self, op: Op) -> None:
        """`op` has run, or what it sends has left: what it read as the last one is gone, and what nobody reads."""
        if in_microbatch(op.where):
            for home in self._reads.get(op, ()):
                self._left[home] -= 1
                self._drop(home)
            if op.output in self._left:
                self._drop(op.output)

    def ended(self, rank: int, devices: Iterable[Device]) -> None:
        """An action of a rank has ended."""
        arrays = list(devices)
        self.levels[rank].append([(self._most[array], self._held[array]) for array in arrays])
        self._most.update({array: self._held[array] - self._most[array] for array in arrays})

    def _drop(self, array: Array) -> None:
        if not self._left[array] and array in self._sizes:
            for device, size in self._sizes.pop(array).items():
                self._held[device] -= size


Inputs = Callable[[str, tuple[int, ...]], Block]
"""Gives the global value of a leaf by its label, e.g. ``0.Wq``, ``tokens.1`` or ``variance.E``, and its shape."""


@dataclass(frozen=True, slots=True)
class RanCollective:
    """A collective of the run: the op that caused it, which of its moves it is, and the bytes that it sent."""

    op: Reshard
    move: Move
    call: Tally


@dataclass(slots=True)
class Run:
    """One execution: the blocks of every array, by array, and every collective in the order of the ops.

    works      what each op that was run does on a device: it hangs on sizes alone
    choose     which experts tokens go to
    tables     which token fills each row of an expert, by choice
    positions  in the sequence, of tokens as devices have them one after another; None if they have neighbours
    streams    array that comes block after block -> by which move, and the block that each device has in each step
    kernels    op of a kernel that reads such arrays -> all ops of the kernel
    summed     what such kernels have summed over blocks
    held_by    chunks of stages -> the devices that have them
    padded     whether rows that nothing fills are sent and held like the others
    """

    program: Program
    devices: Devices
    wiring: Wiring
    sizes: Mapping[str, int]
    inputs: Inputs
    choose: Choice
    kernels: Mapping[Op, tuple[Op, ...]]
    beside: Mapping[str, int]
    schedule: PipelineSchedule | None = None
    padded: bool = False
    blocks: dict[Array, Blocks] = field(default_factory=dict)
    causes: list[RanCollective] = field(default_factory=list)
    works: dict[Op, Work] = field(default_factory=dict)
    tables: dict[Filled, Table] = field(default_factory=dict)
    live: Live = field(init=False)
    positions: Positions | None = field(init=False)
    streams: dict[Array, tuple[Move, Steps]] = field(default_factory=dict)
    summed: dict[Array, Blocks] = field(default_factory=dict)
    held_by: dict[tuple[int, ...], list[Device]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.live = Live(self.program, self.beside, self.grid.mesh)
        order, sharing = self.program.order, self.grid.mesh.size(*self.program.sharing)
        self.positions = None if order == "contiguous" else np.array(positions(order, self.sizes["s"], sharing))

    def placed(self, whole: Block, dims: Sequence[str]) -> Block:
        """A value with its tokens in the order in which devices have them."""
        for place, dim in enumerate(dims):
            if dim in TOKENS and self.positions is not None:
                whole = whole.take(self.positions, axis=place)
        return whole

    @property
    def grid(self) -> Grid:
        """Where every device stands on the mesh."""
        return self.devices.grid

    def holders(self, where: Where) -> list[Device]:
        """The devices that run what stands there: all of them, or those of the stages that have its chunks."""
        if self.schedule is None:
            return self.grid.devices
        if where.chunks not in self.held_by:
            ranks, pipe = {self.schedule.rank(chunk) for chunk in where.chunks}, self.program.pipe
            devices = [device for device in self.grid.devices if self.grid.rank(device, pipe) in ranks]
            self.held_by[where.chunks] = devices
        return self.held_by[where.chunks]

    def of_rank(self, rank: int) -> list[Device]:
        """The devices of a rank of the pipeline; without one all of them are of the first."""
        return [device for device in self.grid.devices if self.grid.rank(device, self.program.pipe) == rank]

    def like(self, device: Device) -> Device:
        """Where a device stands in its stage: its likes on other stages stand there, too."""
        pipe = [self.grid.mesh.order.index(axis) for axis in self.program.pipe]
        return tuple(place for at, place in enumerate(device) if at not in pipe)

    def inside(self, op: Op) -> int:
        """Bytes of what its kernels hand each other on a device, of whole shares of chunks."""
        sizes, axes = completed(self.sizes) if op.inside else {}, self.grid.mesh.axes
        return int(sum(x.type.local_elements(sizes, axes) * bytes_of(x.dtype) for x in op.inside))

    def bytes_on(self, device: Device, array: Array) -> Any:
        """Bytes of an array's block on a device, rows that nothing fills among them; 0 where it has none."""
        block = self.blocks[array].get(device)
        return 0 if block is None else block.size * bytes_of(array.dtype)

    def value(self, array: Array) -> Block:
        """The global value of `array`, owed sums and maxima paid.

        Raises ValueError, naming array and device, if a device holds a wrong block or replicas differ.
        """
        try:
            whole, spread = self.grid.assemble(self.blocks[array], array.type, self.sizes)
        except ValueError as error:
            raise ValueError(f"{array}: {error}") from None
        if spread > SAME * (1.0 + float(np.max(np.abs(whole), initial=0.0))):
            raise ValueError(f"{array}: replicas differ by {spread}: device {self._unlike(array)} holds a wrong block")
        return whole

    def _unlike(self, array: Array) -> Device:
        """The device whose block is farthest from what most of its replicas hold."""
        paid, tile = self.grid.paid(self.blocks[array], array.type), self.grid.tiling(array.type, self.sizes).at
        replicas: dict[int, list[Block]] = defaultdict(list)
        for device, block in paid.items():
            replicas[tile[device]].append(block)
        return max(paid, key=lambda device: gap(paid[device], np.median(replicas[tile[device]], axis=0)))


SAME = 1e-9
"""How far replicas may lie apart, relative to their size: sums of another order round differently."""


def label(array: Array, op: Op) -> str:
    """Call a leaf by its name with its layer before and its microbatch behind."""
    layer, microbatch = op.where.layer, op.where.microbatch
    return f"{'' if layer is None else f'{layer}.'}{array.name}{'' if microbatch is None else f'.{microbatch}'}"


WEIGHT_SCALE = 0.3
"""The spread of a weight: small enough that softmax and the pointwise functions stay where they are curved."""


def leaves(sizes: Mapping[str, int], replaced: Mapping[str, Block] | None = None) -> Inputs:
    """Random values by label; an optimizer's master copy equals its parameter, gains lie about one.

    sizes     elements of every dim; token ids and labels are below ``v``
    replaced  values to take instead, by label
    """

    def value(label: str, shape: tuple[int, ...]) -> Block:
        name = label.replace("master.", "")
        if replaced and name in replaced:
            return replaced[name]
        rng = np.random.default_rng(crc32(name.encode()))
        if "tokens" in name or "labels" in name:
            return rng.integers(0, sizes["v"], shape).astype(np.float64)
        if "variance" in name:
            return rng.random(shape) + 0.5
        return rng.normal(size=shape) * WEIGHT_SCALE + (1.0 if "gain" in name else 0.0)

    return value
