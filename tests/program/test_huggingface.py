"""Published config.json files become models with the published number of parameters, or are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tpsim.program.counts import parameter_count
from tpsim.program.model_file import load_model
from tpsim.quantity.errors import InputError

CONFIGS = Path(__file__).parent.parent / "data" / "hf"

PUBLISHED = {
    "llama-3-8b": 8.03e9,
    "llama-3-70b": 70.6e9,
    "llama-3.1-405b": 405.9e9,
    "llama-2-7b": 6.74e9,
    "mistral-7b": 7.24e9,
    "qwen2-7b": 7.62e9,
    "qwen2-0.5b": 0.494e9,
    "gemma-7b": 8.54e9,
    "gemma-2b": 2.51e9,
    "gpt2": 124.4e6,
    "gpt2-xl": 1557.6e6,
    "gpt-neox-20b": 20.55e9,
    "pythia-1.4b": 1414.6e6,
}
"""Parameters as published; sources in tests/data/hf/SOURCES.md."""


def mlp(model: Any) -> Any:
    (kind,) = model.kinds.values()
    return kind.ffn


def config(name: str, **changes: Any) -> dict[str, Any]:
    """A published config with some keys changed; a key changed to ... is left out."""
    data: dict[str, Any] = json.loads((CONFIGS / f"{name}.json").read_text())
    return {key: value for key, value in {**data, **changes}.items() if value is not ...}


@pytest.fixture
def imported(tmp_path: Path) -> Any:
    def read(data: dict[str, Any]) -> Any:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(data, indent=2))
        return load_model(path)

    return read


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_computed_parameters_are_the_published_ones_to_a_tenth_of_a_percent(name: str) -> None:
    computed = parameter_count(load_model(CONFIGS / f"{name}.json").model)
    assert computed == pytest.approx(PUBLISHED[name], rel=2e-3)


def test_every_config_in_the_data_is_read_or_refused_on_purpose() -> None:
    files = {path.stem for path in CONFIGS.glob("*.json")}
    assert files == {*PUBLISHED, "nested-text-config", "mixtral-8x7b"}


def test_absent_kv_heads_are_as_many_as_heads() -> None:
    model = load_model(CONFIGS / "llama-2-7b.json").model
    assert (model.heads, model.kv_heads, model.head_dim) == (32, 32, 128)


def test_gemma_is_tied_and_gated_with_tanh_gelu_and_a_head_dim_of_its_own() -> None:
    model = load_model(CONFIGS / "gemma-7b.json").model
    assert (mlp(model).kind, model.head_dim, model.tie_embeddings, model.norm) == ("geglu", 256, True, "rmsnorm")


def test_qwen2_has_biases_on_queries_keys_and_values_only() -> None:
    model = load_model(CONFIGS / "qwen2-7b.json").model
    assert (next(model.attentions).bias, mlp(model).bias, model.tie_embeddings) == ("qkv", False, False)
    assert load_model(CONFIGS / "qwen2-0.5b.json").model.tie_embeddings


def test_gpt2_learns_its_positions_and_ties_its_output() -> None:
    model = load_model(CONFIGS / "gpt2.json").model
    assert (model.positions, model.max_positions, model.ffn_hidden) == ("learned", 1024, 4 * 768)
    assert (mlp(model).bias, model.norm, mlp(model).kind, model.tie_embeddings) == (True, "layernorm", "gelu", True)


def test_gpt_neox_adds_attention_and_mlp_together_unless_told_otherwise(imported: Any) -> None:
    assert load_model(CONFIGS / "gpt-neox-20b.json").model.parallel_residual
    assert not imported(config("gpt-neox-20b", use_parallel_residual=False)).model.parallel_residual


def test_a_nested_text_config_is_read_and_said_to_be_all_that_is_modelled() -> None:
    read = load_model(CONFIGS / "nested-text-config.json")
    assert (read.model.layers, read.model.vocab) == (32, 32064)
    assert read.notes == ("only text_config is modelled, not the other parts of the config",)


def test_a_sliding_window_is_noted_when_it_is_used() -> None:
    notes = load_model(CONFIGS / "mistral-7b.json").notes
    assert notes == ("sliding-window attention (4096 tokens) is not modelled: attention reads all tokens",)
    assert load_model(CONFIGS / "qwen2-7b.json").notes == ()


def test_an_unknown_model_type_is_never_read_as_something_near(imported: Any) -> None:
    with pytest.raises(InputError) as error:
        imported(config("llama-3-8b", model_type="llama4"))
    text = str(error.value)
    assert text.startswith('error[unknown-model-type]: model_type "llama4" is not known to tpsim')
    assert "write a tpsim: model/1 file if it is a dense transformer" in text
    assert "= known: gemma, gpt2, gpt_neox, llama, mistral, qwen2" in text
    assert "config.json:10:" in text


def test_a_config_without_model_type_is_refused(imported: Any) -> None:
    with pytest.raises(InputError, match="no model_type, so tpsim cannot tell which architecture it is"):
        imported(config("llama-3-8b", model_type=...))


@pytest.mark.parametrize(
    "key", ["num_local_experts", "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size"]
)
def test_a_key_about_experts_is_never_a_dense_model(imported: Any, key: str) -> None:
    with pytest.raises(InputError) as error:
        imported(config("llama-3-8b", **{key: 8}))
    assert f"{key}: 8: models with experts are not supported yet" in str(error.value)
    assert "it will not read this one as dense" in str(error.value)


def test_experts_hidden_in_a_nested_config_are_found_too(imported: Any) -> None:
    with pytest.raises(InputError, match="num_experts: 4: models with experts are not supported yet"):
        imported(config("llama-3-8b", text_config={"model_type": "llama", "ffn": {"num_experts": 4}}))


def test_a_mixture_of_experts_is_refused_for_its_experts() -> None:
    with pytest.raises(InputError, match="models with experts are not supported yet"):
        load_model(CONFIGS / "mixtral-8x7b.json")


def test_keys_that_say_no_experts_are_harmless(imported: Any) -> None:
    assert imported(config("llama-3-8b", num_local_experts=None, num_experts_per_tok=0)).model.layers == 32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": ...}, "the config has no hidden_size or n_embd"),
        ({"hidden_size": "4096"}, 'hidden_size: "4096" is not a positive whole number'),
        ({"num_hidden_layers": True}, "num_hidden_layers: true is not a positive whole number"),
        ({"vocab_size": -1}, "vocab_size: -1 is not a positive whole number"),
        ({"n_embd": 2048}, "hidden_size and n_embd are two names of one size and differ"),
        ({"hidden_act": "relu"}, 'hidden_act: "relu" is not supported'),
        ({"attention_bias": True}, "attention_bias: true is not supported yet"),
        ({"tie_word_embeddings": "no"}, 'tie_word_embeddings: "no" is neither true nor false'),
        ({"num_key_value_heads": ..., "num_key_value_head": 8}, 'did you mean "num_key_value_heads"?'),
        ({"model_type": ["llama"]}, 'model_type ["llama"] is not known to tpsim'),
        ({"num_key_value_heads": 5}, "32 heads are not divisible by 5 kv_heads"),
        ({"num_attention_heads": 33, "num_key_value_heads": 33}, "hidden 4096 is not divisible by 33 heads"),
    ],
)
def test_a_config_that_a_dense_model_cannot_mean_is_refused(
    imported: Any, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as error:
        imported(config("llama-3-8b", **changes))
    assert message in str(error.value)


def test_the_model_is_named_after_its_repository_else_after_its_folder(imported: Any, tmp_path: Path) -> None:
    assert imported(config("llama-3-8b", _name_or_path="meta-llama/Meta-Llama-3-8B")).model.name == "Meta-Llama-3-8B"
    assert imported(config("llama-3-8b")).model.name == tmp_path.name
