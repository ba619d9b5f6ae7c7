"""The verb `model`: what the library has and what was read from a model."""

from __future__ import annotations

import json
from pathlib import Path

from tpsim.answers.model import model_list, model_show

CONFIGS = Path(__file__).parent.parent / "data" / "hf"


def test_a_model_shows_its_parameters_by_group_and_their_sum() -> None:
    result = model_show("llama-3-8b")
    assert result.parameters["total"] == 8_030_261_248
    assert result.parameters["total"] == sum(row["parameters"] for row in result.records())
    assert [row["group"] for row in result.records()] == ["embedding", "attention", "mlp", "norms", "output"]


def test_a_config_json_shows_what_was_read_into_it() -> None:
    document = model_show(CONFIGS / "llama-4-scout.json").to_json()
    attention, ffn = document["resolved"]["kinds"]["chunk"]
    assert (attention["window"], ffn["experts"]) == (8192, 16)
    assert document["assumptions"][1]["text"] == "a QK-norm without gains is not modelled"


def test_the_document_is_plain_json_and_names_its_input() -> None:
    document = model_show("gemma-7b").to_json()
    assert json.loads(json.dumps(document)) == document
    assert (document["schema"], document["inputs"][0]["path"]) == ("tpsim.model/1", "models/gemma-7b.yaml")


def test_the_list_has_a_row_for_every_model_of_the_library() -> None:
    result = model_list()
    names = [row["model"] for row in result.records()]
    assert {"llama-3-8b", "gpt3-175b", "gpt-tiny"} <= set(names)
    assert names == sorted(names)
    assert len(result.to_json()["result"]["models"]) == len(names)
