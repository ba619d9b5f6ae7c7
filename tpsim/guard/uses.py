"""Which numbers of a scenario are made with which facts: the use-lists, told by the names in a lock alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpsim.guard.causes import STILL
from tpsim.guard.moved import STATES_FIT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpsim.guard.causes import Cause
    from tpsim.guard.lock import CallsFact, Lock, ScenarioFact
    from tpsim.guard.moved import Moved


def collective_of(part: str) -> str:
    """``all_gather over tensor`` of ``forward layers all_gather tensor attention.in``."""
    _, _, kind, axes, *_ = part.split(" ")
    return f"{kind} over {axes}"


def axes_of(part: str) -> str:
    """``tensor`` of ``forward layers all_gather tensor attention.in``."""
    return part.split(" ")[3]


def uses(moved: Moved, cause: Cause, old: Lock, new: Lock) -> bool:
    """True if a number that moved is made with the fact that moved, before or after."""
    return any(
        _uses(moved, cause, lock.scenarios[moved.scenario]) for lock in (old, new) if moved.scenario in lock.scenarios
    )


def _uses(moved: Moved, cause: Cause, fact: ScenarioFact) -> bool:
    inputs, calls = fact.inputs, fact.collectives.get(moved.part)
    if cause.note.endswith(STILL):
        return False
    if cause.kind == "constant":
        path = cause.name.removeprefix(f"{inputs.get('hardware')}.")
        own = path != cause.name and f"hardware.{path}" not in inputs
        return own and _uses_part(path, moved, calls, fact)
    if cause.kind == "model":
        field_name = cause.name.removeprefix(f"{inputs.get('model')}.")
        return field_name != cause.name and f"model.{field_name}" not in inputs
    if cause.kind == "switch":
        return _uses_switch(cause, inputs)
    if cause.kind == "formula":
        return any(_uses_formula(name, moved, calls, fact) for name in (cause.name, *cause.follows))
    own = not cause.name.startswith("require.") or cause.name == moved.quantity
    return own and cause.kind == "scenario" and moved.scenario in cause.scenarios


FILE = "file"
"""The fact of a machine of which a saved result knows no figures: the hash of its file."""


def _uses_part(path: str, moved: Moved, calls: CallsFact | None, fact: ScenarioFact) -> bool:
    """A chip's figures make the scenario's own numbers, a level's those and the collectives that run on it."""
    if path == FILE:
        return True
    if path.startswith("chip."):
        return not moved.part and _uses_chip(path, moved.quantity)
    level = path.split(".")[1]
    if not moved.part and not is_timed(moved.quantity):
        return moved.quantity == "placement"
    if not moved.part:
        return any(level in levels(one.by) for one in fact.collectives.values()) or moved.quantity == "placement"
    return calls is not None and level in levels(calls.by)


TIMED = ("step_s", "exposed_s", "require.step", "require.exposed", "require.mfu", "require.tokens_per_s")
"""Numbers and outcomes of a scenario that are made of compute and of communication."""


def is_timed(quantity: str) -> bool:
    """True for what seconds of communication make, the table of a placement aside."""
    return quantity in TIMED


def _uses_chip(path: str, quantity: str) -> bool:
    """A chip's room decides whether states fit, and moves no second; its other figures make compute and all with it."""
    if path == "chip.memory.capacity":
        return quantity == STATES_FIT
    return quantity == "compute_s" or quantity in TIMED


def levels(by: str) -> tuple[str, ...]:
    """The levels that carry a collective, of ``nvlink switch ring; network switch tree``."""
    return tuple(one.split(" ")[0] for one in by.split("; "))


def _uses_switch(cause: Cause, inputs: Mapping[str, Any]) -> bool:
    """A default or a switch is used where the field has the value that it gives."""
    family, _, rest = cause.name.partition(".")
    if family == "practice":
        base, _, switch = rest.partition(".")
        return base == inputs.get("practice.base") and inputs.get(f"practice.{switch}") in (cause.old, cause.new)
    return inputs.get(rest) in (cause.old, cause.new)


VERSION = "tpsim"
"""What stands for the formulas of a saved result: the version of tpsim that made it."""


def _uses_formula(name: str, moved: Moved, calls: CallsFact | None, fact: ScenarioFact) -> bool:
    if name == VERSION:
        return True
    if not moved.part:
        own = name.startswith(f"program.{fact.inputs.get('program')}.")
        return own or any(_part_uses(name, part, one.by, fact) for part, one in fact.collectives.items())
    return calls is not None and _part_uses(name, moved.part, calls.by, fact)


def _part_uses(name: str, part: str, by: str, fact: ScenarioFact) -> bool:
    """True if one collective is made with a formula."""
    family, *rest = name.split(".")
    phase, _, kind, axes, *_ = part.split(" ")
    if family == "wire":
        return rest[0] == kind
    if family == "program":
        return rest[0] == fact.inputs.get("program") and rest[1:] == [phase, kind, axes]
    if family == "form":
        runs = [one.split(" ") for one in by.split("; ")]
        made_of = {kind, "all_gather", "reduce_scatter"} if kind == "all_reduce" else {kind}
        return rest[1] in made_of and any(wires_match(rest[0], run[1]) and run[2] == rest[2] for run in runs)
    prefix = f"seconds.{fact.inputs.get('cost_model')}.{fact.inputs.get('hardware')}."
    return any(name == f"{prefix}{level}" for level in levels(by))


def wires_match(topology: str, wires: str) -> bool:
    """True if a collective on these wires runs closed forms of that topology; several axes are a torus."""
    return topology in wires.split("+") or topology == "torus"
