"""The scenario file as it is written: fields, their types and defaults; nothing is looked up here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from tpsim.program.dtypes import Dtype
from tpsim.program.practice import Ahead, Bucket, Overlap, Rows
from tpsim.program.schedules import DEFAULT, SCHEDULES
from tpsim.program.stages import CutBy
from tpsim.program.tokens import Counted, Order
from tpsim.quantity.spec import MOST, Bytes, Count, Flag, OrShort, Seconds, Share, Strict, alone
from tpsim.question.requirements import RequireFields


def _as_names(value: object) -> object:
    """One name is short for a list of one; a number is kept as a name, to be refused as an axis that no mesh has."""
    number = isinstance(value, int) and not isinstance(value, bool)
    if isinstance(value, str) or number:
        return (str(value),)
    return tuple(value) if isinstance(value, list) else value


NAMES = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
"""One name or a list of names, as editors check it."""

Axes = Annotated[tuple[str, ...], BeforeValidator(_as_names), WithJsonSchema(NAMES)]

Products = Dtype | Literal["tf32", "fp8_128"]
PRODUCTS = "of products; tf32 works on arrays of f32, fp8_128 on arrays of bf16 with blocks of 128 that share a scale"

AxisSize = Annotated[int, Field(strict=True, ge=-1, le=MOST)]


class ContextFields(Strict):
    """How attention comes by the tokens of other devices: over which axes of cp keys and values travel, or heads do."""

    noun: ClassVar[str] = "a way to share a context"

    gather: Axes = ()
    ring: Axes = ()
    heads: Axes = Field(default=(), description="these split heads inside attention, and tokens outside")
    all: Literal["gather", "ring", "heads"] | None = Field(default=None, description="the same over all axes of cp")

    _word = alone("all", str)


class LayoutFields(Strict):
    """Which mesh axes play which role, the ZeRO stage, and whether the residual stream is split over the sequence."""

    tp: Axes = ()
    dp: Axes = ()
    cp: Axes = Field(default=(), description="these split the tokens of a sequence")
    context: Annotated[ContextFields, OrShort("string")] | None = None
    pp: Axes = ()
    zero: Annotated[int, Field(strict=True, ge=0, le=3)] = 0
    zero_over: Axes | None = Field(
        default=None, description="of dp and cp: ZeRO shards over these, and the others have copies; none: over all"
    )
    sequence_parallel: Flag = False
    cache: Literal["heads", "batch", "sequence"] | None = Field(
        default=None, description="what of the cache of inference the axes of tp split; none: its heads"
    )
    ep: Axes = Field(default=(), description="of dp, cp or tp: where experts lie")
    etp: Axes | None = Field(default=None, description="of tp: what splits each expert; none: what ep leaves of tp")
    cut: dict[str, Axes] = Field(
        default_factory=dict, description="dim -> axes that split the stream where it is sent between stages"
    )


class PipelineFields(Strict):
    """How the stages of a pipeline take turns; which mesh axis has them says ``layout.pp``."""

    schedule: Annotated[str, WithJsonSchema({"type": "string", "enum": list(SCHEDULES)})] = DEFAULT
    chunks: Count = Field(1, description="of layers on each stage")
    layers: CutBy | tuple[Annotated[int, Field(strict=True, ge=0, le=MOST)], ...] = Field(
        default="even",
        description="how the stack is cut: evenly; nearly evenly, the embedding and the head counted as a layer each "
        "where layers do not divide; balanced by seconds; or the layers of each chunk, in order of execution",
    )


class PracticeFields(Strict):
    """A named bundle of switches, and single switches changed in it."""

    # `Practice` is a class of its own: a switch left out is as the bundle has it, lists have names until they are
    # looked up, and what is recomputed stands in a section of its own.
    base: Literal["megatron", "fsdp2", "deepspeed", "xla", "ideal"] = "megatron"
    cotangents: Literal["once", "per_use"] | None = None
    regather: Flag | None = None
    reshard_after_forward: Flag | Literal["layers"] | None = None
    gradients: Literal["auto", "per_step", "per_microbatch"] | None = None
    staged: Literal["each", "shared"] | None = Field(
        default=None, description="what stages gather of weights and scatter of gradients: for each microbatch, or once"
    )
    zero1: Literal["scatter", "all_reduce"] | None = None
    cross_entropy: Literal["parallel", "gathered"] | None = None
    qkv: Literal["separate", "fused", "fused_kv"] | None = None
    coalesce: Flag | None = None
    units: Literal["arrays", "root", "ends"] | None = Field(
        default=None, description="what of gathered weights is freed at once: those around layers as one, or as two"
    )
    cast: Literal["products", "shards"] | None = Field(
        default=None, description="weights wider than activations are cast by products, or where they lie"
    )
    copies: Literal["fused", "added", "cast", "flat", "each"] | None = Field(
        default=None, description="kernels of their own behind what makes gradients: to add up, or to lay in order"
    )
    settled: Literal["sent", "parameters"] | None = Field(
        default=None, description="gradients that are reduced are held as they were sent, or as parameters are stored"
    )
    attention: Literal["fused", "plain"] | None = None
    context: Literal["gather", "ring"] | None = None
    home: Literal["scatter", "circle"] | None = Field(
        default=None,
        description="where sums of keys' cotangents begin in a ring: behind their home, or at it, in f32",
    )
    order: Order | None = Field(default=None, description="of the tokens of a sequence over the devices that share it")
    latents: Literal["block", "stream"] | None = Field(
        default=None, description="compressed behind attention's gather of the stream, or where the stream lies"
    )
    handed: Literal["latents", "heads"] | None = Field(
        default=None, description="to latent attention: latents, or keys and values of heads that are made of them"
    )
    causal: Literal["skip", "whole"] | None = None
    padding: Literal["flat", "rows", "none"] | None = Field(
        default=None, description="of parameters that ZeRO shards where dp does not divide them: in a line, or in rows"
    )
    clip: Literal["norm", "deferred", "none"] | None = Field(
        default=None, description="whether gradients are scaled by their norm, and whether stages wait for it"
    )
    keeps: Annotated[dict[str, int], OrShort("string")] | str | None = Field(
        default=None, description="beside what kernels need: the list of a stack, or bytes per element of arrays"
    )
    overlap: Overlap | None = None
    rows: Rows | None = None
    ahead: Ahead | None = None
    bucket: Annotated[Bucket, OrShort("string")] | None = None

    _word = alone("base", str)


class RecomputeFields(Strict):
    """What forward does not keep for backward, which computes it once more."""

    base: Literal["none", "selective", "full"] | None = Field(
        default=None, description="selective: what attention keeps inside; full: all that a layer makes"
    )
    drop: Axes = Field(default=(), description="kernels, for what they keep inside, or arrays, beside those of base")
    layers: Count | None = Field(
        default=None, description="of each chunk the first so many, whole unless base or drop say less"
    )
    replay: Literal["whole", "needed"] | None = Field(
        default=None, description="all of the forward, or what backward needs"
    )

    _word = alone("base", str)


def on_host(value: Any) -> Any:
    """Names alone, or joined by commas, are short for a map that has each of these on the host.

    >>> on_host("state"), on_host("none")
    ({'state': 'host'}, {})
    """
    if isinstance(value, str):
        return {name.strip(): "host" for name in value.split(",") if name.strip() not in ("", "none")}
    return value


Where = Literal["device", "host"]


class OffloadFields(Strict):
    """What lives on the host of its device, and is copied where it is read."""

    noun: ClassVar[str] = "what can be offloaded"

    state: Where = Field(default="device", description="the optimizer's, which is then updated there")

    _short = model_validator(mode="before")(on_host)


class WorkloadFields(Strict):
    """What one step computes and in which number formats."""

    # `Workload` is a class of its own: a batch left out follows from the mesh, and number formats are no part of it.
    noun: ClassVar[str] = "a workload of training"

    kind: Literal["train"] = "train"
    global_batch: Count | None = Field(None, description="sequences; none: one per microbatch and data shard")
    seq: Count = Field(examples=[4096])
    microbatches: Count = 1
    dtype: Products | None = Field(None, description=PRODUCTS)
    param_dtype: Dtype | None = None
    grad_dtype: Dtype | None = None
    loss_dtype: Dtype | None = None
    optimizer_dtype: Dtype | None = Field(None, description="of its moments, and of its masters if finer")
    moment_dtype: Dtype | None = Field(None, description="of its moments, where unlike its masters")
    run_tokens: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(None, description="of all steps")


class CollectivesFields(Strict):
    """What is forced on collectives instead of chosen."""

    # `Choice` is a class of its own: its launch is a harness or seconds, and the usual harness where none is stated.
    noun: ClassVar[str] = "a choice for collectives"

    algorithm: str | None = Field(default=None, description="for those that know it: ring, tree, in-switch")
    protocol: str | None = Field(default=None, description="of the machine's profile: ll, ll128, simple")
    launch: str | None = Field(
        default=None, description="a harness of the machine's profile, or a time: graph, 15 us", examples=["15 us"]
    )


class ValueFields(Strict):
    """A share of one, and what kind of knowledge it is."""

    noun: ClassVar[str] = "a stated value"

    value: Share
    kind: Literal["stated", "measured", "derived", "guess"] = "guess"
    source: str = ""

    _number = alone("value")


class BytesFields(ValueFields):
    """Bytes, and what kind of knowledge they are."""

    value: Bytes


class LaunchFields(ValueFields):
    """Seconds of a launch, and what kind of knowledge they are."""

    value: Seconds


class Overheads(Strict):
    """What memory holds beside the arrays of a step."""

    noun: ClassVar[str] = "an overhead of memory"

    context: Annotated[BytesFields, OrShort("string")] | None = None
    workspace: Annotated[BytesFields, OrShort("string")] | None = None
    fragmentation: Annotated[ValueFields, OrShort("number", "string")] | None = None

    @property
    def figures(self) -> dict[str, float]:
        """Each by its name with its unit; fragmentation is a share of the arrays."""
        units = {"context": "context_bytes", "workspace": "workspace_bytes"}
        return {units.get(name, name): figure.value if figure else 0 for name, figure in self}

    def beside(self, arrays_bytes: Any) -> Any:
        """Bytes beside arrays of so many bytes."""
        context, workspace, fragmentation = self.figures.values()
        return context + workspace + fragmentation * arrays_bytes


class PriceFields(ValueFields):
    """What something costs, in whatever money, and what kind of knowledge that is."""

    value: Annotated[float, Field(gt=0, allow_inf_nan=False)]


class CopiesFields(Strict):
    """How many nodes, or ranks, the experts of a token lie on; none: as chance has it."""

    noun: ClassVar[str] = "a number of copies"

    node: Annotated[float, Field(ge=1, allow_inf_nan=False)] | None = None
    rank: Annotated[float, Field(ge=1, allow_inf_nan=False)] | None = None


class RoutingFields(Strict):
    """How tokens choose experts."""

    noun: ClassVar[str] = "a field of routing"

    load: Literal["balanced", "uniform"] | Annotated[float, Field(ge=1, allow_inf_nan=False)] = Field(
        default="balanced", description="rows of the fullest rank over the mean; uniform: as chance has it"
    )
    drop: Literal["none"] | Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        default="none", description="capacity factor: rows of an expert over the mean; what is beyond is dropped"
    )
    copies: Literal["uniform", "bound"] | CopiesFields = Field(
        default="uniform",
        description="nodes and ranks that a token goes to: as chance has it, at most, or so many on average",
    )


class Assume(Strict):
    """What is assumed about the run."""

    noun: ClassVar[str] = "an assumption"

    matmul_efficiency: Annotated[ValueFields, OrShort("number", "string")] | None = None
    memory: Overheads = Field(default_factory=Overheads.model_construct)
    routing: RoutingFields = RoutingFields.model_construct()
    mfu: Counted = Field(
        default="full", description="what shares of peak count of attention: its whole s by s, or what its mask shows"
    )
    price_per_chip_hour: Annotated[PriceFields, OrShort("number")] | None = None
    kernel_launch: Annotated[LaunchFields, OrShort("string")] | None = Field(
        default=None,
        description="seconds in which a host launches a kernel, one after the other; none: it is never waited for",
    )

    @property
    def kernel_launch_s(self) -> float:
        """Seconds of a launch; 0 if nothing waits for any."""
        return self.kernel_launch.value if self.kernel_launch else 0


DTYPE_FIELDS: Mapping[str, str] = {
    "params": "param_dtype",
    "gradients": "grad_dtype",
    "loss": "loss_dtype",
    "optimizer": "optimizer_dtype",
    "moments": "moment_dtype",
    "experts": "expert_dtype",
    "vocab": "vocab_dtype",
    "cache": "cache_dtype",
}
"""What is stored in a number format of its own -> the field of a workload, of either kind, that says which."""

PATHS_TO_FILES = ("model", "hardware")
"""Fields that name a file, or a map that extends one and changes fields of it."""


class ScenarioFile(Strict):
    """A question: a model on a machine, cut over a mesh in a layout, for a workload."""

    tpsim: Literal["scenario/1"]
    extends: str | None = Field(None, description="a scenario that this one changes; maps merge, lists replace")
    name: str | None = None
    model: str | dict[str, Any] = Field(examples=["llama-3-8b"])
    hardware: str | dict[str, Any] = Field(examples=["dgx-h100"])
    chips: Count | None = None
    mesh: dict[str, AxisSize] = Field(examples=[{"data": 8, "tensor": 8}])
    placement: dict[str, Axes] | None = Field(None, examples=[{"tensor": "nvlink"}])
    layout: LayoutFields | None = Field(None, examples=[{"tp": "tensor", "dp": "data"}])
    shardings: dict[str, dict[str, Axes]] | None = None
    pipeline: PipelineFields | None = None
    practice: Annotated[PracticeFields, OrShort("string")] = Field(
        PracticeFields.model_construct(), examples=["megatron"]
    )
    recompute: Annotated[RecomputeFields, OrShort("string")] = Field(
        RecomputeFields.model_construct(), examples=["full"]
    )
    offload: Annotated[OffloadFields, OrShort("string")] = Field(
        OffloadFields.model_construct(), examples=[{"state": "host"}]
    )
    workload: WorkloadFields = Field(examples=[{"global_batch": 64, "seq": 4096}])
    assume: Assume = Assume.model_construct()
    require: RequireFields = RequireFields.model_construct()
    collectives: CollectivesFields = CollectivesFields.model_construct()
    cost_model: Literal["additive", "book"] = "additive"
    planner: Literal["book", "cheapest"] = "book"
