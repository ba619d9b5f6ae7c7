"""Seconds of what actions are made of: kernels as the chip runs them, calls as they are priced."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tpsim.cost.compute import Compute, compute, known_s
from tpsim.cost.piece import Piece, step_share
from tpsim.cost.timeline import Timeline, run
from tpsim.quantity.size import total

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from tpsim.cost.collectives import Collective
    from tpsim.cost.kernel import Kernel
    from tpsim.cost.rollup import Row
    from tpsim.cost.segments import Segment
    from tpsim.cost.sizes import Sizes
    from tpsim.cost.timed import Action, Timed
    from tpsim.machine.parts import Machine
    from tpsim.program.op import Op


def piece_s(
    piece: Piece, call_s: Callable[[Collective], Any], op_s: Callable[[Op], Any], share: Callable[[Collective], Any]
) -> Any:
    """Seconds of one kernel, call, or part of a product.

    call_s  of a call
    op_s    of the kernel whose first op it is; 0 for the other ops of a kernel
    share   what one step of a call brings
    """
    if piece.call:
        return call_s(piece.call)
    worked = total(map(op_s, piece.ops))
    return piece.cut.of(worked, share(piece.cut.call)) if piece.cut else worked


@dataclass(frozen=True)
class Clock:
    """How long pieces take.

    rows        every collective once, priced
    kernels     every kernel
    efficiency  share of peak that products reach, None for the machine's own figure
    launch_s    seconds in which a host launches a kernel or a collective; 0 where none is waited for
    tied        ranks that wait for each other where weights are gathered
    attributed  False where only sums are wanted, as of arrays: then nobody asks what waits for which call
    """

    rows: Sequence[Row]
    kernels: Sequence[Kernel]
    sizes: Sizes
    machine: Machine
    dtype: str
    efficiency: float | None
    launch_s: float = 0
    tied: Any = 1
    attributed: bool = True
    _works: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    _timed: dict[int, Timed] = field(default_factory=dict, init=False, repr=False, compare=False)
    _segments: dict[Segment, Timed] = field(default_factory=dict, init=False, repr=False, compare=False)
    _known: dict[Piece, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """Without what is known by the identity of calls and kernels, which have another one where it is copied to."""
        kept = {name: value for name, value in self.__dict__.items() if name not in ("_calls", "_firsts")}
        return {**kept, "_timed": {}}

    def compute(self, kernels: Sequence[Kernel], sizes: Sizes) -> Compute:
        """What some kernels come to on a device of such sizes."""
        return compute(kernels, sizes, self.machine, self.dtype, self.efficiency, known=self._works)

    def ran(self, segment: Segment) -> Timeline:
        """The tasks of a segment one by one, from when all lanes are free; nothing waits for a host."""
        return run([step.task(self._piece_s) for step in segment])

    def timed(self, tasks: Action) -> Timed:
        """What the tasks of an action take, each list of them worked out once."""
        if id(tasks) not in self._timed:
            launches = self._launches_s if self.launch_s else None
            alone = tasks.timed(self._piece_s, launches, attributed=self.attributed, known=self._segments)
            self._timed[id(tasks)] = alone.waiting(tasks.late_s(self._piece_s, self.machine, self.tied))
        return self._timed[id(tasks)]

    def gathers(self, tasks: Action) -> Iterator[tuple[int, int, Any]]:
        """The gathers of weights in an action: the call's identity, how often it stands there, seconds of all."""
        for segment, count in tasks.runs:
            for piece in (piece for step in segment for piece in step.pieces if piece.fetches):
                yield id(piece.call), count, self._piece_s(piece) * count

    def _piece_s(self, piece: Piece) -> Any:
        seconds = self._known.get(piece)
        if seconds is None:
            seconds = self._known[piece] = piece_s(
                piece, lambda call: self._calls[id(call)].timing.time_s, self._op_s, self._share
            )
        return seconds

    def _op_s(self, op: Op) -> Any:
        kernel, asked = self._firsts.get(id(op)), (self.sizes, self.machine, self.dtype, self.efficiency)
        return known_s(self._works, kernel, *asked) if kernel else 0

    def _share(self, call: Collective) -> Any:
        row = self._calls[id(call)]
        return step_share(row.ranks, row.timing)

    def _launches_s(self, piece: Piece) -> Any:
        """Seconds in which the host launches one kernel or call, or those that a product is cut into.

        What is once per step it launches together, wherever it stands.
        """
        if piece.call and not piece.call.per_microbatch:
            return 0
        pieces = piece.cut.pieces(self._share(piece.cut.call)) if piece.cut else 1
        kernels = [self._firsts[id(op)] for op in piece.ops if id(op) in self._firsts]
        return self.launch_s * (
            1 if piece.call else pieces * len(kernels) + sum(len(kernel.passes) for kernel in kernels)
        )

    @cached_property
    def _calls(self) -> dict[int, Row]:
        return {id(row.call): row for row in self.rows}

    @cached_property
    def _firsts(self) -> dict[int, Kernel]:
        return {id(kernel.ops[0]): kernel for kernel in self.kernels}
