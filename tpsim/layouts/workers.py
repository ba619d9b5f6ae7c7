"""Programs evaluated on several cores: each process forked from this one takes a share, and then answers for it."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import warnings
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import partial
from heapq import heapify, heappop, heappush
from math import inf
from select import select
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from tpsim.layouts.candidates import Family
    from tpsim.layouts.group import Group

    Evaluated = tuple[Counter[str], list[Family]]
    """Of one program: layouts without a price, by reason, and the others."""

FEWEST = 8
"""Programs that are worth another process."""

MORE = ("nearer", "peaked")
"""What works out more of a family."""

BEHIND = 5
"""How much less it matters what is done ahead than what the process does that asks."""


@dataclass(frozen=True, slots=True)
class Job:
    """The layouts of one program, and what evaluates them."""

    group: Group
    evaluate: Callable[[Group], Evaluated]

    def __call__(self) -> Evaluated:
        """What they come to."""
        return self.evaluate(self.group)


def available() -> int:
    """Cores that this process may use; one where a process cannot be copied as it stands."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1


def evaluated(jobs: Sequence[Job], cores: int) -> list[Evaluated]:
    """What jobs come to, in their order: the same on any number of cores."""
    cores = min(cores, len(jobs) // FEWEST)
    if cores <= 1 or threading.active_count() > 1:
        return [job() for job in jobs]
    told = {at: each for worker in [*map(_Worker, _shares(jobs, cores))] for at, each in worker.evaluated()}
    return [told[at] for at in range(len(jobs))]


def _shares(jobs: Sequence[Job], cores: int) -> list[dict[int, Job]]:
    """The jobs of every core, by number: those that are traced alike, but for ZeRO, stay together."""
    alike: defaultdict[Hashable, dict[int, Job]] = defaultdict(dict)
    for at, job in enumerate(jobs):
        first = job.group.first
        alike[*first.mesh(), first.sequence_parallel, first.recompute][at] = job
    shares: list[dict[int, Job]] = [{} for _ in range(cores)]
    for some in sorted(alike.values(), key=len, reverse=True):
        min(shares, key=len).update(some)
    return shares


class _Worker:
    """A process with some jobs: it sends what they come to, then more of their families whenever it is asked."""

    def __init__(self, jobs: Mapping[int, Job]) -> None:
        self.jobs = jobs
        (asks, asked), (tells, told) = os.pipe(), os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of the idle threads of numpy's products
            self.child = os.fork()
        if not self.child:
            try:
                for end in (asked, tells, *range(3)):  # who reads what is printed need not wait for this process
                    os.close(end)
                _work(jobs, os.fdopen(asks, "rb"), os.fdopen(told, "wb"))
            finally:
                os._exit(0)
        os.close(asks)
        os.close(told)
        self.asked, self.told = os.fdopen(asked, "wb"), os.fdopen(tells, "rb")

    def __del__(self) -> None:
        """Nobody asks any more: what it does ahead is of no use."""
        os.kill(self.child, signal.SIGKILL)
        os.waitpid(self.child, 0)
        self.asked.close()
        self.told.close()

    def evaluated(self) -> Iterator[tuple[int, Evaluated]]:
        """What every job comes to; where the process has failed it is done again here, and tells its error."""
        begun = 0
        for at, job in self.jobs.items():
            try:
                refused, bare = pickle.load(self.told)  # noqa: S301 - from a copy of this process
            except EOFError:
                yield at, job()
                continue
            families = [self._family(family, number, job) for number, family in enumerate(bare, begun)]
            begun += len(families)
            yield at, (refused, families)

    def _family(self, bare: Family, number: int, job: Job) -> Family:
        """A family that asks the process for what it does not know."""
        more = {name: partial(self._ask, number, name) if getattr(bare, name) else None for name in MORE}
        return replace(bare, **more, group=job.group)  # type: ignore[arg-type]  # both give arrays

    def _ask(self, number: int, name: str, *args: Any, **named: Any) -> Any:
        pickle.dump((number, name, args, named), self.asked)
        self.asked.flush()
        return pickle.load(self.told)  # noqa: S301 - as above


def _work(jobs: Mapping[int, Job], asks: Any, told: Any) -> None:
    """A process: evaluate, then answer until nobody asks any more; meanwhile do ahead what may be asked."""
    whole: list[Family] = []
    for job in jobs.values():
        refused, families = job()
        whole += families
        pickle.dump((refused, [*map(_bare, families)]), told, pickle.HIGHEST_PROTOCOL)
    told.flush()
    os.nice(BEHIND)
    ahead = _ahead([replace(family, step_s=family.step_s.copy()) for family in whole if family.nearer])
    while True:
        while not select([asks], [], [], 0)[0] and next(ahead, None):
            pass
        number, name, args, named = pickle.load(asks)  # noqa: S301 - as above
        pickle.dump(getattr(whole[number], name)(*args, **named), told, pickle.HIGHEST_PROTOCOL)
        told.flush()


def _bare(family: Family) -> Family:
    """A family to be sent: of what works out more of it whether there is anything."""
    more: dict[str, Any] = {name: getattr(family, name) is not None for name in MORE}
    return replace(family, **more, group=None)  # type: ignore[arg-type]  # who reads it knows it


def _ahead(families: Sequence[Family]) -> Iterator[Family]:
    """Families looked at nearer, the most promising first: what that takes is known when they are asked for."""

    def least(family: Family) -> float:
        return float(family.step_s[family.fitting & family.may_do].min(initial=inf))

    queue = [(s, at) for at, family in enumerate(families) if (s := least(family)) < inf]
    heapify(queue)
    while queue:
        s, at = heappop(queue)
        family = families[at]
        best = int(np.flatnonzero(family.fitting & family.may_do & (family.step_s == s))[0])
        if not family.looked[best]:
            family.bound(nearer=family.weighed, at=best)
            yield family
            if (s := least(family)) < inf:
                heappush(queue, (s, at))
