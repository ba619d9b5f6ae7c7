"""A layout is a table (region, dim) -> mesh axes; what shardings cannot say is `practice`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tpsim.algebra.moves import Axes
from tpsim.algebra.sharding import FlatDim, Sharding
from tpsim.program.dims import EXPERTS, HELD

LAYERS = "l"
"""The stack of layers as a dim, which no array has: a mesh axis that splits it has the stages of a pipeline."""

TOKENS_READ = "t"
"""The dim of tokens as keys."""

LINES = ("flat", "rows")
"""Dims of a table that stand for all dims of a parameter laid out in a line, or for those of its rows."""

Table = Mapping[str, Mapping[str, Axes]]

CacheLayout = Literal["heads", "batch", "sequence"]
"""What tp splits of what inference keeps of keys and values; by batch and by sequence, each has all heads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A part of the program whose arrays one row of the table shards.

    carries  its arrays may get a cotangent that still owes; at the edge of others it is settled
    weights  a layer's weights lie there: at rest, in use, as gradients, in the optimizer
    zero     the ZeRO stage from which it is sharded over dp (Rajbhandari et al. 2020)
    like     the region that it inherits from, which inherits ``*``
    """

    carries: bool = False
    weights: bool = False
    zero: int | None = None
    like: str = "*"


REGIONS: Mapping[str, Region] = {
    "*": Region(),
    "residual": Region(),
    "cut": Region(like="residual"),
    "block": Region(carries=True, weights=True),
    "heads": Region(carries=True),
    "cache": Region(like="heads"),
    "compressed": Region(weights=True, like="residual"),
    "latent": Region(carries=True, weights=True, like="block"),
    "routed": Region(carries=True, weights=True, like="residual"),
    "experts": Region(carries=True, weights=True),
    "vocab": Region(),
    "stored": Region(weights=True, zero=3),
    "grad": Region(weights=True, zero=2),
    "state": Region(weights=True, zero=1),
}
"""The regions of a transformer: ``*`` is the default, then the stream, what is sent of it between stages, bodies of
blocks, attention's heads, what inference keeps of keys and values, latents made where the stream lies, the latent that
heads read, tokens as they are routed and rows at their experts, logits."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which axes shard which dim in which region.

    table  region -> dim -> axes, major first; a dim missing in a region inherits region ``*``, in the cut the stream's
    """

    table: Table
    _types: dict[tuple[tuple[str, ...], str], Sharding] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def roles(self) -> Mapping[str, Axes]:
        """The axes of tensor parallelism (the heads), data (the batch), context (its tokens), experts, stages."""
        default = self.table.get("*", {})
        others = {"cp": "s", "ep": "n", "etp": "y"}
        some = {role: axes for role, dim in others.items() if (axes := default.get(dim, ()))}
        stages = {"pp": self.stages} if self.stages else {}
        return {"tp": default.get("f", default.get("g", ())), "dp": default.get("b", ()), **some, **stages}

    @property
    def data(self) -> Axes:
        """The axes that split the tokens of a step: gradients of parameters owe a sum over them."""
        return (*self.roles["dp"], *self.roles.get("cp", ()))

    @property
    def stages(self) -> Axes:
        """The axis whose devices have a stage of the stack of layers each; none without a pipeline."""
        return self.table.get("*", {}).get(LAYERS, ())

    @property
    def zero(self) -> int:
        """The ZeRO stage: the highest whose region is sharded on its own; from 1 on `Practice.zero1` counts."""
        return max((region.zero or 0 for name, region in REGIONS.items() if name in self.table), default=0)

    def at_zero(self, stage: int) -> Layout:
        """The same at an earlier ZeRO stage: fewer regions are sharded on their own.

        >>> sorted(layout(dp=("X",), zero=3).at_zero(1).table)
        ['*', 'state']
        """
        return Layout({name: row for name, row in self.table.items() if (REGIONS[name].zero or 0) <= stage})

    @property
    def of_weights(self) -> Layout:
        """The same, less what splits tokens in a region of its own: no weight has any."""
        tokens = {"b", "s", TOKENS_READ}
        rows = {
            name: {dim: row[dim] for dim in row if name == "*" or dim not in tokens} for name, row in self.table.items()
        }
        return Layout({name: row for name, row in rows.items() if row})

    @property
    def sequence_parallel(self) -> bool:
        """True if the residual stream is split over tokens."""
        return "s" in self.table.get("residual", {})

    @property
    def copies_heads(self) -> bool:
        """True if axes split the queries of a kv head: its keys and values are the same on all of these."""
        regions = [name for name, region in REGIONS.items() if region.weights]
        return any(self.type_in(("h", "g", "r", "d"), name).axes("r") for name in regions)

    @property
    def homes(self) -> tuple[Axes, Axes]:
        """The axes that experts lie on, and those that split each of them."""
        home, width = self.type_in((EXPERTS, "y"), "experts").on
        return home, width

    @property
    def at_experts(self) -> tuple[Axes, Axes]:
        """Those of experts and of rows where these are at their experts: what tokens are split over and experts not."""
        home, width = self.homes
        return home, tuple(axis for axis in self.routed if axis not in {*home, *width})

    @property
    def routed(self) -> Axes:
        """The axes that tokens are split over where they are routed."""
        return self.type_in(("b", "s"), "routed").sharded_axes

    def home(self, dims: tuple[str, ...], region: str, rows: tuple[str, ...]) -> Sharding:
        """The type of a parameter, or of what belongs to it, in `region`: laid out in a line where the table says so.

        rows  its dims that frameworks have first: a line of rows is made of these

        >>> str(layout(tp=("X",), dp=("Y",), zero=1, line="flat").home(("h", "f"), "state", ("f",)))
        '[flat(h,f)_XY]'
        """
        row = self.table.get(region, {})
        for name in (line for line in LINES if line in row):
            own = self.type_in(dims, "*")
            over = tuple(axis for axis in row[name] if axis not in own.sharded_axes)
            return FlatDim(name, own, dims if name == "flat" else rows, over).type if over else own
        return self.type_in(dims, region)

    def type_in(self, dims: tuple[str, ...], region: str) -> Sharding:
        """The type of an array with `dims` in `region`; if two dims claim an axis, the first keeps it.

        >>> layout(tp=("X",)).type_in(("b", "s", "f"), "block").on
        ((), (), ('X',))
        """
        if (dims, region) not in self._types:
            self._types[dims, region] = self._type_in(dims, region)
        return self._types[dims, region]

    def _type_in(self, dims: tuple[str, ...], region: str) -> Sharding:
        like = REGIONS[region].like if region in REGIONS else "*"
        local, default = ({**self.table.get(like, {}), **self.table.get(region, {})}, self.table.get("*", {}))
        used: set[str] = set()
        on: list[Axes] = []
        for dim in dims:
            split = TOKENS_READ if dim == HELD else dim
            axes = tuple(axis for axis in local.get(split, default.get(split, ())) if axis not in used)
            used.update(axes)
            on.append(axes)
        return Sharding(dims, tuple(on))


def layout(
    *,
    tp: Axes = (),
    dp: Axes = (),
    cp: Axes = (),
    heads: Axes = (),
    pp: Axes = (),
    zero: int = 0,
    sharding: Axes | None = None,
    sequence_parallel: bool = False,
    cut: Mapping[str, Axes] | None = None,
    kv_split: int | None = None,
    experts: bool = False,
    ep: Axes = (),
    etp: Axes = (),
    whole: Collection[str] = (),
    besides: Collection[str] = (),
    parts: Mapping[str, Axes] | None = None,
    latents: bool = False,
    states: str = "",
    line: Literal["flat", "rows", "none"] = "none",
) -> Layout:
    """The table that tp, dp, cp, ZeRO and sequence parallelism are short for (`Layout.table` may state any other).

    tp        axes of tensor parallelism, major first
    dp        axes of data parallelism
    cp        axes of context parallelism: they split the tokens of a sequence
    heads     the last of these, which split heads instead inside attention (Ulysses)
    pp        the axis of pipeline stages
    zero      0 nothing, 1 optimizer states, 2 and gradients, 3 and parameters are sharded over dp and cp
    sharding  those of them that ZeRO takes (None: all)
    cut       dim -> axes that split the stream where it is sent
    kv_split  how many leading axes of tp and heads shard the kv heads; the rest shard the queries of a kv head (None:
              all shard kv heads)
    experts   True of a model with experts, which `ep` and `etp` say, too: tp splits what all tokens share beside them
    ep        axes, of dp, cp and tp, that experts lie on, major first; before them those that have all tokens: rows are
              born on them for the experts there alone
    etp       axes of tp that split each expert
    whole     dims that ZeRO does not shard: because dp and cp do not divide them, or because every weight that has
              them has one before them that takes all axes (d, f or y)
    besides   dims that ZeRO shards too: those of latents, which weights may have in the place of h, and y, which biases
              of experts have
    parts     dim -> axes of dp and cp that ZeRO shards of weights on latents, where not all of them divide a rank
    latents   keys and values of heads are made of latents: those of a device's own heads, where `heads` splits them
    states    the dim of linear attention's heads that tp splits, of a model that has any
    line      ZeRO shards parameters laid out in a line instead, because dp and cp do not divide their dims
    """
    inside, data = (*tp, *heads), (*dp, *cp) if sharding is None else sharding
    kv = len(inside) if kv_split is None else kv_split
    home = tuple(sorted(ep, key=lambda axis: axis not in tp)) if not sequence_parallel else ep
    mixed = {"n": home, "y": etp, "z": tp if experts or ep or etp else (), **({states: tp} if states else {})}
    some = {dim: axes for dim, axes in {**mixed, "s": cp, LAYERS: pp}.items() if axes}
    own = {"g": inside[:kv], "r": inside[kv:]} if heads else {}
    rows: dict[str, Mapping[str, Axes]] = {
        "heads": {"s": cp[: -len(heads)], **own} if heads else {},
        "latent": own if latents else {},
        "residual": {"s": (*cp, *tp)} if sequence_parallel else {},
        "cut": cut or {},
    }
    sharded = {**dict.fromkeys(("h", *besides, "d"), data), "f": (*tp, *data)}
    if "y" in besides:
        sharded["y"] = (*etp, *data)
    sharded |= {dim: (*(tp[:kv] if dim == "g" else ()), *axes) for dim, axes in (parts or {}).items()}
    split = {dim: axes for dim, axes in sharded.items() if dim not in whole} if line == "none" else {str(line): data}
    zeroed = {name: split for name, region in REGIONS.items() if data and region.zero and zero >= region.zero}
    default = {"b": dp, "g": tp[:kv], "r": tp[kv:], "f": tp, "v": tp, **some}
    return Layout({"*": default, **{name: dict(row) for name, row in rows.items() if row}, **zeroed})


def cache_row(by: CacheLayout, *, tp: Axes, dp: Axes) -> Mapping[str, Axes]:
    """The row of region `cache` that a word is short for; by heads it is as attention's heads are.

    >>> cache_row("sequence", tp=("X",), dp=("D",))
    {'b': ('D',), 't': ('X',), 'g': (), 'r': ()}
    """
    rows: Mapping[CacheLayout, Mapping[str, Axes]] = {
        "heads": {},
        "batch": {"b": (*dp, *tp), "g": (), "r": ()},
        "sequence": {"b": dp, "t": tp, "g": (), "r": ()},
    }
    return rows[by]
