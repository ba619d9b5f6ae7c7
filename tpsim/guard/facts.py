"""The facts of a lock: machines, models, switches and formulas that scenarios use, and what the scenarios came to."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpsim import __version__
from tpsim.answers.plan import priced
from tpsim.answers.plan_record import number
from tpsim.guard.lock import CallsFact, ConstantFact, Lock, ScenarioFact
from tpsim.guard.moved import STATES_FIT
from tpsim.guard.samples import Formula, form_formulas, move_formulas, program_formulas, seconds_formulas
from tpsim.machine.curve_file import exact
from tpsim.machine.profile import Constant
from tpsim.program.layout import PRACTICES, Dtypes
from tpsim.question.inputs import asked
from tpsim.question.scenario import CHANGES, resolve
from tpsim.question.scenario_file import LayoutFields, PracticeFields, ScenarioFile, WorkloadFields
from tpsim.question.shelf import Shelf, structure

if TYPE_CHECKING:
    from tpsim.answers.plan import PlanResult
    from tpsim.cost.rollup import Row
    from tpsim.machine.profile import Machine
    from tpsim.quantity.spec import Document
    from tpsim.question.question import Question

PROFILE = "profile"
"""The kind of a machine's properties that are no figures: its topologies, its wraparound, what it offers."""


def held(scenarios: Mapping[str, Document], known: Lock, folder: Path, *, texts: bool) -> Lock:
    """Everything that a lock in `folder` holds of these scenarios, as it is now.

    scenarios  by their names in the lock
    known      the lock before: its tolerance and paths stay, and so do texts of formulas whose samples do
    texts      True: texts of the other formulas are made, which loads sympy
    Raises InputError for a scenario that is wrong.
    """
    shelf = Shelf()
    plans = {name: priced(resolve(document, shelf=shelf), shelf) for name, document in scenarios.items()}
    return facts(plans, known, folder, shelf, texts=texts)


def facts(plans: Mapping[str, PlanResult], known: Lock, folder: Path, shelf: Shelf, *, texts: bool) -> Lock:
    """The lock of these plans."""
    questions = [plan.question for plan in plans.values()]
    formulas = {
        name: one.fact(known.formulas.get(name), texts=texts) for name, one in _formulas(questions, folder, shelf)
    }
    return replace(asked_facts(plans, folder), formulas=formulas, tolerance=known.tolerance, paths=known.paths)


def asked_facts(plans: Mapping[str, PlanResult], folder: Path) -> Lock:
    """The lock of these plans without formulas, which do not differ between two plans of one tpsim."""
    questions = [plan.question for plan in plans.values()]
    return Lock(
        version=__version__,
        constants=dict(_constants(questions, folder)),
        models=dict(_models(questions, folder)),
        switches=dict(_switches(questions)),
        scenarios={name: _scenario(plan, folder) for name, plan in plans.items()},
    )


def _named(kind: Any, path: str, folder: Path) -> str:
    """A library file by its name, any other by its path from the lock's folder: the same on every machine."""
    name = asked(kind, path)
    return name if name != path else Path(os.path.relpath(path, folder)).with_suffix("").as_posix()


def machine_name(question: Question, folder: Path) -> str:
    """What the lock calls the machine that a question starts from."""
    return _named("hardware", question.base_machine.path, folder)


def model_name(question: Question, folder: Path) -> str:
    """What the lock calls the model that a question starts from."""
    return _named("models", question.base_model.document.path, folder)


# Machines, models, switches ---------------------------------------------------------------------------------------


def _constants(questions: Sequence[Question], folder: Path) -> Iterator[tuple[str, ConstantFact]]:
    machines = {machine_name(question, folder): question.base_machine for question in questions}
    for key, machine in machines.items():
        yield from ((f"{key}.{path}", fact) for path, fact in machine_facts(machine))


def machine_facts(machine: Machine) -> Iterator[tuple[str, ConstantFact]]:
    """Every figure of a machine, every property of its levels that is none, and every curve, by its path."""
    figures = machine.constants()
    for one in figures:
        source = machine.sources.get(one.source)
        said = f"{source.title} (read {source.read})" if source else ""
        yield one.path, ConstantFact(one.value, said, one.kind, one.dimension)
    for at, level in enumerate(machine.levels):
        yield f"levels.{level.name}.place", ConstantFact(at, "", PROFILE)
        for name, value in _properties(level):
            path = f"levels.{level.name}.{name}"
            if not any(one.path == path for one in figures):  # a single launch is a figure, and no list of harnesses
                yield path, ConstantFact(value, "", PROFILE)
    for curve in machine.measured:
        ratios = ", ".join(f"{exact(knot.V)} {knot.fitted / knot.predicted:.4g}" for knot in curve.knots)
        yield curve.path, ConstantFact(ratios, curve.source, "measured")


def _properties(level: Any) -> Iterator[tuple[str, Any]]:
    """What a level states that is no figure; of a map its keys, since what it offers and in which order counts."""
    for one in fields(level):
        value = getattr(level, one.name)
        if one.name == "name" or value is None or value == one.default or isinstance(value, Constant):
            continue
        if isinstance(value, Mapping):
            value = ", ".join(map(str, value))
        elif isinstance(value, tuple | list):
            value = " x ".join(map(str, value))
        yield one.name, str(value) if is_dataclass(value) else value


def _models(questions: Sequence[Question], folder: Path) -> Iterator[tuple[str, Any]]:
    for question in questions:
        key = model_name(question, folder)
        for name, value in asdict(question.base_model.model).items():
            if value is not None and name != "name":
                yield f"{key}.{name}", value


