"""`tpsim hw fit --runs`: measured steps to a machine that plans them better, by as much as they can tell."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tpsim
from tpsim.answers.hw import hw_validate
from tpsim.calibrate.determine import posterior
from tpsim.calibrate.step_fit import hw_fit_runs
from tpsim.cli.main import run
from tpsim.machine.evidence import evidence
from tpsim.machine.profile import load
from tpsim.quantity.errors import InputError

SMALL = """tpsim: scenario/1
extends: megatron-22b-a100
model: {extends: megatron-22b, layers: 2, hidden: 1024, heads: 16, kv_heads: 16, head_dim: 64, \
ffn: {kind: gelu, hidden: 4096}}
assume: {kernel_launch: 30 us}
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder, with a list of one run in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL, encoding="utf-8")

    def listed(*lines, heads="scenario,seconds,memory"):
        (tmp_path / "runs.csv").write_text("\n".join([heads, *lines]) + "\n", encoding="utf-8")
        return "runs.csv"

    return listed


def figures(result):
    return {row["figure"]: row for row in result.parameters}


def test_a_slow_step_makes_a_machine_that_plans_nearer_to_it(here, tmp_path):
    planned = tpsim.plan("megatron-22b-a100").step.time_s
    result = hw_fit_runs(here(f"megatron-22b-a100,{1.1 * planned}"), base="dgx-a100", name="mine")
    (row,) = result.rows
    assert planned == row.base_s < row.fitted_s < row.measured_s
    (tmp_path / "mine.yaml").write_text(result.to_yaml(), encoding="utf-8")
    assert hw_validate(["mine.yaml"], strict=True).problems == []
    plan = tpsim.plan("megatron-22b-a100", hw="./mine.yaml")
    assert plan.step.time_s == pytest.approx(row.fitted_s, rel=1e-4)
    assert {one.path for one in load("mine.yaml").constants() if one.source == "runs"} == {
        "chip.matmul_efficiency",
        "chip.memory_efficiency",
    }
    assert plan.band.of == "on machines that one of their own runs had moved"


def test_steps_that_take_what_is_planned_move_nothing(here):
    planned = tpsim.plan("megatron-22b-a100").step.time_s
    result = hw_fit_runs(here(*[f"megatron-22b-a100,{planned}"] * 3), base="dgx-a100")
    assert [row["value"] for row in result.parameters] == pytest.approx([row["base"] for row in result.parameters])
    assert result.undetermined == ["memory_efficiency", "attention_efficiency"]


def test_one_noisy_run_moves_a_generation_that_is_known_less_than_one_that_is_not():
    slopes, known = np.array([-0.65, -0.15, 0.0]), evidence().shares
    within, between = np.array(known.between_sets), np.array(known.between_generations)

    def left(covariance):
        moves, _ = posterior(lambda by: np.exp([slopes @ by]), covariance, [1.02], known.noise)
        return float(slopes @ moves) / np.log(1.02)

    assert 0 < left(within) < left(within + between) < 1
    assert left(within) == pytest.approx(1 / (1 + known.noise**2 / (slopes @ within @ slopes)), rel=0.02)


def test_several_runs_move_what_one_of_them_moves_and_are_believed_more(here):
    line = f"megatron-22b-a100,{1.1 * tpsim.plan('megatron-22b-a100').step.time_s}"
    one, three = (hw_fit_runs(here(*[line] * many), base="dgx-a100") for many in (1, 3))
    assert one.rows[0].fitted_s < three.rows[0].fitted_s < three.rows[0].measured_s
    told = [figures(each)["matmul_efficiency"]["deviation"] for each in (three, one)]
    assert told == sorted(told)


def test_how_far_a_figure_may_be_off_is_told_alike_on_the_page_and_in_the_file(here):
    """Relative, of a logarithm whose deviation is 0.4: 49 %; the page said 40, the file 49.1."""
    result = hw_fit_runs(here("megatron-22b-a100,1.1"), base="dgx-a100")
    row = figures(result)["memory_efficiency"]
    assert row["deviation"] == pytest.approx(np.exp(result.shares.after["memory_efficiency"]) - 1)
    assert row["deviation_before"] == pytest.approx(np.exp(result.shares.before["memory_efficiency"]) - 1)
    assert f"memory_efficiency: {{value: {row['value']:.5g}" in result.to_yaml()
    assert f"0.742 in dgx-a100; +-{row['deviation']:.1%}" in result.to_yaml()


