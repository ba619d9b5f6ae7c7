"""Flat buffers that gradients are reduced in, or weights gathered in: lists by framework, read off its code."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping

BufferSize = Literal["bucket", "standing", "reduced", "gathered", "parameters"]
"""What a buffer is as large as, and when it is there.

bucket      `Bucket.elements` in the dtype of activations, as long as a microbatch goes backward
standing    the same, all the time
reduced     the gradients that one layer reduces in a microbatch, which lie in it, while layers go backward
gathered    the weights that one layer gathers, while layers go forward
parameters  all gradients of a rank in the dtype of its parameters, all the time, where devices reduce them whole
"""

AT: Mapping[BufferSize, range] = {
    **dict.fromkeys(get_args(BufferSize), range(4)),
    "reduced": range(2, 4),
    "gathered": range(3, 4),
    "parameters": range(1),
}
"""The ZeRO stages at which there is anything of such a size."""


class Buffer(NamedTuple):
    """So many buffers of a size at some ZeRO stages; beside: there only where reductions run beside compute."""

    of: BufferSize
    many: int = 1
    stages: range = range(4)
    beside: bool = False


Buffers = tuple[Buffer, ...]

BUFFERS: Mapping[str, Buffers] = {
    "none": (),
    "fsdp2": (Buffer("reduced"), Buffer("gathered"), Buffer("parameters")),
    "deepspeed": (
        Buffer("bucket", stages=range(1, 3)),
        Buffer("bucket", stages=range(1, 3), beside=True),
        Buffer("standing", stages=range(3, 4)),
    ),
}
"""Name of a list -> the buffers of its framework."""

BUFFERS_SOURCES: Mapping[str, str] = {
    "none": "buckets are views of where gradients are added up and weights lie, as Megatron-LM's are "
    "(core/distributed/param_and_grad_buffer.py at 0e9fcc1, _ParamAndGradBuffer._get), or a compiler's own business",
    "fsdp2": "PyTorch: the input of a layer's reduce-scatter stays until the next layer reduces, the output of a "
    "gather in forward until the next one is copied out (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py at "
    "002a76f, ReduceScatterState, AllGatherState; _fsdp_collectives.py at 010ae4a, foreach_reduce); where gradients "
    "are reduced whole by DistributedDataParallel, whose buckets are copies of them (gradient_as_bucket_view: False)",
    "deepspeed": "DeepSpeed 0.19.6 (edaa722): contiguous_gradients is on; stages 1 and 2 have a buffer of "
    "reduce_bucket_size in backward, and a second one with overlap_comm (runtime/zero/stage_1_and_2.py, "
    "setup_buckets), stage 3 has one from its beginning (stage3.py)",
}
"""Where a list is from, and what it says."""


def at_stage(buffers: Buffers, zero: int, *, beside: bool) -> Buffers:
    """Those of a ZeRO stage, one entry for each size; beside: reductions run beside compute."""
    counts: Counter[BufferSize] = Counter()
    for one in buffers:
        if zero in one.stages and zero in AT[one.of] and (beside or not one.beside):
            counts[one.of] += one.many
    return tuple(Buffer(of, many) for of, many in counts.items())
