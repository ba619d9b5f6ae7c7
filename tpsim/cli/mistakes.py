"""What a command line that click refuses is answered with: the message in one line, and a remedy that can be typed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

import click

from tpsim import VERBS
from tpsim.quantity.errors import InputError, did_you_mean, whole_meant

EXAMPLES = {"hw": "--hw dgx-h100", "base": "--base dgx-h100", "ranks": "--ranks 8"}
"""Options that a verb needs, each with a value that does."""


AS_TPSIM = {"fp16": "f16", "fp32": "f32", "half": "f16", "bfloat16": "bf16", "float16": "f16", "float32": "f32"}
"""Number formats as flags of frameworks call them."""


def of_click(error: click.ClickException, command: click.Command | None, verb: str) -> InputError:
    """What click says, with a remedy where there is one.

    command  that was asked for, as far as click came
    verb     how a command line names it
    """
    param, see_help = getattr(error, "param", None), f"see {verb} --help"
    if isinstance(error, click.NoSuchOption):
        return _no_such_option(error.option_name, verb, command, see_help)
    if isinstance(error, click.MissingParameter):
        option = isinstance(param, click.Option)
        named = param and (param.opts[0] if option else param.human_readable_name)
        example = EXAMPLES.get(str(param and param.name)) if option else None
        whole = re.search(rf"^ *({re.escape(verb)} .*)$", (command and command.help) or "", re.MULTILINE)
        remedy = f"add it: {example}" if example else f"for example: {whole[1]}" if whole else see_help
        return InputError.one("missing-argument", f"{verb} needs {named or error.param_hint}", remedy=remedy)
    if isinstance(error, click.BadParameter) and param and isinstance(param.type, click.Choice):
        choices = [str(choice) for choice in param.type.choices]
        word = next((word for word in error.message.split("'")[1::2] if word not in choices), "")
        message, note = f'"{word}" is not a value of {param.opts[-1]}', "values: " + ", ".join(choices)
        return InputError.one("bad-value", message, remedy=did_you_mean(word, choices, form="{}"), note=note)
    remedy = _remedy(error, command, verb) or see_help
    slugs = {click.BadOptionUsage: "bad-option", click.FileError: "no-file", click.BadParameter: "bad-value"}
    return InputError.one(slugs.get(type(error), "bad-usage"), _sentence(error.format_message()), remedy=remedy)


def _remedy(error: click.ClickException, command: click.Command | None, verb: str) -> str:
    """What helps with a value that is none, with an option without one, or a scenario too many; "" elsewhere."""
    param, message = getattr(error, "param", None), error.format_message()
    if verb.endswith(" search") and param and (several := re.search(r"'(\d+(?:,\d+)+)'", message)):
        return f"search several: --vary {param.name}={several[1]}"
    if isinstance(error, click.BadOptionUsage):
        lacking = [one for one in _options(command) if error.option_name in one.opts]
        return "".join(f"write {error.option_name} {_values(one)}: {_sentence(one.help or '')}" for one in lacking[:1])
    if isinstance(error, click.BadParameter) and isinstance(getattr(param, "type", None), click.types.IntParamType):
        words = [*getattr(param.type, "words", ())] if param else []
        meant = whole_meant("".join(message.split("'")[3:4]))
        return " or ".join([f"write {meant or 'a whole number'}", *words])
    extra = re.search(r"extra argument \((.*)\)", message)
    return _of_extra(extra[1], error.ctx, verb) if extra and isinstance(error, click.UsageError) and error.ctx else ""


def _of_extra(word: str, ctx: click.Context, verb: str) -> str:
    """What is meant by a word too many: a change without its flag, or behind a blank, or another scenario."""
    for option, name in (("--set", "overrides"), ("--vary", "vary")):
        begun = [text for text in ctx.params.get(name) or () if "=" not in text]
        if begun:
            return f"write {shlex.join([option, f'{begun[-1]}={word}'])}"
    path, equals, value = word.partition("=")
    if equals and "overrides" in ctx.params:
        flag = f"--{path.replace('_', '-')}"
        known = any(flag in option.opts for option in _options(ctx.command))
        return f"write {shlex.join([flag, value] if known else ['--set', word])}"
    if verb.endswith(" plan") and ctx.params.get("scenario") and not word.isdecimal():
        return f"compare two: {shlex.join(['tpsim', 'diff', ctx.params['scenario'], word])}"
    return ""


def _options(command: click.Command | None) -> Iterator[click.Option]:
    for param in command.params if command else ():
        if isinstance(param, click.Option):
            yield param


def _values(option: click.Option) -> str:
    """What stands behind an option in help."""
    return "|".join(map(str, option.type.choices)) if isinstance(option.type, click.Choice) else str(option.metavar)


def _no_such_option(word: str, verb: str, command: click.Command | None, see_help: str) -> InputError:
    from tpsim.question.foreign_names import not_yet

    known = [name for one in _options(command) for name in (*one.opts, *one.secondary_opts) if name.startswith("--")]
    message = f"{word} is not an option of {verb}"
    if ours := _as_tpsim_says(word, known):
        return InputError.one("foreign-option", message, remedy=f"tpsim calls this {ours}")
    if feature := not_yet(word):
        return InputError.one("not-supported-yet", message, remedy=f"{feature} is not supported yet")
    near = did_you_mean(word.removeprefix("--"), [name.removeprefix("--") for name in known], see_help, form="--{}")
    remedy = _as_value(word, command) or _elsewhere(word) or near
    return InputError.one("unknown-option", message, remedy=remedy)


def _as_value(word: str, command: click.Command | None) -> str:
    """The option of which `word` is the value, such as a format, a dtype or a ZeRO stage; "" if there is none."""
    from tpsim.program.dtypes import DTYPE_BYTES

    value, number = word.lstrip("-"), re.fullmatch(r"(--[a-z]+)-?(\d+)", word)
    options = {name: one for one in _options(command) for name in one.opts}
    form = options.get("--format")
    if form and isinstance(form.type, click.Choice) and value in form.type.choices:
        return f"write -f {value}"
    if "--dtype" in options and (dtype := AS_TPSIM.get(value, value)) in DTYPE_BYTES:
        return f"write --dtype {dtype}"
    return f"write {number[1]} {number[2]}" if number and number[1] in options else ""


def _elsewhere(word: str) -> str:
    """The verb that has an option, if this one has not; "" if none has."""
    from tpsim.cli.main import tpsim

    context = click.Context(tpsim)
    commands = {verb.name: tpsim.get_command(context, verb.name) for verb in VERBS}
    having = [name for name, command in commands.items() if any(word in one.opts for one in _options(command))]
    return f"it is one of tpsim {having[0]}" if having else ""


def _as_tpsim_says(word: str, known: Sequence[str]) -> str:
    """The flag for another framework's name, or for a field of a scenario, if it is among the known ones; else ""."""
    from tpsim.question.edits import FLAGS
    from tpsim.question.foreign_names import as_field, foreign_name

    foreign, own = foreign_name(word), {path.rpartition(".")[2]: path for path in FLAGS}
    path, comma, rest = (foreign or own.get(as_field(word), "")).partition(",")
    if FLAGS.get(path) in known:
        return f"{FLAGS[path]}{comma}{rest}"
    if path == "chips" and "--ranks" in known and not comma:
        return "--ranks"
    return f"{path}{comma}{rest}: --set {path}=..." if foreign and "--set" in known else ""


def _sentence(message: str) -> str:
    """Click's message without the capital and the full stop of a sentence."""
    lines = [line.strip() for line in message.splitlines()]
    text = " ".join(line for line in lines if line).rstrip(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
