"""The verb `search`: the best layout of what a scenario leaves open, and why the next ones are worse."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Unpack, get_args

from tpsim.answers.memory import chips, fullest
from tpsim.answers.plan import PlanResult, priced
from tpsim.answers.sensitivity import Answered, parts
from tpsim.answers.verdict import percent
from tpsim.layouts.space import SHORT, spaces
from tpsim.layouts.weighed import weigh
from tpsim.quantity.errors import InputError, unknown
from tpsim.quantity.units import show
from tpsim.question.flags import flag_words
from tpsim.question.prices import sizes_of
from tpsim.question.save import scenario_text
from tpsim.question.shelf import Shelf
from tpsim.report.answer import Answer, Assumption
from tpsim.report.record import Bytes, Count, Number, Of, Record, Seconds
from tpsim.report.table import Line, labelled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.layouts.space import Space
    from tpsim.layouts.weighed import Weighed, Weighing
    from tpsim.quantity.spec import Document
    from tpsim.question.flags import Flags
    from tpsim.question.question import Question

By = Literal["step", "tokens_per_s", "memory"]
"""What the best layout has the least of, or the most."""

TOP, PLANS = 10, 200
"""Layouts that are listed, and those that are planned at most to find them."""


def search(
    scenario: str | Path | Document | Mapping[str, Any] | None = None,
    *,
    overrides: Sequence[str] = (),
    vary: Sequence[str] = (),
    by: By = "step",
    top: int = TOP,
    plans: int = PLANS,
    sensitivity: bool = False,
    **flags: Unpack[Flags],
) -> SearchResult:
    """Rank the legal layouts of what a scenario leaves open.

    Searched are mesh, ZeRO, sequence parallelism, recompute, schedule, chunks, microbatches, each unless the scenario,
    a flag or an override states it; `chips` frees mesh, placement, layout and pipeline.

    scenario   a file, a library name, its content as a mapping, or None for flags alone
    overrides  ``path=value`` each, as ``--set`` takes them: what they state is held
    vary       ``path=value,value`` each: only these values, of any field; ``path`` alone: all of a part of a layout
    by         step, tokens_per_s or memory (the peak)
    top        how many are listed
    plans      how many are planned at most; where that ends a search, the answer says how near it came
    sensitivity  True: also how the best step answers to a better part of the machine; that searches once per part
    flags      the command line's options by name: chips=256, batch=512; see `tpsim.question.flags`
    Raises InputError for everything that the scenario says wrongly.
    """
    if by not in get_args(By):
        raise unknown(by, "measure to search by", get_args(By))
    if top < 1 or plans < 1:
        raise InputError.one("bad-value", "a search lists and plans at least one layout", remedy="write --top 1")
    shelf = Shelf()
    several = spaces(scenario, flags=flags, overrides=overrides, vary=vary, shelf=shelf)
    weighing = weigh(several, shelf, _held)
    named = (("--set", overrides), ("--vary", vary))
    asked = [*flag_words(flags), *(word for name, texts in named for text in texts for word in (name, text))]
    words = [str(scenario)] if isinstance(scenario, str | Path) else []
    found = SearchResult(by, several, weighing, *_ranked(weighing, by, top, plans, shelf), asked=(*words, *asked))
    return replace(found, sensitivity=list(_sensitivity(found, plans, shelf))) if sensitivity else found


def _sensitivity(found: SearchResult, plans: int, shelf: Shelf) -> Iterator[Answered]:
    """The best step with each part of its machine better."""
    if found.best is None:
        return
    best, space = found.best, found.planned[0].weighed.space
    today = found.planned[0].plan
    for part in parts(today.question.machine):
        machine = part.better(today.question.machine)
        held = priced(replace(today.question, machine=machine), shelf)
        again, *_ = _ranked(weigh([replace(space, machine=machine)], shelf, _held), found.by, 1, plans, shelf)
        then = Row(1, again[0], again[0], found.by)
        other = in_words(then) if then.planned.weighed.layout != best.planned.weighed.layout else None
        today_s, held_s, then_s = (float(one.step.time_s) for one in (today, held, then.plan))
        yield Answered(part.name, part.factor, today_s, held_s, then_s, other)


def _held(question: Question, shelf: Shelf) -> tuple[float, float]:
    """Bytes at the peak of a question, and the room that it leaves."""
    most = fullest(chips(question, shelf.lowered(question).program, sizes_of(question)))
    return float(most.peak_bytes), float(most.room_bytes)


def _ranked(weighing: Weighing, by: By, top: int, plans: int, shelf: Shelf) -> tuple[list[Planned], int, float, int]:
    """The best plans, how many were made, the least that one of the others may come to, and how many break a demand.

    Best first by what none is less than: the search ends when no other can be among the best.
    """
    fitting = [one for one in weighing.found if one.room_bytes >= 0]
    queue = sorted((one for one in fitting if one.may_do), key=lambda one: _least(one, by))
    best: list[Planned] = []
    made, broken = 0, len(fitting) - len(queue)
    for one in queue:
        enough = len(best) == top and best[-1].value(by) <= _least(one, by)[0]
        if enough or made == plans:
            return best, made, inf if enough else _least(one, by)[0], broken
        made += 1
        plan = Planned(one, priced(one.space.question(one.layout, shelf), shelf))
        if not plan.plan.ok:
            broken += 1
            continue
        best = sorted([*best, plan], key=lambda one: one.value(by))[:top]
    return best, made, inf, broken


def _least(one: Weighed, by: By) -> tuple[float, ...]:
    """What a layout comes to at least, and what decides between those that are equal."""
    if by == "memory":
        return one.peak_bytes, one.step_s
    return (one.step_s / one.tokens if by == "tokens_per_s" else one.step_s), one.peak_bytes


@dataclass(frozen=True)
class Planned:
    """A layout that was planned."""

    weighed: Weighed
    plan: PlanResult

    def value(self, by: By) -> float:
        """What it comes to; less is better."""
        if by == "memory":
            return float(self.plan.memory.peak_bytes)
        step_s = float(self.plan.step.time_s)
        return step_s / self.plan.tokens if by == "tokens_per_s" else step_s

    @cached_property
    def parts(self) -> dict[str, float]:
        """The seconds of its step: compute, exposed communication by role, the bubble."""
        return _parts(self.plan)


def _parts(plan: PlanResult) -> dict[str, float]:
    names = {axis: WORDS[role] for role, axes in plan.question.layout.roles.items() for axis in axes if role in WORDS}
    found = {"compute": float(plan.step.compute_s), "bubble": float(plan.step.bubble_s)}
    for axis, one in plan.totals["by_axis"].items():
        name = " and ".join(dict.fromkeys(names.get(each, each) for each in axis.split(",")))
        found[name] = found.get(name, 0) + float(one.exposed_s)
    return found


WORDS: Mapping[str, str] = {"tp": "tensor", "dp": "data", "pp": "stages"}
"""Roles of mesh axes, as losses name them."""


@dataclass(frozen=True)
class Row(Record):
    """One layout, planned.

    rank    1 for the best
    behind  how much more than the best it takes, as a share of it
    loses   what it takes more and less than the best, in words
    """

    told: ClassVar[tuple[str, ...]] = (
        *("rank", "tp", "dp", "pp", "schedule", "chunks", "microbatches", "microbatch_size"),
        *("zero", "sequence_parallel", "recompute", "mesh", "varied"),
        *("step_s", "tokens_per_s", "compute_s", "exposed_s", "bubble_s", "mfu", "peak_bytes", "fits"),
        *("at_least_s", "behind", "loses"),
    )

    rank: Count
    planned: Planned
    best: Planned
    by: By

    @property
    def plan(self) -> PlanResult:
        """Its plan."""
        return self.planned.plan

    tp = Of[Count]("planned.weighed.layout.tp", "ways of tensor parallelism")
    dp = Of[Count]("planned.weighed.layout.dp", "ways of data parallelism")
    pp = Of[Count]("planned.weighed.layout.pp", "stages")
    chunks = Of[Count]("planned.weighed.layout.chunks", "of layers on each stage")
    microbatches = Of[Count]("plan.question.workload.microbatches", "parts of the batch")
    zero = Of[Count]("plan.question.layout.zero", "ZeRO stage")
    sequence_parallel = Of[bool]("plan.question.layout.sequence_parallel", "the residual stream split over tp")
    recompute = Of[str](lambda row: ",".join(row.plan.question.practice.recompute) or "none", "what is run again")
    mesh = Of[Mapping[str, int]]("plan.question.mesh.axes", "axes, major first")
    varied = Of[Mapping[str, Any]]("planned.weighed.space.varied", "fields that are varied beside the layout")
    step_s = Of[Seconds]("plan.step.time_s", "of the step")
    tokens_per_s = Of[Number]("plan.step.tokens_per_s", "of the whole machine")
    compute_s = Of[Seconds]("plan.step.compute_s", "of kernels")
    exposed_s = Of[Seconds]("plan.step.exposed_s", "of communication that no compute hides")
    bubble_s = Of[Seconds]("plan.step.bubble_s", "of waiting for other stages")
    mfu = Of[Number]("plan.step.mfu", "useful FLOPs over the peak")
    peak_bytes = Of[Bytes]("plan.memory.peak_bytes", "of the fullest chip")
    at_least_s = Of[Seconds](
        "planned.weighed.step_s", "what its step was known not to take less than, before it was planned"
    )

    def scenario(self, folder: Path = Path()) -> str:
        """The scenario file, to be written in `folder`, that asks for this layout."""
        return scenario_text(self.plan.question, folder)

    @property
    def schedule(self) -> str | None:
        """How stages take turns; null without stages."""
        return self.planned.weighed.layout.schedule or None

    @property
    def microbatch_size(self) -> Count:
        """Sequences of a microbatch on one data shard."""
        return self.plan.question.workload.sequences // self.dp

    @property
    def fits(self) -> bool | None:
        """True, or null where it is too close to say."""
        return self.plan.memory.fits

    @property
    def behind(self) -> Number:
        """How much more than the best it takes, as a share of it."""
        return self.planned.value(self.by) / self.best.value(self.by) - 1

    @property
    def loses(self) -> str:
        """Where it loses against the best, and where it wins: the greatest parts of the step that differ."""
        if self.rank == 1:
            return ""
        mine, yours = self.planned.parts, self.best.parts
        apart = {name: mine.get(name, 0) - yours.get(name, 0) for name in (*mine, *yours)}
        least = LEAST * self.best.plan.step.time_s
        told = sorted((one for one in apart.items() if abs(one[1]) >= least), key=lambda one: -abs(one[1]))[:MOST]
        return (
            ", ".join(f"{'+' if s > 0 else '-'}{show(abs(s), 'seconds')} {name}" for name, s in told) or "the same step"
        )


LEAST, MOST = 1e-4, 3
"""The share of a step that a difference must make to be told, and how many are."""


@dataclass(frozen=True, slots=True)
class Refused(Record):
    """Why layouts are none that can be planned.

    reason   the slug of the refusal
    layouts  how many
    """

    reason: str
    layouts: Count


@dataclass(frozen=True)
class SearchResult(Answer):
    """The best layouts of a space. Bytes are of one chip, seconds of one step.

    planned    the best, the best first
    plans      how many were planned to know it
    open_at    what the next of those that were not planned may come to at least; infinite if none can be better
    violating  layouts that fit and violate what the scenario requires
    asked      the words of the command line that ask for it again
    sensitivity  where it is asked for: how the best step answers to each part of the machine, made better
    """

    schema = "tpsim.search/1"
    table = "rows"
    told: ClassVar[tuple[str, ...]] = (
        *("verdict", "by", "considered", "legal", "fitting", "plans", "violating", "gap", "complete"),
        *("searched", "held", "refused", "best?", "rows", "sensitivity?"),
    )

    by: By
    spaces: Sequence[Space]
    weighing: Weighing
    planned: Sequence[Planned]
    plans: Count
    open_at: float
    violating: Count
    asked: tuple[str, ...] = ()
    sensitivity: list[Answered] | None = None

    considered = Of[Count]("weighing.considered", "layouts looked at")

    @property
    def name(self) -> str:
        """The scenario's name; without one the model's."""
        stated = self.spaces[0].document
        return str(
            stated.data.get("name") or (stated.data["model"] if stated.path == "flags" else Path(stated.path).stem)
        )

    @property
    def to_save(self) -> str:
        """The command that writes the best layout as a scenario."""
        by = [] if self.by == "step" else ["--by", self.by]
        return shlex.join(["tpsim", "search", *self.asked, *by, "--top", "1", "--save", "best.yaml"])

    @property
    def legal(self) -> Count:
        """Those that `plan` does not refuse."""
        return len(self.weighing.found)

    @cached_property
    def fitting(self) -> Count:
        """Legal ones whose peak the memory of a chip holds."""
        return sum(one.room_bytes >= 0 for one in self.weighing.found)

    @property
    def complete(self) -> bool:
        """True if no layout that is not listed can be better than one that is."""
        return self.open_at == inf

    @property
    def gap(self) -> Number:
        """How far below the best a layout that was not planned may be, as a share; 0 if none can be."""
        if not self.planned or self.complete:
            return 0
        return max(0.0, 1 - self.open_at / self.planned[0].value(self.by))

    @property
    def searched(self) -> list[str]:
        """What was searched."""
        return list(dict.fromkeys([*self.spaces[0].only, *self.spaces[0].varied]))

    @property
    def held(self) -> Mapping[str, Any]:
        """What was held, as it is stated."""
        return self.spaces[0].held

    @property
    def refused(self) -> list[Refused]:
        """The layouts that are not legal, by reason."""
        return [Refused(*one) for one in self.weighing.refused.most_common()]

    @cached_property
    def rows(self) -> list[Row]:
        """The best layouts, the best first."""
        return [Row(n, one, self.planned[0], self.by) for n, one in enumerate(self.planned, 1)]

    @property
    def best(self) -> Row | None:
        """The best layout; left out if nothing fits."""
        return self.rows[0] if self.rows else None

    @property
    def ok(self) -> bool:
        """True if there is a layout that fits and meets every demand."""
        return bool(self.planned)

    @property
    def files(self) -> Sequence[tuple[str, str]]:
        """Path and sha256 of every file that was read."""
        return self.planned[0].plan.files if self.planned else ()

    @property
    def resolved(self) -> Mapping[str, Any]:
        """What the best layout came to."""
        return self.planned[0].plan.resolved if self.planned else {}

    @property
    def assumptions(self) -> Sequence[Assumption]:
        """What the plan of the best layout rests on."""
        return self.planned[0].plan.assumptions if self.planned else ()

    @property
    def not_modelled(self) -> Sequence[str]:  # type: ignore[override]  # of the plan of the best layout
        """What that plan leaves out."""
        return self.planned[0].plan.not_modelled if self.planned else ()

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """The answer in lines: the best layout, how it is known, what was held."""
        return tuple(self._lines())

    def _lines(self) -> Iterator[Line]:
        best = self.best
        counts = f"{self.considered:,} layouts considered, {self.legal:,} legal, {self.fitting:,} fit"
        if best is None:
            demands = ", ".join(
                f"{name} {text}" for name, text in (self.spaces[0].document.data.get("require") or {}).items()
            )
            why = f"none of those that fit meets require {demands}" if self.fitting else "no layout fits"
            yield Line(f"{why}: {counts}", "best", ok=False)
            return
        plan = best.plan
        rates = f"{plan.step.tokens_per_s:,.0f} tokens/s, MFU {percent(plan.step.mfu)}"
        yield Line(f"{in_words(best)}: {show(plan.step.time_s, 'seconds')} a step, {rates}", "best")
        yield Line(plan.memory.verdict, "memory", ok=plan.memory.fits is not False)
        known = f"within {percent(self.gap)} of the best" if self.gap else "no other can be better"
        known += "" if self.complete or self.gap else ", but of those behind it some may be missing"
        yield Line(f"{counts}; {self.plans:,} planned: {known}", "space")

    @property
    def verdict(self) -> str:
        """The lines as text."""
        return "\n".join(map("".join, labelled(self.lines)))


def in_words(row: Row) -> str:
    """A layout: ``tp 8, dp 4, pp 2 (1f1b), 16 microbatches of 1, ZeRO 1, sequence parallel, recompute none``."""
    turns = f" ({row.schedule}{f', {row.chunks} chunks' if row.chunks > 1 else ''})" if row.schedule else ""
    parts = [f"tp {row.tp}", f"dp {row.dp}", f"pp {row.pp}{turns}"]
    parts += [f"{row.microbatches} microbatches of {row.microbatch_size}", f"ZeRO {row.zero}"]
    parts += ["sequence parallel"] if row.sequence_parallel else []
    parts += [] if row.recompute == "none" else [f"recompute {row.recompute}"]
    return ", ".join([*(f"{SHORT.get(path, path)} {value}" for path, value in row.varied.items()), *parts])
