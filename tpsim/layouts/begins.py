"""Where in its order a rank begins to work backward, and to add up gradients for the last time, counted in actions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Begins(NamedTuple):
    """With its first action backward; with the first, and the last, that is the last of its chunk.

    acts  [begin, acts, sort] how many are done before the first of these, and how many are not done before the others;
          in a row behind those of all acts, first microbatches forward
    last  [begin, sort] how many chunks have their last action there or later
    """

    acts: Any
    last: Any


def begun(acts: Any, sorts: Any, microbatches: Any, shape: tuple[int, int]) -> Begins:
    """Of one rank, whose actions are given in order, by what they do, the sort of their chunk, and their microbatch.

    shape  how many acts there are, and sorts
    """
    every, many = shape

    def counted(some: slice) -> Any:
        fresh = np.where((acts[some] == 0) & (microbatches[some] == 0), every, -1)
        both = np.concatenate([acts[some], fresh]) * many + np.tile(sorts[some], 2)
        return np.bincount(both[both >= 0], minlength=(every + 1) * many).reshape(every + 1, many)

    first = int(np.flatnonzero(acts > 0)[0])
    lasts = np.flatnonzero((acts == every - 1) & (microbatches == microbatches.max()))
    places = [int(lasts[at]) for at in (0, -1)]
    left = [np.bincount(sorts[lasts[lasts >= place]], minlength=many) for place in (0, *places)]
    return Begins(np.stack([counted(slice(first)), *(counted(slice(at, None)) for at in places)]), np.stack(left))
