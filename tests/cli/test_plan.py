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
    assert "practice: {base: megatron, overlap: {gradients: beside}, regather: false}\n" in file.read_text()
    assert "zero: 3" in file.read_text()


def test_set_and_flag_say_the_same(tpsim):
    assert (
        tpsim("plan", "llama3-70b-h100", "--zero", "3", "-q").out
        == tpsim("plan", "llama3-70b-h100", "--set", "layout.zero=3", "-q").out
    )


# What a page points out ---------------------------------------------------------------------------------------------

IDLE = "axis tensor 16 is used by no role: its chips repeat the same work; set layout.tp"


def test_an_axis_without_a_role_is_pointed_out(tpsim):
    ran = tpsim("plan", "llama3-8b-v5e", "--set", "mesh={data: 16, tensor: 16}", "-q")
    assert ran.out.splitlines()[0].endswith(f"; {IDLE}")


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_axis_of_a_shipped_scenario_has_a_role(tpsim, name):
    assert "is used by no role" not in tpsim("plan", name, "-q").out


def test_an_axis_of_one_device_needs_no_role(tpsim):
    ran = tpsim("plan", "llama3-8b-v5e", "--set", "mesh={data: 256, tensor: 1}", "-q")
    assert (ran.code, "is used by no role" in ran.out) == (0, False)


@pytest.mark.parametrize(
    ("machine", "own", "stated"),
    [("dgx-b200", 0.55, 0.45), ("dgx-b200", 0.55, 0.55), ("dgx-h100", 0.61, 0.61)],
    ids=["another", "the same", "the same without waves"],
)
def test_a_scenario_that_replaces_the_machine_s_efficiency_says_so(tpsim, tmp_path, machine, own, stated):
    text = (Path(__file__).parents[2] / "hardware" / f"{machine}.yaml").read_text(encoding="utf-8")
    mine = tmp_path / "mine.yaml"
    mine.write_text(text.replace(f"name: {machine}", "name: mine"), encoding="utf-8")
    asked = ("--set", f"hardware={mine}", "--set", f"assume.matmul_efficiency={stated}")
    out = tpsim("plan", "llama3-70b-h100", *asked).out
    assert (f"\nthe scenario's matmul_efficiency {stated:g} replaces mine's {own:g}\n" in out) == (
        stated != own or machine == "dgx-h100"  # with waves of its own
    )


def test_the_table_says_what_is_of_one_call_and_what_of_all(tpsim):
    above, below = tpsim("plan", "llama3-8b-v5e").out.split("\n\n")[2].splitlines()[:2]
    assert above.split() == ["size", "wire", "time", "exposed"]
    assert below.split() == [
        *("for", "collective", "axis", "n", "calls"),
        *("each", "MB", "each", "MB", "all", "ms", "step", "%"),
    ]


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_two_lines_of_a_part_have_the_same_label(name):
    from tpsim.answers.plan import plan
    from tpsim.pages.plan import page

    rows = page(plan(name), verbose=False).tables[0].rows
    labels = [tuple(row[key] for key in ("where", "purpose", "collective", "axis", "ranks", "dtype")) for row in rows]
    assert len(set(labels)) == len(labels)


def test_lines_that_differ_in_size_alone_name_their_arrays(tpsim):
    out = tpsim("plan", "llama3-8b-v5e").out
    for label in ("weights Wq, Wo", "weights Wk, Wv", "gradients W2, Wgate, W1", "loss"):
        assert any(line.startswith(f" {label}  ") for line in out.splitlines()), label


# Memory and number formats -------------------------------------------------------------------------------------------


def test_memory_shows_states_what_is_kept_what_is_at_work_and_the_peak(tpsim):
    table = tpsim("plan", "llama3-70b-h100").out.split("\n\n")[4].splitlines()
    names = [line.strip().split("  ")[0] for line in table[2:]]
    assert names[:5] == ["parameters", "gradients", "optimizer state", "states together", "kept for backward"]
    assert names[-1] == "peak"
    assert all(name.startswith("at work: ") for name in names[5:-1])
    held = result(tpsim("plan", "llama3-70b-h100", "-f", "json"))["memory"]
    assert table[-1].split()[-2:] == [
        f"{held['peak_bytes'] / 1e9:.1f}",
        f"{100 * held['peak_bytes'] / held['capacity_bytes']:.1f}",
    ]


def test_the_peak_stands_with_its_action_and_in_a_pipeline_with_its_rank_and_that_of_every_stage(tpsim):
    assert "\npeak: backward (B, W) of microbatch 0\n" in tpsim("plan", "llama3-70b-h100").out
    out = tpsim("plan", "gpt3-175b-a100-pipeline").out
    assert "\npeak on rank 0: backward (B, W) of microbatch 0 in chunk 0\n" in out
    assert "states    kept   peak\n" in out


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ((), "activations bf16, parameters bf16, gradients f32, optimizer f32; on the wire"),
        (("--dtype", "fp8"), "activations fp8, parameters fp8, gradients f32, optimizer f32; on the wire"),
        ((), "on the wire bf16 (activations, new weights), f32 (loss, gradients)\n"),
        (("--set", "workload.grad_dtype=bf16"), "on the wire bf16 (activations, gradients, new weights), f32 (loss)\n"),
    ],
)
def test_a_plan_says_what_is_stored_and_sent_in_which_number_format(tpsim, asked, said):
    assert said in tpsim("plan", "llama3-70b-h100", *asked).out


def test_what_is_not_stated_is_named_on_the_page(tpsim):
    out = tpsim("plan", "--model", "llama-3-8b", "--hw", "dgx-h100", "--dp", "8", "--seq", "4096", "--batch", "8").out
    assert (
        "7 guesses; not stated: workload.microbatches, workload.dtype, workload.grad_dtype, practice, "
        "collectives.launch; -v lists them\n"
    ) in out


def test_a_demand_on_memory_says_what_it_counts(tpsim):
    out = tpsim("plan", "llama3-70b-h100", "--set", "require={memory: < 60 GB}").out
    assert "\nrequire memory < 60 GB: holds (56.23 GB of states)\n" in out


def test_the_break_even_stands_in_the_report(tpsim):
    said = "compute outlasts exposed communication above 2,050 tokens per chip and step; 8,192 now\n"
    assert said in tpsim("plan", "llama3-70b-h100", "-v").out
    assert "2,050" not in tpsim("plan", "llama3-70b-h100").out
