"""The verbs: their help groups and one line each, known without loading any of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Section = Literal["Estimate", "Understand", "Guard", "Data"]
SECTIONS: tuple[Section, ...] = get_args(Section)


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: its name, its help group, and what it answers. Its command is ``tpsim.cli.NAME:NAME``."""

    name: str
    section: Section
    answers: str


VERBS: tuple[Verb, ...] = (
    Verb("plan", "Estimate", "One step of training or inference: what is sent, computed and held."),
    Verb("search", "Estimate", "The best layout of N chips, and why the next ones are worse."),
    Verb("diff", "Estimate", "Two scenarios, results or locks: what moves, and why."),
    Verb("shard", "Understand", "The algebra on one product, reshard or array."),
    Verb("collective", "Understand", "One collective over sizes on one machine."),
    Verb("explain", "Understand", "Where a printed number comes from: formula, values, sources."),
    Verb("verify", "Understand", "A step or an expression run on simulated devices, held to every claim."),
    Verb("check", "Guard", "Every scenario against tpsim.lock: what moved, and why."),
    Verb("hw", "Data", "The machines: their constants with sources."),
    Verb("model", "Data", "The models: their sizes and parameters as read."),
    Verb("schema", "Data", "The JSON Schema of a file format or of an output."),
)
