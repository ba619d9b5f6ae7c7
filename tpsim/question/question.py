"""The question: a scenario after reading, every name resolved and every choice made; what a plan is computed from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tpsim.machine.additive import Choice
from tpsim.program.schedules import DEFAULT, pipeline_schedule
from tpsim.program.stages import linear

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpsim.algebra.mesh import Mesh
    from tpsim.fabric.placement import Placement
    from tpsim.machine.profile import Machine
    from tpsim.program.layout import Dtypes, Layout, Practice
    from tpsim.program.model import Model
    from tpsim.program.model_file import ModelRead
    from tpsim.program.schedules import PipelineSchedule
    from tpsim.program.stages import Stages
    from tpsim.quantity.errors import Place
    from tpsim.quantity.spec import Document
    from tpsim.report.answer import Assumption

CostModel = Literal["additive", "book"]
Planner = Literal["book", "cheapest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What one step computes.

    global_batch  sequences per step over all data shards
    seq           tokens per sequence
    microbatches  parts that the batch is computed in, one after the other
    """

    kind: Literal["train"] = "train"
    global_batch: int
    seq: int
    microbatches: int = 1

    @property
    def sequences(self) -> int:
        """Sequences per microbatch over all data shards: b."""
        return self.global_batch // self.microbatches

    @property
    def tokens(self) -> int:
        """Tokens per step."""
        return self.global_batch * self.seq


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheads:
    """What a chip's memory holds beside the arrays of a step.

    context_bytes    of the driver, its libraries and their communicators
    workspace_bytes  that kernels work in
    fragmentation    what an allocator holds in vain, as a share of the arrays
    """

    context_bytes: float = 0
    workspace_bytes: float = 0
    fragmentation: float = 0

    def beside(self, arrays_bytes: Any) -> Any:
        """Bytes beside arrays of so many bytes."""
        return self.context_bytes + self.workspace_bytes + self.fragmentation * arrays_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Assume:
    """What is assumed about the run: the share of peak that products reach, and what hides behind compute.

    matmul_efficiency  share of peak FLOP/s, None for the machine's own figure
    memory             what stands beside arrays
    kernel_launch_s    seconds in which a host launches a kernel; 0 where it launches graphs, or is not in the way
    """

    matmul_efficiency: float | None = None
    memory: Overheads = Overheads()
    kernel_launch_s: float = 0


@dataclass(frozen=True, slots=True)
class Limit:
    """A demand on the answer, e.g. ``step: < 30 s``: what, the relation, and the bound in SI units."""

    name: str
    relation: Literal["<", "<=", ">", ">="]
    bound: float
    text: str

    def holds(self, value: float) -> bool:
        """True if `value` (SI) satisfies the demand."""
        return {
            "<": value < self.bound,
            "<=": value <= self.bound,
            ">": value > self.bound,
            ">=": value >= self.bound,
        }[self.relation]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A scenario, resolved.

    mesh          the mesh after splits, major first; `axis_parents` maps a split axis to the one it came from
    require       demands as written, by what they demand; `limits` are the same, read
    inputs        (path, sha256) of every file read
    resolved      what the files, flags and defaults came to, as plain data for JSON
    stated        what files and flags said, and nothing that followed; files as the current folder names them
    guesses       guessed assumptions and guessed constants of the machine
    left_open     the fields that the scenario could have stated in place of a guess
    base_model    the model's file as read, before the scenario changed fields of it
    products      the dtype whose peak matrix products have: that of activations, or one that works on such arrays
    remarks       what nobody may overlook of its machine: what it changes, what is left out, what is hard to believe
    base_model    the model's file as read, before the scenario changed fields of it; base_machine likewise
    force         what collectives are to take instead of the least time
    forced_at     where each of its parts that is forced stands
    asked         how a command line names this scenario again, its overrides included; "" if stdin asked
    document      the scenario as it was read, flags and overrides included: what a change of it starts from
    schedule      the orders of the ranks of a pipeline; None without one
    split         the layers of each of its chunks, in order of execution
    """

    name: str
    model: Model
    base_model: ModelRead
    base_machine: Machine
    machine: Machine
    mesh: Mesh
    axis_parents: Mapping[str, str]
    placement: Placement
    layout: Layout
    practice: Practice
    dtypes: Dtypes
    products: str
    workload: Workload
    assume: Assume
    require: Mapping[str, str]
    limits: tuple[Limit, ...]
    cost_model: CostModel
    planner: Planner
    inputs: list[tuple[str, str]]
    assumptions: list[Assumption]
    resolved: dict[str, Any]
    guesses: int
    left_open: tuple[str, ...]
    document: Document = field(repr=False, compare=False)
    schedule: PipelineSchedule | None = None
    split: tuple[int, ...] = ()
    remarks: tuple[str, ...] = ()
    stated: Mapping[str, Any] = field(default_factory=dict, compare=False)
    asked: str = ""
    force: Choice = field(default_factory=Choice)
    forced_at: Mapping[str, Place] = field(default_factory=dict, compare=False)

    @property
    def stages(self) -> Stages:
        """Which rank of the pipeline has which layers; one has all of them without a pipeline."""
        return linear(self.split or (self.model.layers,), self.schedule.ranks if self.schedule else 1)

    @property
    def orders(self) -> PipelineSchedule:
        """The orders of the ranks; without a pipeline that of one rank with one chunk, microbatch after microbatch."""
        return self.schedule or pipeline_schedule(DEFAULT, 1, 1, self.workload.microbatches)

    @property
    def blocking(self) -> bool:
        """True if messages hold up both their stages: as practice states, else as those do who run the schedule."""
        stated = self.practice.overlap.stages
        return self.orders.blocking if stated == "auto" else stated == "none"

    @property
    def matmul_efficiency(self) -> float | None:
        """Share of peak that products reach: as assumed, else all of it by the book, else None for the machine's."""
        stated = self.assume.matmul_efficiency
        return 1.0 if stated is None and self.cost_model == "book" else stated

    @property
    def idle_axes(self) -> tuple[str, ...]:
        """Mesh axes of several devices that shard nothing: their devices repeat the same work."""
        used = {axis for dims in self.layout.table.values() for axes in dims.values() for axis in axes}
        return tuple(axis for axis, size in self.mesh.axes.items() if size > 1 and axis not in used)
