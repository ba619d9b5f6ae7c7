"""docs/house.md is true: its files and functions are there, and both walks go through them in its order."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from tpsim.answers.plan import plan
from tpsim.cli.main import run

ROOT = Path(__file__).parents[1]
PAGE = "docs/house.md"
_, QUESTION, CHECK, TOUCH = (ROOT / PAGE).read_text(encoding="utf-8").split("\n## ")
HOP = re.compile(r"^\| `(tpsim/\S+\.py)` \| `([\w.]+)` \| \S", re.MULTILINE)
WALKS = {"plan": HOP.findall(QUESTION), "check": HOP.findall(CHECK)}


def defined(file):
    """The functions and methods of a file, by their qualified names."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef))


def wrong(file, name):
    """What a row should say instead; nothing where it is right."""
    path = ROOT / file
    if path.is_file() and name in defined(path):
        return ""
    tail = name.rpartition(".")[2]
    every = [(one, known) for one in sorted((ROOT / "tpsim").rglob("*.py")) for known in defined(one)]
    now = [
        f"`{one.relative_to(ROOT)}` | `{known}`"
        for one, known in every
        if known == name or known.rpartition(".")[2] == tail
    ]
    return f"{PAGE}: `{file}` has no `{name}`; now: {', '.join(now) or 'nothing of that name'}"


@pytest.mark.parametrize("walk", WALKS)
def test_the_functions_of_a_walk_are_where_the_page_says(walk):
    assert len(WALKS[walk]) >= 15
    moved = [said for hop in WALKS[walk] if (said := wrong(*hop))]
    assert not moved, "\n".join(moved)


def test_a_function_that_moved_is_named_with_its_new_home():
    said = wrong("tpsim/cost/prices.py", "price")
    assert said.startswith(f"{PAGE}: `tpsim/cost/prices.py` has no `price`; now: ")
    assert "`tpsim/cost/rollup.py` | `price`" in said
    assert wrong("tpsim/cost/rollup.py", "no_such_thing").endswith("now: nothing of that name")


FILE = re.compile(r"`((?:tpsim|tests|schema|benchmarks|docs)/[\w./]*\w)")
NAME_IN_FILE = re.compile(r"`(\w+)` in `(tpsim/\S+\.py)`")
OTHER_FILES = re.compile(r"`(tpsim/\S+)/\w+\.py` \(or ((?:`\w+`(?:, )?)+)\)")


def gone(text):
    """What a page names that is not there: files, names in files, and other files of the same folder."""
    files = [name for name in FILE.findall(text) if "NAME" not in name]
    files += [
        f"{folder}/{name}.py" for folder, names in OTHER_FILES.findall(text) for name in re.findall(r"\w+", names)
    ]
    yield from (name for name in files if not (ROOT / name).exists())
    for name, file in NAME_IN_FILE.findall(text):
        if (ROOT / file).exists():
            nodes = ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
            if not any(name in (getattr(node, "id", ""), getattr(node, "name", "")) for node in nodes):
                yield f"{name} in {file}"


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))])
def test_files_and_names_that_a_page_names_are_there(page):
    assert list(gone((ROOT / page).read_text(encoding="utf-8"))) == [], f"{page} names what is gone"


def test_a_name_that_is_gone_is_seen():
    assert len(NAME_IN_FILE.findall(TOUCH)) >= 5
    assert len(OTHER_FILES.findall(TOUCH)) >= 2
    assert list(gone("`tpsim/cost/prices.py`")) == ["tpsim/cost/prices.py"]
    assert list(gone("`tpsim/machine/forms.py` (or `no_forms`, `torus_forms`)")) == ["tpsim/machine/no_forms.py"]
    assert list(gone("`VERBEN` in `tpsim/__init__.py`")) == ["VERBEN in tpsim/__init__.py"]


def called(*words):
    """The functions that a command line calls, in order: (file, qualified name) each."""
    known, stream, inside = {}, [], str(ROOT / "tpsim")

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(inside):
            if code not in known:
                known[code] = (Path(code.co_filename).relative_to(ROOT).as_posix(), code.co_qualname)
            stream.append(known[code])

    sys.setprofile(note)
    try:
        assert run(words) == 0
    finally:
        sys.setprofile(None)
    return stream


@pytest.mark.usefixtures("anew")
@pytest.mark.parametrize(("walk", "asked"), [("plan", "llama3-70b-h100"), ("check", "scenarios/llama3-70b-h100.yaml")])
def test_a_walk_calls_its_functions_in_the_order_of_the_page(walk, asked, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    stream = called(walk, asked)
    assert capsys.readouterr().out
    left = iter(stream)
    late = next((hop for hop in WALKS[walk] if hop not in left), None)
    assert late is None, f"{PAGE}: {late} is {'not called behind the row above' if late in stream else 'never called'}"


def test_the_bytes_of_the_all_gather_are_those_of_the_plan():
    row = next(row for row in plan("llama3-70b-h100").rows if row.array == "attention.in")
    assert (row.collective, row.axis, row.algorithm) == ("all_gather", "tensor", "ring")
    for figure in (f"{row.logical_bytes:,} bytes", f"{row.wire_bytes_per_device:,} of them", f"{row.count} calls"):
        assert figure in QUESTION
    assert f"{row.time_s * 1e6:.1f} us" in QUESTION
