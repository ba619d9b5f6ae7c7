"""The machines of the library and of users' files, by name or path; what a machine is made of stands in `parts`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tpsim.machine.parts import Chip, Constant, Kind, Level, Machine, Source, changed
from tpsim.machine.tuning import Counted, Rendezvous, Tuning
from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from tpsim.quantity.errors import Problem
    from tpsim.quantity.spec import Document

__all__ = [
    "Chip",
    "Constant",
    "Counted",
    "Kind",
    "Level",
    "Machine",
    "Rendezvous",
    "Source",
    "Tuning",
    "changed",
    "load",
    "names",
    "validate",
    "with_fields",
]


def names() -> list[str]:
    """The machines in the library."""
    from tpsim.quantity import spec

    return spec.names("hardware")


def load(name_or_path: str | Path) -> Machine:
    """The machine of that name in the library, or of that file.

    Raises InputError with every mistake in the file.
    """
    from tpsim.machine.profile_file import read

    return read(name_or_path)[0]


def with_fields(machine: Machine, changes: Document) -> Machine:
    """The machine with some fields of its file changed: a profile without a header, which extends the machine's file.

    It stays the machine of its file. Raises InputError with every mistake in the changes.
    """
    from tpsim.machine.profile_file import read
    from tpsim.quantity.spec import with_data

    changed, _ = read(with_data(changes, {"tpsim": "hardware/1", **changes.data}))
    return replace(changed, path=machine.path, sha256=machine.sha256)


def validate(name_or_path: str | Path, *, shipped: bool = False) -> list[Problem]:
    """What is wrong with a profile; nothing for a good one.

    shipped  True: each constant must also state its kind, and its source unless it is a guess
    """
    from tpsim.machine.profile_file import missing, read

    try:
        machine, document = read(name_or_path)
    except InputError as error:
        return list(error.problems)
    return missing(machine, document) if shipped else []
