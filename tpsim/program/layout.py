"""A layout is a table (region, dim) -> mesh axes, plus the few policies that shardings cannot say."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, field, replace
from fractions import Fraction
from math import inf
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tpsim.algebra.sharding import Line, Sharding
from tpsim.frozen import dataclass
from tpsim.program.dims import HELD
from tpsim.program.keeps import KEEPS, Extra

if TYPE_CHECKING:
    from tpsim.program.copies import Dispatch, Level
    from tpsim.program.schedules import Blocking
    from tpsim.program.tokens import Order

LAYERS = "l"
"""The stack of layers as a dim, which no array has: a mesh axis that splits it has the stages of a pipeline."""

TOKENS_READ = "t"
"""The dim of tokens as keys."""

FULL = "full"
"""The name under which `Practice.recompute` has all that a layer makes."""

LINES = ("flat", "rows")
"""Dims of a table that stand for all dims of a parameter laid out in a line, or for those of its rows."""

Axes = tuple[str, ...]
Table = Mapping[str, Mapping[str, Axes]]

STORED_AS: Mapping[str, str] = {"tf32": "f32", "fp8_128": "bf16"}
"""Dtypes of products alone -> what the arrays are that go in and come out.

tf32 rounds on the way (NVIDIA A100); fp8_128 are products of layers with their weights in fp8, a scale for each block,
the others and all arrays in bf16 (DeepSeek-V3 2024, 3.3).
"""

IN_LAYERS = frozenset({"fp8_128"})
"""Those of them in which products with the weights of layers are, and no others."""

Dtype = Literal["f64", "f32", "bf16", "f16", "fp8", "int8"]
"""What can be stated of arrays that are sent."""


class Format(NamedTuple):
    """How numbers are stored: bits of each, and of a scale that a block of so many shares."""

    bits: int
    scale_bits: int = 0
    block: int = 1

    @property
    def bytes_each(self) -> int | Fraction:
        """Of an element, its share of the scale included.

        >>> Format(8, 32, 128).bytes_each, Format(16).bytes_each
        (Fraction(33, 32), 2)
        """
        exact = Fraction(self.bits * self.block + self.scale_bits, 8 * self.block)
        return int(exact) if exact.denominator == 1 else exact


FORMATS: Mapping[str, Format] = {
    "f64": Format(64),
    "f32": Format(32),
    "bf16": Format(16),
    "f16": Format(16),
    "fp8": Format(8),
    "int8": Format(8),
    "int32": Format(32),
    "int4": Format(4),
    "fp8_128": Format(8, 32, 128),
    "mxfp4": Format(4, 8, 32),
}
"""How each dtype of arrays is stored; fp8_128: DeepSeek-V3's blocks of 128 with a scale in f32; mxfp4: OCP MX 1.0."""

DTYPE_BYTES: Mapping[str, Any] = {name: one.bytes_each for name, one in FORMATS.items()}
"""Bytes per element: an int, or a Fraction."""


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
    "latent": Region(carries=True, weights=True, like="block"),
    "routed": Region(carries=True, weights=True, like="residual"),
    "experts": Region(carries=True, weights=True),
    "vocab": Region(),
    "stored": Region(weights=True, zero=3),
    "grad": Region(weights=True, zero=2),
    "state": Region(weights=True, zero=1),
}
"""The regions of a transformer: ``*`` is the default, then the stream, what is sent of it between stages, bodies of
blocks, attention's heads, what inference keeps of keys and values, the latent that heads read, tokens as they are
routed and rows at their experts, logits."""


Beside = Literal["none", "beside", "zero3"]
"""Whether calls of a sort run beside compute: never, always, or from ZeRO-3 on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Which sorts of collectives run beside compute; the others hold it up.

    tensor     on activations; split: what products read or make travels in pieces, too, beside pieces of them
    gradients  reductions of gradients of parameters
    weights    gathers of parameters, or of what the optimizer has made of them
    stages     messages between stages; steady: but in warm-up and flush; auto: as those who run the schedule do
    """

    tensor: Beside | Literal["split"] = "none"
    gradients: Beside = "none"
    weights: Beside = "none"
    stages: Literal["auto", "none", "steady", "beside"] = "auto"

    def blocks_stages(self, *, usual: Blocking) -> Blocking:
        """Whether messages hold up both their stages; usual: what those do who run the schedule."""
        if self.stages in ("auto", "steady"):
            return usual if self.stages == "auto" else "steady"
        return self.stages == "none"

    def at(self, zero: int) -> Overlap:
        """These switches at a ZeRO stage."""
        then: Literal["beside", "none"] = "beside" if zero == ALL_SHARDED else "none"
        late = [name for name, value in asdict(self).items() if value == "zero3"]
        return replace(self, **dict.fromkeys(late, then))


