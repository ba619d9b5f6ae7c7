"""Files by name, of those that tpsim ships or is pointed to: machines, scenarios, models; and the bytes of any."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from stat import S_ISFIFO
from typing import Literal, NamedTuple

from tpsim.quantity.errors import FEW, InputError, did_you_mean, listed, near, suggest, unknown

LibraryKind = Literal["hardware", "chips", "scenarios", "models"]


class _Kind(NamedTuple):
    """What the files of one kind are called, and where they lie.

    header  what each says that it is: ``tpsim: model/1``
    lister  the command that lists them
    asked   the flags that ask for the step of one without a scenario
    """

    folder: str
    noun: str
    header: str
    lister: str = ""
    asked: str = ""


_KINDS: dict[LibraryKind, _Kind] = {
    "hardware": _Kind("hardware", "machine", "hardware", "tpsim hw list", "--model llama-3-8b --hw {} --seq 4096"),
    "chips": _Kind("hardware/chips", "chip", "chip", "tpsim hw list -v"),
    "scenarios": _Kind("scenarios", "scenario", "scenario", "tpsim scenario list"),
    "models": _Kind("scenarios/models", "model", "model", "tpsim model list", "--model {} --hw dgx-h100 --seq 4096"),
}

_PACKAGE = Path(__file__).parents[2]

SUFFIXES = (".yaml", ".yml", ".json")


def is_path(text: str) -> bool:
    """True if `text` names a file (or ``-``, standard input) rather than something in the library."""
    return text == "-" or "/" in text or "\\" in text or text.endswith(SUFFIXES)


def library(kind: LibraryKind) -> list[Path]:
    """The folders that hold files of this kind, in the order in which they are searched.

    The shipped files first (in the package, or beside it in a checkout), then each folder of ``TPSIM_PATH``: there,
    both the folder itself and the one in it that is called like the kind.
    """
    inside = _KINDS[kind].folder
    own = [folder for entry in _own() for folder in (entry / inside, entry)]
    return [shipped(kind), *[folder for folder in own if folder.is_dir()]]


def _own() -> list[Path]:
    """The folders that ``TPSIM_PATH`` names, there or not."""
    return [Path(entry) for entry in os.environ.get("TPSIM_PATH", "").split(os.pathsep) if entry]


def shipped(kind: LibraryKind) -> Path:
    """The folder that tpsim itself ships for this kind: in the package, or beside it in a checkout."""
    folders = [root / _KINDS[kind].folder for root in (_PACKAGE / "_data", _PACKAGE.parent)]
    return next(folder for folder in folders if folder.is_dir())


def is_shipped(kinds: Sequence[LibraryKind], path: Path | str) -> bool:
    """True for a file of the folders that tpsim itself ships for these kinds."""
    return Path(path).resolve().parent in {shipped(kind).resolve() for kind in kinds}


def names(kind: LibraryKind) -> list[str]:
    """Names of all files of this kind, sorted."""
    return sorted(_files(kind))


def _files(kind: LibraryKind) -> dict[str, Path]:
    """All files of this kind by name, of several of one name the first; folders of TPSIM_PATH have others beside."""
    found: dict[str, Path] = {}
    ours = shipped(kind)
    for folder in library(kind):
        for file in os.scandir(folder):  # a glob takes three times as long
            name = file.name.removesuffix(".yaml")
            if name != file.name and name not in found and file.is_file() and (folder == ours or _is(kind, file.path)):
                found[name] = folder / file.name
    return found


def holds(kind: LibraryKind, path: str) -> bool:
    """True if a file is one of that kind of the library, or says that it is no other."""
    folder = Path(path).parent
    return folder in library(kind) and (folder == shipped(kind) or _is(kind, path))


def _is(kind: LibraryKind, path: str) -> bool:
    """False for a file that says that it is of another kind."""
    try:
        said = re.search(rb"""^tpsim: *["']?([a-z]+)/""", Path(path).read_bytes(), re.MULTILINE)
    except OSError:
        return True
    return said is None or said[1].decode() == _KINDS[kind].header


def named(kind: LibraryKind, text: str, beside: Path = Path()) -> Path:
    """The file that `text` names: one of the library, or a path from the folder `beside`; ``-`` is standard input.

    beside  the folder of the file that states it

    Raises InputError for a name that the library has not.
    """
    if not is_path(text):
        return find(kind, text, beside=beside)
    return Path(text) if text == "-" else beside / text


def path_from(folder: Path, path: str) -> str:
    """How a file in `folder` names the one at `path`, so that it is found from wherever the first is read.

    A path from the root stays as it is. Links are followed, since the system goes up from where they lead.
    """
    if path == "-" or Path(path).is_absolute():
        return path
    way = os.path.relpath(os.path.realpath(path), os.path.realpath(folder))
    return way if way.startswith(".") else f"./{way}"


def asked_by_flags(header: str, name: str) -> str:
    """What somebody wants who names another thing, or gives its file, in the place of a scenario."""
    flags = next((known.asked for known in _KINDS.values() if known.header == header), "")
    return f"ask of it by flags: {flags.format(name)}" if flags else ""


