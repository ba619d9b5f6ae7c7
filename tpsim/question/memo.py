"""What many scenarios share, read and lowered once: machines and models by file, programs by structure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any, TypeVar

from tpsim.cost.actions import Actions
from tpsim.cost.collectives import Collective, collectives
from tpsim.cost.kernels import kernels
from tpsim.cost.memory import Standing, standing
from tpsim.machine import profile
from tpsim.program.kinds import ONE, Layers, one_each
from tpsim.program.layout import REGIONS, Layout
from tpsim.program.lifetimes import microbatches
from tpsim.program.lower import StepPart, anew, begun, lower, states
from tpsim.program.model import Model, as_stated
from tpsim.program.model_file import ModelRead, load_model
from tpsim.program.practice import Ahead, Bucket, Overlap, Practice
from tpsim.program.schedules import PipelineSchedule, pipeline_schedule
from tpsim.program.trace import Path as Paths
from tpsim.program.trace import book_path
from tpsim.program.turnover import Turnover, turnover
from tpsim.quantity import spec

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence
    from pathlib import Path

    from tpsim.cost.kernel import Kernel
    from tpsim.cost.sizes import Sizes
    from tpsim.machine.parts import Machine
    from tpsim.program.op import Array, Op, Program
    from tpsim.quantity.spec import Document
    from tpsim.question.question import Question


K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, eq=False)
class Lowered:
    """A program with its collectives and its kernels.

    practice  as it is lowered by
    path      how arrays that must change their type get there
    once      gives what was made of a part of it for others
    known     its actions as tasks, by what they are made for
    turned    what its actions make and free, by the axes of one device
    """

    program: Program
    practice: Practice
    path: Paths
    once: Callable[..., Any]
    known: dict[Hashable, Actions] = field(default_factory=dict)
    turned: dict[frozenset[str], Turnover] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """Without what is known by the identity of calls, which are others where it is copied to."""
        return {**self.__dict__, "known": {}}

    @cached_property
    def collectives(self) -> tuple[Collective, ...]:
        """Its calls."""
        return collectives(self.program, coalesce=self.practice.coalesce, apart=self.practice.units == "ends")

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """Its kernels; of layouts that no chip holds nobody asks for them."""
        return kernels(self.program, self.practice)

    @cached_property
    def standing(self) -> Standing:
        """What of it stands on a chip from step to step."""
        return standing(self.program, lambda _: self.turnover().lifetimes)

    def turnover(self, alone: frozenset[str] = frozenset()) -> Turnover:
        """What its actions make and free, some axes being of one device; programs alike in microbatches share it."""
        if alone not in self.turned:
            known = alone, self.program.ahead, self.program.units, self.program.pipe, *self._microbatches
            self.turned[alone] = self.once("turnover", lambda: turnover(self.program.without(alone)), *known)
        return self.turned[alone]

    @cached_property
    def _microbatches(self) -> tuple[tuple[Op, ...], frozenset[Array]]:
        return microbatches(self.program)

    def actions(self, question: Question, sizes: Sizes, calls: Sequence[Collective]) -> Actions:
        """The program's actions, with these of its collectives."""
        practice, shards = question.practice, question.mesh.size(*question.layout.data)
        elements = methodcaller("elements", sizes)
        actions = Actions(self.program.ops, question.stages, calls, practice, shards, elements)
        counted = (shards, *map(actions.elements, filter(actions.counts, calls))) if practice.counts_elements else ()
        apart = any(call.where.place == "step" and actions.beside_once(call) for call in calls)
        key = (practice, question.stages if apart else None, counted, *map(id, calls))
        return self.known.setdefault(key, actions)


@dataclass(frozen=True, slots=True)
class Memo:
    """Files that were read and programs that were lowered; it lives as long as one request, so nothing grows stale."""

    documents: dict[Path, Document] = field(default_factory=dict)
    machines: dict[Hashable, Machine] = field(default_factory=dict)
    models: dict[Hashable, ModelRead] = field(default_factory=dict)
    programs: dict[Hashable, Lowered] = field(default_factory=dict)
    begun: dict[Hashable, Any] = field(default_factory=dict)
    schedules: dict[Hashable, PipelineSchedule] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        """What was read, where it is copied to: what was lowered is lowered again where anybody asks for it."""
        return Memo, (self.documents, self.machines, self.models)

    def scenario(self, path: Path) -> Document:
        """The scenario file that others extend. Raises InputError."""
        return _made_once(self.documents, path, lambda: spec.load(path))

    def machine(self, name_or_path: str, *, beside: Path) -> Machine:
        """The machine of that library name or file, a relative path from `beside`. Raises InputError."""
        key = (name_or_path, beside)
        return _made_once(self.machines, key, lambda: profile.load(spec.named("hardware", *key)))

    def model(self, name_or_path: str, *, beside: Path) -> ModelRead:
        """The model of that library name or file, a relative path from `beside`. Raises InputError."""
        return _made_once(self.models, (name_or_path, beside), lambda: load_model(name_or_path, beside=beside))

    def schedule(self, *asked: Any) -> PipelineSchedule:
        """The orders of a pipeline, asked for as `pipeline_schedule` is. Raises InputError."""
        return _made_once(self.schedules, asked, lambda: pipeline_schedule(*asked))

    def lowered(self, question: Question) -> Lowered:
        """The program of a question by the book's paths; questions of one structure share it."""
        shared = partial(self._once, question)
        return _made_once(self.programs, structure(question), lambda: lowered(question, once=shared))

    def states(self, question: Question) -> Standing:
        """What stands from step to step at least, no step traced for it; of inference all."""
        if question.inference:
            return self.lowered(question).standing
        question = replace(question, layout=question.layout.of_weights)
        asked = (question.model, question.layout, question.practice, question.dtypes, question.mesh.order)
        made = partial(states, *asked, layers=_traced(question))
        return self._once(question, "states", lambda: standing(made()))  # type: ignore[no-any-return]  # put there

    def forward(self, question: Question) -> Sequence[Op]:
        """The ops of one microbatch forward, with which that program begins."""
        asked = (question.model, question.layout, question.practice, question.dtypes, question.mesh.order)
        made = partial(begun, *asked, layers=_traced(question))
        return self._once(question, "forward", made).forward  # type: ignore[no-any-return]  # put there by it

    def _once(self, question: Question, part: StepPart, made: Callable[[], Any], *read: Hashable) -> Any:
        """A part of a step, made once for all layouts that differ in what it knows nothing of."""
        behind, dropped = UNKNOWN[part]
        practice = replace(question.practice.under(question.layout), **{**UNTRACED, **dropped})
        key = (part, *structure(replace(question, practice=practice), without=behind), *read)
        return _made_once(self.begun, key, made)


