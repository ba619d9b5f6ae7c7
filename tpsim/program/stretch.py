"""Stretches of a trace that are written once: behind arrays that tell as much as others, the same ops follow."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tpsim.algebra.sharding import Sharding, flat_dim

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from tpsim.program.op import Array, Op
    from tpsim.program.trace import Trace


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some ops of a trace.

    read  the arrays behind which they were written
    made  what they lead to
    """

    read: Sequence[Array]
    ops: Sequence[Op]
    made: Sequence[Array]

    def behind(self, read: Sequence[Array]) -> Stretch:
        """The same behind arrays that tell as much."""
        instead = {own: x for own, x in zip(self.read, read, strict=True) if own is not x}
        if not instead:
            return self
        ops = [
            op
            if instead.keys().isdisjoint(op.inputs)
            else replace(op, inputs=tuple([instead.get(x, x) for x in op.inputs]))
            for op in self.ops
        ]
        return Stretch(read, ops, [instead.get(x, x) for x in self.made])


@dataclass(frozen=True, slots=True)
class Stretches:
    """What has been written behind arrays, in one trace or several of the same mesh axes.

    known    what steers a stretch -> the stretch
    numbers  all that who reads an array can know of it -> a number for it
    told     array -> that number
    """

    known: dict[Hashable, Stretch] = field(default_factory=dict)
    numbers: dict[Hashable, int] = field(default_factory=dict)
    told: dict[Array, int] = field(default_factory=dict)

    def once(
        self, trace: Trace, key: Sequence[Hashable], read: Sequence[Array], write: Callable[[], Sequence[Array]]
    ) -> Sequence[Array]:
        """What `write` makes of the arrays that it reads, emitted as it was before where that is known.

        key  what else steers it, beside where the trace stands
        """
        asked = (*key, trace.where, trace.region, *[self._number(trace, x) for x in read])
        if asked in self.known:
            stretch = self.known[asked].behind(read)
            trace.ops += stretch.ops
            trace.producer.update([(op.output, op) for op in stretch.ops])
            return stretch.made
        start, made = len(trace.ops), write()
        self.known[asked] = Stretch(read, trace.ops[start:], made)
        return made

    def _number(self, trace: Trace, x: Array) -> int:
        if x not in self.told:
            maker = trace.producer[x]
            own = x.name, all_of(x.type), x.region, x.dtype, x.role, x.active, x.filled
            tells = *own, type(maker), maker.where, trace.rows(x), *trace.owed_because(x)
            self.told[x] = self.numbers.setdefault(tells, len(self.numbers))
        return self.told[x]


def all_of(type_: Sharding) -> Hashable:
    """A type with what lies in its line, if it has one, which no name tells."""
    line = flat_dim(type_)
    return (type_, line.of, line.merged, line.ways) if line else type_
