"""``tpsim check`` in a folder of a user's own: the lock, its formats, its exit codes."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import chdir
from dataclasses import replace

import pytest
import yaml

from tests.changes import GUARDED
from tpsim.cli.main import run
from tpsim.program.frameworks import PRACTICES
from tpsim.program.schedules import SCHEDULES

BANDWIDTH = "value: 45 GB/s"


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    """A folder with its lock: the texts of formulas in it take longer to make than all else."""
    made = tmp_path_factory.mktemp("locked") / "team"
    shutil.copytree(GUARDED, made)
    with chdir(made):
        assert run(("check", "--update", "scenarios", "-q")) == 0
    return made


@pytest.fixture
def folder(team, tmp_path, monkeypatch):
    shutil.copytree(team, tmp_path / "team")
    monkeypatch.chdir(tmp_path / "team")
    return tmp_path / "team"


def edit(file, old, new):
    before = file.read_text(encoding="utf-8")
    assert old in before
    file.write_text(before.replace(old, new), encoding="utf-8")


def test_check_after_update_is_a_no_op(tpsim, folder):
    before = (folder / "tpsim.lock").read_bytes()
    assert tpsim("check").code == 0
    again = tpsim("check", "--update", "-q")
    assert (again.code, again.out) == (0, "3 scenarios are as tpsim.lock holds them; times within 1e-09\n")
    assert (folder / "tpsim.lock").read_bytes() == before


def test_a_drift_is_exit_1_with_its_cause_in_the_verdict_and_leaves_the_lock_alone(tpsim, folder):
    before = (folder / "tpsim.lock").read_bytes()
    edit(folder / "hardware/pod.yaml", BANDWIDTH, "value: 40 GB/s")
    ran = tpsim("check", "-q")
    assert ran.code == 1
    assert ran.out.startswith("constant hardware/pod.levels.ici.link.bandwidth 45 GB/s -> 40 GB/s (-11.1 %); ")
    assert ran.out.endswith("numbers of 1 of 3 scenarios moved\n")
    assert (folder / "tpsim.lock").read_bytes() == before


def test_update_says_what_moved_and_a_check_then_agrees(tpsim, folder):
    edit(folder / "hardware/pod.yaml", BANDWIDTH, "value: 40 GB/s")
    ran = tpsim("check", "--update", "-q")
    assert ran.code == 0
    assert "45 GB/s -> 40 GB/s" in ran.out
    assert ran.out.endswith("tpsim.lock is updated\n")
    assert tpsim("check").code == 0
    assert "{value: 40000000000.0," in (folder / "tpsim.lock").read_text()


def test_a_path_judges_its_own_scenarios_alone(tpsim, folder):
    edit(folder / "hardware/pod.yaml", BANDWIDTH, "value: 40 GB/s")
    assert tpsim("check", "scenarios/node.yaml", "-q").out == (
        "1 scenario is as tpsim.lock holds it; times within 1e-09\n"
    )
    assert tpsim("check", "scenarios/pod.yaml").code == 1
    (folder / "scenarios/shards.yaml").unlink()
    assert tpsim("check", "scenarios/node.yaml").code == 0


def test_a_lock_elsewhere_holds_paths_from_its_own_folder(tpsim, folder, monkeypatch):
    assert tpsim("check", "--update", "scenarios", "--lock", "locks.lock", "-q").code == 0
    monkeypatch.chdir(folder / "models")
    ran = tpsim("check", "--lock", "../locks.lock", "-q")
    assert (ran.code, ran.out.split(" ")[0]) == (0, "3")


@pytest.mark.parametrize("beside", ["library", "elsewhere", "json"])
def test_a_scenario_from_outside_of_a_folder_that_is_held_whole_is_held_beside_it(tpsim, folder, tmp_path, beside):
    """Right after the update that added it the check said that it was gone."""
    other = tmp_path / "other.yaml"
    other.write_text(
        "tpsim: scenario/1\nmodel: gpt-tiny\nhardware: dgx-h100\nmesh: {data: 2}\nlayout: {dp: data}\n"
        "workload: {global_batch: 2, seq: 16}\n"
    )
    (folder / "other.json").write_text(json.dumps(yaml.safe_load(other.read_text())))
    names = {
        "library": ("gpt2-xl-a100-dp",) * 2,
        "elsewhere": ("../other", "../other.yaml"),
        "json": ("other.json",) * 2,
    }
    name, path = names[beside]
    (folder / "tpsim.lock").unlink()
    assert tpsim("check", "--update", ".", "-q").code == 0
    assert tpsim("check", "--update", path, "-q").out == f"new: {name}; tpsim.lock is updated\n"
    assert tpsim("check", "-q").out == "4 scenarios are as tpsim.lock holds them; times within 1e-09\n"
    assert tpsim("check", ".", "-q").out == "3 scenarios are as tpsim.lock holds them; times within 1e-09\n"
    assert tpsim("check", path, "-q").out == "1 scenario is as tpsim.lock holds it; times within 1e-09\n"
    (folder / "scenarios/shards.yaml").unlink()
    assert tpsim("check", "--update", ".", "-q").out == "gone: scenarios/shards; tpsim.lock is updated\n"
    assert tpsim("check", "-q").out == "3 scenarios are as tpsim.lock holds them; times within 1e-09\n"


def test_a_scenario_of_the_other_suffix_is_found_in_its_folder(tpsim, folder):
    """It was passed over in silence, and gone once its folder was named."""
    text = "tpsim: scenario/1\nmodel: gpt-tiny\nhardware: dgx-h100\nmesh: {data: 2}\nlayout: {dp: data}\n"
    (folder / "scenarios/other.yml").write_text(text + "workload: {global_batch: 2, seq: 16}\n")
    assert tpsim("check", "-q").out == "new: scenarios/other.yml\n"
    assert tpsim("check", "--update", "scenarios/other.yml", "-q").code == 0
    assert tpsim("check", "--update", "scenarios", "-q").code == 0
    assert tpsim("check", "-q").out == "4 scenarios are as tpsim.lock holds them; times within 1e-09\n"
    with chdir(folder / "scenarios"):
        assert tpsim("check", "other.yml").out.splitlines()[-1] == "next: tpsim plan ../scenarios/other.yml"


OTHERS = {
    "template": b"{{- if .Values.x }}\na: {{ .Values }}\n{{- end }}\n",
    "tags": b"Resources: !Ref A\n",
    "documents": b"a: 1\n---\nb: 2\n",
    "merged": b"x: &a {b: 1}\ny: {<<: *a}\n",
    "twice": b"a: 1\na: 2\n",
    "service": b"services:\n  tpsim:\n    image: x\n",
    "large": b"a: b\n" * 400_000,
    "binary": bytes(range(256)),
}
"""YAML of other programs, and what is none, in a folder with scenarios."""


@pytest.mark.parametrize("name", OTHERS)
def test_yaml_of_other_programs_beside_scenarios_is_passed_over(tpsim, folder, name):
    """Whatever of it tpsim does not read as YAML: it refused to check a folder with a template in it."""
    (folder / f"scenarios/{name}.yaml").write_bytes(OTHERS[name])
    (folder / "scenarios/nowhere.yaml").symlink_to("gone")
    (folder / "scenarios/folder.yaml").mkdir()
    assert tpsim("check", "-q").out == "3 scenarios are as tpsim.lock holds them; times within 1e-09\n"


@pytest.mark.parametrize(
    ("written", "code"),
    [
        (lambda text: b"\xef\xbb\xbf" + text.replace("tpsim:", '"tpsim" :', 1).encode(), 1),
        (lambda text: ("{" + ", ".join(text.split("\n")[:1]) + ", model: gpt-tiny, hardware: dgx-h100}").encode(), 2),
        (lambda text: text.encode("utf-16"), 2),
        (lambda text: ("# " + "x" * 900_000 + "\n" + text).encode(), 1),
        (lambda text: (text + "x: {\n").encode(), 2),
    ],
    ids=["bom", "flow", "utf-16", "long", "torn"],
)
def test_whatever_says_that_it_is_of_tpsim_is_held_or_refused(tpsim, folder, written, code):
    text = "tpsim: scenario/1\nmodel: gpt-tiny\nhardware: dgx-h100\nmesh: {data: 2}\nlayout: {dp: data}\n"
    text += "workload: {global_batch: 2, seq: 16}\n"
    (folder / "scenarios/other.yaml").write_bytes(written(text))
    ran = tpsim("check", "-q")
    assert ran.code == code
    assert "scenarios/other" in ran.out + ran.err


def test_a_library_scenario_is_held_by_its_name(tpsim, folder):
    assert tpsim("check", "--update", "scenarios", "gemma-7b-v5e", "-q").code == 0
    text = (folder / "tpsim.lock").read_text()
    assert "paths: [gemma-7b-v5e, scenarios]" in text
    assert "\n  gemma-7b-v5e:\n" in text
    assert tpsim("check").code == 0


def test_formulas_of_a_prompt_stay_where_another_scenario_is_updated(tpsim, folder):
    assert tpsim("check", "--update", "scenarios", "llama3-70b-h100-decode", "-q").code == 0
    text = (folder / "tpsim.lock").read_text()
    assert tpsim("check", "--update", "scenarios/pod.yaml", "-q").code == 0
    assert (folder / "tpsim.lock").read_text() == text
    assert tpsim("check", "-q").code == 0


def test_machines_models_and_foreign_yaml_in_a_folder_are_passed_over(tpsim, folder):
    (folder / "ci.yaml").write_text("on: push\n")
    assert tpsim("check", ".", "-q").out == "3 scenarios are as tpsim.lock holds them; times within 1e-09\n"


def test_a_misspelled_header_is_refused_and_not_passed_over(tpsim, folder):
    edit(folder / "scenarios/pod.yaml", "tpsim: scenario/1", "tpsim: scenari/1")
    ran = tpsim("check")
    assert ran.code == 2
    assert "pod.yaml:1:8" in ran.err


def test_json_holds_every_cause_and_every_number(tpsim, folder):
    edit(folder / "models/small.yaml", "\nheads: 32", "\nheads: 64")
    document = json.loads(tpsim("check", "-f", "json").out)
    result = document["result"]
    assert document["schema"] == "tpsim.check/1"
    assert (result["moved"], result["causes"][0]["kind"], result["causes"][0]["change"]) == (True, "model", "+100 %")
    assert {one["scenario"] for one in result["changes"]} == {"scenarios/node", "scenarios/pod", "scenarios/shards"}
    assert all(one["causes"] == "models/small.heads" for one in result["changes"])


def test_how_steps_follow_each_other_is_a_property_of_the_machine_and_no_formula(tpsim, folder):
    edit(folder / "hardware/pod.yaml", "steps: lockstep", "steps: streamed")
    causes = json.loads(tpsim("check", "-f", "json").out)["result"]["causes"]
    assert [(one["kind"], one["name"]) for one in causes] == [("constant", "hardware/pod.levels.ici.steps")]


def test_markdown_is_empty_when_nothing_moved_and_a_comment_when_something_did(tpsim, folder):
    assert tpsim("check", "-f", "md").out == ""
    edit(folder / "hardware/pod.yaml", BANDWIDTH, "value: 40 GB/s")
    ran = tpsim("check", "-f", "md")
    assert ran.code == 1
    assert ran.out.startswith("### tpsim check: tpsim.lock\n\n**constant hardware/pod.levels")


def test_without_a_lock_the_remedy_writes_one(tpsim, folder):
    (folder / "tpsim.lock").unlink()
    ran = tpsim("check", "scenarios")
    assert ran.code == 2
    assert "= write it: tpsim check --update scenarios" in ran.err
    assert tpsim("check", "--update", "-q").code == 0


def test_a_path_that_is_not_there_is_refused(tpsim, folder):
    ran = tpsim("check", "scenario")
    assert ran.code == 2
    assert "error[" in ran.err
    (folder / "empty").mkdir()
    assert "no scenario is there" in tpsim("check", "empty").err


def test_an_edit_of_a_machine_file_that_is_renamed_too_is_named(tpsim, folder):
    edit(folder / "hardware/pod.yaml", BANDWIDTH, "value: 40 GB/s")
    (folder / "hardware/pod.yaml").rename(folder / "hardware/cluster.yaml")
    edit(folder / "scenarios/pod.yaml", "hardware/pod.yaml", "hardware/cluster.yaml")
    causes = json.loads(tpsim("check", "-f", "json").out)["result"]["causes"]
    assert [(one["name"], one["change"], one["scenarios"]) for one in causes] == [
        ("hardware/cluster.levels.ici.link.bandwidth", "-11.1 %", ["scenarios/pod"]),
        ("hardware", None, []),
    ]


def test_a_scenario_that_stops_fitting_is_named_and_the_capacity_moves_no_second(tpsim, folder):
    edit(folder / "hardware/node.yaml", "value: 80 GB", "value: 1 GB")
    result = json.loads(tpsim("check", "-f", "json").out)["result"]
    assert "scenarios/node: does not fit" in result["verdict"]
    (cause,) = result["causes"]
    assert (cause["name"], cause["step_relative"]) == ("hardware/node.chip.memory.capacity", None)
    assert {(one["quantity"], one["old"], one["new"]) for one in result["changes"]} == {("states_fit", True, False)}


def test_a_requirement_that_a_drift_violates_is_named(tpsim, folder):
    with (folder / "scenarios/pod.yaml").open("a") as file:
        file.write("require: {mfu: '> 1 %'}\n")
    found = json.loads(tpsim("check", "-f", "json").out)["result"]
    assert [(one["name"], one["new"]) for one in found["causes"]] == [("require.mfu", "> 1 %")]
    assert found["verdict"].startswith("scenario require.mfu none -> > 1 % (new)")
    assert tpsim("check", "--update", "-q").code == 0
    edit(folder / "hardware/pod.yaml", BANDWIDTH, "value: 0.04 GB/s")
    ran = tpsim("check")
    assert "scenarios/pod: require.mfu is violated" in ran.out.replace("\n", " ")
    causes = json.loads(tpsim("check", "-f", "json").out)["result"]["causes"]
    assert [one["name"] for one in causes] == ["hardware/pod.levels.ici.link.bandwidth"]


def test_a_violated_requirement_that_the_lock_holds_is_said_by_every_check(tpsim, folder):
    with (folder / "scenarios/pod.yaml").open("a") as file:
        file.write("require: {mfu: '> 99 %'}\n")
    assert tpsim("check", "--update", "-q").code == 0
    ran = tpsim("check", "-q")
    assert ran.out.endswith("; times within 1e-09; scenarios/pod: require.mfu is violated\n")


def locked(folder):
    from tpsim.guard.lock import read_lock

    return read_lock(folder / "tpsim.lock")


def test_an_update_of_one_scenario_leaves_the_others_in_the_lock(tpsim, folder):
    before = locked(folder)
    edit(folder / "scenarios/pod.yaml", "seq: 2048", "seq: 1024")
    ran = tpsim("check", "--update", "scenarios/pod.yaml", "-q")
    assert (ran.code, "gone" in ran.out) == (0, False)
    after = locked(folder)
    assert after.paths == ("scenarios",)
    assert after.scenarios.keys() == before.scenarios.keys()
    assert [name for name in before.scenarios if after.scenarios[name] != before.scenarios[name]] == ["scenarios/pod"]
    assert tpsim("check").code == 0
    text = (folder / "tpsim.lock").read_text()
    assert tpsim("check", "--update", "-q").code == 0
    assert (folder / "tpsim.lock").read_text() == text


def test_an_update_adds_a_scenario_that_the_lock_does_not_hold(tpsim, folder):
    shutil.copy(folder / "scenarios/pod.yaml", folder / "another.yaml")
    edit(folder / "another.yaml", "../", "")
    assert "new: another" in tpsim("check", "--update", "another.yaml", "-q").out
    assert locked(folder).paths == ("another.yaml", "scenarios")
    assert len(locked(folder).scenarios) == 4
    assert tpsim("check").code == 0


def test_an_update_of_a_folder_drops_what_is_gone_from_it(tpsim, folder):
    (folder / "scenarios/shards.yaml").unlink()
    assert tpsim("check", "--update", "scenarios", "-q").out.startswith("gone: scenarios/shards")
    assert list(locked(folder).scenarios) == ["scenarios/node", "scenarios/pod"]


def test_a_folder_that_got_another_name_is_gone_with_its_scenarios_until_an_update(tpsim, folder):
    """The lock names it in a line that nobody should have to edit."""
    (folder / "scenarios").rename(folder / "plans")
    for flags in ((), ("--update",)):
        ran = tpsim("check", *flags)
        assert ran.code == 2
        assert "error[no-scenarios]: nothing of what tpsim.lock names is there any more: scenarios\n" in ran.err
        assert "  = name your scenarios, files or folders: tpsim check --update PATH\n" in ran.err
    assert tpsim("check", "--update", "plans", "-q").code == 0
    ran = tpsim("check", "-q")
    assert (ran.code, ran.out) == (1, "gone: scenarios/node, scenarios/pod, scenarios/shards\n")
    assert tpsim("check", "--update", "-q").code == 0
    assert (locked(folder).paths, len(locked(folder).scenarios)) == (("plans",), 3)
    assert tpsim("check", "-q").code == 0


def test_an_update_of_one_scenario_is_refused_where_a_fact_moved_that_others_use(tpsim, folder):
    before = (folder / "tpsim.lock").read_bytes()
    edit(folder / "hardware/node.yaml", "value: 400 GB/s", "value: 300 GB/s")
    ran = tpsim("check", "--update", "scenarios/node.yaml")
    assert ran.code == 2
    assert "error[shared-fact]: hardware/node.levels.inside.link.bandwidth moved" in ran.err
    assert (folder / "tpsim.lock").read_bytes() == before


def following(ran):
    return ran.out.splitlines()[-1]


@pytest.mark.usefixtures("folder")
def test_the_next_command_of_a_clean_check_plans_a_scenario_that_it_held(tpsim):
    assert following(tpsim("check")) == "next: tpsim plan scenarios/node.yaml"


def test_the_next_command_of_a_drift_repeats_what_was_asked(tpsim, folder):
    (folder / "tpsim.lock").rename(folder / "team.lock")
    edit(folder / "hardware/pod.yaml", BANDWIDTH, "value: 40 GB/s")
    asked = ("check", "scenarios/pod.yaml", "--lock", "team.lock")
    assert following(tpsim(*asked)) == "next: tpsim check scenarios/pod.yaml --lock team.lock -v"
    assert following(tpsim(*asked, "-v")) == "next: tpsim check scenarios/pod.yaml --lock team.lock --update"


def test_the_next_command_of_numbers_that_nothing_explains_is_to_verify_them(tpsim, folder):
    lock = folder / "tpsim.lock"
    lock.write_text("".join(unsaid(line) for line in lock.read_text().splitlines(keepends=True)))
    ran = tpsim("check", "-v")
    assert ran.code == 1
    assert following(ran) == "next: tpsim verify scenarios/node.yaml"


def unsaid(line):
    """The line of a lock, compute in another number."""
    return re.sub(r"(compute_s: {value: )[^,]+", r"\g<1>1.0", line)


def test_a_check_below_the_lock_s_folder_finds_it(tpsim, folder, monkeypatch):
    monkeypatch.chdir(folder / "models")
    ran = tpsim("check", "-q")
    assert (ran.code, ran.out) == (0, "3 scenarios are as ../tpsim.lock holds them; times within 1e-09\n")
    edit(folder / "hardware/pod.yaml", BANDWIDTH, "value: 40 GB/s")
    assert tpsim("check", "--update", "-q").code == 0
    assert not (folder / "models/tpsim.lock").exists()
    assert tpsim("check").code == 0


def test_a_machine_is_refused_as_what_it_is_also_where_it_extends_another(tpsim, folder):
    (folder / "mine.yaml").write_text("tpsim: hardware/1\nextends: dgx-h100\nname: mine\n")
    ran = tpsim("check", "mine.yaml")
    assert ran.code == 2
    assert "error[wrong-kind]: mine.yaml is a hardware file, and no scenario" in ran.err
    assert "mine.yaml:1" in ran.err


def test_an_unknown_name_in_the_lock_is_shown_there(tpsim, folder):
    edit(folder / "tpsim.lock", "paths: [scenarios]", "paths: [gemma-7b-v5, scenarios]")
    ran = tpsim("check")
    assert ran.code == 2
    assert "tpsim.lock:6:9" in ran.err


def test_without_a_lock_and_a_folder_of_scenarios_the_remedy_does_not_name_that_folder(tpsim, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for args in (("check",), ("check", "--update")):
        assert "name your scenarios, files or folders: tpsim check --update PATH" in tpsim(*args).err


def test_csv_of_nothing_that_moved_has_a_header(tpsim, folder):
    header = "scenario,collective,quantity,old,new,relative,change,causes\n"
    assert tpsim("check", "-f", "csv").out == header
    assert tpsim("diff", "scenarios/pod.yaml", "scenarios/pod.yaml", "-f", "csv").out == header
    edit(folder / "models/small.yaml", "\nheads: 32", "\nheads: 64")
    assert tpsim("check", "-f", "csv").out.startswith(header)


def as_older(folder):
    """The folder's lock as it was called before numbers said what they are made with."""
    edit(folder / "tpsim.lock", "tpsim: lock/2", "tpsim: lock/1")
    edit(folder / "tpsim.lock", "tolerance: 1e-09", "tolerance: 0.01")