def _made_once(known: dict[K, V], key: K, made: Callable[[], V]) -> V:
    """What is known by a key, made now if it is not."""
    if key not in known:
        known[key] = made()
    return known[key]


BEHIND = ("grad", "state")
"""The regions that only what comes behind forward and backward knows."""

UNTRACED: Mapping[str, Any] = {"overlap": Overlap(), "bucket": Bucket(), "buffers": (), "ahead": Ahead()}
"""What runs beside compute: no part of a step is traced otherwise for it."""

DROPPED: Mapping[str, Any] = {"recompute": (), "regather": False, "reshard_after_forward": False}
"""What of forward backward finds: all that it makes otherwise is cotangents on their way."""

UNKNOWN: Mapping[StepPart, tuple[Sequence[str], Mapping[str, Any]]] = {
    "states": ((), {}),
    "forward": (BEHIND, DROPPED),
    "backward": (BEHIND, {}),
    "gradients": (("state",), {}),
    "turnover": (("state",), {}),
    "stretches": (tuple(REGIONS), DROPPED),
}
"""Regions that a part of a step knows nothing of, and switches, as they are not looked at."""


def one_cut(practice: Practice, of: Layers = ONE) -> tuple[Layers, Layers]:
    """A layer of each kind behind the embedding, and a cut between them and the head: what a pipeline repeats."""
    return one_each(practice, of), ()


def _traced(question: Question) -> tuple[Layers, Layers] | None:
    return one_cut(question.practice, question.model.stack) if question.schedule else None


def lowered(question: Question, path: Paths = book_path, once: Callable[..., Any] = anew, **traced: Any) -> Lowered:
    """The program of a question, the moves of its reshards chosen by `path`, and as it is `traced`; once as `lower`."""
    return Lowered(
        program_of(question, layers=_traced(question), path=path, once=once, **traced), question.practice, path, once
    )


def program_of(question: Question, laid: Layout | None = None, **traced: Any) -> Program:
    """The program of a question's step, with as many runs of its loops as are `traced`.

    laid  instead of the question's own layout, one without axes: what one device runs
    """
    order = question.mesh.order if laid is None else ()
    practice = question.practice if laid is None else question.practice.under(question.layout)
    asked = (question.model, laid or question.layout, practice, question.dtypes, order)
    if work := question.inference:
        from tpsim.program.serving import lower_serving

        traced = {name: value for name, value in traced.items() if name not in ("microbatches", "once")}
        return lower_serving(*asked, serving=work.serving, **traced)
    return lower(*asked, **traced)


def structure(question: Question, without: Sequence[str] = ()) -> tuple[Any, ...]:
    """What a program is made from but sizes, which steer no structure: equal ones have equal programs.

    without  regions that nobody knows of who reads it
    """
    table = question.layout.table
    return (
        *choices(question.model).items(),
        *((region, tuple(dims.items())) for region, dims in table.items() if region not in without),
        question.practice,
        *question.practice.levels,
        *(("offload", *off) if (off := question.practice.offload) else ()),
        *((question.practice.latents,) if question.practice.latents != "block" else ()),
        *((handed,) if (handed := question.practice.under(question.layout).handed) != "latents" else ()),
        question.dtypes,
        question.mesh.order,
        *(("stages",) if question.schedule else ()),
        *((work.serving, question.dtypes.cache) if (work := question.inference) else ()),
    )


@lru_cache(maxsize=64)
def choices(model: Model) -> Mapping[str, Any]:
    """What of a model is no size and no name: its switches, and those of the blocks of several kinds that are on."""
    stated = as_stated(model)
    blocks = {
        f"{kind}.{at}.{name}": value if isinstance(value, str | float) else True
        for kind, pair in stated.get("kinds", {}).items()
        for at, block in enumerate(pair)
        for name, value in block.items()
        if value
    }
    return {
        **{name: value for name, value in stated.items() if isinstance(value, bool | str) and name != "name"},
        **blocks,
        **({"mtp": model.mtp[0]} if model.mtp else {}),
        **({"softcap": model.logit_softcap} if model.logit_softcap else {}),
        **({"dropout": model.dropout} if model.dropout else {}),
    }
