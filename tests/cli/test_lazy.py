"""What is loaded, and when: help loads no library, a table no numerics and nothing that draws."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROBE = """
import json, sys
from tpsim.cli.main import run
for commands in {commands}:
    assert not any([run(args) for args in commands])
    print("\\nloaded", json.dumps(sorted(sys.modules)))
"""
NUMERIC = {"numpy", "pandas", "sympy", "jinja2", "vl_convert"}
HEAVY = NUMERIC | {"pydantic", "rich"}

PLAN, SMALL = "plan llama3-70b-h100", "plan gpt2-xl-a100-dp"
GATHER = "collective all-gather --hw dgx-h100 --ranks 8"
COMMANDS = {
    "help": ("--help", "--version", "plan --help", "hw --help"),
    "a plan": (PLAN,),
    "tables": (
        *(GATHER, "check scenarios/gemma-7b-v5e.yaml", "diff llama3-70b-h100 --set layout.zero=3", "hw list"),
        *("model list", "explain tpu-v5e.levels.ici.link.bandwidth", "schema plan -q"),
    ),
    "csv and json": (f"{SMALL} -f csv", f"{SMALL} -f json"),
    "pictures": (f"{SMALL} -v --color always", f"{GATHER} -f html"),
}
"""Command lines that one process runs one after the other: what one of them loads stays for those behind it."""


@pytest.fixture(scope="module")
def modules():
    """The modules of a process after each group of commands."""
    probe = PROBE.format(commands=[[command.split() for command in group] for group in COMMANDS.values()])
    out = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    told = [json.loads(line.removeprefix("loaded")) for line in out.splitlines() if line.startswith("loaded")]
    return {name: set(there) for name, there in zip(COMMANDS, told, strict=True)}


def packages(there):
    """Their top-level packages."""
    return {module.partition(".")[0] for module in there}


def test_help_loads_no_library(modules):
    assert packages(modules["help"]) & HEAVY == set()


def test_a_table_loads_no_numerics_and_nothing_that_draws_and_off_a_terminal_no_rich(modules):
    assert packages(modules["tables"]) & (NUMERIC | {"rich"}) == set()


def test_the_probe_would_notice(modules):
    assert {"sympy", "pydantic", "rich", "jinja2", "vl_convert"} <= packages(modules["pictures"])


ELSEWHERE = ("answers.cheapest", "answers.search", "answers.course", "algebra.search", "layouts", "claims", "guard")
ELSEWHERE += ("machine.book", "machine.curve", "machine.host", "machine.unstated", "fabric.change", "calibrate")
ELSEWHERE += ("answers.speculation", "question.speculation")
ELSEWHERE += ("cost.formula", "program.serving", "program.huggingface", "reference")
"""Of tpsim what other verbs, machines and schedules need: not a plan of one microbatch after the other."""

MOST = 149
"""Modules of ours that a plan may load, two of them to see whether recompute would make fit what does not."""


def test_a_plan_loads_of_tpsim_what_it_runs(modules):
    ours = {name.removeprefix("tpsim.") for name in modules["a plan"] if name.partition(".")[0] == "tpsim"}
    assert ours.isdisjoint(ELSEWHERE)
    assert len(ours) <= MOST


def test_csv_and_json_need_neither_pandas_nor_rich(modules):
    assert packages(modules["csv and json"]) & {"pandas", "rich"} == set()
