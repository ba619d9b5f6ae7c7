"""Which part of backward an op is: on the way to the stream's cotangent (B), or for parameters alone (W).

W are the ops that lead to a gradient and not to the cotangent of the stream where a part of the stack begins, but for
what is recomputed; all else of backward is B. So B can run, and what it sends leave, before any W: zero-bubble
schedules live from that.
Source: Qi et al., Zero Bubble Pipeline Parallelism (2023), section 2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from tpsim.program.op import Array, Op


def parted(ops: Sequence[Op], stream: Iterable[Array], gradients: Collection[Array]) -> tuple[Op, ...]:
    """The ops with W told from B; a fused kernel is one or the other as a whole.

    stream     cotangents that one part of the stack hands to the one before it
    gradients  of parameters, settled
    """
    backward = [op for op in ops if op.where.act == "B"]
    replayed = {op.output for op in backward if op.where.again == "replay"}
    on_the_way = _leading_to({*stream, *replayed}, backward)
    kernels = {(op.where.kernel, op.where.loops) for op in backward if op.output in on_the_way and op.where.kernel}
    read_by_update = {x for op in ops if op.where.act == "U" for x in op.inputs}
    for_parameters = _leading_to({*gradients, *read_by_update}, backward) - on_the_way
    return tuple(
        replace(op, where=replace(op.where, act="W"))
        if op.where.act == "B" and op.output in for_parameters and (op.where.kernel, op.where.loops) not in kernels
        else op
        for op in ops
    )


def _leading_to(arrays: Iterable[Array], ops: Sequence[Op]) -> set[Array]:
    """`arrays`, and all that is made by these ops on the way to them."""
    found = set(arrays)
    for op in reversed(ops):
        if op.output in found:
            found.update(op.inputs)
    return found
