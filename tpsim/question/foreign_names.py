"""What other frameworks call the fields of a scenario, and the parallelisms that tpsim does not plan yet."""

from __future__ import annotations

from collections.abc import Mapping

_NAMES = {
    "layout.tp": (
        "tensor_model_parallel_size",
        "tensor_parallel_degree",
        "tensor_parallel_size",
        "tensor_parallel",
        "tensor_parallelism",
        "ici_tensor_parallelism",
        "dcn_tensor_parallelism",
        "model_parallel_size",
        "tp_size",
        "tp_degree",
    ),
    "layout.dp": (
        "data_parallel_size",
        "data_parallel_degree",
        "data_parallel_replicate_degree",
        "data_parallel",
        "data_parallelism",
        "ici_data_parallelism",
        "dcn_data_parallelism",
        "dp_size",
        "dp_degree",
    ),
    "layout.pp": (
        "pp_size",
        "pipeline_parallel",
        "pipeline_model_parallel_size",
        "pipeline_parallel_size",
        "pipeline_parallel_degree",
        "ici_pipeline_parallelism",
        "dcn_pipeline_parallelism",
        "stages",
    ),
    "layout.ep": (
        "ep",
        "ep_size",
        "expert_parallel",
        "expert_model_parallel_size",
        "expert_parallel_size",
        "expert_parallel_degree",
        "ici_expert_parallelism",
    ),
    "layout.cache": ("decode_context_parallel_size", "dcp_size"),
    "layout.etp": ("etp", "expert_tensor_parallel_size"),
    "practice.rows.dispatch": ("moe_token_dispatcher_type", "moe_enable_deepep", "deepep"),
    "assume.routing.drop": ("capacity_factor", "moe_expert_capacity_factor", "expert_capacity_factor"),
    "layout.cp": (
        "cp_size",
        "context_parallel",
        "context_parallelism",
        "context_parallel_size",
        "context_parallel_degree",
        "ici_context_parallelism",
    ),
    "layout.context": ("cp_comm_type", "ulysses", "ulysses_degree", "ring_attention"),
    "layout.sequence_parallel": ("sequence_parallel_enabled", "enable_sequence_parallel", "sequence_parallelism"),
    "layout.zero": ("zero_stage", "zero_optimization", "sharding_stage"),
    "workload.global_batch": (
        "gbs",
        "bs",
        "batch_size",
        "global_batch_size",
        "train_batch_size",
        "global_train_batch_size",
        "max_num_seqs",
        "max_running_requests",
    ),
    "workload.step_tokens, of inference": (
        "max_num_batched_tokens",
        "chunked_prefill_size",
        "max_num_tokens",
    ),
    "workload.speculation, of inference": ("speculative_config", "speculative_decoding"),
    "workload.speculation.tokens, of inference": ("num_speculative_tokens", "speculative_num_steps", "max_draft_len"),
    "workload.speculation.draft, of inference": ("speculative_model", "speculative_draft_model_path", "draft_model"),
    "workload.speculation.layout, of inference": ("draft_tensor_parallel_size",),
    "workload.microbatches": (
        "gas",
        "grad_accum",
        "gradient_accumulation",
        "gradient_accumulation_steps",
        "accumulate_grad_batches",
        "num_microbatches",
        "num_micro_batches",
    ),
    "workload.seq": (
        "seqlen",
        "seq_length",
        "seq_len",
        "sequence_length",
        "max_seq_len",
        "max_seq_length",
        "max_target_length",
        "context_length",
        "ctx_len",
        "block_size",
        "max_model_len",
    ),
    "workload.dtype": ("precision", "mixed_precision", "torch_dtype"),
    "workload.param_dtype": ("params_dtype",),
    "model": ("model_name", "model_name_or_path", "hf_model"),
    "model.layers": ("num_layers", "n_layers", "num_hidden_layers"),
    "model.hidden": ("hidden", "hidden_size", "d_model"),
    "model.heads": ("heads", "num_attention_heads", "num_heads", "n_heads"),
    "model.kv_heads": ("kv_heads", "num_key_value_heads", "num_query_groups", "num_kv_heads"),
    "model.vocab": ("vocab", "vocab_size"),
    "chips": (
        "world_size",
        "num_gpus",
        "n_gpus",
        "ngpus",
        "gpus",
        "num_tpus",
        "num_devices",
        "num_chips",
        "num_accelerators",
    ),
    "pipeline.chunks": ("virtual_pipeline_model_parallel_size",),
    "pipeline.layers": (
        "decoder_first_pipeline_num_layers",
        "decoder_last_pipeline_num_layers",
        "account_for_embedding_in_pipeline_split",
        "account_for_loss_in_pipeline_split",
    ),
    "layout.cut": ("scatter_gather_tensors_in_pipeline",),
    "pipeline.schedule": ("pipeline_schedule", "pipeline_parallel_schedule", "schedule"),
    "recompute": (
        "recompute_granularity",
        "recompute_activations",
        "activation_checkpoint",
        "activation_checkpointing",
        "activations_checkpoint_granularity",
        "checkpoint_activations",
        "gradient_checkpointing",
        "remat",
        "remat_policy",
    ),
    "recompute.drop": ("recompute_modules",),
    "offload.state": (
        "cpu_offload",
        "offload_optimizer",
        "optimizer_cpu_offload",
        "optimizer_offload",
        "optimizer_memory_host_offload",
    ),
    "practice.overlap.tensor": ("tp_comm_overlap", "async_tensor_model_parallel_allreduce"),
    "practice.overlap.gradients": ("overlap_grad_reduce", "overlap_comm"),
    "practice.overlap.weights": ("overlap_param_gather",),
    "practice.overlap.stages": ("overlap_p2p_communication", "overlap_p2p_comm"),
    "practice.bucket.elements": ("reduce_bucket_size", "ddp_bucket_size"),
    "practice.bucket.buffers": ("contiguous_gradients", "gradient_as_bucket_view"),
    "practice.ahead.elements": ("stage3_prefetch_bucket_size",),
    "practice.clip": ("clip_grad", "clip_grad_norm", "gradient_clipping", "max_grad_norm"),
    "recompute.layers": ("recompute_num_layers", "activations_checkpoint_num_layers"),
    "mesh": ("mesh_shape", "device_mesh"),
    "hardware": ("machine", "cluster", "gpu", "gpu_type", "tpu_type", "machine_type", "accelerator"),
}

