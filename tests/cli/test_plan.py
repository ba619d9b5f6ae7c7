"""`tpsim plan`: flags, and saving what they came to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

SCENARIOS = sorted(path.stem for path in (Path(__file__).parents[2] / "scenarios").glob("*.yaml"))


def result(ran):
    assert ran.code == 0, ran.err
    return json.loads(ran.out)["result"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_saved_scenario_asks_the_same_question(tpsim, tmp_path, name):
    file = tmp_path / "saved.yaml"
    first = result(tpsim("plan", name, "-f", "json", "--save", str(file)))
    assert result(tpsim("plan", str(file), "-f", "json")) == first


def test_flags_alone_can_be_saved_as_a_commented_file(tpsim, tmp_path):
    file = tmp_path / "saved.yaml"
    flags = ["--model", "llama-3-8b", "--hw", "tpu-v5e", "--tp", "4", "--dp", "16", "--seq", "4096", "--batch", "64"]
    first = result(tpsim("plan", *flags, "-f", "json", "--save", str(file)))
    text = file.read_text()
    assert "\n# named axes, major first\nmesh: {data: 16, tensor: 4}\n" in text
    assert result(tpsim("plan", str(file), "-f", "json")) == first


def test_what_set_changes_is_saved(tpsim, tmp_path):
    file = tmp_path / "saved.yaml"
    tpsim("plan", "llama3-70b-h100", "--set", "practice.regather=false", "--zero", "3", "-q", "--save", str(file))
    assert "practice: {base: megatron, regather: false}\n" in file.read_text()
    assert "zero: 3" in file.read_text()


def test_set_and_flag_say_the_same(tpsim):
    assert (
        tpsim("plan", "llama3-70b-h100", "--zero", "3", "-q").out
        == tpsim("plan", "llama3-70b-h100", "--set", "layout.zero=3", "-q").out
    )
