"""A wrong command line, answered in the same shape as a wrong file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from tpsim.quantity.errors import InputError, Place, TpsimError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    from tpsim.algebra.expression import NotationError

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
    from tpsim.question.flags import FLAGS
    from tpsim.question.foreign_names import as_field, foreign_name

    foreign, own = foreign_name(word), {path.rpartition(".")[2]: path for path in FLAGS}
    path, comma, how = (foreign or own.get(as_field(word), "")).partition(",")
    if FLAGS.get(path) in known:
        return f"{FLAGS[path]}{comma}{how}"
    return f"{path}{comma}{how}: --set {path}=..." if foreign and "--set" in known else ""


def _sentence(message: str) -> str:
    """Click's message without the capital and the full stop of a sentence."""
    lines = [line.strip() for line in message.splitlines()]
    text = " ".join(line for line in lines if line).rstrip(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
