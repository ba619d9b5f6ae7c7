"""All layouts of a space, weighed: what each holds, and seconds that its step does not take less than.

Several processes evaluate the programs of a search: each takes another when it is done with one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from tpsim.layouts.copies import Copies, Remote
from tpsim.layouts.evaluator import Evaluator
from tpsim.layouts.family import Bare, Candidate, Family, Measure, bare
from tpsim.layouts.group import Group, joined
from tpsim.layouts.legal import Legal
from tpsim.layouts.meshes import refuse_no_mesh, refuse_none
from tpsim.layouts.reason import Reason
from tpsim.quantity.progress import unwatched

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from tpsim.layouts.peaks import Peaks
    from tpsim.layouts.space import Space
    from tpsim.quantity.progress import Progress
    from tpsim.question.memo import Memo


Evaluated = tuple[Counter[Reason], list[Family]]
"""Of one program: layouts without a price, by reason, and the others."""


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """The layouts of one program; prices: those of calls, which programs of spaces alike share."""

    group: Group
    prices: dict[Hashable, Any]


@dataclass(frozen=True, eq=False)
class Shared:
    """What all processes know of a search, and what each has evaluated.

    evaluated  by the number of a job
    """

    spaces: Sequence[Space]
    jobs: Sequence[Job]
    memo: Memo
    measure: Measure
    evaluated: dict[int, Evaluated] = field(default_factory=dict)

    @cached_property
    def alike(self) -> list[list[int]]:
        """The numbers of jobs that one process does: they are traced alike, but for ZeRO."""
        alike: defaultdict[Hashable, list[int]] = defaultdict(list)
        for at, job in enumerate(self.jobs):
            one = job.group.first
            split = one.tp > 1, one.ep > 1, one.over_tp, one.cache
            alike[id(job.prices), split, one.sequence_parallel, one.recompute].append(at)
        return [*alike.values()]

    def evaluate(self, number: int) -> None:
        """Evaluate some that are alike."""
        alike: dict[Hashable, Peaks] = {}
        for at in reversed(self.alike[number]):  # who has most room has to be traced, and tells of the others
            job, refused = self.jobs[at], Counter[Reason]()
            families = [*Evaluator(job.group, self.memo, job.prices, refused, self.measure, alike).families()]
            self.evaluated[at] = refused, families

    def by(self, copies: Copies[Shared], begun: Callable[[int], None]) -> list[Evaluated]:
        """What jobs come to, in their order; families of a copy ask it for what is not known of them yet.

        begun  as `Copies.shared` takes it, of those that are alike
        """
        told = copies.shared(_evaluated, [(number,) for number in range(len(self.alike))], self.evaluate, begun)
        for jobs, (copy, made) in zip(self.alike, told, strict=True):
            if copy is not None:
                for at, (refused, sent) in zip(jobs, made, strict=True):
                    more = partial(Remote, copies, copy, _worked_out, at)
                    self.evaluated[at] = refused, [*sent.families(self.jobs[at].group, more)]
        return [self.evaluated[at] for at in range(len(self.jobs))]


def _evaluated(shared: Shared, number: int) -> list[tuple[Counter[Reason], Bare]]:
    """What some jobs come to, of their families what can be sent."""
    shared.evaluate(number)
    told = [shared.evaluated[at] for at in shared.alike[number]]
    return [(refused, bare(families)) for refused, families in told]


def _worked_out(shared: Shared, job: int, number: int, name: str, *some: Any) -> Any:
    return getattr(shared.evaluated[job][1][number], name)(*some)


@dataclass
class Evaluation:
    """Layouts weighed, and how many there were; covered: those that are not looked at, for another one does better.

    copies  processes that weighed some of them, and can plan any
    """

    copies: Copies[Shared]
    considered: int
    covered: int
    refused: Counter[Reason] = field(default_factory=Counter)
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


def evaluate(
    spaces: Sequence[Space], memo: Memo, measure: Measure, workers: int = 1, progress: Progress = unwatched
) -> Evaluation:
    """Every legal layout of some spaces.

    measure   what is asked of a question for itself: of inference, and of layouts that are split by seconds
    workers   processes that share the programs; the answer is the same for any number
    progress  is told what is looked at
    Raises InputError for a scenario that cannot be read, and where there is no layout at all.
    """
    legals: list[Legal] = []
    for space in spaces:
        progress(len(legals), len(spaces), f"space{'s' * (len(spaces) > 1)} of layouts listed")
        legals.append(Legal(space, memo))
    refuse_no_mesh(spaces, [legal.base for legal in legals])
    alike: list[tuple[Space, defaultdict[Hashable, list[Group]]]] = []
    for space, legal in zip(spaces, legals, strict=True):
        programs = next((programs for earlier, programs in alike if not space.differs(earlier)), None)
        if programs is None:
            programs = defaultdict(list)
            alike.append((space, programs))
        for group in legal.groups:
            programs[group.program].append(group)
    jobs: list[Job] = []
    for _, programs in alike:
        prices: dict[Hashable, Any] = {}
        jobs += [Job(joined(groups), prices) for groups in programs.values()]
    shared = Shared(spaces, jobs, memo, measure)
    copies = Copies(shared, workers - 1)
    whole = Evaluation(copies, sum(legal.considered for legal in legals), sum(legal.covered for legal in legals))
    for legal in legals:
        whole.refused += legal.refused
    what = f"groups weighed, of {whole.considered:,} layouts"
    for refused, families in shared.by(copies, lambda done: progress(done, len(shared.alike), what)):
        whole.refused += refused
        whole.families += families
    if not whole.considered:
        refuse_none(spaces[0], legals[0].base, memo)
    return whole
