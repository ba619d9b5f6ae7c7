"""The cost model `additive`: launch + steps*latency + bytes/bandwidth of the way that a library takes, or the least."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpsim.algebra.moves import wire
from tpsim.frozen import dataclass
from tpsim.machine.algorithms import ACROSS
from tpsim.machine.choice import ChoiceQuestion, taken
from tpsim.machine.combined import least, where_more
from tpsim.machine.cost import FREE, SIMPLE, Cost
from tpsim.machine.groups import wires_text
from tpsim.machine.ways import Ways
from tpsim.quantity.errors import InputError, unknown
from tpsim.quantity.size import Size, product

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpsim.algebra.moves import MoveKind
    from tpsim.fabric.change import Change
    from tpsim.machine.groups import Group
    from tpsim.machine.ways import Launch, Moved


@dataclass(frozen=True, slots=True)
class Choice:
    """What is forced instead of chosen; None leaves it to the library, and the launch to the profile."""

    launch: Launch = None
    algorithm: str | None = None
    protocol: str | None = None

    @property
    def forced(self) -> tuple[str, ...]:
        """Algorithm and protocol, as far as they are not left to the library."""
        return tuple(word for word in (self.algorithm, self.protocol) if word is not None)


def cost(found: Sequence[Group], kind: MoveKind, V: Size, choice: Choice, change: Change | None = None) -> Cost:
    """The way that a library takes over these groups, or the one with what is forced.

    Where an array or a symbol says how many devices a group has, all other groups may have one: then it is alone.
    change  where a permute's blocks go; None: each to the device beside it
    """
    if not found:
        return FREE
    if change is not None:
        return _over(found, kind, V, choice, change)
    (first, _), *others = _alternatives(found, kind, choice)
    whole = _over(first, kind, V, choice)
    for alone, rest in others:
        whole = where_more(rest, whole, _over(alone, kind, V, choice))
    return whole


def _alternatives(found: Sequence[Group], kind: MoveKind, choice: Choice) -> list[tuple[Sequence[Group], Any]]:
    """All groups, then those that may be the only ones of more than one device, with how many devices the others have.

    A group that is known to be the only one is all there is.
    """
    every: list[tuple[Sequence[Group], Any]] = [(found, 1)]
    for group in found if len(found) > 1 else ():
        others = product(one.n for one in found if one is not group)
        known = isinstance(others, int)
        several = known and others > 1
        if not several and (choice.algorithm is None or choice.algorithm in algorithms([group], kind)):
            every = [((group,), others)] if known else [*every, ((group,), others)]
    return every


def formulas(
    found: Sequence[Group], kind: MoveKind, V: Size, choice: Choice, change: Change | None = None
) -> Iterator[str]:
    """Every closed form that `cost` compares, by its name in a lock: ``form.switch.all_gather.ring``; some twice.

    A change of axes, whose blocks are summed one by one, is ``form.ring.permute.change``.
    """
    if change is not None:
        yield from (f"form.{one.topology}.permute.change" for group in found for one in group.segments)
        return
    for part, _ in _alternatives(found, kind, choice):
        runs = _runs(part, kind, choice)
        across = {way.algorithm for run in runs for way in run.ways(V)} & ACROSS.keys()
        yield from (
            f"form.{part[at].wires}.{of}.{name}" for (at, of, _), forms in runs[0].moved.items() for name in forms
        )
        yield from (f"form.switch.{kind}.{name}" for way in across for name in ACROSS[way].made_of)


def _over(found: Sequence[Group], kind: MoveKind, V: Size, choice: Choice, change: Change | None = None) -> Cost:
    """The way that a library takes over groups of more than one device."""
    known = protocols(found)
    if choice.protocol not in {None, *known}:
        raise unknown(choice.protocol or "", f"protocol of {wires_text(found)}", known)
    runs = _runs(found, kind, choice, change)
    ways = [way for run in runs for way in run.ways(V)]
    if choice.algorithm is not None and not runs[0].known(choice.algorithm):
        raise runs[0].unknown()
    if not ways:
        raise _not_together(choice)
    return taken(ways, _question(found[0], kind, V, choice, change)) if len(found) == 1 else least(ways)


def _runs(found: Sequence[Group], kind: MoveKind, choice: Choice, change: Change | None = None) -> list[Ways]:
    """The collective with each protocol that may be taken."""
    wanted = protocols(found) if choice.protocol is None else (choice.protocol,)
    moved: Moved = {}
    return [Ways(found, kind, choice.launch, choice.algorithm, protocol, moved, change) for protocol in wanted]


def _question(group: Group, kind: MoveKind, V: Size, choice: Choice, change: Change | None) -> ChoiceQuestion:
    def again(way: Cost, size: Size) -> Cost:
        run = Ways((group,), kind, choice.launch, way.algorithm, way.protocol, {}, change)
        (found,) = run.ways(size)
        return found

    return ChoiceQuestion(V, group.n, wire(kind, 1, group.n), again)


def algorithms(found: Sequence[Group], kind: MoveKind) -> list[str]:
    """Every algorithm that could be forced."""
    return Ways(found, kind, None, None, SIMPLE, {}).names() if found else []


def protocols(found: Sequence[Group]) -> tuple[str, ...]:
    """The protocols that the levels name, innermost first; a single one where none does."""
    named = (name for group in found for name in group.level.protocols)
    return tuple(dict.fromkeys(named)) or (SIMPLE,)


def _not_together(choice: Choice) -> InputError:
    message = f"{choice.algorithm or 'what the profile offers'} does not run with the protocol {choice.protocol}"
    return InputError.one("no-such-way", message, remedy="force one of the two only")
