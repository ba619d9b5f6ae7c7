"""The workloads of inference as a scenario file writes them: a prompt read, new tokens decoded, or both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from tpsim.program.dtypes import Dtype
from tpsim.quantity.errors import InputError, unknown
from tpsim.quantity.spec import Count, Document, Probability, Strict
from tpsim.question.edits import FLAGS
from tpsim.question.foreign_names import FOREIGN
from tpsim.question.scenario_file import (
    DTYPE_FIELDS,
    PRODUCTS,
    Axes,
    AxisSize,
    LayoutFields,
    PipelineFields,
    Products,
    ScenarioFile,
)

Stored = Dtype | Literal["int4", "fp8_128", "mxfp4"]
"""What weights and caches can be stored in: nothing of them is sent, so blocks may share a scale."""

MOST_DRAFTED = 1000
"""No draft runs so far ahead: it is a slip of the keyboard."""

NUMBERS = ("dtype", *DTYPE_FIELDS.values())
"""Fields that are number formats, which say nothing of what is computed."""


class InferenceFields(Strict):
    """What a step of inference computes, and in which number formats."""

    foreign: ClassVar[Mapping[str, str]] = {"block_size": "workload.cache_block"}  # of vLLM, not of a training loop

    # `Inference` is a class of its own: all kinds come to the tokens that are new and those that attention reads.
    batch: Count | Literal["largest"] = Field(1, description="sequences; largest: as many as memory has room for")
    microbatches: Count | None = Field(
        None, description="parts of the batch that are on their way through stages at once; none: all of it is one"
    )
    dtype: Products | None = Field(None, description=PRODUCTS)
    param_dtype: Stored | None = None
    expert_dtype: Stored | None = Field(None, description="of the parameters of experts; none: that of the others")
    vocab_dtype: Stored | None = Field(None, description="of embedding and output; none: that of other parameters")
    cache_dtype: Stored | None = Field(None, description="of keys and values in the cache; none: that of activations")
    cache_block: Count | None = Field(
        None,
        description="tokens of a block of a paged cache: of a sequence the last is half empty; none: none is",
        examples=[16],
    )
    sampling: Literal["gather", "argmax"] = Field(
        "gather", description="how the next token is found where the vocabulary is split"
    )

    @property
    def computed(self) -> dict[str, Any]:
        """What is computed, field by field."""
        return self.model_dump(exclude={*NUMBERS}, exclude_none=True)


Cached = Annotated[int, Field(strict=True, ge=0, description="tokens of it that the cache has already")]
"""Of a prompt the tokens of a prefix that has been read before: of a conversation, of what all prompts begin with."""


class PrefillFields(InferenceFields):
    """A prompt, read at once: its keys and values are written into the cache, its last token is sampled from."""

    noun: ClassVar[str] = "a workload that reads prompts"

    kind: Literal["prefill"]
    prompt: Count = Field(description="tokens of a sequence, those in the cache included", examples=[1024])
    cached: Cached = 0


NO_DRAFT = "none"
"""Instead of a model's name: tokens are drafted for nothing, as by looking them up in the prompt."""


class DraftLayoutFields(Strict):
    """Which axes of the same mesh split a draft and its sequences; over the others it is the same on all chips."""

    noun: ClassVar[str] = "a layout of a draft"

    tp: Axes = ()
    dp: Axes = ()


class SpeculationFields(Strict):
    """Tokens drafted ahead of a model, which verifies all of them in one step."""

    noun: ClassVar[str] = "speculation"
    foreign: ClassVar[Mapping[str, str]] = {"model": "workload.speculation.draft"}  # of vLLM's speculative_config

    tokens: Annotated[int, Field(strict=True, ge=0, le=MOST_DRAFTED)] = Field(
        description="drafted of a sequence in a step; 0: none, as if nothing were stated", examples=[3]
    )
    acceptance: Probability = Field(
        description="of a drafted token, where those before it are accepted; a guess", examples=[0.8]
    )
    draft: str = Field(
        NO_DRAFT,
        description="the model that drafts them, one after another; mtp: the model's own module that predicts a token "
        "further on; none: they cost nothing, as n-grams do",
    )
    layout: DraftLayoutFields | None = Field(
        None, description="of the draft on the same mesh; none: that of the model", examples=[{"dp": "data"}]
    )


class DecodingFields(InferenceFields):
    """New tokens of every sequence, drafted ahead or one by one."""

    speculation: SpeculationFields | None = None


class DecodeFields(DecodingFields):
    """One step of decoding: new tokens of every sequence, against those in its cache."""

    noun: ClassVar[str] = "a workload that decodes"

    kind: Literal["decode"]
    context: Count = Field(
        description="tokens of a sequence that attention reads, the new ones included", examples=[4096]
    )
    tokens: Count = Field(1, description="new tokens of a sequence in a step")


class ServeFields(DecodingFields):
    """A prompt and its reply: the prompt, read at once, gives the first token, a step each of the others."""

    noun: ClassVar[str] = "a workload of prompts and replies"

    kind: Literal["serve"]
    prompt: Count = Field(description="tokens of a sequence, those in the cache included", examples=[1024])
    cached: Cached | None = None
    output: Count = Field(description="tokens of the reply, the first of which is the prompt's", examples=[256])
    step_tokens: Annotated[int, Field(strict=True, ge=2)] | None = Field(
        None,
        description="tokens of a step at most, by which prompts are read in pieces beside decoding (chunked prefill), "
        "of each data shard; none: prompts and replies take turns",
        examples=[2048],
    )

    @property
    def behind(self) -> int:
        """Tokens of a prompt that are not read, for the cache has them."""
        return self.cached or 0

    @property
    def steps(self) -> int:
        """Steps of decoding: one for each token behind the first."""
        return self.output - 1


