"""A ledger counted again: the calls that devices made, by what tells them apart in a plan and in a run alike."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpsim.algebra.moves import Move
    from tpsim.cost.rollup import Collective
    from tpsim.program.op import Again, Phase, Reshard, Where
    from tpsim.reference.calls import Call
    from tpsim.reference.execute import Run


@dataclass(frozen=True, slots=True)
class Sort:
    """What tells the calls of a program apart but for layer and microbatch: the same in a plan and in a run."""

    phase: Phase
    block: str
    array: str
    dtype: str
    move: Move
    again: Again
    loops: tuple[str, ...]

    def __str__(self) -> str:
        """In words; an expression has no blocks."""
        move, again = self.move, " again" if self.again else ""
        where = f" ({self.phase}{again}, {self.block})" if self.block else ""
        return f"{move.kind} over {','.join(move.axes)} of {self.array}{where}"


def planned(call: Collective) -> list[Sort]:
    """The sort of every array that travels in a planned call."""
    where, here = call.where, _here(call.where)
    return [Sort(where.phase, part.block, part.array, part.dtype, part.move, *here) for part in call.parts]


def sort_of(op: Reshard, move: Move) -> Sort:
    """The sort of one move of a change of type in a run."""
    where, array = op.where, op.output
    return Sort(where.phase, where.block, array.name, array.dtype, move, *_here(where))


def _here(where: Where) -> tuple[Again, tuple[str, ...]]:
    return where.again, where.repeats


class RanCall(NamedTuple):
    """A call that devices made: the op that caused it, which of its moves, and what was sent."""

    op: Reshard
    move: Move
    call: Call


def made(run: Run) -> list[RanCall]:
    """Every call of a run, in order; free slices and calls of one device are none."""
    moves = {cause.op: iter(cause.op.moves) for cause in run.causes}
    made_calls = [RanCall(cause.op, next(moves[cause.op]), cause.call) for cause in run.causes]
    axes = run.grid.mesh.axes
    return [made for made in made_calls if made.call.kind != "slice" and made.move.ranks(axes) > 1]


def by_sort(calls: Iterable[RanCall]) -> dict[Sort, list[Call]]:
    """Calls by their sort, each list in order."""
    sorts: dict[Sort, list[Call]] = {}
    for call in calls:
        sorts.setdefault(sort_of(call.op, call.move), []).append(call.call)
    return sorts


def injected(call: Call) -> Fraction:
    """Bytes that a device injects: the mean; of a permute the most, since it moves no shard that is in its place."""
    each = list(map(int, call.injected))
    return Fraction(max(each)) if call.kind == "permute" else Fraction(sum(each), len(each))


def sent(call: Call) -> Fraction:
    """Bytes that a device sends, on average, forwarded ones included."""
    return Fraction(sum(map(int, call.sent)), len(call.sent))


def exact_bytes(value: Any) -> str:
    """Exactly, since a byte too few is a mistake."""
    number = Fraction(value)
    return f"{number.numerator:,} B" if number.denominator == 1 else f"{float(number):,.6g} B"
