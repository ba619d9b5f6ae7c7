"""The cost model `additive`: launch + steps*latency + bytes/bandwidth of the way that a library takes, or the least."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.algebra.moves import MoveKind, wire
from tpsim.machine.algorithms import ACROSS
from tpsim.machine.combined import by_keys, least, lifted, where_more, within_limits
from tpsim.machine.cost import FREE, SIMPLE, Count, Way
from tpsim.machine.groups import LevelGroup, wires_text
from tpsim.machine.ways import Launch, Moved, ProtocolWays
from tpsim.quantity.errors import InputError, unknown
from tpsim.quantity.size import Size, largest, over, product, smallest, where_many, where_positive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tpsim.fabric.change import Change

    CountedWays = Sequence[tuple[Way, Count]]


class ChoiceQuestion(NamedTuple):
    """What the ways are for.

    V      bytes of the whole array
    n      devices
    wire   bytes per byte of V that each device must inject, whatever the way
    again  a way's cost for other bytes
    """

    V: Size
    n: Size
    wire: Size
    again: Callable[[Way, Size], Way]


def taken(ways: Sequence[Way], question: ChoiceQuestion) -> Way:
    """What a library takes of these ways: what it counts least for, or what takes least where it counts nothing."""
    counts = [(way, way.counted) for way in ways]
    free = within_limits([way for way, count in counts if count is None])
    counted = [(way, count) for way, count in counts if count is not None]
    return least([_by_count(counted, question), *free] if counted else free)


def _by_count(ways: CountedWays, question: ChoiceQuestion) -> Way:
    """The way that is counted least; it never takes less than another one did for fewer bytes.

    A library that leaves a way too late gets faster with more bytes. No plan should lean on that: time never falls.
    """
    sent = question.wire * question.V
    best = by_keys([offered.latency_s + over(sent, offered.bandwidth) for _, offered in ways], [way for way, _ in ways])
    floor = largest(0, *(_before(way, offered, ways, question) for way, offered in ways))
    lift = largest(0, floor - best.time_s)
    return lifted(best, lift)


def _before(way: Way, count: Count, ways: CountedWays, question: ChoiceQuestion) -> Any:
    """The most that a way took before another one was counted less; 0 while it is in use, and if it never is."""
    first, last = _in_use(count, [offered for _, offered in ways], question)
    if last is None:
        return 0
    reached = where_positive(smallest(question.V - last, last - first), 1)
    if isinstance(reached, int) and not reached:
        return 0
    return reached * question.again(way, largest(last, 0)).time_s


def _in_use(count: Count, every: Sequence[Count], question: ChoiceQuestion) -> tuple[Any, Any]:
    """From how many bytes on a way is counted least, and up to how many; None if no other one follows."""
    wire = where_many(question.n, question.wire, 1)

    def meets(other: Count) -> Any:
        """Bytes for which both are counted alike."""
        return over(other.latency_s - count.latency_s, wire * (1 / count.bandwidth - 1 / other.bandwidth))

    faster = [meets(other) for other in every if other.bandwidth > count.bandwidth]
    if not faster:
        return 0, None
    slower = [meets(other) for other in every if other.bandwidth < count.bandwidth]
    alike = [other for other in every if other is not count and other.bandwidth == count.bandwidth]
    never = [where_positive(count.latency_s - other.latency_s, inf) for other in alike]
    return largest(0, *slower, *never), smallest(*faster)


class Choice(NamedTuple):
    """What is forced instead of chosen; None leaves it to the library, and the launch to the profile."""

    launch: Launch = None
    algorithm: str | None = None
    protocol: str | None = None

    @property
    def forced(self) -> tuple[str, ...]:
        """Algorithm and protocol, as far as they are not left to the library."""
        return tuple(word for word in (self.algorithm, self.protocol) if word is not None)


def cost(groups: Sequence[LevelGroup], kind: MoveKind, V: Size, choice: Choice, change: Change | None = None) -> Way:
    """The way that a library takes over these groups, or the one with what is forced.

    Where an array or a symbol says how many devices a group has, all other groups may have one: then it is alone.
    change  where a permute's blocks go; None: each to the device beside it
    """
    if not groups:
        return FREE
    if change is not None:
        return _over(groups, kind, V, choice, change)
    (first, _), *others = _alternatives(groups, kind, choice)
    whole = _over(first, kind, V, choice)
    for alone, rest in others:
        whole = where_more(rest, whole, _over(alone, kind, V, choice))
    return whole


def _alternatives(
    groups: Sequence[LevelGroup], kind: MoveKind, choice: Choice
) -> list[tuple[Sequence[LevelGroup], Any]]:
    """All groups, then those that may be the only ones of more than one device, with how many devices the others have.

    A group that is known to be the only one is all there is.
    """
    every: list[tuple[Sequence[LevelGroup], Any]] = [(groups, 1)]
    for group in groups if len(groups) > 1 else ():
        others = product(other.n for other in groups if other is not group)
        known = isinstance(others, int)
        several = known and others > 1
        if not several and (choice.algorithm is None or choice.algorithm in algorithms([group], kind)):
            every = [((group,), others)] if known else [*every, ((group,), others)]
    return every


def formulas(groups: Sequence[LevelGroup], kind: MoveKind, V: Size, choice: Choice) -> Iterator[str]:
    """Every closed form that `cost` compares, by its name in a lock: ``form.switch.all_gather.ring``; some twice."""
    for part, _ in _alternatives(groups, kind, choice):
        runs = _runs(part, kind, choice)
        across = {way.algorithm for run in runs for way in run.ways(V)} & ACROSS.keys()
        yield from (
            f"form.{part[at].wires}.{of}.{name}" for (at, of, _), forms in runs[0].moved.items() for name in forms
        )
        yield from (f"form.switch.{kind}.{name}" for way in across for name in ACROSS[way].made_of)


def _over(groups: Sequence[LevelGroup], kind: MoveKind, V: Size, choice: Choice, change: Change | None = None) -> Way:
    """The way that a library takes over groups of more than one device."""
    known = protocols(groups)
    if choice.protocol not in {None, *known}:
        raise unknown(choice.protocol or "", f"protocol of {wires_text(groups)}", known)
    runs = _runs(groups, kind, choice, change)
    ways = [way for run in runs for way in run.ways(V)]
    if choice.algorithm is not None and not runs[0].known(choice.algorithm):
        raise runs[0].unknown()
    if not ways:
        asked, remedy = choice.algorithm or "what the profile offers", "force one of the two only"
        message = f"{asked} does not run with the protocol {choice.protocol}"
        if choice.protocol is None:
            message, remedy = f"{asked} does not run over {wires_text(groups)} together", "force another one, or none"
        raise InputError.one("no-such-way", message, remedy=remedy)
    return (
        taken(ways, _question(groups[0], kind, V, choice, change)) if len(groups) == 1 else least(within_limits(ways))
    )


def _runs(
    groups: Sequence[LevelGroup], kind: MoveKind, choice: Choice, change: Change | None = None
) -> list[ProtocolWays]:
    """The collective with each protocol that may be taken."""
    wanted = protocols(groups) if choice.protocol is None else (choice.protocol,)
    moved: Moved = {}
    return [ProtocolWays(groups, kind, choice.launch, choice.algorithm, protocol, moved, change) for protocol in wanted]


def _question(group: LevelGroup, kind: MoveKind, V: Size, choice: Choice, change: Change | None) -> ChoiceQuestion:
    def again(way: Way, size: Size) -> Way:
        run = ProtocolWays((group,), kind, choice.launch, way.algorithm, way.protocol, {}, change)
        (cost,) = run.ways(size)
        return cost

    return ChoiceQuestion(V, group.n, wire(kind, 1, group.n), again)


def algorithms(groups: Sequence[LevelGroup], kind: MoveKind) -> list[str]:
    """Every algorithm that could be forced."""
    return ProtocolWays(groups, kind, None, None, SIMPLE, {}).names() if groups else []


def protocols(groups: Sequence[LevelGroup]) -> tuple[str, ...]:
    """The protocols that the levels name, innermost first; a single one where none does."""
    named = (name for group in groups for name in group.level.protocols)
    return tuple(dict.fromkeys(named)) or (SIMPLE,)