def test_a_run_is_told_by_a_fit_to_the_others(here):
    """Each left out in turn, held by a fit to a list without it, which is about its own figures: near, not equal."""
    planned = tpsim.plan("megatron-22b-a100").step.time_s
    lines = [f"megatron-22b-a100,{factor * planned}" for factor in (1.1, 1.2, 0.9)]
    result = hw_fit_runs(here(*lines), base="dgx-a100")
    for at, row in enumerate(result.rows):
        others = hw_fit_runs(here(*lines[:at], *lines[at + 1 :]), base="dgx-a100")
        assert row.left_out_s == pytest.approx(others.rows[0].fitted_s, rel=3e-3)
        assert abs(row.left_out_s - row.measured_s) > abs(row.fitted_s - row.measured_s)
    off = np.mean([abs(row.left_out_s / row.measured_s - 1) for row in result.rows])
    assert result.verdict.endswith(f" after (mean); {off:.1%} where each is left out")
    one = hw_fit_runs(here(lines[0]), base="dgx-a100")
    assert one.rows[0].left_out_s is None
    assert one.verdict.endswith(" after (mean)")


def test_small_kernels_tell_the_hosts_launch_which_the_scenario_is_to_state(here):
    planned = tpsim.plan("small.yaml").step.time_s
    result = hw_fit_runs(here(f"small.yaml,{2 * planned}"), base="dgx-a100")
    launch = figures(result)["kernel_launch"]
    assert launch["value"] > 1.5 * launch["base"] == pytest.approx(45e-6)
    assert any("set assume.kernel_launch=" in text for text in result.remarks)
    assert result.rows[0].fitted_s == pytest.approx(result.rows[0].measured_s, rel=0.1)


def test_measured_memory_is_shown_beside_what_is_planned_and_moves_no_figure(here):
    planned = tpsim.plan("megatron-22b-a100")
    line = f"megatron-22b-a100,{planned.step.time_s},{2 * planned.memory.peak_bytes / 1e9} GB"
    result = hw_fit_runs(here(line), base="dgx-a100")
    assert result.rows[0].measured_bytes == pytest.approx(2 * result.rows[0].peak_bytes)
    assert any("peaks of memory move nothing: planned over measured 0.5 to 0.5" in text for text in result.remarks)


def test_a_step_that_no_share_explains_is_named(here):
    result = hw_fit_runs(here("megatron-22b-a100,3"), base="dgx-a100")
    assert any(text.startswith("runs.csv:2: megatron-22b-a100 is still -") for text in result.remarks)


FSDP = """tpsim: scenario/1
model: llama-3-8b
hardware: dgx-h100
workload: {global_batch: 64, seq: 4096, microbatches: 1}
mesh: {data: 8}
layout: {dp: data, zero: 3}
"""


def test_no_share_of_peak_comes_to_more_than_all_of_it(here, tmp_path):
    """Slow products speak for fast memory, as published runs have the two; what is shown is what is written."""
    (tmp_path / "fsdp.yaml").write_text(FSDP, encoding="utf-8")
    result = hw_fit_runs(here("fsdp.yaml,6", "fsdp.yaml,7"), base="dgx-h100")
    assert max(row["value"] for row in result.parameters) == 1
    (tmp_path / "mine.yaml").write_text(result.to_yaml(), encoding="utf-8")
    assert load("mine.yaml").chip.memory_efficiency.value == 1


WITHOUT = "tpsim plan llama3-70b-h100 --set assume.matmul_efficiency=null --save mine.yaml"
"""What saves a scenario without an efficiency of its own."""


