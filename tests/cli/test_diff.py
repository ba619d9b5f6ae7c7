"""``tpsim diff``: scenarios, saved results and locks, per collective and per axis."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from pathlib import Path

import pytest

from tpsim.answers.plan import plan
from tpsim.guard.diff import diff
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError

BASE = "llama3-70b-h100"
ZERO3 = ("--set", "layout.zero=3")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A plan and the plan of another layout, saved."""
    folder = tmp_path_factory.mktemp("saved")
    for name, zero in (("old", 1), ("new", 3)):
        (folder / f"{name}.json").write_text(json.dumps(plan(BASE, zero=zero).to_json()))
    return str(folder / "old.json"), str(folder / "new.json")


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_equal_sides_say_nothing_as_markdown_and_exit_with_0(tpsim):
    assert tpsim("diff", BASE, BASE, "-f", "md", "--exit-code").out == ""
    assert tpsim("diff", BASE, BASE, "--exit-code").code == 0
    assert tpsim("diff", BASE, BASE, "-q").out == "nothing moved\n"


def test_a_difference_is_an_answer_and_exit_1_only_if_asked(tpsim):
    assert tpsim("diff", BASE, *ZERO3, "-q").code == 0
    assert tpsim("diff", BASE, *ZERO3, "-q", "--exit-code").code == 1


def test_a_difference_has_its_cause_and_the_sign_convention(tpsim):
    out = tpsim("diff", BASE, *ZERO3).out
    assert "layout.zero" in out
    assert "changes are new - old: + is more bytes or more seconds" in out
    assert f"next: tpsim plan {BASE} --set layout.zero=3" in out


def test_a_longer_prompt_moves_the_seconds_until_its_first_token(tpsim, tmp_path):
    """Two plans that are saved say so as two scenarios do; a step of the reply alone moves by 4 %."""
    asked = ("llama3-70b-h100-decode", "--set", "workload.prompt=2048")
    old, new = (str(tmp_path / f"{side}.json") for side in ("old", "new"))
    assert tpsim("plan", asked[0], "-o", old, "-q").code == tpsim("plan", *asked, "-o", new, "-q").code == 0
    for sides in (asked, (old, new)):
        out = tpsim("diff", *sides).out
        assert "first token: 1.469 s -> 2.967 s (+102 %)" in out
        assert "prompt and reply: 4.907 s -> 6.544 s (+33.4 %)" in out


def test_swapping_the_sides_turns_new_into_gone(tpsim, saved):
    def words(*sides):
        found = rows(tpsim("diff", *sides, "-f", "csv").out)
        return {(row["collective"], row["quantity"]): row["change"] for row in found}

    there, back = words(*saved), words(*reversed(saved))
    turned = {"new": "gone", "gone": "new"}
    assert {"new", "gone"} <= set(there.values())
    assert {key: word for key, word in back.items() if word in turned} == {
        key: turned[word] for key, word in there.items() if word in turned
    }


def test_csv_says_of_each_number_what_it_was_is_and_why(tpsim):
    found = rows(tpsim("diff", BASE, "--set", "workload.seq=2048", "-f", "csv").out)
    assert {row["causes"] for row in found} == {"workload.seq"}
    step = next(row for row in found if row["quantity"] == "step_s")
    assert float(step["relative"]) == pytest.approx(float(step["new"]) / float(step["old"]) - 1)
    assert step["change"].startswith("-")


def test_the_least_change_hides_what_is_smaller(tpsim):
    every = rows(tpsim("diff", BASE, *ZERO3, "-f", "csv").out)
    large = rows(tpsim("diff", BASE, *ZERO3, "--min-change", "50%", "-f", "csv").out)
    assert 0 < len(large) < len(every)
    assert all(not row["relative"] or abs(float(row["relative"])) >= 0.5 for row in large)
    assert tpsim("diff", BASE, "--set", "workload.seq=4104", "--min-change", "50 %", "--exit-code", "-q").code == 0


def test_a_saved_result_is_compared_with_a_scenario_and_with_another_result(tpsim, saved):
    old, _ = saved
    assert tpsim("diff", old, BASE, "--exit-code").code == 0
    answers = [tpsim("diff", *sides, "-f", "json").out for sides in (saved, (old, BASE, *ZERO3))]
    causes = [json.loads(one)["result"]["causes"] for one in answers]
    assert causes[0] == causes[1]
    assert [(one["kind"], one["name"], one["old"], one["new"]) for one in causes[0]] == [
        ("scenario", "layout.zero", 1, 3)
    ]


