"""What a lock holds: constants, models, switches, formulas, and what every scenario came to and is made with."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from tpsim import __version__
from tpsim.guard.lock_parts import (
    NO_FORMULAS,
    NO_SWITCHES,
    CallName,
    ConstantFact,
    FormulaFacts,
    LockPart,
    Names,
    ScenarioFact,
    SwitchFacts,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


VERSION = "lock/2"
"""What the first line of its file says."""

TOLERANCE = 1e-9
"""Relative difference up to which two times are the same: what another processor's rounding may do, and no more."""

Kind = Literal["constant", "model", "switch", "formula"]


class Fact(NamedTuple):
    """Where a fact of a lock stands: its kind, what it belongs to and comes and goes with, and its name there."""

    kind: Kind
    owner: Names
    name: str

    def __str__(self) -> str:
        return ".".join((*self.owner, self.name))


class Lock(LockPart):
    """Everything that `tpsim check` compares, one line per fact.

    version    of tpsim that wrote it
    constants  by machine and path
    models     by model and field
    uses       lists of facts, by the names that numbers call them by
    """

    noun: ClassVar[str] = "a lock"
    tpsim: Literal["lock/2"]
    version: Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+")]
    tolerance: Annotated[float, Field(ge=0, lt=1, description="relative, of times; bytes and messages are exact")]
    paths: tuple[str, ...] = Field(description="files and folders of scenarios, from the lock's folder")
    constants: dict[str, dict[str, ConstantFact]]
    models: dict[str, dict[str, Value]]
    switches: SwitchFacts
    formulas: FormulaFacts
    uses: dict[str, Names]
    scenarios: dict[str, ScenarioFact]

    @classmethod
    def empty(cls, **head: Any) -> Lock:
        """A lock that holds nothing yet."""
        nothing: dict[str, Any] = {"constants": {}, "models": {}, "uses": {}, "scenarios": {}}
        groups = {"switches": NO_SWITCHES, "formulas": NO_FORMULAS}
        first: dict[str, Any] = {"tpsim": VERSION, "version": __version__, "tolerance": TOLERANCE, "paths": ()}
        return cls(**first | nothing | groups | head)

    @cached_property
    def facts(self) -> dict[Fact, Any]:
        """Every fact that numbers are made with, by where it stands."""
        sections: tuple[tuple[Kind, Any], ...] = (
            ("constant", self.constants),
            ("model", self.models),
            ("switch", self.switches),
            ("formula", self.formulas),
        )
        return {fact: value for kind, section in sections for fact, value in _facts(kind, (), section)}

    @cached_property
    def listed(self) -> dict[str, frozenset[str]]:
        """The lists of facts, to look names up in."""
        return {name: frozenset(facts) for name, facts in self.uses.items()}

    def made_with(self, name: str, part: CallName | None, quantity: str) -> Iterator[frozenset[str]]:
        """The facts that a number of the scenario `name` is made with, in parts; none for one that is not there."""
        scenario = self.scenarios.get(name)
        if scenario is not None:
            for used in scenario.made_with(part, quantity):
                yield self.listed[used] if used in self.listed else frozenset([used])


def _facts(kind: Kind, owner: Names, section: Any) -> Iterator[tuple[Fact, Any]]:
    """The facts in a section, and in those below it."""
    for name, value in (section if isinstance(section, dict) else section.parts()).items():
        if isinstance(value, dict):
            yield from _facts(kind, (*owner, name), value)
        else:
            yield Fact(kind, owner, name), value
