"""What a program sends, priced: a row for each collective, and sums of rows.

Nothing here knows a size's kind: a `Sizes` of ints gives exact bytes, of float64 arrays a million layouts at once,
of symbols the formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tpsim.algebra.moves import Move, MoveKind, wire
from tpsim.cost.collectives import Collective, Sent, singles
from tpsim.program.kinds import ALIKE
from tpsim.program.op import Phase
from tpsim.quantity.size import Size, over, total, where_positive
from tpsim.report.record import Bytes, Count, Of, Record, Seconds

if TYPE_CHECKING:
    from tpsim.cost.sizes import Sizes
    from tpsim.machine.timing import Timing

Pricer = Callable[["Move", Size], "Timing"]
"""Seconds of one collective: a move that it makes, and V in bytes of all that travel in it."""

ROUNDING = 1e-9
"""The share of its calls' seconds below which what is hidden of a row is a difference of rounding: none."""


@dataclass(frozen=True, slots=True)
class Row(Record):
    """Equal calls of one collective: bytes and time_s of one; payload, busy and exposed of all calls.

    call    the traced call
    sizes   what it was evaluated at
    ranks   devices that take part in one call
    count   calls per step and device
    logical_bytes  V: bytes of the full array taking part
    wire_bytes_per_device  what a device must inject
    timing  seconds of one call, the way that it takes, and what they rest on
    exposed_s  of all calls, what nothing hides; of messages also what a rank at an end of the stack waits for while one
               comes to it, which is no call of its own: it may be more than all calls take
    stage   with stages: the ranks of the pipeline that have it, as 0-6 or 0,7
    pulls   calls of it that the step's end hangs on: how much faster the step is per second less of one call
    """

    told: ClassVar[tuple[str, ...]] = (
        *("phase", "layer", "block", "op", "array", "collective", "axis", "ranks", "dtype", "count"),
        *("logical_bytes", "wire_bytes_per_device", "payload_bytes"),
        *("time_s", "latency_s", "bandwidth_s", "busy_s", "exposed_s", "hidden_s", "pulls"),
        *("algorithm", "protocol", "stage?", "formula", "because"),
    )

    call: Collective
    sizes: Sizes = field(repr=False)
    ranks: Count
    count: Count
    logical_bytes: Bytes
    wire_bytes_per_device: Bytes
    timing: Timing
    exposed_s: Seconds
    stage: str | None = None
    pulls: Count = 0

    phase = Of[Phase]("call.where.phase", "the part of a step that it belongs to")
    block = Of[str]("call.block", "the block that it belongs to; several joined by commas")
    op = Of[Sent]("call.op", "what it is for: the role of its arrays, or recomputed")
    array = Of[str]("call.array", "the array's name, or how many arrays travel together")
    collective = Of[MoveKind]("call.kind", "which collective it is")
    axis = Of[str]("call.axis", "mesh axes joined by commas, major first")
    dtype = Of[str]("call.dtype", "the type of the numbers on the wire")
    time_s = Of[Seconds]("timing.time_s", "seconds of one call")
    bandwidth_s = Of[Seconds]("timing.bandwidth_s", "of these, bytes at the links' speed")
    algorithm = Of[str]("timing.algorithm", "the algorithm that is taken")
    protocol = Of[str]("timing.protocol", "the library's protocol that is taken")
    because = Of[str]("call.because", "why it exists, as the algebra said it")

    @property
    def layer(self) -> int | str | None:
        """An index, a range such as 0-95, the kind where there are several, or null outside the layers."""
        where, layers = self.call.where, self.sizes.stack or self.sizes.loops[ALIKE]
        index = where.layer
        if index is None:
            return None
        if where.kind != ALIKE:
            return where.kind
        return index if self.call.program.traced[ALIKE] == layers else f"0-{layers - 1}"

    @property
    def payload_bytes(self) -> Bytes:
        """Logical bytes of all calls."""
        return self.logical_bytes * self.count

    @property
    def latency_s(self) -> Seconds:
        """Of these, launch and steps."""
        return self.timing.launch_s + self.timing.latency_s

    @property
    def busy_s(self) -> Seconds:
        """Seconds that all calls keep the network busy."""
        return self.timing.time_s * self.count

    @property
    def wires_s(self) -> dict[str, Any]:
        """Seconds in which all calls fill the links of each level, or of each axis of a torus."""
        return {axis: seconds * self.count for axis, seconds in self.timing.wires_s.items()}

    @property
    def hidden_s(self) -> Seconds:
        """Of these, what runs beside compute or while the rank waits for others."""
        hidden = self.busy_s - self.exposed_s
        return where_positive(hidden - ROUNDING * self.busy_s, hidden)

    @property
    def formula(self) -> str:
        """The wire bytes of one call, in symbols; among several devices, if it is among several."""
        from tpsim.cost.formula import among_many, text

        sent = self.call.wire_bytes(self.sizes.symbols)
        return text(among_many(sent) if self.ranks > 1 else sent)