def test_numbers_of_saved_results_have_the_names_and_units_of_those_of_scenarios(tpsim, saved, tmp_path):
    shorter = ("--set", "workload.seq=2048")
    assert tpsim("plan", BASE, *shorter, "-o", str(tmp_path / "shorter.json")).code == 0
    pages = [
        tpsim("diff", *sides, "-v").out for sides in ((saved[0], str(tmp_path / "shorter.json")), (BASE, *shorter))
    ]
    told = [[line.split("the step")[1].split() for line in page.splitlines() if " the step " in line] for page in pages]
    assert told[0] == told[1]
    assert ("flops", "PFLOP") in {(line[0], line[2]) for line in told[0]}


@pytest.mark.parametrize("name", ["mixtral-8x7b-h100", "deepseek-v3-h100-decode"])
def test_a_saved_result_of_layers_of_several_kinds_is_compared_too(tpsim, tmp_path, name):
    (file := tmp_path / "plan.json").write_text(json.dumps(plan(name).to_json()))
    assert tpsim("diff", str(file), name, "-q", "--exit-code").out == "nothing moved\n"


@pytest.mark.parametrize("unsaid", [False, True])
def test_a_result_of_another_version_of_the_machine_blames_its_file(tpsim, saved, tmp_path, unsaid):
    """Plans that were saved before they said which files their machine is made of have them behind its own."""
    old, new = saved[0], tmp_path / "new.json"
    document = json.loads(Path(old).read_text())
    document["inputs"] = [
        {**one, "sha256": "0" * 64} if one["path"] == "hardware/dgx-h100.yaml" else one for one in document["inputs"]
    ]
    if unsaid:
        del document["resolved"]["hardware_files"]
    document["result"]["step"]["time_s"] *= 2
    new.write_text(json.dumps(document))
    found = json.loads(tpsim("diff", old, str(new), "-f", "json").out)["result"]["causes"]
    named = "dgx-h100.file dgx-h100.yaml"
    assert [(one["kind"], one["name"], one["new"]) for one in found] == [("constant", named, "0" * 12)]


@pytest.mark.parametrize("file", ["cluster.yaml", "base.yaml", "chip.yaml"])
def test_a_change_of_any_file_of_a_machine_since_a_plan_was_saved_is_its_cause(tpsim, tmp_path, monkeypatch, file):
    """A machine that is not called as its file, what it extends and its chip were not looked at: code was blamed."""
    monkeypatch.chdir(tmp_path)
    texts = {
        "cluster.yaml": "tpsim: hardware/1\nname: ours\nextends: ./base.yaml\n"
        "levels: {nvlink: {link: {bandwidth: 300 GB/s}}}\n",
        "base.yaml": "tpsim: hardware/1\nname: below\nextends: dgx-h100\nchip: ./chip.yaml\n"
        "levels: {network: {link: {bandwidth: 400 Gbit/s}}}\n",
        "chip.yaml": "tpsim: chip/1\nname: slower\nextends: h100\nchip: {memory: {bandwidth: 3 TB/s}}\n",
    }
    for name, text in texts.items():
        Path(name).write_text(text)
    asked = ("--model", "gpt-tiny", "--hw", "./cluster.yaml", "--dp", "16", "--seq", "16", "--batch", "16")
    assert tpsim("plan", *asked, "-o", "old.json", "--save", "asked.yaml").code == 0
    assert tpsim("diff", "old.json", "asked.yaml", "-q").out == "nothing moved\n"
    Path(file).write_text(
        texts[file].replace("300 GB/s", "200 GB/s").replace("400 Gb", "200 Gb").replace("3 TB", "2 TB")
    )
    moved = json.loads(tpsim("diff", "old.json", "asked.yaml", "-f", "json").out)["result"]
    assert [(one["kind"], one["name"]) for one in moved["causes"]] == [("constant", f"ours.file {file}")]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = json.loads(tpsim("diff", "../old.json", "../asked.yaml", "-f", "json").out)["result"]
    assert again["causes"] == moved["causes"]


