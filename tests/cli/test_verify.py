"""`tpsim verify`: what it prints, its exit codes, and the answers to wrong requests."""

from __future__ import annotations

import json
import shlex
import sys

import pytest

from tpsim.algebra import moves

SMALL = "gpt3-175b-a100-tp8"


def test_a_scenario_is_answered_check_by_check(tpsim):
    ran = tpsim("verify", SMALL)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[:7] == [
        "gpt3-175b-a100-tp8",
        "",
        "run on      4 simulated devices: data 1 x tensor 4",
        "placement   tensor 4 = nvlink 4",
        "dims        b 1, s 4, t 4, h 4, g 8, r 1, d 4, e 4, j 3, f 8, v 8, p 4, kv 2",
        "stands for  data 1 x tensor 8, 96 layers, 1 microbatch",
        "step        2 layers, 1 microbatch, forward, backward and update",
    ]
    verdict, following = ran.out.splitlines()[-2:]
    assert verdict == (
        "gpt3-175b-a100-tp8: all 9 checks hold; 587 arrays as on one device with differences below 1e-12, "
        "14 collective calls as claimed"
    )
    assert following == "next: tpsim plan gpt3-175b-a100-tp8"


def test_two_runs_print_the_same_bytes(tpsim):
    assert tpsim("verify", SMALL).out == tpsim("verify", SMALL).out


def test_a_wrong_claim_is_code_1_with_the_collective_in_the_verdict(tpsim, monkeypatch):
    monkeypatch.setitem(moves.WIRE, "all_reduce", lambda V, n: moves.over(V * (n - 1), n))
    ran = tpsim("verify", SMALL)
    assert (ran.code, ran.err) == (1, "")
    verdict, following = ran.out.splitlines()[-2:]
    assert verdict == (
        "2 of 9 checks fail: collectives, formulas; first: "
        "all_reduce over tensor of embedding.out (forward, embedding): wire planned 24 B, counted 48 B"
    )
    assert following == "next: tpsim verify gpt3-175b-a100-tp8 -v"
    assert tpsim("verify", SMALL, "-q").out == verdict + "\n"


def test_of_several_scenarios_the_failing_checks_are_listed_and_the_first_is_suggested(tpsim, monkeypatch):
    monkeypatch.setitem(moves.WIRE, "reduce_scatter", lambda V, n: moves.over(2 * V * (n - 1), n))
    ran = tpsim("verify", SMALL, "gpt3-175b-a100-tp8-sp")
    assert ran.code == 1
    assert "9 of 9" in ran.out
    assert "7 of 9" in ran.out
    assert "reduce_scatter over tensor of attention.out" in ran.out
    verdict, following = ran.out.splitlines()[-2:]
    assert verdict.startswith(
        "2 of 18 checks fail in 1 of 2 scenarios: collectives, formulas; first: gpt3-175b-a100-tp8-sp, reduce_scatter "
    )
    assert following == "next: tpsim verify gpt3-175b-a100-tp8-sp -v"


def test_every_mismatch_is_listed_when_verbose(tpsim, monkeypatch):
    monkeypatch.setitem(moves.WIRE, "all_reduce", lambda V, n: moves.over(V * (n - 1), n))
    short, long = tpsim("verify", SMALL), tpsim("verify", SMALL, "-v")
    hidden = "all_reduce over tensor of gradient of logits.x"
    assert "and 7 more" in short.out
    assert "more" not in long.out
    assert hidden not in short.out
    assert long.out.count(" yes ") == 7
    assert long.out.count(" wire planned ") == 10 + 1, "each once, and the first in the verdict again"
    assert long.out.splitlines()[-1] == "next: tpsim plan gpt3-175b-a100-tp8 -v"


def test_an_expression_is_verified_and_shard_is_suggested_with_its_sizes(tpsim):
    ran = tpsim("verify", "A[I,J_X] . B[J_X,K] -> C[I,K]", "--mesh", "X=4", "--hw", "tpu-v5p", "--dtype", "int8")
    assert ran.code == 0
    following = ran.out.splitlines()[-1].removeprefix("next: tpsim ")
    assert shlex.split(following) == [
        *("shard", "A[I,J_X] . B[J_X,K] -> C[I,K]", "--mesh", "X=4", "--dims", "I=2,J=8,K=2"),
        *("--dtype", "int8", "--hw", "tpu-v5p"),
    ]
    assert tpsim(*shlex.split(following)).code == 0


def test_json_has_a_check_per_line_and_csv_too(tpsim, tmp_path):
    ran = tpsim("verify", SMALL, "-f", "json", "-o", str(tmp_path / "seen.csv"), "-o", str(tmp_path / "seen.md"))
    checks = json.loads(ran.out)["result"]["checks"]
    assert [check["ok"] for check in checks] == [True] * 9
    rows = (tmp_path / "seen.csv").read_text(encoding="utf-8").splitlines()
    assert rows[0] == "name,check,ok,detail"
    assert len(rows) == 10
    assert "| finite\\_differences | yes |" in (tmp_path / "seen.md").read_text(encoding="utf-8")


