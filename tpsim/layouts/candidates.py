"""All layouts of a space, weighed: what each holds, and seconds that its step does not take less than."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tpsim.layouts.copies import Copies
from tpsim.layouts.family import Candidate
from tpsim.layouts.group import joined
from tpsim.layouts.legal import Legal
from tpsim.layouts.shared import Job, Shared

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from tpsim.layouts.family import Family, Measure
    from tpsim.layouts.group import Group
    from tpsim.layouts.reason import Reason
    from tpsim.layouts.space import Space
    from tpsim.question.memo import Memo


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


def evaluate(spaces: Sequence[Space], memo: Memo, measure: Measure, workers: int = 1) -> Evaluation:
    """Every legal layout of some spaces.

    measure  what is asked of a question for itself: of inference, and of layouts that are split by seconds
    workers  processes that share the programs; the answer is the same for any number
    Raises InputError for a scenario that cannot be read, and where there is no layout at all.
    """
    legals = [Legal(space, memo) for space in spaces]
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
    for refused, families in shared.by(copies):
        whole.refused += refused
        whole.families += families
    if not whole.considered:
        legals[0].refuse_nothing()
    return whole