@pytest.mark.parametrize(
    ("args", "slug"),
    [
        ((BASE,), "missing-side"),
        ((BASE, "tpsim.lock"), "sides-differ"),
        (("plan.json", BASE), "not-a-result"),
        (("broken.json", BASE), "damaged-result"),
        (("gone.json", BASE), "no-such-file"),
        ((BASE, "plan.json", *ZERO3), "nothing-to-set"),
        ((BASE, *ZERO3, "--min-change", "much"), "bad-number"),
        ((BASE, *ZERO3, "--min-change", "1 GB"), "bad-unit"),
        ((BASE, "llama3-70b-h10"), "unknown-scenario"),
    ],
)
def test_sides_that_cannot_be_compared_are_refused(tpsim, tmp_path, monkeypatch, args, slug):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.json").write_text('{"schema": "tpsim.shard/1"}')
    (tmp_path / "broken.json").write_text('{"schema": "tpsim.plan/1", "result": {}}')
    ran = tpsim("diff", *args)
    assert ran.code == 2, ran.out
    assert f"error[{slug}]" in ran.err


@pytest.mark.parametrize("new", [("--zero", "3"), ("-", "--zero", "3")])
def test_what_stdin_says_stands_for_both_sides(tpsim, monkeypatch, new):
    """It can be read once, and was read twice: the second side was an empty file."""
    text = spec.load(spec.named("scenarios", "qwen2-7b-h100")).text
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    ran = tpsim("diff", "-", *new, "-q")
    assert (ran.code, ran.out) == (0, tpsim("diff", "qwen2-7b-h100", "--zero", "3", "-q").out)
    assert "because scenario layout.zero 1 -> 3\n" in ran.out


def test_a_saved_result_may_come_from_stdin(tpsim, monkeypatch):
    text = tpsim("plan", "qwen2-7b-h100", "-f", "json").out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert tpsim("diff", "-", "qwen2-7b-h100", "-q").out == "nothing moved\n"


def test_two_locks_are_compared_without_their_scenarios_at_hand(tpsim, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, seq in (("old", 2048), ("new", 1024)):
        (tmp_path / "one.yaml").write_text(f"tpsim: scenario/1\nextends: gemma-7b-v5e\nworkload: {{seq: {seq}}}\n")
        assert tpsim("check", "--update", "one.yaml", "--lock", f"{name}.lock", "-q").code == 0
    (tmp_path / "one.yaml").unlink()
    ran = tpsim("diff", "old.lock", "new.lock", "-q", "--exit-code")
    assert ran.code == 1
    assert ran.out.startswith("step ")
    assert ran.out.endswith("; because scenario workload.seq 2,048 -> 1,024 (-50 %)\n")


def test_the_verdict_says_by_how_much_step_and_memory_move_and_why(tpsim):
    out = tpsim("diff", BASE, *ZERO3, "-q").out
    assert out.startswith("step ")
    assert "%), " in out
    assert ", states " in out
    assert out.endswith("; because scenario layout.zero 1 -> 3\n")


OTHER = ("--set", "hardware=dgx-h200")


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        ((*OTHER, *ZERO3), "because scenario hardware dgx-h100 -> dgx-h200, layout.zero 1 -> 3 and 4 more causes"),
        ((*ZERO3, *OTHER), "because scenario layout.zero 1 -> 3, hardware dgx-h100 -> dgx-h200 and 4 more causes"),
        (OTHER, "because scenario hardware dgx-h100 -> dgx-h200 and 4 more causes"),
    ],
)
def test_the_edits_are_named_before_what_another_machine_brings(tpsim, edits, said):
    assert tpsim("diff", BASE, *edits, "-q").out.endswith(f"; {said}\n")
    kinds = [line.split()[0] for line in tpsim("diff", BASE, *edits).out.split("\n\n")[2].splitlines()[2:]]
    edited = len(edits) // 2
    assert [kind for kind in kinds if kind in ("scenario", "constant")] == ["scenario"] * edited + ["constant"] * 4


@pytest.mark.parametrize(
    ("edit", "moved"),
    [
        ("hardware.chip.memory.bandwidth=6.7 TB/s", "hardware.chip.memory.bandwidth 3.35 TB/s -> 6.7 TB/s (+100 %)"),
        ("model.layers=40", "model.layers 80 -> 40 (-50 %)"),
    ],
)
def test_an_edit_of_a_machine_or_a_model_shows_what_their_own_files_have(tpsim, edit, moved):
    assert f"because scenario {moved}" in tpsim("diff", BASE, "--set", edit, "-q").out


