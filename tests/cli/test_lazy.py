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


def modules(*commands):
    """The modules of a process of its own after it has run these command lines."""
    probe = PROBE.format(commands=[command.split() for command in commands])
    out = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    codes, names = json.loads(out.splitlines()[-1])
    assert set(codes) == {0}
    return set(names)


def loaded(*commands):
    """Their top-level packages."""
    return {module.partition(".")[0] for module in modules(*commands)}


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


ELSEWHERE = ("answers.cheapest", "answers.search", "answers.trace", "algebra.search", "layouts", "claims", "guard")
ELSEWHERE += ("machine.book", "machine.curve", "machine.unstated", "fabric.change", "calibrate")
ELSEWHERE += ("cost.formula", "cost.launched", "cost.steady", "program.serving", "program.huggingface", "reference")
"""Of tpsim what other verbs, machines and schedules need: not a plan of one microbatch after the other."""

MOST = 160
"""Modules of ours that a plan may load."""


def test_a_plan_loads_no_rich_off_a_terminal_and_of_tpsim_what_it_runs():
    there = modules(TABLES[0])
    ours = {name.removeprefix("tpsim.") for name in there if name.partition(".")[0] == "tpsim"}
    assert "rich" not in there
    assert ours.isdisjoint(ELSEWHERE)
    assert len(ours) <= MOST


def test_csv_and_json_need_neither_pandas_nor_rich():
    assert loaded(f"{TABLES[0]} -f csv") & {"pandas", "rich"} == set()
