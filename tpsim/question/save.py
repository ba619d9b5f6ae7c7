"""A question as a scenario file that asks it again: what was stated, and beside it, as comments, what followed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpsim.question.resolved import computed, stored
from tpsim.question.scenario_file import DTYPE_FIELDS

if TYPE_CHECKING:
    from tpsim.question.question import Question

COMMENTS: Mapping[str, str] = {
    "model": "a library name, a .yaml, or a Hugging Face config.json",
    "hardware": "a library name or a .yaml",
    "mesh": "named axes, major first",
    "placement": "which level or physical axis carries which mesh axis",
    "layout": "which axes play which role; zero: 0 nothing, 1 optimizer states, 2 and gradients, 3 and parameters",
    "shardings": "region -> dim -> mesh axes",
    "practice": "switches in which frameworks differ",
    "recompute": "what is not kept for backward: none, selective (what attention keeps inside), full, or {drop: [..]}",
    "offload": "what lives on the host of its device: state (the optimizer's, which is updated there)",
    "workload": "one step; global_batch in sequences",
    "assume": "what is assumed about the run",
    "require": "exit code 1 when violated",
    "cost_model": "additive: launch + steps*latency + bytes/bandwidth; book: the longer of latency and bandwidth",
    "planner": "book: the four cases; cheapest: every way",
}

OF_INFERENCE: Mapping[str, str] = {
    "layout": "which axes play which role; cache: what those of tp split of it, heads, batch or sequence",
    "workload": "batch in sequences, or largest; context, prompt and output in tokens of one",
    "prefill": "servers of their own that read prompts, batch at once; what is above is then of those that decode",
}
"""What is said otherwise of inference."""

LEFT_OPEN = "left open; here it comes to this, and to something else where it follows from what is changed"


def scenario_text(question: Question, folder: Path = Path()) -> str:
    """The scenario file, to be written in `folder`, that asks `question` again, whatever is asked beside it."""
    lines = ["tpsim: scenario/1"]
    comments = {**COMMENTS, **(OF_INFERENCE if question.inference else {})}
    for name, value in scenario_data(question, folder).items():
        lines += ["", f"# {comments[name]}"] if name in comments else [""]
        lines.append(f"{name}: {flow(value)}")
    lines += ["", f"# {LEFT_OPEN}:", *(f"# {name}: {flow(value)}" for name, value in _left_open(question))]
    return "\n".join(lines) + "\n"


def scenario_data(question: Question, folder: Path = Path()) -> dict[str, Any]:
    """What was stated, in the order of the format, without its header; files as one in `folder` names them.

    What no file holds is called as its file will be.
    """
    stated = question.stated.data(folder)
    return {name: stated[name] for name in type(question.stated.file).model_fields if name in stated}


def _left_open(question: Question) -> Iterator[tuple[str, Any]]:
    """What was not stated, and what it came to."""
    taken: Mapping[str, Any] = {
        "placement": _placement(question),
        "practice": question.stated.file.practice.base,
        "workload": _said(question),
        "cost_model": question.cost_model,
        "planner": question.planner,
    }
    data = question.stated.data()
    for name, value in taken.items():
        stated: Any = data.get(name, {} if isinstance(value, dict) else None)
        left = {key: entry for key, entry in value.items() if key not in stated} if isinstance(value, dict) else value
        if left and (isinstance(value, dict) or stated is None):
            yield name, left


def _said(question: Question) -> dict[str, Any]:
    """What a step computes, and in which number formats."""
    formats = {DTYPE_FIELDS[kind]: dtype for kind, dtype in stored(question).items() if kind in DTYPE_FIELDS}
    return {**computed(question), "dtype": question.products, **formats}


def _placement(question: Question) -> dict[str, list[str]]:
    """The carriers of every axis of more than one chip."""
    laid: dict[str, list[str]] = {}
    for axis, carriers in question.placement.binding.items():
        own = laid.setdefault(question.axis_parents.get(axis, axis), [])
        own += [carrier for carrier in carriers if carrier not in own]
    return {axis: carriers for axis, carriers in laid.items() if carriers}


def flow(value: Any) -> str:
    """`value` in YAML's flow style.

    >>> flow({"tp": ["kv", "rep"], "zero": 1, "sequence_parallel": True, "step": "< 30 s"})
    '{tp: [kv, rep], zero: 1, sequence_parallel: true, step: "< 30 s"}'
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(str(key))}: {flow(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    plain = isinstance(value, str) and re.fullmatch(r"(?:[A-Za-z_/]|\.\.?/)[A-Za-z0-9_./-]*", value)
    return value if plain and value.lower() not in {"true", "false", "null"} else json.dumps(value, ensure_ascii=False)
