"""The verb `explain`: where a printed number comes from. Its formula, the values in it, its sources, what checks it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tpsim import __version__
from tpsim.algebra.moves import MOVES, wire
from tpsim.answers.derivations import PARTS, derivations, names_in
from tpsim.answers.derived import CHECKS, Derivation, symbol
from tpsim.answers.hw import constant_record
from tpsim.fabric.wires import ONE_LINK
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError, suggest
from tpsim.question.inputs import inputs
from tpsim.report.answer import Answer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tpsim.machine.profile import Machine

SCHEMA = "tpsim.explain/1"


@dataclass(frozen=True)
class ExplainResult(Answer):
    """Where the number called `name` comes from; several derivations if several numbers bear the name.

    asked  how a command line names the scenario again; "" without a scenario
    wires  the machine, its ranks and their level that a collective was asked on, as a command line says them; or ""
    """

    name: str
    scenario: str | None
    derivations: tuple[Derivation, ...]
    files: tuple[tuple[str, str], ...] = ()
    asked: str = ""
    wires: str = ""

    @property
    def verdict(self) -> str:
        """The first derivation in one line."""
        first, more = self.derivations[0], len(self.derivations) - 1
        return first.sentence + (f"; and {more} more" if more else "")

    def records(self) -> list[dict[str, Any]]:
        """One row per derivation."""
        return [{"name": self.name, "scenario": self.scenario, **one.record()} for one in self.derivations]

    def to_json(self) -> dict[str, Any]:
        """The whole document."""
        return {
            "schema": SCHEMA,
            "tpsim": __version__,
            "inputs": [{"path": path, "sha256": digest} for path, digest in self.files],
            "resolved": {"name": self.name, "scenario": self.scenario} | ({"wires": self.wires} if self.wires else {}),
            "result": {"derivations": [one.to_json() for one in self.derivations]},
            "assumptions": [],
            "not_modelled": [],
        }


def explain(
    name: str,
    scenario: str | Path | Mapping[str, Any] | None = None,
    *,
    overrides: Sequence[str] = (),
    ranks: int | None = None,
    level: str | None = None,
    **flags: Any,
) -> ExplainResult:
    """The derivation and provenance of a printed number.

    name      a collective (``all_gather``), an array, block or number of a plan (``per_layer.wire``,
              ``memory.parameters``, ``step.time_s``), a machine's constant (``tpu-v5e.levels.ici.link.bandwidth``), or
              what joins the members of a level (``host``)
    scenario  whose numbers are meant; all but those of a plan can be explained without one
    ranks     of a collective on the machine `hw`: its steps and link bytes on these wires, as `collective` places them
    level     where they lie; None: innermost levels first
    flags     as `plan` takes them

    Raises InputError for a name that is not known, with the nearest one.
    """
    if scenario is None and (ranks is not None or (set(flags) == {"hw"} and _kind(name) in MOVES)):
        return _on_wires(name, flags.pop("hw", None), ranks, level, **flags)
    if scenario is None and not flags:
        return _alone(name)
    from tpsim.answers.plan import plan

    result = plan(scenario, overrides=overrides, **flags)
    machine = result.question.machine
    found = derivations(result, _kind(name)) or tuple(_constants(machine, name.removeprefix(f"{machine.name}.")))
    if not found:
        constants = [one.path for one in machine.constants()]
        raise _unknown(name, names_in(result), f"number of {result.question.name}", constants)
    return ExplainResult(name, result.question.name, found, tuple(result.question.inputs), result.question.asked)


def _alone(name: str) -> ExplainResult:
    """What can be said without a scenario: a collective's wire bytes in V and n, or a machine's constant."""
    from tpsim.machine.profile import load, names

    if _kind(name) in MOVES:
        return ExplainResult(name, None, (_collective(_kind(name)),))
    for topology in ONE_LINK:
        if topology == name.replace("-", "_"):
            from tpsim.answers.wire_derivations import one_link

            return ExplainResult(name, None, (one_link(topology),))
    owner = next(
        (one for one in sorted(names(), key=len, reverse=True) if name == one or name.startswith(f"{one}.")), None
    )
    if owner is None and name.removeprefix("result.").partition(".")[0] in PARTS:
        remedy = f"name one: tpsim explain {name} llama3-70b-h100"
        raise InputError.one("missing-scenario", f'"{name}" is a number of a plan and needs a scenario', remedy=remedy)
    if owner is None and (spec.is_path(name) or name in spec.names("scenarios")):
        raise _all_names(name)
    if owner is None:
        raise _unknown(name, [*MOVES, *ONE_LINK, *names()], "number that can be explained without a scenario")
    machine = load(owner)
    found = tuple(_constants(machine, name.removeprefix(owner).removeprefix(".")))
    if not found:
        paths = [f"{owner}.{constant.path}" for constant in machine.constants()]
        raise _unknown(name, paths, f"constant of {owner}")
    return ExplainResult(name, None, found, tuple(inputs(machine)))


def _on_wires(name: str, hw: str | None, ranks: int | None, level: str | None) -> ExplainResult:
    """A collective on the wires of a machine."""
    from tpsim.answers.collective import kind_of, on_command_line, placed
    from tpsim.answers.wire_derivations import on_wires
    from tpsim.machine.profile import load

    kind = kind_of(name)
    if hw is None or ranks is None:
        lacks, example = ("hw", "dgx-h100") if hw is None else ("ranks", "8")
        message = f"steps and link bytes of {name} are those of so many ranks on a machine"
        raise InputError.one("missing-flag", message, remedy=f"add it: --{lacks} {example}")
    machine = load(hw)
    route = placed(machine, ranks, level)[0].route(["ranks"])
    derived = (replace(_collective(kind), symbols={"n": ranks}), *(on_wires(machine, route, kind) if route else ()))
    words = on_command_line(machine, ranks, level)
    return ExplainResult(name, None, derived, tuple(inputs(machine)), wires=words)


def _all_names(scenario: str) -> InputError:
    """A scenario alone: what can be explained of it."""
    from tpsim.answers.plan import plan

    known = ", ".join(dict.fromkeys(names_in(plan(scenario))))
    message = f"{scenario} is a scenario: which of its numbers?"
    remedy = f"name one: tpsim explain step.time_s {shlex.quote(scenario)}"
    return InputError.one("missing-name", message, remedy=remedy, note=f"known: {known}")


def _kind(name: str) -> str:
    """A collective is written with ``-`` or ``_``."""
    return name.replace("-", "_") if name.replace("-", "_") in MOVES else name


def _collective(kind: str) -> Derivation:
    others = symbol("others")  # n > 1 is decided this way: a formula for one device alone says nothing
    expression = wire(kind, symbol("V"), 1 + others)  # type: ignore[arg-type]  # looked up among MOVES
    expression = expression.subs(others, symbol("n") - 1) if hasattr(expression, "subs") else expression
    return Derivation(
        what=f"wire bytes of one {kind}: what one device must inject, whatever algorithm runs",
        dimension="bytes",
        expression=expression,
        meanings={"V": "bytes of the whole array taking part", "n": "devices on the axis"},
        sources=("How to Scale Your Model, chapter 3, with the finite factor",),
        checks=CHECKS["wire"],
    )


def _constants(machine: Machine, path: str) -> list[Derivation]:
    """The constants at `path` or below it."""
    found = [one for one in machine.constants() if one.path == path or one.path.startswith(f"{path}.") or not path]
    return [_constant(machine, constant_record(machine, one)) for one in found]


def _constant(machine: Machine, record: Mapping[str, Any]) -> Derivation:
    source = machine.sources.get(record["source"] or "")
    said = f"{record['kind']}: {source}" if source else f"{record['kind']}, no source"
    return Derivation(
        what=f"{machine.name}.{record['constant']}",
        dimension=record["dimension"],
        value=record["value"],
        because=tuple(filter(None, [record["note"]])),
        sources=(said,),
        checks=CHECKS["constant"],
    )


def _unknown(name: str, known: Sequence[str], what: str, constants: Sequence[str] = ()) -> InputError:
    """The refusal: the nearest name, else all but the constants, which `tpsim hw show` lists."""
    near = suggest(name, [*known, *constants])
    return InputError.one(
        "unknown-name",
        f'"{name}" is not a {what}',
        remedy=f'did you mean "{near}"?' if near else "",
        note="" if near else f"known: {', '.join(dict.fromkeys(known))}",
    )
