"""The verb `collective`: one collective over sizes on one machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

from tpsim.algebra.moves import MOVES, MoveKind
from tpsim.answers.collective_sizes import placed, rounding, sizes_of, whole
from tpsim.answers.curve import SizeCurve, curve
from tpsim.fabric.wires import Route, ranks_text
from tpsim.machine import timing
from tpsim.machine.additive import Choice
from tpsim.machine.curve_file import summary
from tpsim.machine.profile import load
from tpsim.program.dtypes import DTYPE_BYTES
from tpsim.quantity.arguments import checked
from tpsim.quantity.errors import unknown
from tpsim.quantity.size import over
from tpsim.quantity.units import show
from tpsim.question.inputs import files_of
from tpsim.question.prices import refuse_foreign, written
from tpsim.report.answer import Answer, Assumption
from tpsim.report.record import Bytes, Count, Number, Of, Record, Seconds

if TYPE_CHECKING:
    from tpsim.fabric.placement import Placement
    from tpsim.machine.parts import Machine
    from tpsim.machine.timing import CostModel, Timing
    from tpsim.machine.ways import Launch
    from tpsim.report.picture import Picture

NOT_MODELLED = ("other traffic on the same links", "stragglers and failures")
"""What the seconds leave out."""

BUFFER_IS_A_PART: frozenset[MoveKind] = frozenset({"all_to_all", "permute"})
"""Collectives whose nccl-tests buffer is what one device holds; of the others it is the whole array."""

CUT_ANYHOW: frozenset[MoveKind] = frozenset({"all_reduce"})
"""Collectives of whole elements, however many there are: libraries cut them unevenly, and nccl-tests has such rows."""


@checked
def collective(
    name: str,
    *,
    hw: str,
    ranks: int,
    level: str | None = None,
    sizes: str | float | Sequence[float] = "10kB:1GB",
    dtype: str = "bf16",
    buffer: bool = False,
    cost_model: CostModel = "additive",
    algorithm: str | None = None,
    protocol: str | None = None,
    launch: Launch = None,
) -> CollectiveResult:
    """Time one collective at several sizes.

    name    all-gather, reduce-scatter, all-reduce, all-to-all or permute; ``_`` for ``-`` will do
    hw      a machine of the library, or a profile's file
    level   where the ranks lie: ``nvlink``, ``network``, ``ici.0``, ``ici.0,ici.1``, ``nvlink:4,network`` for 4 of each
            node; None: innermost levels first
    sizes   logical bytes of the whole array, as ``10kB:1GB`` (doubling), ``1MB:1GB:x4``, ``1MB:8MB:+1MB`` or a list;
            rounded down to whole elements, but at sizes that the machine's curves were measured at
    buffer  True: `sizes` are buffers as nccl-tests counts them; the whole array of an all-to-all, and of a permute, is
            `ranks` buffers
    dtype   of the elements that sizes are rounded to
    cost_model  ``additive`` or ``book``
    algorithm, protocol, launch  forced instead of chosen; see `tpsim.machine.timing.time`

    Raises InputError for unknown names, sizes below one element per rank, and ranks that do not fit.
    """
    refuse_foreign(algorithm)
    kind = kind_of(name)
    width = _width(dtype)
    placement, beside = placed(machine := load(hw), ranks, level)
    route = placement.route(["ranks"])
    parts = ranks if buffer and kind in BUFFER_IS_A_PART else 1
    shares = 1 if kind in CUT_ANYHOW else ranks
    known, wanted = _measured_at(machine, kind, route), sizes_of(sizes)
    volumes = [size * parts if size * parts in known else whole(size, shares, width) * parts for size in wanted.bytes]

    def timed(V: int) -> Timing:
        return timing.time(
            machine, route, kind, V, cost_model=cost_model, launch=launch, algorithm=algorithm, protocol=protocol
        )

    rounded = sum(size * parts != V for V, size in zip(volumes, wanted.bytes, strict=True))
    notes = (*wanted.notes, *rounding(rounded, shares * width, "ranks x " * (shares > 1)), *beside)
    force = Choice(launch, algorithm, protocol)
    asked = CollectiveResolved(
        *(kind, machine.name, ranks, level, placement.describe(), tuple(volumes)),
        *(dtype, buffer, cost_model),
        **written(force),
    )
    rows = tuple(CollectiveRow(kind, ranks, V, timed(V)) for V in volumes)
    return CollectiveResult(asked, machine, placement, force, rows, curve(timed, shares * width), notes)


def _measured_at(machine: Machine, kind: MoveKind, route: Route) -> set[int]:
    """The bytes at which the machine's curves were measured."""
    curves = [curve for curve in machine.measured if curve.kind == kind and curve.holds_on(route)]
    return {int(knot.V) for curve in curves for knot in curve.knots}


