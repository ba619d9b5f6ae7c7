"""Runs the command line inside the test process: exit code, stdout, stderr."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tpsim.cli.main import run


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
