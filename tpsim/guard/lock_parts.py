"""The parts of a lock: its lines, and what a scenario asks, came to and is made with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeVar, get_args

from pydantic import Field, ValidationInfo, field_validator

from tpsim.quantity.spec import Strict
from tpsim.quantity.units import Dimension
from tpsim.question.resolved import CHANGES

Value = bool | int | float | str
Names = tuple[str, ...]
DIMENSIONS = get_args(Dimension)
FIGURES = ("_s", "_bytes", "flops")
"""How the names of a scenario's results end that are numbers."""


class LockPart(Strict):
    """A part of a lock."""

    def parts(self) -> dict[str, Any]:
        """Its fields as they are."""
        return {name: getattr(self, name) for name in type(self).model_fields}

    def but(self, **changes: Any) -> Self:
        """The same with some fields changed, which are taken to be good; what was worked out of it is not kept."""
        return self.model_construct(**self.parts() | changes)


class FactLine(LockPart):
    """A fact that is one line of the file."""


class Made(FactLine):
    """A line of numbers, and the names of the facts, and of lists of them, that these are made with."""

    uses: Names = ()


class ConstantFact(FactLine):
    """A figure or a property of a machine, with its source in words and its kind."""

    noun: ClassVar[str] = "a constant of a lock"
    value: Value
    source: str = ""
    kind: str
    dimension: Annotated[str, Field(description="of a figure, which is in SI units")] = ""

    @field_validator("dimension")
    @classmethod
    def _of_a_number(cls, dimension: str, info: ValidationInfo) -> str:
        value = info.data.get("value")
        if dimension and (dimension not in DIMENSIONS or isinstance(value, bool | str)):
            raise ValueError("a figure has a number and a dimension, a property neither")
        return dimension


class FormulaFact(FactLine):
    """A formula: its canonical text, which informs, and its exact values at sample sizes, which decide."""

    noun: ClassVar[str] = "a formula of a lock"
    text: str
    samples: Annotated[Names, Field(min_length=1)]


class SwitchFacts(LockPart):
    """The defaults of a scenario's fields, and the bundles of practices in use."""

    noun: ClassVar[str] = "the switches of a lock"
    default: dict[str, Value]
    practice: dict[str, dict[str, Value]]


class FormulaFacts(LockPart):
    """What moves send, closed forms, orders, how a machine's levels make seconds, what programs' structures come to."""

    noun: ClassVar[str] = "the formulas of a lock"
    wire: dict[str, FormulaFact]
    form: dict[str, FormulaFact]
    schedule: dict[str, FormulaFact] = Field(default_factory=dict, description="of pipelines, by name")
    seconds: dict[str, dict[str, dict[str, FormulaFact]]] = Field(description="by cost model, machine and level")
    program: dict[str, dict[str, FormulaFact]] = Field(description="by structure")


NO_SWITCHES = SwitchFacts(default={}, practice={})
NO_FORMULAS = FormulaFacts(wire={}, form={}, schedule={}, seconds={}, program={})


class CallName(NamedTuple):
    """Which calls of a scenario: what tells one of its collectives from the others.

    place  ``layers`` for what runs in every layer, else ``once``
    axis   mesh axes joined by commas, major first
    array  what is moved; of several that travel together their role and blocks
    again  a number from 2 on for calls that are alike in all of this
    """

    phase: str
    place: str
    kind: str
    axis: str
    array: str
    again: int = 1

    @property
    def over(self) -> str:
        """``all_gather over tensor``."""
        return f"{self.kind} over {self.axis}"

    def __str__(self) -> str:
        text = f"{self.phase} {self.place} {self.kind} {self.axis} {self.array}"
        return text if self.again == 1 else f"{text} #{self.again}"


class CallsFact(Made):
    """One collective of a scenario: `calls` equal calls per step and device.

    bytes      logical bytes of one call
    wire       bytes that one device must inject in one call
    messages   messages that wait for one another, over all calls
    time_s     seconds of one call
    levels     what carries it, inner first: level, wires, algorithm
    elsewhere  True where it is one of other stages than the one that the step hangs on: no device has both
    """

    noun: ClassVar[str] = "a collective of a lock"
    phase: str
    place: Literal["layers", "once"]
    kind: str
    axis: str
    array: str
    again: int = 1
    calls: int
    bytes: int | float
    wire: int | float
    messages: int | float
    time_s: float
    levels: tuple[Annotated[Names, Field(min_length=3, max_length=3)], ...]
    elsewhere: bool = False

    @property
    def call(self) -> CallName:
        """What tells it from the others."""
        return CallName(self.phase, self.place, self.kind, self.axis, self.array, self.again)

    @property
    def by(self) -> str:
        """What carries it, in words: ``nvlink switch ring; network switch tree``."""
        return "; ".join(map(" ".join, self.levels))

    @property
    def wire_in_all(self) -> float:
        """Bytes that one device must inject in a step."""
        return self.calls * self.wire

    @property
    def busy_s(self) -> float:
        """Seconds of all calls."""
        return self.calls * self.time_s


