"""A question as a scenario file that asks it again: every choice written down, each with a comment."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpsim.program.layout import PRACTICES
from tpsim.program.model_file import load_model, model_names
from tpsim.quantity.errors import InputError
from tpsim.quantity.spec import is_shipped
from tpsim.question.scenario import forced, resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tpsim.question.question import Question

COMMENTS: Mapping[str, str] = {
    "model": "a library name, a .yaml, or a Hugging Face config.json",
    "hardware": "a library name or a .yaml",
    "mesh": "named axes, major first",
    "placement": "which level or physical axis carries which mesh axis",
    "layout": "which axes play which role; zero: 0 nothing, 1 optimizer states, 2 and gradients, 3 and parameters",
    "shardings": "region -> dim -> mesh axes",
    "practice": "switches in which frameworks differ",
    "workload": "one step; global_batch in sequences",
    "assume": "what is assumed about the run; an axis not named under overlap hides nothing",
    "require": "exit code 1 when violated",
    "cost_model": "additive: launch + steps*latency + bytes/bandwidth; book: the longer of latency and bandwidth",
    "planner": "book: the four cases; cheapest: every way",
}


def scenario_text(question: Question, folder: Path = Path()) -> str:
    """The scenario file, to be written in `folder`, that asks `question` again."""
    lines = ["tpsim: scenario/1"]
    for name, value in scenario_data(question, folder).items():
        lines += ["", f"# {COMMENTS[name]}"] if name in COMMENTS else [""]
        lines.append(f"{name}: {flow(value)}")
    return "\n".join(lines) + "\n"


def scenario_data(question: Question, folder: Path = Path()) -> dict[str, Any]:
    """The same as data, without its header."""
    parts = {
        "name": question.name,
        "model": _model(question, folder),
        "hardware": _place(question.machine.path, question.machine.name, folder),
        "mesh": _mesh(question),
        "placement": _placement(question),
        "layout": _layout(question),
        "practice": _practice(question),
        "workload": _workload(question),
        "assume": _assume(question),
        "require": dict(question.require),
        "cost_model": question.cost_model,
        "planner": question.planner,
        **forced(question),
    }
    data = {name: value for name, value in parts.items() if value}
    if _asks_the_same(data, question):
        return data
    table = {
        region: {dim: list(axes) for dim, axes in dims.items() if axes}
        for region, dims in question.layout.table.items()
    }
    tabled = {name: value for name, value in data.items() if name != "layout"}
    tabled["mesh"] = dict(question.mesh.axes)
    return {**tabled, "shardings": table}


def _asks_the_same(data: Mapping[str, Any], question: Question) -> bool:
    """True if the roles in `data` come to the layout of `question`."""
    here = {**data, "tpsim": "scenario/1", "model": _model(question, Path())}
    if "hardware" in here:
        here["hardware"] = _place(question.machine.path, question.machine.name, Path())
    try:
        return resolve(here).layout == question.layout
    except InputError:
        return False


def flow(value: Any) -> str:
    """`value` in YAML's flow style.

    >>> flow({"tp": ["kv", "rep"], "zero": 1, "sequence_parallel": True, "step": "< 30 s"})
    '{tp: [kv, rep], zero: 1, sequence_parallel: true, step: "< 30 s"}'
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(str(key))}: {flow(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    plain = isinstance(value, str) and re.fullmatch(r"[A-Za-z_./][A-Za-z0-9_./-]*", value)
    return value if plain and value.lower() not in {"true", "false", "null"} else json.dumps(value)


def _model(question: Question, folder: Path) -> Any:
    """The model's name, or its file; with the fields that the scenario changed."""
    name = question.model.name
    if name not in model_names():
        known = {question.machine.path}
        found = next(
            (path for path, _ in reversed(question.inputs) if path not in known and not path.startswith("hardware/")),
            name,
        )
        return _relative(found, folder)
    base = load_model(name).model
    changed = {
        key: value
        for key, value in asdict(question.model).items()
        if value != getattr(base, key) and key not in ("ffn", "ffn_hidden", "params")
    }
    if (question.model.ffn, question.model.ffn_hidden) != (base.ffn, base.ffn_hidden):
        changed["ffn"] = {"kind": question.model.ffn, "hidden": question.model.ffn_hidden}
    return {"extends": name, **changed} if changed else name


def _place(path: str, name: str, folder: Path) -> str:
    """The name of what the library has, else the path from `folder`."""
    return name if not path or is_shipped("hardware", Path(path)) else _relative(path, folder)


def _relative(path: str, folder: Path) -> str:
    shown = os.path.relpath(path, folder)
    return shown if shown.startswith(".") else f"./{shown}"


def _parent(question: Question, axis: str) -> str:
    return question.axis_parents.get(axis, axis)


def _parents(question: Question, axes: Iterable[str]) -> list[str]:
    """The axes before any was split, each once."""
    return list(dict.fromkeys(_parent(question, axis) for axis in axes))


def _mesh(question: Question) -> dict[str, int]:
    sizes = question.mesh.axes
    names = _parents(question, sizes)
    return {name: prod(size for axis, size in sizes.items() if _parent(question, axis) == name) for name in names}


def _placement(question: Question) -> dict[str, list[str]]:
    """The carriers of every axis of more than one chip."""
    found: dict[str, list[str]] = {}
    for axis, carriers in question.placement.binding.items():
        mine = found.setdefault(_parent(question, axis), [])
        mine += [carrier for carrier in carriers if carrier not in mine]
    return {axis: carriers for axis, carriers in found.items() if carriers}


def _layout(question: Question) -> dict[str, Any]:
    roles = {role: _parents(question, axes) for role, axes in question.layout.roles.items() if axes}
    return {**roles, "zero": question.layout.zero, "sequence_parallel": question.layout.sequence_parallel}


def _practice(question: Question) -> Any:
    """The bundle's name, with the switches that were changed in it."""
    base = question.resolved["practice"]["base"]
    bundle = asdict(replace(PRACTICES[base]))
    changed = {name: value for name, value in asdict(question.practice).items() if value != bundle[name]}
    return {"base": base, **changed} if changed else base


def _workload(question: Question) -> dict[str, Any]:
    work, dtypes = question.workload, question.dtypes
    return {
        **asdict(work),
        "dtype": dtypes.activations,
        "param_dtype": dtypes.params,
        "grad_dtype": dtypes.gradients,
        "loss_dtype": dtypes.loss,
        "optimizer_dtype": dtypes.optimizer,
    }


def _assume(question: Question) -> dict[str, Any]:
    overlap = {_parent(question, axis): phases for axis, phases in question.assume.overlap.items()}
    stated = question.assume.matmul_efficiency
    efficiency = {} if stated is None else {"matmul_efficiency": stated}
    return {**efficiency, **({"overlap": overlap} if overlap else {})}
