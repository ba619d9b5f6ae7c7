"""The lock, ``tpsim.lock``: what it holds, and its file, which is sorted YAML with one line per fact."""

from __future__ import annotations

import shlex
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from tpsim import __version__
from tpsim.guard.lock_parts import (
    NO_FORMULAS,
    NO_SWITCHES,
    CallName,
    ConstantFact,
    FactLine,
    FormulaFacts,
    LockPart,
    Names,
    ScenarioFact,
    SwitchFacts,
    Value,
)
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError, Place
from tpsim.question.save import flow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.quantity.spec import Document, Keys

VERSION = "lock/2"
"""What the first line of its file says."""

TOLERANCE = 1e-9
"""Relative difference up to which two times are the same: what another processor's rounding may do, and no more."""

FactKind = Literal["constant", "model", "switch", "formula"]


class Fact(NamedTuple):
    """Where a fact of a lock stands: its kind, what it belongs to and comes and goes with, and its name there."""

    kind: FactKind
    owner: Names
    name: str

    def __str__(self) -> str:
        return ".".join((*self.owner, self.name))


class Lock(LockPart):
    """Everything that `tpsim check` compares, one line per fact.

    version    of tpsim that wrote it
    constants  by machine and path
    models     by model and field
    uses       lists of facts, by the names that numbers call them by
    """

    noun: ClassVar[str] = "a lock"
    tpsim: Literal["lock/2"]
    version: Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+")]
    tolerance: Annotated[float, Field(ge=0, lt=1, description="relative, of times; bytes and messages are exact")]
    paths: tuple[str, ...] = Field(description="files and folders of scenarios, from the lock's folder")
    constants: dict[str, dict[str, ConstantFact]]
    models: dict[str, dict[str, Value]]
    switches: SwitchFacts
    formulas: FormulaFacts
    uses: dict[str, Names]
    scenarios: dict[str, ScenarioFact]

    @classmethod
    def empty(cls, **head: Any) -> Lock:
        """A lock that holds nothing yet."""
        nothing: dict[str, Any] = {"constants": {}, "models": {}, "uses": {}, "scenarios": {}}
        groups = {"switches": NO_SWITCHES, "formulas": NO_FORMULAS}
        first: dict[str, Any] = {"tpsim": VERSION, "version": __version__, "tolerance": TOLERANCE, "paths": ()}
        return cls(**first | nothing | groups | head)

    @cached_property
    def facts(self) -> dict[Fact, Any]:
        """Every fact that numbers are made with, by where it stands."""
        sections: tuple[tuple[FactKind, Any], ...] = (
            ("constant", self.constants),
            ("model", self.models),
            ("switch", self.switches),
            ("formula", self.formulas),
        )
        return {fact: value for kind, section in sections for fact, value in _facts(kind, (), section)}

    @cached_property
    def listed(self) -> dict[str, frozenset[str]]:
        """The lists of facts, to look names up in."""
        return {name: frozenset(facts) for name, facts in self.uses.items()}

    def made_with(self, name: str, part: CallName | None, quantity: str) -> Iterator[frozenset[str]]:
        """The facts that a number of the scenario `name` is made with, in parts; none for one that is not there."""
        scenario = self.scenarios.get(name)
        if scenario is not None:
            for used in scenario.made_with(part, quantity):
                yield self.listed[used] if used in self.listed else frozenset([used])


def _facts(kind: FactKind, owner: Names, section: Any) -> Iterator[tuple[Fact, Any]]:
    """The facts in a section, and in those below it."""
    for name, value in (section if isinstance(section, dict) else section.parts()).items():
        if isinstance(value, dict):
            yield from _facts(kind, (*owner, name), value)
        else:
            yield Fact(kind, owner, name), value


LOCK_FILE = "tpsim.lock"


def naming(lock: Path | str) -> tuple[str, ...]:
    """The words by which a command names a lock; none for that of the usual name."""
    return () if str(lock) == LOCK_FILE else ("--lock", str(lock))


OLDER = ("lock/1",)
"""The formats of locks that said less: what moved since cannot be said of them."""


def read_lock(path: Path | str) -> Lock:
    """The lock in a file.

    Raises InputError, with the line, for a file that an older or a newer tpsim wrote or that was damaged by hand.
    """
    document = _loaded(path)
    if _is_older(document):
        message = (
            f"this is a {document.data['tpsim']}, which does not say what its numbers are made with as {VERSION} does"
        )
        remedy = f"write it again: {shlex.join(['tpsim', 'check', '--update', *naming(path)])}"
        raise InputError.one("older-lock", message, document.place("tpsim"), remedy)
    lock, document = spec.read(document, Lock)
    if _parts(lock.version) > _parts(__version__):
        raise InputError.one(
            "newer-version",
            f"tpsim {lock.version} wrote this lock; this is tpsim {__version__}",
            document.place("version"),
            f"update tpsim, or {_anew(lock, path)}",
        )
    _refuse_unknown(lock, document)
    return lock


