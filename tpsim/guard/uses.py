"""What the numbers of a plan are made with: facts of its machine, and lists of facts, noted while they are priced."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.answers.plan import PlanResult, priced
from tpsim.cost.compute import compute
from tpsim.guard.formulas import CACHE, HELD, group
from tpsim.guard.lock_parts import BASE, AskedField, ConstantFact, Names, ScenarioFact
from tpsim.guard.moved_numbers import MOVED, OVERHEADS, PROMPT_PEAK, STATES_FIT, TPOT, WAITS
from tpsim.machine.curve_file import exact
from tpsim.machine.parts import Level, Machine, Watched, changed
from tpsim.question.memo import structure
from tpsim.question.prices import route_over
from tpsim.question.serving_file import PROMPTS

if TYPE_CHECKING:
    from tpsim.cost.rollup import Row
    from tpsim.guard.lock import Lock
    from tpsim.machine.timing import Timing
    from tpsim.question.question import Question

PROFILE = "profile"
"""The kind of a machine's properties that are no figures: its topologies, its wraparound, what it offers."""


class Property(NamedTuple):
    """What a level states that is no figure."""

    level: str
    name: str
    value: Any

    @property
    def path(self) -> str:
        """What a lock calls it: ``levels.ici.wrap``."""
        return f"levels.{self.level}.{self.name}"


def machine_facts(machine: Machine) -> Iterator[tuple[str, ConstantFact]]:
    """Every figure of a machine, every property of its levels that is none, and every curve, by its path."""
    figures = {constant.path: constant for constant in machine.constants()}
    for path, figure in figures.items():
        source = machine.sources.get(figure.source)
        title = f"{source.title} (read {source.read or ''})" if source else ""
        yield path, ConstantFact(value=figure.value, source=title, kind=figure.kind, dimension=figure.dimension)
    for stated in properties(machine):
        if stated.path not in figures:  # a single launch is a figure, and no list of harnesses
            yield stated.path, ConstantFact(value=stated.value, kind=PROFILE)
    for curve in machine.measured:
        ratios = ", ".join(f"{exact(knot.V)} {knot.fitted / knot.predicted:.4g}" for knot in curve.knots)
        yield curve.path, ConstantFact(value=ratios, source=curve.source, kind="measured")


def properties(machine: Machine) -> Iterator[Property]:
    """What the machine's levels state that is no figure."""
    for at, level in enumerate(machine.levels):
        yield Property(level.name, "place", at)
        yield from (Property(level.name, name, value) for name, value in _stated(level))


def _stated(level: Level) -> Iterator[tuple[str, Any]]:
    """Of a map its keys, since what a level offers and in which order counts."""
    wrap, slices = level.wrap, level.slices
    stated = {
        "topology": level.topology,
        "shape": " x ".join(map(str, level.shape)),
        "wrap": str(wrap),
        "steps": level.steps,
        **{name: ", ".join(getattr(level, name)) for name in ("launch", "protocols", "algorithms")},
        "wrap_source": wrap.source,
        "wrap_kind": wrap.kind,
        "slices": str(slices) if slices.known else None,
        "slices_source": slices.source,
        "slices_kind": slices.kind,
    }
    yield from ((name, value) for name, value in stated.items() if value is not None)


def program_name(question: Question) -> str:
    """A structure in eight letters: equal for all sizes of it, another one for another structure."""
    return hashlib.sha256(repr(structure(question)).encode()).hexdigest()[:8]


DRAFT = "speculation.draft"
"""What of a scenario's workload names the model that drafts."""

PLACING = ("place", "topology", "shape", "wrap", "slices")
"""Properties of levels that decide which wires carry which mesh axis: of all levels, for one fills up after another."""


@dataclass(frozen=True)
class Lists:
    """The lists of facts that numbers are made with, each under a name of its own in eight letters.

    lock   what the lock holds: a list has no other facts
    known  the lists so far
    """

    lock: Lock
    known: dict[str, Names] = field(default_factory=dict)

    @cached_property
    def _facts(self) -> frozenset[str]:
        return frozenset(map(str, self.lock.facts))

    def called(self, names: Iterable[str]) -> Names:
        """What a list is called, equal for equal lists; a single fact by its own name, and nothing for none."""
        facts = tuple(sorted(self._facts.intersection(names)))
        if len(facts) <= 1:
            return facts
        name = f"u{hashlib.sha256(repr(facts).encode()).hexdigest()[:7]}"
        self.known[name] = facts
        return (name,)


