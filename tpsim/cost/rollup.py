"""Collectives: what a program sends, row by row, and the sums of those rows.

Nothing here knows a size's kind: a `Sizes` of ints gives exact bytes, of float64 arrays a million layouts at once,
of symbols the formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tpsim.algebra.moves import wire
from tpsim.program.layout import DTYPE_BYTES
from tpsim.program.op import Op, Program, Reshard, Role
from tpsim.quantity.size import Size, product, total

if TYPE_CHECKING:
    from tpsim.algebra.moves import Move, MoveKind
    from tpsim.algebra.sharding import Sharding
    from tpsim.machine.timing import Timing
    from tpsim.program.op import Where

TRAVEL_TOGETHER: frozenset[Role] = frozenset({"param", "gradient", "state"})
"""Roles whose arrays may share a call; an activation is needed at once and travels alone."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a cost is evaluated at.

    dims   sizes of the program's dims; b counts sequences per microbatch over all data shards
    axes   sizes of the mesh axes
    loops  how often each loop of the program runs on a device: layers, microbatches, chunks
    """

    dims: Mapping[str, Size]
    axes: Mapping[str, Size]
    loops: Mapping[str, Size]
    _known: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def repeats(self) -> Any:
        """Runs of what stands in every loop: once per layer and microbatch."""
        return self.loops["layers"] * self.loops["microbatches"]

    def local_elements(self, type_: Sharding) -> Any:
        """Elements of an array of this type on one device; types that hold as many are evaluated once."""
        shape = (tuple(sorted(type_.dims)), tuple(sorted(type_.sharded_axes)))
        if shape not in self._known:
            self._known[shape] = type_.local_elements(self.dims, self.axes)
        return self._known[shape]


@dataclass(frozen=True, slots=True)
class Part:
    """One array's share of a call."""

    array: str
    block: str
    dtype: str
    move: Move

    def logical_bytes(self, sizes: Sizes) -> Any:
        """V: bytes of the full array taking part, per remaining shard of the other axes."""
        return self.move.logical_elements(sizes.dims, sizes.axes) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective call of the traced program: of one array, or of several that travel together.

    where    the traced place; `count` says how many real calls it stands for
    op       what the call is for, in one word: the role of its arrays
    because  why it exists, as the algebra said it
    """

    where: Where
    op: str
    parts: tuple[Part, ...]
    because: str
    program: Program = field(repr=False)

    @property
    def kind(self) -> MoveKind:
        """Which collective: all parts share it."""
        return self.parts[0].move.kind

    @property
    def axes(self) -> tuple[str, ...]:
        """The mesh axes that take part, major first: all parts share them."""
        return self.parts[0].move.axes

    @property
    def dtype(self) -> str:
        """The type of the numbers on the wire: all parts share it."""
        return self.parts[0].dtype

    @property
    def array(self) -> str:
        """The array's name, or how many arrays travel together."""
        names = list(dict.fromkeys(part.array for part in self.parts))
        return " ".join(names) if len(names) <= NAMED else f"{len(names)} arrays"

    @property
    def block(self) -> str:
        """The block it belongs to; blocks joined by a comma when arrays of several travel together."""
        return ",".join(dict.fromkeys(part.block for part in self.parts))

    @property
    def per_microbatch(self) -> bool:
        """True if it runs in every microbatch, False if once per step."""
        return self.where.index("microbatches") is not None

    @property
    def per_layer(self) -> bool:
        """True if it runs in every layer."""
        return self.where.index("layers") is not None

    @property
    def shared(self) -> bool:
        """True if some ranks of a pipeline have it together, for a parameter that they share."""
        return self.parts[0].move.members is not None and self.kind != "send"

    @property
    def grows(self) -> bool:
        """True if its bytes grow with the tokens of a step."""
        return any("b" in part.move.before.dims for part in self.parts)

    def ranks(self, sizes: Sizes) -> Any:
        """Devices that take part in one call."""
        return self.parts[0].move.ranks(sizes.axes)

    def logical_bytes(self, sizes: Sizes) -> Any:
        """V of one call, in bytes."""
        return total(part.logical_bytes(sizes) for part in self.parts)

    def wire_bytes(self, sizes: Sizes) -> Any:
        """Bytes that one device must inject in one call."""
        return wire(self.kind, self.logical_bytes(sizes), self.ranks(sizes))

    def count(self, sizes: Sizes) -> Any:
        """Calls per step and device."""
        return self.program.times(self.where, sizes.loops)

    @property
    def shape(self) -> Hashable:
        """What its price depends on: collectives of equal shape cost the same at all sizes."""
        return (
            self.kind,
            self.axes,
            self.parts[0].move.reordered,
            self.parts[0].move.members,
            tuple(sorted((part.dtype, *element_shape(part.move)) for part in self.parts)),
        )


NAMED = 3
"""Arrays of one call that are named one by one in a row; more are counted."""


def element_shape(move: Move) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The dims and axes that a move's V is made of, in one order: equal ones have equal V."""
    return tuple(sorted(move.before.dims)), tuple(sorted(move.before.sharded_axes))


def collectives(program: Program, *, coalesce: bool) -> tuple[Collective, ...]:
    """Every collective call of `program`, in order; free slices are none.

    coalesce  True: calls on parameters, gradients and optimizer state of one phase, layer, kind, axes and dtype
              travel as one
    """
    singles = [
        _collective(program, op, move)
        for op in program.ops
        if isinstance(op, Reshard)
        for move in op.moves
        if move.kind != "slice"
    ]
    return tuple(_together(singles) if coalesce else singles)


