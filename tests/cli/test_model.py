"""`tpsim model`: the models, and what was read from one."""

from __future__ import annotations

import csv
import json
from io import StringIO
from pathlib import Path

import pytest

from tpsim.answers.model import model_list, model_show
from tpsim.cli.main import run
from tpsim.pages.model import list_page, page
from tpsim.quantity import spec

CONFIGS = Path(__file__).parent.parent / "data" / "hf"


def test_an_output_that_is_the_embedding_is_said_to_be_it(capsys):
    """Of a tied model the table says that the output has no parameters; nothing said why."""
    shown = {}
    for name in ("gemma-7b", "llama-3-8b"):
        assert run(["model", "show", name]) == 0
        shown[name] = "output      the embedding's table" in capsys.readouterr().out
    assert shown == {"gemma-7b": True, "llama-3-8b": False}


def test_the_list_shows_every_model_with_its_sizes(capsys):
    assert run(["model", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert next(line for line in lines if line.startswith("llama-3-8b ")).split() == [
        "llama-3-8b", "8,030,261,248", "4,096", "32", "32", "8", "swiglu", "14,336", "128,256",
    ]  # fmt: skip
    assert lines[-2:] == [
        f"{len(spec.names('models'))} models; any other: --model path/to/config.json",
        f"next: tpsim model show {spec.names('models')[0]}",
    ]


def test_a_model_shows_its_parameters_by_group(capsys):
    assert run(["model", "show", "llama-3-8b"]) == 0
    out = capsys.readouterr().out
    assert "hidden      4,096\n" in out
    assert "attention  1,342,177,280   16.7\n" in out
    assert "llama-3-8b has 8,030,261,248 parameters\n" in out


def test_a_verbose_model_shows_all_its_fields_in_words(capsys):
    assert run(["model", "show", "gpt2-xl", "-v"]) == 0
    lines = capsys.readouterr().out.splitlines()
    fields = {line[:19].strip(): line[19:] for line in lines[2 : lines.index("", 2)]}
    assert fields["positions"] == "learned"
    assert (fields["bias"], fields["qkv bias"]) == ("yes", "no")
    assert fields["params"] == "1,558,000,000"


def test_the_padding_of_a_vocabulary_is_said(capsys):
    assert run(["model", "show", "gpt3-175b"]) == 0
    assert f"padding of the vocabulary adds {(51200 - 50257) * 12288:,}" in capsys.readouterr().out


def test_a_config_json_shows_what_was_read_into_it(capsys):
    assert run(["model", "show", str(CONFIGS / "mistral-7b.json")]) == 0
    out = capsys.readouterr().out
    assert "source  Hugging Face config.json\n" in out
    assert "mask window, window 4,096" in out


def test_a_config_json_of_experts_shows_how_many_of_them_work(capsys):
    assert run(["model", "show", str(CONFIGS / "mixtral-8x7b.json")]) == 0
    out = capsys.readouterr().out
    assert "each    ffn moe, kind swiglu, experts 8, top 2, hidden 14,336" in out
    assert "12,879,925,248 work for a token (12,748,853,248 without the embedding)" in out


def test_the_formats_say_the_same_model(capsys):
    assert run(["model", "show", "gemma-7b", "-f", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert run(["model", "show", "gemma-7b", "-f", "csv"]) == 0
    rows = list(csv.DictReader(StringIO(capsys.readouterr().out)))
    assert {row["group"]: int(row["parameters"]) for row in rows} == {
        group: count for group, count in document["result"]["parameters"].items() if group != "total"
    }
    assert run(["model", "show", "gemma-7b", "-f", "md"]) == 0
    assert f"| mlp | {document['result']['parameters']['mlp']:,} |" in capsys.readouterr().out


def test_the_list_fits_in_80_columns(printed):
    assert max(map(len, printed(list_page(model_list(), verbose=False)))) <= 80


@pytest.mark.parametrize("name", spec.names("models"))
def test_every_model_fits_in_80_columns(printed, name):
    lines = printed(page(model_show(name), verbose=False))
    assert [line for line in lines if len(line) > 80 and not line.startswith("next: ")] == []


@pytest.mark.parametrize("name", ["gpt-tiny", "gpt2-xl", "gpt3-175b", "llama-3-8b"])
def test_the_next_command_of_a_model_answers(name, capsys):
    words = page(model_show(name), verbose=False).next_command.split()
    assert run(words[1:]) == 0
    assert capsys.readouterr().err == ""


def test_what_comes_next_names_the_users_own_file():
    path = CONFIGS / "llama-3-8b.json"
    assert f"--model {path} " in page(model_show(path), verbose=False).next_command


def test_a_mistyped_model_is_answered_with_the_nearest(capsys):
    assert run(["model", "show", "lama-3-8b"]) == 2
    assert capsys.readouterr().err.splitlines()[:2] == [
        'error[unknown-model]: "lama-3-8b" is not a model',
        '  = did you mean "llama-3-8b"?',
    ]


def test_a_mistyped_command_is_answered_with_the_nearest(capsys):
    assert run(["model", "shwo", "llama-3-8b"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        'error[unknown-command]: "shwo" is not a command of tpsim model',
        "  = did you mean tpsim model show?",
        "  = commands: list, show",
    ]


def test_model_alone_shows_what_it_can_do(capsys):
    assert run(["model"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[-2:]] == ["list", "show"]
