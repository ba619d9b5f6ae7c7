"""Of one slip in a name, at least 95 in 100 are answered with the name that was meant: of every kind of name."""

from __future__ import annotations

import os
import string
import sys
from functools import cache

import click
import pytest
from pydantic import BaseModel

from tpsim import VERBS
from tpsim.cli.main import tpsim
from tpsim.guard.lock import Lock
from tpsim.machine.algorithms import OFFERED
from tpsim.machine.hardware_file import HardwareFile
from tpsim.program.model_file import ModelFile
from tpsim.quantity import spec
from tpsim.quantity.errors import suggest
from tpsim.quantity.spec.fields import branches
from tpsim.question.foreign_names import FOREIGN
from tpsim.question.scenario_file import ScenarioFile


def models(top: type[BaseModel]) -> dict[str, list[str]]:
    """The fields of every map of a format, by the map."""
    found = {top.__name__: list(top.model_fields)}
    for field in top.model_fields.values():
        for inner in inside(field.annotation):
            found |= models(inner)
    return found


def inside(annotation) -> list[type[BaseModel]]:
    """The models in a type, however deep in lists and maps."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    parts = [part for one in branches(annotation) for part in getattr(one, "__args__", ())]
    own = [one for one in branches(annotation) if one is not annotation]
    return [model for part in (*parts, *own) for model in inside(part)]


@cache
def options(verb: str) -> tuple[str, ...]:
    command = tpsim.get_command(click.Context(tpsim), verb)
    return tuple(name for one in command.params for name in one.opts if name.startswith("--"))


FORMATS = {"hardware": HardwareFile, "model": ModelFile, "scenario": ScenarioFile, "lock": Lock}
NAMES: dict[str, list[str]] = {
    **{f"fields of {name}": fields for top in FORMATS.values() for name, fields in models(top).items()},
    **{f"options of {verb.name}": list(options(verb.name)) for verb in VERBS if verb.room},
    "verbs": [verb.name for verb in VERBS],
    "machines": spec.names("hardware"),
    "models": spec.names("models"),
    "scenarios": spec.names("scenarios"),
    "axes": ["data", "tensor"],
    "axes of three letters": ["dat", "rep", "kvh", "seq"],
    "axes of a torus": ["ici", "dcn", "nvlink", "network"],
    "algorithms": sorted(OFFERED),
    "collectives": ["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute"],
    "practices": ["megatron", "fsdp2", "xla", "ideal"],
    "dtypes": ["f64", "f32", "bf16", "f16", "fp8", "int8"],
    "names of other frameworks": sorted(FOREIGN),
}
LETTERS = string.ascii_lowercase + string.digits + "-_"


def slips(word: str) -> set[str]:
    """Every deletion, insertion, substitution and swap of neighbours."""
    cuts = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    return {
        *(a + b[1:] for a, b in cuts if b),
        *(a + letter + b for a, b in cuts for letter in LETTERS),
        *(a + letter + b[1:] for a, b in cuts if b for letter in LETTERS),
        *(a + b[1] + b[0] + b[2:] for a, b in cuts if len(b) > 1),
    } - {word}


def share_right(names: list[str]) -> tuple[int, int, list[tuple[str, str, str | None]]]:
    """Slips that are answered with the name meant, all slips, and the wrong ones; a slip that is a name is none."""
    every = [(slip, name) for name in names for slip in sorted(slips(name) - set(names))]
    every = every[:: max(STEP, len(every) // MOST)]
    wrong = [(slip, name, found) for slip, name in every if (found := suggest(slip, names)) != name]
    return len(every) - len(wrong), len(every), wrong


STEP, MOST = (1, sys.maxsize) if os.environ.get("TPSIM_FUZZ") == "all" else (61, 150)
"""One slip in so many is tried, and of one kind of names about as many at most."""


@pytest.mark.parametrize("kind", NAMES)
def test_one_slip_in_a_name_is_answered_with_the_name(kind):
    right, every, wrong = share_right(NAMES[kind])
    least = 0.93 if kind == "fields of LayoutFields" else 0.95  # dp, tp, pp: a wrong letter of two means any of them
    assert right >= least * every, wrong[:20]
