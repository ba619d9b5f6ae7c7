"""What frameworks do: named bundles of the switches of practice, with their sources."""

from __future__ import annotations

from collections.abc import Mapping

from tpsim.program.buffers import BUFFERS
from tpsim.program.keeps import KEEPS
from tpsim.program.practice import Ahead, Bucket, Overlap, Practice, Rows

PRACTICES: Mapping[str, Practice] = {
    "ideal": Practice(
        context="ring",
        order="zigzag",
        overlap=Overlap(tensor="beside", gradients="beside", weights="beside", stages="beside"),
        rows=Rows(overlap="beside"),
    ),
    "megatron": Practice(
        regather=True,
        reshard_after_forward=True,
        qkv="fused",
        coalesce=True,
        keeps=KEEPS["megatron"],
        padding="flat",
        clip="norm",
        context="ring",
        order="zigzag",
        replay="whole",
        overlap=Overlap(tensor="beside"),
        bucket=Bucket(elements=40_000_000, per_rank=1_000_000, first_chunk=True),
    ),
    "fsdp2": Practice(
        reshard_after_forward=True,
        coalesce=True,
        padding="rows",
        clip="norm",
        order="zigzag",
        overlap=Overlap(gradients="beside", weights="beside", stages="beside"),
        bucket=Bucket(buffers=BUFFERS["fsdp2"]),
    ),
    "deepspeed": Practice(
        reshard_after_forward=True,
        coalesce=True,
        padding="flat",
        clip="norm",
        replay="whole",
        overlap=Overlap(gradients="zero3", weights="zero3", stages="none"),
        ahead=Ahead(elements=50_000_000),
        bucket=Bucket(elements=500_000_000, buffers=BUFFERS["deepspeed"]),
    ),
    "xla": Practice(
        cotangents="per_use",
        causal="whole",
        overlap=Overlap(tensor="split", gradients="beside", weights="beside", stages="beside"),
    ),
}
"""Named bundles of switches; a plan prints the switches, not the name alone."""

SOURCES: Mapping[str, str] = {
    "ideal": "what could be had: everything runs beside compute",
    "megatron": "Megatron-LM: all-reduces of tensor parallelism are asynchronous in backward, overlap_grad_reduce and "
    "overlap_param_gather are off, buckets hold max(40e6, 1e6 per data rank) parameters on the first chunk alone, "
    "messages overlap where chunks are interleaved (distributed_data_parallel_config.py, schedules.py); gradients are "
    "clipped (--clip-grad 1.0)",
    "fsdp2": "PyTorch FSDP2: gathers and scatters on streams of their own, one layer prefetched (PR 128884); gradients "
    "are clipped as torchtitan does (training.max_norm 1.0)",
    "deepspeed": "DeepSpeed zero/config.py: overlap_comm at stage 3 alone, reduce_bucket_size 5e8, "
    "stage3_prefetch_bucket_size 5e7 elements; every step takes the norm of all gradients, clipped or not "
    "(stage_1_and_2.py, stage3.py: scaled_global_norm)",
    "xla": "XLA's latency-hiding scheduler: collectives are asynchronous, and products that read a gather or make what "
    "is scattered are cut to run beside its steps (Wang et al., ASPLOS 2023)",
}
"""Where the overlap of a bundle, its buckets, what it gathers ahead and its norm of gradients are from."""