def _collective(program: Program, op: Op, move: Move) -> Collective:
    part = Part(op.output.name, op.where.block, op.output.dtype, move)
    return Collective(op.where, op.output.role, (part,), op.because, program)


def _together(singles: Iterable[Collective]) -> list[Collective]:
    """The same calls with those that may share one merged, each standing where its first stood."""
    groups: dict[Hashable, list[Collective]] = {}
    for place, single in enumerate(singles):
        company = _company(single)
        groups.setdefault(place if company is None else company, []).append(single)
    return [_merged(group) for group in groups.values()]


def _company(single: Collective) -> Hashable | None:
    """Calls of equal company travel together; None travels alone."""
    if single.op not in TRAVEL_TOGETHER:
        return None
    where, order = single.where, single.parts[0].move.reordered
    return (
        where.phase,
        where.loops,
        where.chunks,
        where.again,
        single.op,
        single.kind,
        single.axes,
        order,
        single.dtype,
    )


def _merged(group: Sequence[Collective]) -> Collective:
    first = group[0]
    if len(group) == 1:
        return first
    return Collective(
        first.where,
        first.op,
        tuple(part for single in group for part in single.parts),
        "; ".join(dict.fromkeys(single.because for single in group if single.because)),
        first.program,
    )


Pricer = Callable[["Move", Size], "Timing"]
"""Seconds of one collective: a move that it makes, and V in bytes of all that travel in it."""


@dataclass(frozen=True, slots=True)
class Row:
    """A collective with its numbers: of one call (logical, wire, timing) and of all (payload, busy, exposed)."""

    collective: Collective
    ranks: Any
    count: Any
    logical_bytes: Any
    wire_bytes: Any
    timing: Timing
    exposed_s: Any

    @property
    def busy_s(self) -> Any:
        """Seconds that all calls keep the network busy."""
        return self.timing.time_s * self.count


def price(found: Sequence[Collective], sizes: Sizes, pricer: Pricer) -> tuple[Row, ...]:
    """Every collective with its numbers; equal shapes are priced once. Nothing is hidden yet: exposed is busy."""
    priced: dict[Hashable, tuple[Any, Any, Timing]] = {}
    rows = []
    for collective in found:
        shape = collective.shape
        if shape not in priced:
            volume = collective.logical_bytes(sizes)
            priced[shape] = (volume, collective.wire_bytes(sizes), pricer(collective.parts[0].move, volume))
        volume, injected, timing = priced[shape]
        count = collective.count(sizes)
        rows.append(Row(collective, collective.ranks(sizes), count, volume, injected, timing, timing.time_s * count))
    return tuple(rows)


def alike(found: Iterable[Collective]) -> dict[Hashable, list[Collective]]:
    """Collectives whose calls cost the same and repeat alike, together."""
    groups: dict[Hashable, list[Collective]] = {}
    for one in found:
        groups.setdefault((one.shape, one.per_layer, one.per_microbatch, one.where.phase, one.op), []).append(one)
    return groups


def travelling(found: Iterable[Collective], axes: Mapping[str, int]) -> tuple[Collective, ...]:
    """The collectives with somebody to talk to: those whose axes multiply to more than one device."""
    return tuple(one for one in found if product(axes[axis] for axis in one.axes) > 1)


@dataclass(frozen=True, slots=True)
class Total:
    """Sums over rows: bytes of one device, seconds of the step.

    payload         logical bytes over all calls
    wire            bytes that a device must inject
    carried         mean bytes that it sends with the chosen algorithms, forwarded chunks included
    link            bytes on the busiest link, algorithms run in turn
    latency_s       launches and steps
    bandwidth_s     bytes at the links' speed
    busy_s          seconds the network works
    exposed_s       of those, seconds that nothing hides
    """

    payload: Any = 0
    wire: Any = 0
    carried: Any = 0
    link: Any = 0
    latency_s: Any = 0
    bandwidth_s: Any = 0
    busy_s: Any = 0
    exposed_s: Any = 0


def total_of(rows: Iterable[Row]) -> Total:
    """The sum of `rows` over all their calls."""
    rows = tuple(rows)
    return Total(
        payload=total(row.logical_bytes * row.count for row in rows),
        wire=total(row.wire_bytes * row.count for row in rows),
        carried=total(row.timing.carried * row.count for row in rows),
        link=total(row.timing.link_serial * row.count for row in rows),
        latency_s=total((row.timing.launch_s + row.timing.latency_s) * row.count for row in rows),
        bandwidth_s=total(row.timing.bandwidth_s * row.count for row in rows),
        busy_s=total(row.busy_s for row in rows),
        exposed_s=total(row.exposed_s for row in rows),
    )


def rolled_up(rows: Iterable[Row], by: Callable[[Collective], str]) -> dict[str, Total]:
    """Sums per key, keys in the order they are met.

    by  one of `KEYS`' values, or any function of a collective
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(by(row.collective), []).append(row)
    return {key: total_of(group) for key, group in groups.items()}


def axis_name(collective: Collective) -> str:
    """Its mesh axes joined by commas, major first."""
    return ",".join(collective.axes)


def layer_name(collective: Collective) -> str:
    """``layers`` for what runs in every layer, ``outside`` for the rest."""
    return "layers" if collective.per_layer else "outside"


KEYS: Mapping[str, Callable[[Collective], str]] = {
    "op": lambda one: one.op,
    "block": lambda one: one.block,
    "layer": layer_name,
    "phase": lambda one: one.where.phase,
    "axis": axis_name,
    "collective": lambda one: one.kind,
    "step": lambda one: "step",  # noqa: ARG005 - every collective belongs to the one step
}
"""What rows can be summed by."""
