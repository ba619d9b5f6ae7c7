"""What other frameworks call the fields of a scenario, and the parallelisms that tpsim does not plan yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_TP = (
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
)
_DP = (
    "data_parallel_size",
    "data_parallel_degree",
    "data_parallel_replicate_degree",
    "data_parallel_shard_degree",
    "data_parallel",
    "data_parallelism",
    "ici_data_parallelism",
    "dcn_data_parallelism",
    "ici_fsdp_parallelism",
    "dcn_fsdp_parallelism",
    "fsdp_size",
    "dp_size",
    "dp_degree",
)
_OTHERS = {
    "layout.sequence_parallel": ("sequence_parallel_enabled", "enable_sequence_parallel", "sequence_parallelism"),
    "layout.zero": ("zero_stage", "zero_optimization", "use_distributed_optimizer", "fsdp"),
    "workload.global_batch": ("global_batch_size", "train_batch_size", "global_train_batch_size"),
    "workload.microbatches": ("gradient_accumulation_steps", "num_microbatches", "num_micro_batches"),
    "workload.seq": ("seq_length", "seq_len", "sequence_length", "max_seq_len", "max_target_length"),
    "chips": ("world_size", "num_gpus", "gpus", "num_devices", "num_chips", "num_accelerators"),
    "hardware": ("machine", "cluster", "gpu_type", "accelerator"),
}

FOREIGN: Mapping[str, str] = (
    dict.fromkeys(_TP, "layout.tp")
    | dict.fromkeys(_DP, "layout.dp")
    | {word: path for path, words in _OTHERS.items() for word in words}
)
"""Another framework's name -> the path of the scenario field that tpsim has for it."""

_LATER = {
    "pipeline parallelism": (
        "pp",
        "pipeline",
        "pp_size",
        "pipeline_parallel",
        "pipeline_model_parallel_size",
        "pipeline_parallel_size",
        "pipeline_parallel_degree",
        "ici_pipeline_parallelism",
        "dcn_pipeline_parallelism",
        "virtual_pipeline_model_parallel_size",
        "num_layers_per_virtual_pipeline_stage",
        "stages",
        "schedule",
    ),
    "context parallelism": (
        "cp",
        "context",
        "cp_size",
        "context_parallel",
        "context_parallel_size",
        "context_parallel_degree",
        "ici_context_parallelism",
        "ulysses",
    ),
    "expert parallelism": (
        "ep",
        "experts",
        "expert",
        "ep_size",
        "expert_parallel",
        "expert_model_parallel_size",
        "expert_parallel_size",
        "expert_parallel_degree",
        "ici_expert_parallelism",
        "num_experts",
    ),
    "activation recompute": ("recompute", "recompute_granularity", "activation_checkpointing", "remat", "remat_policy"),
}

NOT_YET: Mapping[str, str] = {word: feature for feature, words in _LATER.items() for word in words}
"""A field that a later tpsim may have -> the feature that it asks for."""


def foreign_name(word: str) -> str | None:
    """The tpsim path for another framework's name, also when spelled as a flag: ``--tensor-parallel-size``."""
    return FOREIGN.get(_as_field(word))


def not_yet(word: str) -> str | None:
    """The feature that a field or flag asks for and tpsim does not have yet, else None."""
    return NOT_YET.get(_as_field(word))


def _as_field(word: str) -> str:
    return word.lstrip("-").replace("-", "_").lower()


ALGORITHMS: Mapping[str, str] = {
    "ring": "ring",
    "tree": "tree",
    "nvls": "in-switch",
    "nvlstree": "in-switch-tree",
    "pat": "pat",
    "collnet": "in-network",
    "collnetdirect": "in-network",
    "collnetchain": "in-network",
}
"""NCCL's names of algorithms, in tpsim's."""
