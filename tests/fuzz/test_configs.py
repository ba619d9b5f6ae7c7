"""Mutations of Hugging Face configs: a refusal at its place, or a model whose fields show the change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fuzz.mutations import misspelled
from tpsim.answers.model import model_show
from tpsim.quantity.errors import InputError

CONFIGS = sorted((Path(__file__).parents[1] / "data" / "hf").glob("*.json"))
KV = "num_key_value_heads"
SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", KV, "intermediate_size", "vocab_size")
WRONG = (0, -1, 1.5, "12", True, [], {}, 10**30, float("nan"), float("inf"))
EXPERTS = ("num_local_experts", "n_routed_experts", "num_experts", "moe_intermediate_size", "my_expert_thing")


def read(data: dict, path: Path) -> dict:
    path.write_text(json.dumps(data), encoding="utf-8")
    return model_show(path).to_json()


def dense() -> list[Path]:
    """Configs of a family each, without experts and latents."""
    chosen = ("gemma-2-2b", "gemma-7b", "gpt-neox-20b", "gpt2", "llama-3-8b", "mistral-7b", "qwen2-7b", "qwen3-8b")
    return [path for path in CONFIGS if path.stem in chosen]


@pytest.mark.parametrize("config", dense(), ids=lambda path: path.stem)
def test_a_size_that_is_none_is_refused_where_it_stands(config, tmp_path):
    data = json.loads(config.read_text())
    for key in SIZES:
        for wrong in WRONG:
            if key in data:
                with pytest.raises(InputError) as error:
                    read({**data, key: wrong}, tmp_path / "config.json")
                assert "config.json:1:" in str(error.value), (key, wrong)


@pytest.mark.parametrize("config", dense(), ids=lambda path: path.stem)
@pytest.mark.parametrize("key", EXPERTS)
def test_a_key_about_experts_is_never_a_dense_model(config, key, tmp_path):
    with pytest.raises(InputError, match="expert"):
        read({**json.loads(config.read_text()), key: 8}, tmp_path / "config.json")


@pytest.mark.parametrize("config", dense(), ids=lambda path: path.stem)
def test_a_misspelled_size_is_refused_or_seen(config, tmp_path):
    data = json.loads(config.read_text())
    before = shown(data, tmp_path)
    for key in [key for key in SIZES if key in data]:
        for name in misspelled(key).values():
            after = shown({name if one == key else one: value for one, value in data.items()}, tmp_path)
            assert "did you mean" in after or "the config has no" in after or after != before or key == KV, (key, name)


@pytest.mark.parametrize("config", dense(), ids=lambda path: path.stem)
def test_a_changed_size_is_refused_or_shown(config, tmp_path):
    data = json.loads(config.read_text())
    before = shown(data, tmp_path)
    for key in [key for key in SIZES if key in data]:
        assert shown({**data, key: data[key] * 2}, tmp_path) != before, key


def shown(data: dict, folder: Path) -> str:
    """What an answer shows of a config, or how it is refused."""
    try:
        return str(read(data, folder / "config.json")["resolved"])
    except InputError as error:
        return str(error)
