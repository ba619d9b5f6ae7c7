"""Chip files: what a chip or a generation has wherever it is built in, laid below the machines that name it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpsim.machine.profile_fields import ChipFields, ChipFile
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError, suggest, unknown
from tpsim.quantity.spec.refusals import header_problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpsim.quantity.spec import Document


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
    told = {key: value for key, value in chip.data.items() if key not in ("tpsim", "name")}
    levels = told.get("levels", {})
    for level in levels if isinstance(levels, Mapping) else ():
        if level not in there and suggest(level, there):
            of = machine.data.get("name", machine.path)
            raise unknown(level, f"level of {of}", there, chip.key_place("levels", level))
    data = {**told, "levels": _had(levels, there)}
    spots = {at: spot for at, spot in chip.spots.items() if _leads(data, at)}
    return spec.with_data(chip, data, spots)


PARTS = {"chip": chip_of}
"""The maps of a machine that a file of its own may tell."""


def _read(name: str, beside: Path) -> Document:
    document = spec.load(spec.named("chips", name, beside))
    if wrong := header_problem(document, ChipFile):
        raise InputError([wrong])
    for key in document.data:
        if key not in ChipFile.model_fields:
            remedy = "write it under chip" if key in ChipFields.model_fields else ""
            raise unknown(key, "field of a chip file", ChipFile.model_fields, document.key_place(key), remedy)
    return document


def check(path: str) -> None:
    """Hold a chip's file against the form of one. What it leaves to machines is no mistake.

    Raises InputError with every mistake in the file.
    """
    try:
        spec.read(spec.extended(_read(path, Path()), _read), ChipFile)
    except InputError as error:
        if wrong := [problem for problem in error.problems if problem.slug != "missing-field"]:
            raise InputError(wrong) from None


def made_of(chip: str) -> list[str]:
    """The machines of tpsim whose own files name that chip."""
    line = re.compile(rf"^chip: *{re.escape(chip)} *$", re.MULTILINE)
    shipped = {name: spec.find("hardware", name) for name in spec.names("hardware")}
    return [name for name, path in shipped.items() if line.search(path.read_text(encoding="utf-8", errors="replace"))]


LISTS = ("algorithms", "protocols")


def _had(told: Any, there: Mapping[str, Any]) -> Any:
    """What a chip tells of things by name: of those that are there, in their order."""
    return (
        {name: _filled(told.get(name, {}), own) for name, own in there.items()} if isinstance(told, Mapping) else told
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
