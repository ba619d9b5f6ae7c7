"""Practice: stated switches in which frameworks differ; each is a policy, none names a collective."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import Field, GetJsonSchemaHandler, model_validator

from tpsim.program.copies import Dispatch, Level
from tpsim.program.keeps import Buffers, BufferSize, Extra
from tpsim.quantity.size import largest
from tpsim.quantity.spec import Count, Flag, OrShort, Value, alone

if TYPE_CHECKING:
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

    from tpsim.program.layout import Layout
    from tpsim.program.schedules import Blocking
    from tpsim.program.tokens import Order


FULL = "full"
"""The name under which `Practice.recompute` has all that a layer makes."""

Beside = Literal["none", "beside", "zero3"]
"""Whether calls of a sort run beside compute: never, always, or from ZeRO-3 on."""

V = TypeVar("V", bound=Value)


class Changes(Value):
    """A group of switches. A file states some: the others, and those that it states as nothing, are as a bundle has."""

    @model_validator(mode="before")
    @classmethod
    def _nothing(cls, stated: Any) -> Any:
        """Nothing is not stated."""
        if not isinstance(stated, Mapping):
            return stated
        return {name: value for name, value in stated.items() if value is not None or name not in cls.model_fields}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Any of them may be nothing, and is unless it is stated."""
        made = handler(schema)
        switches = handler.resolve_ref_schema(made)["properties"]
        for name, switch in switches.items():
            told = {key: switch.pop(key) for key in ("title", "description") if key in switch}
            switch.pop("default")
            either = [branch for branch in switch.get("anyOf", [switch]) if branch != {"type": "null"}]
            switches[name] = {"anyOf": [*either, {"type": "null"}], "default": None, **told}
        return made


def changed(group: V, stated: V | None) -> V:
    """A group of switches as a bundle has it, with those that a file states; buffers are looked up elsewhere.

    A bucket of a layer that it states stands instead of a bundle's numbers, and so do layers ahead.
    """
    given = stated.model_fields_set - {"buffers"} if stated else ()
    if stated and "of" in given and stated.but(buffers=None) == Bucket(of="layer"):
        return type(group)()
    values = {name: value for name, value in stated or () if name in given and value is not None}
    return group.but(**({"elements": None} if "layers" in values else {}) | values)


class Overlap(Changes):
    """Which sorts of collectives run beside compute, where the bundle has it otherwise."""

    noun: ClassVar[str] = "a sort of collectives"

    tensor: Beside | Literal["split"] = Field(
        default="none",
        description="on activations; split: in pieces beside those of the products that read or make them",
    )
    gradients: Beside = Field(default="none", description="reductions of gradients")
    weights: Beside | Literal["forward"] = Field(
        default="none", description="gathers of parameters; forward: those of backward hold compute up"
    )  # as where the next ones are asked for behind what makes gradients (PyTorch FSDP's BACKWARD_POST)
    stages: Literal["auto", "none", "steady", "beside"] = Field(
        default="auto", description="auto: as the schedule is run; steady: beside compute but in warm-up and flush"
    )

    def blocks_stages(self, *, usual: Blocking) -> Blocking:
        """Whether messages hold up both their stages; usual: what those do who run the schedule."""
        if self.stages in ("auto", "steady"):
            return usual if self.stages == "auto" else "steady"
        return self.stages == "none"

    def at(self, zero: int) -> Overlap:
        """These switches at a ZeRO stage."""
        then = "beside" if zero == ALL_SHARDED else "none"
        return self.but(**{name: then for name, value in self if value == "zero3"})


ALL_SHARDED = 3
"""The ZeRO stage that shards parameters too."""


class Ahead(Changes):
    """How much of the weights is gathered before it is read."""

    noun: ClassVar[str] = "a distance"

    layers: Annotated[int, Field(strict=True, ge=0)] = 1  # calls of so many layers
    elements: Count | None = None  # instead, so many elements
    since: Literal["auto", "message", "step"] = Field(
        default="auto",
        description="where a stage gathers new weights from: its first message, or the step's start, whenever that "
        "comes; auto: as the schedule is run",
    )

    @property
    def limit(self) -> int:
        """In layers, or in elements."""
        return self.layers if self.elements is None else self.elements

    def is_early(self, *, usual: bool) -> bool:
        """True if stages gather before their first message has come; usual: if those do who run the schedule."""
        return usual if self.since == "auto" else self.since == "step"