def test_of_many_edits_some_are_named_and_all_are_counted(tpsim):
    edits = [f"workload.{one}" for one in ("microbatches=8", "global_batch=1024", "seq=2048", "dtype=fp8")]
    out = tpsim("diff", BASE, *(word for edit in edits for word in ("--set", edit)), "-q").out
    assert (
        "because scenario workload.microbatches 4 -> 8 (+100 %), workload.global_batch 512 -> 1,024 (+100 %), " in out
    )
    assert out.endswith("workload.seq 4,096 -> 2,048 (-50 %) and 1 more cause\n")


def test_in_python_plans_and_scenarios_are_compared_as_what_their_files_hold(tpsim, saved):
    held = [json.loads(Path(path).read_text()) for path in saved]
    scenario = {"extends": BASE, "tpsim": "scenario/1"}
    verdict = json.loads(tpsim("diff", *saved, "-f", "json").out)["result"]["verdict"]
    for sides in (held, [held[0], saved[1]], [plan(BASE), plan(BASE, zero=3)], [scenario, held[1]]):
        assert diff(*sides).verdict.startswith(verdict.split(";")[0])
    assert diff(scenario, zero=3).verdict == diff(BASE, zero=3).verdict
    assert diff(*held).following == ""
    with pytest.raises(InputError, match="this saved plan lacks a part"):
        diff(held[0], {"schema": held[0]["schema"]})
    with pytest.raises(InputError, match="llama3-70b-h100 is a saved result"):
        diff(*held, zero=1)


def test_a_plan_that_an_older_tpsim_saved_is_still_compared(tpsim, saved, tmp_path):
    document = json.loads(Path(saved[0]).read_text())
    document["schema"], document["result"]["memory"]["fits"] = "tpsim.plan/1", True
    older = tmp_path / "older.json"
    older.write_text(json.dumps(document))
    assert tpsim("diff", str(older), saved[0], "-q").out == "nothing moved\n"
    found = json.loads(tpsim("diff", str(older), BASE, "--set", "layout.zero=0", "-f", "json").out)["result"]["changes"]
    assert [(one["old"], one["new"]) for one in found if one["quantity"] == "states_fit"] == [(True, False)]


def test_compute_exposed_and_memory_stand_with_the_scenario(tpsim):
    page = tpsim("diff", BASE, *ZERO3, "-f", "md").out
    assert "exposed" in page
    assert "states held" in page


def test_what_differs_by_rounding_alone_is_not_told(tpsim):
    page = tpsim("diff", BASE, *ZERO3, "-v").out
    assert "e-1" not in page


def test_a_least_change_of_more_than_all_is_said_to_be_a_share(tpsim):
    page = tpsim("diff", BASE, *ZERO3, "--min-change", "5").out
    assert "--min-change 5 is 500 %; 5 % is written 5%" in page
    assert "is written" not in tpsim("diff", BASE, *ZERO3, "--min-change", "5%").out


def test_a_faster_side_is_not_shown_as_a_failure(tpsim):
    failure = "\x1b[1;31m"
    faster = tpsim("diff", BASE, "--set", "workload.seq=2048", "--color", "always").out
    assert failure not in faster
    tight = ("--set", "require={step: < 1 s}")
    assert failure in tpsim("diff", BASE, *tight, "--color", "always").out


NO_NUMBERS = [None, "1.5", True, [], "Infinity", 1e999]
NO_NAMES = [None, 1, [], {}, ""]
DAMAGED = [
    *(
        (keys, value)
        for value in NO_NUMBERS
        for keys in ("step.exposed_s", "memory.gradients_bytes", "collectives.3.count")
    ),
    *((keys, value) for value in NO_NAMES for keys in ("collectives.0.array", "collectives.1.phase")),
    *(("memory.fits", value) for value in ([], {}, "yes")),
]


