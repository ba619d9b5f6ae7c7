"""A layout is a table (region, dim) -> mesh axes, plus the few policies that shardings cannot say."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from tpsim.algebra.sharding import Sharding

Axes = tuple[str, ...]
Table = Mapping[str, Mapping[str, Axes]]

STORED_AS: Mapping[str, str] = {"tf32": "f32"}
"""Dtypes of products alone -> what the arrays are that go in and come out: tf32 rounds on the way (NVIDIA A100)."""

DTYPE_BYTES: Mapping[str, int] = {
    "f64": 8,
    "f32": 4,
    "bf16": 2,
    "f16": 2,
    "fp8": 1,
    "int8": 1,
    "int32": 4,
}
"""Bytes per element of each dtype that arrays have."""

WEIGHTS = ("stored", "block", "grad", "state")
"""The regions where a layer's weights lie: at rest, in use, as gradients, in the optimizer."""

ZERO_GRADIENTS, ZERO_PARAMETERS = 2, 3
"""The ZeRO stages from which gradients, then parameters, are sharded too (Rajbhandari et al. 2020)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Practice:
    """Stated switches in which frameworks differ; each is a policy, none names a collective.

    cotangents             owed cotangents of one array are added before they leave a region (once), or each use brings
                           its own back (per_use), as every projection with a redistribution of its own does; those
                           that owe nothing are added in either case
    regather               backward gathers sequence-sharded activations again instead of keeping them
    reshard_after_forward  backward gathers sharded parameters again instead of keeping them (ZeRO-3), also those that
                           no derivative reads: FSDP2 and DeepSpeed gather the group of a module whole
    gradients              parameter gradients are settled once per step, or whole in every microbatch (FSDP2 over
                           replicas, unless told otherwise: pytorch PR 126166); auto: in every microbatch what the
                           sharding of their buffer takes up (ZeRO-2, 3), the rest once per step
    zero1                  from ZeRO-1 on, what gradients owe at the end of a step goes to the optimizer (scatter), or
                           they are completed first (all_reduce)
    cross_entropy          computed on vocabulary shards (parallel) or on gathered logits
    qkv                    one projection for queries, keys and values (fused), one for keys and values (fused_kv), or
                           none for several (separate); see `under`
    coalesce               collectives on parameters and gradients of one layer travel in one call
    """

    cotangents: Literal["once", "per_use"] = "once"
    regather: bool = False
    reshard_after_forward: bool = False
    gradients: Literal["auto", "per_step", "per_microbatch"] = "auto"
    zero1: Literal["scatter", "all_reduce"] = "scatter"
    cross_entropy: Literal["parallel", "gathered"] = "parallel"
    qkv: Literal["separate", "fused", "fused_kv"] = "separate"
    coalesce: bool = False

    def under(self, layout: Layout) -> Practice:
        """These switches as `layout` lets them be: one array holds what is sharded alike.

        Where the queries of a kv head lie on axes (tp beyond the kv heads), fused queries would be repeated over them
        as keys and values must be; they have an array of their own.
        """
        apart = any(layout.type_in(("h", "g", "r", "d"), region).axes("r") for region in WEIGHTS)
        return replace(self, qkv="fused_kv") if apart and self.qkv == "fused" else self


PRACTICES: Mapping[str, Practice] = {
    "ideal": Practice(),
    "megatron": Practice(regather=True, reshard_after_forward=True, qkv="fused", coalesce=True),
    "fsdp2": Practice(reshard_after_forward=True, coalesce=True),
    "xla": Practice(cotangents="per_use"),
}
"""Named bundles of switches; a plan prints the switches, not the name alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dtypes:
    """What each kind of array is stored and sent as; keys of `DTYPE_BYTES`."""

    activations: str = "bf16"
    params: str = "bf16"
    gradients: str = "f32"
    loss: str = "f32"
    optimizer: str = "f32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which axes shard which dim in which region.

    table  region -> dim -> axes, major first; a dim missing in a region inherits region ``*``
    roles  "tp" and "dp" -> the mesh axes that play them, for symbols and placement only
    zero   the ZeRO stage; from 1 on, `Practice.zero1` says who completes gradients
    """

    table: Table
    roles: Mapping[str, Axes] = field(default_factory=dict)
    zero: int = 0
    sequence_parallel: bool = False

    def type_in(self, dims: tuple[str, ...], region: str) -> Sharding:
        """The type of an array with `dims` in `region`; if two dims claim an axis, the first keeps it.

        >>> layout(tp=("X",)).type_in(("b", "s", "f"), "block").on
        ((), (), ('X',))
        """
        local, default = self.table.get(region, {}), self.table.get("*", {})
        used: set[str] = set()
        on: list[Axes] = []
        for dim in dims:
            axes = tuple(axis for axis in local.get(dim, default.get(dim, ())) if axis not in used)
            used.update(axes)
            on.append(axes)
        return Sharding(dims, tuple(on))


def layout(
    *,
    tp: Axes = (),
    dp: Axes = (),
    zero: int = 0,
    sequence_parallel: bool = False,
    kv_split: int | None = None,
    whole: Collection[str] = (),
) -> Layout:
    """The table that tp, dp, ZeRO and sequence parallelism are short for (`Layout.table` may state any other).

    tp        axes of tensor parallelism, major first
    dp        axes of data parallelism
    zero      0 nothing, 1 optimizer states, 2 and gradients, 3 and parameters are sharded over dp
    kv_split  how many leading tp axes shard the kv heads; the rest shard the queries of a kv head (None: all shard
              kv heads)
    whole     dims that ZeRO must not shard because dp does not divide them (h, d or f)
    """
    split = len(tp) if kv_split is None else kv_split
    table: dict[str, dict[str, Axes]] = {"*": {"b": dp, "g": tp[:split], "r": tp[split:], "f": tp, "v": tp}}
    if sequence_parallel:
        table["residual"] = {"s": tp}
    flat = {dim: axes for dim, axes in {"h": dp, "d": dp, "f": (*tp, *dp)}.items() if dim not in whole}
    stages = {"state": zero > 0, "grad": zero >= ZERO_GRADIENTS, "stored": zero >= ZERO_PARAMETERS}
    table |= {region: flat for region, sharded in stages.items() if sharded and dp}
    return Layout(table=table, roles={"tp": tp, "dp": dp}, zero=zero, sequence_parallel=sequence_parallel)
