"""Plans as saved results hold them: less than a lock, enough for a comparison with another one."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpsim.answers.plan import PlanResult
from tpsim.guard.lock import Lock
from tpsim.guard.lock_of_plans import (
    FLOPS,
    MEMORY,
    REPLY,
    STEP,
    calls_of,
    inputs_of,
    model_facts,
    replied,
    results_of,
)
from tpsim.guard.lock_parts import NO_FORMULAS, ConstantFact, FormulaFact, FormulaFacts, ResultFact, ScenarioFact
from tpsim.guard.moved_numbers import CACHE, HELD, MOVED, OVERHEADS, PROMPT_PEAK, WAITS
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError
from tpsim.question.resolved import FILES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tpsim.quantity.spec import Document, Keys

NUMBERS = ("count", "logical_bytes", "wire_bytes_per_device", "time_s")
NAMES = ("phase", "op", "block", "array", "collective", "axis", "algorithm")


READ = ("tpsim.plan/1", PlanResult.schema)
"""The versions of a saved plan that say what a comparison needs; in the first one `fits` said that states do."""


def saved(of: str | Document) -> Lock:
    """The facts of a file that ``tpsim plan -f json`` or ``-o plan.json`` wrote, or of what it holds.

    Raises InputError for a file that is none, or that lacks what a comparison needs.
    """
    document = spec.load(Path(of), most=spec.LARGE) if isinstance(of, str) else of
    if document.data.get("schema") not in READ:
        remedy = "save one: tpsim plan SCENARIO -o plan.json"
        raise InputError.one("not-a-result", f"{document.path} is no saved plan", document.place("schema"), remedy)
    try:
        _refuse_other_types(document)
        return _recorded(document.data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(document, error) from None


def _refuse_other_types(document: Document) -> None:
    """A file that was changed by hand may have anything where a number or a name is compared."""
    for part, names, type_name in _expected(document.data):
        data = document.value(*part)
        for name in names:
            if not IS[type_name](data[name]):
                message = f"{name} of this saved plan is {data[name]!r}, which is no {type_name}"
                raise InputError.one("damaged-result", message, document.place(*part, name), "save it again")


def _expected(data: Mapping[str, Any]) -> Iterator[tuple[Keys, Sequence[str], str]]:
    """Where a saved plan has what: the way to a part, the names in it, and what each is; some came later."""
    yield ("resolved",), ("name", "hardware"), "name"
    yield ("resolved", "model"), ("name",), "name"
    step, memory = data["result"]["step"], data["result"]["memory"]
    yield ("result", "step"), [*STEP.values(), FLOPS, *(key for key in WAITS if key in step)], "number"
    serve = data["result"].get("serve")
    if reply := replied(serve):
        yield ("result", "serve"), REPLY, "number"
    if reply.get(PROMPT_PEAK) is not None:
        yield ("result", "serve", "servers"), MOVED, "number"
        yield ("result", "serve", "servers", "prompt_memory"), ("peak_bytes", *ROOM), "number"
    later = [key for key in (*MEMORY, CACHE, OVERHEADS) if key not in HELD and memory.get(key) is not None]
    yield ("result", "memory"), [*HELD, *later], "number"
    yield ("result", "memory"), ("fits",), "answer"
    for at in range(len(data["result"]["collectives"])):
        yield ("result", "collectives", at), NUMBERS, "number"
        yield ("result", "collectives", at), NAMES, "name"


ROOM = ("static_bytes", "capacity_bytes")
"""What says whether states fit."""

IS: Mapping[str, Callable[[Any], bool]] = {
    "name": lambda value: isinstance(value, str) and bool(value),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value),
    "answer": lambda value: value is None or isinstance(value, bool),
}
"""What is one."""


def _damaged(document: Document, error: Exception) -> InputError:
    problem = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return InputError.one(
        "damaged-result", f"this saved plan lacks a part ({problem})", document.place("result"), "save it again"
    )


def recorded(plan: PlanResult) -> Lock:
    """The same facts of a plan that is not saved: of its document, without the formulas that nobody reads here."""
    return _recorded({part: getattr(plan, part) for part in ("tpsim", "inputs", "resolved", "result")})


def _recorded(data: Mapping[str, Any]) -> Lock:
    resolved, result = data["resolved"], data["result"]
    model, machine = resolved["model"]["name"], resolved["hardware"]
    lock = Lock.empty(
        version=data["tpsim"],
        constants={machine: dict(_files(data))},
        models={model: dict(model_facts(resolved["model"]))},
        formulas=Version(**NO_FORMULAS.parts(), tpsim=FormulaFact(text=data["tpsim"], samples=(data["tpsim"],))),
    )
    skipped = ("name", "model", "placement", "hardware", FILES)
    rest = {key: value for key, value in resolved.items() if key not in skipped}
    fact = ScenarioFact(
        inputs={"model": model, "hardware": machine, **inputs_of(rest)},
        uses=(ALL,),
        results={name: ResultFact(value=value) for name, value in results_of(result).items()},
        collectives=tuple(calls_of(result["collectives"], (result.get("pipeline") or {}).get("pacing_rank"))),
    )
    return lock.but(uses={ALL: tuple(map(str, lock.facts))}, scenarios={resolved["name"]: fact})


def _files(data: Mapping[str, Any]) -> Iterator[tuple[str, ConstantFact]]:
    """The facts of a machine of which a saved result knows no figures: the hashes of the files that it is made of.

    Each is called as its file, wherever that lay when the plan was made.
    Plans that do not say which those are have them last, behind one that is called as the machine.
    """
    read = {str(file["path"]): file["sha256"] for file in data["inputs"]}
    machine = str(data["resolved"]["hardware"])
    of_its_name = next((at for at, path in enumerate(read) if Path(path).stem == machine), len(read))
    for path in data["resolved"].get(FILES, [*read][of_its_name:]):
        yield f"file {Path(path).name}", ConstantFact(value=read[path][:12], kind="file")


ALL = "all"
"""The one list of facts that every number of a saved result is made with, as far as it is known."""


class Version(FormulaFacts):
    """The formulas of a saved result: those of the tpsim that made it."""

    tpsim: FormulaFact
