"""What an answer suggests next can be typed as it stands, and asks of the same scenario."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tpsim.cli.main import run

LOGS = Path(__file__).parents[1] / "data" / "logs"

FLAGS = ("plan", "--model", "llama-3-8b", "--hw", "dgx-h100", "--dp", "8", "--seq", "1024")
ASKED = (
    ("plan", "llama3-70b-h100"),
    ("plan", "llama3-70b-h100", "--set", "layout.zero=3"),
    ("plan", "my scenario.yaml"),
    ("diff", "llama3-70b-h100", "--set", "layout.zero=3"),
    ("diff", "llama3-70b-h100", "my scenario.yaml"),
    ("check", "--update", "my scenario.yaml"),
    FLAGS,
    ("shard", "A[I_X,J] . B[J,K] -> C[I,K]"),
    ("shard", "A[I_X,J] -> A[I,J_X]", "--hw", "tpu-v5e"),
    ("shard", "A[I_X,J] -> A[I,J_X]", "--hw", "tpu-v5e", "--dims", "I=64,J=64", "--dtype", "f32"),
    ("shard", "A[I_X,J]"),
    ("shard", "A[I_X,J]", "--dims", "I=64,J=64"),
    ("collective", "all-to-all", "--hw", "dgx-h100", "--ranks", "8"),
    *(("explain", name) for name in ("all-gather", "permute", "slice", "dgx-h100")),
    ("explain", "step.time_s", "my scenario.yaml"),
    ("hw", "list"),
    ("scenario", "list"),
    ("model", "list"),
    ("schema",),
)


def following(out):
    """The words of the suggested command, after ``tpsim``."""
    last = out.splitlines()[-1]
    assert last.startswith("next: tpsim ")
    return shlex.split(last.removeprefix("next: "))[1:]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A scenario of one's own."""
    file = tmp_path_factory.mktemp("mine") / "my scenario.yaml"
    assert run([*FLAGS, "--save", str(file), "-q"]) == 0
    return file.read_text(encoding="utf-8")


@pytest.mark.parametrize("args", ASKED, ids=" ".join)
def test_the_next_command_answers(tpsim, args, tmp_path, monkeypatch, saved):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my scenario.yaml").write_text(saved, encoding="utf-8")
    first = tpsim(*args)
    assert first.code == 0, first.err
    then = tpsim(*following(first.out))
    assert then.code == 0, then.err


def test_after_a_fit_the_log_is_laid_beside_the_machine_that_was_written(tpsim, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my log.txt").write_text((LOGS / "all-gather-4-mpi-2.11.txt").read_text(encoding="utf-8"))
    fitted = tpsim("hw", "fit", "my log.txt", "--base", "dgx-h100", "--level", "nvlink", "-o", "mine.yaml")
    assert following(fitted.out)[:4] == ["collective", "all-gather", "--hw", "mine.yaml"]
    beside = tpsim(*following(fitted.out))
    assert beside.code == 0, beside.err
    assert following(beside.out) == ["explain", "all_gather", "--hw", "mine.yaml", "--ranks", "4", "--level", "nvlink"]
    assert tpsim(*following(beside.out)).code == 0


def test_after_a_log_beside_a_machine_that_was_not_fitted_the_log_is_fitted(tpsim, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my log.txt").write_text((LOGS / "all-gather-4-mpi-2.11.txt").read_text(encoding="utf-8"))
    asked = ("collective", "all-gather", "--hw", "dgx-h100", "--ranks", "4", "--level", "nvlink")
    beside = tpsim(*asked, "--measured", "my log.txt")
    assert following(beside.out) == ["hw", "fit", "my log.txt", "--base", "dgx-h100", "--level", "nvlink"]
    assert tpsim(*following(beside.out)).code == 0


def test_the_next_command_keeps_what_set_changed(tpsim):
    ran = tpsim("plan", "llama3-70b-h100", "--set", "layout.zero=3")
    assert following(ran.out)[2:] == ["llama3-70b-h100", "--set", "layout.zero=3"]


def test_the_next_command_keeps_the_machine_and_the_dtype(tpsim):
    ran = tpsim("shard", "A[I_X,J] -> A[I,J]", "--hw", "tpu-v5e", "--dtype", "f32")
    assert ran.out.splitlines()[-1].endswith("--mesh X=4,Y=2 --dtype f32 --dims I=8192,J=8192 --hw tpu-v5e")


def test_the_next_command_of_an_expression_keeps_cost_model_and_placement_and_ends_in_a_run(tpsim):
    asked = ("A[I,J] . B[J_X,K] -> C[I,K]", "--mesh", "X=4,Y=4", "--dims", "I=64,J=4096,K=4096", "--hw", "tpu-v5p")
    chosen = ("--placement", "X=ici.1,Y=ici.0", "--cost-model", "book")
    first = following(tpsim("shard", *asked, *chosen).out)
    assert first == ["shard", *asked, *chosen, "--planner", "book"]
    second = following(tpsim(*first).out)
    assert second == ["verify", *asked[:3], *asked[5:], *chosen[:2]]
    assert tpsim(*second).code == 0


def test_no_run_is_suggested_of_more_devices_than_are_simulated(tpsim):
    ran = tpsim("shard", "A[I_X] -> A[I]", "--mesh", "X=128", "--dims", "I=1024", "--hw", "dgx-h100")
    assert following(ran.out)[0] == "shard"


def test_where_nothing_makes_a_plan_fit_another_layout_is_looked_for(tpsim):
    asked = ("--model", "llama-3-8b", "--hw", "dgx-h100", "--dp", "8", "--sp", "--microbatches", "1", "--seq", "65536")
    ran = tpsim("plan", *asked, "--set", "layout.zero=0", "--set", "workload.dtype=bf16")
    assert "DOES NOT FIT" in ran.out
    same = ["--model", "llama-3-8b", "--hw", "dgx-h100", "--seq", "65536", "--set", "workload.dtype=bf16"]
    assert following(ran.out) == ["search", *same, "--chips", "8", "--batch", "8"]
    assert tpsim(*following(ran.out), "--recompute", "full", "--zero", "3", "--pp", "1").code == 0


def test_where_a_plan_of_inference_does_not_fit_another_layout_is_looked_for(tpsim):
    asked = ("--model", "llama-3-70b", "--hw", "dgx-h100", "--seq", "4096", "--set", "workload.kind=decode")
    ran = tpsim("plan", *asked, "--dp", "8", "--batch", "8", "--set", "layout.cache=batch")
    assert "DOES NOT FIT" in ran.out
    same = ["--model", "llama-3-70b", "--hw", "dgx-h100", "--batch", "8", "--seq", "4096"]
    assert following(ran.out) == ["search", *same, "--set", "workload.kind=decode", "--chips", "8"]
    assert tpsim(*following(ran.out)).code == 0
