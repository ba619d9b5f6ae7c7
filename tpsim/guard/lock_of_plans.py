"""The facts of a lock: machines, models, switches and formulas that scenarios use, and what the scenarios came to."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpsim.answers.plan import PlanResult, priced
from tpsim.answers.stages import names
from tpsim.fabric.placement import in_one_line
from tpsim.guard.formulas import form_formulas, move_formulas, program_formulas, schedule_formulas, seconds_formulas
from tpsim.guard.lock import Lock
from tpsim.guard.lock_parts import (
    MODEL_CHANGES,
    NO_FORMULAS,
    AskedField,
    CallName,
    CallsFact,
    FormulaFact,
    FormulaFacts,
    Inputs,
    ResultFact,
    ScenarioFact,
    SwitchFacts,
)
from tpsim.guard.moved_numbers import CACHE, HELD, MOVED, OVERHEADS, PROMPT_PEAK, STATES_FIT, TPOT, WAITS
from tpsim.guard.uses import DRAFT, Lists, Uses, machine_facts, program_name
from tpsim.program.dtypes import Dtypes
from tpsim.program.frameworks import PRACTICES
from tpsim.program.model import as_stated
from tpsim.question.inputs import asked
from tpsim.question.memo import Memo
from tpsim.question.prices import route_over
from tpsim.question.requirements import BANDED
from tpsim.question.resolved import CHANGES, FILES
from tpsim.question.scenario import resolve
from tpsim.question.scenario_file import LayoutFields, PracticeFields, ScenarioFile, WorkloadFields
from tpsim.question.serving import draft_of, prefill_of
from tpsim.question.serving_file import PROMPTS
from tpsim.report.record import plain

if TYPE_CHECKING:
    from tpsim.cost.rollup import Row
    from tpsim.guard.formulas import Formula
    from tpsim.quantity.spec import Document
    from tpsim.question.question import Question


def current_lock(scenarios: Mapping[str, Document], known: Lock, folder: Path, *, texts: bool) -> Lock:
    """Everything that a lock in `folder` holds of these scenarios, as it is now.

    scenarios  by their names in the lock
    known      the lock before: its tolerance and paths stay, and so do texts of formulas whose samples do
    texts      True: texts of the other formulas are made, which loads sympy
    Raises InputError for a scenario that is wrong.
    """
    memo = Memo()
    plans = {name: priced(resolve(document, memo=memo), memo) for name, document in scenarios.items()}
    return facts(plans, known, folder, memo, texts=texts)


def facts(plans: Mapping[str, PlanResult], known: Lock, folder: Path, memo: Memo, *, texts: bool) -> Lock:
    """The lock of these plans."""
    questions = list(_servers(plans))
    formulas = _formulas(questions, known.formulas, folder, memo, texts=texts)
    return asked_facts(plans, folder, formulas).but(tolerance=known.tolerance, paths=known.paths)


def asked_facts(plans: Mapping[str, PlanResult], folder: Path, formulas: FormulaFacts = NO_FORMULAS) -> Lock:
    """The lock of these plans; without formulas, which do not differ between two plans of one tpsim."""
    questions = list(_servers(plans))
    machines = {machine_name(question, folder): question.base_machine for question in questions}
    with_drafts = [*questions, *(question.draft for question in questions if question.draft)]
    models = {model_name(question, folder): question.base_model.model for question in with_drafts}
    lists = Lists(
        Lock.empty(
            constants={name: dict(machine_facts(machine)) for name, machine in machines.items()},
            models={name: dict(model_facts(as_stated(model))) for name, model in models.items()},
            switches=_switches(questions),
            formulas=formulas,
        )
    )
    scenarios = {name: _scenario(plan, folder, lists) for name, plan in plans.items()}
    return lists.lock.but(uses=lists.known, scenarios=scenarios)


def _servers(plans: Mapping[str, PlanResult]) -> Iterator[Question]:
    """What is asked of every server of these plans: of one that reads prompts alone, too."""
    for plan in plans.values():
        yield from filter(None, (plan.question, plan.question.prompts))


def model_facts(stated: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every field of a model as stated, or as a saved plan has it, those of the blocks of its kinds by their paths."""
    fields = dict(stated)
    kinds, stack = fields.pop("kinds", {}), fields.pop("stack", ())
    blocks = [(f"{kind}.{next(iter(block))}", block) for kind, pair in kinds.items() for block in pair]
    fields |= {f"{path}.{name}": value for path, block in blocks for name, value in block.items()}
    fields |= {"stack": ", ".join(f"{many} {kind}" for kind, many in stack)} if stack else {}
    fields |= {"mtp": " of ".join(map(str, fields["mtp"][::-1]))} if fields.get("mtp") else {}
    yield from ((name, value) for name, value in fields.items() if name != "name" and value is not None)


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


DEFAULTS: Mapping[str, type[Any]] = {
    "": ScenarioFile,
    "layout": LayoutFields,
    "practice": PracticeFields,
    "workload": WorkloadFields,
}
"""Where the defaults of a scenario's fields are stated, by the section of the file."""


