"""Bytes that one chip holds from step to step: parameters, gradients, optimizer state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from tpsim.algebra.sharding import unpacked
from tpsim.program.kinds import ALIKE
from tpsim.program.layout import DTYPE_BYTES
from tpsim.program.op import Array, Join, Leaf, Program, Reshard, Role
from tpsim.quantity.size import total
from tpsim.report.record import Bytes, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tpsim.cost.sizes import Sizes
    from tpsim.program.op import Where

GRADIENT = "grad."
"""What the names of a program's gradient results begin with."""


@dataclass(frozen=True, slots=True)
class Memory(Record):
    """Bytes of one chip.

    parameters_bytes, gradients_bytes, optimizer_bytes  held from step to step
    logits_bytes  of the widest array over the vocabulary within a step, beside what is held
    cache_bytes   of keys and values that inference keeps; none in training
    """

    told: ClassVar[tuple[str, ...]] = (
        "parameters_bytes",
        "gradients_bytes",
        "optimizer_bytes",
        "cache_bytes?",
        "static_bytes",
        "logits_bytes",
    )

    parameters_bytes: Bytes
    gradients_bytes: Bytes
    optimizer_bytes: Bytes
    logits_bytes: Bytes
    cache_bytes: Bytes | None

    @property
    def static_bytes(self) -> Bytes:
        """All that is held from step to step."""
        cache = 0 if self.cache_bytes is None else self.cache_bytes
        return self.parameters_bytes + self.gradients_bytes + self.optimizer_bytes + cache


def memory(program: Program, sizes: Sizes, here: Callable[[Where], bool] = lambda _: True) -> Memory:
    """What one chip holds under `program`'s layout.

    here  what its stage of a pipeline has; without one all of it

    A traced layer's arrays are held by every layer it stands for; microbatches share one buffer.
    """
    mine = replace(program, ops=tuple(op for op in program.ops if here(op.where)))
    caches = _leaves(mine, "cache")
    return Memory(
        parameters_bytes=_held(mine, _leaves(mine, "param"), sizes),
        gradients_bytes=_held(mine, _gradients(program), sizes),
        optimizer_bytes=_held(mine, _leaves(mine, "state"), sizes),
        logits_bytes=_logits(mine, sizes),
        cache_bytes=_held(mine, caches, sizes) if caches else None,
    )


def standing(program: Program, sizes: Sizes) -> Iterator[tuple[Where, Any]]:
    """Where arrays stand that are held from step to step, and bytes of each on one device, in one layer."""
    sorts = (_leaves(program, "param"), _gradients(program), _leaves(program, "state"), _leaves(program, "cache"))
    wanted = {array for arrays in sorts for array in arrays}
    yield from ((op.where, local_bytes(op.output, sizes)) for op in program.ops if op.output in wanted)


def _leaves(program: Program, role: Role) -> list[Array]:
    return [op.output for op in program.ops if isinstance(op, Leaf) and op.output.role == role]


def _gradients(program: Program) -> list[Array]:
    """The gradient buffers: what microbatches add up in, before the end of the step moves it."""
    made = {op.output: op for op in program.ops}

    def buffers(array: Array) -> list[Array]:
        op = made[array]
        moved = isinstance(op, Reshard | Join) and op.where.index("microbatches") is None
        return [buffer for x in op.inputs for buffer in buffers(x)] if moved else [array]

    return [buffer for name, x in program.results.items() if name.startswith(GRADIENT) for buffer in buffers(x)]


def _held(program: Program, arrays: Iterable[Array], sizes: Sizes) -> Any:
    wanted = dict.fromkeys(arrays)
    homes = {op.output: op.where.outside("microbatches") for op in program.ops if op.output in wanted}
    return total(local_bytes(array, sizes) * program.times(where, sizes.loops) for array, where in homes.items())


def local_bytes(array: Array, sizes: Sizes) -> Any:
    """Bytes of `array` on one device, the fullest one; an owed array is held whole."""
    dims = tuple(sorted(array.dims))
    key = (dims, tuple(sorted(array.type.sharded_axes)), array.dtype)
    return sizes.once(key, lambda: sizes.local_elements(array.type) * DTYPE_BYTES[array.dtype] * sizes.peak(dims))


def _logits(program: Program, sizes: Sizes) -> Any:
    """Bytes of the least sharded activation with both a batch and a vocabulary dim."""
    wide = [op.output for op in program.ops if {"b", "v"} <= set(op.output.dims) and op.output.role == "activation"]
    if not wide:
        return 0
    widest = min(wide, key=lambda array: len(array.type.sharded_axes))
    return local_bytes(widest, sizes)


def spare_bytes(
    program: Program,
    sizes: Sizes,
    keeps: Mapping[str, Any],
    here: Callable[[Where], bool],
    count: Callable[[Where], Any],
    *,
    last: bool,
    tied: bool,
    copied: Any,
) -> Any:
    """Bytes that a stack holds all the time, of what `STANDING` names.

    keeps   bytes per element, by what they are of
    here    what a rank has
    count   how often
    last    True for the rank that has the head, which a tied embedding stands for
    copied  1 where all parameters have a copy: where devices share them whole; else 0
    """
    if not keeps:
        return 0
    leaves = [op for op in program.ops if isinstance(op, Leaf) and op.output.role == "param"]
    mine = [op for op in leaves if here(op.where)]
    head = "E" if tied else "O"
    once = [op for op in mine if op.where.index(ALIKE) == 0 and {"h"} < {*unpacked(op.output.type).dims}]
    once += [op for op in mine if op.output.name == head and last]
    counted = {"weights": [(op, 1) for op in once], "parameters": [(op, count(op.where) * copied) for op in mine]}
    pairs = ((of, *one) for of in keeps.keys() & counted.keys() for one in counted[of])
    return total(keeps[of] * sizes.local_elements(op.output.type) * times for of, op, times in pairs)
