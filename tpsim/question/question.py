"""The question: a scenario after reading, every name resolved and every choice made; what a plan is computed from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from math import lcm
from typing import TYPE_CHECKING, Any, Literal

from tpsim.program.dims import HELD, STEPS
from tpsim.program.schedules import DEFAULT, Blocking, PipelineSchedule, forward_only, pipeline_schedule
from tpsim.program.stages import Stages, linear
from tpsim.program.tokens import held_keys
from tpsim.quantity.size import over
from tpsim.question.inputs import inputs
from tpsim.report.record import Of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tpsim.algebra.mesh import Mesh
    from tpsim.algebra.planner import Planner
    from tpsim.fabric.placement import Placement
    from tpsim.machine.additive import Choice
    from tpsim.machine.constant import Constant
    from tpsim.machine.parts import Machine
    from tpsim.machine.timing import CostModel
    from tpsim.program.dtypes import Dtypes
    from tpsim.program.layout import Layout
    from tpsim.program.model import Model
    from tpsim.program.model_file import ModelRead
    from tpsim.program.practice import Practice
    from tpsim.program.serving import Serving
    from tpsim.question.requirements import Limit
    from tpsim.question.scenario_file import Assume, PriceFields
    from tpsim.question.stated import Stated
    from tpsim.report.answer import Assumption


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What one step computes.

    global_batch  sequences per step over all data shards
    seq           tokens per sequence
    microbatches  parts that the batch is computed in, one after the other
    """

    kind: Literal["train", "prefill", "decode", "serve"] = "train"
    global_batch: int
    seq: int
    microbatches: int = 1

    @property
    def sequences(self) -> int:
        """Sequences per microbatch over all data shards: b. A mean of several steps has no whole number of them."""
        return self.global_batch // self.microbatches if self.microbatches > 1 else self.global_batch

    @property
    def tokens(self) -> int:
        """Tokens per step."""
        return self.global_batch * self.seq

    def dims(self, model: Model) -> Mapping[str, Any]:
        """Sizes of the dims of the model's program."""
        return model.dims(sequences=self.sequences, seq=self.seq)

    @property
    def at_peak(self) -> Workload:
        """The same where a chip holds most."""
        return self


