"""What a profile leaves out is guessed from a file that says so: counted, printed, never taken for nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.machines import OWN
from tpsim.answers.collective import collective
from tpsim.answers.plan import plan
from tpsim.cli.main import run
from tpsim.machine.chip_seconds import compute_s
from tpsim.machine.profile import load, read
from tpsim.machine.unstated import UnstatedFile, unstated
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError
from tpsim.quantity.units import show
from tpsim.question.scenario import resolve

SHEET = """\
tpsim: hardware/1
name: sheet
chip:
  peak: {bf16: 989 TFLOP/s}
  memory: {capacity: 80 GB, bandwidth: 3.35 TB/s}
levels:
  - {name: port, topology: switch, shape: [8], link: {bandwidth: 450 GB/s}}
  - {name: card, topology: switch, link: {bandwidth: 50 GB/s}}
"""
"""What a datasheet says of a machine."""

LEFT_OUT = {
    "chip.matmul_efficiency",
    "chip.memory_efficiency",
    *(
        f"levels.{level}.{figure}"
        for level in ("port", "card")
        for figure in ("launch", "link.efficiency", "link.hop_latency")
    ),
}
FLAGS = {"model": "llama-3-8b", "seq": 4096, "tp": 8, "dp": 2}


@pytest.fixture
def sheet(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sheet.yaml").write_text(SHEET, encoding="utf-8")
    return "./sheet.yaml"


def changed(path, old, new):
    text = Path(path).read_text(encoding="utf-8")
    assert old in text
    Path(path).write_text(text.replace(old, new), encoding="utf-8")


def guessed(machine):
    return {one.path for one in machine.constants() if not one.stated}


def test_the_guesses_stand_in_a_file_of_hardware_and_are_called_guesses():
    found, document = spec.read(spec.shipped("hardware") / "unstated" / "figures.yaml", UnstatedFile)
    assert found == unstated()
    assert set(found.levels) == {"wired", "joined", "network"}
    figures = [line for line in document.text.splitlines() if "value:" in line]
    assert len(figures) == 2 + 3 * 3
    assert all("kind: guess" in line and "note:" in line for line in figures)


def test_every_guess_lies_among_what_the_machines_of_the_library_have():
    machines = [load(name) for name in spec.names("hardware")]
    levels = {
        "wired": [level for one in machines for level in one.levels if level.shape and level.topology == "torus"],
        "joined": [level for one in machines for level in one.levels if level.shape and level.topology != "torus"],
        "network": [level for one in machines for level in one.levels if not level.shape],
    }
    guesses = unstated()
    for sort, group in levels.items():
        guess = guesses.levels[sort]
        for value, held in (
            (guess.link.efficiency.value, [level.link.efficiency.value for level in group]),
            (guess.link.hop_latency.value, [level.link.hop_latency.value for level in group]),
            (guess.launch.value, [one.value for level in group for one in level.launch.values()]),
        ):
            assert min(held) <= value <= max(held), sort
    for name in ("matmul_efficiency", "memory_efficiency"):
        shares = [getattr(one.chip, name).value for one in machines]
        assert min(shares) <= getattr(guesses.chip, name).value <= max(shares)


@pytest.mark.parametrize("name", spec.names("hardware"))
def test_no_machine_of_the_library_leaves_anything_out(name):
    assert guessed(load(name)) == set()


def test_what_a_datasheet_does_not_say_is_a_guess_of_the_machine(sheet):
    machine, guesses = load(sheet), unstated()
    assert guessed(machine) == LEFT_OUT
    assert {one.kind for one in machine.constants() if not one.stated} == {"guess"}
    port, card = machine.levels
    assert port.link.hop_latency.value == guesses.levels["joined"].link.hop_latency.value
    assert card.launched(None).value == guesses.levels["network"].launch.value
    assert compute_s(machine, 989e12, "bf16") == pytest.approx(1 / guesses.chip.matmul_efficiency.value)


def test_chips_wired_to_their_neighbours_have_guesses_of_their_own(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(OWN, encoding="utf-8")
    (loop,) = load(path).levels
    assert loop.link.hop_latency.value == unstated().levels["wired"].link.hop_latency.value


def test_a_plan_counts_and_prints_each_figure_that_is_left_out(sheet, capsys):
    result = plan(None, hw=sheet, **FLAGS)
    question, machine = result.question, load(sheet)
    said = {one.text.partition(" is ")[0]: one for one in question.assumptions if "does not state it" in one.text}
    assert set(said) == LEFT_OUT
    assert {one.kind for one in said.values()} == {"guess"}
    for one in machine.constants():
        if not one.stated:
            assert f"{one.path} is {show(one.value, one.dimension)}: sheet does not state it" in said[one.path].text
    stated = sum(one.kind == "guess" and one.stated for one in machine.constants())
    assert question.guesses == stated + sum(one.kind == "guess" for one in question.assumptions)
    assert run(["plan", "--model", "llama-3-8b", "--hw", sheet, "--tp", "8", "--dp", "2", "--seq", "4096"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = [one for one in lines if one.startswith("sheet leaves out what is guessed")]
    assert all(path in line for path in LEFT_OUT)


def test_stating_a_figure_takes_its_guess_away(sheet):
    before = resolve(None, flags={**FLAGS, "hw": sheet}).guesses
    changed(sheet, "450 GB/s}", "450 GB/s, hop_latency: {value: 2 us, kind: stated}}")
    assert resolve(None, flags={**FLAGS, "hw": sheet}).guesses == before - 1


def test_an_efficiency_that_the_scenario_assumes_is_no_guess_of_the_machine(sheet):
    question = resolve(
        None, flags={**FLAGS, "hw": sheet}, overrides=["assume.matmul_efficiency={value: 0.4, kind: stated}"]
    )
    assert not any("chip.matmul_efficiency" in one.text for one in question.assumptions)
    assert not any("chip.matmul_efficiency" in text for text in question.remarks)


def test_a_launch_that_is_guessed_is_that_of_every_harness(sheet):
    times = {
        launch: collective("all-reduce", hw=sheet, ranks=8, sizes="1MB", launch=launch).rows[0]["time_s"]
        for launch in (None, "graph", "threads", "mine")
    }
    assert len(set(times.values())) == 1
    changed(sheet, "shape: [8]", "shape: [8], launch: {graph: 1 us}")
    with pytest.raises(InputError, match='"threads" is not a launch of port'):
        collective("all-reduce", hw=sheet, ranks=8, sizes="1MB", launch="threads")


def test_a_collective_names_what_it_guesses(sheet):
    texts = [one.text for one in collective("all-reduce", hw=sheet, ranks=8, sizes="1MB").assumptions]
    assert any("levels.port.launch" in text and "levels.port.link.hop_latency" in text for text in texts)


def test_a_profile_that_leaves_figures_out_is_sound_with_a_warning_for_each(sheet, capsys):
    assert run(["hw", "validate", sheet, "-f", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["result"]["profiles"][0]
    assert found["ok"]
    assert {one["problem"].removesuffix(" is not stated") for one in found["warnings"]} == LEFT_OUT
    assert {one["slug"] for one in found["warnings"]} == {"left-out"}
    assert found["warnings"][0]["remedy"] == "0.55 is guessed"
    assert run(["hw", "validate", sheet]) == 0
    assert "1 of 1 profiles are sound, 8 warnings" in capsys.readouterr().out


def test_a_profile_held_to_the_rule_of_the_shipped_ones_leaves_nothing_out(sheet, capsys):
    assert run(["hw", "validate", sheet, "--strict", "-f", "json"]) == 1
    found = json.loads(capsys.readouterr().out)["result"]["profiles"][0]
    assert {one["problem"].removesuffix(" has no value") for one in found["problems"]} >= LEFT_OUT
    assert found["warnings"] == []


SHARES = (
    ("port", "link: {bandwidth: 450 GB/s}", "link: {bandwidth: 450 GB/s, efficiency: %s}"),
    ("port", "shape: [8]", "shape: [8], protocols: {ll: {efficiency: %s}}"),
    ("port", "shape: [8]", "shape: [8], algorithms: {ring: {efficiency: %s}}"),
    ("port", "shape: [8]", "shape: [8], protocols: {ll: {}}, algorithms: {ring: {protocols: {ll: {efficiency: %s}}}}"),
    ("card", "topology: switch, link: {bandwidth: 50", "topology: switch, pipelined: %s, link: {bandwidth: 50"),
    ("chip", "  peak:", "  matmul_efficiency: %s\n  peak:"),
)


@pytest.mark.parametrize("share", ["824", "1.01", "101 %", "0", "-0.5", "{value: 824, kind: stated}"])
@pytest.mark.parametrize(("_where", "old", "new"), SHARES)
def test_a_share_is_above_nothing_and_at_most_the_whole(sheet, _where, old, new, share):
    changed(sheet, old, new % share)
    with pytest.raises(InputError, match=r"is more than the whole|is not positive|is negative"):
        read(sheet)


@pytest.mark.parametrize("share", ["1", "0.3", "100 %", "55 %", "{value: 55 %, kind: stated}"])
@pytest.mark.parametrize(("_where", "old", "new"), SHARES)
def test_a_share_up_to_the_whole_is_read(sheet, _where, old, new, share):
    changed(sheet, old, new % share)
    assert read(sheet)[0].name == "sheet"


@pytest.mark.parametrize(
    "override", ["assume.matmul_efficiency=55", "assume.matmul_efficiency={value: 1.5}", 'require={mfu: "> 40"}']
)
def test_a_scenarios_shares_are_shares_too(override):
    with pytest.raises(InputError, match="is more than the whole, and this is a share of it"):
        resolve("llama3-70b-h100", overrides=[override])


def test_a_share_may_be_written_in_percent_in_a_scenario():
    question = resolve("llama3-70b-h100", overrides=["assume.matmul_efficiency=55 %", 'require={mfu: "> 40 %"}'])
    assert (question.matmul_efficiency, question.limits[0].bound) == (0.55, 0.4)
