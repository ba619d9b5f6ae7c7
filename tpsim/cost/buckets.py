"""Bytes of the buffers that gradients are reduced in, or weights gathered in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpsim.cost.memory import local_bytes
from tpsim.program.dtypes import DTYPE_BYTES
from tpsim.program.lives import is_gather, is_view
from tpsim.program.op import Reshard

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpsim.cost.sizes import Sizes
    from tpsim.program.buffers import BufferSize
    from tpsim.program.op import Op
    from tpsim.program.practice import Bucket


def bucket_bytes(buffers: Mapping[BufferSize, Any], parameters_bytes: Any, copied: Any) -> Any:
    """Bytes of buffers that are there all the time.

    buffers           as `held_in` has them
    parameters_bytes  of the rank
    copied            1 where devices share parameters whole, whose gradients they reduce; else 0
    """
    return buffers.get("standing", 0) + buffers.get("parameters", 0) * parameters_bytes * copied


def held_in(bucket: Bucket, dtype: str) -> dict[BufferSize, Any]:
    """Of every size of buffers their bytes, where a bucket states its elements; else how many there are.

    dtype  of activations
    """
    sized = {"bucket": (bucket.elements or 0) * DTYPE_BYTES[dtype]}
    sized["standing"] = sized["bucket"]
    return {one.of: one.many * sized.get(one.of, 1) for one in bucket.buffers}


def moved_bytes(op: Op, sizes: Sizes) -> Any:
    """Bytes of weights that an op of a layer gathers in forward, or of a gradient that it scatters; else 0."""
    if is_gather(op):
        return local_bytes(op.output, sizes) if op.where.act == "F" else 0
    scattered = isinstance(op, Reshard) and op.inputs[0].role == "gradient" and not is_view(op)
    return local_bytes(op.inputs[0], sizes) if scattered else 0
