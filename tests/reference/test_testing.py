"""The generators need hypothesis, say so where it is missing, and are all that needs it."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

import pytest

import tpsim
import tpsim.testing

ROOT = Path(tpsim.__file__).parent


def imported(text):
    """The packages that a file imports, here or inside a function."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def test_without_hypothesis_the_error_names_the_package_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(ModuleNotFoundError, match="not installed: pip install hypothesis") as error:
        importlib.reload(tpsim.testing)
    assert error.value.name == "hypothesis"


def test_only_the_generators_import_hypothesis():
    needing = {path.parent.name for path in ROOT.rglob("*.py") if "hypothesis" in imported(path.read_text("utf-8"))}
    assert needing == {"testing"}


def test_only_the_generators_know_each_other():
    knowing = {
        path.parent.name
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tpsim.testing")
    }
    assert knowing == {"testing"}
