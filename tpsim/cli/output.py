"""Where an answer goes: stdout in one format, files in the formats of their suffixes."""

from __future__ import annotations

import functools
import os
import sys
from dataclasses import dataclass
from errno import EISDIR
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, Literal, ParamSpec

import click

from tpsim.quantity.errors import InputError, suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tpsim.report.answer import Answer
    from tpsim.report.table import Document

Format = Literal["table", "json", "csv", "md", "yaml"]
KEPT = "\b\n"
"""The character after which click keeps the lines of a help text; a docstring writes it as backslash and b."""

FORMATS: tuple[Format, ...] = ("table", "json", "csv", "md")
SUFFIXES: Mapping[str, Format] = {".txt": "table", ".json": "json", ".csv": "csv", ".md": "md", ".yaml": "yaml"}
"""A format per suffix; YAML is only what an answer is as a file of its own, as a fitted profile."""


@dataclass(frozen=True, slots=True)
class Output:
    """How and where the answer is wanted.

    files    each in the format of its suffix, beside what stdout gets
    quiet    of a table only the verdict; no messages
    verbose  also formulas and reasons
    """

    files: tuple[Path, ...] = ()
    format: Format = "table"
    quiet: bool = False
    verbose: bool = False
    color: str = "auto"

    def write(self, answer: Answer, document: Callable[[bool], Document]) -> None:
        """Write `answer` everywhere it is wanted. `document` makes what tables and Markdown show, given `verbose`."""
        pages = {
            file: _text(answer, document, SUFFIXES[file.suffix], verbose=self.verbose, folder=file.parent)
            for file in self.files
        }
        write_files(pages)
        for file in pages:
            self.say(f"wrote {file}")
        if self.format != "table":
            sys.stdout.write(_text(answer, document, self.format, verbose=self.verbose))
        else:
            from tpsim.report import table, terminal

            page = document(self.verbose and not self.quiet)
            terminal.write(table.Document(page.lines) if self.quiet else page, sys.stdout, self.color)

    def say(self, message: str) -> None:
        """A message on stderr, unless quiet."""
        if not self.quiet:
            click.echo(message, err=True)


def _text(
    answer: Answer, document: Callable[[bool], Document], form: Format, *, verbose: bool, folder: Path = Path()
) -> str:
    """`answer` in one format, to stand in `folder`. Whatever a file or a pipe gets is never cut and never coloured."""
    if form == "json":
        from tpsim.report import json

        return json.text(answer.to_json())
    if form == "yaml":
        return str(answer.to_yaml(folder))  # type: ignore[attr-defined]  # asked only of those that have it
    if form == "csv":
        from tpsim.report import csv

        return csv.text(answer.records(), getattr(answer, "columns", ()))
    if form == "md":
        from tpsim.report import markdown

        return markdown.text(document(True))
    from io import StringIO

    from tpsim.report import terminal

    page = StringIO()
    terminal.write(document(verbose), page, "never")
    return page.getvalue()


def write_file(path: Path, text: str) -> None:
    """Replace `path` by `text` in one step; see `write_files`."""
    write_files({path: text})


def write_files(pages: Mapping[Path, str]) -> None:
    """Replace every path by its text: whoever reads one finds the old file or the new one, never half of it.

    All are written beside their places first, so that one that cannot be written leaves the others as they were.
    Raises InputError if one cannot be written.
    """
    _refuse_aliases(pages)
    staged: dict[Path, Path] = {}
    try:
        for path, text in pages.items():
            _stage(path, text, staged)
        for path, temporary in staged.items():
            temporary.replace(path.resolve())
    except OSError as error:
        message = f"{path}: {error.strerror}"
        raise InputError.one("cannot-write", message, remedy="name a file in a folder that you may write to") from error
    finally:
        for temporary in staged.values():
            temporary.unlink(missing_ok=True)


def _refuse_aliases(pages: Mapping[Path, str]) -> None:
    """Two names of one file ask for two contents of it."""
    for path in pages:
        twins = [other for other in pages if other != path and os.path.realpath(other) == os.path.realpath(path)]
        if twins:
            raise InputError.one("same-file", f"{path} and {twins[0]} are one file", remedy="name each file once")


def _stage(path: Path, text: str, staged: dict[Path, Path]) -> None:
    """Write `text` beside the file that `path` leads to, with its permissions; `staged` knows it from the start."""
    place = path.resolve()
    if place.is_dir():
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR), str(path))
    with NamedTemporaryFile(
        "w", encoding="utf-8", newline="\n", dir=place.parent, prefix=".tpsim-", delete=False
    ) as page:
        staged[path] = Path(page.name)
        page.write(text)
    staged[path].chmod(place.stat().st_mode & 0o7777 if place.exists() else 0o666 & ~_umask())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


P = ParamSpec("P")


def output_options(command: Callable[P, None]) -> Callable[..., None]:
    """Give `command` the options that every verb has; it gets them as one `output`."""
    return _with_output(command, FORMATS)


def output_options_and_yaml(command: Callable[P, None]) -> Callable[..., None]:
    """The same for a command whose answer is a file of its own, too: it has `to_yaml`."""
    return _with_output(command, (*FORMATS, "yaml"))


def _with_output(command: Callable[P, None], formats: tuple[Format, ...]) -> Callable[..., None]:
    suffixes = [suffix for suffix, form in SUFFIXES.items() if form in formats]

    @click.option(
        "-o", "--output", "files", multiple=True, metavar="FILE", help=f"Also write FILE: {_listed(suffixes)}."
    )
    @click.option("-f", "--format", "form", type=click.Choice(formats), default="table", help="What stdout gets.")
    @click.option("-q", "--quiet", is_flag=True, help="The verdict only, and no messages.")
    @click.option("-v", "--verbose", is_flag=True, help="Also formulas and reasons.")
    @click.option("--color", type=click.Choice(("auto", "always", "never")), default="auto", help="Colours.")
    @click.option("--traceback", is_flag=True, expose_value=False, hidden=True, help="Where a bug happened.")
    @functools.wraps(command)
    def wrapped(
        *args: Any, files: tuple[str, ...], form: Format, quiet: bool, verbose: bool, color: str, **kwargs: Any
    ) -> None:
        output = Output(tuple(_file(name, suffixes) for name in files), form, quiet, verbose, color)
        command(*args, output=output, **kwargs)  # type: ignore[arg-type]

    wrapped.__doc__ = (command.__doc__ or "").replace("\\b\n", KEPT)
    return wrapped


def _listed(suffixes: Sequence[str]) -> str:
    """The suffixes as the help lists them, what scripts read first."""
    return " ".join(sorted(suffixes, key=[".yaml", ".json", ".csv", ".md", ".txt"].index))


def _file(name: str, suffixes: Sequence[str]) -> Path:
    if "\0" in name:
        raise InputError.one("cannot-write", f"{name}: no file can be called that", remedy="give it another name")
    path = Path(name)
    if path.suffix not in suffixes:
        near = suggest(path.suffix, suffixes) if path.suffix else None
        raise InputError.one(
            "unknown-format",
            f"{name}: the suffix says no format",
            remedy=f"did you mean {path.with_suffix(near)}?" if near else "suffixes: " + ", ".join(suffixes),
        )
    return path
