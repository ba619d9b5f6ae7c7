"""The verb `explain`: where a printed number comes from. Its formula, the values in it, its sources, what checks it."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tpsim.algebra.moves import MOVES, wire
from tpsim.answers.derivation import CHECKS, V_MEANS, WIRE_SOURCE, Derivation, symbol
from tpsim.answers.explain_unknown import unknown_alone, unknown_name
from tpsim.answers.plan_derivations import PARTS, derivations, names_in, numbers
from tpsim.fabric.wires import ONE_LINK
from tpsim.quantity import spec
from tpsim.quantity.arguments import checked
from tpsim.quantity.errors import InputError
from tpsim.quantity.units import show
from tpsim.question.inputs import asked, inputs
from tpsim.report.answer import Answer
from tpsim.report.record import Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpsim.machine.constant import Constant
    from tpsim.machine.parts import Machine
    from tpsim.question.edits import Flags


@dataclass(frozen=True)
class ExplainResult(Answer):
    """Where the number called `name` comes from; several derivations if several numbers bear the name.

    asked    how a command line names the scenario again; "" without a scenario
    machine  the same of the machine whose constant it is; "" for other numbers
    wires    the machine, its ranks and their level that a collective was asked on, as a command line says them; or ""
    """

    schema = "tpsim.explain/1"
    told = ("derivations",)

    name: str
    scenario: str | None
    derivations: tuple[Derivation, ...]
    files: tuple[tuple[str, str], ...] = ()
    asked: str = ""
    machine: str = ""
    wires: str = ""

    @property
    def verdict(self) -> str:
        """The first derivation in one line."""
        first, more = self.derivations[0], len(self.derivations) - 1
        return first.sentence + (f"; and {more} more" if more else "")

    def records(self) -> list[dict[str, Any]]:
        """One row per derivation."""
        return [{"name": self.name, "scenario": self.scenario, **derivation.flat()} for derivation in self.derivations]

    @property
    def resolved(self) -> dict[str, Any]:
        """What was asked for."""
        return {"name": self.name, "scenario": self.scenario} | ({"wires": self.wires} if self.wires else {})


@dataclass(frozen=True, slots=True)
class Name(Record):
    """What can be explained: what bears the name, and what it is."""

    name: str
    of: str
    what: str


@dataclass(frozen=True)
class ExplainListResult(Answer):
    """What can be explained: of a plan if a scenario was asked about, else of every plan, collective and machine.

    asked  how a command line names the scenario again; "" without a scenario
    """

    schema = "tpsim.explain-list/1"
    told = ("names",)
    table = "names"

    names: tuple[Name, ...]
    scenario: str | None = None
    files: tuple[tuple[str, str], ...] = ()
    asked: str = ""

    @property
    def verdict(self) -> str:
        """How many there are."""
        return f"{len(self.names)} names{f' of {self.scenario}' if self.scenario else ''} can be explained"

    @property
    def resolved(self) -> dict[str, Any]:
        """What was asked for."""
        return {"scenario": self.scenario}


def explain_list(
    scenario: str | Path | Mapping[str, Any] | None = None, *, overrides: Sequence[str] = (), **flags: Unpack[Flags]
) -> ExplainListResult:
    """Every name that can be explained, of a scenario if one is named or asked by flags as `plan` takes them.

    Raises InputError for a scenario that cannot be planned.
    """
    if scenario is None and not overrides and all(value is None for value in flags.values()):
        kinds = [Name(kind, "collectives", f"wire bytes of one {kind}") for kind in MOVES]
        plans = [Name(name, "every scenario", noun) for name, noun in numbers().items()]
        machines = [Name(name, "machines", "all of its constants") for name in spec.names("hardware")]
        return ExplainListResult((*kinds, *plans, *machines))
    from tpsim.answers.plan import plan

    result = plan(scenario, overrides=overrides, **flags)
    question, machine = result.question, result.question.machine
    own = [Name(name, question.name, noun) for name, noun in names_in(result).items()]
    constants = [
        Name(constant.path, machine.name, show(constant.value, constant.dimension)) for constant in machine.constants()
    ]
    return ExplainListResult((*own, *constants), question.name, tuple(question.inputs), question.asked)


@checked
def explain(
    name: str,
    scenario: str | Path | Mapping[str, Any] | None = None,
    *,
    overrides: Sequence[str] = (),
    ranks: int | None = None,
    level: str | None = None,
    **flags: Unpack[Flags],
) -> ExplainResult:
    """The derivation and provenance of a printed number.

    name      a collective (``all_gather``), an array, block or number of a plan (``per_layer.wire``,
              ``memory.parameters``, ``step.time_s``), a machine's constant (``tpu-v5e.levels.ici.link.bandwidth``,
              ``my-cluster.yaml.chip.memory.bandwidth``), or what joins the members of a level (``host``)
    scenario  whose numbers are meant; all but those of a plan can be explained without one
    overrides  ``path=value`` each, for the scenario
    ranks     of a collective on the machine `hw`: its steps and link bytes on these wires, as `collective` places them
    level     where they lie; None: innermost levels first
    flags     as `plan` takes them: they change the scenario, or ask without one; `hw` alone is the machine of a
              collective or a constant
    Raises InputError for a name that is not known, with the nearest one.
    """
    if scenario is not None and is_scenario(name):
        remedy = f"write: tpsim explain {shlex.quote(str(scenario))} {shlex.quote(name)}"
        raise InputError.one("bad-usage", f"{name} is a scenario, which comes after the name", remedy=remedy)
    options = {flag: value for flag, value in flags.items() if value is not None}
    alone = scenario is None and not overrides and options.keys() <= {"hw"}
    placed = ranks is not None or level is not None
    if alone and (placed or (options and _kind(name) in MOVES)):
        return _on_wires(name, flags.get("hw"), ranks, level)
    if placed:
        message = "ranks and level place a collective on a machine, not on a scenario's"
        raise InputError.one("bad-usage", message, remedy=f"write: tpsim explain {name} --hw dgx-h100 --ranks 8")
    if alone and not options:
        return _alone(name)
    if alone:
        return _of_machine(str(options["hw"]), name)
    from tpsim.answers.plan import plan

    result = plan(scenario, overrides=overrides, **flags)
    machine = result.question.machine
    derived = derivations(result, _kind(name)) or tuple(_constants(machine, name.removeprefix(f"{machine.name}.")))
    if not derived:
        constants = [constant.path for constant in machine.constants()]
        asked = result.question.asked or "-"
        known, noun, lister = list(names_in(result)), f"number of {result.question.name}", f"tpsim explain {asked}"
        raise unknown_name(name, known, noun, lister=lister, constants=constants, scenario=asked)
    return ExplainResult(name, result.question.name, derived, tuple(result.question.inputs), result.question.asked)


def _alone(name: str) -> ExplainResult:
    """What can be said without a scenario: a collective's wire bytes in V and n, or a machine's constant."""
    if _kind(name) in MOVES:
        return ExplainResult(name, None, (_collective(_kind(name)),))
    if topology := next((known for known in ONE_LINK if known == name.replace("-", "_")), None):
        from tpsim.answers.wire_derivations import one_link

        return ExplainResult(name, None, (one_link(topology),))
    machines = sorted(spec.names("hardware"), key=len, reverse=True)
    owner = next((known for known in machines if f"{name}.".startswith(f"{known}.")), None)
    if owner is None and name.removeprefix("result.").partition(".")[0] in PARTS:
        remedy = f"name one: tpsim explain {name} llama3-70b-h100"
        raise InputError.one("missing-scenario", f'"{name}" is a number of a plan and needs a scenario', remedy=remedy)
    if owner is None and is_scenario(name):
        remedy = f"name one: tpsim explain step.time_s {shlex.quote(name)}"
        raise InputError.one("missing-name", f"{name} is a scenario: which of its numbers?", remedy=remedy)
    if owner is None and (file := _file(name)):
        return _of_machine(file, name.removeprefix(file).removeprefix("."))
    if owner is None:
        raise unknown_alone(name)
    return _of_machine(owner, name.removeprefix(owner).removeprefix("."))


def _on_wires(name: str, hw: str | Path | None, ranks: int | None, level: str | None) -> ExplainResult:
    from tpsim.answers.collective import kind_of
    from tpsim.answers.collective_sizes import on_command_line, placed
    from tpsim.answers.wire_derivations import on_wires
    from tpsim.machine.profile import load

    kind = kind_of(name)
    if hw is None or ranks is None:
        lacks, example = ("hw", "dgx-h100") if hw is None else ("ranks", "8")
        message = f"steps and link bytes of {name} are those of so many ranks on a machine"
        raise InputError.one("missing-flag", message, remedy=f"add it: --{lacks} {example}")
    machine = load(hw)
    route = placed(machine, ranks, level)[0].route(["ranks"])
    derived = (replace(_collective(kind), known={"n": ranks}), *(on_wires(machine, route, kind) if route else ()))
    words = on_command_line(machine, ranks, level)
    return ExplainResult(name, None, derived, tuple(inputs(machine)), wires=words)


def _file(name: str) -> str:
    """The file in the name of a constant, ``./my-cluster.yaml.chip.memory.bandwidth``; "" if there is none."""
    ends = [name[: match.end(1)] for match in re.finditer(r"(\.(?:yaml|yml|json))(?:\.|$)", name)]
    return next((file for file in ends if Path(file).is_file()), ends[0] if ends else "")


def is_scenario(name: str) -> bool:
    """True for the name of a scenario of the library, and for a scenario's file."""
    if not spec.is_path(name):
        return name in spec.names("scenarios")
    return Path(name).is_file() and str(spec.load(name).data.get("tpsim")).startswith("scenario/")