class ResultFact(Made):
    """A number or an outcome of a whole scenario."""

    noun: ClassVar[str] = "a result of a lock"
    value: Value


Inputs = dict[str, Value | dict[str, Value]]
"""Fields by name, and those of a section of the scenario's file by the section and their name in it."""

MODEL_CHANGES = "model_changes"
"""The section of what a scenario changes of its model."""

SECTIONS = {MODEL_CHANGES: "model", CHANGES: "hardware"}
"""Sections that the scenario's file calls otherwise."""


class AskedField(NamedTuple):
    """A field of a scenario: its name in a section of the file, ``layout`` and ``zero``; "" for no section."""

    section: str
    name: str

    def __str__(self) -> str:
        return f"{self.section}.{self.name}" if self.section else self.name


BASE = AskedField("practice", "base")
"""The field that names the bundle of a practice."""

M = TypeVar("M", "CallsFact", "ResultFact", "ScenarioFact")


class ScenarioFact(LockPart):
    """A scenario: what it asks, resolved; what it came to; its collectives.

    inputs  its fields: its machine, its model, the structure of its program, ...
    uses    names of the facts, and lists of them, that all of its numbers are made with
    Every number is made with every field of its scenario as well, but a demand, which makes its own outcome alone.
    """

    noun: ClassVar[str] = "a scenario of a lock"
    inputs: Inputs
    uses: Names
    results: dict[str, ResultFact]
    collectives: tuple[CallsFact, ...]

    @field_validator("results")
    @classmethod
    def _are_numbers(cls, results: dict[str, ResultFact]) -> dict[str, ResultFact]:
        wrong = [
            name for name, result in results.items() if name.endswith(FIGURES) and isinstance(result.value, bool | str)
        ]
        if wrong:
            raise ValueError(f"{wrong[0]} is a number")
        return results

    @field_validator("collectives")
    @classmethod
    def _differ(cls, collectives: tuple[CallsFact, ...]) -> tuple[CallsFact, ...]:
        twice = [call for call, times in Counter(calls.call for calls in collectives).items() if times > 1]
        if twice:
            raise ValueError(f"{twice[0]} stands here once")
        return collectives

    @cached_property
    def asked(self) -> dict[AskedField, Any]:
        """Every field."""
        fields: dict[AskedField, Any] = {}
        for name, stated in self.inputs.items():
            if isinstance(stated, dict):
                fields |= {AskedField(SECTIONS.get(name, name), key): value for key, value in stated.items()}
            else:
                fields[AskedField("", name)] = stated
        return fields

    @cached_property
    def calls(self) -> dict[CallName, CallsFact]:
        """The collectives by what tells them apart."""
        return {calls.call: calls for calls in self.collectives}

    @property
    def paced(self) -> tuple[CallsFact, ...]:
        """The collectives of a device that the step hangs on."""
        return tuple(calls for calls in self.collectives if not calls.elsewhere)

    def result(self, name: str) -> Any:
        """A result's value; None if there is none of that name."""
        return self.results[name].value if name in self.results else None

    def made_with(self, part: CallName | None, quantity: str) -> Names:
        """Names of the facts and lists that a number is made with; `part` is its collective, if it is of one."""
        own: CallsFact | ResultFact | None = self.results.get(quantity) if part is None else self.calls.get(part)
        return () if own is None else (*self.uses, *own.uses)

    @property
    def named(self) -> dict[str, None]:
        """Names of every fact and list that any of its numbers is made with."""
        lists = (self.uses, *(fact.uses for fact in (*self.results.values(), *self.collectives)))
        return dict.fromkeys(name for names in lists for name in names)

    def renamed(self, called: Mapping[str, str]) -> ScenarioFact:
        """The same with those facts and lists called otherwise."""

        def renamed(fact: M) -> M:
            return fact.but(uses=tuple(called[name] for name in fact.uses))

        return renamed(self).but(
            results={name: renamed(result) for name, result in self.results.items()},
            collectives=tuple(map(renamed, self.collectives)),
        )