@dataclass(frozen=True, slots=True)
class Speculation:
    """Tokens of every sequence that a draft is ahead of its model, which verifies them in one step.

    acceptance  the probability that one is accepted where those before it are
    """

    tokens: int
    acceptance: float

    @property
    def expected(self) -> float:
        """Tokens of a sequence that a step gives: drafts up to the first that is rejected, and one of the model's own.

        With as much for every token it is (1 - a^(d + 1))/(1 - a) (Leviathan et al. 2023, equation 1).
        """
        return self.expected_at(self.acceptance)

    def expected_at(self, acceptance: float) -> float:
        """The same at another acceptance."""
        return sum(acceptance**drafts for drafts in range(self.tokens + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference(Workload):
    """What one step of inference computes: seq counts the tokens of a sequence that are new in it.

    attended  tokens of a sequence that attention reads, new ones included; of a whole reply their mean
    steps     of decoding that it is the mean of, each with a token more than the one before
    longest   tokens of a sequence that its cache has room for
    serving   what steers the structure of the step
    fills     True while it is not known how many sequences memory has room for
    block     tokens of a block of its cache, the last of which is filled by chance
    speculation  of a step that verifies drafts: of what is new in it all but one token
    budget    tokens of a step of a data shard at most, where it reads pieces of prompts beside decoding; else None
    """

    attended: Any
    longest: int
    serving: Serving
    steps: int = 1
    fills: bool = False
    block: int = 1
    speculation: Speculation | None = None
    budget: int | None = None

    @property
    def drafted(self) -> int:
        """Tokens of a sequence that a step verifies."""
        return self.speculation.tokens if self.speculation else 0

    @property
    def tokens(self) -> int:
        """Those of which seconds are told: all that are new, or of steps that verify drafts one of every sequence."""
        return self.global_batch * (1 if self.speculation else self.seq)

    def dims(self, model: Model) -> Mapping[str, Any]:
        """As of training, but that keys are more than queries, and a window's cache holds no more than it reads."""
        dims = model.dims(sequences=self.sequences, seq=self.seq)
        return self.read({**dims, "p": model.max_positions or self.longest}, self.attended)

    def read(self, dims: Mapping[str, Any], attended: Any) -> dict[str, Any]:
        """`dims` where attention reads so many tokens."""
        dims = {**dims, "t": attended, STEPS: self.steps}
        if "w" in dims:
            dims[HELD] = held_keys(dims, cached=self.serving.cached)
        return dims

    @property
    def plain(self) -> Inference:
        """A step of the same replies without drafts."""
        attended, longest = (tokens - self.drafted for tokens in (self.attended, self.longest))
        return replace(self, seq=1, attended=attended, longest=longest, speculation=None) if self.drafted else self

    @property
    def at_peak(self) -> Inference:
        """The same where the cache is full: as many tokens as there is room for, and what last blocks lack of these."""
        return replace(self, attended=self.longest + over(self.block - 1, 2), steps=1)

    @property
    def even(self) -> Inference:
        """The same as far as a cache is split evenly: drafts and blocks lie where there is room."""
        return replace(self.plain, block=1)


@dataclass(frozen=True, slots=True)
class Told:
    """What a question tells of itself.

    assumptions  what is taken for granted
    guesses      guessed assumptions and guessed constants of the machine
    left_open    the fields that the scenario could have stated in place of a guess
    remarks      what nobody may overlook: what is changed of the machine, left out of it, hard to believe in it
    resolved     what files, flags and defaults came to, as plain data for JSON
    """

    assumptions: tuple[Assumption, ...]
    guesses: int
    left_open: tuple[str, ...]
    remarks: tuple[str, ...]
    resolved: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Question:
    """A scenario, resolved.

    stated        the scenario as it was read: what follows from it alone is asked of it
    base_model    the model's file as read, before the scenario changed fields of it; base_machine likewise
    mesh          the mesh after splits, major first; `axis_parents` maps a split axis to the one it came from
    cut_notes     what had to be assumed to cut the model over it
    limits        the demands on the answer, read
    force         what collectives are to take instead of the least time
    schedule      the orders of the ranks of a pipeline; None without one
    split         the layers of each of its chunks, in order of execution
    tell          makes what it tells of itself, when that is asked for, of the question as it is then
    draft         of a model that drafts tokens ahead, as if it decoded by itself
    prompts       of prompts and replies the question of servers that read prompts alone; None: these do both
    """

    stated: Stated = field(repr=False, compare=False)
    model: Model
    base_model: ModelRead
    base_machine: Machine
    machine: Machine
    mesh: Mesh
    axis_parents: Mapping[str, str]
    cut_notes: tuple[Assumption, ...]
    placement: Placement
    layout: Layout
    practice: Practice
    dtypes: Dtypes
    workload: Workload
    limits: tuple[Limit, ...]
    planner: Planner
    force: Choice
    schedule: PipelineSchedule | None
    split: tuple[int, ...]
    tell: Callable[[Question], Told] = field(repr=False, compare=False)
    draft: Question | None = None
    prompts: Question | None = None

    assumptions = Of[tuple["Assumption", ...]]("told.assumptions", "see `Told`")
    guesses = Of[int]("told.guesses", "see `Told`")
    left_open = Of[tuple[str, ...]]("told.left_open", "see `Told`")
    remarks = Of[tuple[str, ...]]("told.remarks", "see `Told`")
    resolved = Of["Mapping[str, Any]"]("told.resolved", "see `Told`")

    @cached_property
    def told(self) -> Told:
        """What it tells of itself."""
        return self.tell(self)

    def on(self, machine: Machine) -> Question:
        """The same on another machine, and so are servers of prompts that are on the same one."""
        prompts = self.prompts
        if prompts and prompts.machine == self.machine:
            prompts = replace(prompts, machine=machine)
        return replace(self, machine=machine, prompts=prompts)

    @property
    def name(self) -> str:
        """The scenario's; of one that no file holds the model's."""
        return self.stated.name or self.model.name

    @property
    def asked(self) -> str:
        """How a command line names the scenario again; "" if stdin asked."""
        return self.stated.asked

    @property
    def assume(self) -> Assume:
        """What is assumed of the run, as stated."""
        return self.stated.file.assume

    @property
    def cost_model(self) -> CostModel:
        """How seconds are made of bytes."""
        return self.stated.file.cost_model

    @property
    def products(self) -> str:
        """The dtype whose peak matrix products have: that of activations, or one that works on such arrays."""
        return self.stated.file.workload.dtype or self.dtypes.activations

    @property
    def inputs(self) -> list[tuple[str, str]]:
        """(path, sha256) of every file read."""
        models = [question.base_model.document for question in (self, self.draft) if question]
        others = [self.prompts.machine] if self.prompts else []
        return inputs(self.stated.document, *models, self.machine, *others)

    @cached_property
    def stages(self) -> Stages:
        """Which rank of the pipeline has which layers; one has all of them without a pipeline."""
        ranks = self.schedule.ranks if self.schedule else 1
        return linear(self.split or (self.model.layers,), ranks, self.practice, self.model.stack)

    @cached_property
    def orders(self) -> PipelineSchedule:
        """The orders of the ranks; without a pipeline that of one rank with one chunk, microbatch after microbatch."""
        if self.schedule:
            return self.schedule
        parts = self.workload.microbatches
        return forward_only(1, parts) if self.inference else pipeline_schedule(DEFAULT, 1, 1, parts)

    @property
    def tied(self) -> int:
        """Chips of a stage: where weights and gradients of a layer travel, none runs ahead of the others.

        Of inference nothing is known; the cost model ``book`` has none that are late.
        """
        stages = self.mesh.size(*self.layout.roles.get("pp", ()))
        return 1 if self.inference or self.cost_model == "book" else self.mesh.devices // stages

    @property
    def inference(self) -> Inference | None:
        """The workload, if it is one of inference."""
        return self.workload if isinstance(self.workload, Inference) else None

    @property
    def blocking(self) -> Blocking:
        """Whether messages hold up both their stages: as practice states, else as those do who run the schedule."""
        return self.practice.overlap.blocks_stages(usual=self.orders.blocking)

    @property
    def price(self) -> PriceFields | Constant | None:
        """Of a chip hour: as assumed, else the machine's; None if neither states one, or none of other servers."""
        own = self.assume.price_per_chip_hour or self.machine.chip.price_per_hour
        return own if self.prompts is None or self.prompts.price else None

    @property
    def matmul_efficiency(self) -> float | None:
        """Share of peak that products reach: as assumed, else all of it by the book, else None for the machine's."""
        stated = self.assume.matmul_efficiency
        return stated.value if stated else 1.0 if self.cost_model == "book" else None

    @property
    def stated_mesh(self) -> Mesh:
        """The mesh before an axis of it was split for kv heads."""
        return self.mesh.unsplit(self.axis_parents)

    @property
    def idle_axes(self) -> tuple[str, ...]:
        """Mesh axes of several devices that shard nothing: their devices repeat the same work."""
        used = {axis for dims in self.layout.table.values() for axes in dims.values() for axis in axes}
        return tuple(axis for axis, size in self.mesh.axes.items() if size > 1 and axis not in used)


def relaunched(question: Question, seconds: float) -> Question:
    """The question with a host that takes so long for a launch, instead of the launch that it states."""
    file, stated = question.stated.file, question.assume.kernel_launch
    launch = stated and stated.model_copy(update={"value": seconds})
    assume = file.assume.model_copy(update={"kernel_launch": launch})
    return replace(question, stated=replace(question.stated, file=file.model_copy(update={"assume": assume})))


def without_graph(question: Question) -> Question:
    """The same with collectives launched as those of prompts are, unless it is stated how all of them are."""
    stated = question.stated.file.collectives.launch
    return question if stated else replace(question, force=question.force._replace(launch=None))


def unit_of_part(question: Question) -> int:
    """What its layout splits the sequences of a part of its batch into."""
    return lcm(*(question.mesh.size(*dims["b"]) for dims in question.layout.table.values() if "b" in dims), 1)
