"""All layouts of a space, weighed: what each holds, and seconds that its step does not take less than."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from tpsim.layouts.bounds import Bounds
from tpsim.layouts.figures import Figures
from tpsim.layouts.legal import Legal
from tpsim.layouts.walk import settled
from tpsim.program.kinds import kinds
from tpsim.program.schedules import SCHEDULES
from tpsim.quantity.units import HOUR_S

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from tpsim.layouts.legal import Group
    from tpsim.layouts.space import Layout, Space
    from tpsim.question.question import Limit, Question
    from tpsim.question.shelf import Shelf


Room = tuple[float, float]
"""What a question holds at most, and the room that this leaves."""


@dataclass(slots=True, eq=False)
class Weighed:
    """One layout.

    step_s  seconds that its step does not take less than
    peak_bytes, room_bytes  of the chip with the least room: what it holds at most, and what is left
    tokens  of a step
    price   of a second of all chips; 0 where none is stated
    may_do  False if it surely violates what the scenario requires
    nearer  what works out more of the seconds of all layouts of its family; None where no more is known
    """

    space: Space
    layout: Layout
    step_s: float
    peak_bytes: float
    room_bytes: float
    tokens: int
    price: float
    may_do: bool = True
    nearer: Callable[[], None] | None = None


@dataclass
class Weighing:
    """Layouts weighed, and how many there were."""

    considered: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    found: list[Weighed] = field(default_factory=list)


def weigh(spaces: Sequence[Space], shelf: Shelf, held: Callable[[Question, Shelf], Room]) -> Weighing:
    """Every legal layout of some spaces.

    held  bytes at the peak of a question and what room they leave, for layouts whose layers are unlike
    Raises InputError for a scenario that cannot be read, and where there is no layout at all.
    """
    whole = Weighing()
    for space in spaces:
        legal = Legal(space, shelf)
        prices: dict[Hashable, Any] = {}
        whole.considered += legal.considered
        whole.refused += legal.refused
        for group in legal.groups:
            figures = Figures(group.example, group.cells, shelf, prices)
            figures.price_all()
            whole.found += _group(space, group, whole, held, Bounds(figures))
    if not whole.considered:
        Legal(spaces[0], shelf).refuse_nothing()
    return whole


def _group(
    space: Space, group: Group, whole: Weighing, held: Callable[[Question, Shelf], Room], bounds: Bounds
) -> Iterator[Weighed]:
    """The layouts of one program."""
    alike: dict[tuple[Any, ...], list[tuple[int, Layout]]] = defaultdict(list)
    shelf, overlap = bounds.figures.shelf, group.example.practice.overlap
    stated = group.example.price
    price = stated.value * group.example.mesh.devices / HOUR_S if stated else 0.0
    tokens, model = group.example.workload.tokens, group.example.model
    unlike = _unlike(group.example)
    for cell, layout, layers in group.layouts:
        pp, v, m = layout.pp, layout.chunks, layout.microbatches
        if reason := bounds.figures.refused(cell, around=v > 1):
            whole.refused[reason] += 1
        elif unlike or len({*layers}) > 1:
            one = space.question(layout, shelf)
            yield Weighed(space, layout, bounds.worked_s(cell, one), *held(one, shelf), tokens, price)
        else:
            each = layers[0] if layers else model.layers
            alike[layout.schedule, pp, v, each, settled(layout.schedule, pp, v, m)].append((cell, layout))
    for (schedule, pp, v, each, _), members in alike.items():
        cells = np.array([cell for cell, _ in members])
        peaks = bounds.peak_bytes(cells, schedule, pp, v, each)
        rooms = _rooms(group.example, peaks)
        family = [
            Weighed(space, layout, 0, peak, room, tokens, price)
            for (_, layout), peak, room in zip(members, peaks.tolist(), rooms.tolist(), strict=True)
        ]
        if (fit := np.flatnonzero(rooms >= 0)).size:  # of a layout that does not fit nobody asks how fast it were
            blocking = bool(schedule) and overlap.blocks_stages(usual=SCHEDULES[schedule].blocking) is True
            asked = partial(bounds.step_s, cells[fit], schedule, pp, v, each, blocking=blocking)
            _bound([family[at] for at in fit.tolist()], asked, group.example.limits)
        yield from family


def _unlike(question: Question) -> bool:
    """True where chunks of as many layers may differ, or a split is not what layers alone say."""
    model, stages = question.model, question.stated.file.pipeline
    balanced = stages is not None and stages.layers == "balanced"
    return balanced or model.mtp is not None or len(kinds(question.practice, model.stack)) > 1


def _bound(family: Sequence[Weighed], step_s: Callable[..., Any], limits: Sequence[Limit]) -> None:
    """Say what seconds kernels alone take; all that is issued is looked at where these do not suffice."""

    def known(*, alone: bool, nearer: Callable[[], None] | None = None) -> None:
        for one, seconds in zip(family, step_s(alone=alone).tolist(), strict=True):
            one.step_s, one.nearer = seconds, nearer
            one.may_do = _may_do(limits, seconds, one.peak_bytes, one.tokens)

    known(alone=True, nearer=partial(known, alone=False))


def _rooms(question: Question, peaks: Any) -> Any:
    """What peaks leave of a chip's memory."""
    return float(question.machine.chip.memory_capacity.value) - (peaks + question.assume.memory.beside(peaks))


def _may_do(limits: Sequence[Limit], step_s: float, peak_bytes: float, tokens: int) -> bool:
    """False if demands cannot hold, since the step takes no less than that."""
    rate = tokens / step_s if step_s else inf
    least = {"step": step_s, "peak": peak_bytes, "tokens_per_s": rate}
    exact = {"peak": "<=>", "step": "<", "tokens_per_s": ">"}
    return all(one.holds(least[one.name]) for one in limits if one.name in exact and one.relation[0] in exact[one.name])
