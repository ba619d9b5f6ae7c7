"""Practice: stated switches in which frameworks differ; each is a policy, none names a collective."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any, Literal

from tpsim.program.keeps import Buffers, at_stage
from tpsim.program.layout import REGIONS, Layout

if TYPE_CHECKING:
    from tpsim.program.copies import Dispatch, Level
    from tpsim.program.keeps import Extra
    from tpsim.program.schedules import Blocking
    from tpsim.program.tokens import Order


FULL = "full"
"""The name under which `Practice.recompute` has all that a layer makes."""

Beside = Literal["none", "beside", "zero3"]
"""Whether calls of a sort run beside compute: never, always, or from ZeRO-3 on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Which sorts of collectives run beside compute; the others hold it up.

    tensor     on activations; split: what a product alone reads, or makes, travels in pieces, too, beside pieces of it
    gradients  reductions of gradients of parameters
    weights    gathers of parameters, or of what the optimizer has made of them; forward: in backward they hold it up,
               as where the next ones are asked for behind what makes gradients (PyTorch FSDP's BACKWARD_POST)
    stages     messages between stages; steady: but in warm-up and flush; auto: as those who run the schedule do
    """

    tensor: Beside | Literal["split"] = "none"
    gradients: Beside = "none"
    weights: Beside | Literal["forward"] = "none"
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
    buffers        what they, and weights that are gathered, lie in beside what memory counts of both anyway
    """

    of: Literal["layer", "step"] = "layer"
    elements: int | None = None
    per_rank: int = 0
    first_chunk: bool = False
    buffers: Buffers = field(default=(), repr=False)  # programs are called as they were: none of these is in them

    def at(self, zero: int, *, beside: bool) -> Bucket:
        """With the buffers of a ZeRO stage; beside: reductions run beside compute."""
        return replace(self, buffers=at_stage(self.buffers, zero, beside=beside))

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
    copies                 what makes a parameter's gradient adds it up as well (fused), or kernels behind it do: add it
                           (added), cast and then add it (cast: DeepSpeed's BF16_Optimizer), lay it into one line and
                           divide it (flat: PyTorch FSDP), copy it into the buffer that is sent, and gathered weights
                           out of theirs (each: FSDP2); see `cost.kernels`
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
    latents                latents are made from the tokens that attention has gathered, and what heads owe of them is
                           carried to that gather (block), or from those that a device has of the stream: they travel
                           in its place, and what heads owe of them is settled at them (stream)
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
    copies: Literal["fused", "added", "cast", "flat", "each"] = "fused"
    attention: Literal["fused", "plain"] = "fused"
    recompute: tuple[str, ...] = ()
    recompute_layers: int | None = None
    keeps: tuple[Extra, ...] = ()
    replay: Literal["whole", "needed"] = "needed"
    padding: Literal["flat", "rows", "none"] = "none"
    context: Literal["gather", "ring"] | None = "gather"
    home: Literal["scatter", "circle"] = "scatter"
    order: Order | None = "contiguous"
    latents: Literal["block", "stream"] = field(default="block", repr=False)  # as for rows
    causal: Literal["skip", "whole"] = "skip"
    clip: Literal["norm", "deferred", "none"] = "none"
    overlap: Overlap = Overlap()
    ahead: Ahead = Ahead()
    bucket: Bucket = Bucket()
    rows: Rows = Rows()

    @property
    def counts_elements(self) -> bool:
        """True if what runs beside compute is issued by numbers of elements."""
        return any(policy.elements is not None for policy in (self.ahead, self.bucket))

    @property
    def layers_ahead(self) -> int:
        """Layers that have their weights before they need them: none if gathers hold compute up, by elements one."""
        return 0 if self.overlap.weights == "none" else self.ahead.layers

    @property
    def switches(self) -> dict[str, Any]:
        """All of them by name, groups and lists as maps: as scenarios state them; of some what is unusual."""
        values = {**asdict(self), "keeps": dict(self.keeps)}
        buffers = {buffer.of: buffer.many for buffer in values["bucket"].pop("buffers")}
        values["bucket"] |= {"buffers": buffers} if buffers else {}
        rows = values["rows"]
        levels = {level.of: list(level.axes) for level in rows.pop("levels")}
        plain = {"dispatch": "flat", "counts": "none", "dtype": None}
        rows |= {"levels": levels} if levels else {}
        values["rows"] = {name: value for name, value in rows.items() if value != plain.get(name)}
        usual = {"rows": Rows(), "home": "scatter", "latents": "block"}
        return {name: value for name, value in values.items() if getattr(self, name) != usual.get(name)}

    def under(self, layout: Layout) -> Practice:
        """These switches as `layout` lets them be: one array holds what is sharded alike, tokens are shared by several.

        Where the queries of a kv head lie on axes (tp beyond the kv heads), fused queries would be repeated over them
        as keys and values must be; they have an array of their own. Where heads are not split nobody owes latents.
        """
        context, order = (self.context, self.order) if layout.roles.get("cp") else (None, None)
        regions = [name for name, region in REGIONS.items() if region.weights]
        apart = any(layout.type_in(("h", "g", "r", "d"), name).axes("r") for name in regions)
        qkv = "fused_kv" if apart and self.qkv == "fused" else self.qkv
        latents = self.latents if layout.roles.get("tp") else "block"
        return replace(self, qkv=qkv, context=context, order=order, latents=latents)