def test_set_changes_a_scenario_and_stays_in_the_next_command(tpsim):
    ran = tpsim("verify", SMALL, "--set", "layout.sequence_parallel=true")
    assert ran.code == 0
    assert ran.out.splitlines()[-1] == "next: tpsim plan gpt3-175b-a100-tp8 --set layout.sequence_parallel=true"


@pytest.mark.parametrize("quiet", [False, True])
def test_progress_is_shown_on_a_terminal_only_and_never_when_quiet(tpsim, watch, quiet):
    watched = watch()
    assert tpsim("verify", SMALL, *(["-q"] if quiet else [])).code == 0
    shown = "\r\x1b[K0 of 1 verified, running gpt3-175b-a100-tp8\r\x1b[K"
    assert watched.text == ("" if quiet else shown)


def test_progress_of_an_expression_says_which_way_is_run(tpsim, watch):
    watched = watch()
    assert tpsim("verify", "A[I,J_X] . B[J_X,K] -> C[I,K]", "--mesh", "X=4").code == 0
    assert watched.text.split("\r\x1b[K") == [
        "",
        "0 of 1 verified, running A[I,J_X] . B[J_X,K] -> C[I,K]",
        "0 of 2 verified, running matmul -> all_reduce",
        "1 of 2 verified, running all_gather -> all_gather -> matmul",
        "",
    ]


def test_progress_breaks_into_no_second_line_which_would_stay_on_the_screen(tpsim, watch, monkeypatch):
    watched = watch()
    monkeypatch.setenv("COLUMNS", "40")
    assert tpsim("verify", "A[I,J_X] . B[J_X,K] -> C[I,K]", "--mesh", "X=4").code == 0
    shown = watched.text.split("\r\x1b[K")
    assert shown[3] == "1 of 2 verified, running all_gather ..."
    assert max(map(len, shown)) == 39


def test_a_run_whose_stderr_is_closed_shows_no_progress(tpsim, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    assert tpsim("verify", "A[I_X,J] -> A[I,J]").code == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "error[missing-argument]: tpsim verify needs SCENARIO...|EXPRESSION\n  = for example: "),
        (
            ("gpt3-175b-a100-tp9",),
            'error[unknown-scenario]: "gpt3-175b-a100-tp9" is not a scenario\n  = did you mean "gpt3-175b-a100-tp8"?\n',
        ),
        ((SMALL, "no-such.yaml"), "error[no-such-file]: there is no file no-such.yaml\n"),
        (
            (SMALL, "--mesh", "X=4"),
            "error[unknown-axis]: ",
        ),
        (("A[I_X]", SMALL), "error[bad-usage]: an expression is verified alone\n  = write: tpsim verify "),
        (("A[I_X]", "--set", "layout.zero=3"), "error[bad-usage]: --set belongs to scenarios\n"),
        (
            ("A[I_Z]",),
            "error[unknown-axis]: Z is not an axis of the mesh\n --> command line:1:5\n  |\n1 | A[I_Z]\n  |     ^ ",
        ),
        (
            (SMALL, "--zer", "3"),
            "error[unknown-option]: --zer is not an option of tpsim verify\n  = did you mean --zero?\n",
        ),
        (
            (SMALL, "--set", "layout.tp=7"),
            "error[unknown-axis]: ",
        ),
    ],
)
def test_a_wrong_request_is_code_2_and_says_what_to_do(tpsim, args, said):
    ran = tpsim("verify", *args)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(said)


def test_the_command_after_an_expression_keeps_its_placement_and_is_quoted_as_shard_quotes(tpsim):
    asked = ("A[I_X,J] -> A[I,J]", "--mesh", "X=4", "--hw", "tpu-v5e", "--placement", "X=ici.0")
    following = tpsim("verify", *asked).out.splitlines()[-1]
    assert following == (
        'next: tpsim shard "A[I_X,J] -> A[I,J]" --mesh X=4 --dims I=8,J=2 --hw tpu-v5e --placement X=ici.0'
    )
    assert tpsim(*shlex.split(following)[2:]).code == 0


def test_a_folder_is_verified_scenario_by_scenario_and_other_files_in_it_are_passed_over(tpsim, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in ("one", "two"):
        text = f"tpsim: scenario/1\nextends: {SMALL}\nname: {name}\n"
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    (folder / "machine.yaml").write_text("tpsim: hardware/1\n", encoding="utf-8")
    ran = tpsim("verify", "mine")
    assert (ran.code, ran.err) == (0, "")
    assert "2 scenarios: all 18 checks hold" in ran.out.splitlines()[-2]
    assert ran.out.splitlines()[-1] == "next: tpsim plan mine/one.yaml"