@pytest.mark.parametrize(
    ("heads", "lines", "slug", "told"),
    [
        ("scenario,secnds", ["a,1"], "unknown-column", (10, 'did you mean "seconds"?')),
        ("scenario;seconds", ["a;1"], "unknown-column", (1, "write a first line scenario,seconds,memory")),
        ("scenario\tseconds", ["a\t1"], "unknown-column", (1, "write a first line scenario,seconds,memory")),
        ("scenario", ["a"], "missing-column", (1, "write a first line scenario,seconds,memory")),
        ("scenario,seconds,seconds", ["a,1,1"], "duplicate-column", (18, "drop one of them")),
        ("scenario,seconds", [], "no-runs", (0, "write a first line scenario,seconds,memory and a line for each run")),
        ("scenario,seconds", ["a,1 GB"], "bad-unit", (3, "write 1 s or 1 ms or 1 us")),
        ("scenario,seconds", ["a,0"], "bad-number", (3, None)),
        ("scenario,seconds", ["a,"], "bad-number", (3, None)),
        ("scenario,seconds,memory", ["a,1,64"], "missing-unit", (5, None)),
        ("scenario,seconds", [",1"], "no-scenario", (1, "name one of the library, or a .yaml")),
        (
            "scenario,seconds",
            ["a,1,2"],
            "bad-list",
            (5, "drop what is too much, or put quotes around a cell with a comma"),
        ),
        ("scenario,seconds", ['"a,1'], "bad-list", (1, 'close it: "')),
        ("scenario,seconds", ["none.yaml,1"], "no-such-file", (1, None)),
        ("scenario,seconds", ["llama3-70b-h100-decode,1"], "unusable-run", (1, "give steps of training")),
        (
            "scenario,seconds",
            ["llama3-70b-h100,1"],
            "unusable-run",
            (1, f"leave assume.matmul_efficiency out of it: {WITHOUT}"),
        ),
        (
            "scenario,seconds",
            ["llama3-70b-v4,1"],
            "unusable-run",
            (1, "give --base tpu-v4, or a list of its own to each machine"),
        ),
        (
            "scenario,seconds",
            ["megatron-22b-a100,1.1", "megatron-22b-a100,1.1 ms"],
            "unusable-run",
            (19, "write seconds of one whole step of this scenario, or its unit: 1.2 s, 850 ms"),
        ),
        (
            "scenario,seconds",
            ["megatron-22b-a100,1100"],
            "unusable-run",
            (19, "write 1100 ms; 1100 s if a step took that"),
        ),
        (
            "scenario,seconds",
            ["megatron-22b-a100,1", "small.yaml,1 s"],
            "unusable-run",
            (1, "give a list to each host"),
        ),
    ],
)
def test_what_is_no_list_of_runs_is_refused_at_its_place(here, heads, lines, slug, told):
    with pytest.raises(InputError) as error:
        hw_fit_runs(here(*lines, heads=heads), base="dgx-a100")
    (problem,), (column, remedy) = error.value.problems, told
    assert (problem.slug, problem.place.file, problem.place.column) == (slug, "runs.csv", column)
    assert problem.remedy == remedy if remedy else problem.remedy


def test_the_command_shows_place_caret_and_remedy_and_writes_nothing(here, tmp_path, capsys):
    here("megatron-22b-a100,1.2 m", heads="scenario,seconds")
    assert run(["hw", "fit", "--runs", "runs.csv", "--base", "dgx-a100", "-o", "mine.yaml"]) == 2
    assert capsys.readouterr().err == (
        'error[bad-unit]: "m" is not a unit of time\n'
        " --> runs.csv:2:19\n"
        "  |\n"
        "2 | megatron-22b-a100,1.2 m\n"
        "  |                   ^^^^^ write 1.2 ms\n"
    )
    assert not (tmp_path / "mine.yaml").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["x.log", "--ranks", "8"],
            "of measured steps there are no logs, ranks\n  = fit the logs first, then --runs with that machine as",
        ),
        (None, "neither logs of collectives nor measured steps are given\n  = give logs, or --runs FILE"),
    ],
)
def test_logs_and_runs_do_not_stand_beside_each_other(here, capsys, words, says):
    here("megatron-22b-a100,1.2")
    asked = ["--runs", "runs.csv", *words] if words else []
    assert run(["hw", "fit", *asked, "--base", "dgx-a100"]) == 2
    assert says in capsys.readouterr().err


def test_the_command_after_a_fit_names_a_scenario_beside_the_list_from_here(here, tmp_path, monkeypatch, capsys):
    here("small.yaml,20 ms")
    monkeypatch.chdir(tmp_path.parent)
    asked = ["hw", "fit", "--runs", f"{tmp_path.name}/runs.csv", "--base", "dgx-a100"]
    assert run(asked) == 0
    after = capsys.readouterr().out.splitlines()[-1].removeprefix("next: tpsim ").split()
    assert after == [*asked, "-o", "dgx-a100-measured.yaml"]
    assert run([*asked, "-o", f"{tmp_path.name}/mine.yaml"]) == 0
    after = capsys.readouterr().out.splitlines()[-1].removeprefix("next: tpsim ").split()
    assert after == ["plan", f"{tmp_path.name}/small.yaml", "--hw", f"{tmp_path.name}/mine.yaml"]
    assert run(after) == 0


def test_the_command_writes_the_profile_and_names_the_plan_that_uses_it(here, tmp_path, capsys):
    here("megatron-22b-a100,1.1")
    asked = ["hw", "fit", "--runs", "runs.csv", "--base", "dgx-a100", "-o", "mine.yaml"]
    assert run(asked) == 0
    assert "next: tpsim plan megatron-22b-a100 --hw mine.yaml" in capsys.readouterr().out
    assert run([*asked[:-1], "again.json"]) == 0
    document = json.loads((tmp_path / "again.json").read_text(encoding="utf-8"))
    assert (document["schema"], [row["line"] for row in document["result"]["rows"]]) == ("tpsim.hw-fit-runs/1", [2])