def _width(dtype: str) -> int:
    """Bytes of an element; formats whose elements share a scale have no whole number of them."""
    widths = {name: width for name, width in DTYPE_BYTES.items() if isinstance(width, int)}
    if dtype not in widths:
        raise unknown(dtype, "dtype", widths)
    return widths[dtype]


@dataclass(frozen=True, slots=True)
class CollectiveRow(Record):
    """One size.

    logical_bytes  of the whole array
    measured_s     with --measured: what the log says; the next two come with it
    """

    told: ClassVar[tuple[str, ...]] = (
        *("collective", "ranks", "logical_bytes", "buffer_bytes", "wire_bytes_per_device", "carried_bytes_per_device"),
        *("link_total_bytes", "link_serial_bytes", "steps"),
        *("time_s", "launch_s", "latency_s", "bandwidth_s", "ramp_s", "curve_s"),
        *("algbw_bytes_per_s", "busbw_bytes_per_s", "algorithm", "protocol"),
        *("measured_s?", "measured_busbw_bytes_per_s?", "predicted_over_measured?"),
    )

    collective: MoveKind
    ranks: Count
    logical_bytes: Bytes
    timing: Timing
    measured_s: Seconds | None = None

    wire_bytes_per_device = Of[Bytes]("timing.wire", "what a device must inject, whatever algorithm runs")
    carried_bytes_per_device = Of[Bytes](
        "timing.carried", "what a device sends with this algorithm on average, forwarded chunks included"
    )
    link_total_bytes = Of[Bytes](
        "timing.link_total", "on the busiest link over the whole run: what a pipelined one takes"
    )
    link_serial_bytes = Of[Bytes](
        "timing.link_serial", "summed over steps, on the busiest link of each: what a lock-step run takes"
    )
    steps = Of[Number]("timing.steps", "steps of the algorithm")
    time_s = Of[Seconds]("timing.time_s", "seconds of one call")
    launch_s = Of[Seconds]("timing.launch_s", "what a call takes before its first step")
    latency_s = Of[Seconds]("timing.latency_s", "what its steps take")
    bandwidth_s = Of[Seconds]("timing.bandwidth_s", "what its bytes take at the links' speed")
    ramp_s = Of[Seconds](
        "timing.ramp_s", "what bytes cost beyond the links' bandwidth: the own share's way through memory, and chunks"
    )
    curve_s = Of[Number](
        "timing.curve_s", "what a curve that was measured on this route adds; negative where the constants are too slow"
    )
    algorithm = Of[str]("timing.algorithm", "the algorithm that is taken")
    protocol = Of[str]("timing.protocol", "the library's protocol that is taken")

    @property
    def buffer_bytes(self) -> Bytes:
        """The size as nccl-tests counts it."""
        return over(self.logical_bytes, self.ranks) if self.collective in BUFFER_IS_A_PART else self.logical_bytes

    @property
    def algbw_bytes_per_s(self) -> float | None:
        """Buffer bytes per second; null if the collective costs nothing."""
        return float(self.buffer_bytes) / float(self.time_s) if self.time_s else None

    @property
    def busbw_bytes_per_s(self) -> float | None:
        """Wire bytes per second; null if the collective costs nothing."""
        return float(self.wire_bytes_per_device) / float(self.time_s) if self.time_s else None

    @property
    def measured_busbw_bytes_per_s(self) -> float | None:
        """Wire bytes per second that was measured."""
        return float(self.wire_bytes_per_device) / self.measured_s if self.measured_s else None

    @property
    def predicted_over_measured(self) -> float | None:
        """1 where the prediction is right; above, it is too slow."""
        return float(self.time_s) / self.measured_s if self.measured_s else None


