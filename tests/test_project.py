"""The project's own laws: the README is true, sizes steer nothing, every verb is documented."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.readme import BLOCK, README, executed
from tpsim.cli.verbs import SECTIONS, VERBS
from tpsim.program.dims import DIMS, LOOPS, ROLES

ROOT = Path(__file__).parents[1]
TEXT = README.read_text(encoding="utf-8")


def symbol(one):
    others = "those of others" if getattr(one, "made_of", None) else "its number"
    return f"`{one.symbol}`" if one.symbol else others


def test_the_table_of_symbols_is_that_of_the_program():
    rows = [
        f"| `{name}` | {symbol(one)} | {one.meaning} |" for table in (DIMS, LOOPS, ROLES) for name, one in table.items()
    ]
    page = (ROOT / "docs" / "symbols.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in page if line.startswith("| `")] == rows


FORMULAS = ("tpsim/algebra/moves.py", "tpsim/machine/algorithms.py", "tpsim/cost/rollup.py", "tpsim/cost/memory.py")
"""Files whose functions take ints, arrays and symbols alike."""

SIZES = {"V", "n", "m", "L", "M", "N", "d", "ranks", "volume", "sizes"}
"""Names that a size goes by there."""


@pytest.mark.parametrize("block", BLOCK.findall(TEXT), ids=lambda block: block.splitlines()[0][2:60])
def test_the_readme_shows_what_the_command_prints(block):
    assert executed(block) == block, "run: python tests/readme.py --update"


def test_every_verb_is_in_the_readme():
    assert [verb.name for verb in VERBS if f"tpsim {verb.name}" not in TEXT] == []


def test_the_readme_says_nothing_of_verbs_that_do_not_exist():
    known = {verb.name for verb in VERBS}
    words = [line.split("tpsim ", 1)[1].split()[0] for line in TEXT.splitlines() if line.startswith("$ tpsim ")]
    assert set(words) <= known


def test_the_readme_has_a_short_first_page():
    assert sum(1 for line in BLOCK.sub("", TEXT).splitlines()) <= 170


def test_every_verb_has_its_section_and_its_command():
    assert {verb.section for verb in VERBS} <= set(SECTIONS)
    assert [verb.name for verb in VERBS if not (ROOT / "tpsim" / "cli" / f"{verb.name}.py").is_file()] == []


def test_every_floor_of_the_house_is_on_the_map():
    floors = sorted(path.name for path in (ROOT / "tpsim").iterdir() if (path / "__init__.py").is_file())
    assert [floor for floor in floors if f"`tpsim/{floor}`" not in TEXT] == []


def compared(source):
    """(line, name) of every comparison whose either side is a size: ``n == 1`` is silently False on a symbol."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            steering = all(isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in node.ops)
            names = [side.id for side in sides if isinstance(side, ast.Name) and side.id in SIZES]
            if names and not steering:
                yield node.lineno, names[0]


@pytest.mark.parametrize("file", FORMULAS)
def test_no_formula_compares_sizes(file):
    assert list(compared((ROOT / file).read_text(encoding="utf-8"))) == []


def test_the_lint_would_notice():
    assert list(compared("def f(V, n):\n    return 0 if n == 1 else V\n")) == [(2, "n")]
    assert list(compared("x = 1 < ranks")) == [(1, "ranks")]
    assert list(compared("y = n is None or kind == 'slice'")) == []


PHYSICS = ("tpsim/machine", "tpsim/cost", "tpsim/algebra", "tpsim/fabric")


def large_literals(source):
    """Numbers that look like a physical constant: below a thousandth or above a hundred thousand."""
    for node in ast.walk(ast.parse(source)):
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, float) and value and not 1e-3 <= abs(value) <= 1e5:
            yield node.lineno, value


ALLOWED = {("tpsim/cost/step.py", 1e-12), ("tpsim/cost/step.py", 1e-6)}
"""Numbers without a physical meaning: precisions."""


@pytest.mark.parametrize(
    "file", sorted(str(path.relative_to(ROOT)) for folder in PHYSICS for path in (ROOT / folder).glob("*.py"))
)
def test_no_physical_constant_stands_in_python(file):
    found = large_literals((ROOT / file).read_text(encoding="utf-8"))
    assert [(line, value) for line, value in found if (file, value) not in ALLOWED] == []


WRITTEN = {".py", ".md", ".yaml", ".toml", ".json"}


ACYCLIC = ("machine", "calibrate", "fabric", "cost", "question", "guard", "claims", "reference", "quantity")


def imported(room):
    """Which files of a room each of them imports: anywhere, inside functions and for types alone too."""
    files = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in (ROOT / "tpsim" / room).rglob("*.py")
    }
    found = {}
    for name, path in files.items():
        named = [
            node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)
        ]
        modules = {node.module for node in named} | {
            f"{node.module}.{one.name}" for node in named for one in node.names
        }
        found[name] = sorted(modules & (files.keys() - {name}))
    return found


@pytest.mark.parametrize("room", ACYCLIC)
def test_no_files_of_a_room_import_each_other_in_a_circle(room):
    TopologicalSorter(imported(room)).prepare()


def test_a_circle_of_imports_would_be_noticed():
    assert "tpsim.machine.profile_file" in imported("machine")["tpsim.machine.profile"]  # inside a function
    assert "tpsim.machine.parts" in imported("machine")["tpsim.machine.yardstick"]  # for types alone
    backwards = {**imported("machine"), "tpsim.machine.parts": ["tpsim.machine.profile"]}
    with pytest.raises(CycleError):
        TopologicalSorter(backwards).prepare()


def test_nothing_in_the_repository_names_the_machine_that_it_was_made_on():
    here = [path for path in ROOT.rglob("*") if path.suffix in WRITTEN]
    ours = [path for path in here if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)]
    words = ["/" + "work/", "/" + "tmp/dev", "/" + "opt/wheels"]
    assert [path.name for path in ours if any(word in path.read_text(encoding="utf-8") for word in words)] == []
    assert len(ours) > 100
