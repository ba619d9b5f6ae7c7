"""Backward, derived: the forward ops in reverse, each emitting its transpose through the same typed functions.

A cotangent goes to the DUAL of the primal's type: sharded dims stay sharded, owed becomes replicated, replicated
becomes complete. Cotangents of one array wait in bags by what they owe; they are carried through a block and settled at
its edge, at parameters, or where bags meet, never at the output of a reshard. What backward needs and nobody keeps is
emitted again, moves included: gathers that the practice drops, the inside of fused kernels, what is recomputed.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tpsim.algebra.sharding import Sharding
from tpsim.program.layout import REGIONS
from tpsim.program.op import (
    Again,
    Array,
    Bcast,
    Combine,
    Dispatch,
    Einsum,
    Index,
    Leaf,
    Lin,
    Map,
    Max,
    Op,
    Rename,
    Reshard,
    Scale,
    is_cast,
)
from tpsim.program.saved import STATISTIC, Saved, is_edge
from tpsim.program.trace import ONE, Trace

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from tpsim.program.practice import Practice

CONSTANT = (Leaf, Index, Max)
"""Ops that no cotangent goes through."""

BY_OUTPUT = frozenset({"exp", "tanh"})
"""Functions whose derivative is one of what they made: so that is what is kept, not their operand."""


@dataclass(slots=True)
class Backward:
    """Cotangents on their way from one microbatch's loss to its parameters.

    bags       array -> its cotangents so far
    gradients  parameter -> cotangents of its uses, as sharded and as owing as they came
    stream     cotangents that a part of the stack hands to the one before it
    again      forward array and why it is made a second time -> the array that then is
    saved      what is found of the forward of a microbatch
    """

    trace: Trace
    practice: Practice
    bags: dict[Array, list[Array]] = field(default_factory=lambda: defaultdict(list))
    gradients: dict[Array, list[Array]] = field(default_factory=lambda: defaultdict(list))
    stream: list[Array] = field(default_factory=list)
    again: dict[tuple[Array, Again], Array] = field(default_factory=dict)
    saved: Saved = field(init=False)

    def run(self, forward: Sequence[Op], loss: Array) -> dict[Array, list[Array]]:
        """Transpose `forward` (the ops of one microbatch) from `loss` down; the cotangents of each parameter's uses."""
        self.gradients, self.saved = defaultdict(list), (saved := Saved(self.trace, self.practice, forward, self.again))
        with self.trace.at(self.trace.producer[loss].where.but(act="B"), loss.region):
            self.bags[loss].append(self.trace.index("one", (), loss.dtype))
        beside: dict[Hashable, list[Array]] = defaultdict(list)
        for op in (op for op in forward if op.where.kernel):
            for x in (*filter(saved.streamed, op.inputs), *saved.missing(op, _read_of(op))):
                beside[saved.kernel(op)].append(x)
        for op in reversed(forward):
            # Blocks come to a kernel side by side, what it misses is recomputed before it begins, and frameworks gather
            # a dropped group of weights whole, read or not.
            whole = isinstance(op, Reshard) and op.inputs[0].role == "param"
            come = beside.get(saved.kernel(op), ()) if beside else ()
            if come or whole or op.output in self.bags:
                with self.trace.at(op.where.but(act="B", again=""), op.output.region):
                    for x in (*come, *([op.output] if whole else ())):
                        saved.of(x)
                    if op.output in self.bags:
                        self._transpose(op)
        return self.gradients

    def _transpose(self, op: Op) -> None:
        cotangents = self.bags.pop(op.output)
        if isinstance(op, Reshard) and is_edge(self.trace, op):
            self._reshard(op, self._one(op.output, self._bagged(cotangents)))
            self.stream += self.bags[op.inputs[0]]
        elif isinstance(op, Reshard):
            alone = [dy for dy in cotangents if dy.type.owes and self.practice.cotangents == "per_use"]
            for dy in [*alone, *self._bagged([dy for dy in cotangents if dy not in alone])]:
                self._reshard(op, dy)
        elif not isinstance(op, CONSTANT):
            self._rule(op, self._one(op.output, self._bagged(cotangents)))

    def _rule(self, op: Op, dy: Array) -> None:
        for place, x in enumerate(op.inputs):
            if x.active:
                self.bags[x].append(self._cotangent(op, place, dy))

    def _cotangent(self, op: Op, place: int, dy: Array) -> Array:
        """The cotangent of operand `place` of `op`, given that of its output."""
        trace, x = self.trace, op.inputs[place]
        if isinstance(op, Einsum):
            others = tuple(self.saved.of(y) for i, y in enumerate(op.inputs) if i != place)
            return self._product(x, dy, *others)
        if isinstance(op, Map):
            pulled = trace.map(_d(x), op.fn, dy, *map(self.saved.of, _read_of(op)), partial=place, dtype=x.dtype)
            return self._summed(pulled, x)
        if isinstance(op, Rename):
            new, old = next((new, old) for new, old in zip(op.output.dims, x.dims, strict=True) if new != old)
            return trace.rename(_d(x), dy, new, old)
        if isinstance(op, Bcast | Lin):
            return self._summed(dy if isinstance(op, Bcast) else self._scaled(dy, op.scales[place], x), x)
        if isinstance(op, Dispatch | Combine):
            return self._rows(op, x, dy)
        return op.pulled(trace, _d(x), place, dy, [self.saved.of(y) for y in op.read_back])

    # --- the rules, one per op ---

    def _product(self, x: Array, dy: Array, *others: Array) -> Array:
        """Pull back an einsum: the cotangent times the other operand, over the dims that either has, then repeated."""
        dims = {dim for y in (dy, *others) for dim in y.dims}
        repeated = {axis for dim in x.dims if dim not in dims for axis in x.type.axes(dim)}
        busy = repeated | {axis for y in others for axis in (*y.type.sharded_axes, *y.type.owed_axes)}
        if dy.type.owed_axes & busy:
            dy = self.trace.settled(dy, f"the product for {_d(x)} meets an operand split over the same axis")
        if not others:
            return self.trace.bcast(_d(x), dy, x.type)
        dtype = dy.dtype if x.filled and x.dtype == self.practice.rows.dtype else x.dtype
        dtype = STATISTIC if self.saved.circles(x) else dtype
        out = self.trace.einsum(_d(x), tuple(dim for dim in x.dims if dim in dims), dy, *others, dtype=dtype)
        return out if len(out.dims) == len(x.dims) else self.trace.bcast(_d(x), out, x.type)

    def _rows(self, op: Dispatch | Combine, x: Array, dy: Array) -> Array:
        """Pull back rows that are made of tokens, or tokens that are made of rows: the one is the other's transpose."""
        from tpsim.program.dispatch import combine, dispatch, narrowed

        trace, chosen = self.trace, self.saved.of(op.inputs[1])
        if isinstance(op, Combine):
            return dispatch(trace, _d(x), narrowed(trace, dy, self.practice.rows), chosen, like=x)
        sums = combine(trace, _d(x), dy, chosen, x)
        to = Sharding(x.dims, x.type.on, sums.type.owes)
        return sums if sums.type == to else trace.reshard(sums, to, f"the cotangent of {x.name} lies as it does")

    def _summed(self, dy: Array, x: Array) -> Array:
        """`dy` summed over the dims that `x` was broadcast along, in the order of the dims of `x`."""
        return dy if dy.dims == x.dims else self.trace.einsum(_d(x), x.dims, dy, dtype=x.dtype)

    def _scaled(self, dy: Array, scale: Scale, x: Array) -> Array:
        if scale == ONE and dy.dtype == x.dtype:
            return dy
        return self.trace.lin(_d(x), dy, scales=(scale,), dtype=x.dtype)

    def _reshard(self, op: Reshard, dy: Array) -> None:
        """Pull back a reshard: the cotangent goes, owing as it is, to the dual of the INPUT's type."""
        x = op.inputs[0]
        if not x.active:
            return
        if any(move.kind == "send" for move in op.moves):
            with self.trace.at(self.trace.where.but(chunks=self.trace.producer[x].where.chunks)):
                self.bags[x].append(self.trace.send(dy, _d(op.output), f"the cotangent of {x.name} is sent back"))
            return
        maker = self.trace.producer[x]
        if isinstance(maker, Leaf) or is_cast(maker):
            self.gradients[maker.inputs[0] if maker.inputs else x].append(dy)
            return
        carries = x.region in REGIONS and REGIONS[x.region].carries
        owed = [pair for pair in dy.type.owes if carries and pair[0] not in x.type.sharded_axes]
        target = Sharding(x.dims, x.type.on, frozenset(owed))
        reasons = self.trace.owed_because(dy)
        because = "; ".join([*reasons, f"the cotangent of {x.name} returns to the dual of {x.type}"])
        streamed = self.saved.streamed(op.output)
        how = {"streamed": streamed, "circle": self.saved.circles(op.output)}
        back = self.trace.reshard(dy, target, because, region=x.region, name=_d(op.output), **how)
        self.bags[x].append(back)

    # --- bags ---

    def _bagged(self, cotangents: list[Array]) -> list[Array]:
        """Cotangents added inside each bag: alike in what they owe."""
        bags: dict[Sharding, list[Array]] = defaultdict(list)
        for cotangent in cotangents:
            bags[cotangent.type].append(cotangent)
        return [self._sum(bag) for bag in bags.values()]

    def _one(self, x: Array, bags: list[Array]) -> Array:
        """One cotangent of `x`: carried as it owes if there is one bag; several are settled, because here they meet."""
        if len(bags) == 1:
            return bags[0]
        return self._sum([self.trace.settled(bag, f"cotangents that owe differently meet at {_d(x)}") for bag in bags])

    def _sum(self, bag: list[Array]) -> Array:
        return bag[0] if len(bag) == 1 else self.trace.lin(bag[0].name, *bag)


def _d(x: Array) -> str:
    """The name of a cotangent: `d.` and the primal's name."""
    return f"d.{x.name}"


def _read_of(op: Op) -> Sequence[Array]:
    """What the backward of an op reads beside cotangents."""
    active = [place for place, x in enumerate(op.inputs) if x.active]
    if isinstance(op, Einsum):
        return [y for place, y in enumerate(op.inputs) if active and active != [place]]
    if isinstance(op, Map) and active:
        return [op.output] if op.fn in BY_OUTPUT else op.inputs
    return op.read_back
