"""All layouts of a space, weighed: what each holds, and seconds that its step does not take less than."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tpsim.layouts.bounds import Bounds
from tpsim.layouts.figures import Figures
from tpsim.layouts.group import joined
from tpsim.layouts.legal import Legal
from tpsim.layouts.peaks import Peaks
from tpsim.layouts.sorts import sorts
from tpsim.program.schedules import SCHEDULES
from tpsim.quantity.errors import InputError
from tpsim.quantity.units import HOUR_S

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from tpsim.layouts.group import Group
    from tpsim.layouts.layout import Layout
    from tpsim.layouts.sorts import Sorts
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


Measure = Callable[["Question", "Memo"], Weighed]


@dataclass(slots=True, eq=False)
class Family:
    """Layouts of one program whose stages take turns alike: arrays have a number of each.

    cells   of their group
    step_s  seconds that their steps do not take less than; 0 where it does not fit
    peak_bytes, room_bytes  of the chip with the least room: what it holds at most, and what is left; where it holds too
        much from step to step already that, and what that leaves, until it is looked at
    may_do  False where it surely violates what the scenario requires
    tokens  of a step
    paid_s  as of `Weighed`, where it is not the step's
    nearer  works out seconds of cells by what their actions do; before, they are told by whole stacks
    peaked  works out what is held at most and what is left, where that is not known
    """

    group: Group
    schedule: str
    chunks: int
    cells: Any
    step_s: Any
    peak_bytes: Any
    room_bytes: Any
    may_do: Any
    tokens: int
    paid_s: Any = None
    nearer: Callable[[Any], Any] | None = None
    peaked: Callable[[], tuple[Any, Any]] | None = None

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
        return self.group.ways[self.mesh].pp

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

    def hold(self) -> None:
        """Work out what they hold at most."""
        if self.peaked:
            self.peak_bytes, self.room_bytes = self.peaked()
            self.peaked = None

    def bound(self) -> None:
        """Work out what seconds they take at least, as near as can be told without a plan."""
        self.hold()
        fits = self.room_bytes >= 0  # of a layout that does not fit nobody asks how fast it were
        if self.nearer and fits.any():
            self.step_s[fits] = self.nearer(self.cells[fits])
            limits = self.group.base.limits
            self.may_do[fits] = _may_do(limits, self.step_s[fits], self.peak_bytes[fits], self.tokens)
        self.nearer = None


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
        return self.family.group.layout(int(self.family.cells[self.at]), self.family.schedule, self.family.chunks)

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


@dataclass
class Evaluation:
    """Layouts weighed, and how many there were; covered: those that are not looked at, for another one does better."""

    considered: int = 0
    covered: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    families: list[Family] = field(default_factory=list)

    @property
    def legal(self) -> int:
        """How many are not refused."""
        return sum(len(family.cells) for family in self.families)

    @property
    def fitting(self) -> int:
        """How many of these a chip holds."""
        return sum(int(family.fitting.sum()) for family in self.families)

    @property
    def candidates(self) -> list[Candidate]:
        """All that are not refused, one by one."""
        return [Candidate(family, int(at)) for family in self.families for at in range(len(family.cells))]


def evaluate(spaces: Sequence[Space], memo: Memo, measure: Measure) -> Evaluation:
    """Every legal layout of some spaces.

    measure  what is asked of a question for itself: of inference, and of layouts that are split by seconds
    Raises InputError for a scenario that cannot be read, and where there is no layout at all.
    """
    whole = Evaluation()
    alike: list[tuple[Space, defaultdict[Hashable, list[Group]]]] = []
    for space in spaces:
        legal = Legal(space, memo)
        whole.considered += legal.considered
        whole.covered += legal.covered
        whole.refused += legal.refused
        programs = next((programs for earlier, programs in alike if not space.differs(earlier)), None)
        if programs is None:
            programs = defaultdict(list)
            alike.append((space, programs))
        for group in legal.groups:
            programs[group.program].append(group)
    for _, programs in alike:
        prices: dict[Hashable, Any] = {}
        for groups in programs.values():
            whole.families += _Evaluator(joined(groups), memo, prices, whole.refused, measure).families()
    if not whole.considered:
        Legal(spaces[0], memo).refuse_nothing()
    return whole


@dataclass
class _Evaluator:
    """What weighs the layouts of one program, and counts those that have no price."""

    group: Group
    memo: Memo
    prices: dict[Hashable, Any]
    refused: Counter[str]
    measure: Measure

    def __post_init__(self) -> None:
        group = self.group
        if group.base.inference:
            return  # a plan takes milliseconds: all are asked for
        self.figures = Figures(group.example, group.meshes, group.on, group.microbatches, self.memo, self.prices)
        self.figures.calls.price_all()
        self.bounds = Bounds(self.figures)

    def families(self) -> Iterator[Family]:
        """All of them."""
        if self.group.base.inference:
            for _, schedule, chunks, _, cells in self.group.turns:
                try:
                    yield self._one_by_one(schedule, chunks, cells)
                except InputError as error:
                    self.refused[error.problems[0].slug] += len(cells)
            return
        unlike = _unlike(self.group.example)
        alike: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
        for mesh, schedule, chunks, layers, cells in self.group.turns:
            if reason := self.figures.calls.refused(mesh, around=chunks > 1):
                self.refused[reason] += len(cells)
                continue
            pp = self.group.ways[mesh].pp
            space = id(self.group.spaces[mesh])
            sort = (space, schedule, pp, chunks, layers or (self.group.example.model.layers,))
            if unlike:
                yield self._one_by_one(schedule, chunks, cells)
            else:
                alike[sort].append(cells)
        several = [self._sorts(pp, layers) for _, _, pp, _, layers in alike]
        peaks = Peaks(self.figures, several)
        for ((_, schedule, _, chunks, _), members), each in zip(alike.items(), several, strict=True):
            yield self._family(schedule, chunks, each, np.concatenate(members), peaks)

    def _sorts(self, pp: int, layers: tuple[int, ...]) -> Sorts:
        question = self.group.example
        key = ("sorts", pp, layers, question.practice.recompute_layers, question.model.stack)
        if key not in self.prices:
            self.prices[key] = sorts(layers, pp, question.practice, question.model.stack)
        return self.prices[key]  # type: ignore[no-any-return]  # put there above

    def _family(self, schedule: str, chunks: int, sorts: Sorts, cells: Any, peaks: Peaks) -> Family:
        overlap = self.group.example.practice.overlap
        blocking = bool(schedule) and overlap.blocks_stages(usual=SCHEDULES[schedule].blocking) is True
        least = peaks.least_bytes(cells, sorts)

        def seconds(some: Any) -> Any:
            return self.bounds.step_s(some, schedule, sorts, blocking=blocking)

        family = Family(
            self.group,
            schedule,
            chunks,
            cells,
            np.zeros(len(cells)),
            *self._held(least),
            np.ones(len(cells), dtype=bool),
            self.group.base.workload.tokens,
            None,
            seconds,
            lambda: self._held(peaks.peak_bytes(cells, schedule, sorts)),
        )
        if family.fitting.any():
            family.hold()
        if (fits := family.fitting).any():
            family.step_s[fits] = self.bounds.rough_s(cells[fits], schedule, sorts)
            if self.group.example.limits:
                family.bound()
        return family

    def _held(self, peak_bytes: Any) -> tuple[Any, Any]:
        """What a chip holds, and what that leaves of it."""
        question = self.group.example
        beside = question.assume.memory.beside(peak_bytes)
        return peak_bytes, float(question.machine.chip.memory.capacity.value) - (peak_bytes + beside)

    def _one_by_one(self, schedule: str, chunks: int, cells: Any) -> Family:
        """Layouts that are each asked for itself; of training, where seconds split layers, kernels are the bound."""
        layouts = (self.group.layout(int(cell), schedule, chunks) for cell in cells)
        space = self.group.spaces[int(self.group.on[cells[0]])]
        asked = [space.question(layout, self.memo, told=False) for layout in layouts]
        weighed = [self.measure(question, self.memo) for question in asked]
        peak_bytes, room, _, steps, paid, may_do = map(np.array, zip(*weighed, strict=True))
        if not self.group.base.inference:
            steps = paid = np.array([self.bounds.worked_s(*each) for each in zip(cells, asked, strict=True)])
        known = steps, peak_bytes, room, may_do, weighed[0].tokens, paid
        return Family(self.group, schedule, chunks, cells, *known)


def _unlike(question: Question) -> bool:
    """True where a split is not what layers alone say."""
    stages = question.stated.file.pipeline
    return stages is not None and stages.layers == "balanced"


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
