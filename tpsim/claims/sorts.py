"""What tells the calls of a step apart: the same in a plan and in a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpsim.algebra.moves import Move
    from tpsim.cost.rollup import Collective
    from tpsim.program.op import Again, Phase, Reshard, Where


@dataclass(frozen=True, slots=True)
class Sort:
    """What tells the calls of a step apart but for layer and microbatch: the same in a plan and in a run."""

    phase: Phase
    block: str
    array: str
    dtype: str
    move: Move
    again: Again
    loops: tuple[str, ...]

    def __str__(self) -> str:
        """In words."""
        move, again = self.move, " again" if self.again else ""
        return f"{move.kind} over {','.join(move.axes)} of {self.array} ({self.phase}{again}, {self.block})"


def planned(one: Collective) -> list[Sort]:
    """The sort of every array that travels in a planned call."""
    where, here = one.where, _here(one.where)
    return [Sort(where.phase, part.block, part.array, part.dtype, part.move, *here) for part in one.parts]


def sort_of(op: Reshard, move: Move) -> Sort:
    """The sort of one move of a change of type in a run."""
    where, array = op.where, op.output
    return Sort(where.phase, where.block, array.name, array.dtype, move, *_here(where))


def _here(where: Where) -> tuple[Again, tuple[str, ...]]:
    return where.again, tuple(loop for loop, _ in where.loops)