@dataclass(frozen=True)
class Uses:
    """What each number of a plan is made with, as names of facts and of lists of them.

    fact  what the scenario asks: it names its machine, its model, the structure of its program
    """

    plan: PlanResult
    fact: ScenarioFact
    lists: Lists

    def shared(self) -> Names:
        """Of every number: the model, the switches that the scenario leaves as they are, what a planner weighed."""
        names = self.lists.called([*self._model(), *self._switches()])
        return (*names, *self._weighed()) if self.plan.question.planner == "cheapest" else names

    def of_row(self, row: Row) -> Names:
        """Of a collective: what its timing reads, what places it, and what its calls come to in its program."""
        constants, formulas = self._timed[id(row.timing)]
        levels = {segment.level for segment in route_over(self.plan.question, row.call.parts[0].move)}
        names = self.lists.called([*formulas, self._program(group(row.call))])
        return (*self._of_machine([*constants, *self._properties(levels)]), *names)

    def of_results(self) -> dict[str, Names]:
        """Of every result, the scenario's demands included."""
        rows = tuple(dict.fromkeys(chain.from_iterable(map(self.of_row, self.plan.collectives))))
        flops, *states = (self.lists.called([self._program(part)]) for part in ("flops", *HELD))
        compute = (*self._of_machine(self._read(_computed)), *flops)
        cache = self.of_cache
        order = self.lists.called(self._orders())
        late = self._of_machine(["chip.interruption"] if self.plan.pacing.stragglers_s else [])
        step, memory = (*rows, *compute, *order, *late), (*chain.from_iterable(states), *cache)
        prompt, (drafts, read, held) = self._of_prompt() or step, self._of_draft()
        servers = self._of_servers()
        mixed = prompt if self.plan.serve and self.plan.serve.mixed else ()
        tokens, memory = (*dict.fromkeys((*step, *drafts, *mixed)),), (*memory, *held)
        room = self._of_machine(self._read(lambda plan: plan.question.machine.chip.memory.capacity.value))
        demands = {
            "best": (*room, *tokens, *memory),
            **dict.fromkeys(("step", "exposed", "bubble", "mfu"), step),
            **dict.fromkeys(("tokens_per_s", "tpot", "tokens_per_s_user"), tokens),
            "memory": memory,
            "peak": (*memory, *flops, *order),
            "ttft": prompt,
        }
        return {
            **dict.fromkeys(("step_s", "exposed_s", *WAITS), step),
            "compute_s": compute,
            "ttft_s": prompt,
            **servers,
            TPOT: tokens,
            "reply_s": (*dict.fromkeys((*prompt, *read, *tokens, *servers.get(MOVED[1], ()))),),
            "flops": flops,
            **{f"{part}_bytes": (*names, *held) for part, names in zip(HELD, states, strict=True)},
            f"{CACHE}_bytes": (*cache, *held),
            **dict.fromkeys(("kept_bytes", "peak_bytes", OVERHEADS), demands["peak"]),
            "placement": self._of_machine(self._properties(())),
            STATES_FIT: (*room, *memory, *servers.get(STATES_FIT, ())),
            **{f"require.{name}": names for name, names in demands.items()},
        }

    def _of_prompt(self) -> Names:
        """Of a prompt and its reply the seconds of the prompt, which is a program of its own."""
        return prompt.of_results()["step_s"] if (prompt := self._prompt) else ()

    @property
    def _prompt(self) -> Uses | None:
        """What the plan of the prompt is made with, which may be one on another machine."""
        if self.plan.prefill is None:
            return None
        machine = self.fact.asked.get(AskedField(PROMPTS, "hardware"), self._machine)
        fact = self.fact.but(inputs={**self.fact.inputs, "hardware": machine})
        return Uses(self.plan.prefill, fact, self.lists)

    def _of_servers(self) -> dict[str, Names]:
        """Of servers that read prompts alone what they send and hold."""
        if not (self.plan.question.prompts and self.plan.prefill and (prompt := self._prompt)):
            return {}
        from tpsim.answers.servers import Both

        both = Both(self.plan, self.plan.prefill)
        cache, ways = prompt.of_cache, (*prompt.of_timing(both.sends), *self.of_timing(both.takes))
        held = prompt.of_results()
        sent = dict(zip(MOVED, (cache, (*ways, *cache)), strict=True))
        return {**sent, PROMPT_PEAK: held["peak_bytes"], STATES_FIT: held[STATES_FIT]}

    @property
    def of_cache(self) -> Names:
        """Of what its program keeps of tokens."""
        return self.lists.called([self._program(CACHE)])

    def of_timing(self, timing: Timing) -> Names:
        """Of what moves over a way between servers: what its timing reads."""
        levels = {segment.level for segment in timing.asked.route} if timing.asked else set()
        constants, formulas = self._named(timing)
        return (*self._of_machine([*constants, *self._properties(levels)]), *self.lists.called(formulas))

    def _of_draft(self) -> tuple[Names, Names, Names]:
        """Of a model that drafts, a program of its own, its seconds, those of its prompts, and what its chips hold."""
        ahead = self.plan.serve and self.plan.serve.speculation
        if not ahead or not ahead.drafting:
            return (), (), ()
        own = Uses(ahead.drafting, self.fact, self.lists)
        of_results, name = own.of_results(), self.fact.asked[AskedField("workload", DRAFT)]
        fields = self.lists.called(f"{name}.{field}" for field in self.lists.lock.models.get(name, ()))
        held = dict.fromkeys((*of_results["peak_bytes"], *of_results["cache_bytes"]))
        return (*fields, *of_results["step_s"]), own._of_prompt(), (*fields, *held)

    def _orders(self) -> Iterator[str]:
        """The schedule of its pipeline, if it has one."""
        if pipeline := self.plan.question.resolved.get("pipeline"):
            yield f"schedule.{pipeline['schedule']}"

    def _model(self) -> Iterator[str]:
        """The fields of the model that the scenario does not state itself."""
        model = str(self.fact.inputs["model"])
        fields = self.lists.lock.models[model]
        yield from (f"{model}.{name}" for name in fields if AskedField("model", name) not in self.fact.asked)

    def _switches(self) -> Iterator[str]:
        """The defaults, and the switches of its practice, that say what the scenario has."""
        asked, known = self.fact.asked, self.lists.lock.switches
        fields = {str(asked_field): value for asked_field, value in asked.items()}
        yield from (f"default.{name}" for name, value in known.default.items() if fields.get(name) == value)
        base = asked[BASE]
        for name, value in known.practice[base].items():
            if asked.get(AskedField("practice", name)) == value:
                yield f"practice.{base}.{name}"

    def _weighed(self) -> Iterator[str]:
        """What a planner looks at that weighs every way: any of it may decide which one is taken."""
        question = self.plan.question
        read = self._read(lambda plan: priced(plan.question).step.pace_s)
        levels = [level.name for level in question.machine.levels]
        curves = (curve.path for curve in question.machine.measured)
        yield from self._of_machine([*read, *curves, *self._properties(levels)])
        owners = {("wire",), ("form",), ("seconds", question.cost_model, self._machine)}
        yield from self.lists.called(str(fact) for fact in self.lists.lock.facts if fact.owner in owners)

    @cached_property
    def _timed(self) -> dict[int, tuple[Names, Names]]:
        """Constants and formulas of every timing; rows of equal shape share one."""
        timings = {id(row.timing): row.timing for row in self.plan.collectives}
        return {key: self._named(timing) for key, timing in timings.items()}

    def _named(self, timing: Timing) -> tuple[Names, Names]:
        """Constants and formulas of a timing, by their names in a lock."""
        question = self.plan.question
        model, own = question.cost_model, question.machine
        called = {
            f"seconds.{model}.{own.name}.{level.name}": f"seconds.{model}.{self._machine}.{level.name}"
            for level in own.levels
        }  # a timing calls the machine by its name, and the lock perhaps by its file
        return timing.constants, tuple(called.get(name, name) for name in timing.formulas)

    @cached_property
    def _stated(self) -> set[str]:
        """Paths of what the scenario states of its machine: they are its own, and no facts of the machine."""
        base = {constant.path: constant for constant in self.plan.question.base_machine.constants()}
        moved = {
            constant.path for constant in self.plan.question.machine.constants() if base.get(constant.path) != constant
        }
        return moved | {asked_field.name for asked_field in self.fact.asked if asked_field.section == "hardware"}

    @property
    def _machine(self) -> str:
        return str(self.fact.inputs["hardware"])

    def _program(self, formula: str) -> str:
        return f"program.{self._name}.{formula}"

    @cached_property
    def _name(self) -> str:
        return program_name(self.plan.question)

    def _of_machine(self, paths: Iterable[str]) -> Names:
        return self.lists.called(f"{self._machine}.{path}" for path in paths if path not in self._stated)

    def _properties(self, levels: Collection[str]) -> Iterator[str]:
        """What is no figure: all of it of these levels, and of every level what places a mesh on them."""
        for stated in properties(self.plan.question.machine):
            if stated.level in levels or stated.name in PLACING:
                yield stated.path

    def _read(self, number: Callable[[PlanResult], Any]) -> Names:
        """Paths of the machine's constants that are read where the plan makes a number."""
        question, seen = self.plan.question, set[str]()
        machine = changed(question.machine, lambda constant: Watched(constant, seen))
        number(replace(self.plan, question=replace(question, machine=machine)))
        return tuple(seen)


def _computed(plan: PlanResult) -> Any:
    """Seconds of every kernel, at sizes of its own: others may know what constants came to."""
    question, kernels = plan.question, plan.memo.lowered(plan.question).kernels
    return compute(kernels, replace(plan.sizes), question.machine, question.products, question.matmul_efficiency)