ALL_SHARDED = 3
"""The ZeRO stage that shards parameters too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """How early weights are gathered: as long as those not yet begun to be read are at most so many.

    layers    calls of so many layers
    elements  instead, so many elements
    """

    layers: int = 1
    elements: int | None = None

    @property
    def limit(self) -> int:
        """In layers, or in elements."""
        return self.layers if self.elements is None else self.elements


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """How many gradients are ready before they are reduced beside compute: those of a layer, or of the step.

    elements       instead, so many elements, or `per_rank` of them per data shard if that is more
    first_chunk    True if only the first chunk of a pipeline has buckets, and the others one each
    """

    of: Literal["layer", "step"] = "layer"
    elements: int | None = None
    per_rank: int = 0
    first_chunk: bool = False

    def limit(self, *, shards: int, first: bool) -> float:
        """In layers, or in elements; first: of the first chunk."""
        if self.of == "step" or (self.first_chunk and not first):
            return inf
        return 1 if self.elements is None else max(self.elements, self.per_rank * shards)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """How rows of tokens go to experts and come back.

    gates    the weights of a token's experts travel with its rows and are applied there (experts), or they are applied
             to the rows that come back, which are kept for it (tokens)
    overlap  whether these exchanges run beside compute
    dispatch  a row goes for each expert of a token (flat), or a copy for all on a rank, on a node, or on a node and
             then on a rank of it; rows are made where copies have come, and added up there on the way back
    counts   how many rows come for each expert is sent ahead of them (exchange), as ranks must that do not pad
    levels   the axes that copies go over, as a placement tells nodes apart
    dtype    in which tokens go to experts, and gradients of what these make, and are kept there; None: activations';
             what comes back is in that of activations (DeepSeek-V3 2024, 3.3.3)
    """

    gates: Literal["experts", "tokens"] = "experts"
    overlap: Literal["none", "beside"] = "none"
    dispatch: Dispatch = field(default="flat", repr=False)  # programs without copies are called as they were
    levels: tuple[Level, ...] = field(default=(), repr=False)
    counts: Literal["none", "exchange"] = field(default="none", repr=False)
    dtype: Literal["fp8", "fp8_128"] | None = None


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
    attention              keeps one number per head and token and makes its scores again in backward (fused), or keeps
                           its weights (plain)
    recompute              what is not kept for backward: all that a layer makes (`FULL`), what a kernel keeps inside
                           (attention, norm.mlp), an array by its name (mlp.act)
    recompute_layers       of each chunk the first so many are recomputed, the others keep all; None: all are
    keeps                  what a stack keeps beside what its kernels need
    replay                 of a layer or kernel that is recomputed the forward runs once more, moves included (whole),
                           or what backward needs of it (needed)
    padding                where dp does not divide what ZeRO shards, each parameter lies in a line that is filled up
                           (flat), or the rows that it has first do (rows); none: such layouts are refused
    context                keys and values of other devices are gathered before attention reads them (gather), or block
                           after block beside what it makes of them (ring); None where none has other tokens
    home                   in a ring sums of keys' and values' cotangents begin behind their home, as wide as these are
                           (scatter), or at it and go all the way round in f32 (circle: ring-flash-attention, which adds
                           in f32 and sends in every step)
    order                  which tokens of a sequence a device has: neighbours (contiguous), a piece from the front and
                           one from the end (zigzag), every so manieth (striped); None as for context
    causal                 a fused kernel leaves out the scores that the mask hides (skip), or computes all (whole)
    clip                   gradients are scaled down by the norm of all of them, which every device waits for (norm), or
                           what stages sum of it comes behind the update, beside the next step's warm-up (deferred)
    overlap                which sorts of collectives run beside compute
    ahead                  how early weights are gathered where that runs beside compute
    bucket                 how many gradients are reduced at once where that runs beside compute
    rows                   how rows go to experts and come back
    """

    cotangents: Literal["once", "per_use"] = "once"
    regather: bool = False
    reshard_after_forward: bool = False
    gradients: Literal["auto", "per_step", "per_microbatch"] = "auto"
    zero1: Literal["scatter", "all_reduce"] = "scatter"
    cross_entropy: Literal["parallel", "gathered"] = "parallel"
    qkv: Literal["separate", "fused", "fused_kv"] = "separate"
    coalesce: bool = False
    attention: Literal["fused", "plain"] = "fused"
    recompute: tuple[str, ...] = ()
    recompute_layers: int | None = None
    keeps: tuple[Extra, ...] = ()
    replay: Literal["whole", "needed"] = "needed"
    padding: Literal["flat", "rows", "none"] = "none"
    context: Literal["gather", "ring"] | None = "gather"
    home: Literal["scatter", "circle"] = "scatter"
    order: Order | None = "contiguous"
    causal: Literal["skip", "whole"] = "skip"
    clip: Literal["norm", "deferred", "none"] = "none"
    overlap: Overlap = Overlap()
    ahead: Ahead = Ahead()
    bucket: Bucket = Bucket()
    rows: Rows = Rows()

    @property
    def counts_elements(self) -> bool:
        """True if what runs beside compute is issued by numbers of elements."""
        return any(one.elements is not None for one in (self.ahead, self.bucket))

    @property
    def layers_ahead(self) -> int:
        """Layers that have their weights before they need them: none if gathers hold compute up, by elements one."""
        return 0 if self.overlap.weights == "none" else self.ahead.layers

    @property
    def switches(self) -> dict[str, Any]:
        """All of them by name, groups and lists as maps: as scenarios state them; of rows and home what is unusual."""
        found = {**asdict(self), "keeps": dict(self.keeps)}
        rows = found["rows"]
        levels = {level.of: list(level.axes) for level in rows.pop("levels")}
        plain = {"dispatch": "flat", "counts": "none", "dtype": None}
        rows |= {"levels": levels} if levels else {}
        found["rows"] = {name: value for name, value in rows.items() if value != plain.get(name)}
        usual = {"rows": Rows(), "home": "scatter"}
        return {name: value for name, value in found.items() if getattr(self, name) != usual.get(name)}

    def under(self, layout: Layout) -> Practice:
        """These switches as `layout` lets them be: one array holds what is sharded alike, tokens are shared by several.

        Where the queries of a kv head lie on axes (tp beyond the kv heads), fused queries would be repeated over them
        as keys and values must be; they have an array of their own.
        """
        context, order = (self.context, self.order) if layout.roles.get("cp") else (None, None)
        regions = [name for name, region in REGIONS.items() if region.weights]
        apart = any(layout.type_in(("h", "g", "r", "d"), name).axes("r") for name in regions)
        qkv = "fused_kv" if apart and self.qkv == "fused" else self.qkv
        return replace(self, qkv=qkv, context=context, order=order)


