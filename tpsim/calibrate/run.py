"""One run of a benchmark, from its log to the page: what was measured, how it was made, and where the ranks lay."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tpsim.algebra.moves import MOVES
from tpsim.machine import timing

if TYPE_CHECKING:
    from collections.abc import Collection

    from tpsim.fabric.wires import Route
    from tpsim.machine.parts import Machine

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """Measured times of one collective.

    kind         as tpsim calls it if it prices it, else as the program does
    V, seconds   logical bytes and what they took, one by one
    launch       the harness: threads, process, graph, osu; None is the profile's default
    algorithm, protocol  forced by who measured; None left it to the library
    route        the wires that the ranks lay on; a log does not say
    nodes        hosts that took part; None if the log does not say
    library      ``nccl 2.27.3``, ``rccl``, ``mpi``; "" if the log does not say
    log, sha256  the file that it is from; `lines` are where the points stand in it
    warnings     what to know before trusting them, each with its place: ``all-reduce.txt:7: ...``
    """

    kind: str
    ranks: int
    V: tuple[int, ...] = ()
    seconds: tuple[float, ...] = ()
    launch: str | None = None
    algorithm: str | None = None
    protocol: str | None = None
    route: Route = ()
    nodes: int | None = None
    library: str = ""
    log: str = ""
    sha256: str = ""
    lines: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} over {self.ranks} ranks"

    @property
    def priced(self) -> bool:
        """False for what tpsim has no price for, as a broadcast."""
        return self.kind in MOVES

    def without(self, sizes: Collection[int]) -> MeasuredRun:
        """The run without its points of these sizes."""
        kept = [at for at, V in enumerate(self.V) if V not in sizes]
        seconds, lines = tuple(self.seconds[at] for at in kept), tuple(self.lines[at] for at in kept if self.lines)
        return replace(self, V=tuple(self.V[at] for at in kept), seconds=seconds, lines=lines)

    def predicted(self, machine: Machine) -> Array:
        """Seconds that the machine's profile predicts for every size.

        Raises InputError if the machine cannot run it so.
        """
        sizes = np.array(self.V, dtype=np.float64)
        timed = timing.time(
            machine,
            self.route,
            self.kind,  # type: ignore[arg-type]  # priced ones are moves
            sizes,
            launch=self.launch,
            algorithm=self.algorithm,
            protocol=self.protocol,
        )
        return np.broadcast_to(np.asarray(timed.time_s, dtype=np.float64), sizes.shape)

    def off(self, machine: Machine) -> Array:
        """log(measured/predicted) of every point."""
        return np.log(np.array(self.seconds) / self.predicted(machine))