def _switches(questions: Sequence[Question]) -> SwitchFacts:
    """The defaults of a scenario's fields, and the bundles of practices in use."""
    stated = {
        AskedField(section, name): declared.default
        for section, model in DEFAULTS.items()
        for name, declared in model.model_fields.items()
    }
    stated |= {AskedField("dtypes", name): dtype for name, dtype in asdict(Dtypes()).items()}
    bases = {question.resolved["practice"]["base"] for question in questions}
    return SwitchFacts(
        default={str(field): value for field, value in stated.items() if isinstance(value, str | int | bool)},
        practice={base: dict(_flat(PRACTICES[base].switches)) for base in bases},
    )


def _formulas(
    questions: Sequence[Question], known: FormulaFacts, folder: Path, memo: Memo, *, texts: bool
) -> FormulaFacts:
    def sampled(formulas: Iterable[tuple[str, Formula]], before: Mapping[str, FormulaFact]) -> dict[str, FormulaFact]:
        return {name: formula.fact(before.get(name), texts=texts) for name, formula in formulas}

    seconds: dict[str, dict[str, dict[str, FormulaFact]]] = {}
    machines = {(question.cost_model, machine_name(question, folder)): question.base_machine for question in questions}
    for (model, key), machine in machines.items():
        before = known.seconds.get(model, {}).get(key, {})
        seconds.setdefault(model, {})[key] = sampled(seconds_formulas(machine, model), before)
    several = [*questions, *filter(None, map(draft_of, questions))]
    several += [prefill_of(question) for question in several if question.workload.kind == "serve"]
    programs = {program_name(question): memo.lowered(question) for question in several}
    return FormulaFacts(
        wire=sampled(move_formulas(), known.wire),
        form=sampled(form_formulas(), known.form),
        schedule=sampled(schedule_formulas(), known.schedule),
        seconds=seconds,
        program={
            key: sampled(program_formulas(program), known.program.get(key, {})) for key, program in programs.items()
        },
    )


# Scenarios --------------------------------------------------------------------------------------------------------

STEP = {"step_s": "time_s", "compute_s": "compute_s", "exposed_s": "exposed_s"}
"""Seconds of a step that every plan has, and what its document calls them."""

FLOPS = "flops_per_device"
"""What a plan's document calls the arithmetic of a step."""

REPLY = ("ttft_s", "reply_s")
"""Seconds of what is asked for beside a step of decoding."""

MEMORY = (*HELD, "kept_bytes", "peak_bytes")
"""What a chip holds: from step to step, and where it holds most."""


def _scenario(plan: PlanResult, folder: Path, lists: Lists) -> ScenarioFact:
    inputs = _inputs(plan.question, folder)
    bare = ScenarioFact(inputs=inputs, uses=(), results={}, collectives=())
    uses = Uses(plan, bare, lists)
    uses_of = uses.of_results()
    placement = in_one_line(plan.question.resolved["placement"])
    results = {**results_of(plan.result, placement), **_best(plan.question)}
    return bare.but(
        uses=uses.shared(),
        results={name: ResultFact(value=value, uses=uses_of[name]) for name, value in results.items()},
        collectives=tuple(_calls(plan, uses)),
    )


NO_FIELD = "none"
"""What a scenario makes of a model's field that it takes away."""

PUBLISHED = ("params", "active")
"""Fields of a model that one which is changed is not held to."""


def _inputs(question: Question, folder: Path) -> Inputs:
    """What the scenario came to; of model and machine only what it changes, since the rest is their own."""
    base, own = (dict(model_facts(as_stated(side))) for side in (question.base_model.model, question.model))
    gone = {name: NO_FIELD for name in base if name not in (*own, *PUBLISHED)}
    changes = gone | {name: value for name, value in own.items() if value != base.get(name)}
    skipped, resolved = ("name", "model", "placement", CHANGES, FILES), dict(question.resolved)
    draft = question.draft if question.draft and question.draft.base_model is not question.base_model else None
    drafted = {DRAFT: model_name(draft, folder)} if draft else {}
    if prompts := question.prompts:
        resolved[PROMPTS] = {**resolved[PROMPTS], "hardware": machine_name(prompts, folder)}
    inputs = inputs_of(
        {
            "model": model_name(question, folder),
            MODEL_CHANGES: changes,
            "program": program_name(question),
            **{name: value for name, value in resolved.items() if name not in skipped},
            "hardware": machine_name(question, folder),
            CHANGES: question.resolved.get(CHANGES, {}),
        }
    )
    work = inputs["workload"]
    return {**inputs, "workload": {**work, **drafted}} if isinstance(work, dict) else inputs


def inputs_of(resolved: Mapping[str, Any]) -> Inputs:
    """Fields as a lock holds them: by section, without those that say nothing.

    >>> inputs_of({"chips": 2, "mesh": {"x": 2}, "layout": {"tp": ["x", "y"], "dp": []}, "require": {}})
    {'chips': 2, 'mesh': {'x': 2}, 'layout': {'tp': 'x, y'}}
    """
    plain = {name: dict(_flat(value)) if isinstance(value, Mapping) else value for name, value in resolved.items()}
    plain.get(PROMPTS, {}).pop("placement", None)  # follows from the rest, as that of the others does
    return {name: value for name, value in plain.items() if value is not None and value != {}}