def price(collectives: Iterable[Collective], sizes: Sizes, pricer: Pricer) -> tuple[Row, ...]:
    """Every collective with its numbers; equal shapes are priced once. Nothing is hidden yet: exposed is busy.

    Bytes are the mean of all devices, seconds those of the one that has most.
    """
    priced: dict[Hashable, tuple[Any, Any, Any, Timing]] = {}
    rows = []
    for collective in collectives:
        shape = collective.shape
        if shape not in priced:
            ranks, volume = collective.ranks(sizes), collective.logical_bytes(sizes)
            timing = pricer(collective.parts[0].move, volume * collective.peak(sizes))
            priced[shape] = (ranks, volume, wire(collective.kind, volume, ranks), timing)
        ranks, volume, injected, timing = priced[shape]
        count = collective.count(sizes)
        rows.append(Row(collective, sizes, ranks, count, volume, injected, timing, timing.time_s * count))
    return tuple(rows)


def summed(of: Callable[[Row], Any]) -> Callable[[Total], Any]:
    """What `of` says of each of a total's rows, added up; of a total that stands for one layer, its share."""

    def sums(whole: Total) -> Any:
        every = total(of(row) for row in whole.rows)
        return over(every, whole.rows[0].sizes.repeats) if whole.alone and whole.rows else every

    return sums


def wires_s(rows: Iterable[Row]) -> dict[str, Any]:
    """Seconds in which rows together fill the links of each level: less than that no step takes."""
    by_links: dict[str, Any] = {}
    for row in rows:
        for links, seconds in row.wires_s.items():
            by_links[links] = by_links.get(links, 0) + seconds
    return by_links


def wire_text(calls: Iterable[Collective], sizes: Sizes, per: Any = 1) -> str:
    """Bytes that one device injects in all calls of a step, over `per`, as one line: loads sympy.

    A term per group of axes, since those do not factor together.
    """
    from tpsim.cost.formula import text

    groups: dict[tuple[str, ...], list[Collective]] = {}
    for call in singles(calls):
        groups.setdefault(call.axes, []).append(call)
    sums = (total(call.wire_bytes(sizes) * call.count(sizes) for call in group) for group in groups.values())
    return " + ".join(text(amount / per) for amount in sums) or "0"


@dataclass(frozen=True, slots=True)
class Total(Record):
    """A sum over rows: bytes of one device, seconds of the step.

    rows   what is summed
    alone  True for the share of one layer and one microbatch, of rows that run in each
    """

    told: ClassVar[tuple[str, ...]] = (
        *("payload_bytes", "wire_bytes_per_device", "carried_bytes_per_device", "link_serial_bytes"),
        *("time_s", "latency_s", "bandwidth_s", "exposed_s", "formula"),
    )

    rows: tuple[Row, ...]
    alone: bool = False

    payload_bytes = Of[Bytes](summed(lambda row: row.payload_bytes), "logical bytes over all calls")
    wire_bytes_per_device = Of[Bytes](summed(lambda row: row.wire_bytes_per_device * row.count), "what it must inject")
    carried_bytes_per_device = Of[Bytes](
        summed(lambda row: row.timing.carried * row.count), "what it sends on average, forwarded chunks included"
    )
    link_serial_bytes = Of[Bytes](
        summed(lambda row: row.timing.link_serial * row.count), "on the busiest link, algorithms run in turn"
    )
    time_s = Of[Seconds](summed(lambda row: row.busy_s), "that the network works")
    latency_s = Of[Seconds](summed(lambda row: row.latency_s * row.count), "of these, launches and steps")
    bandwidth_s = Of[Seconds](summed(lambda row: row.bandwidth_s * row.count), "of these, bytes at the links' speed")
    exposed_s = Of[Seconds](summed(lambda row: row.exposed_s), "of these, what nothing hides")

    @property
    def formula(self) -> str:
        """The wire bytes of one device, in symbols."""
        if not self.rows:
            return "0"
        symbols = self.rows[0].sizes.symbols
        return wire_text((row.call for row in self.rows), symbols, symbols.repeats if self.alone else 1)


def rolled_up(rows: Iterable[Row], by: Callable[[Collective], str]) -> dict[str, Total]:
    """Sums per key, keys in the order they are met.

    by  one of `KEYS`' values, or any function of a collective
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(by(row.call), []).append(row)
    return {key: Total(tuple(group)) for key, group in groups.items()}


SumKey = Literal["by_op", "by_block", "by_layer", "by_phase", "by_axis", "by_collective", "by_step"]

KEYS: Mapping[SumKey, Callable[[Collective], str]] = {
    "by_op": lambda call: call.op,
    "by_block": lambda call: call.block,
    "by_layer": lambda call: "layers" if call.per_layer else "outside",
    "by_phase": lambda call: call.where.phase,
    "by_axis": lambda call: call.axis,
    "by_collective": lambda call: call.kind,
    "by_step": lambda call: "step",  # noqa: ARG005 - every collective belongs to the one step
}
"""What rows can be summed by."""
