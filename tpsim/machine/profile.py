"""Machines by name or path: what the fields of a file mean as a `Machine`, and where each of its figures stands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tpsim.machine.chips import PARTS, made_of
from tpsim.machine.constant import Constant, HasConstants, inside
from tpsim.machine.hardware_file import HardwareFile, misfits
from tpsim.machine.parts import DEFAULT, Level, Machine
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError, Place, Problem, unknown
from tpsim.quantity.units import show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tpsim.machine.unstated import UnstatedFile, UnstatedLevel
    from tpsim.quantity.spec import Document


FOREIGN = {
    **dict.fromkeys(("size", "ports", "devices", "ranks"), "shape, a list: [8]"),
    **dict.fromkeys(("latency", "alpha"), "link.hop_latency"),
    **dict.fromkeys(("flops", "tflops"), "peak, by number format: {bf16: 989 TFLOP/s}"),
    "hbm": "memory",
}
"""What people call the fields of a machine -> the field that tpsim has for it."""


def load(name_or_path: str | Path) -> Machine:
    """The machine of that name in the library, or of that file.

    Raises InputError with every mistake in the file.
    """
    return read(name_or_path)[0]


def with_fields(machine: Machine, changes: Document) -> Machine:
    """The machine with some fields of its file changed: a profile without a header, which extends the machine's file.

    It stays the machine of its file. Raises InputError with every mistake in the changes.
    """
    changed, _ = read(spec.with_data(changes, {"tpsim": "hardware/1", **changes.data}))
    return replace(changed, path=machine.path, sha256=machine.sha256)


def read(source: str | Path | Document) -> tuple[Machine, Document]:
    """The machine of a file, of a name in the library, or of a document.

    Raises InputError with every mistake in the file.
    """
    written = source if isinstance(source, spec.Document) else _document(source)
    fields, document = spec.read(written, HardwareFile, extends=_document, parts=PARTS, foreign=FOREIGN)
    reading = _Reading(fields, document)
    machine = reading.machine()
    wrong = [*reading.wrong, *misfits(fields, document)]
    if fields.measured:
        from tpsim.machine import curve_file

        wrong += curve_file.misfits(fields.measured, machine.levels, fields.sources, document)
    if wrong:
        raise InputError(wrong)
    measured = curve_file.curves(fields.measured, machine, document) if fields.measured else ()
    doubts = (*_doubts(machine, document), *_foreign(machine, written))
    return replace(machine, measured=measured, doubts=doubts), document


def _foreign(machine: Machine, document: Document) -> Iterator[Problem]:
    """A chip that tpsim's machines have on another fabric: what it tells of its own levels counts for nothing here."""
    chip = document.data.get("chip")
    name = chip.get("extends") if isinstance(chip, dict) else chip
    if spec.is_shipped(("hardware",), document.path) or name not in spec.names("chips"):
        return
    usual = dict.fromkeys(read(entry)[0].levels[0].name for entry in made_of(name))
    if usual and machine.levels[0].name not in usual:
        message = f"{name} is built for {' or '.join(usual)}, and here it lies on {machine.levels[0].name}"
        remedy = "what the chip tells of its own levels is left out: state launches, latencies and protocols"
        yield Problem("foreign-chip", message, document.place("chip"), remedy)


def _doubts(machine: Machine, document: Document) -> Iterator[Problem]:
    """What is hard to believe of the figures that are not tpsim's own."""
    stated = [constant for constant in machine.constants() if constant.stated]
    ours = {
        file for file in {constant.file for constant in stated} if file and spec.is_shipped(("hardware", "chips"), file)
    }
    for constant in stated:
        if constant.file not in ours:
            from tpsim.machine.unstated import doubtful

            place = place_of(constant, document)
            problem = doubtful(constant, machine, _written(constant, document), place)
            yield from [problem] if problem else []


def _written(constant: Constant, document: Document) -> object:
    """A figure as its file has it."""
    data = document.value(*_keys(constant.path, document))
    data = data.get(DEFAULT, data) if isinstance(data, dict) else data
    return data["value"] if isinstance(data, dict) else data


def missing(machine: Machine, document: Document) -> list[Problem]:
    """What a shipped profile lacks: a figure, the kind of each constant, and a source for all but guesses."""
    return [
        Problem("missing-provenance", f"{constant.path} has no {lack}", place_of(constant, document), remedy)
        for constant in machine.constants()
        for lack in _lacks(constant)
        for remedy in ["write {value: ..., source: ..., kind: ...}"]
    ]


