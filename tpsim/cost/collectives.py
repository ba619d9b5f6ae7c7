"""The collective calls of a program: what travels in each, its bytes, and how often it runs.

Nothing here knows a size's kind: a `Sizes` of ints gives exact bytes, of float64 arrays a million layouts at once,
of symbols the formulas.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

from tpsim.algebra.moves import Move, MoveKind, wire
from tpsim.program.dtypes import DTYPE_BYTES
from tpsim.program.kinds import ALIKE
from tpsim.program.op import Array, Program, Reshard, Role, Where
from tpsim.quantity.size import product, total

if TYPE_CHECKING:
    from tpsim.cost.sizes import Sizes

TRAVEL_TOGETHER: frozenset[Role] = frozenset({"param", "gradient", "state"})
"""Roles whose arrays may share a call; an activation is needed at once and travels alone."""


@dataclass(frozen=True, slots=True)
class Portion:
    """One array's share of a call: a move of the op that makes it, in its place among those of the op."""

    output: Array = field(repr=False)
    block: str
    move: Move
    place: int = 0

    @property
    def array(self) -> str:
        """The array's name."""
        return self.output.name

    @property
    def dtype(self) -> str:
        """The type of its numbers."""
        return self.output.dtype

    @property
    def of_rows(self) -> bool:
        """True for rows of experts, and for counts of them, which go ahead."""
        return bool(self.output.filled) or self.output.role == "index"

    def elements(self, sizes: Sizes) -> Any:
        """V in elements."""
        return self.move.taking_part(sizes.local_elements(self.move.before), sizes.axes)

    def logical_bytes(self, sizes: Sizes) -> Any:
        """V: bytes of the full array taking part, per remaining shard of the other axes."""
        return product((self.elements(sizes), DTYPE_BYTES[self.dtype]))


@dataclass(frozen=True)
class Collective:
    """One collective call of the traced program: of one array, or of several that travel together.

    where    the traced place; `count` says how many real calls it stands for
    op       what the call is for, in one word: the role of its arrays, or that it is recomputed
    because  why it exists, as the algebra said it
    layers   that send together what each of them has of it, see `cost.buckets`
    alone    the call of one of these layers; None for a call that is one
    """

    where: Where
    op: str
    parts: tuple[Portion, ...]
    because: str
    program: Program = field(repr=False)
    layers: int = 1
    alone: Collective | None = field(default=None, repr=False, compare=False)

    @cached_property
    def sort(self) -> str:
        """What a practice switches: rows of experts, also where they travel once more, else by what it is for."""
        return ROWS if self.parts[0].of_rows else SORT_OF[self.op]

    @property
    def single(self) -> Collective:
        """The call of one layer, as it was derived."""
        return self.alone or self

    def joined(self, layers: int) -> Collective:
        """The call of so many layers at once; it is made once."""
        if layers not in self._joined:
            because = f"{self.because}; {layers} layers travel as one bucket"
            self._joined[layers] = replace(self, layers=layers, alone=self, because=because)
        return self._joined[layers]

    @cached_property
    def _joined(self) -> dict[int, Collective]:
        return {1: self}

    @property
    def kind(self) -> MoveKind:
        """Which collective: all parts share it."""
        return self.parts[0].move.kind

    @property
    def axes(self) -> tuple[str, ...]:
        """The mesh axes that take part, major first: all parts share them."""
        return self.parts[0].move.axes

    @property
    def axis(self) -> str:
        """Its mesh axes joined by commas, major first; of what a device and its host exchange these."""
        return ",".join(self.axes) or HOST

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
        return self.where.microbatch is not None

    @property
    def per_layer(self) -> bool:
        """True if it runs in every layer."""
        return self.where.layer is not None

    @property
    def shared(self) -> bool:
        """True if ranks of a pipeline have it together: those that share a parameter, or all."""
        return self.kind != "send" and not {*self.program.pipe}.isdisjoint(self.axes)

    @property
    def streamed(self) -> bool:
        """True if its blocks travel one after another, beside what is made of each."""
        return self.parts[0].move.streamed

    def ranks(self, sizes: Sizes) -> Any:
        """Devices that take part in one call."""
        return self.parts[0].move.ranks(sizes.axes)

    def elements(self, sizes: Sizes) -> Any:
        """V of one call, in elements."""
        return total(part.elements(sizes) for part in self.parts) * self.layers

    def logical_bytes(self, sizes: Sizes) -> Any:
        """V of one call, in bytes."""
        return total(part.logical_bytes(sizes) for part in self.parts) * self.layers

    def peak(self, sizes: Sizes) -> Any:
        """What the device that sends or gets most has over the mean: everyone waits for it."""
        return sizes.peak(self.parts[0].move.before.dims)

    def wire_bytes(self, sizes: Sizes) -> Any:
        """Bytes that one device must inject in one call."""
        return wire(self.kind, self.logical_bytes(sizes), self.ranks(sizes))

    def count(self, sizes: Sizes) -> Any:
        """Calls per step and device, of one layer each."""
        return self.program.times(self.where, sizes.loops)

    def repeats(self, sizes: Sizes) -> Any:
        """Calls per step in each of the layers, or at each of the cuts, that have it."""
        return self.program.times(self._in_one, sizes.loops)

    @cached_property
    def _in_one(self) -> Where:
        """Where it stands of one layer, or of one cut."""
        return self.where.outside(ALIKE).outside("chunks")

    @cached_property
    def shape(self) -> Hashable:
        """What its price depends on: collectives of equal shape cost the same at all sizes."""
        return (
            self.kind,
            self.axes,
            self.layers,
            self.parts[0].move.reordered,
            self.parts[0].move.members,
            self.parts[0].move.streamed,
            tuple(sorted((part.dtype, *part.move.before.portion) for part in self.parts)),
        )


