"""What ranks of a pipeline do once per step behind what they have together: updates, and new weights.

An optimizer's step begins when the gradients of its rank are complete, those that it shares with other ranks among
them, and, where it is told, the norm of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpsim.program.op import Array, Leaf, Op

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tpsim.cost.collectives import Collective
    from tpsim.cost.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Behind:
    """What is made behind what ranks have together."""

    made: frozenset[Array] = frozenset()

    def call(self, call: Collective) -> bool:
        """True for a call of such arrays."""
        return not self.made.isdisjoint([part.output for part in call.parts])

    def kernel(self, kernel: Kernel) -> bool:
        """True for a kernel that makes such arrays."""
        return not self.made.isdisjoint([op.output for op in kernel.ops])


def behind(ops: Sequence[Op], shared: Iterable[Collective], beside: Callable[[Collective], bool]) -> Behind:
    """What is made of an optimizer's states, or out of what ranks have together, for no call that they have together.

    shared  the calls of a rank, or of all, that several ranks have together
    beside  True for those that hold nobody up; where all are, nothing is behind them
    """
    shared = [*shared]
    held = [call for call in shared if not beside(call)]
    every, met = ({part.output for call in calls for part in call.parts} for calls in (shared, held))
    once = [op for op in ops if op.where.microbatch is None] if met else []
    late = met | {op.output for op in once if isinstance(op, Leaf) and op.output.role == "state"}
    sooner: set[Array] = set()
    for op in once:
        if not late.isdisjoint(op.inputs):
            late.add(op.output)
    for op in reversed(once):
        if op.output in every or op.output in sooner:
            sooner.update(op.inputs)
    return Behind(frozenset(late - sooner - every))