def test_a_lock_of_the_older_format_is_refused_and_said_how_to_be_moved(tpsim, folder):
    as_older(folder)
    said = """\
error[older-lock]: this is a lock/1, which does not say what its numbers are made with as lock/2 does
 --> tpsim.lock:3:8
  |
3 | tpsim: lock/1
  |        ^^^^^^ write it again: tpsim check --update
"""
    for asked in (("check",), ("check", "scenarios/pod.yaml"), ("check", "--update", "scenarios/pod.yaml")):
        ran = tpsim(*asked)
        assert (ran.code, ran.out, ran.err) == (2, "", said)
    (folder / "other.lock").write_text((folder / "tpsim.lock").read_text())
    for sides in (("tpsim.lock", "other.lock"), ("other.lock", "tpsim.lock")):
        ran = tpsim("diff", *sides)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith("error[older-lock]: ")
        assert f" --> {sides[0]}:3:8" in ran.err


def test_an_update_moves_a_lock_of_the_older_format_with_its_paths_and_its_tolerance(tpsim, folder):
    as_older(folder)
    ran = tpsim("check", "--update", "-q")
    assert (ran.code, ran.out) == (0, "tpsim.lock is written: it holds 3 scenarios\n")
    assert (locked(folder).paths, locked(folder).tolerance) == (("scenarios",), 0.01)
    assert tpsim("check", "-q").out == "3 scenarios are as tpsim.lock holds them; times within 0.01\n"


