"""What configs of a family say of their layers, one by one: windows, linear attention, experts, feed-forwards."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tpsim.program.config import as_json

if TYPE_CHECKING:
    from tpsim.program.config import Config

Rule = Callable[["Config", int], Any]
"""What a config says of the layer of that number."""


def every(_: Config, __: int) -> bool:
    """All layers are mixtures of experts."""
    return True


def sparse_step(config: Config, layer: int) -> bool:
    """Qwen: every so many layers, but for those that are listed as plain."""
    plain = layer in config.whole_numbers("mlp_only_layers")
    return not plain and (layer + 1) % config.number("decoder_sparse_step", 1, least=1) == 0


def behind_dense(config: Config, layer: int) -> bool:
    """DeepSeek: all behind the first few, or every so many of them."""
    first = config.number("first_k_dense_replace", 0)
    return layer >= first and layer % config.number("moe_layer_freq", 1, least=1) == 0


def interleaved(config: Config, layer: int) -> bool:
    """Llama 4: every so many layers, or those that are listed."""
    listed = config.whole_numbers("moe_layers")
    return layer in listed if listed else (layer + 1) % config.number("interleave_moe_layer_step", 1, least=1) == 0


def window(usual: int) -> Rule:
    """Every layer has the window, if there is one; where a config leaves it out it has the usual one."""

    def rule(config: Config, _: int) -> Mapping[str, Any]:
        return _windowed(config, usual, here=config.flag("use_sliding_window", default=True))

    return rule


def later_windows(first: int) -> Rule:
    """Qwen: where switched on, layers as ``layer_types`` has them, else from a number on (`first` if left out)."""

    def rule(config: Config, layer: int) -> Mapping[str, Any]:
        start, used = config.number("max_window_layers", first), config.flag("use_sliding_window", default=False)
        kind = config.layer_type(layer)
        return _windowed(config, 4096, here=used and (kind == "sliding_attention" if kind else layer >= start))

    return rule


def local_and_global(default: int, usual: int, *, stated: bool = False) -> Rule:
    """Layers as ``layer_types`` has them, else local ones with a global one after so many; usual as for `window`.

    stated  True if configs state after how many
    """

    def rule(config: Config, layer: int) -> Mapping[str, Any]:
        every = config.number(config.named_value("global_every")[0], default, least=1) if stated else default
        local = (layer + 1) % every != 0
        kind = config.layer_type(layer) or ("sliding_attention" if local else "full_attention")
        return _windowed(config, usual, here=kind == "sliding_attention")

    return rule


def chunks(config: Config, layer: int) -> Mapping[str, Any]:
    """Llama 4: attention in chunks with rotary positions; every fourth layer reads all, and has none."""
    size = config.number("attention_chunk_size", 8192, least=1)
    return some_rotary(config, layer) or {"mask": "chunk", "window": size}


def some_rotary(config: Config, layer: int) -> Mapping[str, Any]:
    """SmolLM3: every fourth layer, or those that are listed with 0, have no rotary positions."""
    listed = config.whole_numbers("no_rope_layers")
    every_so_many = config.number("no_rope_layer_interval", 4, least=1)
    config.layer_type(layer)
    return {} if (listed[layer] if layer < len(listed) else (layer + 1) % every_so_many) else {"rope": False}


def every_fourth(config: Config, layer: int) -> Mapping[str, Any]:
    """Qwen3-Next: layers as ``layer_types`` has them, else a full attention after so many linear ones."""
    every_so_many = config.number("full_attention_interval", 4, least=1)
    full = (layer + 1) % every_so_many == 0
    kinds = ("full_attention", "linear_attention")
    kind = config.layer_type(layer, kinds) or kinds[not full]
    sizes = {"heads": "num_value_heads", "key_heads": "num_key_heads", "key_dim": "key_head_dim"}
    sizes |= {"value_dim": "value_head_dim", "taps": "conv_kernel_dim"}
    stated = {name: config.size(f"linear_{key}") for name, key in sizes.items()}
    return {"linear": stated} if kind == "linear_attention" else {}


def listed_layers(config: Config, layer: int) -> Mapping[str, Any]:
    """Kimi: layers that are listed, the first as 1; gates and decays in two steps by way of as many as a head has."""
    part = config.part("linear_attn_config", (*KIMI_LAYERS, "num_heads", "head_dim", "short_conv_kernel_size"))
    listed = [key for key in KIMI_LAYERS if layer + 1 in part.whole_numbers(key)]
    if len(listed) != 1:
        where = "both" if listed else "neither"
        message = f"layer {layer + 1} is in {where} of {' and '.join(KIMI_LAYERS)}"
        part.refuse((listed or KIMI_LAYERS)[0], message, "list each layer in one of them, the first as 1")
    if listed != ["kda_layers"]:
        return {}
    heads, dim = part.size("num_heads"), part.size("head_dim")
    sizes = {"heads": heads, "key_heads": heads, "key_dim": dim, "value_dim": dim, "rank": dim}
    return {"linear": {"rule": "kda", **sizes, "taps": part.size("short_conv_kernel_size")}}


KIMI_LAYERS = ("kda_layers", "full_attn_layers")
"""Where Kimi lists its layers: those of linear attention, and those that read all tokens."""


def mamba_layers(config: Config, layer: int) -> Mapping[str, Any]:
    """Granite 4: layers as ``layer_types`` has them; an attention is one of softmax."""
    sizes = {"heads": "n_heads", "key_heads": "n_groups", "key_dim": "d_state", "value_dim": "d_head", "taps": "d_conv"}
    stated = {name: config.size(f"mamba_{key}") for name, key in sizes.items()}
    chunk = config.size("mamba_chunk_size", 256)
    is_linear = config.layer_type(layer, ("attention", "mamba")) == "mamba"
    return {"linear": {"rule": "mamba2", **stated, "chunk": chunk}} if is_linear else {}


def has_experts(config: Config, _: int) -> bool:
    """Granite 4: all layers, or of a model without experts none."""
    return config.number("num_local_experts", 0) > 0


def patterned(config: Config) -> Sequence[str]:
    """Nemotron-H: an M or * of its pattern, and the E or - behind it, if one is, for each of its layers.

    Raises InputError for a feed-forward behind none of these, and for other letters.
    """
    pattern = str(config.get("hybrid_override_pattern") or "")
    layers = re.findall(r"[M*][E-]?", pattern)
    if "".join(layers) != pattern or not layers:
        message = f"hybrid_override_pattern {as_json(pattern)} is not made of M, *, and E or - behind one of these"
        config.refuse("hybrid_override_pattern", message, "write it as the model's own code reads it: MEM*E")
    return layers


def mixers(config: Config, layer: int) -> Mapping[str, Any]:
    """Nemotron-H: Mamba where the pattern has an M, attention without positions where it has a star."""
    sizes = {"heads": "mamba_num_heads", "key_heads": "n_groups", "key_dim": "ssm_state_size"}
    sizes |= {"value_dim": "mamba_head_dim", "taps": "conv_kernel", "chunk": "chunk_size"}
    stated = {name: config.size(key) for name, key in sizes.items()}
    return {"linear": {"rule": "mamba2", **stated}} if patterned(config)[layer].startswith("M") else {}


def _windowed(config: Config, usual: int, *, here: bool) -> Mapping[str, Any]:
    key, value = config.named_value("window")
    size = config.number(key, 0) if value is not None or key in config.data else usual
    return {"mask": "window", "window": size} if size and here else {}