PROMPTS = "prefill"
"""The section of a scenario that says which servers read its prompts."""


class PromptServer(Strict):
    """Servers of their own that read the prompts of replies: how one is cut, and what else is not the scenario's."""

    noun: ClassVar[str] = "a server of prompts"

    hardware: str | dict[str, Any] | None = Field(None, description="none: that of the servers that decode")
    chips: Count | None = None
    mesh: dict[str, AxisSize] = Field(examples=[{"tensor": 8}])
    placement: dict[str, Axes] | None = None
    layout: LayoutFields | None = None
    shardings: dict[str, dict[str, Axes]] | None = None
    pipeline: PipelineFields | None = None
    batch: Count | Literal["largest"] | None = Field(None, description="prompts read at once; none: the workload's")
    microbatches: Count | None = Field(None, description="parts of these in its stages at once; none: all are one")


ReadPrompts = Annotated[
    PromptServer | None,
    Field(description="of prompts and replies: servers of their own that read the prompts; none: the same"),
]
"""That section as a scenario has it."""


class PrefillScenario(ScenarioFile):
    """A scenario that reads prompts."""

    workload: PrefillFields  # type: ignore[assignment]  # instead of that of training


class DecodeScenario(ScenarioFile):
    """A scenario that decodes."""

    workload: DecodeFields  # type: ignore[assignment]  # likewise


class ServeScenario(ScenarioFile):
    """A scenario of prompts and replies."""

    workload: ServeFields  # type: ignore[assignment]  # likewise
    prefill: ReadPrompts = None


SCENARIOS: Mapping[str, type[ScenarioFile]] = {
    "prefill": PrefillScenario,
    "decode": DecodeScenario,
    "serve": ServeScenario,
}
"""Kind of workload -> the format of a scenario that has it; any other kind is one of training, or unknown."""


def refuse_unknown_kind(document: Document) -> None:
    """Refuse a kind of workload that there is not, with those that there are. Raises InputError."""
    kind = _kind(document.data)
    if kind not in (TRAIN, *SCENARIOS):
        raise unknown(kind, "kind of workload", (TRAIN, *SCENARIOS), document.place("workload", "kind"))


TRAIN = "train"


def refuse_no_replies(document: Document) -> None:
    """Refuse servers that read prompts for others where nobody replies. Raises InputError."""
    if document.data.get(PROMPTS) is not None and format_of(document.data) is not ServeScenario:
        message = f"{PROMPTS} says which servers read the prompts of replies, and nothing here replies to any"
        remedy = "write workload: {kind: serve, prompt: .., output: ..}, or remove it"
        raise InputError.one("no-replies", message, document.key_place(PROMPTS), remedy)


def _kind(data: Mapping[str, Any]) -> str:
    """The kind of a scenario's workload; of training where it states none, or no word."""
    workload = data.get("workload")
    kind = workload.get("kind") if isinstance(workload, Mapping) else None
    return kind if isinstance(kind, str) else TRAIN


def served_as(data: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """By its flag the field of a workload of training, and the one that the inference of a scenario has for it."""
    kind = _kind(data)
    if kind not in SCENARIOS:
        return {}
    return {"batch": ("global_batch", "batch"), "seq": ("seq", "context" if kind == "decode" else "prompt")}


def foreign_to(data: Mapping[str, Any]) -> dict[str, str]:
    """What others call the fields of a scenario, flags and workloads of other kinds too -> its path for each."""
    own = {field: f"workload.{served}" for field, served in served_as(data).values()}
    paths = {word: own.get(path.removeprefix("workload."), path) for word, path in FOREIGN.items()}
    flags = {path: own.get(path.removeprefix("workload."), path) for path in FLAGS}
    others = _of_other_kinds(data)
    as_flags = {
        flag[2:].replace("-", "_"): f"{flags[path]}, as a flag {flag}"
        for path, flag in FLAGS.items()
        if path.removeprefix("workload.") not in others or path != flags[path]
    }
    return {**others, **paths, **own, **as_flags}


def _of_other_kinds(data: Mapping[str, Any]) -> dict[str, str]:
    """Fields that workloads of another kind have, with their path and these kinds."""
    kinds: dict[str, list[str]] = {}
    for kind in (TRAIN, *SCENARIOS):
        for field in sorted(fields_of_workload({"workload": {"kind": kind}}) - fields_of_workload(data)):
            kinds.setdefault(field, []).append(kind)
    return {field: f"workload.{field}, where workload.kind is {' or '.join(names)}" for field, names in kinds.items()}


def fields_of_workload(data: Mapping[str, Any]) -> frozenset[str]:
    """The fields that a scenario's workload can have, by its kind."""
    workload: Any = format_of(data).model_fields["workload"].annotation
    return frozenset(workload.model_fields)


def format_of(data: Mapping[str, Any]) -> type[ScenarioFile]:
    """The format of a scenario with that content."""
    return SCENARIOS.get(_kind(data), ScenarioFile)
