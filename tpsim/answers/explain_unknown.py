"""What is told who asks `explain` for a name that no number bears: the nearest ones, or what there is."""

from __future__ import annotations

from collections.abc import Sequence

from tpsim.algebra.moves import MOVES
from tpsim.fabric.wires import ONE_LINK
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError, near

LINE, WORD = "a line of a plan", "a word of a plan"

PRINTED = {
    "time": (LINE, "the time of a step", "step.time_s"),
    "memory": (LINE, "what the fullest chip holds", "memory.peak"),
    "band": (LINE, "where 8 of 10 published runs like it lie", "step.band"),
    "change": (LINE, "the best of a few edits that were planned, each as `tpsim diff` compares it", "step.time_s"),
    "states": (WORD, "parameters, gradients and optimizer state together", "memory.static"),
    "weights": (WORD, "the parameters that a chip holds", "memory.parameters"),
    "working": (WORD, "what the action of the peak needs beside all that a chip holds longer", "memory.peak"),
}
"""What a plan prints that bears no number's name: what sort of text it is, what it says, and the number behind it."""


def unknown_name(
    name: str, known: Sequence[str], noun: str, *, lister: str, constants: Sequence[str] = (), scenario: str = ""
) -> InputError:
    """The refusal: what a text of the plan is, the nearest names, else what they begin with and the command that lists.

    constants  of a machine, which may be meant, and are not listed
    scenario   how a command line names the one that was asked about; "" if none was
    """
    if name in PRINTED:
        sort, told, number = PRINTED[name]
        message = f'"{name}" is {sort} and not a {noun}: {told}'
        remedy = f"ask for the number behind it: tpsim explain {number} {scenario or 'llama3-70b-h100'}"
        if scenario and number not in known:
            remedy = "this plan has no such line"
        return InputError.one("unknown-name", message, remedy=remedy)
    meant, *others = near(name, [*known, *constants]) or [""]
    heads = dict.fromkeys(f"{head}.*" if dot else head for head, dot, _ in (word.partition(".") for word in known))
    told = f"also near: {', '.join(others)}" if others else "" if meant else f"known: {', '.join(heads)}"
    remedy, note = f'did you mean "{meant}"?' if meant else "", f"{told}; {lister} lists all" if told else ""
    return InputError.one("unknown-name", f'"{name}" is not a {noun}', remedy=remedy, note=note)


def unknown_alone(name: str) -> InputError:
    """The refusal of a name without a scenario, machines told by how many there are."""
    noun = "number that can be explained without a scenario"
    if name in spec.names("models"):
        return InputError.one("unknown-name", f"{name} is a model", remedy=f"write: tpsim model show {name}")
    machines = spec.bases_first("hardware")
    if near(name, [*MOVES, *ONE_LINK, *machines]) or name in PRINTED:
        return unknown_name(name, [*MOVES, *ONE_LINK, *machines], noun, lister="tpsim explain")
    some = [*MOVES, *ONE_LINK, f"{len(machines)} machines and their constants", "with a scenario its numbers"]
    return unknown_name(name, some, noun, lister="tpsim explain")
