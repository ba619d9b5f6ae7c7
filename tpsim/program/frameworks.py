"""What frameworks do: named bundles of the switches of practice, and where each of these is from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from tpsim.program.keeps import BUFFERS, BUFFERS_SOURCES, KEEPS, KEEPS_SOURCES
from tpsim.program.practice import SWITCHES, Ahead, Bucket, Overlap, Practice, Rows

PRACTICES: Mapping[str, Practice] = {
    "ideal": Practice(
        context="ring",
        order="zigzag",
        cast="shards",
        overlap=Overlap(tensor="beside", gradients="beside", weights="beside", stages="beside"),
        ahead=Ahead(since="step"),
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
        latents="stream",
        handed="heads",
        replay="whole",
        overlap=Overlap(tensor="beside"),
        bucket=Bucket(elements=40_000_000, per_rank=1_000_000, first_chunk=True),
    ),
    "fsdp2": Practice(
        reshard_after_forward="layers",
        staged="shared",
        coalesce=True,
        cast="shards",
        units="root",
        copies="each",
        settled="parameters",
        padding="rows",
        clip="norm",
        order="zigzag",
        handed="heads",
        overlap=Overlap(gradients="beside", weights="beside", stages="beside"),
        buffers=BUFFERS["fsdp2"],
    ),
    "deepspeed": Practice(
        reshard_after_forward=True,
        coalesce=True,
        cast="shards",
        copies="added",
        padding="flat",
        clip="norm",
        handed="heads",
        replay="whole",
        overlap=Overlap(gradients="zero3", weights="zero3", stages="none"),
        ahead=Ahead(elements=50_000_000),
        bucket=Bucket(elements=500_000_000),
        buffers=BUFFERS["deepspeed"],
    ),
    "xla": Practice(
        reshard_after_forward="layers",
        cotangents="per_use",
        cast="shards",
        handed="heads",
        causal="whole",
        overlap=Overlap(tensor="split", gradients="beside", weights="beside", stages="beside"),
        ahead=Ahead(since="step"),  # MaxText, layers/pipeline.py, pipeline_fsdp_ag_once: before the pipeline's loop
    ),
}
"""Named bundles of switches; a plan prints the switches, not the name alone."""


class SwitchSource(NamedTuple):
    """What a switch follows from: code or a paper that was read, or, as a guess, nothing but what is usual."""

    kind: Literal["stated", "guess"]
    source: str


MEGATRON = "Megatron-LM at d98e8a6, megatron/core/"
DEEPSPEED = "DeepSpeed 0.19.6 at edaa722, deepspeed/runtime/"
FSDP = "PyTorch, torch/distributed/fsdp/_fully_shard/"
TITAN = "torchtitan at b5bcd76, torchtitan/"

NONE_DROPPED = "nothing is recomputed unless it is asked for"
NONE_OFFLOADED = "nothing lives on a host unless it is asked for"

READ: Mapping[str, Mapping[str, str]] = {
    "megatron": {
        "cotangents": MEGATRON + "transformer/attention.py, linear_qkv: one product reads the stream",
        "regather": MEGATRON + "tensor_parallel/layers.py: backward fills all_gather_buffer again",
        "gradients": MEGATRON + "distributed/param_and_grad_buffer.py: buckets are reduced in a step's last microbatch",
        "zero1": MEGATRON + "distributed/param_and_grad_buffer.py: reduce_scatter with the distributed optimizer",
        "cross_entropy": MEGATRON + "tensor_parallel/cross_entropy.py: _VocabParallelCrossEntropy",
        "qkv": MEGATRON + "transformer/attention.py: linear_qkv",
        "copies": MEGATRON + "model_parallel_config.py: gradient_accumulation_fusion, products add to main_grad",
        "units": MEGATRON + "distributed/param_and_grad_buffer.py: what is gathered is stored, and stays",
        "settled": MEGATRON + "distributed/param_and_grad_buffer.py: grad_data is reduced where it lies",
        "coalesce": MEGATRON + "distributed/param_and_grad_buffer.py: a bucket is one call",
        "attention": MEGATRON + "transformer/transformer_config.py: attention_backend auto",
        "recompute": MEGATRON + "transformer/transformer_config.py: recompute_granularity None",
        "offload": NONE_OFFLOADED,
        "recompute_layers": NONE_DROPPED,
        "keeps": KEEPS_SOURCES["megatron"],
        "replay": MEGATRON + "tensor_parallel/random.py: CheckpointFunction runs the whole forward again",
        "padding": MEGATRON + "distributed/param_and_grad_buffer.py: _pad_end_of_bucket_if_needed",
        "context": "Megatron-LM at d98e8a6, docs/source/api-guide/context_parallel.rst: point to point in a ring",
        "order": MEGATRON + "models/common/embeddings/rope_utils.py: pieces cp_rank and 2 cp_size - cp_rank - 1",
        "latents": MEGATRON + "transformer/multi_latent_attention.py, models/gpt/gpt_layer_specs.py: products that "
        "compress are duplicated and read the tokens at hand, those behind them gather what they read",
        "home": "Transformer Engine at d0067d0, pytorch/attention/dot_product_attention/context_parallel.py, "
        "AttnFuncWithCPAndKVP2P: dkv, as wide as kv, starts a hop behind it and is at home after n - 1",
        "handed": MEGATRON + "transformer/multi_latent_attention.py, qkv_up_proj_and_rope_apply: keys and values of "
        "tokens at hand, k_pos_emb expanded; Transformer Engine at d0067d0, pytorch/attention/dot_product_attention/"
        "context_parallel.py, p2p_comm_buffers: k and v",
        "causal": MEGATRON + "transformer/attention.py: flash attention with causal=True",
        "clip": "Megatron-LM at d98e8a6, megatron/training/arguments.py: --clip-grad 1.0",
        "overlap": MEGATRON + "tensor_parallel/layers.py: asynchronous all-reduces in backward; "
        "distributed/distributed_data_parallel_config.py: overlap_grad_reduce and overlap_param_gather are off; "
        "pipeline_parallel/schedules.py: messages overlap where chunks are interleaved",
        "ahead": "NeMo and Megatron-Bridge, documentation: weights come in chunks of a layer, one ahead",
        "bucket": MEGATRON + "distributed/distributed_data_parallel.py: max(40e6, 1e6 per data rank) parameters on the "
        "first chunk alone, the others one bucket; buffers: " + BUFFERS_SOURCES["none"],
        "rows": MEGATRON + "transformer/moe/experts.py: permuted_probs are applied in experts; "
        "model_parallel_config.py: overlap_moe_expert_parallel_comm False",
    },
    "fsdp2": {
        "reshard_after_forward": TITAN + "config/configs.py: fsdp_reshard_after_forward default; PyTorch, torch/"
        "distributed/fsdp/_fully_shard/_fsdp_state.py, _lazy_init: not the root's, which is read at once",
        "gradients": FSDP + "_fsdp_param_group.py at 002a76f, post_backward; over replicas once, as "
        "torchtitan does since its PR 4505 (unless told so FSDP2 sums in every microbatch: pytorch PR 126166)",
        "staged": TITAN + "models/llama3/parallelize.py: by default nothing is resharded after forward with stages; "
        "PyTorch, torch/distributed/pipelining/stage.py: gradients are reduced behind the last microbatch",
        "zero1": FSDP + "_fsdp_collectives.py at 010ae4a, foreach_reduce: gradients are scattered, never whole",
        "cross_entropy": KEEPS_SOURCES["torchtitan-parallel"],
        "qkv": TITAN + "models/common/attention.py: wq, wk and wv, or as one, as a model is configured",
        "cast": FSDP + "_fsdp_collectives.py at 010ae4a, _get_param_all_gather_inputs: shards in param_dtype; "
        "_composable/replicate_with_fsdp.py: whole parameters by the same code, kept for backward",
        "copies": FSDP + "_fsdp_collectives.py at 010ae4a: copies out of and into buffers",
        "units": FSDP + "_fsdp_param_group.py at 002a76f: reshard frees a module's parameters, the root's what is left",
        "settled": FSDP + "_fsdp_collectives.py at 010ae4a, foreach_reduce: what is reduced is brought to orig_dtype",
        "coalesce": FSDP + "_fsdp_collectives.py at 010ae4a: foreach_all_gather, foreach_reduce",
        "attention": TITAN + "models/common/attention.py: scaled_dot_product_attention",
        "recompute": NONE_DROPPED,
        "offload": NONE_OFFLOADED,
        "recompute_layers": NONE_DROPPED,
        "keeps": KEEPS_SOURCES["none"],
        "replay": "PyTorch, torch/utils/checkpoint.py: _enable_checkpoint_early_stop True",
        "padding": FSDP + "_fsdp_common.py: _get_dim0_padded_size",
        "context": "PyTorch, torch/distributed/tensor/experimental/_context_parallel/_cp_custom_ops.py: gathered for "
        "FlexAttention, gradients scattered; for scaled_dot_product_attention (_attention.py) backward gathers them "
        "again, and gradients go all the way round in f32, as a ring with home circle has it",
        "order": "PyTorch, torch/distributed/tensor/experimental/_attention.py: enable_load_balance True",
        "handed": TITAN + "models/deepseek_v3/model.py: inner_attention is given k, with k_pe expanded, and v",
        "causal": TITAN + "models/common/attention.py: is_causal True",
        "clip": TITAN + "config/configs.py: max_norm 1.0",
        "overlap": FSDP + "_fsdp_param_group.py at 002a76f, FSDPCommContext: streams of their own",
        "ahead": "PyTorch PR 128884: one layer ahead",
        "bucket": BUFFERS_SOURCES["fsdp2"],
    },
    "deepspeed": {
        "reshard_after_forward": DEEPSPEED + "zero/partitioned_param_coordinator.py: __all_gather_params in backward",
        "gradients": DEEPSPEED + "zero/stage_1_and_2.py: stage 2 reduces in each backward, stage 1 at a step's end",
        "zero1": DEEPSPEED + "zero/config.py: reduce_scatter True",
        "cast": DEEPSPEED + "zero/partition_parameters.py: get_allgather_dtype, of linear layers under torch_autocast",
        "copies": "PyTorch, torch/csrc/autograd/functions/accumulate_grad.h: kernels add gradients up",
        "coalesce": DEEPSPEED + "zero/stage_1_and_2.py, stage3.py: a bucket is one call",
        "recompute": NONE_DROPPED,
        "offload": NONE_OFFLOADED,
        "recompute_layers": NONE_DROPPED,
        "keeps": KEEPS_SOURCES["none"],
        "replay": DEEPSPEED + "activation_checkpointing/checkpointing.py: CheckpointFunction runs the forward again",
        "padding": DEEPSPEED + "zero/partition_parameters.py: _padding_size of a flattened parameter",
        "clip": DEEPSPEED + "zero/stage_1_and_2.py, stage3.py: scaled_global_norm in every step, clipped or not",
        "handed": "DeepSpeed at 25493c7, deepspeed/sequence/layer.py, DistributedAttention: query, key and value",
        "overlap": DEEPSPEED + "zero/config.py: overlap_comm at stage 3 alone; pipe/p2p.py: send blocks",
        "ahead": DEEPSPEED + "zero/config.py: stage3_prefetch_bucket_size 5e7 elements",
        "bucket": DEEPSPEED + "zero/config.py: reduce_bucket_size 5e8; buffers: " + BUFFERS_SOURCES["deepspeed"],
    },
    "xla": {
        "cotangents": "programs compiled by XLA on CPU, tests/oracle: each projection brings its own back",
        "regather": "programs compiled by XLA on CPU, tests/oracle: gathered activations stay",
        "reshard_after_forward": "MaxText scans its layers: what backward has of their weights is what the loop of "
        "forward is given, shards; 64B on v5e of 16 GB would hold 128 GB otherwise (MaxText/configs/v5e/README.md)",
        "cast": "openxla/xla, xla/service/spmd/spmd_partitioner.cc: HandleElementwise leaves a cast on its shards; "
        "what reads it, in dot_handler.cc, gathers what it made",
        "handed": "MaxText at 0528075, layers/attention_mla.py, mla_kv_projection: keys and values of LENGTH_NO_EXP, "
        "which attention_op is given",
        "recompute": NONE_DROPPED,
        "offload": NONE_OFFLOADED,
        "recompute_layers": NONE_DROPPED,
        "keeps": KEEPS_SOURCES["none"],
        "overlap": "Wang et al., ASPLOS 2023: collectives are asynchronous, and products that read a gather or make "
        "what is scattered are cut to run beside its steps; openxla/xla, xla/service/spmd/dot_handler.cc, "
        "check_users_sharding: not where several products share a gather",
    },
}
"""Bundle -> switch -> what was read of it."""

OF_IDEAL = "no framework: what could be had"

SWITCH_SOURCES: Mapping[str, Mapping[str, SwitchSource]] = {
    "ideal": {name: SwitchSource("stated", OF_IDEAL) for name in SWITCHES},
    **{
        base: {
            name: SwitchSource("stated", read[name])
            if name in read
            else SwitchSource("guess", "nothing was read of it: what is usual")
            for name in SWITCHES
        }
        for base, read in READ.items()
    },
}
"""Bundle -> switch -> where its value is from; a guess where nothing was read."""


def unread(base: str) -> tuple[str, ...]:
    """The switches of a bundle that are guesses."""
    return tuple(name for name, source in SWITCH_SOURCES[base].items() if source.kind == "guess")