def test_an_update_of_one_scenario_is_not_refused_for_a_fact_that_others_do_not_use(tpsim, folder):
    edit(folder / "hardware/node.yaml", "value: 60 TFLOP/s", "value: 61 TFLOP/s")
    assert tpsim("check", "--update", "scenarios/node.yaml", "-q").code == 0
    assert tpsim("check").code == 0


def test_lines_that_stand_twice_in_a_lock_are_refused(tpsim, folder):
    line = next(one for one in (folder / "tpsim.lock").read_text().splitlines(keepends=True) if "      - {phase" in one)
    edit(folder / "tpsim.lock", line, line * 2)
    ran = tpsim("check")
    assert (ran.code, ran.out) == (2, "")
    assert " stands here once" in ran.err


STAGES = "layout: {tp: tensor, dp: data, pp: spare, zero: 1}\npipeline: {schedule: 1f1b}\nrecompute: none\n"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("1f1b", "gpipe", "scenario pipeline.schedule 1f1b -> gpipe; "),
        ("recompute: none", "recompute: full", "scenario practice.recompute none -> full (new); "),
        ("{clip: none}", "{clip: none, overlap: {tensor: none}}", "scenario practice.overlap.tensor beside -> none; "),
        ("{clip: none}", "{clip: deferred}", "scenario practice.clip none -> deferred; "),
    ],
)
def test_a_schedule_recompute_and_overlap_are_causes(tpsim, folder, old, new, said):
    node = folder / "scenarios/node.yaml"
    edit(node, "layout: {tp: tensor, dp: data, zero: 1, sequence_parallel: true}\n", STAGES)
    assert tpsim("check", "--update", "-q").code == 0
    edit(node, old, new)
    ran = tpsim("check", "-q")
    assert (ran.code, ran.out) == (1, f"{said}numbers of 1 of 3 scenarios moved\n")


