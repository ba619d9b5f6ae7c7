"""The files that an answer was computed from, as outputs name them: the same on every machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from tpsim.quantity import spec
from tpsim.report.record import Of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tpsim.machine.parts import Machine
    from tpsim.quantity.spec import Document, LibraryKind


def inputs(*sources: Document | Machine) -> list[tuple[str, str]]:
    """Path and hash of every file that was read, each once, with those that it is laid on."""
    files = [file for source in sources for file in ((source.path, source.sha256), *source.below)]
    return list(dict.fromkeys((shown(path), digest) for path, digest in files if digest))


def files_of(sources: Callable[[Any], Iterable[Document | Machine]]) -> Of[Sequence[tuple[str, str]]]:
    """The attribute `files` of an answer, from what it was computed from."""
    return Of(lambda answer: inputs(*sources(answer)), "path and sha256 of every file that was read")


def asked(kind: LibraryKind, path: str) -> str:
    """How the command line names the file at `path`: by its library name, if it has one, and never as an option.

    Standard input stays ``-``.
    """
    name = Path(path).stem if Path(path).parent in spec.library(kind) else path
    return f"./{name}" if name.startswith("-") and name != "-" else name


def shown(path: str) -> str:
    """The path as the user gave it; a library file is named from its library on: ``models/gemma-7b.yaml``."""
    for kind in get_args(spec.LibraryKind):
        if spec.holds(kind, path):
            return f"{kind}/{Path(path).name}"
    return path
