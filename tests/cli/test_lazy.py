"""What is loaded, and when: help loads no library, a table no numerics and nothing that draws."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROBE = """
import json, sys
from tpsim.cli.main import run
code = run({args})
print("\\n" + json.dumps([code, sorted(sys.modules)]))
"""
NUMERIC = {"numpy", "pandas", "sympy", "jinja2", "vl_convert"}
HEAVY = NUMERIC | {"pydantic", "rich"}


def loaded(*args):
    """The top-level modules after running tpsim with `args` in a process of its own."""
    probe = PROBE.format(args=list(args))
    out = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    code, modules = json.loads(out.splitlines()[-1])
    assert code == 0
    return {module.partition(".")[0] for module in modules}


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["plan", "--help"], ["hw", "--help"]])
def test_help_loads_no_library(args):
    assert loaded(*args) & HEAVY == set()


@pytest.mark.parametrize(
    "args",
    [
        ["plan", "llama3-70b-h100"],
        ["collective", "all-gather", "--hw", "dgx-h100", "--ranks", "8"],
        ["check"],
        ["diff", "llama3-70b-h100", "--set", "layout.zero=3"],
        ["hw", "list"],
        ["model", "list"],
        ["explain", "tpu-v5e.levels.ici.link.bandwidth"],
    ],
    ids=lambda args: args[0],
)
def test_a_table_loads_no_numerics_and_nothing_that_draws(args):
    assert loaded(*args) & NUMERIC == set()


def test_the_probe_would_notice():
    assert {"sympy", "pydantic", "rich"} <= loaded("plan", "llama3-70b-h100", "-v")
    assert {"jinja2", "vl_convert"} <= loaded(
        "collective", "all-gather", "--hw", "dgx-h100", "--ranks", "8", "-f", "html"
    )


def test_csv_and_json_need_neither_pandas_nor_rich():
    assert loaded("plan", "llama3-70b-h100", "-f", "csv") & {"pandas", "rich"} == set()
