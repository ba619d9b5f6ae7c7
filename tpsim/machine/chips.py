"""Chip files: what a chip or a generation has wherever it is built in, laid below the machines that name it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from tpsim.machine.algorithms import OFFERED
from tpsim.machine.parts import DTYPES, Chip, Level, Source
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError, Problem, suggest, unknown
from tpsim.quantity.spec.checked import header_problem

if TYPE_CHECKING:
    from pathlib import Path

    from tpsim.quantity.spec import Document


class ChipFile(spec.Strict):
    """A chip or a generation of chips: what machines that are made of it have in common."""

    noun: ClassVar[str] = "a chip file"
    tpsim: Literal["chip/1"]
    extends: str | None = Field(None, description="a chip that this one changes")
    name: str
    sources: dict[str, Source] = Field(default_factory=dict)
    chip: Chip | None = None
    levels: dict[str, Level] = Field(
        {}, description="what is the chip's of a machine's levels, by name: of those algorithms and protocols it states"
    )


def chip_of(machine: Document, name: str, beside: Path) -> Document:
    """What the chip's file of that name says of a machine: its sources, its chip, and what of its levels is the chip's.

    machine  what its own files say; the levels that they have, and the algorithms and protocols if they list these, are
             all that it has: a chip tells what these take, and offers no others
    beside   the folder of the file that names the chip

    Raises InputError for a name that the library has not, for a file of another kind, and for a level that the machine
    has not and that looks like one which it has; what a chip tells of other levels is left out.
    """
    chip = spec.extended(_read(name, beside), _read)
    several = machine.data.get("levels")
    items = several if isinstance(several, list) else ()
    there = {item["name"]: item for item in items if isinstance(item, dict) and isinstance(item.get("name"), str)}
    body = {key: value for key, value in chip.data.items() if key not in ("tpsim", "name")}
    levels = body.get("levels", {})
    for level in levels if isinstance(levels, Mapping) else ():
        if level not in there and suggest(level, there):
            of = machine.data.get("name", machine.path)
            raise unknown(level, f"level of {of}", there, chip.key_place("levels", level))
    data = {**body, "levels": _had(levels, there)}
    spots = {at: spot for at, spot in chip.spots.items() if _leads(data, at)}
    return spec.with_data(chip, data, spots)


PARTS = {"chip": chip_of}
"""The maps of a machine that a file of its own may tell."""


def _read(name: str, beside: Path) -> Document:
    return _known(spec.load(spec.named("chips", name, beside)))


def _known(document: Document) -> Document:
    """A chip's file as it is. Raises InputError for another file, and for a field that no chip file has."""
    if wrong := header_problem(document, ChipFile):
        raise InputError([wrong])
    for key in document.data:
        if key not in ChipFile.model_fields:
            remedy = "write it under chip" if key in Chip.model_fields else ""
            raise unknown(key, "field of a chip file", ChipFile.model_fields, document.key_place(key), remedy)
    return document


def check(document: Document, *, strict: bool = False) -> None:
    """Hold a chip's file against the form of one. What it leaves to machines is no mistake.

    strict  True: each figure must state its kind, and its source unless it is a guess

    Raises InputError with every mistake in the file.
    """
    document, wrong = spec.extended(_known(document), _read), []
    try:
        spec.read(document, ChipFile)
    except InputError as error:
        wrong = [problem for problem in error.problems if problem.slug != "missing-field"]
    if wrong := wrong or [*_misfits(document), *(_unsourced(document) if strict else ())]:
        raise InputError(wrong)


def _misfits(chip: Document) -> Iterator[Problem]:
    """Sources, dtypes and algorithms that nobody knows: what a machine made of the chip would be refused for."""
    sources = chip.data.get("sources", {})
    for keys, figure in figures(chip.data):
        if isinstance(figure, dict) and figure.get("source") not in {None, *sources}:
            place = chip.place(*keys, "source")
            yield from unknown(figure["source"], "source", sources, place, "add it to sources").problems
    for dtype in (chip.data.get("chip") or {}).get("peak", {}):
        if dtype not in DTYPES:
            yield from unknown(dtype, "dtype", DTYPES, chip.key_place("chip", "peak", dtype)).problems
    for level, fields in chip.data.get("levels", {}).items():
        for name in fields.get("algorithms") or {}:
            if name not in OFFERED:
                place = chip.key_place("levels", level, "algorithms", name)
                yield from unknown(name, "algorithm", sorted(OFFERED), place).problems


def _unsourced(chip: Document) -> Iterator[Problem]:
    """Figures without a kind, and those that are no guesses without a source."""
    for keys, figure in figures(chip.data):
        stated = figure if isinstance(figure, dict) else {}
        if "kind" not in stated or (stated["kind"] != "guess" and "source" not in stated):
            lack = "source" if "kind" in stated else "kind"
            remedy = "write {value: ..., source: ..., kind: ...}"
            yield Problem("missing-provenance", f"{'.'.join(map(str, keys))} has no {lack}", chip.place(*keys), remedy)


WORDS = frozenset({"extends", "generation", "name", "topology", "steps", "shape", "wrap", "slices", "alone"})
"""What chips and levels state that is no figure."""


def figures(data: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every figure of a chip and of its levels, bare or a map with its value, with the way to it."""
    if isinstance(data, Mapping) and "value" not in data:
        inside = data if keys else {key: data[key] for key in ("chip", "levels") if key in data}
        for key, part in inside.items():
            if key not in WORDS:
                yield from figures(part, (*keys, key))
    elif data is not None:
        yield keys, data


def made_of(chip: str) -> list[str]:
    """The machines of tpsim whose own files name that chip."""
    line = re.compile(rf"^chip: *{re.escape(chip)} *$", re.MULTILINE)
    shipped = sorted(spec.shipped("hardware").glob("*.yaml"))  # a user's own would ask it of themselves again
    return [path.stem for path in shipped if line.search(path.read_text(encoding="utf-8", errors="replace"))]


LISTS = ("algorithms", "protocols")


def _had(data: Any, there: Mapping[str, Any]) -> Any:
    """What a chip tells of things by name: of those that are there, in their order."""
    return (
        {name: _filled(data.get(name, {}), own) for name, own in there.items()} if isinstance(data, Mapping) else data
    )


def _filled(part: Any, own: Any) -> Any:
    """What a chip tells of a level or an algorithm: of what lists its own algorithms or protocols, these alone."""
    if not (isinstance(part, Mapping) and isinstance(own, Mapping)):
        return part
    listed = {key: own[key] for key in LISTS if key in part and isinstance(own.get(key), Mapping)}
    return {**part, **{key: _had(part[key], of) for key, of in listed.items()}}


def _leads(data: Any, keys: Sequence[str | int]) -> bool:
    """True if the data has something there."""
    for key in keys:
        if not (key in data if isinstance(data, Mapping) else isinstance(data, list)):
            return False
        data = data[key]
    return True
