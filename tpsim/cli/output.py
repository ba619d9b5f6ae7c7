"""Where an answer goes: stdout in one format, files in the formats of their suffixes."""

from __future__ import annotations

import functools
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from errno import EINVAL, EISDIR, ELOOP
from importlib.util import find_spec
from pathlib import Path
from shutil import get_terminal_size
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import click

from tpsim import __version__
from tpsim.cli import options
from tpsim.printable import printable
from tpsim.quantity.errors import InputError, suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tpsim.report.answer import Answer
    from tpsim.report.table import Page

Format = Literal["table", "json", "csv", "md", "html", "yaml", "trace"]
KEPT = "\b\n"
"""The character after which click keeps the lines of a help text; a docstring writes it as backslash and b."""

ERASED = "\r\033[K"
"""What takes away what stands in the line of a terminal."""

NO = 1
"""The exit code where the answer is "no"."""

FORMATS: tuple[Format, ...] = ("table", "json", "csv", "md", "html")
SUFFIXES: Mapping[str, Format] = {
    ".trace.json": "trace",
    ".txt": "table",
    ".json": "json",
    ".csv": "csv",
    ".md": "md",
    ".html": "html",
    ".yaml": "yaml",
}
"""A format per suffix; YAML is only what an answer is as a file of its own, as a fitted profile; a trace a plan."""

A_contra = TypeVar("A_contra", bound="Answer", contravariant=True)


class MakePage(Protocol[A_contra]):
    """What makes an answer's page, as those of `tpsim.pages` do."""

    def __call__(self, result: A_contra, /, *, verbose: bool) -> Page:
        """The page; with `verbose` also formulas and reasons."""


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

    def write(
        self,
        answer: A_contra,
        make_page: MakePage[A_contra],
        also: Mapping[Path, str] | None = None,
        *,
        fails: bool = True,
    ) -> None:
        """Write `answer` everywhere it is wanted, files first; the command exits with 1 if the answer is "no".

        make_page  makes what tables and Markdown show of it
        also       files that hold something else, with their texts
        fails      False where "no" is no reason to fail
        """
        page = make_page(answer, verbose=self.verbose and not self.quiet) if self.format == "table" else None
        shown = "" if page else _text(answer, make_page, self.format, verbose=self.verbose)
        self._write_files(answer, make_page, also or {})
        if page:
            from tpsim.report import table, terminal

            page = table.Page(table.Verdict(answer.lines)) if self.quiet else page
            terminal.write(page, sys.stdout, self.color)
        sys.stdout.write(shown)
        sys.stdout.flush()
        if fails and not answer.ok:
            raise click.exceptions.Exit(NO)

    @contextmanager
    def watched(self, elsewhere: Callable[[str], None] = lambda _: None) -> Iterator[Callable[[str], None]]:
        """What shows what is going on: in one line on stderr, only for who watches a terminal, and gone at the end.

        elsewhere  what shows it where nobody does
        """
        if self.quiet or sys.stderr is None or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
            yield elsewhere if not self.quiet else lambda _: None
            return

        def show(text: str) -> None:
            room = get_terminal_size().columns - 1  # what breaks into a second line is not erased with the first
            tell(f"{ERASED}{text if len(text) <= room else f'{text[: room - 3]}...'}", line=False)

        try:
            yield show
        finally:
            tell(ERASED, line=False)

    def _write_files(self, answer: A_contra, make_page: MakePage[A_contra], also: Mapping[Path, str]) -> None:
        pages = {
            file: _text(answer, make_page, SUFFIXES[_suffix(file.name)], verbose=self.verbose, folder=file.parent)
            for file in self.files
        }
        # Path.exists raises for a name that is too long.
        known = [path for path in (*pages, *also) if os.path.exists(path)]  # noqa: PTH110
        if any(path in pages for path in known):
            refuse_inputs(pages, (path for path, _ in answer.files))
        write_files([*pages.items(), *also.items()])
        for path in (*pages, *also):
            if not self.quiet:
                tell(f"{'replaced' if path in known else 'wrote'} {printable(str(path))}")


def counting(show: Callable[[str], None]) -> Callable[[int, int, str], None]:
    """What shows things done, of how many, and what they are."""
    return lambda done, of, what: show(f"{done:,} of {of:,} {what}")


def tell(message: str, *, line: bool = True) -> None:
    """A message on stderr; none if nobody can read it there.

    line  False: the next message goes on where this one ends
    """
    try:
        click.echo(message, err=True, nl=line)
    except OSError:
        # What is still to be written would fail again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _text(
    answer: A_contra, make_page: MakePage[A_contra], form: Format, *, verbose: bool, folder: Path = Path()
) -> str:
    """`answer` in one format, to stand in `folder`. Whatever a file or a pipe gets is never cut and never coloured."""
    if form in ("json", "trace"):
        from tpsim.report.formats import NoNumber, json_text

        try:
            return json_text(answer.to_json() if form == "json" else answer.to_trace())  # type: ignore[attr-defined]
        except NoNumber as error:
            message = f"{error}, which JSON has no number for"
            raise InputError.one("no-number", message, remedy="ask of smaller sizes, or of faster machines") from None
    if form == "yaml":
        return str(answer.to_yaml(folder))  # type: ignore[attr-defined]  # asked only of those that have it
    if form == "csv":
        from tpsim.report.formats import csv_text

        return csv_text(answer.records(), answer.columns)
    if form == "md":
        from tpsim.report import markdown

        return markdown.text(make_page(answer, verbose=True))
    if form == "html":
        from tpsim.report import html

        return html.text(make_page(answer, verbose=True), __version__)
    from io import StringIO

    from tpsim.report import terminal

    stream = StringIO()
    terminal.write(make_page(answer, verbose=verbose), stream, "never")
    return stream.getvalue()