class Bucket(Value):
    """How many gradients are reduced, and new weights gathered, in one call, and how many wait for it beside compute.

    Layers share a call only where arrays do (`Practice.coalesce`).
    """

    noun: ClassVar[str] = "a bucket"

    of: Literal["layer", "step"] = "layer"
    elements: Count | None = None  # instead, so many elements, or `per_rank` of them per data shard if that is more
    per_rank: Annotated[int, Field(strict=True, ge=0)] = 0
    first_chunk: Flag = False  # only what a pipeline's first chunk reduces beside compute is cut, all else is one each
    buffers: Annotated[dict[BufferSize, Count], OrShort("string")] | str | None = Field(
        default=None,
        description="beside gradients and weights: the list of a framework, or how many of each size",
        repr=False,  # as stated: `Practice.buffers` has what they come to
    )

    _word = alone("of", str)

    def limit(self, *, shards: Any, first: bool) -> Any:
        """In layers, or in elements; first: of what the first chunk reduces beside compute."""
        if self.of == "step" or (self.first_chunk and not first):
            return inf
        return 1 if self.elements is None else largest(self.elements, self.per_rank * shards)


class Rows(Changes):
    """How rows go to experts and come back, where the bundle has it otherwise."""

    noun: ClassVar[str] = "a switch of rows"

    gates: Literal["experts", "tokens"] = Field(
        default="experts", description="where the weights of experts are applied"
    )  # they travel with the rows of a token, or are applied to those that come back, which are kept for it
    overlap: Literal["none", "beside"] = Field(default="none", description="whether exchanges run beside compute")
    dispatch: Dispatch = Field(
        default="flat",
        description="a row for each expert (flat), or a copy of a token for each rank, node, or node and then rank",
        repr=False,  # programs without copies are called as they were
    )  # rows are made where copies have come, and added up there on the way back
    counts: Literal["none", "exchange"] = Field(
        default="none",
        description="whether ranks tell each other how many rows come before they do",
        repr=False,
    )  # as ranks must that do not pad
    dtype: Literal["fp8", "fp8_128"] | None = Field(
        default=None, description="of what goes to experts; none: of activations"
    )  # of gradients of what they make, too, and kept so; what comes back is as activations (DeepSeek-V3 2024, 3.3.3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Practice:
    """Stated switches in which frameworks differ; each is a policy, none names a collective.

    cotangents             owed cotangents of one array are added before they leave a region (once), or each use brings
                           its own back (per_use), as every projection with a redistribution of its own does; those
                           that owe nothing are added in either case
    regather               backward gathers sequence-sharded activations again instead of keeping them
    reshard_after_forward  backward gathers sharded parameters again instead of keeping them (ZeRO-3), also those that
                           no derivative reads: FSDP2 and DeepSpeed gather the group of a module whole; layers: but
                           those of both ends of the stack
    gradients              parameter gradients are settled once per step, or whole in every microbatch (FSDP2 over
                           replicas, unless told otherwise: pytorch PR 126166); auto: in every microbatch what the
                           sharding of their buffer takes up (ZeRO-2, 3), the rest once per step
    staged                 where stages take turns ZeRO-2 and 3 gather weights, and scatter gradients, for each
                           microbatch, or once: microbatches share what is gathered and added up (shared), as of ZeRO-1,
                           where the optimizer's shards are the parameters (`Dtypes.shards`) if weights are cast there
    zero1                  from ZeRO-1 on, what gradients owe at the end of a step goes to the optimizer (scatter), or
                           they are completed first (all_reduce)
    cross_entropy          computed on vocabulary shards (parallel) or on gathered logits
    qkv                    one projection for queries, keys and values (fused), one for keys and values (fused_kv), or
                           none for several (separate); see `under`
    coalesce               collectives on parameters and gradients of one layer travel in one call
    units                  gathered weights are freed one by one (arrays), or at once those of a layer, and those around
                           the layers: all of these as one unit (root: FSDP2's), or the embedding apart from final norm
                           and head, in calls of its own and, where layers are, gathered again (ends: torchtitan)
    cast                   weights that are stored wider than activations are brought to their format by products that
                           read them (products), or where they lie (shards): that is gathered, or kept for backward
    copies                 what makes a parameter's gradient adds it up as well (fused), or kernels behind it do: add it
                           (added), cast and then add it (cast: DeepSpeed's BF16_Optimizer), lay it into one line and
                           divide it (flat: PyTorch FSDP), copy it into the buffer that is sent, and gathered weights
                           out of theirs (each: FSDP2); see `cost.kernels`
    settled                gradients that are complete are held as they were sent (sent), or as their parameters are
                           stored (parameters: FSDP2)
    attention              keeps one number per head and token and makes its scores again in backward (fused), or keeps
                           its weights (plain)
    recompute              what is not kept for backward: all that a layer makes (`FULL`), what a kernel keeps inside
                           (attention, norm.mlp), an array by its name (mlp.act)
    recompute_layers       of each chunk the first so many are recomputed, the others keep all; None: all are
    keeps                  what a stack keeps beside what its kernels need
    offload                what lives on the host of its device instead: the optimizer's states (state), which are then
                           updated there
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
    handed                 latent attention is handed latents and one rotated key of a token (latents), or keys and
                           values of every head, each with a rotated key of its own laid beside it (heads): devices
                           that share a sequence hand each other the same, and make keys and values of all tokens
                           from latents, or those of heads where their tokens are
    causal                 a fused kernel leaves out the scores that the mask hides (skip), or computes all (whole)
    clip                   gradients are scaled down by the norm of all of them, which every device waits for (norm), or
                           what stages sum of it comes behind the update, beside the next step's warm-up (deferred)
    overlap                which sorts of collectives run beside compute
    ahead                  how early weights are gathered where that runs beside compute
    bucket                 how many layers' gradients, or new weights, travel in one call
    rows                   how rows go to experts and come back
    levels                 the axes that copies of tokens go over, as a placement tells nodes apart: no switch
    buffers                what buckets, and weights that are gathered, lie in beside what memory counts of both anyway
    """

    cotangents: Literal["once", "per_use"] = "once"
    regather: bool = False
    reshard_after_forward: bool | Literal["layers"] = False
    gradients: Literal["auto", "per_step", "per_microbatch"] = "auto"
    staged: Literal["each", "shared"] = field(default="each", repr=False)  # as for rows
    zero1: Literal["scatter", "all_reduce"] = "scatter"
    cross_entropy: Literal["parallel", "gathered"] = "parallel"
    qkv: Literal["separate", "fused", "fused_kv"] = "separate"
    coalesce: bool = False
    units: Literal["arrays", "root", "ends"] = field(default="arrays", repr=False)  # as for rows
    cast: Literal["products", "shards"] = field(default="products", repr=False)  # as for rows
    copies: Literal["fused", "added", "cast", "flat", "each"] = "fused"
    settled: Literal["sent", "parameters"] = field(default="sent", repr=False)  # as for rows
    attention: Literal["fused", "plain"] = "fused"
    recompute: tuple[str, ...] = ()
    recompute_layers: int | None = None
    offload: tuple[str, ...] = field(default=(), repr=False)  # as for rows
    keeps: tuple[Extra, ...] = ()
    replay: Literal["whole", "needed"] = "needed"
    padding: Literal["flat", "rows", "none"] = "none"
    context: Literal["gather", "ring"] | None = "gather"
    home: Literal["scatter", "circle"] = "scatter"
    order: Order | None = "contiguous"
    latents: Literal["block", "stream"] = field(default="block", repr=False)  # as for rows
    handed: Literal["latents", "heads"] = field(default="latents", repr=False)  # as for rows
    causal: Literal["skip", "whole"] = "skip"
    clip: Literal["norm", "deferred", "none"] = "none"
    overlap: Overlap = field(default_factory=Overlap)
    ahead: Ahead = field(default_factory=Ahead)
    bucket: Bucket = field(default_factory=Bucket)
    rows: Rows = field(default_factory=Rows)
    levels: tuple[Level, ...] = field(default=(), repr=False)
    buffers: Buffers = field(default=(), repr=False)  # programs are called as they were: none of these is in them

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
        values: dict[str, Any] = {name: getattr(self, name) for name in SWITCHES}
        values |= {name: dict(group) for name, group in values.items() if isinstance(group, Value)}
        values["keeps"] = dict(self.keeps)
        values["ahead"] = {name: value for name, value in values["ahead"].items() if value != "auto"}
        buffers = {"buffers": {buffer.of: buffer.many for buffer in self.buffers}} if self.buffers else {}
        values["bucket"] = {name: value for name, value in values["bucket"].items() if name != "buffers"} | buffers
        plain = {"dispatch": "flat", "counts": "none", "dtype": None}
        rows = {name: value for name, value in values["rows"].items() if value != plain.get(name)}
        levels = {"levels": {level.of: list(level.axes) for level in self.levels}} if self.levels else {}
        values["rows"] = rows | levels
        return {name: value for name, value in values.items() if getattr(self, name) != USUAL.get(name)}

    def under(self, layout: Layout) -> Practice:
        """These switches as `layout` lets them be: one array holds what is sharded alike, tokens are shared by several.

        Where the queries of a kv head lie on axes (tp beyond the kv heads), fused queries would be repeated over them
        as keys and values must be; they have an array of their own. Where heads are not split nobody owes latents.
        """
        shared = bool(layout.roles.get("cp"))
        context, order = (self.context, self.order) if shared else (None, None)
        qkv = "fused_kv" if layout.copies_heads and self.qkv == "fused" else self.qkv
        latents = self.latents if layout.roles.get("tp") else "block"
        staged = self.staged if layout.stages else "each"
        return replace(self, qkv=qkv, context=context, order=order, latents=latents, staged=staged)


SWITCHES = tuple(field.name for field in fields(Practice) if field.name not in ("levels", "buffers"))
"""The names of all switches."""

USUAL: Mapping[str, Any] = {
    **{field.name: field.default for field in fields(Practice) if not field.repr},
    "rows": Rows(),
    "home": "scatter",
}
"""What is not stated of switches that are newer than the names of programs and files."""
