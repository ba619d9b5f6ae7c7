"""`tpsim scenario`: the scenarios of the library."""

from __future__ import annotations

from io import StringIO

from tpsim.answers.plan import plan
from tpsim.answers.scenario import scenario_list
from tpsim.cli.main import run
from tpsim.pages.scenario import list_page
from tpsim.quantity import spec
from tpsim.report import terminal


def test_the_list_shows_every_scenario_with_what_it_asks_about(capsys):
    assert run(["scenario", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:-3]] == spec.names("scenarios")
    assert lines[1].split() == ["deepseek-v3-h100", "deepseek-v3", "dgx-h100", "1,024", "train"]
    assert lines[-2:] == [
        f"{len(lines) - 4} scenarios; your own: a .yaml file, or flags alone: --model, --hw and --seq",
        "next: tpsim plan qwen2-7b-h100",
    ]


def test_verbosely_a_scenario_shows_its_mesh(capsys):
    assert run(["scenario", "list", "-v"]) == 0
    rows = [line.split(maxsplit=5) for line in capsys.readouterr().out.splitlines()]
    assert ["gpt-neox-20b-a100", "gpt-neox-20b", "dgx-a100", "96", "train", "data 48 x tensor 2"] in rows


def test_the_list_says_what_plans_say():
    rows = {row["scenario"]: row for row in scenario_list().scenarios}
    for name in ("gpt3-175b-a100-recompute", "llama3-70b-v5e-decode"):
        told = plan(name).to_json()["resolved"]
        row = rows[name]
        assert (row["hardware"], row["kind"], row["chips"]) == (
            told["hardware"],
            told["workload"]["kind"],
            told["chips"],
        )


def test_a_scenario_of_ones_own_is_listed_among_them(tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text("tpsim: scenario/1\nextends: qwen2-7b-h100\nlayout: {zero: 3}\n", "utf-8")
    monkeypatch.setenv("TPSIM_PATH", str(tmp_path))
    assert ("mine", 64) in [(row["scenario"], row["chips"]) for row in scenario_list().scenarios]


def test_a_scenario_of_ones_own_that_cannot_be_asked_is_refused_by_what_it_is(tmp_path, monkeypatch, capsys):
    """It was shown as a file of hardware/, for the folder could be one of machines."""
    (tmp_path / "mine.yaml").write_text("tpsim: scenario/1\nextends: qwen2-7b-h100\nlayout: {zero: 9}\n", "utf-8")
    monkeypatch.setenv("TPSIM_PATH", str(tmp_path))
    assert run(["scenario", "list"]) == 2
    assert capsys.readouterr().err.splitlines()[:2] == [
        "error[bad-value]: layout.zero is 9",
        " --> scenarios/mine.yaml:3:16",
    ]


def test_the_list_fits_in_80_columns():
    stream = StringIO()
    terminal.write(list_page(scenario_list(), verbose=False), stream, "never", 80)
    assert max(map(len, stream.getvalue().splitlines())) <= 80


def test_a_name_that_is_none_is_answered_with_the_list(capsys):
    """33 names stood there in one breath."""
    assert run(["plan", "nope"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        'error[unknown-scenario]: "nope" is not a scenario',
        "  = a file is named with its folder: ./my-file.yaml",
        f"  = {len(spec.names('scenarios'))} are known: tpsim scenario list",
    ]
    assert run(["plan"]) == 2
    assert capsys.readouterr().err.splitlines()[1].endswith("or name a scenario (tpsim scenario list)")


def test_scenario_alone_shows_what_it_can_do(capsys):
    assert run(["scenario"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[0] == "list"
