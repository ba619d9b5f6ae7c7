"""Machines by name or path: what the fields of a file mean as a `Machine`, and where each of its figures stands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpsim.fabric.wires import ANY, Wrap
from tpsim.machine import curve_file
from tpsim.machine.chips import PARTS, made_of
from tpsim.machine.constant import ConstantFields
from tpsim.machine.parts import Chip, Level, Machine, Source, Tuning
from tpsim.machine.profile_fields import DEFAULT, HardwareFile
from tpsim.machine.profile_misfits import misfits
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError, Problem, unknown
from tpsim.quantity.units import show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tpsim.machine.constant import Constant
    from tpsim.machine.profile_fields import LevelFields
    from tpsim.machine.unstated import UnstatedFile
    from tpsim.quantity.errors import Place
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
    unfit = curve_file.misfits(fields.measured, machine.levels, fields.sources, document)
    if wrong := [*reading.wrong, *misfits(fields, document), *unfit]:
        raise InputError(wrong)
    curves = curve_file.curves(fields.measured, machine, document)
    doubts = (*_doubts(machine, document), *_foreign(machine, written))
    return replace(machine, measured=curves, doubts=doubts), document


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


@dataclass
class _Reading:
    """Turns the fields of a file into a machine, and collects what is wrong beyond their form."""

    fields: HardwareFile
    document: Document

    def __post_init__(self) -> None:
        self.wrong: list[Problem] = []

    def machine(self) -> Machine:
        """The machine; look at `wrong` afterwards."""
        fields = self.fields
        sources = {
            name: Source(source.title, source.read or "", tuple(source.sha256 or ()))
            for name, source in fields.sources.items()
        }
        levels = tuple(map(self._level, fields.levels))
        file = self.document
        return Machine(fields.name, sources, self._chip(), levels, file.path, file.sha256, file.below)

    @cached_property
    def unstated(self) -> UnstatedFile:
        """What is taken for figures that the file leaves out; read where it is needed."""
        from tpsim.machine.unstated import unstated

        return unstated()

    def _value(self, fields: Any, path: str) -> Any:
        """What stands at a path: a constant for a figure, what a map of figures means for the map, None for nothing."""
        if isinstance(fields, ConstantFields):
            return self._constant(fields, path)
        if isinstance(fields, spec.Strict):
            inner = {name: self._value(getattr(fields, name), f"{path}.{name}") for name in type(fields).model_fields}
            return fields.meaning(**{name: value for name, value in inner.items() if value is not None})  # type: ignore[attr-defined]  # of every map of figures
        return self._tunings(fields, path) if isinstance(fields, dict) else fields

    def _constant(self, fields: ConstantFields, path: str) -> Constant:
        keys, sources = _keys(path, self.document), self.fields.sources
        if fields.source is not None and fields.source not in sources:
            place = self.document.place(*keys, "source")
            self.wrong += unknown(fields.source, "source", sources, place, "add it to sources").problems
        place = self.document.place(*keys)
        return fields.at(path, place.file if place else "")

    def _tunings(self, several: Mapping[str, Any] | None, path: str) -> dict[str, Tuning]:
        return {name: self._value(tuning, f"{path}.{name}") or Tuning() for name, tuning in (several or {}).items()}

    def _figure(self, around: Any, path: str, *names: str, guesses: Callable[[], Any] | None = None) -> Any:
        """What the file states there, else tpsim's guess if there is one."""
        whole = ".".join((path, *names))
        value = self._value(reduce(lambda part, name: part and getattr(part, name), names, around), whole)
        if value is not None or guesses is None:
            return value
        from tpsim.machine.unstated import file

        guess: ConstantFields = reduce(getattr, names, guesses())
        return guess.at(whole, str(file()), stated=False)

    def _chip(self) -> Chip:
        figure = partial(self._figure, self.fields.chip, "chip")
        guessed = partial(figure, guesses=lambda: self.unstated.chip)
        peaks = {dtype: self._value(peak, f"chip.peak.{dtype}") for dtype, peak in self.fields.chip.peak.items()}
        return Chip(
            peak={dtype: peak for dtype, peak in peaks.items() if peak is not None},
            memory_capacity=figure("memory", "capacity"),
            memory_bandwidth=figure("memory", "bandwidth"),
            matmul_efficiency=guessed("matmul_efficiency"),
            memory_efficiency=guessed("memory_efficiency"),
            tile=figure("tile"),
            attention_forward=figure("attention_efficiency", "forward"),
            attention_backward=figure("attention_efficiency", "backward"),
            attention_latents=figure("attention_efficiency", "latents"),
            kernel_pause=figure("kernel_pause"),
            interruption=figure("interruption"),
            price_per_hour=figure("price_per_hour"),
            host_bandwidth=figure("host", "bandwidth"),
            generation=self.fields.chip.generation or "",
        )

    def _level(self, level: LevelFields) -> Level:
        path, wrap, slices = f"levels.{level.name}", level.wrap, level.slices
        figure = partial(self._figure, level, path)
        guessed = partial(figure, guesses=lambda: self.unstated.level(level.topology, level.shape))
        return Level(
            name=level.name,
            topology=level.topology,
            shape=tuple(level.shape),
            wrap=wrap.value if wrap else Wrap(),
            wrap_source=wrap.source if wrap else None,
            wrap_kind=wrap.kind if wrap else None,
            slices=slices.value if slices else ANY,
            slices_source=slices.source if slices else None,
            slices_kind=slices.kind if slices else None,
            steps=level.steps,
            bandwidth=figure("link", "bandwidth"),
            uplink=figure("link", "uplink"),
            efficiency=guessed("link", "efficiency"),
            hop_latency=guessed("link", "hop_latency"),
            launch=self._launches(level.launch, path) or {DEFAULT: guessed("launch")},
            algorithms=self._tunings(level.algorithms, f"{path}.algorithms"),
            protocols=self._tunings(level.protocols, f"{path}.protocols"),
            pipelined=figure("pipelined"),
        )

    def _launches(self, launches: Mapping[str, Any] | None, path: str) -> dict[str, Constant]:
        """By harness; a single one stands without a name."""
        at = [f"{path}.launch" + ("" if set(launches or ()) == {DEFAULT} else f".{name}") for name in launches or ()]
        return {
            name: self._value(launch, where) for (name, launch), where in zip((launches or {}).items(), at, strict=True)
        }
