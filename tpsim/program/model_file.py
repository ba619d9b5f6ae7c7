"""The model file: a ``tpsim: model/1`` YAML spec, or a Hugging Face config.json, read as a checked Model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from tpsim.program.huggingface import NAMES, read_config
from tpsim.program.model import FeedForward, Model
from tpsim.program.parameters import parameter_count
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError, Place
from tpsim.quantity.spec import Document, Strict

Count = Annotated[int, Field(strict=True, gt=0)]
Flag = Annotated[bool, Field(strict=True)]

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
    source: SourceFields
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
    params: Annotated[float, Field(gt=0)] | None = None


@dataclass(frozen=True, slots=True)
class ModelRead:
    """A model, the document it was read from, the title of its source, and notes on what was read into it."""

    model: Model
    document: Document
    source: str
    notes: tuple[str, ...] = ()


def load_model(name_or_path: str | Path, *, beside: Path | None = None) -> ModelRead:
    """The model of that library name, or of that file: a model spec (.yaml) or a Hugging Face config (.json).

    beside   folder that a relative path is taken from, the current one if None

    Raises InputError for an unknown name, a file that breaks the format, or sizes that contradict each other.
    """
    text = str(name_or_path)
    path = Path(text) if is_path(text) else spec.find("models", text)
    if is_path(text) and beside is not None and not path.is_absolute():
        path = beside / path
    document = spec.load(path)
    if isinstance(document.data, dict) and "tpsim" not in document.data and path.suffix == ".json":
        imported = read_config(document)
        _check(imported.model, document, _config_keys)
        return ModelRead(imported.model, document, "Hugging Face config.json", imported.notes)
    return _read_spec(document)


def model_names() -> list[str]:
    """Names of the models in the library."""
    return sorted({path.stem for folder in spec.library("models") for path in folder.glob("*.yaml")})


def is_path(text: str) -> bool:
    """True if `text` names a file rather than something in the library."""
    return "/" in text or Path(text).suffix in {".yaml", ".yml", ".json"}


def with_fields(read: ModelRead, fields: Mapping[str, Any]) -> ModelRead:
    """The model with some fields of its file changed, e.g. ``{"vocab_padded": 50304}``; other fields stay.

    A changed model is no longer the published one, so a stated parameter count is dropped.
    """
    changed = spec.merge(_fields(read.model), fields)
    file, document = spec.read(spec.with_data(read.document, changed), ModelFile)
    model = replace(_model(file, document), params=None)
    return ModelRead(model, read.document, read.source, read.notes)
