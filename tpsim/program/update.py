"""The end of a step: gradients settled, optimizer states updated in their own sharding, new weights brought home."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tpsim.algebra.sharding import Sharding, unpacked
from tpsim.program.dtypes import DTYPE_BYTES, Dtypes
from tpsim.program.op import Array, Leaf
from tpsim.program.stretch import Stretches, all_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from tpsim.program.layout import Layout
    from tpsim.program.op import Home
    from tpsim.program.practice import Practice
    from tpsim.program.trace import Trace

CLIP = "clip"
"""The block of what makes the norm of all gradients."""

CAST = "cast.gradients"
"""The kernel that brings what has been reduced to the format in which it is held."""

MOMENTS = ("moment", "variance")
"""AdamW's two running averages, one of each per parameter (Loshchilov and Hutter 2019)."""


@dataclass(slots=True)
class Update:
    """Settles gradients and writes the optimizer's step into `trace`, of each parameter by itself.

    known  what was written of parameters, by this or under other layouts of the same practice
    """

    trace: Trace
    layout: Layout
    practice: Practice
    dtypes: Dtypes
    known: Stretches = field(default_factory=Stretches)

    @property
    def home(self) -> Home:
        """Where the optimizer's states live, and it runs."""
        return "host" if "state" in self.practice.offload else "device"

    @property
    def owing(self) -> bool:
        """True if the optimizer receives gradients as they owe and settles them into its own sharding."""
        return self.layout.zero > 0 and self.practice.zero1 == "scatter"

    def added(self, param: Array, chunk: int, microbatch: int, parts: Sequence[Array]) -> Sequence[Array]:
        """What one microbatch adds to the gradient of `param` in a chunk, paid as far as it is in every microbatch.

        By default that is what the sharding of region `grad` takes up, as nothing wider is held between microbatches.
        What no dim takes up is owed once: the parts of a sum over microbatches may stay with their devices.
        """

        def write() -> Sequence[Array]:
            where = self.trace.where.but(act="W", chunks=(chunk,)).inside("microbatches", microbatch)
            with self.trace.at(where, "grad"):
                bags = self._added(param, parts)
                if self.practice.gradients == "per_step":
                    return bags
                if self.practice.gradients == "per_microbatch":
                    return [self._together(param, bags)]
                return [self._taken_up(param, bag) for bag in bags]

        return self._once(("grad",), param, parts, write, "added", chunk, microbatch)

    def _once(
        self,
        regions: Sequence[str],
        param: Array,
        others: Sequence[Array],
        write: Callable[[], Sequence[Array]],
        *key: Hashable,
    ) -> Sequence[Array]:
        """What is written where a parameter is made: steered by its homes in these regions, other arrays and a key."""
        trace, homes = self.trace, [all_of(self.trace.home(param, region)) for region in regions]
        with trace.at(trace.producer[param].where):
            return self.known.once(trace, (*key, *homes), [param, *others], write)

    def received(self, param: Array, parts: Mapping[int, Sequence[Array]]) -> Array:
        """The step's gradient of `param` in the optimizer's sharding, and in the format in which it is held.

        parts  over all uses and microbatches, of each chunk of the stack that uses it
        """

        def write() -> Sequence[Array]:
            to, gradient = self.trace.home(param, "state"), self._gradient(param, parts)
            with self.trace.at(self.trace.where.but(act="U"), "state"):
                g = self._to(gradient, to, f"the optimizer holds {param.name}{to}")
            held = self.dtypes.shards or param.dtype
            if self.practice.settled == "sent" or g.dtype == held:
                return [g]
            with self.trace.at(self.trace.where.but(act="U", kernel=CAST), "state"):
                return [self.trace.lin(g.name, g, dtype=held)]

        every = [part for own in parts.values() for part in own]
        key = "received", self.owing, self.layout.stages
        (received,) = self._once(("state", "grad"), param, every, write, *key)
        return received

    def _gradient(self, param: Array, parts: Mapping[int, Sequence[Array]]) -> Array:
        """The gradient from its parts; it may still owe (`owing`). Where several chunks have some each settles its own.

        Then they are joined.
        """
        if len(parts) == 1:
            ((_, own),) = parts.items()
            return self._of_a_chunk(param, own)
        settled, to = [], self.trace.home(param, "state" if self.owing else "grad")
        for chunk, own in parts.items():
            with self.trace.at(self.trace.where.but(act="W", chunks=(chunk,)), "grad"):
                because = f"each stage that uses {param.name} settles its own gradient"
                settled.append(self._to(self._of_a_chunk(param, own), to, because))
        with self.trace.at(self.trace.where.but(act="W"), "grad"):
            chunks = " and ".join(map(str, parts))
            return self.trace.joined(settled, f"{param.name} is used by chunks {chunks} of the stack, on two stages")

    def _of_a_chunk(self, param: Array, parts: Iterable[Array]) -> Array:
        with self.trace.at(self.trace.where.but(act="W"), "grad"):
            bags = self._added(param, parts)
            return bags[0] if self.owing and len(bags) == 1 else self._together(param, bags)

    def squares(self, gradients: Iterable[Array], chunks: int) -> Array:
        """The sum of the squares of all gradients, on all devices: what several stages hold alike the first one counts.

        Of gradients that are sharded alike it is owed, and paid, together; over the stages once for all of them.
        """
        trace = self.trace
        bags: dict[Any, list[Array]] = defaultdict(list)
        sums: dict[Any, list[Array]] = defaultdict(list)
        for g in gradients:
            with trace.at(trace.producer[g].where, "state"):
                (square,) = self.known.once(trace, ("square",), [g], partial(self._square, g))
                bags[square.type.owes, trace.where.chunks[0]].append(square)
        step = trace.where.but(act="U", place="step", block=CLIP, loops=(), chunks=tuple(range(chunks)))
        for (owes, chunk), squares in bags.items():
            with trace.at(step.but(chunks=(chunk,)), "state"):
                sums[owes].append(trace.lin("squares", *squares, role="activation"))
        with trace.at(step, "state"):
            because = "the norm of all gradients decides how far they are clipped"
            staged = [trace.owed_by(parts) if self.layout.stages else parts[0] for parts in sums.values()]
            left = [x.type.owing({owed for owed in x.type.owes if owed[0] in self.layout.stages}) for x in staged]
            own = [x if x.type == to else self._to(x, to, because) for x, to in zip(staged, left, strict=True)]
            whole = trace.settled(trace.lin("squares", *own), because)
            return trace.brought(whole, self.home, f"{because}, where the optimizer runs")

    def _square(self, g: Array) -> Sequence[Array]:
        """The sum of its squares; what several stages hold alike is of the first one."""
        trace, where = self.trace, self.trace.where
        with trace.at(where.but(chunks=where.chunks[:1], kernel="norm.gradients")):
            return [trace.einsum(f"squares.{g.name}", (), trace.map(f"square.{g.name}", "square", g))]

    def apply(self, param: Array, g: Array, squares: Array | None) -> Array:
        """AdamW: the new weights as they are stored; `squares` of all gradients, where these are clipped."""
        read = [g] if squares is None else [g, squares]
        (new,) = self._once(("state",), param, read, lambda: [self._applied(param, g, squares)], "applied")
        return new

    def _applied(self, param: Array, g: Array, squares: Array | None) -> Array:
        trace, to = self.trace, self.trace.home(param, "state")
        with trace.at(trace.where.but(act="U"), "state"):
            g = trace.brought(
                g, self.home, f"the optimizer holds {param.name} on the {self.home}, and updates it there"
            )
            g = g if squares is None else trace.map(f"clipped.{g.name}", "clipped", g, squares)
            master, *moments = self.states(param)
            for moment in moments:
                trace.map(f"new.{moment.name}", f"adam_{moment.name.partition('.')[0]}", moment, g)
            new = trace.map(f"new.{param.name}", "adam", master, g, *moments)
            new = trace.lin(new.name, new, dtype=param.dtype, role="state")
            new = trace.brought(new, param.home, f"{param.name} is read on the {param.home}")
            because = f"{param.name} is updated as {to} and stored as {param.type}"
            return trace.reshard(new, param.type, because, region="stored")

    def states(self, param: Array) -> Sequence[Array]:
        """What the optimizer reads of a parameter: weights as it adds to them, and its moments."""
        master, kept = self._master(param), self.dtypes.moments or self.dtypes.optimizer
        return [master, *(self.trace.state(f"{kind}.{param.name}", param, kept, self.home) for kind in MOMENTS)]

    def gradient(self, param: Array) -> Array:
        """What stands of its gradient at least: sharded over whatever it is anywhere, in the least of its formats."""
        trace, dims, own = self.trace, unpacked(param.type).dims, self.dtypes.gradients
        homes = {region: {*trace.home(param, region).sharded_axes} for region in self.layout.table}
        axes = set[str]().union(*(some for region, some in homes.items() if region != "state"))
        if self.practice.settled != "sent":  # brought to the optimizer's format it may stand in its place
            own = min(own, self.dtypes.shards or param.dtype, key=DTYPE_BYTES.__getitem__)
            state = homes.get("state", set())
            axes |= state if len(state) <= len(axes) else set()
        type_ = Sharding(dims, (tuple(sorted(axes)), *(() for _ in dims[1:])))
        return trace.emit(Leaf((), Array(f"grad.{param.name}", type_, "grad", own, "gradient"), trace.where))

    def _master(self, param: Array) -> Array:
        """Weights as the optimizer adds to them: its own, at rest or finer, or a free slice of stored ones.

        Where it runs elsewhere it has its own.
        """
        finer = max(self.dtypes.at_rest, self.dtypes.optimizer, key=DTYPE_BYTES.__getitem__)
        if self.dtypes.shards or finer != self.dtypes.at_rest or self.home != param.home:
            return self.trace.state(f"master.{param.name}", param, finer, self.home)
        to = self.trace.home(param, "state")
        return self._to(param, to, f"the optimizer updates {param.name}{to}")

    def _taken_up(self, param: Array, bag: Array) -> Array:
        """`bag` in the sharding of region `grad` if that is finer than its own, still owing what no dim takes up."""
        to = self.trace.home(param, "grad")
        if set(to.sharded_axes) <= set(bag.type.sharded_axes):
            return bag
        pending = to.owing(owed for owed in bag.type.owes if owed[0] not in to.sharded_axes)
        return self._to(bag, pending, f"between microbatches gradients of {param.name} are held as {pending}")

    def _together(self, param: Array, bags: Iterable[Array]) -> Array:
        """Every bag brought to region `grad`, then added."""
        to = self.trace.home(param, "grad")
        there = [self._to(bag, to, f"gradients of {param.name} are kept as {to}") for bag in bags]
        return there[0] if len(there) == 1 else self.trace.lin(f"grad.{param.name}", *there)

    def _added(self, param: Array, parts: Iterable[Array]) -> list[Array]:
        """Parts that are sharded and owe alike, added in the gradients' dtype."""
        bags: dict[object, list[Array]] = defaultdict(list)
        for part in parts:
            bags[part.type].append(part)
        name = f"grad.{param.name}"
        return [
            bag[0]
            if len(bag) == 1 and bag[0].name == name
            else self.trace.lin(name, *bag, dtype=self.dtypes.gradients, role="gradient")
            for bag in bags.values()
        ]

    def _to(self, x: Array, to: Sharding, because: str) -> Array:
        return self.trace.reshard(x, to, "; ".join([*self.trace.owed_because(x), because]))