def test_an_order_of_actions_that_moves_is_a_formula_and_explains_the_steps_made_with_it(tpsim, folder, monkeypatch):
    node = folder / "scenarios/node.yaml"
    edit(node, "layout: {tp: tensor, dp: data, zero: 1, sequence_parallel: true}\n", STAGES)
    assert tpsim("check", "--update", "-q").code == 0
    monkeypatch.setitem(SCHEDULES, "1f1b", SCHEDULES["gpipe"])
    ran = tpsim("check", "-q")
    assert (ran.code, ran.out.partition("; ")[0]) == (1, "formula schedule.1f1b")
    assert ran.out.endswith("numbers of 1 of 3 scenarios moved\n")


@pytest.mark.usefixtures("folder")
def test_a_default_of_overlap_that_moves_is_a_switch_and_explains_the_steps_made_with_it(tpsim, monkeypatch):
    megatron = PRACTICES["megatron"]
    moved = replace(megatron, overlap=megatron.overlap.but(tensor="none"))
    monkeypatch.setitem(PRACTICES, "megatron", moved)
    ran = tpsim("check", "-q")
    assert (ran.code, ran.out.partition("; ")[0]) == (1, "switch practice.megatron.overlap.tensor beside -> none")
    assert ran.out.endswith("numbers of 1 of 3 scenarios moved\n")


