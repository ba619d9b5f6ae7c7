"""What may come of a wrong file: a refusal that shows where and how to mend it, or an answer that shows the change."""

from __future__ import annotations

import json
import re
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpsim.answers.hw import hw_show
from tpsim.answers.model import model_show
from tpsim.answers.plan import priced
from tpsim.cli.main import of_the_notation, run
from tpsim.guard.lock import read_lock
from tpsim.pages.plan import page
from tpsim.quantity import spec
from tpsim.quantity.errors import TpsimError
from tpsim.question.memo import Memo
from tpsim.question.scenario import resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.fuzz.mutations import Keys, Mutation

ROOT = Path(__file__).parents[2]
MEMO = Memo()
"""The library is read once for all cases; a mutated file has a place of its own, and is read each time."""

PROBE: Mapping[str, Any] = {
    "tpsim": "scenario/1",
    "model": "gpt-tiny",
    "mesh": {"data": 2, "tensor": 2},
    "layout": {"tp": "tensor", "dp": "data", "zero": 1, "sequence_parallel": True},
    "workload": {"global_batch": 8, "seq": 16, "dtype": "bf16"},
}
"""A small question that is put to every mutated machine and model: what they say must carry a plan."""


def ran(*args: str) -> tuple[int, str, str]:
    """Exit code, stdout, stderr of a command line, run here."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = run(args)
    return code, out.getvalue(), err.getvalue()


def probe(path: Path) -> Mapping[str, Any]:
    """The small question on a machine, in a dtype that it knows."""
    peaks = MEMO.machine(str(path), beside=Path()).chip.peak
    dtype = "bf16" if "bf16" in peaks else next(iter(peaks), "bf16")
    return {**PROBE, "hardware": str(path), "workload": {**PROBE["workload"], "dtype": dtype}}


def planned(source: Any) -> Any:
    """What a plan shows of its question; raises what the plan raises."""
    question = resolve(source, memo=MEMO)
    plan = priced(question, MEMO)
    shown = page(plan, verbose=False).answer
    assert shown.lines
    assert shown.bars
    return question.resolved, [(one.text, one.kind) for one in question.assumptions]


def _forget(path: Path) -> None:
    """Take a file that has changed off the memo."""
    for held in (MEMO.documents, MEMO.machines, MEMO.models):
        for key in [key for key in held if str(path) in str(key)]:
            del held[key]


def _machine(path: Path) -> Any:
    shown = hw_show(path).to_json()
    try:
        planned(probe(path))
    except TpsimError as error:
        _well_refused(error)
    return shown["resolved"], shown["result"]


def _model(path: Path) -> Any:
    shown = model_show(path).to_json()
    try:
        planned({**PROBE, "hardware": "dgx-h100", "model": str(path)})
    except TpsimError as error:
        _well_refused(error)
    return shown["resolved"], shown["result"], shown["assumptions"]


ASK: Mapping[str, Callable[[Path], Any]] = {
    "hardware": _machine,
    "models": _model,
    "scenarios": planned,
    "lock": read_lock,
}
"""How a file of each kind is asked for all that an answer shows of it."""


@dataclass(frozen=True)
class Subject:
    """A file that tpsim ships, and its kind."""

    path: Path
    kind: str

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def data(self) -> Mapping[str, Any]:
        return spec.load(self.path, most=spec.LARGE).data

    @property
    def head(self) -> Mapping[str, Any]:
        """The file, of a lock the first two of everything: its other facts are like them."""
        return self.data if self.kind != "lock" else _start(self.data)


def _start(lock: Mapping[str, Any]) -> dict[str, Any]:
    """A lock of two scenarios, their numbers made with the first facts of each section."""
    sections = {key: _two(lock[key]) for key in ("constants", "models", "switches", "formulas")}
    first = next(iter(lock["constants"]))
    names = [f"{first}.{path}" for path in sections["constants"][first]]
    scenarios = {name: _two(one, 6) for name, one in list(lock["scenarios"].items())[:2]}
    for one in scenarios.values():
        one["uses"] = ["u1"]
        for line in (*one["results"].values(), *one["collectives"]):
            line["uses"] = ["u1", names[0]]
    return {**lock, **sections, "uses": {"u1": names}, "scenarios": scenarios}


def _two(part: Any, most: int = 2) -> Any:
    """The first of a map or a list and of what is in it, facts whole."""
    if isinstance(part, list):
        return [dict(one) if isinstance(one, dict) else one for one in part[:most]]
    if not isinstance(part, dict) or {"value", "samples"} & {*part}:
        return dict(part) if isinstance(part, dict) else part
    return {key: _two(one, most) for key, one in list(part.items())[:most]}


def subjects() -> list[Subject]:
    """Every file that tpsim ships."""
    folders = {"hardware": "hardware", "scenarios": "scenarios", "models": "scenarios/models"}
    shipped = [
        Subject(path, kind) for kind, folder in folders.items() for path in sorted((ROOT / folder).glob("*.yaml"))
    ]
    return [*shipped, Subject(ROOT / "tpsim.lock", "lock")]


@cache
def unchanged(subject: Subject) -> Any:
    """What the answer shows of the file as it is."""
    return plain(ASK[subject.kind](subject.path))


def plain(shown: Any) -> str:
    """What an answer shows as text, for comparison."""
    return json.dumps(shown, default=repr, sort_keys=True)


def complaint(subject: Subject, mutation: Mutation, folder: Path) -> str:
    """What is wrong with the outcome of a mutation; nothing if it is as it must be."""
    path = folder / subject.path.name
    path.write_text(mutation.text, encoding="utf-8")
    _forget(path)
    try:
        shown = plain(ASK[subject.kind](path))
    except TpsimError as error:
        try:
            _well_refused(error, path)
            _well_guessed(str(error), mutation)
        except AssertionError as wrong:
            return str(wrong)
        return ""
    except Exception as error:  # noqa: BLE001  # whatever is no refusal is a finding
        return f"{type(error).__name__}: {error}"[:300]
    return "" if shown != unchanged(subject) or harmless(subject, mutation) else "nothing of the answer shows it"


def _well_refused(error: Exception, path: Path | None = None) -> None:
    """A refusal has exit code 2, a short name, a remedy, and the place in the file that is wrong."""
    text = str(error if str(error).startswith("error[") else of_the_notation(error))
    assert getattr(error, "exit_code", 3) == 2, f"exit code {getattr(error, 'exit_code', 3)}: {text}"
    assert re.match(r"error\[[a-z0-9-]+\]: \S", text), f"no short name: {text}"
    assert len(text) < 5000, f"too long: {len(text)} characters"
    if path is not None:
        places = re.findall(r"--> (.+?)(:[1-9]\d*:[1-9]\d*)?$", text, re.MULTILINE)
        assert any(file == str(path) for file, _ in places) or "passwd" in text, f"no place: {text}"
        assert re.search(r"\^ \S|^ *= \S", text, re.MULTILINE), f"no remedy: {text}"


FREE_TEXT = {("models", "source.read")}
"""Fields that nothing depends on and no answer shows: the day on which a source was read."""

SHOWN_AS = {
    "dtype": "activations",
    "param_dtype": "params",
    "grad_dtype": "gradients",
    "loss_dtype": "loss",
    "practice": "base",
}
"""A field that an answer calls otherwise."""


def _well_guessed(text: str, mutation: Mutation) -> None:
    """A field with one slip in it is answered with the field."""
    if mutation.name in {"misspell", "misspell twice"} and text.startswith("error[unknown-field]"):
        assert f'did you mean "{mutation.keys[-1]}"' in text, f"not the field meant: {text}"


def harmless(subject: Subject, mutation: Mutation) -> bool:
    """Whether a mutation asks the same question in other words, and the answer says so.

    The file holds the same; or a field was left out and the answer still states what it said; or one name became a
    list of one; or a quantity lost the space before its unit, or is zero in another unit.
    """
    data = spec.load(mutation.text, most=spec.LARGE).data
    before, after = _at(subject.data, mutation.keys), _at(data, mutation.keys)
    if (subject.kind, mutation.field) in FREE_TEXT or data == subject.head or (before == {} and after is None):
        return True
    if mutation.name in {"delete", "null"}:
        return _still_stated(unchanged(subject), mutation.keys[-1], before)
    if mutation.name == "listed":
        return after == [before] and mutation.keys[0] in {"layout", "placement", "shardings"}
    if mutation.name == "quoted":
        return mutation.keys[-1] in {"efficiency", "matmul_efficiency"} or mutation.keys[-2:-1] in {
            ("efficiency",),
            ("matmul_efficiency",),
            ("memory_efficiency",),
            ("forward",),
            ("backward",),
        }
    words = str(after).split()
    nothing = str(before).startswith("0 ") and len(words) == 2 and words[0] in {"0", "0.0"}
    return nothing or (isinstance(before, str) and str(after).replace(" ", "") == before.replace(" ", ""))


def _still_stated(shown: str, key: str | int, value: Any) -> bool:
    if key == "kind":
        return plain(value) in shown
    return f"{json.dumps(SHOWN_AS.get(str(key), str(key)))}: {plain(value)}" in shown


def _at(data: Any, keys: Keys) -> Any:
    for key in keys:
        held = data if isinstance(data, dict) else dict(enumerate(data)) if isinstance(data, list) else {}
        data = held.get(key)
    return data