DEFAULTS: Mapping[str, type[Any]] = {
    "": ScenarioFile,
    "layout.": LayoutFields,
    "practice.": PracticeFields,
    "workload.": WorkloadFields,
}
"""Where the defaults of a scenario's fields are stated."""


def _switches(questions: Sequence[Question]) -> Iterator[tuple[str, Any]]:
    """The defaults of a scenario's fields, and the bundles of practices in use."""
    for prefix, model in DEFAULTS.items():
        for name, one in model.model_fields.items():
            if isinstance(one.default, str | int | bool):
                yield f"default.{prefix}{name}", one.default
    yield from ((f"default.dtypes.{name}", dtype) for name, dtype in asdict(Dtypes()).items())
    for base in {question.resolved["practice"]["base"] for question in questions}:
        yield from ((f"practice.{base}.{name}", value) for name, value in asdict(PRACTICES[base]).items())


# Formulas ---------------------------------------------------------------------------------------------------------


def _formulas(questions: Sequence[Question], folder: Path, shelf: Shelf) -> Iterator[tuple[str, Formula]]:
    yield from move_formulas()
    yield from form_formulas()
    priced_by = {(machine_name(one, folder), one.cost_model): one.base_machine for one in questions}
    for (key, cost_model), machine in priced_by.items():
        yield from seconds_formulas(machine, key, cost_model)
    programs = {program_name(question): question for question in questions}
    for key, question in programs.items():
        yield from program_formulas(shelf.lowered(question), key)


def program_name(question: Question) -> str:
    """A structure in eight letters: equal for all sizes of it, another one for another structure."""
    return hashlib.sha256(repr(structure(question)).encode()).hexdigest()[:8]


# Scenarios --------------------------------------------------------------------------------------------------------


def _scenario(plan: PlanResult, folder: Path) -> ScenarioFact:
    return ScenarioFact(
        inputs=dict(_inputs(plan.question, folder)), results=_results(plan), collectives=_collectives(plan)
    )


def _inputs(question: Question, folder: Path) -> Iterator[tuple[str, Any]]:
    """What the scenario came to; of model and machine only what it changes, since the rest is their own."""
    skipped = ("name", "model", "placement", CHANGES)
    resolved = {name: value for name, value in question.resolved.items() if name not in skipped}
    base, own = question.base_model.model, question.model
    yield "model", model_name(question, folder)
    for one in fields(own):
        value = getattr(own, one.name)
        if value != getattr(base, one.name) and value is not None:
            yield f"model.{one.name}", value
    yield "program", program_name(question)
    yield from flat({**resolved, "hardware": machine_name(question, folder)})
    yield from flat(question.resolved.get(CHANGES, {}), "hardware.")


def flat(value: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """A map of maps with paths for keys; what is not stated or empty is left out.

    >>> dict(flat({"mesh": {"x": 2}, "tp": ["x", "y"], "none": None}))
    {'mesh.x': 2, 'tp': 'x, y'}
    """
    for key, one in value.items():
        if isinstance(one, Mapping):
            yield from flat(one, f"{above}{key}.")
        elif isinstance(one, list | tuple):
            yield from [(f"{above}{key}", ", ".join(map(str, one)))] if one else []
        elif one is not None:
            yield f"{above}{key}", one


def _results(plan: PlanResult) -> dict[str, Any]:
    return {
        "step_s": float(plan.step.time_s),
        "compute_s": float(plan.step.compute_s),
        "exposed_s": float(plan.step.exposed_s),
        "flops": number(plan.compute.flops),
        "parameters_bytes": number(plan.memory.parameters),
        "gradients_bytes": number(plan.memory.gradients),
        "optimizer_bytes": number(plan.memory.optimizer),
        "placement": "; ".join(" ".join(line.split()) for line in plan.question.resolved["placement"]),
        STATES_FIT: plan.states_fit,
        **{f"require.{limit.name}": holds for limit, _, holds in plan.requirements},
    }


def _collectives(plan: PlanResult) -> dict[str, CallsFact]:
    found: dict[str, CallsFact] = {}
    for row in plan.rows:
        name = collective_name(row)
        again = sum(other == name or other.startswith(f"{name} #") for other in found)
        found[f"{name} #{again + 1}" if again else name] = _calls(row, plan.question)
    return found


def collective_name(row: Row) -> str:
    """``phase place kind axes array``, e.g. ``forward layers all_gather tensor attention.in``."""
    one = row.collective
    place = "layers" if one.per_layer else "once"
    what = f"{one.op} of {one.block}" if one.array[0].isdigit() else one.array
    return f"{one.where.phase} {place} {one.kind} {','.join(one.axes)} {what}"


def _calls(row: Row, question: Question) -> CallsFact:
    calls = int(row.count)
    return CallsFact(
        calls=calls,
        bytes=number(row.logical_bytes),
        wire=number(row.wire_bytes),
        messages=number(row.timing.steps * calls),
        time_s=float(row.timing.time_s),
        by=_carried_by(row, question),
    )


def _carried_by(row: Row, question: Question) -> str:
    """``nvlink switch ring``: every level with its wires and its algorithm, inner first."""
    wires: dict[str, list[str]] = {}
    for segment in question.placement.route(row.collective.axes):
        wires.setdefault(segment.level, []).append(segment.topology)
    ran = {stage.level: stage.algorithm for stage in row.timing.stages}
    return "; ".join(
        f"{level} {'+'.join(sorted(set(shapes)))} {ran.get(level, row.timing.algorithm)}"
        for level, shapes in wires.items()
    )