_OF_ANOTHER_UNIT = {
    "layout.zero, of which 3 shards parameters, too": ("fsdp", "fully_shard"),
    "layout.zero, of which 1 shards what an optimizer holds": ("use_distributed_optimizer", "distributed_optimizer"),
    "pipeline.chunks, which is layers / (pp x layers of one)": ("num_layers_per_virtual_pipeline_stage",),
    "model.layers, which pipeline.layers splits over stages": ("layers",),
    "model, whose file says its experts": ("experts", "expert", "num_experts"),
    "recompute.layers, which is of each chunk; without it all are": (
        "recompute_method",
        "activations_checkpoint_method",
    ),
    "workload.microbatches, which is global_batch / (dp x sequences of one of them)": (
        "mbs",
        "micro_batch",
        "micro_batch_size",
        "microbatch_size",
        "train_micro_batch_size_per_gpu",
        "per_device_train_batch_size",
        "local_batch_size",
    ),
    "layout.zero_over, which names the axes of dp that ZeRO shards over": (
        "hybrid_shard",
        "mics_shard_size",
        "num_distributed_optimizer_instances",
    ),
    "layout.dp, with layout.zero: 3, which shards over it": (
        "data_parallel_shard_degree",
        "ici_fsdp_parallelism",
        "dcn_fsdp_parallelism",
        "fsdp_size",
    ),
    "workload.cache_block, of inference": ("page_size", "tokens_per_block", "kv_block_size"),
    "workload.cache_dtype, of inference": ("kv_cache_dtype", "kv_cache_quant_algo"),
    "workload.global_batch, which is chips x it": ("per_device_batch_size",),
    "chips, which is nodes x chips of one": ("nodes", "nnodes", "n_nodes", "num_nodes", "node_count"),
    "hardware, whose levels have the chips of a node for their shape": (
        "gpus_per_node",
        "num_gpus_per_node",
        "nproc_per_node",
        "devices_per_node",
    ),
}
"""What says the same in another unit: tpsim's path, and how the one follows from the other."""

FOREIGN: Mapping[str, str] = {word: path for path, words in (_NAMES | _OF_ANOTHER_UNIT).items() for word in words}
"""Another framework's name -> the path that tpsim has for it, and after a comma how the one follows from the other."""

_LATER = {
    "offload of weights": ("offload_param", "offload_params", "weight_offload", "parameter_memory_host_offload"),
    "offload of activations": (
        "activations_offload",
        "cpu_offloading",
        "fine_grained_activation_offloading",
        "cpu_checkpointing",
    ),
}

NOT_YET: Mapping[str, str] = {word: feature for feature, words in _LATER.items() for word in words}
"""A field that a later tpsim may have -> the feature that it asks for."""


IN_PYTHON = {
    "set": 'write overrides=["layout.zero=3"]',
    "save": "a plan is saved by its text: plan.to_yaml(), of a search found.best.plan.to_yaml()",
    "sweep": 'ask tpsim.sweep(..., folder="runs")',
    **dict.fromkeys(("output", "format", "quiet", "verbose"), "an answer has verdict, to_frame() and to_json()"),
}
"""Options of the command line that are no arguments of a function -> what is instead."""


def foreign_name(word: str) -> str | None:
    """The tpsim path for another framework's name, also when spelled as a flag: ``--tensor-parallel-size``."""
    return FOREIGN.get(as_field(word))


def not_yet(word: str) -> str | None:
    """The feature that a field or flag asks for and tpsim does not have yet, else None."""
    return NOT_YET.get(as_field(word))


def as_field(word: str) -> str:
    """A flag as the name of a field: ``--seq-length`` is ``seq_length``."""
    return word.lstrip("-").replace("-", "_").lower()
