"""Exit codes: 0 answered, 1 the answer is no, 2 the request is wrong, 3 a bug, 130 interrupted."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tpsim.answers.plan as plan_module
from tpsim.__main__ import main as entry


def broken(*_):
    raise IndexError("list index out of range")


def test_an_answer_is_code_0(tpsim):
    assert tpsim("plan", "llama3-70b-h100", "-q").code == 0


def test_a_violated_requirement_is_code_1_with_the_whole_answer(tpsim):
    ran = tpsim("plan", "llama3-70b-h100", "--set", "require.step=< 1 s")
    assert ran.code == 1
    assert "require step < 1 s is violated" in ran.out
    assert ran.err == ""


def test_help_is_code_0(tpsim):
    assert tpsim("--help").code == 0
    assert tpsim("plan", "-h").code == 0


def test_the_version_is_printed(tpsim):
    assert tpsim("--version").out.startswith("tpsim 0.")


def test_a_bug_is_code_3_and_says_so_in_two_lines(tpsim, monkeypatch):
    monkeypatch.setattr(plan_module, "priced", broken)
    ran = tpsim("plan", "llama3-70b-h100")
    assert ran.code == 3
    assert ran.out == ""
    assert ran.err == (
        "error[bug]: IndexError: list index out of range\n"
        "  = this is a mistake in tpsim, not in your request; --traceback shows where\n"
    )


def test_a_bug_shows_its_traceback_when_asked(tpsim, monkeypatch):
    monkeypatch.setattr(plan_module, "priced", broken)
    ran = tpsim("plan", "llama3-70b-h100", "--traceback")
    assert ran.code == 3
    assert "Traceback (most recent call last)" in ran.err


def test_an_interrupt_that_a_library_wraps_is_one(tpsim, monkeypatch):
    """A bug of tpsim, it was said, where pydantic was building what reads a file."""

    def interrupted(*_):
        raise ValueError('Error building "literal" validator:\n  KeyboardInterrupt: ')

    monkeypatch.setattr(plan_module, "priced", interrupted)
    ran = tpsim("plan", "llama3-70b-h100")
    assert (ran.code, ran.out, ran.err) == (130, "", "")


def test_an_interrupt_is_code_130(tpsim, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(plan_module, "priced", interrupted)
    assert tpsim("plan", "llama3-70b-h100").code == 130


def test_an_interrupt_while_the_command_line_loads_is_code_130_and_says_nothing(tmp_path):
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt", encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    command = [sys.executable, "-m", "tpsim", "--help"]
    ran = subprocess.run(command, capture_output=True, check=False, env=os.environ | {"PYTHONPATH": path})
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, b"", b"")


def test_the_installed_command_is_the_one_that_ends_quietly():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"] == {"tpsim": f"{entry.__module__}:{entry.__name__}"}


@pytest.mark.parametrize("args", [("hw", "list", "-f", "json"), ("plan", "--help")], ids=" ".join)
def test_a_reader_that_leaves_early_is_no_error(args):
    writer = subprocess.Popen([sys.executable, "-m", "tpsim", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    writer.stdout.close()
    assert writer.stderr.read() == b""
    writer.stderr.close()
    assert writer.wait() == 0


def in_a_shell(words, args, **environment):
    """tpsim run by a shell that has done with its files what `words` say."""
    command = ["sh", "-c", f'exec "$@" {words}', "sh", sys.executable, "-m", "tpsim", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


FULL = "error[cannot-write]: stdout: No space left on device\n  = send it elsewhere\n"
CLOSED = "error[cannot-write]: stdout is closed\n  = send it to a file, or to /dev/null\n"
WAYS = [("plan", "gpt2-xl-a100-dp"), ("plan", "gpt2-xl-a100-dp", "-q"), ("hw", "list", "-f", "json"), ("plan", "-h")]


@pytest.mark.parametrize(("words", "err"), [("> /dev/full", FULL), (">&-", CLOSED)])
def test_a_stdout_that_is_full_or_closed_is_code_2_with_the_reason(words, err):
    ran = in_a_shell(words, WAYS[0])
    assert (ran.returncode, ran.stderr) == (2, err)


@pytest.mark.parametrize("args", WAYS, ids=" ".join)
def test_whatever_is_written_to_a_stdout_that_is_full_or_closed_is_code_2(tpsim, monkeypatch, args):
    with monkeypatch.context() as patch, Path("/dev/full").open("w", encoding="utf-8") as full:
        patch.setattr(sys, "stdout", full)
        ran = tpsim(*args)
        assert (ran.code, ran.err) == (2, FULL)
        patch.setattr(sys, "stdout", None)
        ran = tpsim(*args)
        assert (ran.code, ran.err) == (2, CLOSED)


def test_a_stdout_that_lacks_a_letter_is_code_2_with_the_reason():
    ran = in_a_shell("", ("shard", "A[I_X,J]"), PYTHONIOENCODING="ascii")
    assert (ran.returncode, ran.stderr) == (0, "")
    ran = in_a_shell("", ("plan", "gpt2-xl-a100-dp", "--set", "name=é"), PYTHONIOENCODING="ascii")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "error[cannot-write]: stdout is ascii, which has no 'é'\n  = set PYTHONIOENCODING=utf-8\n"


@pytest.mark.parametrize("words", ["2> /dev/full", "2>&-"])
def test_a_stderr_that_nobody_reads_changes_no_exit_code(words, tmp_path):
    file = str(tmp_path / "plan.md")
    answered = in_a_shell(words, ("plan", "gpt2-xl-a100-dp", "-o", file))
    assert answered.returncode == 0
    assert answered.stdout
    assert in_a_shell(words, ("plan", "gpt2-xl-a100-d")).returncode == 2


@pytest.mark.parametrize("args", [("plan", "-"), ("hw", "fit", "-", "--base", "dgx-h100")], ids=" ".join)
def test_a_closed_stdin_is_code_2_with_the_reason(args):
    ran = in_a_shell("<&-", args)
    assert (ran.returncode, ran.stderr) == (
        2,
        "error[unreadable-file]: standard input is closed\n  = give a file instead of -\n",
    )


@pytest.mark.parametrize("args", [("check",), ("plan", "gpt2-xl-a100-dp", "-o", "x.json")], ids=" ".join)
def test_a_current_folder_that_is_gone_is_code_2_with_the_reason(tpsim, tmp_path, monkeypatch, args):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    ran = tpsim(*args)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "error[no-such-file]: the current folder is gone\n  = go to one that is there\n"


def test_too_little_memory_is_code_2_with_the_reason(tpsim, monkeypatch):
    def hungry(*_):
        raise MemoryError

    monkeypatch.setattr(plan_module, "priced", hungry)
    ran = tpsim("plan", "llama3-70b-h100")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "error[too-large]: there is not enough memory for this\n  = ask for something smaller\n"