def find(kind: LibraryKind, name: str, beside: Path = Path()) -> Path:
    """The file of that name, which is the file's name without ``.yaml``; case counts.

    beside  where a file could have been meant

    Raises InputError with the nearest name, or with what else is called that.
    """
    files = _files(kind)
    if name in files:
        return files[name]
    known, own = sorted(files), _KINDS[kind]
    problem = f"unknown-{own.noun}"
    # Machines bear the names of their chips: who misses one is told of machines.
    others = [other for other in _KINDS if other != kind and (kind, other) != ("hardware", "chips")]
    other = next((_KINDS[other_kind] for other_kind in others if name in names(other_kind)), None)
    if other is not None:
        message = f'"{name}" is a {other.noun}, not a {own.noun}'
        asked = asked_by_flags(other.header, name) if kind == "scenarios" else ""
        some = listed(name, known, own.lister, told=not asked)
        note = some if not asked or near(name, known) or len(known) <= FEW else ""
        raise InputError.one(problem, message, None, asked or did_you_mean(name, known), note)
    file = next((name + suffix for suffix in SUFFIXES if (beside / f"{name}{suffix}").is_file()), "")
    folder = kind == "models" and (beside / name / "config.json").is_file()
    if file or folder:
        remedy = f"there is a file of that name, named with its suffix: {file}"
        remedy = remedy if file else f"there is a folder of that name, named with a slash: ./{name}"
        raise InputError.one(problem, f'"{name}" is not a {own.noun}', remedy=remedy)
    remedy = "a file is named with its folder: ./my-file.yaml"
    error = unknown(name, own.noun, bases_first(kind), None, remedy, lister=own.lister)
    gone = [str(folder) for folder in _own() if not folder.is_dir()]
    notes = [error.problems[0].note, *([f"no folder, though TPSIM_PATH has it: {', '.join(gone)}"] if gone else [])]
    raise InputError([replace(error.problems[0], note="\n".join(notes))])


def bases_first(kind: LibraryKind) -> list[str]:
    """All names, those first that most others extend: who writes ``h100`` means the machine that the others vary."""
    files = [path for folder in library(kind) for path in folder.glob("*.yaml")]
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in files]
    extended = Counter(name for text in texts for name in re.findall(r"^extends: *(\S+)", text, re.MULTILINE))
    return sorted(names(kind), key=lambda name: -extended[name])


def content(source: Path | str, most: int) -> bytes:
    """The bytes of the file at a path, ``-`` for standard input; of more than so many one more.

    Raises InputError if there is no such file, or if it cannot be read.
    """
    return _standard_input(most + 1) if str(source) == "-" else _file(Path(source), most + 1)


def _standard_input(most: int) -> bytes:
    if sys.stdin is None:
        raise InputError.one("unreadable-file", "standard input is closed", remedy="give a file instead of -")
    try:
        return sys.stdin.buffer.read(most)
    except OSError as error:
        message = f"standard input cannot be read: {error.strerror}"
        raise InputError.one("unreadable-file", message, remedy="give a file instead of -") from None


def _file(path: Path, most: int) -> bytes:
    try:
        # nobody may ever write into a named pipe, and reading would wait; those that a shell makes are fed
        if S_ISFIFO(path.stat().st_mode) and not str(path).startswith(("/dev/fd/", "/proc/")):
            raise InputError.one("unreadable-file", f"{path} is a pipe", remedy="give standard input instead, as -")
        with path.open("rb") as file:
            return file.read(most)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise InputError.one("no-such-file", f"there is no file {path}", remedy=_absent(path)) from None
    except IsADirectoryError:
        message = f"{path} is a folder, not a file"
        raise InputError.one("no-such-file", message, remedy="name a file in it") from None
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}"
        raise InputError.one("unreadable-file", message, remedy="check its permissions and its name") from None


def _absent(path: Path) -> str:
    """What helps somebody whose file is not there."""
    if {"http:", "https:"} & {*path.parts}:
        return "nothing is read from a network: give a file, of a model of Hugging Face its config.json"
    if any(part == "~" or part.startswith("$") for part in path.parts):
        return "write the whole path: no ~ and no variable is read"
    if path.is_symlink():
        return f"it is a link to {path.readlink()}, which is not there"
    twin = next((twin for suffix in SUFFIXES if (twin := path.with_name(path.stem + suffix)).is_file()), None)
    if twin and path.suffix in SUFFIXES:
        return f'did you mean "{twin}"?'
    meant = suggest(path.stem, _siblings(path))
    return f'did you mean "{path.with_stem(meant)}"?' if meant else "check the folder and the name"


def _siblings(path: Path) -> list[str]:
    """Files in the folder of a path that could have been meant, less the suffix that they share with it."""
    try:
        return sorted(other.stem for other in path.parent.iterdir() if other.suffix == path.suffix)
    except (OSError, ValueError):
        return []
