"""The command group: verbs load when they are called, and a mistyped one is answered with the nearest."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from tpsim import VERBS
from tpsim.quantity.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator


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
