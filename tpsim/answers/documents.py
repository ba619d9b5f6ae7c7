"""The JSON documents of the outputs, written down as types: their JSON Schemas are made from these.

Numbers are SI, their unit in the key. Fields may be added without a new version, so unknown ones are no error to a
reader; a test holds real outputs against exactly these.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tpsim.algebra.moves import MoveKind
from tpsim.program.op import Phase
from tpsim.question.question import CostModel, Planner
from tpsim.question.scenario_file import Dtype

Count = Annotated[int, Field(ge=0)]
Bytes = Annotated[float, Field(ge=0, description="whole if exact")]
Seconds = Annotated[float, Field(ge=0)]
Value = bool | float | str | None


class Part(BaseModel):
    """A map in a document."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class Input(Part):
    """A file that the answer was computed from."""

    path: str
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Assumption(Part):
    """Something that the answer takes for granted."""

    text: str
    kind: str


class Output(Part):
    """What every output says."""

    schema_: Annotated[str, Field(alias="schema")]
    tpsim: str
    """The version of tpsim."""
    inputs: list[Input]
    resolved: dict[str, Any]
    """What files, flags and defaults came to."""
    result: Any
    assumptions: Any
    not_modelled: list[str]


class CollectiveOfStep(Part):
    """Equal calls: bytes and time_s of one; payload, busy and exposed of all `count` calls of a step and device."""

    phase: Phase
    layer: int | str | None
    """An index, a range such as 0-95, or null outside the layers."""
    block: str
    op: Literal["activation", "gradient", "param", "state"]
    array: str
    collective: MoveKind
    axis: str
    """Mesh axes joined by commas, major first."""
    ranks: Count
    dtype: Dtype
    count: Count
    logical_bytes: Bytes
    wire_bytes_per_device: Bytes
    payload_bytes: Bytes
    time_s: Seconds
    latency_s: Seconds
    bandwidth_s: Seconds
    busy_s: Seconds
    exposed_s: Seconds
    algorithm: str
    protocol: str
    formula: str
    """The wire bytes of one call, in symbols."""
    because: str
    stage: str | None = None
    """With stages: the ranks of the pipeline that have it, as 0-6 or 0,7; null for all."""


class Total(Part):
    """A sum over collectives."""

    payload_bytes: Bytes
    wire_bytes_per_device: Bytes
    carried_bytes_per_device: Bytes
    link_serial_bytes: Bytes
    time_s: Seconds
    latency_s: Seconds
    bandwidth_s: Seconds
    exposed_s: Seconds
    formula: str


class PerLayer(Part):
    """One layer and one microbatch."""

    forward: Total
    backward: Total
    total: Total


class Totals(Part):
    """Sums over the step, each per key."""

    by_op: dict[str, Total]
    by_block: dict[str, Total]
    by_layer: dict[str, Total]
    by_phase: dict[str, Total]
    by_axis: dict[str, Total]
    by_collective: dict[str, Total]
    by_step: dict[str, Total]


class Memory(Part):
    """What a chip holds."""

    parameters_bytes: Bytes
    gradients_bytes: Bytes
    optimizer_bytes: Bytes
    static_bytes: Bytes
    """All that is held from step to step."""
    logits_bytes: Bytes
    """Of one microbatch, beside what is held."""
    capacity_bytes: Bytes
    fits: bool | None
    """False if what is held from step to step is more than the chip has; null if not: activations are not counted."""
    verdict: str


class Lost(Part):
    """What the calls of one kind over the same axes cost the step."""

    collective: str
    """Such as all_gather over tensor."""
    exposed_s: Seconds
    share: float
    """Of the step."""


class Step(Part):
    """The step as a whole."""

    time_s: Seconds
    compute_s: Seconds
    communication_s: Seconds
    exposed_s: Seconds
    bubble_s: Seconds = 0
    """With stages: what the rank that sets the pace waits for others."""
    bound_by: str
    lost: list[Lost]
    """Exposed communication, most first."""
    tokens_per_s: float
    mfu: float
    """Useful FLOPs per second over the peak of all chips."""
    flops_per_device: float
    useful_flops: float
    breakeven_tokens_per_chip: float | None
    breakeven: str
    cheapest_saves_s: Seconds | None
    """What the planner `cheapest` would save; null where that is not known."""


class Requirement(Part):
    """One limit of the scenario, and what came out."""

    name: str
    required: str
    value: float
    """SI; of memory what is held from step to step, without activations."""
    ok: bool


class Change(Part):
    """One field changed: the best of a few that were priced."""

    set: str
    """As --set takes it."""
    time_s: Seconds
    relative: float
    """The change of the step as a share of it."""
    static_bytes: Bytes


