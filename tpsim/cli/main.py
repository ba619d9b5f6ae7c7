"""The entry point: runs the verb and turns whatever happens into an exit code, and each mistake into one shape.

0 answered, 1 ran fine and the answer is "no", 2 the request is wrong, 3 a bug in tpsim, 130 interrupted. Verbs load
when they are called, and a mistyped one is answered with the nearest.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from tpsim import VERBS, __version__
from tpsim.quantity.errors import InputError, Place, TpsimError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


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

        known = in_one_shape(error)
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


def in_one_shape(error: Exception) -> TpsimError | None:
    """What the command line says of `error`, files of the library named as the library does; None for a bug of ours."""
    known: TpsimError | None = error if isinstance(error, TpsimError) else None
    if isinstance(error, click.ClickException):
        known = _of_the_command_line(error)
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
    place = Place("command line", 1, start + 1, " ".join(error.text.splitlines()), max(1, end - start))
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


def _of_the_command_line(error: click.ClickException) -> InputError:
    """What click says, with a remedy where there is one."""
    ctx, param = getattr(error, "ctx", None), getattr(error, "param", None)
    verb = ctx.command_path if ctx else "tpsim"
    see_help = f"see {verb} --help"
    if isinstance(error, click.NoSuchOption):
        options = [
            name
            for parameter in (ctx.command.params if ctx else ())
            for name in (*parameter.opts, *parameter.secondary_opts)
        ]
        known = [name for name in options if name.startswith("--")]
        return _no_such_option(error.option_name, verb, known, see_help)
    if isinstance(error, click.MissingParameter):
        named = param and (param.opts[0] if isinstance(param, click.Option) else param.human_readable_name)
        return InputError.one("missing-argument", f"{verb} needs {named or error.param_hint}", remedy=see_help)
    if isinstance(error, click.BadParameter) and param and isinstance(param.type, click.Choice):
        choices = [str(choice) for choice in param.type.choices]
        word = next((word for word in error.message.split("'")[1::2] if word not in choices), "")
        message, note = f'"{word}" is not a value of {param.opts[-1]}', "values: " + ", ".join(choices)
        return InputError.one("bad-value", message, remedy=did_you_mean(word, choices, form="{}"), note=note)
    if verb.endswith(" search") and param and (several := re.search(r"'(\d+(?:,\d+)+)'", error.format_message())):
        see_help = f"search several: --vary {param.name}={several[1]}"
    slugs = {click.BadOptionUsage: "bad-option", click.FileError: "no-file", click.BadParameter: "bad-value"}
    return InputError.one(slugs.get(type(error), "bad-usage"), _sentence(error.format_message()), remedy=see_help)


def _no_such_option(word: str, verb: str, known: Sequence[str], see_help: str) -> InputError:
    from tpsim.question.foreign_names import not_yet

    message = f"{word} is not an option of {verb}"
    if ours := _as_tpsim_says(word, known):
        return InputError.one("foreign-option", message, remedy=f"tpsim calls this {ours}")
    if feature := not_yet(word):
        return InputError.one("not-supported-yet", message, remedy=f"{feature} is not supported yet")
    return InputError.one("unknown-option", message, remedy=did_you_mean(word, known, see_help, form="{}"))


def _as_tpsim_says(word: str, known: Sequence[str]) -> str:
    """The flag for another framework's name, or for a field of a scenario, if it is among the known ones; else ""."""
    from tpsim.question.edits import FLAGS
    from tpsim.question.foreign_names import as_field, foreign_name

    foreign, own = foreign_name(word), {path.rpartition(".")[2]: path for path in FLAGS}
    path, comma, rest = (foreign or own.get(as_field(word), "")).partition(",")
    if FLAGS.get(path) in known:
        return f"{FLAGS[path]}{comma}{rest}"
    return f"{path}{comma}{rest}: --set {path}=..." if foreign and "--set" in known else ""


def _sentence(message: str) -> str:
    """Click's message without the capital and the full stop of a sentence."""
    lines = [line.strip() for line in message.splitlines()]
    text = " ".join(line for line in lines if line).rstrip(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
