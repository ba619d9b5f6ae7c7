"""Chip files: what a chip or a generation has wherever it is built in stands once, below the machines that name it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.machines import refusal
from tpsim.answers.hw import hw_list, hw_show, hw_validate
from tpsim.machine.profile import load
from tpsim.quantity import spec

SHIPPED = Path(__file__).parents[2] / "hardware"
RACK = """\
tpsim: hardware/1
name: rack
chip: {chip}
levels:
  - {{name: nvlink, topology: switch, shape: [4]}}
  - {{name: network, topology: switch, link: {{bandwidth: 400 Gbit/s}}, algorithms: {{tree: {{}}, flat-ring: {{}}}}}}
"""
CHIP = "tpsim: chip/1\nname: mine\nextends: h100\nchip:\n  memory:\n    capacity: 94 GB\n"


def rack(tmp_path, chip, more=""):
    path = tmp_path / "rack.yaml"
    path.write_text(RACK.format(chip=chip) + more, encoding="utf-8")
    return path


def leaves(part, path=()):
    """Every value of a file with the way to it; items of a list of levels by their names."""
    items = part.items() if isinstance(part, dict) else ()
    if isinstance(part, list) and part and isinstance(part[0], dict):
        items = ((item["name"], item) for item in part)
    inside = [leaf for key, one in items if key != "name" for leaf in leaves(one, (*path, key))]
    return inside or [(path, part)]


def test_a_profile_in_another_folder_is_made_of_a_shipped_chip_by_its_name(tmp_path):
    mine, theirs = load(rack(tmp_path, "h100")), load("dgx-h100")
    assert mine.chip == theirs.chip
    assert mine.level("nvlink").protocols == theirs.level("nvlink").protocols
    assert mine.level("nvlink").link.hop_latency == theirs.level("nvlink").link.hop_latency
    assert mine.level("nvlink").shape == (4,)


def test_a_machine_overrides_a_figure_of_its_chip_in_place(tmp_path):
    machine = load(rack(tmp_path, "{extends: h100, memory: {capacity: 94 GB}}"))
    assert (machine.chip.memory.capacity.value, machine.chip.memory.capacity.kind) == (94e9, "guess")
    assert machine.chip.memory.bandwidth == load("dgx-h100").chip.memory.bandwidth


def test_a_chip_offers_no_algorithm_that_the_machine_does_not_list(tmp_path):
    offered = load(rack(tmp_path, "h100")).level("network").algorithms
    assert list(offered) == ["tree", "flat-ring"]
    assert list(load("alps-gh200").level("nvlink").algorithms) == ["ring", "flat-ring", "pairwise", "all-peers"]
    assert list(load("a3high-h100").level("network").protocols) == ["simple"]
    assert load("a3high-h100").level("network").protocols["simple"].latency.value == pytest.approx(7e-6)


def test_a_machine_with_another_chip_than_the_one_it_extends_has_nothing_of_that_ones(tmp_path):
    path = tmp_path / "other.yaml"
    path.write_text("tpsim: hardware/1\nname: other\nextends: dgx-h100\nchip: trn2\n", encoding="utf-8")
    other = load(path)
    assert other.chip == load("trn2").chip
    assert "int8" not in other.chip.peak
    assert other.chip.tile is None
    assert other.level("network") == load("dgx-h100").level("network")


def test_every_figure_says_in_which_file_it_stands(tmp_path):
    (tmp_path / "mine.yaml").write_text(CHIP, encoding="utf-8")
    path = rack(tmp_path, "./mine.yaml")
    files = {row["constant"]: row["file"] for row in hw_show(path).constants}
    assert files["chip.memory.capacity"] == str(tmp_path / "mine.yaml")
    assert files["chip.memory.bandwidth"] == "chips/h100.yaml"
    assert files["levels.nvlink.protocols.ll.latency"] == "chips/hopper.yaml"
    assert files["levels.network.link.bandwidth"] == str(path)
    assert files["levels.network.link.efficiency"].endswith("unstated/figures.yaml")


def test_a_mistake_in_a_chip_file_is_shown_there(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text(CHIP.replace("94 GB", "94 GB/s"), encoding="utf-8")
    assert f"--> {mine}:6:15\n" in refusal(rack(tmp_path, "./mine.yaml"))
    mine.write_text(CHIP.replace("capacity", "capcity"), encoding="utf-8")
    message = refusal(rack(tmp_path, "./mine.yaml"))
    assert f"--> {mine}:6:5\n" in message
    assert 'did you mean "capacity"?' in message


@pytest.mark.parametrize(
    ("line", "remedy"), [("memory: {capacity: 94 GB}", "write it under chip"), ("chp: {}", 'did you mean "chip"?')]
)
def test_a_field_that_no_chip_file_has_is_refused_as_one_of_it(tmp_path, line, remedy):
    mine = tmp_path / "mine.yaml"
    mine.write_text(f"tpsim: chip/1\nname: mine\nextends: h100\n{line}\n", encoding="utf-8")
    message = refusal(rack(tmp_path, "./mine.yaml"))
    assert f'"{line.partition(":")[0]}" is not a field of a chip file\n --> {mine}:4:1\n' in message
    assert remedy in message


def test_a_list_where_a_chip_stands_is_refused_there(tmp_path):
    path = tmp_path / "rack.yaml"
    path.write_text("tpsim: hardware/1\nname: rack\nextends: dgx-h100\nchip: []\n", encoding="utf-8")
    assert f"--> {path}:4:7\n" in refusal(path)


def test_a_level_that_a_chip_spells_wrongly_is_refused_where_it_stands(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text(CHIP + "levels:\n  nvlnk: {link: {bandwidth: 400 GB/s}}\n", encoding="utf-8")
    message = refusal(rack(tmp_path, "./mine.yaml"))
    assert message.startswith(f'error[unknown-level]: "nvlnk" is not a level of rack\n --> {mine}:')
    assert 'did you mean "nvlink"?' in message


def test_a_chip_that_there_is_not_is_answered_where_it_is_named(tmp_path):
    path = rack(tmp_path, "h10")
    message = refusal(path)
    assert message.startswith(f'error[unknown-chip]: "h10" is not a chip\n --> {path}:3:7\n')
    assert 'did you mean "h100"?' in message
    path = rack(tmp_path, "{extends: dgx-h100}")
    assert f'"dgx-h100" is a machine, not a chip\n --> {path}:3:17\n' in refusal(path)


def test_a_machine_is_no_chip_file(tmp_path):
    path = rack(tmp_path, str(SHIPPED / "dgx-h100.yaml"))
    assert "this is a hardware file where a chip file is due" in refusal(path)


@pytest.mark.parametrize("name", spec.names("hardware"))
def test_no_machine_repeats_what_its_chip_says(name):
    own, machine = spec.load(SHIPPED / f"{name}.yaml"), load(name)
    chip = own.data.get("chip")
    if not isinstance(chip, str):
        return
    stated = {path: value for path, value in leaves(own.data.get("levels", {}), ("levels",)) if value != {}}
    below = hw_show(SHIPPED / f"{name}.yaml")
    told = {one.path: one.file for one in machine.constants()}
    assert not {path for path in told if path.startswith("chip.") and told[path] == str(SHIPPED / f"{name}.yaml")}
    said = dict(leaves(spec.load(SHIPPED / "chips" / f"{chip}.yaml").data.get("levels", {}), ("levels",)))
    assert not [path for path, value in stated.items() if said.get(path) == value]
    assert below.guesses == sum(one.kind == "guess" for one in machine.constants())


def test_every_chip_is_listed_with_the_machines_that_are_made_of_it():
    made = {one["chip"]: one["machines"] for one in hw_list().chips}
    assert sorted(made) == spec.names("chips")
    assert made["gb200"] == ["gb200-hosts", "gb200-nvl72", "p6e-gb200"]
    assert [chip for chip, machines in made.items() if not machines] == []


def test_the_file_of_a_chip_is_held_against_its_form_and_leaves_the_rest_to_machines(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(CHIP, encoding="utf-8")
    assert hw_validate([*spec.names("chips"), path]).ok
    path.write_text(CHIP.replace("capacity", "capcity"), encoding="utf-8")
    (problem,) = hw_validate(path).problems
    assert (problem.message, problem.remedy) == ('"capcity" is not a field of a memory', 'did you mean "capacity"?')
    assert problem.place.line == 6


def test_the_file_of_a_chip_is_refused_for_what_machines_made_of_it_would_be(tmp_path):
    path = tmp_path / "mine.yaml"
    levels = "levels: {nvlink: {algorithms: {rnig: {efficiency: 0.5}}}}\n"
    path.write_text(f"{CHIP}  peak: {{bf61: {{value: 1 PFLOP/s, source: nobody, kind: stated}}}}\n{levels}", "utf-8")
    wrong = [(problem.message, problem.place.line) for problem in hw_validate(path).problems]
    assert wrong == [
        ('"nobody" is not a source', 7),
        ('"bf61" is not a dtype', 7),
        ('"rnig" is not an algorithm', 8),
    ]


def test_strictly_each_figure_of_a_chips_file_states_its_kind_and_source(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(CHIP + "    bandwidth: {value: 4 TB/s, kind: stated}\n", encoding="utf-8")
    assert hw_validate(path).ok
    wrong = [problem.message for problem in hw_validate(path, strict=True).problems]
    assert wrong == ["chip.memory.capacity has no kind", "chip.memory.bandwidth has no source"]


def test_a_chip_on_a_fabric_that_it_is_not_built_for_is_warned_of(tmp_path):
    path = tmp_path / "other.yaml"
    path.write_text("tpsim: hardware/1\nname: other\nextends: dgx-h100\nchip: trn2\n", encoding="utf-8")
    (warning,) = hw_validate(path).warnings
    assert warning.message == "trn2 is built for neuronlink, and here it lies on nvlink"
    assert warning.place.line == 4
    path.write_text("tpsim: hardware/1\nname: other\nextends: dgx-h100\nchip: b200\n", encoding="utf-8")
    assert hw_validate(path).warnings == []


def test_a_machine_of_a_folder_in_tpsim_path_may_be_made_of_a_chip_of_tpsim(tmp_path, monkeypatch):
    """It asked which machines are made of that chip, among them itself, without end."""
    own = "tpsim: hardware/1\nname: mine\nextends: dgx-h100\nchip: h100\n"
    (tmp_path / "mine.yaml").write_text(own, encoding="utf-8")
    monkeypatch.setenv("TPSIM_PATH", str(tmp_path))
    assert load("mine").doubts == ()
    assert "mine" in [row["hardware"] for row in hw_list().machines]