@dataclass(frozen=True, slots=True)
class CollectiveResolved(Record):
    """What was asked for.

    sizes_bytes  logical bytes of each of --sizes, of buffers too: FROM:TO doubles, FROM:TO:x4 or :+1MB; each ends at TO
    measured     with --measured: the log, whose launch, algorithm and protocol the predictions take
    launch, algorithm, protocol  where they are not chosen
    """

    told: ClassVar[tuple[str, ...]] = (
        *("collective", "hardware", "ranks", "level", "placement", "sizes_bytes", "dtype", "buffer", "cost_model"),
        *("launch?", "algorithm?", "protocol?", "measured?"),
    )

    collective: MoveKind
    hardware: str
    ranks: Count
    level: str | None
    placement: Sequence[str]
    sizes_bytes: Sequence[int]
    dtype: str
    buffer: bool
    cost_model: timing.CostModel
    launch: str | float | None = None
    algorithm: str | None = None
    protocol: str | None = None
    measured: str | None = None


@dataclass(frozen=True)
class CollectiveResult(Answer):
    """A collective: the curve over all sizes, and a row per size asked for, ascending.

    asked    names looked up
    force    what is not chosen
    rows     one row per size
    notes    what was rounded or taken for granted
    """

    schema = "tpsim.collective/1"
    not_modelled = NOT_MODELLED
    told: ClassVar[tuple[str, ...]] = ("verdict", "curve", "rows")
    table = "rows"

    asked: CollectiveResolved
    machine: Machine
    placement: Placement
    force: Choice
    rows: tuple[CollectiveRow, ...]
    curve: SizeCurve
    notes: tuple[str, ...] = ()

    files = files_of(lambda answer: [answer.machine])
    resolved = Of[CollectiveResolved]("asked", "what was asked for")

    @property
    def route(self) -> str:
        """Where the ranks lie, in words."""
        return ranks_text(self.placement.route(["ranks"]))

    @property
    def assumptions(self) -> list[Assumption]:
        """What the seconds rest on."""
        guessed = [constant.path for constant in self.machine.constants() if constant.kind == "guess"]
        used = {piece.level for piece in self.placement.route(["ranks"])}
        counted = [path for path in guessed if path.split(".")[0] == "levels" and path.split(".")[1] in used]
        guesses = [Assumption(f"{self.machine.name} guesses {', '.join(counted)}", "guess")] if counted else []
        curves = dict.fromkeys(curve for row in self.rows for curve in row.timing.curves)
        measured = [Assumption(f"as measured: {summary(curve)}", "stated") for curve in curves]
        rule = [f"placed by rule: {self.placement.rule}"] if self.placement.rule else []
        shared = timing.limits(self.machine, self.placement.route(["ranks"]))
        derived = [Assumption(text, "derived") for text in (*self.notes, *rule, *self.placement.remarks, *shared)]
        return [*derived, *measured, *guesses]

    @property
    def sends(self) -> list[str]:
        """Up to which size its messages take which protocol, if the machine limits them."""
        return list(timing.sends(self.machine, self.placement.route(["ranks"]), self.asked.collective))

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """Bus bandwidth and seconds over sizes."""
        from tpsim.answers.pictures import of_collective

        return tuple(of_collective(self, self.rows))

    @property
    def verdict(self) -> str:
        """One line: the largest size."""
        last = self.rows[-1]
        call = f"{self.asked.collective} of {show(last.logical_bytes, 'bytes')} over {self.route}"
        if not last.time_s:
            return f"{call} costs nothing"
        rate = show(last["busbw_bytes_per_s"], "bytes_per_s")
        return f"{call} takes {show(float(last.time_s), 'seconds')}, bus bandwidth {rate}"


def kind_of(name: str) -> MoveKind:
    """The collective of that name, ``-`` or ``_``; raises InputError with the nearest one."""
    word, known = name.replace("-", "_"), [kind for kind in MOVES if kind != "slice"]
    if word not in known:
        raise unknown(word, "collective", known)
    return cast("MoveKind", word)