def write_files(pages: Sequence[tuple[Path, str]]) -> None:
    """Replace every path by its text: whoever reads one finds the old file or the new one, never half of it.

    All are written beside their places first, so that one that cannot be written leaves the others as they were.
    Raises InputError if one cannot be written.
    """
    _refuse_aliases([path for path, _ in pages])
    staged: dict[Path, Path] = {}
    try:
        for path, text in pages:
            _stage(path, text, staged)
        for path, temporary in staged.items():
            temporary.replace(_place(path))
    except OSError as error:
        message = f"{path}: {error.strerror}"
        raise InputError.one("cannot-write", message, remedy="name a file in a folder that you may write to") from error
    except UnicodeEncodeError as error:
        message = f"{path}: {error.object[error.start]!r} is no character of a text"
        raise InputError.one("cannot-write", message, remedy="give your files names in UTF-8") from error
    finally:
        for temporary in staged.values():
            temporary.unlink(missing_ok=True)


def _refuse_aliases(paths: Sequence[Path]) -> None:
    """Two names of one file ask for two contents of it."""
    named: dict[str, Path] = {}
    for path in paths:
        twin = named.setdefault(os.path.realpath(path), path)
        if twin is not path:
            raise InputError.one("same-file", f"{twin} and {path} are one file", remedy="name each file once")


def refuse_inputs(paths: Iterable[Path], inputs: Iterable[str]) -> None:
    """Refuse to write over a file that the answer was made of: it could not be given again. And into ``-``."""
    read = {os.path.realpath(path) for path in inputs}
    for path in paths:
        if str(path) == "-":
            remedy = "name one: --save scenario.yaml; what stdout gets is -f"
            raise InputError.one("cannot-write", "--save writes a file, and - names none", remedy=remedy)
        if os.path.realpath(path) in read:
            message = f"{path} would be replaced, and the answer is made of it"
            raise InputError.one("same-file", message, remedy="name another file")


def _stage(path: Path, text: str, staged: dict[Path, Path]) -> None:
    """Write `text` beside the file that `path` leads to, with its permissions; `staged` knows it from the start."""
    place = _place(path)
    with NamedTemporaryFile(
        "w", encoding="utf-8", newline="\n", dir=place.parent, prefix=".tpsim-", delete=False
    ) as page:
        staged[path] = Path(page.name)
        page.write(text)
    os.umask(mask := os.umask(0))
    staged[path].chmod(place.stat().st_mode & 0o7777 if place.exists() else 0o666 & ~mask)


def _place(path: Path) -> Path:
    """The file that `path` leads to. Raises OSError where no file can stand."""
    place = Path(os.path.realpath(path))
    if place.is_symlink():
        raise OSError(ELOOP, os.strerror(ELOOP))
    if place.is_dir():
        raise OSError(EISDIR, os.strerror(EISDIR))
    if place.exists() and not place.is_file():
        raise OSError(EINVAL, "it is a device or a pipe, and no file")
    return place


def output_options(command: Callable[..., None], formats: Sequence[Format] = FORMATS) -> Callable[..., None]:
    """Give `command` the options that every verb has; it gets them as one `output`.

    formats  with YAML for a command whose answer is a file of its own, too: it has `to_yaml`; of traces `to_trace`
    """
    suffixes = [suffix for suffix, form in SUFFIXES.items() if form in formats]
    listed = " ".join(
        sorted(suffixes, key=[".yaml", ".json", ".csv", ".md", ".html", ".txt", ".trace.json"].index)
    )  # what scripts read first

    @click.option(
        "-o",
        "--output",
        "files",
        multiple=True,
        metavar="FILE",
        shell_complete=options.files,
        help=f"Also write FILE: {listed}.",
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
        if "html" in (form, *(SUFFIXES[_suffix(file.name)] for file in output.files)):
            _refuse_undrawn()
        command(*args, output=output, **kwargs)

    wrapped.__doc__ = (command.__doc__ or "").replace("\\b\n", KEPT)
    return wrapped


def _refuse_undrawn() -> None:
    """Refuse a report where what draws its pictures is not installed, before the work is done."""
    if find_spec("vl_convert") is None:
        message = "what draws the pictures of a report is not installed: vl-convert-python"
        raise InputError.one("missing-library", message, remedy="pip install 'tpsim[report]'")


def _file(name: str, suffixes: Sequence[str]) -> Path:
    if "\0" in name:
        raise InputError.one("cannot-write", f"{name}: no file can be called that", remedy="give it another name")
    path = Path(name)
    suffix = _suffix(path.name)
    if suffix not in suffixes:
        near = suggest(suffix, suffixes) if suffix else None
        stem = name.removesuffix(suffix)
        remedy = f"did you mean {stem}{near}?" if near else "suffixes: " + ", ".join(suffixes)
        remedy = f"pictures stand in a report: {stem}.html" if suffix in PICTURES and ".html" in suffixes else remedy
        remedy = f"stdout gets what -f says: -f json; {remedy}" if name == "-" else remedy
        raise InputError.one("unknown-format", f"{name}: the suffix says no format", remedy=remedy)
    return path


PICTURES = (".svg", ".png", ".jpg", ".jpeg", ".pdf")
"""Suffixes of what nobody but a browser draws."""


def _suffix(name: str) -> str:
    """What a file's name says of its format, known or not."""
    return next((suffix for suffix in SUFFIXES if name.endswith(suffix)), Path(name).suffix)
