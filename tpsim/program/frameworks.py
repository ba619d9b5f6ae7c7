"""What frameworks do: named bundles of the switches of practice; `practice_sources` says where each is from."""

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
