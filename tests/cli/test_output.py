"""Where answers go: formats, files, colours, and nothing cut."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys

import pytest

from tpsim.report import terminal

PLAN = ("plan", "llama3-70b-h100")


def test_the_verdict_is_last_before_one_next_command(tpsim):
    lines = tpsim(*PLAN).out.splitlines()
    assert lines[-1].startswith("next: tpsim ")
    assert [line.split()[0] for line in lines[-9:-5]] == ["time", "memory", "band", "change"]


def test_quiet_prints_the_verdict_alone(tpsim):
    ran = tpsim(*PLAN, "-q")
    assert ran.out.splitlines() == tpsim(*PLAN).out.splitlines()[-9:-5]


TIGHT = (
    "plan",
    "--model",
    "llama-3-8b",
    "--hw",
    "tpu-v5e",
    "--tp",
    "4",
    "--dp",
    "16",
    "--seq",
    "4096",
    "--batch",
    "64",
)


@pytest.mark.parametrize("more", [(), ("-q",)])
def test_what_does_not_fit_is_red_where_there_are_colours_and_in_capitals_everywhere(tpsim, more):
    coloured, plain = tpsim(*TIGHT, *more, "--color", "always").out, tpsim(*TIGHT, *more).out
    red = re.findall(r"\x1b\[1;31m(.*)\x1b\[0m", coloured)
    of = "(states 36.14 GB, kept 35.92 GB, working 371.7 MB)"
    assert red[-1] == f"memory  DOES NOT FIT: peak 72.43 GB of 16.91 GB {of}"
    assert f"\n{red[-1]}\n" in plain
    rows = ["optimizer state", "states together", "kept for backward", "peak"]
    assert [line.split("  ")[0] for line in red[:-1]] == ([] if more else [red[-1][8:].partition(" (")[0], *rows])


def test_verbose_adds_formulas_reasons_and_assumptions(tpsim):
    out = tpsim(*PLAN, "-v").out
    assert "2*b*h*s*(t - 1)/(d*t)" in out
    assert "case 3: both operands are split on f" in out
    assert re.search(r"^guess +matrix products reach 0.5 of peak, whatever their shape$", out, re.MULTILINE)
    assert re.search(
        r"^Not modelled\nleft out\nkernels that slow collectives beside them, and each other$", out, re.MULTILINE
    )
    assert "\njitter, stragglers but " in out


def test_every_format_goes_to_files_beside_the_table(tpsim, tmp_path):
    files = [tmp_path / f"plan{suffix}" for suffix in (".json", ".csv", ".md", ".txt")]
    ran = tpsim(*PLAN, *(word for file in files for word in ("-o", str(file))))
    assert ran.code == 0
    assert ran.err == "".join(f"wrote {file}\n" for file in files)
    document = json.loads(files[0].read_text())
    rows = list(csv.DictReader(io.StringIO(files[1].read_text())))
    assert [row["array"] for row in rows] == [row["array"] for row in document["result"]["collectives"]]
    assert files[2].read_text().startswith("### llama3-70b-h100\n\n**time**: ")
    assert files[3].read_text() == ran.out


def test_csv_has_independent_columns_first(tpsim):
    header = tpsim(*PLAN, "-f", "csv").out.splitlines()[0]
    assert header.startswith("phase,layer,block,op,array,collective,axis,ranks,dtype,count,logical_bytes,")


def test_the_same_request_gives_the_same_bytes(tpsim):
    assert tpsim(*PLAN, "-f", "json").out == tpsim(*PLAN, "-f", "json").out


def test_a_file_is_replaced_in_one_step_and_keeps_its_permissions(tpsim, tmp_path):
    file = tmp_path / "plan.json"
    file.write_text("old")
    file.chmod(0o640)
    assert tpsim(*PLAN, "-q", "-o", str(file)).err == ""
    assert json.loads(file.read_text())["schema"] == "tpsim.plan/2"
    assert file.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_a_scenario_comes_from_stdin(tpsim, monkeypatch):
    text = (
        "tpsim: scenario/1\nmodel: gpt-tiny\nhardware: dgx-h100\nmesh: {data: 2}\n"
        "layout: {dp: data}\nworkload: {global_batch: 2, seq: 16}\n"
    )
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert tpsim("plan", "-", "-q").code == 0


def test_a_file_that_was_there_is_said_to_be_replaced(tpsim, tmp_path):
    file, scenario = tmp_path / "plan.txt", tmp_path / "saved.yaml"
    asked = (*PLAN, "-o", str(file), "--save", str(scenario))
    assert tpsim(*asked).err == f"wrote {file}\nwrote {scenario}\n"
    assert tpsim(*asked).err == f"replaced {file}\nreplaced {scenario}\n"
    again = tpsim("plan", str(scenario), "--zero", "3", "--save", str(scenario))
    assert (again.code, again.err) == (0, f"replaced {scenario}\n")
    assert "zero: 3" in scenario.read_text()


@pytest.mark.parametrize(
    "verb", [("schema", "plan"), ("schema",), ("hw", "list"), ("explain",), ("model", "list"), ("scenario", "list")]
)
def test_the_file_of_every_verb_is_replaced(tpsim, tmp_path, verb):
    file = tmp_path / "answer.json"
    assert tpsim(*verb, "-o", str(file)).err == f"wrote {file}\n"
    assert tpsim(*verb, "-o", str(file)).err == f"replaced {file}\n"


def test_nothing_that_an_answer_is_made_of_is_written_over(tpsim, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, saved = tmp_path / "model.yaml", tmp_path / "saved.json"
    model.write_text(MODEL)
    asked = ("plan", "--model", "model.yaml", "--hw", "dgx-h100", "--seq", "8")
    refused = tpsim(*asked, "--save", "./model.yaml")
    assert refused.err == (
        "error[same-file]: model.yaml would be replaced, and the answer is made of it\n  = name another file\n"
    )
    assert tpsim(*PLAN, "-q", "-o", "saved.json").code == 0
    held = saved.read_text()
    refused = tpsim("diff", "saved.json", *PLAN[1:], "-o", "saved.json")
    assert (refused.code, refused.out) == (2, "")
    assert "error[same-file]: saved.json would be replaced" in refused.err
    assert (model.read_text(), saved.read_text()) == (MODEL, held)


MODEL = """\
tpsim: model/1
name: small
source: {title: made for tests}
hidden: 64
layers: 2
heads: 4
ffn: {kind: gelu, hidden: 256}
vocab: 256
norm: layernorm
"""


@pytest.mark.parametrize("option", ["-o", "--save"])
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
        (os.mkfifo, "it is a device or a pipe, and no file"),
        (lambda path: path.mkdir(), "Is a directory"),
    ],
)
def test_a_place_where_no_file_can_stand_is_refused_before_anything_is_printed(tpsim, tmp_path, option, make, reason):
    place = tmp_path / "answer.json"
    make(place)
    ran = tpsim(*PLAN, option, str(place))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error[cannot-write]: {place}: {reason}\n  = ")
    assert list(tmp_path.iterdir()) == [place]


def test_one_file_cannot_be_the_answer_and_the_scenario(tpsim, tmp_path):
    ran = tpsim(*PLAN, "-o", str(tmp_path / "plan.json"), "--save", str(tmp_path / "plan.json"))
    assert (ran.code, ran.out) == (2, "")
    assert "are one file" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_a_trace_is_an_output_of_plan_alone(tpsim, tmp_path):
    assert tpsim(*PLAN, "-q", "-o", str(tmp_path / "step.trace.json")).code == 0
    assert (tmp_path / "step.trace.json").read_text() == tpsim(*PLAN, "-f", "trace").out
    ran = tpsim("verify", PLAN[1], "-o", str(tmp_path / "other.trace.json"))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        f"error[unknown-format]: {tmp_path}/other.trace.json: the suffix says no format\n"
        f"  = suffixes: .txt, .json, .csv, .md, .html\n"
    )


ENDLESS = """\
tpsim: hardware/1
name: endless
extends: dgx-h100
levels: {nvlink: {link: {bandwidth: 1e-310 GB/s}}}
"""


def test_what_json_has_no_number_for_is_refused_with_its_place(tpsim, tmp_path):
    machine = tmp_path / "endless.yaml"
    machine.write_text(ENDLESS)
    asked = ("collective", "all-reduce", "--hw", str(machine), "--ranks", "8", "--level", "nvlink", "--sizes", "1GB")
    shown, refused = tpsim(*asked, "-q"), tpsim(*asked, "-f", "json", "-o", str(tmp_path / "all_reduce.md"))
    assert shown.code == 0
    assert "takes inf s" in shown.out
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.splitlines()[0] == (
        "error[no-number]: result.rows.0.time_s is inf, which JSON has no number for"
    )


@pytest.mark.parametrize("form", ["table", "json", "csv", "md"])
def test_a_step_without_end_is_refused_in_every_format(tpsim, tmp_path, form):
    machine = tmp_path / "endless.yaml"
    machine.write_text(ENDLESS)
    ran = tpsim(*PLAN, "--hw", str(machine), "-f", form)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "error[no-number]: a step takes nan s on endless, which is no number\n"
        f"  = look for a slip in its figures: tpsim hw show {machine}\n"
    )


def test_a_pipe_gets_no_colour_and_nothing_cut_at_any_width():
    out = piped()
    assert "\x1b" not in out
    assert "…" not in out
    assert piped(COLUMNS="10") == out


def piped(**environment):
    env = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, "-m", "tpsim", *PLAN], capture_output=True, text=True, check=True, env=env
    ).stdout


@pytest.mark.parametrize(
    ("args", "environment", "coloured"),
    [
        ((), {}, True),
        ((), {"NO_COLOR": "1"}, False),
        (("--color", "always"), {"NO_COLOR": "1"}, True),
    ],
)
def test_a_terminal_gets_colours_unless_told_otherwise(args, environment, coloured):
    assert ("\x1b[" in on_a_terminal(*args, **environment)) is coloured


def test_a_plan_fits_a_terminal_of_80_columns_without_colours_if_it_is_told_so():
    seen = on_a_terminal("--color", "never", COLUMNS="80")
    assert "\x1b[" not in seen
    lines = seen.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(
        line.split() == ["attention", "all_gather", "tensor", "8", "320", "268.4", "234.9", "241.1", "2.5", "*"]
        for line in lines
    )


WIDE = (
    ("collective", "all-reduce", "--hw", "dgx-h100", "--ranks", "8", "--sizes", "64kB,1GB", "-v"),
    ("shard", "A[I, J_X] . B[J_X, K] -> C[I, K]", "--mesh", "X=4", "--dims", "I=8,J=8,K=8", "--hw", "tpu-v5p", "-v"),
    ("hw", "show", "dgx-h100"),
    ("hw", "validate", "trn2-ultra"),
    ("model", "list"),
    ("plan", "gpt3-175b-a100-tp8", "-v"),
    ("diff", "gpt3-175b-a100-tp8", "--set", "layout.sequence_parallel=true", "-v"),
)


@pytest.mark.parametrize("asked", WIDE, ids=" ".join)
def test_no_page_runs_over_the_edge_of_80_columns_and_none_loses_a_word(tpsim, monkeypatch, asked):
    whole, write = tpsim(*asked).out, terminal.write
    monkeypatch.setattr(terminal, "write", lambda page, stream, color: write(page, stream, color, 80))
    shown = tpsim(*asked).out
    beyond = [line for line in shown.splitlines() if len(line) > 80]
    assert [line for line in beyond if not line.startswith("next: ") and " " in line.strip()] == []
    assert set(whole.split()) <= set(shown.replace(":", "").split()) | set(shown.split())


def on_a_terminal(*args, **environment):
    """What a user with a terminal sees."""
    ours, theirs = pty.openpty()
    env = {**{key: value for key, value in os.environ.items() if key != "NO_COLOR"}, "TERM": "xterm", **environment}
    with subprocess.Popen([sys.executable, "-m", "tpsim", *PLAN, *args], stdout=theirs, env=env) as process:
        os.close(theirs)
        seen = b""
        while chunk := read(ours):
            seen += chunk
        assert process.wait() == 0
    os.close(ours)
    return re.sub("\r\n", "\n", seen.decode())


def read(terminal):
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other end is closed
        return b""
