"""What a scenario demands of its own answer, e.g. ``step: < 30 s``: its fields, and the limits read from them."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from tpsim.program.stages import CutBy
from tpsim.quantity.errors import InputError, Place
from tpsim.quantity.spec import Strict
from tpsim.quantity.units import Dimension, UnitError, parse

Size = Annotated[int, Field(strict=True, gt=0)]


class BestFields(Strict):
    """What the best layout is to be, of all that the mesh of a scenario could be: `search` and `check` look."""

    noun: ClassVar[str] = "the best layout"

    tp: Size | None = None
    dp: Size | None = None
    cp: Size | None = None
    ep: Size | None = None
    pp: Size | None = None
    schedule: str | None = None
    chunks: Size | None = None
    layers: CutBy | None = None
    microbatches: Size | None = None
    microbatch_size: Size | None = None
    zero: Annotated[int, Field(strict=True, ge=0, le=3)] | None = None
    shards: Size | None = Field(None, description="devices that ZeRO shards over, the others hold copies")
    sequence_parallel: Annotated[bool, Field(strict=True)] | None = None
    recompute: Literal["none", "selective", "full"] | None = None
    cache: Literal["heads", "batch", "sequence"] | None = None

    @property
    def stated(self) -> dict[str, Any]:
        """Field -> the value that is asked for."""
        return self.model_dump(exclude_none=True)

    def __str__(self) -> str:
        """In words: ``tp 8, pp 1``."""
        return ", ".join(f"{name} {value}" for name, value in self.stated.items())


SECONDS, BYTES, COUNT = ["< 30 s"], ["< 70 GB"], ["> 50000"]
"""Limits as people write them."""


class RequireFields(Strict):
    """Limits as texts, each a relation and a value, and the best layout."""

    noun: ClassVar[str] = "a requirement"

    step: str | None = Field(default=None, examples=SECONDS)
    step_low: str | None = Field(
        default=None, description="the step at the low end of its band; of training", examples=SECONDS
    )
    step_high: str | None = Field(
        default=None, description="the step at the high end of its band; of training", examples=SECONDS
    )
    exposed: str | None = Field(default=None, examples=SECONDS)
    bubble: str | None = Field(default=None, examples=["< 5 %"])
    memory: str | None = Field(default=None, examples=BYTES)
    peak: str | None = Field(default=None, examples=BYTES)
    mfu: str | None = Field(default=None, examples=["> 40 %"])
    tokens_per_s: str | None = Field(default=None, examples=COUNT)
    ttft: str | None = Field(default=None, description="of inference that reads prompts", examples=SECONDS)
    tpot: str | None = Field(default=None, description="of inference that decodes", examples=SECONDS)
    tokens_per_s_user: str | None = Field(default=None, description="of inference that decodes", examples=COUNT)
    best: BestFields | None = None

    @property
    def stated(self) -> dict[str, Any]:
        """What is required: name -> text, or of the best layout its fields."""
        return {name: value for name, value in self.model_dump(exclude_none=True).items() if value}

    @property
    def limits(self) -> dict[str, str]:
        """The limits among it."""
        return {name: text for name, text in self.stated.items() if name != "best"}


RELATIONS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


@dataclass(frozen=True, slots=True)
class Limit:
    """A demand on the answer, e.g. ``step: < 30 s``: what, the relation, and the bound in SI units."""

    name: str
    relation: str
    bound: float
    text: str

    def holds(self, value: float) -> bool:
        """True if `value` (SI) satisfies the demand."""
        return RELATIONS[self.relation](value, self.bound)


LIMITS: Mapping[str, Dimension] = {
    "step": "seconds",
    "exposed": "seconds",
    "bubble": "ratio",
    "memory": "bytes",
    "peak": "bytes",
    "mfu": "ratio",
    "tokens_per_s": "count",
}
"""What `require` may demand, and the dimension of its bound."""

BANDED: Mapping[str, Dimension] = {"step_low": "seconds", "step_high": "seconds"}
"""Ends of the band of a step: how published runs lie about what is planned decides of them, so that no lock does."""

OF_KIND: Mapping[str, Mapping[str, Dimension]] = {
    "train": BANDED,
    "prefill": {"ttft": "seconds"},
    "decode": {"tpot": "seconds", "tokens_per_s_user": "count"},
    "serve": {"ttft": "seconds", "tpot": "seconds", "tokens_per_s_user": "count"},
}
"""What it may demand, too, by the kind of its workload."""

BOUNDS = {**LIMITS, **BANDED, **OF_KIND["serve"]}


def limits(require: Mapping[str, str], at: Callable[..., Place | None], *, kind: str) -> Iterator[Limit]:
    """The limits of a scenario, read: ``{step: < 30 s}``; `at` says where one stands.

    kind  of workload

    Raises InputError for a bound that cannot be read, and for what only another kind of workload has.
    """
    known = {**LIMITS, **OF_KIND.get(kind, {})}
    for name, text in require.items():
        if name not in known:
            message = f'"{name}" cannot be required of a workload {kind}'
            remedy = "can be required: " + ", ".join(known)
            raise InputError.one("unknown-requirement", message, at("require", name), remedy)
        yield _limit(name, text, at("require", name))


def _limit(name: str, text: str, place: Place | None) -> Limit:
    match = re.fullmatch(rf"({'|'.join(RELATIONS)})\s*(\S.*)", text.strip())
    if match is None:
        raise InputError.one("bad-requirement", f'"{text}" is no limit on {name}', place, _with_relation(name, text))
    try:
        bound = parse(match[2], BOUNDS[name], share=BOUNDS[name] == "ratio")
        return Limit(name, match[1], bound, text.strip())
    except UnitError as error:
        raise InputError.one("bad-requirement", f'"{text}" is no limit on {name}', place, str(error)) from error


def _with_relation(name: str, text: str) -> str:
    """What to write instead: the bound that is stated with a relation, where it is one, else an example."""
    example = RequireFields.model_fields[name].examples
    relation, number = str((example or ["< 30 s"])[0]).split(maxsplit=1)
    try:
        parse(text, BOUNDS[name], share=BOUNDS[name] == "ratio")
    except UnitError:
        return f"write a relation and a value: {relation} {number}"
    return f"write {relation} {text.strip()}"
