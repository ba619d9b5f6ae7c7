"""Twelve changes, scripted, and the cause that `tpsim check` names for each; ``--update`` writes them into the docs.

Each is made in a copy of the folder ``tests/data/guarded``: a user's own scenarios, machines and model. What is tpsim's
own code (a formula, a switch) is patched in the process.
"""

from __future__ import annotations

import difflib
import os
import shutil
import sys
from contextlib import AbstractContextManager, chdir, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from unittest.mock import patch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tpsim.algebra.moves import WIRE  # noqa: E402
from tpsim.guard.check import check  # noqa: E402
from tpsim.guard.drift_result import values  # noqa: E402
from tpsim.guard.lock import LOCK_FILE  # noqa: E402
from tpsim.program.frameworks import PRACTICES  # noqa: E402
from tpsim.quantity.size import over  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpsim.guard.check import CheckResult

GUARDED = ROOT / "tests" / "data" / "guarded"
DOCS = ROOT / "docs" / "check.md"
START, END = "<!-- changes -->\n", "<!-- end of changes -->"


@dataclass(frozen=True)
class Change:
    """A change: what it is, and how it is made in a folder for as long as a context lasts."""

    name: str
    what: str
    made: Callable[[Path], AbstractContextManager[object]]


def replaced(file: str, old: str, new: str) -> Callable[[Path], AbstractContextManager[object]]:
    """One text in a file, replaced by another."""

    def make(folder: Path) -> AbstractContextManager[object]:
        path = folder / file
        before = path.read_text(encoding="utf-8")
        if before.count(old) != 1:
            raise AssertionError(f"{file} has {old!r} {before.count(old)} times")
        path.write_text(before.replace(old, new), encoding="utf-8")
        return nullcontext()

    return make


def copied(folder: Path) -> AbstractContextManager[object]:
    """One more scenario."""
    shutil.copy(folder / "scenarios/pod.yaml", folder / "scenarios/second-pod.yaml")
    return nullcontext()


def removed(folder: Path) -> AbstractContextManager[object]:
    """One scenario less."""
    (folder / "scenarios/shards.yaml").unlink()
    return nullcontext()


CHANGES = (
    Change(
        "a formula's factor",
        "an all-gather sends twice as much",
        lambda _: patch.dict(WIRE, all_gather=lambda V, n: over(2 * V * (n - 1), n)),
    ),
    Change(
        "an equal rewriting of a formula",
        "an all-gather sends V - V/n",
        lambda _: patch.dict(WIRE, all_gather=lambda V, n: V - over(V, n)),
    ),
    Change(
        "a bandwidth",
        "a link of the pod: 45 GB/s becomes 40 GB/s",
        replaced("hardware/pod.yaml", "value: 45 GB/s", "value: 40 GB/s"),
    ),
    Change(
        "a source only",
        "the source of the pod's figures has another title",
        replaced("hardware/pod.yaml", "figures made for tests", "figures of a second edition"),
    ),
    Change(
        "a wrap rule",
        "an axis of the pod closes at 8 chips, not at 16",
        replaced("hardware/pod.yaml", "wrap: {axis: 16", "wrap: {axis: 8"),
    ),
    Change("a model's heads", "32 heads become 64", replaced("models/small.yaml", "\nheads: 32", "\nheads: 64")),
    Change(
        "a layout's tp",
        "tensor parallelism takes the spare axis, too",
        replaced("scenarios/node.yaml", "tp: tensor", "tp: [spare, tensor]"),
    ),
    Change("a new scenario", "a copy of one", copied),
    Change("a removed scenario", "its file is deleted", removed),
    Change(
        "a switch's default",
        "the bundle megatron no longer gathers again",
        lambda _: patch.dict(PRACTICES, megatron=replace(PRACTICES["megatron"], regather=False)),
    ),
    Change(
        "a dtype",
        "a scenario computes in f32, not in bf16",
        replaced("scenarios/node.yaml", "dtype: bf16", "dtype: f32"),
    ),
    Change(
        "a tolerance",
        "the lock's own is widened by hand",
        replaced(LOCK_FILE, "tolerance: 1e-09", "tolerance: 0.05"),
    ),
)


def answers() -> dict[str, CheckResult]:
    """What `check` says of every change, by its name."""
    with TemporaryDirectory() as work:
        folder = Path(work) / "guarded"
        shutil.copytree(GUARDED, folder)
        with chdir(folder):
            (folder / LOCK_FILE).write_text(check(["scenarios"], update=True).text, encoding="utf-8")
        return {change.name: _answer(change, folder, Path(work) / str(at)) for at, change in enumerate(CHANGES)}


def _answer(change: Change, guarded: Path, folder: Path) -> CheckResult:
    shutil.copytree(guarded, folder)
    with chdir(folder), change.made(folder):
        return check()


def table(found: dict[str, CheckResult]) -> str:
    """The answers in Markdown: a row per change and cause."""
    head = ("change", "made by", "`check` names", "old", "new", "scenarios", "collectives", "exit")
    rows = [head, tuple("---" for _ in head)]
    for change in CHANGES:
        rows += [(change.name, change.what, *row) for row in _causes(found[change.name])]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _causes(result: CheckResult) -> list[tuple[str, ...]]:
    """The causes of one answer; new and gone scenarios are their own; nothing, if nothing moved."""
    exit_code = str(int(not result.ok))
    rows = []
    for one in result.drift.causes:
        old, new = values(one)
        note = f" ({one.note})" if one.note else ""
        said = f"{one.kind} `{one.name}`{note}"
        rows.append((said, old, new, ", ".join(one.scenarios), ", ".join(one.collectives), exit_code))
    rows += [(f"new scenario `{name}`", "", "", name, "", exit_code) for name in result.drift.added]
    rows += [(f"gone scenario `{name}`", "", "", name, "", exit_code) for name in result.drift.dropped]
    rows += [(f"notice: {one}", "", "", "", "", exit_code) for one in result.notices]
    return rows or [(f"nothing: {result.verdict}", "", "", "", "", exit_code)]


def main() -> int:
    """Compare the table in the docs with the answers, or write it there."""
    before = DOCS.read_text(encoding="utf-8")
    head, rest = before.split(START)
    now = head + START + table(answers()) + END + rest.split(END)[1]
    if "--update" in sys.argv:
        DOCS.write_text(now, encoding="utf-8")
        return 0
    sys.stdout.writelines(difflib.unified_diff(before.splitlines(True), now.splitlines(True), "docs", "answers"))
    return int(before != now)


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
