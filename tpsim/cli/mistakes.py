"""A wrong command line, answered in the same shape as a wrong file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from tpsim.quantity.errors import InputError, Place, suggest

if TYPE_CHECKING:
    from collections.abc import Sequence


def as_input_error(error: click.ClickException) -> InputError:
    """`error` as tpsim's own, with a remedy where there is one."""
    from tpsim.cli.group import NoSuchCommand

    if isinstance(error, click.NoSuchOption):
        return _no_such_option(error)
    if isinstance(error, NoSuchCommand):
        return _no_such_command(error)
    if isinstance(error, click.MissingParameter):
        return _missing(error)
    if isinstance(error, click.BadParameter) and isinstance(getattr(error.param, "type", None), click.Choice):
        return _bad_choice(error)
    slug = {click.BadOptionUsage: "bad-option", click.FileError: "no-file"}.get(type(error), "bad-usage")
    if isinstance(error, click.BadParameter):
        slug = "bad-value"
    ctx = getattr(error, "ctx", None)
    return InputError.one(slug, _sentence(error.format_message()), remedy=_see_help(ctx))


def of_the_notation(error: Exception) -> Exception:
    """What is wrong with an expression, or with sizes beside it, shown as a place in the command line."""
    from tpsim.algebra.notation import NotationError

    if not isinstance(error, NotationError):
        return error
    start, end = error.span
    place = Place("command line", 1, start + 1, " ".join(error.text.splitlines()), max(1, end - start))
    return InputError.one(error.slug, error.message, place, error.remedy)


def named_by_library(error: Exception) -> Exception:
    """The error with files of the library named as the library names them, wherever tpsim is installed."""
    from tpsim.question.inputs import shown

    if not isinstance(error, InputError):
        return error
    places = [one.place and replace(one.place, file=shown(one.place.file)) for one in error.problems]
    return InputError(replace(one, place=place) for one, place in zip(error.problems, places, strict=True))


def of_the_system(error: OSError | MemoryError) -> InputError | None:
    """What the system says of a path that was given, of the current folder, or of memory; None for anything else."""
    if isinstance(error, MemoryError):
        return InputError.one("too-large", "there is not enough memory for this", remedy="ask for something smaller")
    if error.filename:
        message = f"{error.filename} cannot be used: {error.strerror}"
        return InputError.one("unreadable-file", message, remedy="check its permissions and its name")
    if isinstance(error, FileNotFoundError):
        return InputError.one("no-such-file", "the current folder is gone", remedy="go to one that is there")
    return None


def _no_such_option(error: click.NoSuchOption) -> InputError:
    verb, word = _verb(error.ctx), error.option_name
    message = f"{word} is not an option of {verb}"
    from tpsim.question.foreign import not_yet

    feature, known = not_yet(word), _options(error.ctx)
    if ours := _as_tpsim_says(word, known):
        return InputError.one("foreign-option", message, remedy=f"tpsim calls this {ours}")
    if feature:
        return InputError.one("not-supported-yet", message, remedy=f"{feature} is not supported yet")
    near = suggest(word, known)
    remedy = f"did you mean {near}?" if near else _see_help(error.ctx)
    return InputError.one("unknown-option", message, remedy=remedy)


def _as_tpsim_says(word: str, known: Sequence[str]) -> str:
    """The flag for another framework's name, or for a field of a scenario, if it is among the known ones; else ""."""
    from tpsim.question.edits import FLAGS
    from tpsim.question.foreign import as_field, foreign_name

    foreign, own = foreign_name(word), {path.rpartition(".")[2]: path for path in FLAGS}
    path, comma, how = (foreign or own.get(as_field(word), "")).partition(",")
    if FLAGS.get(path) in known:
        return f"{FLAGS[path]}{comma}{how}"
    return f"{path}{comma}{how}: --set {path}=..." if foreign and "--set" in known else ""


def _no_such_command(error: object) -> InputError:
    from tpsim.cli.group import NoSuchCommand

    if not isinstance(error, NoSuchCommand):
        raise TypeError(error)
    near = suggest(error.word, error.known)
    return InputError.one(
        "unknown-command",
        f'"{error.word}" is not a command of {_verb(error.ctx)}',
        remedy=f"did you mean {_verb(error.ctx)} {near}?" if near else "",
        note="commands: " + ", ".join(error.known),
    )


def _bad_choice(error: click.BadParameter) -> InputError:
    """A value that is none of a few: the nearest of them, and all."""
    if error.param is None or not isinstance(error.param.type, click.Choice):
        raise TypeError(error)
    choices = [str(choice) for choice in error.param.type.choices]
    word = next((word for word in error.message.split("'")[1::2] if word not in choices), "")
    near = suggest(word, choices)
    return InputError.one(
        "bad-value",
        f'"{word}" is not a value of {error.param.opts[-1]}',
        remedy=f"did you mean {near}?" if near else "",
        note="values: " + ", ".join(choices),
    )


def _missing(error: click.MissingParameter) -> InputError:
    param = error.param
    named = (
        error.param_hint
        if param is None
        else param.opts[0]
        if isinstance(param, click.Option)
        else param.human_readable_name
    )
    return InputError.one("missing-argument", f"{_verb(error.ctx)} needs {named}", remedy=_see_help(error.ctx))


def _verb(ctx: click.Context | None) -> str:
    return ctx.command_path if ctx else "tpsim"


def _options(ctx: click.Context | None) -> Sequence[str]:
    """The long options of the command that was called."""
    parameters = ctx.command.params if ctx else []
    return [
        name for parameter in parameters for name in (*parameter.opts, *parameter.secondary_opts) if name[:2] == "--"
    ]


def _see_help(ctx: click.Context | None) -> str:
    return f"see {_verb(ctx)} --help"


def _sentence(message: str) -> str:
    """Click's message without the capital and the full stop of a sentence."""
    lines = [line.strip() for line in message.splitlines()]
    text = " ".join(line for line in lines if line).rstrip(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
