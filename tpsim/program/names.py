"""What others call the sizes of a model: the keys of Hugging Face's configs, and words of other frameworks."""

from __future__ import annotations

from collections.abc import Mapping

NAMES: Mapping[str, tuple[str, ...]] = {
    "hidden": ("hidden_size", "n_embd"),
    "layers": ("num_hidden_layers", "n_layer"),
    "heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "ffn": ("mlp_hidden_act", "hidden_activation", "hidden_act", "activation_function"),
    "ffn_hidden": ("intermediate_size", "n_inner"),
    "vocab": ("vocab_size",),
    "max_positions": ("n_positions", "max_position_embeddings"),
    "tie_embeddings": ("tie_word_embeddings",),
    "parallel_residual": ("use_parallel_residual",),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "top": ("num_experts_per_tok", "experts_per_token", "num_experts_per_token"),
    "expert_hidden": ("moe_intermediate_size",),
    "kv_rank": ("kv_lora_rank",),
    "nope": ("qk_nope_head_dim",),
    "rope": ("qk_rope_head_dim",),
    "value": ("v_head_dim",),
    "window": ("sliding_window", "sliding_window_size"),
    "global_every": ("sliding_window_pattern", "_sliding_window_pattern"),
}
"""Field of a model or of its blocks -> the keys that config.json files have for it, the preferred one first."""

OTHERS: Mapping[str, tuple[str, ...]] = {
    "hidden": ("d_model", "embed_dim"),
    "layers": ("num_layers", "n_layers"),
    "heads": ("num_heads", "n_heads"),
    "kv_heads": ("num_query_groups", "num_kv_heads", "n_kv_heads"),
    "head_dim": ("kv_channels",),
    "ffn": ("activation",),
    "ffn_hidden": ("ffn_hidden_size", "ffn_dim", "d_ff"),
    "tie_embeddings": ("share_embeddings_and_output_weights",),
    "experts": ("experts", "num_moe_experts"),
    "top": ("moe_router_topk",),
}
"""The same fields -> what other frameworks call them."""

_WHOLE = {"hidden", "layers", "vocab", "max_positions", "tie_embeddings", "parallel_residual"}
"""Fields of a model as a whole; in a file of model/2 all others are its blocks'."""

_DENSE = {
    "heads": "heads",
    "kv_heads": "kv_heads",
    "head_dim": "head_dim",
    "ffn": "ffn.kind",
    "ffn_hidden": "ffn.hidden",
}
"""Where the others stand in a file of model/1, as far as a dense model has them."""

_INSIDE = {"ffn": "kind", "ffn_hidden": "hidden", "expert_hidden": "hidden"}
"""What blocks call by another name."""


def _of_blocks(field: str) -> str:
    return field if field in _WHOLE else f"blocks.NAME.{_INSIDE.get(field, field)}"


def _of_dense(field: str) -> str:
    return field if field in _WHOLE else _DENSE.get(field) or f"{_of_blocks(field)}, in a file of tpsim: model/2"


FOREIGN: Mapping[str, Mapping[str, str]] = {
    version: ({"blocks": "blocks, in a file of tpsim: model/2"} if version == "model/1" else {})
    | {
        word: place(field)
        for table in (NAMES, OTHERS)
        for field, words in table.items()
        if field != "global_every"  # a pattern of layers says it
        for word in words
        if word != place(field)
    }
    for version, place in (("model/1", _of_dense), ("model/2", _of_blocks))
}
"""By the version of a model's file, what others call a field -> its path, and after a comma where that is."""
