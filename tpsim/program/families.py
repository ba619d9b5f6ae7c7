"""The model families of Hugging Face: what a model_type fixes, and which of its layers are of which kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tpsim.program.layer_rules import (
    Rule,
    behind_dense,
    chunks,
    every,
    every_fourth,
    has_experts,
    interleaved,
    later_windows,
    listed_layers,
    local_and_global,
    mamba_layers,
    mixers,
    patterned,
    some_rotary,
    sparse_step,
    window,
)

if TYPE_CHECKING:
    from tpsim.program.config import Config


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFamily:
    """What a model_type fixes, and what its config means when it leaves a key out.

    model      fields of `Model` that the architecture decides
    attention  fields of `Attention` that it decides; `numbers`: those that a config states, by their keys
    latent     True if attention is latent; indexed: an indexer chooses what it reads
    bias       True if the MLP has biases; gated: it multiplies two projections
    default    what a config may leave out; `ffn` is the activation
    switches   key of a switch -> the only value that is supported, which is also its default
    flags      key of a switch that is off where a config leaves it out -> fields of `Attention` that it decides
    widening   ffn hidden over hidden where a config leaves the former out, None if it may not
    masks      what of attention differs from layer to layer; linear: the fields of a linear one in its place
    sparse     which layers are mixtures of experts; None: no layer is
    moe        fields of `Moe` that the architecture decides; gated: what works for all tokens has a gate
    layers     gives the layers as tpsim has them, where a config counts what they are made of
    alone      which layers have no feed-forward; None: all have one
    shared     the key of the hidden size of what works for all tokens, where it is no multiple of an expert's
    others     what `Config` is asked for -> the key that the family has for it
    dense      the key of the hidden size of the layers that are none
    known      keys that change no size, and what a model leaves out where they say something
    """

    model: Mapping[str, Any] = field(default_factory=dict)
    attention: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, str] = field(default_factory=dict)
    latent: bool = False
    indexed: bool = False
    bias: bool = False
    gated: bool = True
    default: Mapping[str, Any] = field(default_factory=lambda: {"ffn": "silu", "tie_embeddings": False})
    switches: Mapping[str, bool | str] = field(default_factory=dict)
    flags: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    widening: int | None = None
    masks: Rule | None = None
    sparse: Rule | None = None
    moe: Mapping[str, Any] = field(default_factory=dict)
    dense: str = ""
    layers: Callable[[Config], Sequence[str]] | None = None
    alone: Rule | None = None
    shared: str = ""
    others: Mapping[str, str] = field(default_factory=dict)
    known: Mapping[str, str] = field(default_factory=dict)


NO_BIAS = {"attention_bias": False}
SANDWICH = {"norms": "both", "embedding_scale": True}
GEMMA = {"ffn": "gelu_pytorch_tanh", "tie_embeddings": True, "head_dim": 256}
FEW_BITS = {
    "quantization_config": "weights are published in few bits: of inference state workload.param_dtype, and "
    "workload.vocab_dtype where embedding and output are not (lm_head among the ignored)"
}
"""What is said of any family whose own entry says nothing nearer."""
IN_BLOCKS = {
    "quantization_config": "weights are published in fp8 with blocks of 128: workload.param_dtype: fp8_128, "
    "vocab_dtype: bf16"
}
NO_MTP = "modules that predict further tokens are left out, as transformers does"
QWEN3_NEXT: Mapping[str, Any] = {
    "attention": {"qk_norm": "head", "gate": True},
    "default": {"ffn": "silu", "tie_embeddings": False, "head_dim": 256},
    "switches": {**NO_BIAS, "attn_output_gate": True},
    "masks": every_fourth,
    "known": {
        **dict.fromkeys(("mamba_ssm_dtype", "mtp_use_dedicated_embeddings"), ""),
        "mtp_num_hidden_layers": NO_MTP,
    },
}
QWEN3_NEXT_MOE: Mapping[str, Any] = {
    **QWEN3_NEXT,
    "sparse": sparse_step,
    "shared": "shared_expert_intermediate_size",
    "moe": {"shared_gate": True},
}
DEEPSEEK: Mapping[str, Any] = {"latent": True, "switches": NO_BIAS, "sparse": behind_dense}
DEEPSEEK_V3 = {**DEEPSEEK, "moe": {"score": "sigmoid", "choice_bias": True}}
QWEN3 = ModelFamily(attention={"qk_norm": "head"}, switches=NO_BIAS, masks=later_windows(28))
QWEN3_MOE = ModelFamily(
    attention={"qk_norm": "head"},
    switches=NO_BIAS,
    masks=later_windows(0),
    sparse=sparse_step,
    moe={"normalise": False},
    known={"use_qk_norm": ""},
)
QWEN2 = ModelFamily(attention={"bias": "qkv"}, masks=later_windows(28))
OLMO2: Mapping[str, Any] = {"model": {"norms": "post"}, "attention": {"qk_norm": "all"}, "switches": NO_BIAS}
BIAS_OF_GLM = {"attention_bias": {"bias": "qkv"}}

FAMILIES: Mapping[str, ModelFamily] = {
    "llama": ModelFamily(switches={"mlp_bias": False}, flags={"attention_bias": {"bias": "all"}}),
    "llama4_text": ModelFamily(
        switches=NO_BIAS,
        masks=chunks,
        sparse=interleaved,
        moe={"score": "sigmoid", "normalise": False, "shared": 1},
        dense="intermediate_size_mlp",
        known={"use_qk_norm": "a QK-norm without gains is not modelled", "intermediate_size_mlp": ""},
    ),
    "mistral": ModelFamily(masks=window(4096)),
    "mixtral": ModelFamily(masks=window(0), sparse=every),
    "phi3": ModelFamily(masks=window(0)),
    "qwen2": QWEN2,
    "qwen2_5_vl_text": QWEN2,
    "qwen3": QWEN3,
    "qwen3_vl_text": QWEN3,
    "qwen3_moe": QWEN3_MOE,
    "qwen3_vl_moe_text": QWEN3_MOE,
    "qwen3_next": ModelFamily(**QWEN3_NEXT_MOE),
    "qwen3_5_text": ModelFamily(**QWEN3_NEXT),
    "qwen3_5_moe_text": ModelFamily(**QWEN3_NEXT_MOE),
    "kimi_linear": ModelFamily(
        **{**DEEPSEEK_V3, "masks": listed_layers},
        others={
            "n_shared_experts": "num_shared_experts",
            "n_group": "num_expert_group",
            "norm_topk_prob": "moe_renormalize",
            "scoring_func": "moe_router_activation_func",
        },
        known={
            "mla_use_nope": "a part of each head is modelled as rotated, which this model leaves as it is",
            "use_grouped_topk": "",
            **IN_BLOCKS,
        },
    ),
    "deepseek_v2": ModelFamily(**DEEPSEEK, moe={"normalise": False}),
    "deepseek_v3": ModelFamily(**DEEPSEEK_V3, known=IN_BLOCKS),
    "deepseek_v32": ModelFamily(**DEEPSEEK_V3, indexed=True, known=IN_BLOCKS),
    "kimi_k2": ModelFamily(**DEEPSEEK_V3, known=IN_BLOCKS),
    "glm4": ModelFamily(model={"norms": "both"}, flags=BIAS_OF_GLM),
    "glm4_moe": ModelFamily(
        flags={**BIAS_OF_GLM, "use_qk_norm": {"qk_norm": "head"}}, sparse=behind_dense, moe=DEEPSEEK_V3["moe"]
    ),
    "glm4_moe_lite": ModelFamily(**DEEPSEEK_V3),
    "glm_moe_dsa": ModelFamily(**DEEPSEEK_V3, indexed=True, known={"indexer_rope_interleave": "", **IN_BLOCKS}),
    "minimax_m2": ModelFamily(
        attention={"qk_norm": "all"},
        switches={"use_qk_norm": True, "use_routing_bias": True},
        sparse=every,
        moe=DEEPSEEK_V3["moe"],
        known={
            "use_mtp": "modules that predict further tokens are not published with the weights, and left out",
            **dict.fromkeys(("num_mtp_modules", "mtp_transformer_layers", "qk_norm_type", "attn_type_list"), ""),
            # Of MiniMax-Text-01, which it stems from; its own code reads none of them.
            **dict.fromkeys(("shared_moe_mode", "mlp_intermediate_size", "layernorm_mlp_beta"), ""),
            **dict.fromkeys(("layernorm_full_attention_beta", "layernorm_linear_attention_beta"), ""),
        },
    ),
    "olmo2": ModelFamily(**OLMO2),
    "olmo3": ModelFamily(**OLMO2, masks=local_and_global(4, 4096)),
    "olmoe": ModelFamily(attention={"qk_norm": "all"}, switches=NO_BIAS, sparse=every, moe={"normalise": False}),
    "seed_oss": ModelFamily(
        attention={"bias": "qkv"}, switches={"attention_bias": True, "attention_out_bias": False, "mlp_bias": False}
    ),
    "smollm3": ModelFamily(
        default={"ffn": "silu", "tie_embeddings": True},
        switches={**NO_BIAS, "mlp_bias": False, "use_sliding_window": False},
        masks=some_rotary,
        known={"max_window_layers": ""},
    ),
    "granitemoehybrid": ModelFamily(
        model={"positions": "none"},
        switches={**NO_BIAS, "mamba_proj_bias": False, "mamba_conv_bias": True, "position_embedding_type": "nope"},
        default={"ffn": "silu", "tie_embeddings": True},
        masks=mamba_layers,
        sparse=has_experts,
        dense="shared_intermediate_size",
        shared="shared_intermediate_size",
        known=dict.fromkeys(("mamba_expand", "normalization_function", "intermediate_size"), ""),
    ),
    "nemotron_h": ModelFamily(
        model={"positions": "none"},
        gated=False,
        default={"ffn": "relu2", "tie_embeddings": False},
        switches={**NO_BIAS, "mlp_bias": False, "mamba_proj_bias": False, "use_bias": False, "use_conv_bias": True},
        masks=mixers,
        layers=patterned,
        sparse=lambda config, layer: patterned(config)[layer].endswith("E"),
        alone=lambda config, layer: len(patterned(config)[layer]) == 1,
        moe=DEEPSEEK_V3["moe"],
        shared="moe_shared_expert_intermediate_size",
        known={
            **dict.fromkeys(("expand", "mamba_hidden_act", "mamba_ssm_cache_dtype", "attention_head_dim"), ""),
            **dict.fromkeys(("use_mamba_kernels", "rescale_prenorm_residual"), ""),
        },
    ),
    "granite": ModelFamily(switches={"attention_bias": False, "mlp_bias": False}),
    "granitemoe": ModelFamily(switches=NO_BIAS, sparse=every),
    "starcoder2": ModelFamily(
        model={"norm": "layernorm"},
        attention={"bias": "all"},
        bias=True,
        gated=False,
        default={"ffn": "gelu_pytorch_tanh", "tie_embeddings": True},
        switches={"use_bias": True},
        masks=window(0),
        known={"mlp_type": "", "norm_type": ""},
    ),
    "gpt_oss": ModelFamily(
        attention={"bias": "all", "sinks": True},
        switches={"attention_bias": True},
        masks=local_and_global(2, 128),
        sparse=every,
        moe={"bias": True, "kind": "swiglu_clamped"},
        known={"quantization_config": "experts are published in mxfp4: workload.expert_dtype"},
    ),
    "gemma": ModelFamily(default=GEMMA, switches=NO_BIAS),
    "gemma2": ModelFamily(
        model=SANDWICH,
        numbers={"softcap": "attn_logit_softcapping", "scale": "query_pre_attn_scalar"},
        default={**GEMMA, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        switches=NO_BIAS,
        masks=local_and_global(2, 4096),
    ),
    "gemma3_text": ModelFamily(
        model=SANDWICH,
        attention={"qk_norm": "head"},
        numbers={"softcap": "attn_logit_softcapping", "scale": "query_pre_attn_scalar"},
        default={**GEMMA, "vocab": 262208, "heads": 8, "kv_heads": 4},
        switches=NO_BIAS,
        masks=local_and_global(6, 4096, stated=True),
    ),
    "gpt2": ModelFamily(
        model={"norm": "layernorm", "positions": "learned"},
        attention={"bias": "all"},
        bias=True,
        default={"ffn": "gelu_new", "tie_embeddings": True, "max_positions": 1024},
        gated=False,
        switches={"add_cross_attention": False},
        widening=4,
    ),
    "gpt_neox": ModelFamily(
        model={"norm": "layernorm"},
        attention={"bias": "all"},
        bias=True,
        default={"ffn": "gelu", "tie_embeddings": False, "parallel_residual": True},
        gated=False,
        switches={"attention_bias": True},
    ),
}
"""model_type -> how its configs are read."""