def _flat(section: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """A map of maps with paths for names; what is not stated or empty is left out."""
    for name, value in section.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        elif isinstance(value, list | tuple) and any(isinstance(entry, Mapping) for entry in value):
            yield from _flat(dict(zip(map(str, range(len(value))), value, strict=True)), f"{above}{name}.")
        elif isinstance(value, list | tuple):
            yield from [(f"{above}{name}", ", ".join(map(str, value)))] if value else []
        elif value is not None:
            yield f"{above}{name}", value


def results_of(result: Mapping[str, Any], placement: str | None = None) -> dict[str, Any]:
    """What a plan came to, as its document says it, by the names that a lock has; nothing of what it does not say.

    placement  in words; None where nobody asks for it
    """
    step, memory = result["step"], result["memory"]
    every = [memory, *([servers["prompt_memory"]] if (servers := (result.get("serve") or {}).get("servers")) else [])]
    return {
        **{name: step[told] for name, told in STEP.items()},
        **{name: step[name] for name in WAITS if step.get(name)},
        **replied(result.get("serve")),
        "flops": step[FLOPS],
        **{name: memory[name] for name in (*MEMORY, CACHE) if memory.get(name) is not None},
        **({OVERHEADS: beside} if (beside := memory.get(OVERHEADS)) else {}),
        **({} if placement is None else {"placement": placement}),
        STATES_FIT: all(held["static_bytes"] <= held["capacity_bytes"] for held in every),
        **{f"require.{demand['name']}": demand["ok"] for demand in result["require"] if demand["name"] not in BANDED},
    }


def replied(served: Mapping[str, Any] | None) -> dict[str, Any]:
    """Seconds of a prompt, and with its reply, of a plan whose step is one of the reply's; of tokens that are no steps.

    Where other servers read prompts what these hold and send is among them.
    """
    if not served:
        return {}
    unlike = served.get("speculation") or served.get("mixed")
    names = (*(REPLY if served.get("reply_s") is not None else ()), *((TPOT,) if unlike else ()))
    servers = served.get("servers")
    beside = {PROMPT_PEAK: servers["prompt_memory"]["peak_bytes"]} if servers else {}
    return {name: served[name] for name in names} | {name: servers[name] for name in MOVED if servers} | beside


def _best(question: Question) -> dict[str, bool]:
    """Whether the best layout of so many chips is as required; copies are looked at where a part of dp is."""
    required = question.stated.file.require.best
    if required is None:
        return {}
    from tpsim.answers.search import search  # loads numpy, which few scenarios need

    copies = ["shards"] if required.shards else []
    best = search(question.stated.document, chips=question.mesh.devices, top=1, vary=copies)
    return {"require.best": bool(best.require) and best.ok}


def _calls(plan: PlanResult, uses: Uses) -> Iterator[CallsFact]:
    rows = plan.collectives
    for fact, row in zip(calls_of(rows, plan.pipeline.pacing_rank if plan.pipeline else None), rows, strict=True):
        levels = tuple(_carried_by(row, plan.question))
        yield fact.but(messages=plain(row.timing.steps * fact.calls), levels=levels, uses=uses.of_row(row))


def calls_of(rows: Iterable[Mapping[str, Any]], pacing_rank: int | None) -> Iterator[CallsFact]:
    """Rows under the interface's names as a lock holds them, without what only a plan knows that is not saved.

    pacing_rank  the stage that the step hangs on; None without stages
    """
    alike: Counter[CallName] = Counter()
    for row in rows:
        place = "once" if row["layer"] is None else "layers"
        array = f"{row['op']} of {row['block']}" if row["array"][0].isdigit() else row["array"]
        call = CallName(row["phase"], place, row["collective"], row["axis"], array)
        alike[call] += 1
        yield CallsFact(
            **call._replace(again=alike[call])._asdict(),
            calls=row["count"],
            bytes=row["logical_bytes"],
            wire=row["wire_bytes_per_device"],
            messages=0,
            time_s=float(row["time_s"]),
            levels=((row["axis"], "wires", row["algorithm"]),),
            elsewhere=pacing_rank is not None and not names(row.get("stage"), pacing_rank),
        )


def _carried_by(row: Row, question: Question) -> Iterator[tuple[str, str, str]]:
    """Every level with its wires and its algorithm, inner first: ``nvlink``, ``switch``, ``ring``."""
    wires: dict[str, list[str]] = {}
    for segment in route_over(question, row.call.parts[0].move):
        wires.setdefault(segment.level, []).append(segment.topology)
    ran = {stage.level: stage.algorithm for stage in row.timing.stages}
    for level, shapes in wires.items():
        yield level, "+".join(sorted(set(shapes))), ran.get(level, row.timing.algorithm)