def _anew(lock: Lock, path: Path | str) -> str:
    """How to write a lock that nothing is compared with: `--update` tells what moved of what it can read."""
    return f"delete it and write it anew: {shlex.join(['tpsim', 'check', '--update', *lock.paths, *naming(path)])}"


def older_lock(path: Path | str) -> Lock | None:
    """The paths and the tolerance of a lock of an older format, which are kept; None for any other one.

    Raises InputError for a file that cannot be read, or with something else in their place.
    """
    document = _loaded(path)
    if not _is_older(document):
        return None
    kept = {name: document.data[name] for name in ("tolerance", "paths") if name in document.data}
    data = Lock.empty().model_dump() | kept
    return spec.read(spec.with_data(document, data), Lock)[0]


def _is_older(document: Document) -> bool:
    return document.data.get("tpsim") in OLDER


def _loaded(path: Path | str) -> Document:
    try:
        return spec.load(path, most=spec.LARGE)
    except InputError as error:
        raise _conflict(path, error) from None


CONFLICT = "<<<<<<< "
"""How a line starts where git left both sides of a merge."""


def _conflict(path: Path | str, error: InputError) -> InputError:
    """The error of a lock that cannot be read: a merge conflict where there is one, else as it is."""
    if error.problems[0].slug not in {"bad-yaml", "duplicate-key"}:
        return error
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    at = next((at for at, line in enumerate(lines) if line.startswith(CONFLICT)), None)
    if at is None:
        return error
    place = Place(str(path), at + 1, 1, lines[at], len(CONFLICT) - 1)
    again = shlex.join(["tpsim", "check", "--update", *naming(path)])
    remedy = f"take either side (git checkout --ours {path}), then {again}"
    return InputError.one("conflict", "a merge left both sides of the lock", place, remedy)


def _refuse_unknown(lock: Lock, document: Document) -> None:
    """Refuse a number, and a list, that names a fact that is not there."""
    facts = {str(fact) for fact in lock.facts}
    unknown = [(keys, name) for keys, name in _named(lock) if name not in lock.uses and name not in facts]
    listed = ((("uses", key, at), name) for key, names in lock.uses.items() for at, name in enumerate(names))
    unknown += [(keys, name) for keys, name in listed if name not in facts]
    for keys, name in unknown:
        message = f"{name} is made with here, and this lock does not hold it"
        raise InputError.one("unknown-fact", message, document.place(*keys), _anew(lock, document.path))


def _named(lock: Lock) -> Iterator[tuple[Keys, str]]:
    """Every name of what a number is made with, with its place."""
    for name, fact in lock.scenarios.items():
        parts: dict[Keys, tuple[str, ...]] = {(): fact.uses}
        parts |= {("results", key): result.uses for key, result in fact.results.items()}
        parts |= {("collectives", at): calls.uses for at, calls in enumerate(fact.collectives)}
        for keys, names in parts.items():
            yield from ((("scenarios", name, *keys, "uses", at), used) for at, used in enumerate(names))


def _parts(version: str) -> tuple[int, ...]:
    """The release that a version names, for comparison."""
    return tuple(int("".join(filter(str.isdecimal, part)) or 0) for part in version.split(".")[:3])


HEAD = """\
# What the cost formulas, constants, models, switches and scenarios come to; tpsim check holds them to it.
# Written by tpsim check --update, not by hand: one line is one fact, sorted, so that git shows what moved.
"""


def lock_text(lock: Lock) -> str:
    """The lock as the content of its file."""
    fields = lock.parts() | {"paths": sorted(lock.paths)}
    return HEAD + "".join(f"{line}\n" for name, value in fields.items() for line in _lines(name, value, ""))


def _lines(name: str, value: Any, pad: str) -> Iterator[str]:
    """A fact as a line; of a map a line per fact, sorted, those of a section of the format in the format's order."""
    head = f"{pad}{flow(name)}:"
    section = isinstance(value, LockPart) and not isinstance(value, FactLine)
    if value and (section or isinstance(value, dict)):
        yield head
        for key, stated in value.parts().items() if section else sorted(value.items()):
            yield from _lines(key, stated, f"{pad}  ")
    elif value and isinstance(value, tuple) and isinstance(value[0], FactLine):
        yield head
        yield from (f"{pad}  - {flow(_plain(fact))}" for fact in sorted(value, key=lambda fact: str(fact.call)))
    else:
        yield f"{head} {flow(_plain(value))}"


def _plain(value: Any) -> Any:
    """A line's fields but those that say nothing, what it is made with last."""
    if not isinstance(value, FactLine):
        return value
    plain = value.model_dump(exclude_defaults=True)
    return {name: plain[name] for name in sorted(plain, key=lambda name: name == "uses")}