class Pipeline(Part):
    """How stages take turns, and what the step hangs on."""

    schedule: str
    ranks: Count
    chunks: Count
    """Of layers on each rank."""
    microbatches: Count
    sends: Literal["blocking", "beside compute"]
    pacing_rank: Count
    """The rank that waits least: sums of the plan are its own."""
    bubble_s: Seconds
    bubble_share: float
    """Of the step."""
    formula: str
    """How often each pass, and each send, stands on the critical path."""
    parts_s: dict[str, Seconds]
    """Seconds of one of each."""


class Stage(Part):
    """Ranks of the pipeline that are alike: compute, exposed communication and bubble are the step together."""

    ranks: str
    layers: Count
    compute_s: Seconds
    exposed_s: Seconds
    bubble_s: Seconds
    in_flight: float
    """Microbatches of the rank between forward and backward, at most."""
    held_bytes: Bytes
    """Parameters, gradients and optimizer of a chip."""


class PlanAnswer(Part):
    """What `plan` answers."""

    verdict: str
    """Lines, each after its label: time, memory, change."""
    collectives: list[CollectiveOfStep]
    per_layer: PerLayer
    totals: Totals
    memory: Memory
    step: Step
    pipeline: Pipeline | None = None
    stages: list[Stage] | None = None
    """Of a pipeline, in the order of its ranks."""
    change: Change | None
    """Null if none is better."""
    require: list[Requirement]


class PlanOutput(Output):
    """What `tpsim plan` says."""

    schema_: Annotated[Literal["tpsim.plan/2"], Field(alias="schema")]
    result: PlanAnswer
    assumptions: list[Assumption]


class ArrayOfMesh(Part):
    """What each device holds of an array; sizes are null without dims, and the formula with them."""

    array: str
    shards: Count
    replication: Count
    local_shape: list[int] | None
    local_bytes: Bytes | None
    total_bytes: Bytes | None
    local_formula: str | None


class ShardStep(Part):
    """One move or product; costs are null without dims, seconds also without a machine."""

    op: MoveKind | Literal["matmul"]
    axes: list[str]
    input: str
    output: str
    logical_bytes: Bytes | None
    wire_bytes_per_device: Bytes | None
    flops_per_device: float | None
    latency_s: Seconds | None
    bandwidth_s: Seconds | None
    time_s: Seconds | None
    because: str


class StepFormulas(Part):
    """A step's costs in symbols."""

    op: MoveKind | Literal["matmul"]
    wire_bytes_per_device: str
    flops_per_device: str


class Way(Part):
    """One way to the result."""

    planner: Planner | Literal["other"]
    planners: list[Planner]
    """All who choose it."""
    steps: list[ShardStep]
    total_time_s: Seconds | None
    wire_bytes_per_device: Bytes | None
    flops_per_device: float | None


class LeftOut(Part):
    """Ways that were not compared with the others: a move that they make or what they cost, and why."""

    way: str
    because: str


class ShardAnswer(Part):
    """What `shard` answers: the chosen planner's way, and every way, cheapest first."""

    verdict: str
    planner: Planner
    cases: list[int]
    """The cases of a product, 1 to 4."""
    arrays: list[ArrayOfMesh]
    steps: list[ShardStep]
    total_time_s: Seconds | None
    wire_bytes_per_device: Bytes | None
    flops_per_device: float | None
    formulas: list[StepFormulas]
    alternatives: list[Way]
    left_out: list[LeftOut]


class ShardOutput(Output):
    """What `tpsim shard` says."""

    schema_: Annotated[Literal["tpsim.shard/1"], Field(alias="schema")]
    result: ShardAnswer
    assumptions: list[Assumption]


class CollectiveOfSize(Part):
    """One size."""

    collective: MoveKind
    ranks: Count
    logical_bytes: Bytes
    buffer_bytes: Bytes
    wire_bytes_per_device: Bytes
    carried_bytes_per_device: Bytes
    link_total_bytes: Bytes
    link_serial_bytes: Bytes
    steps: float
    time_s: Seconds
    launch_s: Seconds
    latency_s: Seconds
    bandwidth_s: Seconds
    ramp_s: Seconds
    """What bytes cost beyond the links' bandwidth: the own share's way through memory, and chunks."""
    curve_s: float
    """What a curve that was measured on this route adds; negative where the constants are too slow."""
    algbw_bytes_per_s: float | None
    """Null if the collective costs nothing."""
    busbw_bytes_per_s: float | None
    algorithm: str
    protocol: str
    measured_s: Seconds | None = None
    """With --measured: what the log says; the next two come with it."""
    measured_busbw_bytes_per_s: float | None = None
    predicted_over_measured: float | None = None


class WayFrom(Part):
    """The way that is taken from a size on."""

    from_bytes: int
    algorithm: str
    protocol: str


