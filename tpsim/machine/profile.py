"""The machines of the library and of users' files, by name or path: files are read where one is asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tpsim.machine.parts import Machine
    from tpsim.quantity.spec import Document


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
