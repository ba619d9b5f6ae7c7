"""The scenarios that a lock guards: those of the files and folders that it names, and their names in it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from tpsim.quantity import spec
from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from tpsim.quantity.spec import Document

SUFFIX = ".yaml"
"""What names of scenarios are told without."""

FOUND = (SUFFIX, ".yml")
"""What files are looked at in folders; JSON there is mostly another program's, or an answer."""

HEADER = re.compile(rb"""(^|[{,]|\xef\xbb\xbf|\xff\xfe|\xfe\xff)\s*["']?tpsim["']?\s*:""", re.MULTILINE)
"""What a scenario has in it, on whichever line, and other YAML mostly has not."""

NO_SCENARIO = ("hardware/", "model/", "lock/")
"""What the files in a folder say that are not scenarios and are passed over."""


def guarded(paths: Sequence[str], folder: Path, home: Path | None = None) -> dict[str, Document]:
    """Every scenario of `paths` by its name, sorted.

    paths   files, folders (with all that is in them) or library names, relative ones from `folder`
    home    the folder from which a path is a name; None: `folder`
    A folder may hold other YAML: a file without ``tpsim:`` is passed over, and so are machines and models.
    Raises InputError for a path that is not there, a file that cannot be read, and where there is no scenario.
    """
    by_name: dict[str, Document] = {}
    for path in paths:
        inside = (folder / path).is_dir()
        documents = _in_folder(folder / path) if inside else [_asked(spec.named("scenarios", path, folder))]
        library = not inside and not spec.is_path(path)
        by_name |= {path if library else _name(document, home or folder): document for document in documents}
    if not by_name:
        named = ", ".join(paths) or "no path"
        raise InputError.one(
            "no-scenarios", f"{named}: no scenario is there", remedy="name files or folders of scenarios"
        )
    return dict(sorted(by_name.items()))


def _in_folder(folder: Path) -> Iterator[Document]:
    for path in sorted(path for suffix in FOUND for path in folder.rglob(f"*{suffix}")):
        if any(part.startswith(".") for part in path.relative_to(folder).parts) or not _may_be_ours(path):
            continue
        document = spec.load(path)
        header = document.data.get("tpsim")
        if header is not None and not str(header).startswith(NO_SCENARIO):
            yield document


def _may_be_ours(path: Path) -> bool:
    """False for a file without ``tpsim:`` in it, which may be YAML of any sort: templates, tags, several documents.

    Looked for are the first bytes of it, as many as a scenario may have, in any encoding that writes them so.
    """
    return path.is_file() and HEADER.search(spec.content(path, spec.WRITTEN.bytes).replace(b"\0", b"")) is not None


def _asked(path: Path) -> Document:
    """The file that was asked for by name; unlike one in a folder it may be no machine, model or lock."""
    document = spec.load(path)
    header = str(document.data.get("tpsim"))
    if header.startswith(NO_SCENARIO):
        message = f"{path} is a {header.partition('/')[0]} file, and no scenario"
        remedy = "name a scenario: what it uses is held with it"
        raise InputError.one("wrong-kind", message, document.place("tpsim"), remedy)
    return document


def _name(document: Document, folder: Path) -> str:
    """A scenario that is no library's by its path from the lock's folder."""
    return Path(os.path.relpath(document.path, folder)).as_posix().removesuffix(SUFFIX)


def relative_paths(paths: Sequence[str], folder: Path) -> tuple[str, ...]:
    """Paths as they were typed, from the lock's folder; library names as they are."""
    return tuple(
        Path(os.path.relpath(path, folder)).as_posix() if Path(path).exists() or spec.is_path(path) else path
        for path in paths
    )


def of_library(paths: Iterable[str], folder: Path) -> set[str]:
    """Of the paths of a lock in `folder` those that are names of the library, and of no file or folder there."""
    return {path for path in paths if not spec.is_path(path) and not (folder / path).exists()}


def below(names: Iterable[str], paths: Sequence[str], library: Collection[str] = ()) -> set[str]:
    """Of the names in a lock those that belong to `paths`: what is named, and what is found in folders.

    library  names that are of no file
    """
    stems = [path.removesuffix(SUFFIX) for path in paths]
    found = {name for name in names if not name.endswith(".json") and name not in library}
    inside = {name for name in found if "." in stems and not name.startswith("../")}
    inside |= {name for name in found for stem in stems if name.startswith(f"{stem}/")}
    return inside | ({*names} & {*stems})
