"""What stacks keep beside what their kernels need, by published runs, and what buckets lie in, by their code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args


class Extra(NamedTuple):
    """Bytes per element of an array of the program, wherever and as long as this is there; or of what is `STANDING`."""

    of: str
    bytes_each: int

    def __str__(self) -> str:
        """As ``loss.exp 4``."""
        return f"{self.of} {self.bytes_each}"


GRADIENTS = "gradients"
"""What a list calls gradients of weights as their products make them, before they are added up."""

STANDING: Mapping[str, str] = {
    "weights": "the weights of every product of a rank's layers once, of experts those of one; the head's where it is",
}
"""What else a list may count elements of, and holds all the time."""

KEEPS: Mapping[str, tuple[Extra, ...]] = {
    "none": (),
    "megatron": (Extra("loss.exp", 2), Extra("weights", 2), Extra(GRADIENTS, -2)),
    "megatron-te": (Extra("weights", 2), Extra(GRADIENTS, -2)),
    "nanotron": (Extra("mlp.act", 2), Extra("attention.mixed", 2), Extra("loss.exp", 4)),
    "torchtitan": (Extra("loss.exp", 8),),
    "torchtitan-parallel": (Extra("loss.exp", 12),),
    "litgpt": (
        *(Extra("mlp.act", 2), Extra("attention.normed", 4), Extra("mlp.normed", 4), Extra("attention.mixed", 2)),
        *(Extra("attention.q", 4), Extra("attention.k", -2), Extra("attention.v", -2)),  # as wide as queries
        Extra("loss.exp", 8),
    ),
}
"""Name of a stack -> what it keeps. docs/memory.md holds plans with them, and without, against the runs."""

DUMMIES = (
    "an empty gradient for every shape of weights, whose own are added up where they lie "
    "(Transformer Engine 2.11, pytorch/module/base.py: get_dummy_wgrad)"
)

KEEPS_SOURCES: Mapping[str, str] = {
    "none": "what kernels need and nothing else",
    "megatron": "Megatron-LM at d98e8a6 by its defaults: logits beside their softmax in f32, 6 bytes per logit "
    f"(core/tensor_parallel/cross_entropy.py), and {DUMMIES}",
    "megatron-te": f"Megatron-LM with Transformer Engine's fused cross entropy: {DUMMIES}",
    "nanotron": "nanotron's benchmark runs, eager: silu's output, attention's output laid out anew, 8 bytes per logit",
    "torchtitan": "torchtitan's code, loss not compiled: logits go into cross entropy in f32, and its log-softmax, the "
    "gradient of that and theirs are there at once, 12 bytes per logit",
    "torchtitan-parallel": "PyTorch's code of the parallel loss, torchtitan's under tensor parallelism: backward adds "
    "the exponential of the log-softmax to its gradient and scales that, four arrays of f32, 16 bytes per logit",
    "litgpt": "LitGPT's runs, eager: silu's output, norms' inputs in f32, attention's output laid out anew, keys and "
    "values as wide as queries, 12 bytes per logit",
}
"""Where a list is from, and what it says."""


class Margin(NamedTuple):
    """How far off peaks by a list may be, as a share, and what says so."""

    share: float
    source: str


KEEPS_MARGINS: Mapping[str, Margin] = {
    "none": Margin(0.2, "what stacks keep beside what their kernels need differs a lot"),
    "megatron": Margin(0.05, "90th percentile of Megatron-LM's runs, with experts too: 2.5 %"),
    "megatron-te": Margin(0.05, "its runs with experts, largest error 2.4 %"),
    "nanotron": Margin(0.05, "each of its seven configurations by the list that the six others lead to: at most 1.7 %"),
}
"""Name of a list -> its margin, by runs that it was not found by (docs/memory.md)."""

CARRIED = Margin(0.13, "90th percentile of runs of other stacks with Megatron's switches by its list: 12.4 %")
"""That of a list of which no such runs are known, or that a scenario states itself."""


def margin(keeps: tuple[Extra, ...]) -> Margin:
    """That of what a stack keeps."""
    return next((KEEPS_MARGINS[name] for name in KEEPS_MARGINS if KEEPS[name] == keeps), CARRIED)


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
    for buffer in buffers:
        if zero in buffer.stages and zero in AT[buffer.of] and (beside or not buffer.beside):
            counts[buffer.of] += buffer.many
    return tuple(Buffer(of, many) for of, many in counts.items())