PRACTICES: Mapping[str, Practice] = {
    "ideal": Practice(
        context="ring",
        order="zigzag",
        overlap=Overlap(tensor="beside", gradients="beside", weights="beside", stages="beside"),
        rows=Rows(overlap="beside"),
    ),
    "megatron": Practice(
        regather=True,
        reshard_after_forward=True,
        qkv="fused",
        coalesce=True,
        keeps=KEEPS["megatron"],
        padding="flat",
        clip="norm",
        context="ring",
        order="zigzag",
        replay="whole",
        overlap=Overlap(tensor="beside"),
        bucket=Bucket(elements=40_000_000, per_rank=1_000_000, first_chunk=True),
    ),
    "fsdp2": Practice(
        reshard_after_forward=True,
        coalesce=True,
        padding="rows",
        clip="norm",
        order="zigzag",
        overlap=Overlap(gradients="beside", weights="beside", stages="beside"),
    ),
    "deepspeed": Practice(
        reshard_after_forward=True,
        coalesce=True,
        padding="flat",
        clip="norm",
        replay="whole",
        overlap=Overlap(gradients="zero3", weights="zero3", stages="none"),
        ahead=Ahead(elements=50_000_000),
        bucket=Bucket(elements=500_000_000),
    ),
    "xla": Practice(
        cotangents="per_use",
        causal="whole",
        overlap=Overlap(tensor="split", gradients="beside", weights="beside", stages="beside"),
    ),
}
"""Named bundles of switches; a plan prints the switches, not the name alone."""

