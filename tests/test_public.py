"""The Python API: the verbs as functions, typed and documented, each with a frame and a document."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import tpsim
from tpsim.cli.main import tpsim as group
from tpsim.quantity.errors import InputError

LOGS = Path(__file__).parent / "data" / "logs"
GROUPS = ("scenario", "hw", "model")
FUNCTIONS = {
    **{name: getattr(tpsim, name) for name in tpsim.ROOMS},
    **{
        f"{name}.{word}": getattr(getattr(tpsim, name), word)
        for name in GROUPS
        for word in getattr(tpsim, name).__all__
    },
}


def test_every_verb_is_a_function_or_a_module_of_its_words():
    ctx = click.Context(group)
    verbs = {name: group.get_command(ctx, name) for name in group.list_commands(ctx)}
    assert set(verbs) <= set(dir(tpsim))
    words = {name: list(verb.commands) for name, verb in verbs.items() if isinstance(verb, click.Group)}
    assert {name: sorted(getattr(tpsim, name).__all__) for name in GROUPS} == {n: sorted(w) for n, w in words.items()}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_argument_has_a_type_and_is_documented(name):
    function = FUNCTIONS[name]
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty
    untyped = [one.name for one in signature.parameters.values() if one.annotation is inspect.Parameter.empty]
    words = set(re.findall(r"\w+", function.__doc__))
    assert (untyped, [one for one in signature.parameters if one not in words]) == ([], [])


def test_one_name_is_no_list_of_letters():
    assert [one.name for one in tpsim.hw.validate("dgx-h100").profiles] == ["dgx-h100"]
    assert tpsim.check(Path("scenarios/gpt2-xl-a100-dp.yaml")).ok


def test_importing_tpsim_loads_none_of_its_rooms():
    code = "import sys, tpsim; print([name for name in sys.modules if name.startswith('tpsim.')])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_the_types_reach_who_installs_tpsim():
    assert (Path(tpsim.__file__).parent / "py.typed").is_file()


@pytest.mark.parametrize("verb", ["plan", "search", "explain", "verify", "diff"])
def test_one_text_where_a_list_of_overrides_is_due_is_answered_with_the_list(verb):
    """Each of its letters was taken for an override: "l" sets nothing."""
    asked = {"explain": ("mfu", "qwen2-7b-h100")}.get(verb, ("qwen2-7b-h100",))
    with pytest.raises(InputError, match=r'write overrides=\["layout.zero=3"\]'):
        getattr(tpsim, verb)(*asked, overrides="layout.zero=3")


def test_one_text_where_a_list_of_what_varies_is_due_is_answered_with_the_list():
    with pytest.raises(InputError, match=r'write vary=\["zero=1,3"\]'):
        tpsim.search("qwen2-7b-h100", vary="zero=1,3")
