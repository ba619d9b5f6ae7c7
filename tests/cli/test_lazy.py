"""What is loaded, and when: help loads no library, a table no numerics and nothing that draws."""

from __future__ import annotations

import json
import subprocess
import sys

PROBE = """
import json, sys
from tpsim.cli.main import run
codes = [run(args) for args in {commands}]
print("\\n" + json.dumps([codes, sorted(sys.modules)]))
"""
NUMERIC = {"numpy", "pandas", "sympy", "jinja2", "vl_convert"}
HEAVY = NUMERIC | {"pydantic", "rich"}


def loaded(*commands):
    """The top-level modules of a process of its own after it has run these command lines."""
    probe = PROBE.format(commands=[command.split() for command in commands])
    out = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    codes, modules = json.loads(out.splitlines()[-1])
    assert set(codes) == {0}
    return {module.partition(".")[0] for module in modules}


def test_help_loads_no_library():
    assert loaded("--help", "--version", "plan --help", "hw --help") & HEAVY == set()


TABLES = (
    "plan llama3-70b-h100",
    "collective all-gather --hw dgx-h100 --ranks 8",
    "check scenarios/gemma-7b-v5e.yaml",
    "diff llama3-70b-h100 --set layout.zero=3",
    "hw list",
    "model list",
    "explain tpu-v5e.levels.ici.link.bandwidth",
)


def test_a_table_loads_no_numerics_and_nothing_that_draws():
    assert loaded(*TABLES) & NUMERIC == set()


def test_the_probe_would_notice():
    drawn = loaded(f"{TABLES[0]} -v --color always", f"{TABLES[1]} -f html")
    assert {"sympy", "pydantic", "rich", "jinja2", "vl_convert"} <= drawn


def test_a_table_off_a_terminal_needs_no_rich():
    assert "rich" not in loaded(TABLES[0])


def test_csv_and_json_need_neither_pandas_nor_rich():
    assert loaded(f"{TABLES[0]} -f csv") & {"pandas", "rich"} == set()