def _of_machine(name_or_path: str, path: str) -> ExplainResult:
    """The constants of a machine, by its library name or its file, at `path` or below it."""
    from tpsim.machine.profile import load

    if _kind(path) in MOVES:
        remedy = f"write: tpsim collective {path} --hw {name_or_path} --ranks 8"
        raise InputError.one("bad-usage", f"{path} is no constant of {name_or_path}", remedy=remedy)
    machine = load(name_or_path)
    path = path.removeprefix(machine.name).removeprefix(".") if path.startswith(machine.name) else path
    figures = tuple(_constants(machine, path))
    if not figures:
        known = [constant.path for constant in machine.constants()]
        raise unknown_name(path, known, f"constant of {name_or_path}", lister=f"tpsim hw show {name_or_path}")
    name = f"{machine.name}.{path}".removesuffix(".")
    return ExplainResult(name, None, figures, tuple(inputs(machine)), machine=asked("hardware", machine.path))


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
        meanings={"V": V_MEANS, "n": "devices on the axis"},
        sources=(WIRE_SOURCE,),
        checks=CHECKS["wire"],
    )


def _constants(machine: Machine, path: str) -> list[Derivation]:
    """The constants at `path` or below it."""
    figures = machine.constants()
    return [_constant(machine, one) for one in figures if not path or f"{one.path}.".startswith(f"{path}.")]


def _constant(machine: Machine, constant: Constant) -> Derivation:
    source = machine.sources.get(constant.source)
    return Derivation(
        what=f"{machine.name}.{constant.path}",
        dimension=constant.dimension,
        value=constant.value,
        because=tuple(filter(None, [constant.note])),
        sources=(f"{constant.kind}: {source}" if source else f"{constant.kind}, no source",),
        checks=CHECKS["constant"],
    )