@pytest.mark.parametrize("words", [("scenarios",), ()])
def test_the_command_that_writes_a_missing_lock_names_it(tpsim, folder, words):
    shutil.move(folder / "scenarios", folder / "kept")
    ran = tpsim("check", *["kept" for _ in words], "--lock", "mine.lock")
    assert ran.code == 2
    assert f"tpsim check --update {'kept' if words else 'PATH'} --lock mine.lock\n" in ran.err


@pytest.mark.usefixtures("folder")
def test_a_lock_in_a_folder_that_there_is_not_is_refused_by_its_own_name(tpsim):
    ran = tpsim("check", "--update", "scenarios", "--lock", "nowhere/mine.lock")
    assert ran.code == 2
    assert "error[cannot-write]: nowhere/mine.lock: there is no folder nowhere\n" in ran.err


@pytest.mark.parametrize("flags", [(), ("--update",)])
@pytest.mark.parametrize("locked", [True, False])
def test_a_path_that_is_not_there_is_told_as_it_was_typed_with_a_lock_and_without_one(tpsim, folder, flags, locked):
    if not locked:
        (folder / "tpsim.lock").unlink()
    gone = str(folder.parent / "gone.yaml")
    ran = tpsim("check", gone, *flags)
    assert (ran.code, ran.err) == (
        2,
        f"error[no-such-file]: there is no file {gone}\n  = check the folder and the name\n",
    )


def test_the_command_that_a_missing_lock_is_written_by_is_told_only_where_it_works(tpsim, folder):
    (folder / "tpsim.lock").unlink()
    (folder / "empty").mkdir()
    assert "no scenario is there" in tpsim("check", "empty").err
    assert "is not a scenario" in tpsim("check", "nope").err
    told = tpsim("check", "scenarios/pod.yaml").err
    assert "write it: tpsim check --update scenarios/pod.yaml" in told
    assert tpsim(*told.partition("write it: tpsim ")[2].split()).code == 0