@pytest.mark.parametrize(("path", "value"), DAMAGED)
def test_a_saved_result_with_something_else_where_a_number_or_a_name_is_due_is_refused_at_its_place(
    tpsim, saved, tmp_path, path, value
):
    document = json.loads(Path(saved[0]).read_text())
    part, keys = document["result"], path.split(".")
    for key in keys[:-1]:
        part = part[int(key) if isinstance(part, list) else key]
    part[keys[-1]] = value
    (tmp_path / "damaged.json").write_text(json.dumps(document, indent=2).replace(": Infinity", ": 1e999"))
    ran = tpsim("diff", saved[0], str(tmp_path / "damaged.json"))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error[damaged-result]: {keys[-1]} of this saved plan is ")
    assert f'"{keys[-1]}": ' in ran.err
    assert ran.err.endswith(" save it again\n")


def test_a_lock_with_something_else_where_a_number_is_due_is_refused_at_its_line(tpsim, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert tpsim("check", "--update", "gpt2-xl-a100-dp", "--lock", "good.lock", "-q").code == 0
    good = (tmp_path / "good.lock").read_text()
    for old, line in (
        (r"(link.bandwidth: \{value: )[0-9.e+]+", "link.bandwidth"),
        (r"( +step_s: \{value: )[^,]+", "results"),
    ):
        (tmp_path / "bad.lock").write_text(re.sub(old, r'\1"much"', good))
        for sides in (("good.lock", "bad.lock"), ("bad.lock", "good.lock")):
            ran = tpsim("diff", *sides)
            assert (ran.code, ran.out) == (2, "")
            assert re.search(rf"error\[bad-value\]: .*{line}.*number", ran.err)
            assert " --> bad.lock:" in ran.err


@pytest.mark.parametrize(
    ("setting", "moved", "cause"),
    [
        ("pipeline.schedule=zb-h1", ("step", "bubble", "kept", "peak"), "pipeline.schedule 1f1b -> zb-h1"),
        ("recompute=selective", ("step", "kept", "peak"), "practice.recompute full -> attention"),
        ("practice.overlap.tensor=none", ("step", "exposed"), "practice.overlap.tensor beside -> none"),
    ],
)
def test_schedule_recompute_and_overlap_are_named_as_what_moved_seconds_and_memory(tpsim, setting, moved, cause):
    said = tpsim("diff", "gpt3-175b-a100-pipeline", "--set", setting, "-q").out
    numbers, because = said.split("; because ")
    assert {word.split()[0] for word in numbers.split(", ")} >= {*moved}
    assert because == f"scenario {cause}\n"
    found = rows(tpsim("diff", "gpt3-175b-a100-pipeline", "--set", setting, "-f", "csv").out)
    for row in (one for one in found if one["quantity"] in {"bubble_s", "kept_bytes", "peak_bytes"}):
        assert row["causes"] == cause.split()[0]
        assert row["quantity"] == "bubble_s" or int(row["new"]) != int(row["old"])


def test_the_memory_of_inference_is_drawn_as_weights_and_what_is_beside_them():
    """Its cache was drawn as working memory, and its weights as states."""
    found = diff("llama3-70b-h100-decode", overrides=["workload.batch=16"])
    memory = next(picture for picture in found.pictures if picture.title == "Memory, side by side")
    assert {tuple(span.sort for span in spans) for spans in memory.lanes.values()} == {("weights", "cache and working")}


DRAFTED = "workload.speculation={tokens: 3, acceptance: 0.8, draft: llama-3-8b}"


@pytest.mark.parametrize("saved", [False, True], ids=["plans", "saved plans"])
def test_what_a_token_takes_is_told_where_one_side_alone_has_drafts(saved):
    """The step that verifies is longer than one of decoding: that was all that was said of a step of decoding."""
    sides = [plan("llama3-70b-h100-decode", overrides=overrides) for overrides in ([], [DRAFTED])]
    ms = [f"{side.serve.tpot_s * 1e3:.4g} ms" for side in sides]
    given = [side.to_json() for side in sides] if saved else sides
    assert f"token {ms[0]} -> {ms[1]} (-33.3 %)" in diff(*given).verdict
    assert f"token {ms[1]} -> {ms[0]} (+50 %)" in diff(*reversed(given)).verdict


@pytest.mark.parametrize("saved", [False, True], ids=["plans", "saved plans"])
def test_what_a_token_takes_is_told_where_one_side_alone_reads_prompts_beside_it(saved):
    sides = [plan("llama3-70b-h100-decode", overrides=some) for some in ([], ["workload.step_tokens=512"])]
    ms = [f"{side.serve.tpot_s * 1e3:.4g} ms" for side in sides]
    given = [side.to_json() for side in sides] if saved else sides
    assert f"token {ms[0]} -> {ms[1]} (+34.4 %)" in diff(*given).verdict
    assert [cause.name for cause in diff(*given).causes] == ["workload.step_tokens"]


@pytest.mark.parametrize(
    ("layout", "causes"), [("{}", [("workload.speculation.layout.tp", "tensor", None)]), ("{tp: tensor}", [])]
)
def test_where_a_draft_lies_is_a_cause(layout, causes):
    """Whole on every chip, it was said to be code of tpsim; where its model lies is where it lies anyway."""
    base, new = ([DRAFTED, *more] for more in ([], [f"workload.speculation.layout={layout}"]))
    plans = [plan("llama3-70b-h100-decode", overrides=overrides) for overrides in (base, new)]
    for sides in (plans, [side.to_json() for side in plans]):
        assert [(cause.name, cause.old, cause.new) for cause in diff(*sides).causes] == causes


@pytest.mark.parametrize(
    ("scenario", "edit", "causes"),
    [
        ("mixtral-8x7b-h100", "practice.rows.dtype=fp8_128", ["practice.rows.dtype"]),
        ("mixtral-8x7b-h100", "practice.rows.dispatch=rank", ["practice.rows.dispatch"]),
        ("llama3-70b-h100-decode", "assume.memory.workspace=60 GB", ["assume.memory.workspace_bytes"]),
        ("llama3-70b-h100-disaggregated", "prefill.mesh.tensor=8", ["prefill.mesh.tensor"]),
        (
            "llama3-70b-h100-disaggregated",
            "prefill.layout.sequence_parallel=false",
            ["prefill.layout.sequence_parallel"],
        ),
    ],
)
def test_what_a_field_brings_with_it_is_no_cause(scenario, edit, causes):
    """Of a group that is stated in part what it has anyway was a cause, too, and mostly the first that was named."""
    base = plan(scenario)
    for sides in ((base, plan(scenario, overrides=[edit])), (plan(scenario, overrides=[edit]), base)):
        for given in (sides, [side.to_json() for side in sides]):
            assert [cause.name for cause in diff(*given).causes] == causes


def test_a_draft_that_comes_or_goes_brings_its_layout():
    sides = [plan("llama3-70b-h100-decode", overrides=overrides) for overrides in ([], [DRAFTED])]
    for given in (sides, sides[::-1]):
        names = [cause.name for cause in diff(*given).causes]
        assert sorted(names) == [f"workload.speculation.{name}" for name in ("acceptance", "draft", "tokens")]


def test_what_kind_of_work_it_is_comes_first_among_the_causes():
    """It stood behind twelve switches of training, in none of the tables."""
    found = diff("llama3-70b-h100", "llama3-70b-h100-decode")
    assert "; because scenario workload.kind train -> serve, " in found.verdict


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ("assume.memory.workspace=60 GB", "overheads 0 B -> 60 GB (new)"),
        ("workload.cache_dtype=fp8", "cache 1.678 GB -> 838.9 MB (-50 %)"),
    ],
)
def test_memory_of_inference_that_moves_is_told(tpsim, edit, said):
    """Overheads moved nothing that was told, though the answer became that nothing fits; a cache only its peak."""
    out = tpsim("diff", "llama3-70b-h100-decode", "--set", edit, "-q").out
    assert said in out.partition("; because ")[0]


def test_bytes_that_are_assumed_have_their_unit_in_a_cause(tpsim):
    out = tpsim("diff", "llama3-70b-h100-decode", "--set", "assume.memory.workspace=60 GB", "-q").out
    assert out.endswith("because scenario assume.memory.workspace_bytes none -> 60 GB (new)\n")


@pytest.mark.parametrize(
    ("scenario", "edit", "causes"),
    [
        ("deepseek-v3-h100", "mtp=null", ["mtp 1 of sparse -> none"]),
        ("gpt-oss-120b-h100-decode", "blocks.local.sinks=false", ["local.attention.sinks true -> false"]),
    ],
)
def test_a_field_of_a_model_that_a_scenario_takes_away_is_a_cause(scenario, edit, causes):
    """Code of tpsim was blamed."""
    found = diff(scenario, overrides=[f"model.{edit}"])
    assert found.verdict.partition("; because scenario ")[2] == ", ".join(f"model.{cause}" for cause in causes)
