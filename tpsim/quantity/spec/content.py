"""The bytes of a file or of standard input, or what helps somebody whose file is not there."""

from __future__ import annotations

import sys
from pathlib import Path
from stat import S_ISFIFO

from tpsim.quantity.errors import InputError, suggest


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
        _refuse_pipe(path)
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


def _refuse_pipe(path: Path) -> None:
    """Nobody may ever write into a named pipe, and reading would wait; those that a shell makes are fed."""
    if S_ISFIFO(path.stat().st_mode) and not str(path).startswith(("/dev/fd/", "/proc/")):
        raise InputError.one("unreadable-file", f"{path} is a pipe", remedy="give standard input instead, as -")


def _absent(path: Path) -> str:
    """What helps somebody whose file is not there."""
    if path.is_symlink():
        return f"it is a link to {path.readlink()}, which is not there"
    near = suggest(path.stem, _siblings(path))
    return f'did you mean "{path.with_stem(near)}"?' if near else "check the folder and the name"


def _siblings(path: Path) -> list[str]:
    """Files in the folder of a path that could have been meant, less the suffix that they share with it."""
    try:
        return sorted(other.stem for other in path.parent.iterdir() if other.suffix == path.suffix)
    except (OSError, ValueError):
        return []
