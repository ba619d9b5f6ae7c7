"""A scenario changes fields of its machine as it changes those of its model: ``--set hardware.levels...``."""

from __future__ import annotations

import json
import re

import pytest

from tpsim.answers.plan import plan
from tpsim.cli.main import run
from tpsim.machine.profile import load
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError
from tpsim.quantity.units import show
from tpsim.question.save import scenario_text
from tpsim.question.scenario import resolve

FASTER = "hardware.levels.network.link.bandwidth=800Gbit/s"
CONSTANTS = {name: {one.path: one for one in load(name).constants()} for name in ("dgx-h100", "tpu-v5e", "alps-gh200")}
SORTS = {re.sub(r"levels\.\w+", "level", path): (name, path) for name, held in CONSTANTS.items() for path in held}
"""A machine and a path for each constant that one of them has, on whatever level."""


def refusal(*overrides):
    with pytest.raises(InputError) as error:
        resolve("llama3-70b-h100", overrides=overrides)
    return str(error.value)


@pytest.mark.parametrize(("machine", "path"), SORTS.values())
def test_every_constant_of_a_machine_can_be_set_and_moves_alone(machine, path):
    was = CONSTANTS[machine][path]
    other = show(was.value / 2, was.dimension, 9) if was.value else "3 us"
    changed = resolve(
        "llama3-8b-v5e", overrides=[f"hardware={machine}", "placement={}", f"hardware.{path}={other}"]
    ).machine
    values = {one.path: one.value for one in changed.constants()}
    assert {each for each, one in CONSTANTS[machine].items() if values[each] != one.value} == {path}
    assert changed.path == load(machine).path


def test_a_faster_network_makes_a_faster_plan_that_says_what_was_changed():
    before, after = plan("llama3-70b-h100"), plan("llama3-70b-h100", overrides=[FASTER])
    assert after.step.time_s < before.step.time_s
    text = "levels.network.link.bandwidth is 800Gbit/s here; dgx-h100 states 50 GB/s"
    assert text in [one.text for one in after.question.assumptions]
    assert after.question.resolved["hardware"] == "dgx-h100"
    assert after.question.resolved["hardware_changes"] == {"levels": {"network": {"link": {"bandwidth": "800Gbit/s"}}}}
    assert "hardware_changes" not in before.question.resolved


def test_the_page_of_a_plan_says_what_was_changed(capsys):
    assert run(["plan", "llama3-70b-h100", "--set", FASTER]) == 0
    assert "\nlevels.network.link.bandwidth is 800Gbit/s here; dgx-h100 states 50 GB/s\n" in capsys.readouterr().out


def test_a_changed_machine_is_saved_with_its_changes():
    asked = resolve("llama3-70b-h100", overrides=[FASTER, "hardware.chip.matmul_efficiency=0.6"])
    saved = resolve(spec.load(scenario_text(asked), name="saved.yaml"))
    assert (saved.machine, saved.base_machine) == (asked.machine, asked.base_machine)


def test_a_scenario_may_state_a_map_for_its_machine(tmp_path):
    (tmp_path / "rack.yaml").write_text("tpsim: hardware/1\nname: rack\nextends: dgx-h100\n", encoding="utf-8")
    (tmp_path / "case.yaml").write_text(
        "tpsim: scenario/1\nextends: llama3-70b-h100\nhardware:\n  extends: ./rack.yaml\n"
        "  chip: {memory: {capacity: {value: 90 GB, kind: stated}}}\n",
        encoding="utf-8",
    )
    question = resolve(tmp_path / "case.yaml")
    assert (question.machine.name, question.machine.chip.memory.capacity.value) == ("rack", 90e9)
    assert question.base_machine.chip.memory.capacity.value == 80e9


def test_a_mistake_in_what_is_set_points_at_the_text_that_sets_it():
    said = refusal("hardware.levels.network.link.bandwidth=800")
    assert said.startswith("error[missing-unit]: link.bandwidth: 800 has no unit\n --> command line:1:")
    assert "1 | --set hardware.levels.network.link.bandwidth=800\n" in said
    assert "^^^ write 800 GB/s or 6400 Gbit/s" in said
    assert 'did you mean "network"?' in refusal("hardware.levels.netwrk.link.bandwidth=800Gbit/s")
    assert 'did you mean "bandwidth"?' in refusal("hardware.levels.network.link.bandwith=800Gbit/s")
    assert "this is a share" in refusal("hardware.levels.network.link.efficiency=824")


def test_a_map_for_a_machine_says_which_one_it_changes():
    assert "a hardware map needs extends" in refusal("hardware={chip: {matmul_efficiency: 0.5}}")


def test_what_is_far_off_in_what_is_set_is_a_doubt():
    question = resolve("llama3-70b-h100", overrides=["hardware.levels.nvlink.link.bandwidth=450 TB/s"])
    (doubt,) = question.machine.doubts
    assert doubt.remedy == "was 450 GB/s meant?"
    assert any(doubt.message in text for text in question.remarks)


def test_a_diff_names_what_was_set(capsys):
    assert run(["diff", "llama3-70b-h100", "--set", FASTER, "-f", "json"]) in (0, 1)
    causes = json.loads(capsys.readouterr().out)["result"]["causes"]
    assert [(one["kind"], one["name"]) for one in causes] == [
        ("scenario", "hardware.levels.network.link.bandwidth"),
    ]


def test_a_lock_holds_the_machine_and_what_the_scenario_changes_of_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    case = tmp_path / "case.yaml"
    case.write_text("tpsim: scenario/1\nextends: llama3-70b-h100\n", encoding="utf-8")
    other = tmp_path / "other.yaml"
    other.write_text(
        "tpsim: scenario/1\nextends: llama3-70b-h100\n"
        "hardware: {extends: dgx-h100, levels: {network: {link: {bandwidth: 800 Gbit/s}}}}\n",
        encoding="utf-8",
    )
    assert run(["check", "--update", "case.yaml", "other.yaml", "-q"]) == 0
    held = (tmp_path / "tpsim.lock").read_text(encoding="utf-8")
    assert 'hardware_changes:\n        levels.network.link.bandwidth: "800 Gbit/s"' in held
    assert "    levels.network.link.bandwidth: {value: 50000000000.0" in held
    assert run(["check", "-q"]) == 0
    other.write_text(other.read_text(encoding="utf-8").replace("800 G", "200 G"), encoding="utf-8")
    capsys.readouterr()
    assert run(["check", "-f", "json"]) == 1
    causes = json.loads(capsys.readouterr().out)["result"]["causes"]
    assert [(one["kind"], one["name"]) for one in causes] == [("scenario", "hardware.levels.network.link.bandwidth")]
