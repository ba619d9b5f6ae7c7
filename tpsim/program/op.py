"""The IR: typed arrays and the few ops that a transformer, its backward and its update are made of.

A `Program` is a flat list of ops in execution order. It may hold one traced layer and one traced microbatch that
stand for many: an op says in which loops it stands, and `Program.times` how often it runs per step.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from tpsim.algebra.sharding import Sharding, split
from tpsim.program.kinds import ALIKE
from tpsim.program.layout import LAYERS
from tpsim.quantity.size import Size, over, product

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from tpsim.algebra.moves import Move
    from tpsim.program.tokens import Order
    from tpsim.program.trace import Trace

Act = Literal["F", "B", "W", "U"]
"""Forward; backward to the cotangent of the stream; backward to gradients of parameters; update."""

Phase = Literal["forward", "backward", "update"]
PHASES: Mapping[Act, Phase] = {"F": "forward", "B": "backward", "W": "backward", "U": "update"}

Place = Literal["embedding", "layer", "cut", "side", "head", "step"]
"""The part of the stack that an op belongs to; cut: between two stages; side: beside it; step: none of them."""

Again = Literal["", "gather", "kernel", "replay"]
"""Why an op runs a second time: it does not; what it gathered was dropped, it is inside a kernel, it is recomputed."""

Role = Literal["param", "activation", "index", "gradient", "state", "cache"]


Home = Literal["device", "host"]
"""Where an array lives, and what is made of it is computed: on the device, or on the host that it belongs to."""


class Filled(NamedTuple):
    """What fills the rows of an array: one row for every expert that a token chose, in the order of the tokens.

    chosen  the choice, an index array over tokens and experts
    slots   the axes that split the rows where they are born: each part holds the rows of its own devices' tokens
    """

    chosen: Array
    slots: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """A value of the program: a name, a type, and what it is for.

    region  where its sharding is decided (residual, block, heads, vocab, stored, grad, state)
    dtype   a key of the workload's dtypes, e.g. ``bf16``; bytes on the wire are counted in it
    active  True if it depends differentiably on a parameter
    filled  of an array over ragged rows, what fills them
    home    where it lives
    """

    name: str
    type: Sharding
    region: str
    dtype: str
    role: Role = "activation"
    active: bool = False
    filled: Filled | None = None
    home: Home = "device"

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the dims."""
        return self.type.dims

    def __str__(self) -> str:
        """Name and type in the notation."""
        return f"{self.name}{self.type}"


@dataclass(frozen=True, slots=True)
class Where:
    """Where in a step an op stands.

    act     what it is a part of; a trace writes all of backward as B, `program.acts` tells W from it
    place   the part of the stack that it belongs to
    block   what it is for: embedding, attention, mlp, norm, residual, head, loss
    loops   the loops in which it stands, each with the index of the traced run: (("layers", 0), ("microbatches", 1))
    chunks  the pieces of the stack that run it, by traced index: one, or all those that share a parameter
    kernel  the fused kernel that it is a part of, its kind first: ``norm.attention``; "" for none
    again   why it is emitted a second time, because backward needs what was not kept; "" the first time
    kind    of the layer in which it stands: each is traced for itself
    apart   of inference True from caches to what attention makes: that prompts and replies of one step do each alone
    """

    act: Act
    block: str
    place: Place = "step"
    loops: tuple[tuple[str, int], ...] = ()
    kernel: str = ""
    again: Again = ""
    chunks: tuple[int, ...] = (0,)
    kind: str = ALIKE
    apart: bool = False
    layer: int | None = field(init=False, repr=False, compare=False)
    microbatch: int | None = field(init=False, repr=False, compare=False)
    _others: dict[Hashable, Where] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """The runs of two loops, which are asked for often."""
        object.__setattr__(self, "layer", self.index(ALIKE))
        object.__setattr__(self, "microbatch", self.index("microbatches"))

    @property
    def repeats(self) -> tuple[str, ...]:
        """The loops in which it stands; that of layers by their kind."""
        return tuple([self.kind if loop == ALIKE else loop for loop, _ in self.loops])

    @property
    def phase(self) -> Phase:
        """forward, backward or update."""
        return PHASES[self.act]

    def index(self, loop: str) -> int | None:
        """The traced run of a loop in which the op stands; None if it stands outside."""
        return dict(self.loops).get(loop)

    def but(self, **changed: Any) -> Where:
        """The same place with other fields: one object, however often it is asked for."""
        key = tuple(changed.items())
        if key not in self._others:
            self._others[key] = replace(self, **changed)
        return self._others[key]

    def inside(self, loop: str, index: int) -> Where:
        """The same place in a run of a loop."""
        return self.but(loops=(*self.outside(loop).loops, (loop, index)))

    def outside(self, loop: str) -> Where:
        """The same place, once for all runs of a loop."""
        if self.index(loop) is None:
            return self
        return self.but(loops=tuple([entry for entry in self.loops if entry[0] != loop]))