class WholeCurve(Part):
    """A collective over all sizes."""

    floor_s: Seconds
    """What the smallest array takes."""
    peak_busbw_bytes_per_s: float | None
    """What ever larger arrays approach; null, like the sizes, if the collective costs nothing."""
    half_peak_bytes: int | None
    p95_peak_bytes: int | None
    ways: list[WayFrom]
    """Ascending; each one serves up to the next."""


class CollectiveAnswer(Part):
    """What `collective` answers: the curve over all sizes, and a row per size asked for, ascending."""

    verdict: str
    curve: WholeCurve
    rows: list[CollectiveOfSize]


class CollectiveResolved(Part):
    """What was asked for."""

    collective: MoveKind
    hardware: str
    ranks: Count
    level: str | None
    placement: list[str]
    sizes_bytes: list[int] = Field(description="of --sizes: FROM:TO doubles, FROM:TO:x4 or :+1MB; each ends at TO")
    dtype: Dtype
    buffer: bool
    cost_model: CostModel
    measured: str | None = None
    """With --measured: the log, whose launch, algorithm and protocol the predictions take."""
    launch: str | float | None = None
    algorithm: str | None = None
    protocol: str | None = None
    """Where they are not chosen."""


class CollectiveOutput(Output):
    """What `tpsim collective` says."""

    schema_: Annotated[Literal["tpsim.collective/1"], Field(alias="schema")]
    resolved: CollectiveResolved  # type: ignore[assignment]  # a map whose fields are known
    result: CollectiveAnswer
    assumptions: list[Assumption]


CheckName = Literal["values", "gradients", "update", "blocks", "finite_differences", "collectives", "links", "formulas"]


class CheckOfRun(Part):
    """One statement that was put to the test."""

    name: str
    """The scenario's, or the expression."""
    check: CheckName
    ok: bool
    detail: str
    """What was seen; if it does not hold, the first mismatches."""


class RunOfDevices(Part):
    """What was run: the sizes, and what was compared."""

    name: str
    full_size: str
    """What the run stands for, in words; empty if nothing was made smaller."""
    mesh: dict[str, int]
    dims: dict[str, int]
    placement: list[str]
    layers: Count
    """0 for an expression, microbatches too."""
    microbatches: Count
    devices: Count
    arrays: Count
    """Arrays compared with those of one device."""
    collectives: Count
    """Collective calls that the devices made."""
    largest_relative_difference: float | None
    """Of any array; null if an array is no number or of another shape."""
    ok: bool


class VerifyAnswer(Part):
    """What `verify` answers."""

    verdict: str
    ok: bool
    checks: list[CheckOfRun]
    runs: list[RunOfDevices]


class VerifyOutput(Output):
    """What `tpsim verify` says."""

    schema_: Annotated[Literal["tpsim.verify/1"], Field(alias="schema")]
    result: VerifyAnswer
    assumptions: list[Assumption]


class CauseOfDrift(Part):
    """A fact that moved, and what it touches."""

    kind: Literal["formula", "constant", "model", "scenario", "switch", "tolerance"]
    name: str
    old: Value
    new: Value
    change: str | None
    """In words, with its sign; `new` from nothing, `gone` to nothing."""
    note: str | None
    scenarios: list[str]
    collectives: list[str]
    """Kinds over axes, e.g. `all_gather over tensor`."""
    step_relative: float | None
    """The largest relative change of a step that it touches."""


class ChangeOfNumber(Part):
    """A number that moved, or a fact that moved none."""

    scenario: str | None
    collective: str | None
    """Phase, place, kind, axes and array; null for a number of the whole scenario."""
    quantity: str
    old: Value
    new: Value
    relative: float | None
    """(new - old)/old; null from zero and for texts."""
    change: str | None
    causes: str | None
    """The facts that explain it, joined by semicolons."""


class DriftAnswer(Part):
    """What `check` and `diff` answer."""

    verdict: str
    moved: bool
    sign: str
    notices: list[str]
    causes: list[CauseOfDrift]
    new_scenarios: list[str]
    gone_scenarios: list[str]
    changes: list[ChangeOfNumber]


class CheckResolved(Part):
    """What was held against which lock."""

    lock: str
    paths: list[str]
    tolerance: Annotated[float, Field(ge=0)]
    update: bool


class CheckOutput(Output):
    """What `tpsim check` says."""

    schema_: Annotated[Literal["tpsim.check/1"], Field(alias="schema")]
    resolved: CheckResolved  # type: ignore[assignment]  # a map whose fields are known
    result: DriftAnswer
    assumptions: list[Assumption]


class DiffResolved(Part):
    """What was compared."""

    base: str
    new: str
    min_change: Annotated[float, Field(ge=0)]


class DiffOutput(Output):
    """What `tpsim diff` says."""

    schema_: Annotated[Literal["tpsim.diff/1"], Field(alias="schema")]
    resolved: DiffResolved  # type: ignore[assignment]  # a map whose fields are known
    result: DriftAnswer
    assumptions: list[Assumption]
