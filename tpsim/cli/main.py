"""The entry point: runs the verb and turns whatever happens into an exit code, and each mistake into one shape.

0 answered, 1 ran fine and the answer is "no", 2 the request is wrong, 3 a bug in tpsim, 130 interrupted. Verbs load
when they are called, and a mistyped one is answered with the nearest.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any

import click

from tpsim import VERBS, __version__
from tpsim.quantity.errors import COMMAND_LINE, InputError, Place, TpsimError, did_you_mean


@click.pass_context
def _help_alone(ctx: click.Context) -> None:
    """What a group does without a command."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


class Suggesting(click.Group):
    """A group that names the nearest command when there is no such one; click does that for options only."""

    def __init__(self, name: str, **settings: Any) -> None:
        super().__init__(name, callback=_help_alone, invoke_without_command=True, **settings)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that `args` begin with. Raises InputError."""
        word, known = args[0], self.list_commands(ctx)
        if not word.startswith("-") and self.get_command(ctx, word) is None:
            message = f'"{word}" is not a command of {ctx.command_path}'
            remedy = did_you_mean(word, known, form=f"{ctx.command_path} {{}}")
            raise InputError.one("unknown-command", message, remedy=remedy, note="commands: " + ", ".join(known))
        return super().resolve_command(ctx, args)


class Verbs(Suggesting):
    """The verbs, of which only the one called is imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        """The names of all verbs."""
        return [verb.name for verb in VERBS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a verb, imported now; None if there is no such verb."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = getattr(import_module(f"tpsim.cli.{cmd_name}"), cmd_name)
        return command

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Read the command line; its help is printed here."""
        with _to_stdout():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> object:
        """Run the verb."""
        with _to_stdout():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The verbs by help group."""
        for section in dict.fromkeys(verb.section for verb in VERBS):
            with formatter.section(section):
                formatter.write_dl([(verb.name, verb.answers) for verb in VERBS if verb.section == section], col_max=12)


@contextmanager
def _to_stdout() -> Iterator[None]:
    """Write to a stdout that may take no more.

    A reader that has read enough (``| head``) is no mistake, though click takes it for one. Raises InputError for one
    that is closed, for a full disk, and for a letter that it has not.
    """
    if sys.stdout is None:
        raise InputError.one("cannot-write", "stdout is closed", remedy="send it to a file, or to /dev/null")
    try:
        yield
    except UnicodeEncodeError as error:
        message = f"stdout is {error.encoding}, which has no {error.object[error.start]!r}"
        raise InputError.one("cannot-write", message, remedy="set PYTHONIOENCODING=utf-8") from None
    except OSError as error:
        if error.filename is not None or isinstance(error, FileNotFoundError):
            raise  # of a file, or of a current folder that is gone
        # What is still to be written would fail again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise click.exceptions.Exit(0) from None
        raise InputError.one("cannot-write", f"stdout: {error.strerror}", remedy="send it elsewhere") from None


ANSWERED, BUG, INTERRUPTED = 0, 3, 130


tpsim = click.version_option(__version__, message="tpsim %(version)s")(
    Verbs(
        "tpsim",
        help="What a sharding of a model over a machine costs, derived and shown.",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        epilog="Start with: tpsim plan qwen2-7b-h100",
    )
)


def run(args: Sequence[str]) -> int:
    """Run one command line; its exit code."""
    try:
        return tpsim.main(args=list(args), prog_name="tpsim", standalone_mode=False) or ANSWERED
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  # the last stop: what is no mistake of a request is a bug of ours
        from tpsim.cli.output import tell

        known = in_one_shape(error, args)
        if known is None and KeyboardInterrupt.__name__ in str(error):
            return INTERRUPTED  # as pydantic tells it while it builds what reads a file
        if known is None and "--traceback" in args:
            import traceback

            traceback.print_exception(error)
        tell(str(known or _bug(error)))
        return known.exit_code if known else BUG


def _bug(error: Exception) -> str:
    text = " ".join(str(error).split())
    return (
        f"error[bug]: {type(error).__name__}{': ' if text else ''}{text}\n"
        "  = this is a mistake in tpsim, not in your request; --traceback shows where"
    )


def in_one_shape(error: Exception, args: Sequence[str] = ()) -> TpsimError | None:
    """What the command line says of `error`, files of the library named as the library does; None for a bug of ours.

    args  the command line
    """
    known: TpsimError | None = error if isinstance(error, TpsimError) else None
    if isinstance(error, click.ClickException):
        known = _of_the_command_line(error, args)
    elif isinstance(error, OSError | MemoryError):
        known = _of_the_system(error)
    known = known and of_the_notation(known)
    if not isinstance(known, InputError):
        return known
    from tpsim.question.inputs import shown

    places = [problem.place and replace(problem.place, file=shown(problem.place.file)) for problem in known.problems]
    return InputError(replace(problem, place=place) for problem, place in zip(known.problems, places, strict=True))


def of_the_notation(error: TpsimError) -> TpsimError:
    """What is wrong with an expression, or with sizes beside it, shown as a place in the command line."""
    from tpsim.algebra.notation import NotationError

    if not isinstance(error, NotationError):
        return error
    start, end = error.span
    place = Place(COMMAND_LINE, 1, start + 1, " ".join(error.text.splitlines()), max(1, end - start))
    return InputError.one(error.slug, error.message, place, error.remedy)


def _of_the_system(error: OSError | MemoryError) -> InputError | None:
    """What the system says of a path that was given, of the current folder, or of memory; None for anything else."""
    if isinstance(error, MemoryError):
        return InputError.one("too-large", "there is not enough memory for this", remedy="ask for something smaller")
    if error.filename:
        message = f"{error.filename} cannot be used: {error.strerror}"
        return InputError.one("unreadable-file", message, remedy="check its permissions and its name")
    if isinstance(error, FileNotFoundError):
        return InputError.one("no-such-file", "the current folder is gone", remedy="go to one that is there")
    return None


def _of_the_command_line(error: click.ClickException, args: Sequence[str] = ()) -> InputError:
    """What click says, with a remedy where there is one."""
    from tpsim.cli.mistakes import of_click

    ctx = getattr(error, "ctx", None)
    asked = next((arg for arg in args if arg in {verb.name for verb in VERBS}), "") if ctx is None else ""
    command = tpsim.get_command(click.Context(tpsim), asked) if asked else ctx and ctx.command
    return of_click(error, command, ctx.command_path if ctx else " ".join(filter(None, ["tpsim", asked])))
