"""The fields of `require`: limits on the answer, and what the best layout of all is to be."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from tpsim.quantity.spec import Strict

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
    microbatches: Size | None = None
    microbatch_size: Size | None = None
    zero: Annotated[int, Field(strict=True, ge=0, le=3)] | None = None
    sequence_parallel: Annotated[bool, Field(strict=True)] | None = None
    recompute: str | None = None

    @property
    def stated(self) -> dict[str, Any]:
        """Field -> the value that is asked for."""
        return self.model_dump(exclude_none=True)

    def __str__(self) -> str:
        """In words: ``tp 8, pp 1``."""
        return ", ".join(f"{name} {value}" for name, value in self.stated.items())


class RequireFields(Strict):
    """Limits as texts, each a relation and a value, and the best layout."""

    noun: ClassVar[str] = "a requirement"

    step: str | None = None
    step_low: str | None = Field(default=None, description="the step at the low end of its band; of training")
    step_high: str | None = Field(default=None, description="the step at the high end of its band; of training")
    exposed: str | None = None
    bubble: str | None = None
    memory: str | None = None
    peak: str | None = None
    mfu: str | None = None
    tokens_per_s: str | None = None
    ttft: str | None = Field(default=None, description="of inference that reads prompts")
    tpot: str | None = Field(default=None, description="of inference that decodes")
    tokens_per_s_user: str | None = Field(default=None, description="of inference that decodes")
    best: BestFields | None = None

    @property
    def stated(self) -> dict[str, Any]:
        """What is required: name -> text, or of the best layout its fields."""
        return {name: value for name, value in self.model_dump(exclude_none=True).items() if value}

    @property
    def limits(self) -> dict[str, str]:
        """The limits among it."""
        return {name: text for name, text in self.stated.items() if name != "best"}
