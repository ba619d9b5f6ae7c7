"""The model file: a ``tpsim: model/1`` YAML spec, or a Hugging Face config.json, read as a checked Model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from tpsim.program.model import FLAT, Attention, FeedForward, Latent, Model, Moe, Positions, as_stated, dense
from tpsim.program.names import FOREIGN, NAMES
from tpsim.program.transformer import parameter_count
from tpsim.quantity import spec
from tpsim.quantity.errors import At, InputError, Place, did_you_mean
from tpsim.quantity.spec import Count, Document, Flag, Strict
from tpsim.quantity.spec.document import EXTENDS

if TYPE_CHECKING:
    from tpsim.program.kinds_file import Block, ModelFile2

DROPOUT = "share of attention's weights, and of what joins the stream, that training drops"

REPOSITORY = r"[\w-]+/[\w.-]+(?<!\.yaml)(?<!\.yml)(?<!\.json)"
"""How Hugging Face names a model: ``meta-llama/Llama-3-8B``."""

PARAMS_TOLERANCE = 0.01
"""A stated parameter count may differ from the computed one by this share: published counts are rounded."""


class ModelSourceFields(Strict):
    """Where the sizes were read, and when."""

    title: str
    read: str = ""


class FeedForwardFields(Strict):
    """The kind of the feed-forward and its hidden size f."""

    kind: FeedForward
    hidden: Count


class ModelFile(Strict):
    """A dense decoder-only transformer; sizes are counts."""

    # `Model` is a class of its own: a model whose layers are alike is a special case of it, see `dense`.
    tpsim: Literal["model/1"]
    name: str = Field(examples=["my-model"])
    source: ModelSourceFields | None = None
    hidden: Count = Field(examples=[4096])
    layers: Count = Field(examples=[32])
    heads: Count = Field(examples=[32])
    kv_heads: Count | None = None
    head_dim: Count | None = None
    ffn: FeedForwardFields = Field(examples=[{"kind": "swiglu", "hidden": 14336}])
    vocab: Count = Field(examples=[32000])
    vocab_padded: Count | None = None
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    bias: Flag = False
    qkv_bias: Flag = False
    positions: Positions = "rope"
    max_positions: Count | None = None
    parallel_residual: Flag = False
    shared_norm: Flag = False
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
    """The model of that library name, or of that file: a model spec (.yaml), a Hugging Face config or its folder.

    beside   folder that a relative path is taken from

    Raises InputError for an unknown name, a file that breaks the format, or sizes that contradict each other.
    """
    path = spec.named("models", str(name_or_path), beside)
    if re.fullmatch(REPOSITORY, str(name_or_path)) and not path.exists():
        other = "of a model of Hugging Face give its config.json: path/to/config.json"
        near = did_you_mean(path.name, spec.names("models"))
        raise InputError.one("no-such-file", f"there is no file {name_or_path}", None, near or other, near and other)
    document = spec.load(path / "config.json" if path.is_dir() else path)
    if "tpsim" not in document.data and document.path.endswith(".json"):
        from tpsim.program.huggingface import read_config

        model, notes = read_config(document)
        check_sizes(model, lambda field: _config_place(document, field))
        return ModelRead(model, document, "Hugging Face config.json", notes)
    if EXTENDS in document.data:
        of = document.data[EXTENDS]
        remedy = (
            f"say there what is changed: model: {{extends: {of}, layers: 16}}; or --model {of} --set model.layers=16"
        )
        place = document.key_place(EXTENDS)
        raise InputError.one("extends-no-model", "a scenario extends a model, a model's file does not", place, remedy)
    file, document = _read(document)
    return ModelRead(model_of(file, document.place), document, file.source.title if file.source else "")


def _read(document: Document) -> tuple[ModelFile | ModelFile2, Document]:
    """The file in the version that it is of; what is neither is measured by the first."""
    if not re.fullmatch(r"model/([2-9]|\d\d+)", str(document.data.get("tpsim"))):
        return spec.read(document, ModelFile, foreign=FOREIGN["model/1"])
    from tpsim.program.kinds_file import ModelFile2, refuse_unknown_blocks

    refuse_unknown_blocks(document)
    return spec.read(document, ModelFile2, foreign=FOREIGN["model/2"])


def with_fields(read: ModelRead, changes: Document) -> ModelRead:
    """The model with some fields of its file changed, e.g. ``{"vocab_padded": 50304}``; the others stay.

    So they do of a block or a feed-forward: ``{"blocks": {"sparse": {"experts": 128}}}``.
    A changed model is no longer the published one: its parameter count is not held against the published one.

    Raises InputError with every mistake in the changes.
    """
    base = read.document.data if "tpsim" in read.document.data else _as_file(read)
    own = {key: value for key, value in base.items() if key not in ("params", "active")}
    over = {key: _laid_on(own.get(key), value) for key, value in changes.data.items() if key != EXTENDS}
    document = spec.with_data(changes, own | over)
    file, _ = _read(document)
    return ModelRead(model_of(file, document.place), read.document, read.source, read.notes)


def _laid_on(base: Any, over: Any) -> Any:
    """A field as changed: maps merge, anything else replaces, and so does a block that says what it is."""
    if not isinstance(base, Mapping) or not isinstance(over, Mapping) or any(map(_says, over.items())):
        return over
    return {**base, **{key: _laid_on(base.get(key), value) for key, value in over.items()}}


def _says(field: tuple[Any, Any]) -> bool:
    """True for the field of a block that says what it is: ``attention: gqa``."""
    name, value = field
    return name in ("attention", "ffn") and isinstance(value, str)


def model_of(file: ModelFile | ModelFile2, at: At) -> Model:
    """The model that a file describes; what it leaves out follows from the rest.

    kv heads are the heads, head_dim is hidden / heads, the padded vocabulary is the vocabulary.
    """
    if not isinstance(file, ModelFile):
        from tpsim.program.kinds_file import model_of_kinds

        for name, block in file.blocks.items():
            check_block(block, file.positions, lambda field, name=name: at("blocks", name, field))
        model = model_of_kinds(file, at)
        check_sizes(model, at)
        return model
    stated = {name: value for name, value in file if name in FLAT and value is not None}
    stated |= {"head_dim": file.head_dim or _head_dim(file, at), "ffn": file.ffn.kind, "ffn_hidden": file.ffn.hidden}
    model = dense(**{"kv_heads": file.heads, "vocab_padded": file.vocab, **stated})
    check_sizes(model, at)
    return model


def check_sizes(model: Model, at: At) -> None:
    """Refuse sizes that contradict each other; `at` gives the place of a field.

    Among them a stated parameter count more than 1 % from the computed one.
    """
    for block in (block for kind in model.kinds.values() for block in (kind.attention, kind.ffn)):
        check_block(block, model.positions, at)
    if model.positions == "learned" and model.max_positions is None:
        _refuse("positions are learned and max_positions is not stated", at("positions"), "add max_positions: 2048")
    if model.vocab_padded < model.vocab:
        _refuse(
            f"vocab_padded {model.vocab_padded} is less than vocab {model.vocab}",
            at("vocab_padded"),
            "padding only adds rows",
        )
    _check_params(model, at)


def check_block(block: Block, positions: Positions, at: At) -> None:
    """Refuse sizes of a block that contradict each other; `at` gives the place of its field."""
    if positions == "rope" and isinstance(block, Attention) and block.rope and block.head_dim % 2:
        remedy = "an even head_dim, or positions: learned"
        _refuse(f"head_dim {block.head_dim} is odd, and rope turns pairs", at("head_dim"), remedy)
    if isinstance(block, Attention) and block.heads % block.kv_heads:
        _refuse(
            f"{block.heads} heads are not divisible by {block.kv_heads} kv_heads",
            at("kv_heads"),
            "every kv head serves the same number of heads",
        )
    if isinstance(block, Attention) and (block.mask != "causal") != (block.window is not None):
        remedy = "a window and a chunk hold so many tokens: write mask: window and window: 4096, or neither"
        _refuse(f"mask {block.mask}, window {block.window or 'not stated'}", at("mask"), remedy)
    if isinstance(block, Latent) and block.rope % 2:
        _refuse(f"rope {block.rope} is odd, and rope turns pairs", at("rope"), "an even number")
    if isinstance(block, Moe) and (block.top > block.experts or block.experts % block.groups):
        message = f"top {block.top} of {block.experts} experts in {block.groups} groups"
        _refuse(message, at("experts"), "groups have as many experts each, and no more work than there are")
    if isinstance(block, Moe) and block.shared_gate and not block.shared:
        _refuse("shared_gate is of what works for every token, and nothing does", at("shared_gate"), "state shared")


def _check_params(model: Model, at: At) -> None:
    """A stated count is that of the sizes; the active ones are published with the embedding's table or without it."""
    total, active = parameter_count(model), parameter_count(model, active=True)
    for field, computed in (("params", (total,)), ("active", (active, active - model.vocab * model.hidden))):
        stated = getattr(model, field)
        if stated is not None and all(abs(count - stated) > PARAMS_TOLERANCE * stated for count in computed):
            _refuse(
                f"{field} says {stated:,.15g}, the sizes make {' or '.join(f'{count:,}' for count in computed)}",
                at(field),
                f"check the sizes, or remove {field}",
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
    nested = ("text_config",) if isinstance(document.data.get("text_config"), dict) else ()
    data = document.data[nested[0]] if nested else document.data
    keys = [key for key in NAMES.get(name, ()) if key in data]
    return document.place(*nested, *keys[:1])


def _as_file(read: ModelRead) -> dict[str, Any]:
    """An imported model as the fields of a model file."""
    fields = as_stated(read.model)
    if "kinds" in fields:
        from tpsim.program.kinds_file import as_file

        return as_file(read.model, read.source)
    kind, hidden = fields.pop("ffn"), fields.pop("ffn_hidden")
    return {"tpsim": "model/1", "source": {"title": read.source}, "ffn": {"kind": kind, "hidden": hidden}, **fields}
