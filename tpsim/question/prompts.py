"""Servers that read prompts for others, which decode: what is asked of one, and the wires between the two."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from math import prod
from typing import TYPE_CHECKING

from tpsim.fabric.wires import Segment, capacity
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError
from tpsim.question.prices import PAIR
from tpsim.question.serving_file import PROMPTS, PrefillFields, PrefillScenario, PromptServer

if TYPE_CHECKING:
    from tpsim.fabric.wires import Route
    from tpsim.question.question import Question
    from tpsim.question.stated import Stated

WORK = ("batch", "microbatches")
"""What a server of prompts states of its workload."""

OWN = tuple(name for name in PromptServer.model_fields if name not in ("hardware", *WORK))
"""What says how a server is cut: of the scenario's own, which is cut otherwise, nothing is taken over."""


def server_of(read: Stated) -> Stated:
    """What a scenario states of the servers that read its prompts, as a scenario of these alone, place by place."""
    whole, section = read.document, spec.part(read.document, PROMPTS)
    _refuse_unsent(read)
    own = {name: value for name, value in section.data.items() if value is not None}
    stated = {name: own.pop(name) for name in WORK if name in own}
    told = {name: value for name, value in whole.data["workload"].items() if name in PrefillFields.model_fields}
    workload = {**told, "microbatches": None, "kind": "prefill", **stated}
    left = {name: value for name, value in whole.data.items() if name not in (*OWN, PROMPTS, "require")}
    spots = {at: spot for at, spot in whole.spots.items() if at[:1] not in [(name,) for name in (*own, *OWN)]}
    spots |= {at: spot for at, spot in section.spots.items() if at[:1] and at[0] not in WORK}
    spots |= {("workload", *at): spot for at, spot in section.spots.items() if at[:1] and at[0] in stated}
    document = spec.with_data(whole, {**left, **own, "workload": workload}, spots)
    file, document = spec.read(document, PrefillScenario)
    return replace(read, file=file, document=document)


def _refuse_unsent(read: Stated) -> None:
    """Refuse replies that a prompt makes alone, as many prompts as replies fill a memory that is another's, and drafts.

    Raises InputError.
    """
    file = read.file
    ahead = file.workload.speculation  # type: ignore[attr-defined]  # of prompts and replies
    if ahead and ahead.tokens:
        message = "drafts beside servers that read prompts alone are not supported: nothing says where a draft reads"
        remedy = f"leave one of both out: {PROMPTS}, or workload.speculation"
        raise InputError.one("not-supported-yet", message, read.at("workload", "speculation"), remedy)
    if not file.workload.steps:  # type: ignore[attr-defined]  # of prompts and replies
        message = "a reply of one token is the prompt's own: nothing is left for servers that decode"
        remedy = "ask of the prompts alone: workload.kind prefill"
        raise InputError.one("nothing-to-decode", message, read.at("workload", "output"), remedy)
    if file.workload.batch == "largest" and file.prefill.batch is None:  # type: ignore[attr-defined]  # likewise
        message = "workload.batch: largest is of servers that decode: how many prompts are read at once, nothing says"
        raise InputError.one("missing-batch", message, read.at_key(PROMPTS), f"add {PROMPTS}.batch: 1")


def connected(question: Question) -> Question:
    """The question, if both of its servers are on a network.

    Raises InputError for a machine that has none, or none with room for both.
    """
    sides = (question, question.prompts) if question.prompts else (question,)
    for side in sides:
        machine, outermost = side.machine, side.machine.levels[-1]
        room = prod(capacity(level) or 0 for level in machine.levels)  # 0 where a level joins any number
        chips = sum(other.mesh.devices for other in sides if other.machine == machine)
        full = 0 < room < chips
        if outermost.topology != "switch" or full:
            why = f"{outermost.name} joins {room} chips" if full else f"{outermost.name} is no switch"
            message = f"caches go from servers to servers over a network, and {machine.name} has none: {why}"
            remedy = "name hardware with one, or let the same servers do both: remove prefill"
            raise InputError.one("no-network", message, question.stated.at(PROMPTS), remedy)
    return question


def way_out(question: Question) -> Route:
    """The wires from a chip of its mesh to one of another mesh: the outermost level, by the chip's own port there.

    All chips of a node send at once; where they share a way into that level, they share it.
    """
    placement, level = question.placement, question.machine.levels[-1]
    outermost, pieces = len(placement.levels) - 1, chain.from_iterable(placement.pieces.values())
    inside = prod(piece.n for piece in pieces if placement.carriers[piece.carrier].level < outermost)
    return (Segment(level.name, level.name, "switch", PAIR, sharing=inside if level.shared else None),)


def weight(question: Question) -> float:
    """What a second of a server of prompts costs in seconds of one that decodes: it may have more chips, or dearer."""
    sides = (question.prompts or question, question)
    prices = [side.price.value if side.price else 1 for side in sides]
    own, other = (price * side.mesh.devices / side.placement.share for price, side in zip(prices, sides, strict=True))
    return float(own / other)