def left_out(machine: Machine, document: Document) -> list[Problem]:
    """What a profile does not say, so that every answer guesses it."""
    return [
        Problem("left-out", f"{constant.path} is not stated", place_of(constant, document), f"{shown} is guessed")
        for constant in machine.constants()
        if not constant.stated
        for shown in [show(constant.value, constant.dimension)]
    ]


def place_of(constant: Constant, document: Document) -> Place | None:
    """Where a constant stands in its file; what stands around it if it is left out."""
    return document.place(*_keys(constant.path, document))


def _lacks(constant: Constant) -> Iterator[str]:
    if not constant.stated:
        yield "value"
    elif not constant.stated_kind:
        yield "kind"
    elif constant.kind != "guess" and not constant.source:
        yield "source"


def _document(name_or_path: str | Path, beside: Path = Path()) -> Document:
    return spec.load(spec.named("hardware", str(name_or_path), beside))


def _keys(path: str, document: Document) -> tuple[str | int, ...]:
    """The keys in the file of a constant's path: a level is named there, and numbered in the file."""
    first, *rest = path.split(".")
    if first != "levels":
        return (first, *rest)
    names = [level["name"] for level in document.data["levels"]]
    return (first, names.index(rest[0]), *rest[1:])


V = TypeVar("V", bound=spec.Value)


@dataclass
class _Reading:
    """Makes a machine of what a file states, and collects what is wrong beyond the form of that."""

    fields: HardwareFile
    document: Document

    def __post_init__(self) -> None:
        self.wrong: list[Problem] = []

    def machine(self) -> Machine:
        """The machine; look at `wrong` afterwards."""
        fields, file = self.fields, self.document
        levels = tuple(self._level(level, f"levels.{level.name}") for level in fields.levels)
        chip = self._located(fields.chip, "chip")
        chip = self._filled(chip, "chip", lambda: self.unstated.chip)
        host = fields.host and self._located(fields.host, "host")
        return Machine(fields.name, fields.sources, chip, levels, host, file.path, file.sha256, file.below)

    @cached_property
    def unstated(self) -> UnstatedFile:
        """What is taken for figures that the file leaves out; read where it is needed."""
        from tpsim.machine.unstated import unstated

        return unstated()

    def _level(self, level: Level, path: str) -> Level:
        def guesses() -> UnstatedLevel:
            return self.unstated.level(level.topology, level.shape)

        located: Level = self._located(level, path)
        link = self._filled(located.link, f"{path}.link", lambda: guesses().link)
        launch = located.launch or {DEFAULT: _guess(guesses().launch, f"{path}.launch")}
        return located.but(link=link, launch=launch)

    def _located(self, part: Any, path: str) -> Any:
        """A part of the machine whose constants know where they stand; a single launch stands without a name."""
        if isinstance(part, Constant):
            return self._constant(part, path)
        if isinstance(part, HasConstants | dict):
            alone = {DEFAULT: path} if isinstance(part, dict) and {*part} == {DEFAULT} else {}
            new = {name: self._located(inner, alone.get(name, f"{path}.{name}")) for name, inner in inside(part)}
            return new if isinstance(part, dict) else part.but(**new)
        return part

    def _constant(self, constant: Constant, path: str) -> Constant:
        keys, sources = _keys(path, self.document), self.fields.sources
        if "source" in constant.model_fields_set and constant.source not in sources:
            place = self.document.place(*keys, "source")
            self.wrong += unknown(constant.source, "source", sources, place, "add it to sources").problems
        place = self.document.place(*keys)
        return constant.but(path=path, file=place.file if place else "")

    def _filled(self, part: V, path: str, guesses: Callable[[], spec.Strict]) -> V:
        """A part with tpsim's guesses for figures that the file leaves out."""
        left = [name for name in GUESSED if name in type(part).model_fields and getattr(part, name) is None]
        return part.but(**{name: _guess(getattr(guesses(), name), f"{path}.{name}") for name in left}) if left else part


GUESSED = ("matmul_efficiency", "memory_efficiency", "efficiency", "hop_latency")
"""Figures for which a guess stands where the file says nothing."""


def _guess(figure: V, path: str) -> V:
    from tpsim.machine.unstated import file

    return figure.but(path=path, file=str(file()), stated=False)
