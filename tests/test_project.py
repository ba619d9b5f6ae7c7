"""What the project promises of itself: what loads, what a formula may say, and that the README knows every verb."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tpsim.cli.verbs import VERBS

ROOT = Path(__file__).parents[1]
HEAVY = {"numpy", "pandas", "sympy", "pydantic", "rich"}
PROBE = """
import json, sys
from tpsim.cli.main import main
sys.argv = ["tpsim", *json.loads(sys.argv[1])]
try:
    main()
except SystemExit:
    pass
print("LOADED", json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def loaded(*arguments):
    """The top-level packages that are loaded once the command line has answered."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(arguments)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(json.loads(done.stdout.rpartition("LOADED ")[2]))


@pytest.mark.parametrize("arguments", [("--help",), ("plan", "--help"), ("--version",)], ids=" ".join)
def test_help_loads_nothing_heavy(arguments):
    assert not loaded(*arguments) & HEAVY


def test_a_plan_as_a_table_loads_neither_numpy_nor_pandas_nor_sympy():
    assert not loaded("plan", "llama3-70b-h100") & {"numpy", "pandas", "sympy"}


def test_the_probe_notices_what_is_loaded():
    assert {"pydantic"} <= loaded("plan", "llama3-70b-h100")
    assert {"sympy"} <= loaded("plan", "llama3-70b-h100", "-f", "json")


FORMULAS = [
    "tpsim/algebra/moves.py",
    "tpsim/machine/algorithms.py",
    "tpsim/machine/additive.py",
    "tpsim/machine/book.py",
    "tpsim/machine/cost.py",
    "tpsim/machine/timing.py",
]
STRUCTURE = {"segment.stride == 1": "how groups interleave is laid down by the placement, a plain int"}


def branches_on_size(source):
    """Comparisons with a number, except of a length: on a symbol ``n == 1`` is silently False, ``n > 1`` no truth."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            numbers = [side for side in sides if isinstance(side, ast.Constant) and isinstance(side.value, int | float)]
            lengths = [side for side in sides if isinstance(side, ast.Call) and ast.unparse(side.func) == "len"]
            switches = all(ast.unparse(side) in {"halves", "1", "2"} for side in sides)
            if numbers and not lengths and not switches:
                yield ast.unparse(node)


@pytest.mark.parametrize("path", FORMULAS)
def test_no_formula_branches_on_a_size(path):
    found = set(branches_on_size((ROOT / path).read_text(encoding="utf-8")))
    assert found <= set(STRUCTURE)


def test_the_lint_notices_a_branch_on_a_size():
    assert list(branches_on_size("V if n == 1 else V * 2")) == ["n == 1"]
    assert list(branches_on_size("V if 2 < traffic.steps else V * 2")) == ["2 < traffic.steps"]
    assert not list(branches_on_size("V if len(axes) == 1 else V * 2"))


def test_the_readme_and_the_changelog_name_every_verb():
    for document in ("README.md", "CHANGELOG.md"):
        text = (ROOT / document).read_text(encoding="utf-8")
        assert [verb.name for verb in VERBS if f"`{verb.name}`" not in text and f"tpsim {verb.name}" not in text] == []
