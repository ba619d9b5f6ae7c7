"""Runs the command line inside the test process: exit code, stdout, stderr."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from io import StringIO

import pytest

from tpsim.cli.main import run
from tpsim.report import terminal


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def tpsim(capsys, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)

    def command(*args):
        code = run(args)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return command


@pytest.fixture
def printed():
    """The lines of a page on a terminal of 80 columns."""

    def lines(page):
        stream = StringIO()
        terminal.write(page, stream, "never", 80)
        return stream.getvalue().splitlines()

    return lines


class Terminal:
    """A stderr that somebody watches."""

    def __init__(self):
        self.text = ""

    def isatty(self):
        return True

    def write(self, text):
        self.text += text

    def flush(self):
        pass


@pytest.fixture
def watch(monkeypatch):
    """Has stderr watched from now on; between the start of a test and its first line pytest puts its own there."""

    def begin():
        monkeypatch.setattr(sys, "stderr", terminal := Terminal())
        monkeypatch.setenv("TERM", "xterm")
        return terminal

    return begin
