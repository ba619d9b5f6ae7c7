"""What a shell completes: verbs, and the names that they take."""

from __future__ import annotations

import click
import pytest
from click.shell_completion import BashComplete

from tpsim import VERBS
from tpsim.cli.main import tpsim as root


def completed(*words):
    """Type and value of what a shell offers for the last of the words."""
    shell = BashComplete(root, {}, "tpsim", "_TPSIM_COMPLETE")
    return [(one.type, one.value) for one in shell.get_completions(list(words[:-1]), words[-1])]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("co",), "collective"),
        (("hw", "sh"), "show"),
        (("plan", "qwen2-7b-h"), "qwen2-7b-h100"),
        (("search", "qwen2-7b-h"), "qwen2-7b-h100"),
        (("explain", "step.time_s", "qwen2-7b-h"), "qwen2-7b-h100"),
        (("diff", "llama3-8b-v5e", "qwen2-7b-h"), "qwen2-7b-h100"),
        (("verify", "llama3-8b-v5e", "qwen2-7b-h"), "qwen2-7b-h100"),
        (("plan", "--hw", "tpu-v5e"), "tpu-v5e"),
        (("collective", "all-reduce", "--hw", "tpu-v5e"), "tpu-v5e"),
        (("shard", "A[I] -> A[I_X]", "--hw", "tpu-v5e"), "tpu-v5e"),
        (("hw", "show", "tpu-v5e"), "tpu-v5e"),
        (("hw", "validate", "dgx-h100", "tpu-v5e"), "tpu-v5e"),
        (("hw", "fit", "log", "--base", "tpu-v5e"), "tpu-v5e"),
        (("plan", "--model", "llama-3-8"), "llama-3-8b"),
        (("model", "show", "llama-3-8"), "llama-3-8b"),
        (("collective", "all-t"), "all-to-all"),
        (("plan", "--practice", "meg"), "megatron"),
        (("plan", "--schedule", "gp"), "gpipe"),
        (("plan", "--recompute", "se"), "selective"),
        (("plan", "--cost-model", "bo"), "book"),
        (("shard", "A[I] -> A[I_X]", "--planner", "bo"), "book"),
        (("search", "--by", "mon"), "money"),
        (("check", "qwen2-7b-h"), "qwen2-7b-h100"),
        (("hw", "fit", "--collective", "all-t"), "all-to-all"),
        (("schema", "hard"), "hardware"),
        (("plan", "--micro"), "--microbatches"),
    ],
    ids=" ".join,
)
def test_a_shell_completes_verbs_flags_and_names(words, offered):
    assert completed(*words) == [("plain", offered)]


def test_what_no_name_begins_with_is_a_file():
    assert completed("plan", "./scen") == [("file", "./scen")]


def commands(command, name=""):
    """Every command with its words."""
    yield name, command
    ctx = click.Context(command)
    for word in command.list_commands(ctx) if isinstance(command, click.Group) else ():
        yield from commands(command.get_command(ctx, word), f"{name} {word}".strip())


def test_every_parameter_that_takes_a_file_or_a_folder_has_the_shell_list_them():
    """Bash offers nothing at all where a program that it asks does not say so."""
    said = {}
    for name, command in commands(root):
        for one in command.params:
            if any(kind in (one.metavar or "").strip("[].") for kind in ("FILE", "LOG", "PATH", "DIR")) and not (
                one.metavar or ""
            ).startswith("PATH="):
                said[name, one.name] = [item.type for item in one.shell_complete(click.Context(command), "./x")]
    assert said.pop(("search", "sweep")) == ["dir"]
    assert set(map(tuple, said.values())) == {("file",)}
    assert {("check", "paths"), ("hw fit", "logs"), ("plan", "files"), ("collective", "measured")} < said.keys()


def test_every_parameter_that_takes_a_scenario_a_machine_or_a_model_completes_it():
    taking = {"scenario", "base", "new", "targets", "model", "hw"}
    silent = []
    for verb in VERBS:
        command = root.get_command(None, verb.name)
        for one in command.params:
            complete = getattr(one, "_custom_shell_complete", None)
            if one.name in taking and not isinstance(one.type, click.Choice) and complete is None:
                silent.append((verb.name, one.name))
    assert silent == []
