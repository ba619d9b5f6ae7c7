"""Layouts of one program whose stages take turns alike, and what is known of each: bytes, and the least of seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tpsim.layouts.copies import Remote
from tpsim.quantity.units import HOUR_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpsim.layouts.group import Group
    from tpsim.layouts.layout import Layout, Order
    from tpsim.layouts.space import Space
    from tpsim.question.memo import Memo
    from tpsim.question.question import Question
    from tpsim.question.requirements import Limit


class Weighed(NamedTuple):
    """What is known of one question that is asked for itself.

    peak_bytes, room_bytes  of the chip with the least room: what it holds at most, and what is left
    tokens  of its step
    step_s  seconds that it does not take less than
    paid_s  those that are paid for as many tokens: of replies their prompts' are among them
    may_do  False if it violates what the scenario requires
    """

    peak_bytes: float
    room_bytes: float
    tokens: int
    step_s: float = 0
    paid_s: float = 0
    may_do: bool = True


Held = tuple[Any, Any]
"""What chips hold, and what that leaves of them."""

Measure = Callable[["Question", "Memo"], Weighed]


@dataclass(slots=True, eq=False)
class Family:
    """Layouts of one program whose stages take turns alike: arrays have a number of each.

    cells   of their group
    step_s  seconds that their steps do not take less than; 0 where it does not fit
    peak_bytes, room_bytes  of the chip with the least room: what it holds at most, and what is left; where what stands
        there from step to step is too much already that, or a part of it, until it is looked at
    may_do  False where it surely violates what the scenario requires
    tokens  of a step
    paid_s  as of `Weighed`, where it is not the step's
    nearer  works out seconds of cells by what their actions do; before, they are told by whole stacks
    peaked  works out what is held at most and what is left, where that is not known
    """

    group: Group
    order: Order
    cells: Any
    step_s: Any
    peak_bytes: Any
    room_bytes: Any
    may_do: Any
    tokens: int
    paid_s: Any = None
    nearer: Callable[[Any], Any] | None = None
    peaked: Callable[[], Held] | None = None

    def __getstate__(self) -> Any:
        """Without what works out more of them, which stays where it is."""
        return object.__getstate__(replace(self, nearer=None, peaked=None))

    @property
    def space(self) -> Space:
        """What they are of."""
        return self.group.spaces[self.mesh]

    @property
    def mesh(self) -> int:
        """The number of one that they are on."""
        return int(self.group.on[self.cells[0]])

    @property
    def pp(self) -> int:
        """Their stages."""
        return self.group.sites[self.mesh].ways.pp

    @property
    def fitting(self) -> Any:
        """Whether a chip holds each."""
        return self.room_bytes >= 0

    @property
    def microbatches(self) -> Any:
        """Of each."""
        return self.group.microbatches[self.cells]

    @property
    def chips(self) -> int:
        """Of their mesh."""
        return self.space.chips or self.group.base.mesh.devices

    @property
    def price(self) -> float:
        """Of a second of all chips; 0 where none is stated."""
        base = self.group.base
        return base.price.value * self.chips / HOUR_S if base.price else 0.0

    def hold(self, held: Held | None = None, *, peaked: bool = True) -> None:
        """Work out what they hold at most, and what that leaves, where it is not told.

        peaked  False: what is told is not the most, but more than was known
        """
        if self.peaked:
            self.peak_bytes, self.room_bytes = held or self.peaked()
            self.peaked = None if peaked else self.peaked

    def begin_to_hold(self) -> None:
        """Have a copy begin to work out what `hold` asks it for."""
        if isinstance(self.peaked, Remote):
            self.peaked.begin()

    @property
    def copy(self) -> int | None:
        """The copy of this process that works out more of them; None if this one does."""
        return self.nearer.copy if isinstance(self.nearer, Remote) else None

    def begin(self) -> None:
        """Have a copy begin to work out what `bound` asks it for."""
        if isinstance(self.nearer, Remote) and self.peaked is None and self.fitting.any():
            self.nearer.begin(self.cells[self.fitting])

    def bound(self) -> None:
        """Work out what seconds they take at least, as near as can be told without a plan."""
        self.hold()
        fits = self.room_bytes >= 0  # of a layout that does not fit nobody asks how fast it were
        if self.nearer and fits.any():
            self.step_s[fits] = self.nearer(self.cells[fits])
            limits = self.group.base.limits
            self.may_do[fits] = _may_do(limits, self.step_s[fits], self.peak_bytes[fits], self.tokens)
        self.nearer = None


class Bare(NamedTuple):
    """Families of one program as another process is sent them: their arrays as one, each behind the one before.

    each    of every family its order, how many layouts it has, its tokens, whether it has `paid_s`, and the names of
            what works out more of it
    arrays  a row of each: cells, step_s, peak_bytes, room_bytes, may_do, paid_s
    """

    each: Sequence[tuple[Order, int, int, bool, Sequence[str]]]
    arrays: Any

    def families(self, group: Group, more: Callable[[int, str], Any]) -> Iterator[Family]:
        """The families; more: what works out more of the one of a number, by its name."""
        start = 0
        for number, (order, count, tokens, paid, names) in enumerate(self.each):
            cells, step_s, peak_bytes, room_bytes, may_do, paid_s = self.arrays[:, start : start + count]
            known = cells.astype(int), step_s, peak_bytes, room_bytes, may_do.astype(bool), tokens
            there = {name: more(number, name) for name in names}
            yield Family(group, order, *known, paid_s if paid else None, **there)
            start += count


def bare(families: Sequence[Family]) -> Bare:
    """Some families, to be sent."""
    each, rows = [], []
    for one in families:
        paid, names = one.paid_s is not None, [name for name in ("nearer", "peaked") if getattr(one, name)]
        each.append((one.order, len(one.cells), one.tokens, paid, names))
        known = one.cells, one.step_s, one.peak_bytes, one.room_bytes, one.may_do
        rows.append((*known, one.paid_s if paid else one.step_s))
    return Bare(each, np.array([np.concatenate(row) for row in zip(*rows, strict=True)], dtype=float))


@dataclass(frozen=True, slots=True)
class Candidate:
    """One layout of a family."""

    family: Family
    at: int

    @property
    def space(self) -> Space:
        """What it is of."""
        return self.family.space

    @property
    def layout(self) -> Layout:
        """Which it is."""
        return self.family.group.layout(int(self.family.cells[self.at]), self.family.order)

    @property
    def step_s(self) -> float:
        """Seconds that its step does not take less than."""
        return float(self.family.step_s[self.at])

    @property
    def peak_bytes(self) -> float:
        """What the chip with the least room holds at most."""
        return float(self.family.peak_bytes[self.at])

    @property
    def room_bytes(self) -> float:
        """What is left of that chip."""
        return float(self.family.room_bytes[self.at])


def held(question: Question, peak_bytes: Any, host_bytes: Any = None) -> Held:
    """What chips hold of layouts of a question, of which so much is planned, and what that leaves of them.

    host_bytes  that each has on its host, which may leave less of its part of that; None where it has none
    """
    capacity = float(question.machine.chip.memory.capacity.value)
    room = capacity - (peak_bytes + question.assume.memory.beside(peak_bytes))
    if host_bytes is not None:
        from tpsim.machine.host import share_bytes

        room = np.minimum(room, share_bytes(question.machine, question.mesh.devices) - host_bytes)
    return peak_bytes, room


def _may_do(limits: Sequence[Limit], step_s: Any, peak_bytes: Any, tokens: int) -> Any:
    """False where demands cannot hold, since the step takes no less than that."""
    with np.errstate(divide="ignore"):
        least = {"step": step_s, "peak": peak_bytes, "tokens_per_s": tokens / step_s}
    exact = {"peak": "<=>", "step": "<", "tokens_per_s": ">"}
    asked = [limit for limit in limits if limit.name in exact and limit.relation[0] in exact[limit.name]]
    able: Any = np.ones(len(step_s), dtype=bool)
    for limit in asked:
        able = able & limit.holds(least[limit.name])
    return able
