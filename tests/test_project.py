"""The project's own laws: the README is true, sizes steer nothing, every verb is documented."""

from __future__ import annotations

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from tests.readme import BLOCK, CLI, ENVIRONMENT, README, executed, pages, reference
from tpsim import VERBS, Verb
from tpsim.answers.plan import plan
from tpsim.guard.lock import read_lock
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


def test_a_scenario_that_does_not_fit_its_chips_says_so_and_why():
    known = read_lock(ROOT / "tpsim.lock")
    over = {
        name
        for name, fact in known.scenarios.items()
        if fact.results["peak_bytes"].value > known.constants[fact.inputs["hardware"]]["chip.memory.capacity"].value
    }
    texts = {name: (ROOT / f"{name}.yaml").read_text(encoding="utf-8") for name in known.scenarios}
    says = {
        name for name, text in texts.items() if re.search("^# (It|Memory) does not (surely )?fit", text, re.MULTILINE)
    }
    assert says == over
    changes = {name: re.findall(r"(\S+=\S+) makes it fit", texts[name]) for name in over}
    assert sum(map(bool, changes.values())) >= len(over) / 2
    assert plan("llama3-70b-h100", overrides=changes["scenarios/llama3-70b-h100"]).memory.fits is not False


FORMULAS = (
    "tpsim/algebra/moves.py",
    "tpsim/machine/algorithms.py",
    "tpsim/cost/collectives.py",
    "tpsim/cost/memory.py",
)
"""Files whose functions take ints, arrays and symbols alike."""

SIZES = {"V", "n", "m", "L", "M", "N", "d", "ranks", "volume", "sizes"}
"""Names that a size goes by there."""


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_a_page_shows_what_its_commands_print(monkeypatch, page):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    text = page.read_text(encoding="utf-8")
    assert executed(text) == text, "run: python tests/readme.py --update"


def test_the_reference_of_the_command_line_has_every_command():
    assert BLOCK.sub("", CLI.read_text(encoding="utf-8")) == BLOCK.sub("", reference()), (
        "run: python tests/readme.py --update"
    )


def test_every_link_between_the_pages_leads_somewhere():
    broken = []
    for page in (README, *sorted((ROOT / "docs").glob("*.md"))):
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(((?!https?:)[^)\s]+)\)", text):
            file, _, anchor = target.partition("#")
            path = page.parent / file if file else page
            titles = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE) if path.is_file() else []
            slugs = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
            if not path.exists() or (anchor and anchor not in slugs):
                broken.append(f"{page.name}: {target}")
    assert broken == []


def test_every_verb_is_in_the_readme():
    assert [verb.name for verb in VERBS if f"tpsim {verb.name}" not in TEXT] == []


def test_the_pages_say_nothing_of_verbs_that_do_not_exist():
    known = {verb.name for verb in VERBS}
    lines = [line for page in pages() for line in page.read_text(encoding="utf-8").splitlines()]
    words = [line.split()[2] for line in lines if line.startswith("$ tpsim ") and not line.split()[2].startswith("-")]
    assert set(words) <= known


def test_the_readme_has_a_short_first_page():
    assert len(TEXT.splitlines()) <= 150


def test_a_verb_is_a_line_a_command_and_a_function_in_its_room():
    for verb in VERBS:
        assert verb.section in get_args(get_type_hints(Verb)["section"])
        homes = [f"cli/{verb.name}.py", f"{verb.room}/{verb.name}.py" if verb.room else f"{verb.name}.py"]
        assert [home for home in homes if not (ROOT / "tpsim" / home).is_file()] == [], verb.name


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


ALLOWED = {("tpsim/cost/step.py", 1e-6), ("tpsim/cost/rollup.py", 1e-9)}
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
    assert "tpsim.machine.unstated" in imported("machine")["tpsim.machine.profile"]  # inside a function
    assert "tpsim.machine.parts" in imported("machine")["tpsim.machine.unstated"]  # for types alone
    backwards = {**imported("machine"), "tpsim.machine.parts": ["tpsim.machine.profile"]}
    with pytest.raises(CycleError):
        TopologicalSorter(backwards).prepare()


def test_nothing_in_the_repository_names_the_machine_that_it_was_made_on():
    here = [path for path in ROOT.rglob("*") if path.suffix in WRITTEN]
    ours = [path for path in here if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)]
    words = ["/" + "work/", "/" + "tmp/dev", "/" + "opt/wheels"]
    assert [path.name for path in ours if any(word in path.read_text(encoding="utf-8") for word in words)] == []
    assert len(ours) > 100
