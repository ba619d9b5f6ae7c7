"""The lock as a file: ``tpsim.lock``, sorted YAML with one line per fact."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from tpsim import __version__
from tpsim.guard.lock import EXAMPLE, CallsFact, ConstantFact, FormulaFact, Lock, ScenarioFact
from tpsim.guard.moved import STATES_FIT
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError, Place
from tpsim.quantity.spec import Strict
from tpsim.quantity.units import Dimension
from tpsim.question.save import flow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

NAME = "tpsim.lock"
Value = bool | int | float | str
DIMENSIONS = get_args(Dimension)
FIGURES = ("_s", "_bytes", "flops")
"""How the names of a scenario's results end that are numbers."""


class ConstantFields(Strict):
    """A figure or a property of a machine."""

    noun: ClassVar[str] = "a constant of a lock"
    value: Value
    source: str = ""
    kind: str
    dimension: str = Field("", description="of a figure, which is in SI units")

    @field_validator("dimension")
    @classmethod
    def _of_a_number(cls, dimension: str, info: ValidationInfo) -> str:
        value = info.data.get("value")
        if dimension and (dimension not in DIMENSIONS or isinstance(value, bool | str)):
            raise ValueError("a figure has a number and a dimension, a property neither")
        return dimension


class FormulaFields(Strict):
    """A formula: its text informs, its samples decide."""

    noun: ClassVar[str] = "a formula of a lock"
    text: str
    samples: list[str] = Field(min_length=1)


def _is_calls(line: str) -> str:
    CallsFact.parse(line)
    return line


CallsLine = Annotated[
    str, AfterValidator(_is_calls), Field(description="equal calls of one collective", examples=[EXAMPLE])
]


class ScenarioFields(Strict):
    """What a scenario asks and what it came to."""

    noun: ClassVar[str] = "a scenario of a lock"
    inputs: dict[str, Value]
    results: dict[str, Value]
    collectives: dict[str, CallsLine]

    @field_validator("results")
    @classmethod
    def _are_numbers(cls, results: dict[str, Value]) -> dict[str, Value]:
        wrong = [name for name in results if name.endswith(FIGURES) and isinstance(results[name], bool | str)]
        if wrong:
            raise ValueError(f"{wrong[0]} is a number")
        return results


class LockFile(Strict):
    """Everything that `tpsim check` compares, one line per fact."""

    noun: ClassVar[str] = "a lock"
    tpsim: Literal["lock/1"]
    version: Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+")]
    tolerance: Annotated[float, Field(ge=0, lt=1, description="relative, of times; bytes and messages are exact")]
    paths: list[str] = Field(description="files and folders of scenarios, from the lock's folder")
    constants: dict[str, ConstantFields]
    models: dict[str, Value]
    switches: dict[str, Value]
    formulas: dict[str, FormulaFields]
    scenarios: dict[str, ScenarioFields]


def read(path: Path | str) -> Lock:
    """The lock in a file.

    Raises InputError, with the line, for a file that a newer tpsim wrote or that was damaged by hand.
    """
    try:
        document = spec.load(path, most=spec.LARGE)
    except InputError as error:
        raise _conflict(path, error) from None
    file, document = spec.read(document, LockFile)
    if _parts(file.version) > _parts(__version__):
        raise InputError.one(
            "newer-version",
            f"tpsim {file.version} wrote this lock; this is tpsim {__version__}",
            document.place("version"),
            "update tpsim, or write the lock again: tpsim check --update",
        )
    return Lock(
        version=file.version,
        tolerance=file.tolerance,
        paths=tuple(file.paths),
        constants={
            name: ConstantFact(one.value, one.source, one.kind, one.dimension) for name, one in file.constants.items()
        },
        models=file.models,
        switches=file.switches,
        formulas={name: FormulaFact(one.text, tuple(one.samples)) for name, one in file.formulas.items()},
        scenarios={name: _scenario(one) for name, one in file.scenarios.items()},
    )


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
    remedy = f"take either side (git checkout --ours {path}), then tpsim check --update"
    return InputError.one("conflict", "a merge left both sides of the lock", place, remedy)


def _constant(fields: ConstantFields) -> ConstantFact:
    return ConstantFact(fields.value, fields.source, fields.kind, fields.dimension)


def _scenario(fields: ScenarioFields) -> ScenarioFact:
    calls = {name: CallsFact.parse(line) for name, line in fields.collectives.items()}
    results = {STATES_FIT if name == "fits" else name: value for name, value in fields.results.items()}  # its old name
    return ScenarioFact(fields.inputs, results, calls)


def _parts(version: str) -> tuple[int, ...]:
    """The release that a version names, for comparison."""
    return tuple(int("".join(filter(str.isdecimal, part)) or 0) for part in version.split(".")[:3])


HEAD = """\
# What the cost formulas, constants, models, switches and scenarios come to; tpsim check holds them to it.
# Written by tpsim check --update, not by hand: one line is one fact, sorted, so that git shows what moved.
"""


def text(lock: Lock) -> str:
    """The lock as the content of its file."""
    return HEAD + "\n".join(_lines(lock)) + "\n"


def _lines(lock: Lock) -> Iterator[str]:
    yield "tpsim: lock/1"
    yield f"version: {flow(lock.version)}"
    yield f"tolerance: {lock.tolerance!r}"
    yield f"paths: {flow(sorted(lock.paths))}"
    yield from _section("constants", _maps(lock.constants.items()))
    yield from _section("models", lock.models)
    yield from _section("switches", lock.switches)
    yield from _section("formulas", _maps(lock.formulas.items()))
    if not lock.scenarios:
        yield "scenarios: {}"
        return
    yield "scenarios:"
    for name, one in sorted(lock.scenarios.items()):
        yield f"  {flow(name)}:"
        yield from _section("inputs", one.inputs, 4)
        yield from _section("results", one.results, 4)
        yield from _section("collectives", {key: str(fact) for key, fact in one.collectives.items()}, 4)


def _maps(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {name: asdict(one) for name, one in items}


def _section(name: str, facts: Mapping[str, Any], indent: int = 0) -> Iterator[str]:
    """A map with a line per fact, sorted."""
    pad = " " * indent
    if not facts:
        yield f"{pad}{name}: {{}}"
        return
    yield f"{pad}{name}:"
    yield from (f"{pad}  {flow(key)}: {flow(value)}" for key, value in sorted(facts.items()))