NAMED = 3
"""Arrays of one call that are named one by one in a row; more are counted."""


def collectives(program: Program, *, coalesce: bool, apart: bool = False) -> tuple[Collective, ...]:
    """Every collective call of `program`, in order; free slices are none.

    coalesce  True: calls on parameters, gradients and optimizer state of one act, layer, kind, axes and dtype
              travel as one
    apart     True: but those of the embedding not with those of the head
    """
    singles = [call for call in moves(program) if call.kind != "slice"]
    return tuple(_together(singles, apart) if coalesce else singles)


def moves(program: Program) -> Iterator[Collective]:
    """Every move of `program` by itself, in order, free slices too."""
    for op in program.ops:
        for place, move in enumerate(op.moves if isinstance(op, Reshard) else ()):
            part = Portion(op.output, op.where.block, move, place)
            purpose = RECOMPUTED if op.where.again == "replay" else ROWS if part.of_rows else op.output.role
            yield Collective(op.where, purpose, (part,), op.because, program)


def _together(singles: Iterable[Collective], apart: bool) -> list[Collective]:
    """The same calls with those that may share one merged, each standing where its first stood."""
    groups: dict[Hashable, list[Collective]] = {}
    for place, single in enumerate(singles):
        company = _company(single)
        end = apart and single.where.place
        groups.setdefault(place if company is None else (company, end), []).append(single)
    return [_merged(group) for group in groups.values()]


def _company(single: Collective) -> Hashable | None:
    """Calls of equal company travel together; None travels alone.

    Of backward, what W alone needs does not travel with what B does: a schedule may run them apart.
    """
    if single.op not in TRAVEL_TOGETHER:
        return None
    where, order = single.where, single.parts[0].move.reordered
    return (
        where.act,
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


def singles(calls: Iterable[Collective]) -> list[Collective]:
    """The calls of one layer that some calls are made of, each once."""
    return [*{id(call.single): call.single for call in calls}.values()]


def travelling(calls: Iterable[Collective], axes: Mapping[str, int]) -> tuple[Collective, ...]:
    """The collectives with somebody to talk to: those whose axes multiply to more than one device, and the host's."""
    return tuple(call for call in calls if call.parts[0].move.travels or product(axes[axis] for axis in call.axes) > 1)


HOST = "host"
"""Over what a device and its host exchange arrays."""

RECOMPUTED = "recomputed"
"""What calls are for that run forward once more."""

ROWS = "rows"
"""What calls are for that bring rows to experts and back."""

TENSOR, GRADIENTS, WEIGHTS = "tensor", "gradients", "weights"
SORT_OF: Mapping[str, str] = {
    **dict.fromkeys(("activation", RECOMPUTED), TENSOR),
    ROWS: ROWS,
    "gradient": GRADIENTS,
    **dict.fromkeys(("param", "state"), WEIGHTS),
}
"""The sort of a collective, and so its lane, by what it is for."""

Sent = Annotated[str, ("enum", ("activation", "gradient", "param", RECOMPUTED, ROWS, "state"))]
"""A role whose arrays travel: indices are where they are needed; or that they travel once more, or rows of experts."""
