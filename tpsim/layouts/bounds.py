"""Seconds that no step of some layouts takes less than, as arrays.

Of an action all that hangs on each other in line counts, and what each lane carries; between actions only what cannot
be escaped is counted: a rank begins when the first microbatch has come to it, works all of its own, and what it did
last must come back to the first stage. Each rank says so of the step; the greatest holds. Where nothing makes all ranks
end a step together, each begins the next on its own: what a rank does then counts from its own start.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from tpsim.layouts.walk import FUSED, SPLIT, begins, named
from tpsim.program.schedules import SCHEDULES
from tpsim.quantity.once import Once
from tpsim.quantity.size import total

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from tpsim.layouts.figures import Figures
    from tpsim.layouts.sorts import Alike, Sorts
    from tpsim.program.stages import Chunk
    from tpsim.question.question import Question


@dataclass
class Bounds(Once):
    """Seconds of layouts of one program.

    They are asked for by cells: numbers of those of `figures`, all with chunks of the same sorts.
    """

    figures: Figures

    def step_s(self, cells: Any, schedule: str, sorts: Sorts, *, blocking: bool) -> Any:
        """Seconds that no step takes less than; of actions what follows without issuing them."""
        figures = self.figures
        ends = sorts.ranks > 1  # without stages calls of both ends are joined otherwise

        def lane(name: str) -> Any:
            return self._stack(name, sorts, lambda chunk: figures.beside_s(chunk, name, ends=ends), ends)[:, cells]

        def acted(acts: str) -> Any:
            return self._stack(acts, sorts, partial(figures.least_s, acts=acts, ends=ends), ends)[:, cells]

        def wholes(name: str, of: Callable[..., Any]) -> Any:
            ranks = [(sorts.wholes[rank], sorts.on_rank(rank)) for rank in (0, *sorts.telling)]
            return np.stack([self._once((name, *rank, ends), partial(of, *rank, ends=ends))[cells] for rank in ranks])

        def late(acts: str) -> Any:
            waits = partial(figures.stragglers.late_s, acts=acts, once=True)
            return self._stack(f"late {acts}", sorts, lambda chunk: figures.whole(waits(chunk)), ends=False)[:, cells]

        actions = named(schedule)
        works = np.stack([acted(acts) for acts in actions])
        together = figures.example.practice.clip == "norm"
        lead, zeros = np.maximum(lane("fresh") - works[0], 0), np.zeros(works[0].shape)
        early = sorts.ranks > 1 and figures.example.practice.ahead.is_early(usual=SCHEDULES[schedule].early)
        fresh, lead = (zeros, lead) if early else (lead + late("F"), zeros)
        m, hop = figures.microbatches[cells], figures.calls.hop_s[cells]
        shared = wholes("shared", figures.shared_s)
        once, updates = (wholes(f"once {late}", partial(figures.once_s, late=late)) for late in (False, True))
        links = wholes("links", figures.links_s) - (updates + lead.max(axis=0) if ends else 0)
        behind = lane("reduced"), lane("last"), late(actions[-1])
        pipe = _Pipe(schedule, sorts, m, hop, works, fresh, lead, *behind, once, shared, updates)
        waits = _Gaps(m, hop) if blocking and 1 < sorts.ranks == len(sorts.of) else None
        return np.maximum(pipe.step_s(waits, together=together), links.max(axis=0))

    def rough_s(self, some: Sequence[Alike]) -> Any:
        """Seconds that no step takes less than, per layout: less than `step_s` says, and quick to come by.

        Some rank works no less than their mean. To the last one the first microbatch has to come, and from there its
        last one back; of a backward in two parts the second may run meanwhile.
        """
        told: dict[Hashable, Any] = {}
        for split in (False, True):
            sorts = [*dict.fromkeys(alike.sorts for alike in some if (named(alike.schedule) == SPLIT) == split)]
            told |= {(each, split): seconds for each, seconds in zip(sorts, self._rough_s(sorts, split), strict=True)}
        return np.concatenate([told[each, named(schedule) == SPLIT][cells] for schedule, each, cells in some])

    def _rough_s(self, every: Sequence[Sorts], split: bool) -> Any:
        if not every:
            return []
        figures, acts, actions = self.figures, "FB" if split else "FBW", SPLIT if split else FUSED
        m, hop, p = figures.microbatches, figures.calls.hop_s, np.array([[sorts.ranks] for sorts in every])

        def worked(chunks: Sequence[Chunk], acts: str) -> Any:
            return figures.worked_s(chunks, acts, ends=False)

        away = worked([sorts.ahead for sorts in every], acts) + 2 * (p - 1) * hop
        last = m * worked([sorts.wholes[-1] for sorts in every], acts)
        told = {whole: self._mean_s(whole, actions) for whole in dict.fromkeys(sorts.all for sorts in every)}
        return reduce(np.maximum, (np.stack([told[sorts.all] for sorts in every]) / p, last + away))

    def _mean_s(self, whole: Chunk, actions: Sequence[str]) -> Any:
        """Seconds that all ranks take, one behind the other.

        Where products are cut to run beside calls, what hangs on each other in line is most of what an action takes,
        and links are full for long: else neither is worth its while before a layout is looked at nearer.
        """
        figures, m = self.figures, self.figures.microbatches
        if not figures.in_line.cuts_products:
            return m * figures.worked_s([whole], "FBW", ends=False)[0]
        acted = total(figures.in_line_s(whole, acts, ends=False) for acts in actions)
        return reduce(np.maximum, (m * acted, m * figures.beside_s(whole, "reduced", ends=False), self._links_s(whole)))

    def _links_s(self, whole: Chunk) -> Any:
        """Seconds in which all ranks fill links, but for what one begins with before its step, or ends behind it."""
        figures = self.figures
        fresh = figures.beside_s(whole, "fresh", ends=True)
        return figures.links_s(whole, (), ends=False) - figures.once_s(whole, (), ends=True, late=True) - fresh

    def _stack(self, name: str, sorts: Sorts, of: Callable[[Chunk], Any], ends: bool) -> Any:
        """Seconds of every sort of chunk, in all cells."""
        return self._once((name, sorts.chunks, ends), lambda: np.stack([of(chunk) for chunk in sorts.chunks]))

    def worked_s(self, cell: int, question: Question) -> float:
        """Seconds that the kernels of the busiest rank take, however its layers are split."""
        works = [(where, self.figures.whole(s)[cell]) for where, s in self.figures.works("FBW")]
        stages = question.stages
        ranks = (stages.of(rank) for rank in range(stages.ranks))
        rank_s = (sum(s * stages.times(where, chunk) for chunk in rank for where, s in works) for rank in ranks)
        return float(question.workload.microbatches * max(rank_s))


@dataclass(frozen=True)
class _Pipe:
    """What chunks take, of every sort and in every cell.

    works    [acts, sort, cell] of an action
    fresh    [sort, cell] that the first microbatch waits for new weights, and for who comes late with them, beside that
    lead     [sort, cell] that a rank whose first chunk it is waits for new weights before its first action
    reduced  of reductions of gradients beside an action; last: of those beside the last microbatch's
    late     that the last microbatch waits for who comes late with gradients
    once_s   [rank, cell] that ranks work and wait once per step: the first one, then those that tell
    shared_s likewise that they do together behind that; update_s: that they do alone behind it
    """

    schedule: str
    sorts: Sorts
    microbatches: Any
    hop: Any
    works: Any
    fresh: Any
    lead: Any
    reduced: Any
    last: Any
    late: Any
    once_s: Any
    shared_s: Any
    update_s: Any

    def step_s(self, waits: _Gaps | None, *, together: bool) -> Any:
        """Seconds that no rank takes less than; together: all end at once, so that they count from the first start."""
        sorts, m, works = self.sorts, self.microbatches, self.works
        ranks = np.array(sorts.telling)[:, None]
        there = sorts.before @ (works[0] + self.fresh) + ranks * self.hop
        begun, more, of = begins(self.schedule, sorts.ranks, m, sorts.of, sorts.telling)
        rows = np.concatenate([works, self.fresh[None]])
        acts = np.einsum("brasc,asc->brc", begun.acts[..., of], rows)
        acts[0] += np.einsum("rasc,asc->rc", more[..., of], rows) * (m - 1)
        lasts = begun.last[..., of]
        acts[1:] += np.einsum("brsc,sc->brc", lasts[1:], self.late)
        forth = self._forth(ranks)
        idle = np.maximum(forth - acts[0], 0)
        fused = self.late * self._fused
        whole = m * (sorts.on @ works[:2].sum(axis=0)) + sorts.on @ (self.fresh + fused)
        split = m * (sorts.on @ works[2:].sum(axis=0)) + sorts.on @ (self.late - fused)
        held_up = np.maximum(idle, waits.of(ranks, sorts.ranks)) if waits else idle
        ends = [whole + split + held_up]
        if self.reduced.any() or self.last.any():
            last = np.einsum("brsc,sc->brc", lasts, self.last)
            left = np.einsum("brsc,sc->brc", begun.acts[1:, :, len(works) - 1][..., of], self.reduced)
            ends += [
                idle + acts[0] + m * (sorts.on @ self.reduced) + last[0],
                *(whole + split + idle - acts[1:] + left + last[1:]),
            ]
        once, first = self.once_s + self.shared_s, self.update_s[0] + self.lead[sorts.of[0]]
        own = reduce(np.maximum, ends) + once[1:] + self._begun(there + first, together=together)
        home = whole + np.maximum(held_up + self._back(sorts.before, ranks), idle - acts[1] + self._home(ranks))
        return np.maximum(first + there + home + once[0], own).max(axis=0)

    def _begun(self, there: Any, *, together: bool) -> Any:
        """From when a step is due until ranks begin it: updates and weights, and of all that begin together messages.

        there  when the first message comes to each
        """
        if together:
            return np.maximum(self.update_s[1:], there)
        return self.update_s[1:] + self.lead[[self.sorts.of[rank] for rank in self.sorts.telling]]

    @property
    def _fused(self) -> bool:
        """True where backward is not run in two parts."""
        return len(self.works) < len(SPLIT)

    def _back(self, through: Any, hops: Any) -> Any:
        """From when the last microbatch goes back through so many chunks until it is home."""
        return through @ (self.works[1] + self.late * self._fused) + hops * self.hop + (hops > 0) * self._behind

    def _forth(self, ranks: Any) -> Any:
        """From when a rank begins until a microbatch can come back to it, which has to go all the way first."""
        sorts, p = self.sorts, self.sorts.ranks
        hops = (len(sorts.of) // p - 1) * (p - 1) + 2 * (p - 1 - ranks)
        return sorts.after @ (self.works[0] + self.fresh) + sorts.behind @ self.works[1] + hops * self.hop

    def _home(self, ranks: Any) -> Any:
        """From when the last microbatch goes back through such a rank for the first time, where backward is one."""
        if not self._fused:
            return -np.inf
        return self._back(self.sorts.until, len(self.sorts.of) - self.sorts.ranks + ranks)

    @property
    def _behind(self) -> Any:
        """What the last action of all takes beyond its B: it is on the first chunk."""
        end = self.works[-1][0] + self.late[0]
        return np.maximum(end, self.reduced[0] + self.last[0]) - end * self._fused


@dataclass(frozen=True)
class _Gaps:
    """Seconds that messages hold a rank up, if each lasts as long as the quickest.

    A gap between two actions has one message that is sent at most, and one that is awaited. What comes first, and what
    is sent last, is on the way from the first stage and back to it, and counted there.
    """

    microbatches: Any
    hop: Any

    def of(self, rank: Any, ranks: int) -> Any:
        """Of some ranks."""
        m = self.microbatches
        return np.where(rank == 0, m, np.where(rank == ranks - 1, m - 1, 2 * m - 1)) * self.hop