SOURCES: Mapping[str, str] = {
    "ideal": "what could be had: everything runs beside compute",
    "megatron": "Megatron-LM: all-reduces of tensor parallelism are asynchronous in backward, overlap_grad_reduce and "
    "overlap_param_gather are off, buckets hold max(40e6, 1e6 per data rank) parameters on the first chunk alone, "
    "messages overlap where chunks are interleaved (distributed_data_parallel_config.py, schedules.py); gradients are "
    "clipped (--clip-grad 1.0)",
    "fsdp2": "PyTorch FSDP2: gathers and scatters on streams of their own, one layer prefetched (PR 128884); gradients "
    "are clipped as torchtitan does (training.max_norm 1.0)",
    "deepspeed": "DeepSpeed zero/config.py: overlap_comm at stage 3 alone, reduce_bucket_size 5e8, "
    "stage3_prefetch_bucket_size 5e7 elements; every step takes the norm of all gradients, clipped or not "
    "(stage_1_and_2.py, stage3.py: scaled_global_norm)",
    "xla": "XLA's latency-hiding scheduler: collectives are asynchronous, and products that read a gather or make what "
    "is scattered are cut to run beside its steps (Wang et al., ASPLOS 2023)",
}
"""Where the overlap of a bundle, its buckets, what it gathers ahead and its norm of gradients are from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dtypes:
    """What each kind of array is stored and sent as; keys of `DTYPE_BYTES`.

    For None a cache is as activations are, and experts are as other parameters.
    """

    activations: str = "bf16"
    params: str = "bf16"
    gradients: str = "f32"
    loss: str = "f32"
    optimizer: str = "f32"
    cache: str | None = field(default=None, repr=False)  # programs of training are called as they were
    experts: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Layout:
    """Which axes shard which dim in which region.

    table  region -> dim -> axes, major first; a dim missing in a region inherits region ``*``, in the cut the stream's
    """

    table: Table

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

    @property
    def sequence_parallel(self) -> bool:
        """True if the residual stream is split over tokens."""
        return "s" in self.table.get("residual", {})

    def home(self, dims: tuple[str, ...], region: str, rows: tuple[str, ...]) -> Sharding:
        """The type of a parameter, or of what belongs to it, in `region`: laid out in a line where the table says so.

        rows  its dims that frameworks have first: a line of rows is made of these

        >>> str(layout(tp=("X",), dp=("Y",), zero=1, line="flat").home(("h", "f"), "state", ("f",)))
        '[flat(h,f)_XY]'
        """
        row = self.table.get(region, {})
        for how in (one for one in LINES if one in row):
            return Line(how, self.type_in(dims, "*"), dims if how == "flat" else rows, row[how]).type
        return self.type_in(dims, region)

    def type_in(self, dims: tuple[str, ...], region: str) -> Sharding:
        """The type of an array with `dims` in `region`; if two dims claim an axis, the first keeps it.

        >>> layout(tp=("X",)).type_in(("b", "s", "f"), "block").on
        ((), (), ('X',))
        """
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
    sequence_parallel: bool = False,
    cut: Mapping[str, Axes] | None = None,
    kv_split: int | None = None,
    ep: Axes = (),
    etp: Axes = (),
    whole: Collection[str] = (),
    latents: Collection[str] = (),
    line: Literal["flat", "rows", "none"] = "none",
) -> Layout:
    """The table that tp, dp, cp, ZeRO and sequence parallelism are short for (`Layout.table` may state any other).

    tp        axes of tensor parallelism, major first
    dp        axes of data parallelism
    cp        axes of context parallelism: they split the tokens of a sequence
    heads     the last of these, which split heads instead inside attention (Ulysses)
    pp        the axis of pipeline stages
    zero      0 nothing, 1 optimizer states, 2 and gradients, 3 and parameters are sharded over dp and cp
    cut       dim -> axes that split the stream where it is sent
    kv_split  how many leading axes of tp and heads shard the kv heads; the rest shard the queries of a kv head (None:
              all shard kv heads)
    ep        axes, of dp, cp and tp, that experts lie on, major first
    etp       axes of tp that split each expert
    whole     dims that ZeRO must not shard because dp and cp do not divide them (h, d or f)
    latents   dims that ZeRO shards besides: those of latents, which weights may have in the place of h
    line      ZeRO shards parameters laid out in a line instead, because dp and cp do not divide their dims
    """
    inside, data = (*tp, *heads), (*dp, *cp)
    kv = len(inside) if kv_split is None else kv_split
    experts = {"n": ep, "y": etp, "z": tp if ep or etp else ()}
    some = {dim: axes for dim, axes in {**experts, "s": cp, LAYERS: pp}.items() if axes}
    rows: dict[str, Mapping[str, Axes]] = {
        "heads": {"s": cp[: -len(heads)], "g": inside[:kv], "r": inside[kv:]} if heads else {},
        "residual": {"s": (*cp, *tp)} if sequence_parallel else {},
        "cut": cut or {},
    }
    sharded = {**dict.fromkeys(("h", *latents, "d"), data), "f": (*tp, *data)}
    split = {dim: axes for dim, axes in sharded.items() if dim not in whole} if line == "none" else {str(line): data}
    zeroed = {name: split for name, region in REGIONS.items() if data and region.zero and zero >= region.zero}
    default = {"b": dp, "g": tp[:kv], "r": tp[kv:], "f": tp, "v": tp, **some}
    return Layout({"*": default, **{name: dict(row) for name, row in rows.items() if row}, **zeroed})