@dataclass(frozen=True, slots=True)
class Scale:
    """A coefficient that may depend on sizes: ``value * prod(dim**power)``, e.g. 1/sqrt(d) or 1/(b*s)."""

    value: float = 1.0
    powers: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One step of the program: inputs, one output, where it stands and why it exists."""

    inputs: tuple[Array, ...]
    output: Array
    where: Where
    because: str = ""

    in_chunks: ClassVar[bool] = False
    """True of what one op stands for that kernels work out in chunks of tokens."""

    @property
    def inside(self) -> Sequence[Array]:
        """What is there while it runs, and is no array of the program: what its kernels hand each other."""
        return ()

    def flops(self, dims: Mapping[str, Size], axes: Mapping[str, Size]) -> Any:  # noqa: ARG002 - of those that have any
        """FLOPs of one device, one run; 0 of all but products."""
        return 0

    @property
    def read_back(self) -> Sequence[Array]:
        """What backward reads of it beside cotangents, of ops that have a pullback of their own."""
        return ()

    def pulled(self, trace: Trace, name: str, place: int, dy: Array, read: Sequence[Array]) -> Array:
        """The cotangent of input `place`, of such an op; read: what backward reads, as it finds it."""
        raise NotImplementedError(type(self).__name__, trace, name, place, dy, read)


@dataclass(frozen=True, slots=True, eq=False)
class Leaf(Op):
    """An array that comes from outside: a parameter, an optimizer state, the token ids (role index).

    rows  of a parameter, those of its dims that frameworks have first
    """

    rows: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Index(Op):
    """An array computed from GLOBAL indices (and integer inputs), born in the wanted sharding: causal mask, one-hot.

    fn    name of the function in `reference.functions`; it gets one index array per dim of the output
    rate  of dropout: the share of ones that are none
    """

    fn: str = ""
    rate: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Einsum(Op):
    """A product of one or two operands by dim names; dims absent from the output are contracted (summed).

    contracted  dims of the operands that the output does not have
    is_matmul   True if real numbers are multiplied and summed: what a matrix unit runs
    """

    contracted: tuple[str, ...] = field(init=False, repr=False)
    is_matmul: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        out = self.output.dims
        contracted = dict.fromkeys([dim for array in self.inputs for dim in array.dims if dim not in out])
        real = len(self.inputs) > 1 and "index" not in [array.role for array in self.inputs]
        object.__setattr__(self, "contracted", tuple(contracted))
        object.__setattr__(self, "is_matmul", bool(real and contracted))

    def flops(self, dims: Mapping[str, Size], axes: Mapping[str, Size]) -> Any:
        """FLOPs of one device, one run: 2 x the product of all local dims for a matmul, else 0 (not modelled)."""
        if not self.is_matmul:
            return 0
        shards: dict[str, tuple[str, ...]] = {}
        for array in self.inputs:
            shards.update(zip(array.dims, array.type.on, strict=True))
        used = (axis for on in shards.values() for axis in on)
        return 2 * split(product(dims[dim] for dim in shards), used, axes)


@dataclass(frozen=True, slots=True, eq=False)
class Map(Op):
    """A pointwise function of complete operands.

    fn       name of the function in `reference.functions`
    partial  None for the function itself; i for its pullback: first input is the cotangent (it may owe), the rest are
             the function's operands, and the result is cotangent * d fn / d operand i
    """

    fn: str = ""
    partial: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Lin(Op):
    """A weighted sum of arrays; owed sums pass through if every operand owes alike."""

    scales: tuple[Scale, ...] = ()


def is_matrix_product(op: Op) -> bool:
    """True for a product whose operands each have a dim that the other has not: rows and columns.

    A sum of elementwise products (a gain's gradient, softmax backward) is pointwise work.
    """
    if not isinstance(op, Einsum) or not op.is_matmul:
        return False
    left, right = (set(array.dims) for array in op.inputs)
    return bool(left - right and right - left)


def is_cast(op: Op) -> bool:
    """True for weights that are brought to another format where they lie."""
    return isinstance(op, Lin) and op.output.role == "param"


@dataclass(frozen=True, slots=True, eq=False)
class Max(Op):
    """The maximum over `dim`; a sharded dim leaves a max owed. It has no transpose (stopped gradient)."""

    dim: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Rename(Op):
    """The same numbers with dims renamed, e.g. s -> t for keys and values."""


@dataclass(frozen=True, slots=True, eq=False)
class Bcast(Op):
    """An array repeated along new dims, which take the sharding of a pattern: the transpose of a sum."""


@dataclass(frozen=True, slots=True, eq=False)
class Reshard(Op):
    """A change of type: none, one or several moves. Also the edge of a region, where it may move nothing."""

    moves: tuple[Move, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Dispatch(Op):
    """Of what tokens have, a row for every expert that each has chosen: ``[b, s, h]`` to ``[n, c, h]``.

    The second input is the choice. Of an array over experts (gates) a row gets the element of its own.
    """


@dataclass(frozen=True, slots=True, eq=False)
class Combine(Op):
    """Rows added up where their tokens are, ``[n, c, h]`` to ``[b, s, h]``: the transpose of a `Dispatch`."""


@dataclass(frozen=True, slots=True, eq=False)
class Join(Op):
    """One array from parts that several stages have: together they owe its sum."""


@dataclass(frozen=True, slots=True, eq=False)
class Append(Op):
    """A cache with the rows of new tokens written into it, in place: only these move through memory."""


@dataclass(frozen=True, slots=True)
class Program:
    """A traced training step, or one of inference, which has a forward alone.

    ops      in execution order
    axes     mesh axes, major first
    traced   loop, or kind of layers -> how many of its runs are traced: each stands for as many real ones
    table    region -> dim -> axes, as `layout` stated it
    results  named arrays to compare: "loss", "grad.<param>", "new.<param>"; of inference "sampled", "cache.<layer>.K"
    order    in which devices have the tokens of a sequence
    ahead    layers whose weights are gathered before they are needed
    units    of gathered weights, which are freed at once, as `Practice.units` has them
    plain    True if products of attention are kernels of their own, as `Practice.attention` has it
    borrowed  names of parameters that stand for another program already
    """

    ops: tuple[Op, ...]
    axes: tuple[str, ...]
    traced: Mapping[str, int]
    table: Mapping[str, Mapping[str, tuple[str, ...]]]
    results: Mapping[str, Array] = field(default_factory=dict)
    order: Order = "contiguous"
    ahead: int = 1
    units: Literal["arrays", "root", "ends"] = "arrays"
    plain: bool = False
    borrowed: tuple[str, ...] = ()

    @property
    def sharing(self) -> tuple[str, ...]:
        """The mesh axes whose devices have some tokens of each sequence."""
        return self.table.get("*", {}).get("s", ())

    @property
    def pipe(self) -> tuple[str, ...]:
        """The mesh axis whose devices have a stage of the stack each; none without a pipeline."""
        return self.table.get("*", {}).get(LAYERS, ())

    def times(self, where: Where, runs: Mapping[str, Size]) -> Any:
        """How often an op at `where` runs per step and device, given how often each loop does."""
        return product([over(runs[loop], self.traced[loop]) for loop in where.repeats])

    def is_alone(self, op: Op) -> bool:
        """True for a product that plain attention runs as a kernel of its own."""
        return self.plain and op.where.kernel.partition(".")[0] == "attention" and is_matrix_product(op)

    def without(self, axes: frozenset[str]) -> Program:
        """The same where some axes are of one device: what moves over these alone is there already.

        So is what was cast to be moved so, and is cast again in backward to be moved again.
        """
        if not axes:
            return self
        there, ops = dict[Array, Array](), list[Op]()
        stays = [isinstance(op, Reshard) and bool(op.moves) and _moves_over(op, axes) for op in self.ops]
        cast = {op.inputs[0] for op, stay in zip(self.ops, stays, strict=True) if stay}
        casts: dict[Hashable, Array] = {}
        for op, stay in zip(self.ops, stays, strict=True):
            known = (op.inputs[0], op.where.microbatch, op.where.chunks) if is_cast(op) and op.output in cast else None
            if stay:
                there[op.output] = there.get(op.inputs[0], op.inputs[0])
            elif known in casts:
                there[op.output] = casts[known]
            else:
                if known:
                    casts[known] = op.output
                same = there.keys().isdisjoint(op.inputs)
                ops.append(op if same else replace(op, inputs=tuple([there.get(x, x) for x in op.inputs])))
        results = {name: there.get(x, x) for name, x in self.results.items()}
        left = {dim: on for dim, on in self.table.get("*", {}).items() if dim != LAYERS or not axes.issuperset(on)}
        return replace(self, ops=tuple(ops), results=results, table={**self.table, "*": left})


def _moves_over(op: Reshard, axes: frozenset[str]) -> bool:
    """True if all of its moves are over some axes alone."""
    return all(axes.issuperset(move.axes) for move in op.moves)
