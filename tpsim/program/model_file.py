"""The model file: a ``tpsim: model/1`` YAML spec, or a Hugging Face config.json, read as a checked Model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from tpsim.program.counts import parameter_count
from tpsim.program.model import LARGEST, FeedForward, Model, as_stated, dense
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError, Place
from tpsim.quantity.spec import Document, Strict

Count = Annotated[int, Field(strict=True, gt=0, le=LARGEST)]
Flag = Annotated[bool, Field(strict=True)]
At = Callable[..., Place | None]

DROPOUT = "share of attention's weights, and of what joins the stream, that training drops"

PARAMS_TOLERANCE = 0.01
"""A stated parameter count may differ from the computed one by this share: published counts are rounded."""


class SourceFields(Strict):
    """Where the sizes were read, and when."""

    title: str
    read: str = ""


class FeedForwardFields(Strict):
    """The kind of the feed-forward and its hidden size f."""

    kind: FeedForward
    hidden: Count


class ModelFile(Strict):
    """A dense decoder-only transformer; sizes are counts."""

    tpsim: Literal["model/1"]
    name: str
    source: SourceFields | None = None
    hidden: Count
    layers: Count
    heads: Count
    kv_heads: Count | None = None
    head_dim: Count | None = None
    ffn: FeedForwardFields
    vocab: Count
    vocab_padded: Count | None = None
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    bias: Flag = False
    qkv_bias: Flag = False
    positions: Literal["rope", "learned", "none"] = "rope"
    max_positions: Count | None = None
    parallel_residual: Flag = False
    tie_embeddings: Flag = False
    dropout: Annotated[float, Field(ge=0, lt=1, description=DROPOUT)] = 0.0
    params: Annotated[float, Field(gt=0)] | None = None


@dataclass(frozen=True, slots=True)
class ModelRead:
    """A model, the document it was read from, the title of its source if any, and notes on what was read into it."""

    model: Model
    document: Document
    source: str
    notes: tuple[str, ...] = ()


def load_model(name_or_path: str | Path, *, beside: Path = Path()) -> ModelRead:
    """The model of that library name, or of that file: a model spec (.yaml) or a Hugging Face config (.json).

    beside   folder that a relative path is taken from

    Raises InputError for an unknown name, a file that breaks the format, or sizes that contradict each other.
    """
    document = spec.load(spec.named("models", str(name_or_path), beside))
    if "tpsim" not in document.data and document.path.endswith(".json"):
        from tpsim.program.huggingface import read_config

        imported = read_config(document)
        check_sizes(imported.model, lambda field: _config_place(document, field))
        return ModelRead(imported.model, document, "Hugging Face config.json", imported.notes)
    file, document = spec.read(document, ModelFile)
    return ModelRead(model_of(file, document.place), document, file.source.title if file.source else "")


def model_names() -> list[str]:
    """Names of the models in the library."""
    return spec.names("models")


def with_fields(read: ModelRead, changed: Mapping[str, Any], at: At) -> ModelRead:
    """The model with some fields of its file changed, e.g. ``{"vocab_padded": 50304}``; the others stay.

    A changed model is no longer the published one: its parameter count is not held against the published one.
    """
    base = read.document.data if "tpsim" in read.document.data else _as_file(read)
    base = {key: value for key, value in base.items() if key != "params"}
    for key, value in changed.items():
        try:
            spec.read(spec.with_data(read.document, {**base, key: value}), ModelFile)
        except InputError as error:
            raise InputError([replace(one, place=at(key)) for one in error.problems]) from None
    file, _ = spec.read(spec.with_data(read.document, {**base, **changed}), ModelFile)
    return ModelRead(model_of(file, at), read.document, read.source, read.notes)


def model_of(file: ModelFile, at: At) -> Model:
    """The model that a file describes; what it leaves out follows from the rest.

    kv heads are the heads, head_dim is hidden / heads, the padded vocabulary is the vocabulary.
    """
    model = dense(
        name=file.name,
        hidden=file.hidden,
        layers=file.layers,
        heads=file.heads,
        kv_heads=file.kv_heads or file.heads,
        head_dim=file.head_dim or _head_dim(file, at),
        ffn=file.ffn.kind,
        ffn_hidden=file.ffn.hidden,
        vocab=file.vocab,
        vocab_padded=file.vocab_padded or file.vocab,
        norm=file.norm,
        bias=file.bias,
        qkv_bias=file.qkv_bias,
        positions=file.positions,
        max_positions=file.max_positions,
        parallel_residual=file.parallel_residual,
        tie_embeddings=file.tie_embeddings,
        dropout=file.dropout,
        params=file.params,
    )
    check_sizes(model, at)
    return model


def check_sizes(model: Model, at: At) -> None:
    """Refuse sizes that contradict each other; `at` gives the place of a field.

    Among them a stated parameter count more than 1 % from the computed one.
    """
    if model.heads % model.kv_heads:
        _refuse(
            f"{model.heads} heads are not divisible by {model.kv_heads} kv_heads",
            at("kv_heads"),
            "every kv head serves the same number of heads",
        )
    if model.positions == "rope" and model.head_dim % 2:
        _refuse(
            f"head_dim {model.head_dim} is odd, and rope turns pairs",
            at("head_dim"),
            "an even head_dim, or positions: learned",
        )
    if model.positions == "learned" and model.max_positions is None:
        _refuse("positions are learned and max_positions is not stated", at("positions"), "add max_positions: 2048")
    if model.vocab_padded < model.vocab:
        _refuse(
            f"vocab_padded {model.vocab_padded} is less than vocab {model.vocab}",
            at("vocab_padded"),
            "padding only adds rows",
        )
    _check_params(model, at)


def _check_params(model: Model, at: At) -> None:
    computed = parameter_count(model)
    if model.params is not None and abs(computed - model.params) > PARAMS_TOLERANCE * model.params:
        _refuse(
            f"params says {model.params:.4g}, the sizes make {computed:.4g}",
            at("params"),
            "check the sizes, or remove params",
            "more than 1 % apart",
        )


def _refuse(message: str, place: Place | None, remedy: str, note: str = "") -> None:
    raise InputError.one("inconsistent-model", message, place, remedy, note)


def _head_dim(file: ModelFile, at: At) -> int:
    if file.hidden % file.heads:
        _refuse(f"hidden {file.hidden} is not divisible by {file.heads} heads", at("heads"), "state head_dim")
    return file.hidden // file.heads


def _config_place(document: Document, name: str) -> Place | None:
    """Where a config.json has the field of `Model` called `name`."""
    from tpsim.program.huggingface import NAMES

    nested = ("text_config",) if isinstance(document.data.get("text_config"), dict) else ()
    data = document.data[nested[0]] if nested else document.data
    given = [key for key in NAMES.get(name, ()) if key in data]
    return document.place(*nested, *given[:1])


def _as_file(read: ModelRead) -> dict[str, Any]:
    """An imported model as the fields of a model file."""
    said = as_stated(read.model)
    kind, hidden = said.pop("ffn"), said.pop("ffn_hidden")
    return {"tpsim": "model/1", "source": {"title": read.source}, "ffn": {"kind": kind, "hidden": hidden}, **said}
