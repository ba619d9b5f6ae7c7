"""A million layouts at once: the work of a plan's one rank, evaluated on float64 arrays of sizes.

Sequence parallelism and the ZeRO stage change the program, so each pair is a work of its own; how many chips an axis
has, and the batch, are only sizes.
"""

from __future__ import annotations

from functools import reduce
from itertools import groupby
from typing import TYPE_CHECKING, Any

from tpsim.cost.timed import Timed
from tpsim.quantity.size import largest, total

if TYPE_CHECKING:
    from tpsim.cost.pipeline import Work


def step_s(work: Work) -> tuple[Any, Any]:
    """Seconds of a step without stages, and of these those of stragglers: each a number, or an array over layouts.

    work  of a clock that tells sums alone; every layout of its arrays has its program's structure
    """
    own, order = work.own[0], work.schedule.kinds.of[0]
    actions = (work.plain[kind].times(len([*same])) for kind, same in groupby(order))
    timed = reduce(Timed.then, actions)
    acted_s = largest(timed.through.seconds, timed.tail.seconds) + total(row.busy_s for row in own.single)
    ended_s = acted_s + own.once_s + own.shared_s + own.behind_s
    return largest(ended_s, *own.wires_s.values()), timed.stragglers_s
