"""The pages of a model and of the list of models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.question.inputs import asked
from tpsim.report.table import Column, Document, Table

if TYPE_CHECKING:
    from tpsim.answers.model import ModelListResult, ModelResult

GROUPS = (Column("group", "group"), Column("parameters", "parameters", "integer"), Column("share", "share", "share"))
MODELS = (
    Column("model", "model"),
    Column("parameters", "parameters", "integer"),
    Column("hidden", "hidden", "integer"),
    Column("layers", "layers", "integer"),
    Column("heads", "heads", "integer"),
    Column("kv_heads", "kv\nheads", "integer"),
    Column("ffn", "ffn"),
    Column("ffn_hidden", "ffn\nhidden", "integer"),
    Column("vocab", "vocab", "integer"),
)
SIZES = ("hidden", "layers", "heads", "kv_heads", "head_dim", "ffn", "ffn_hidden", "vocab")
"""What a page shows of a model; `verbose` shows all its fields."""

SEQ = 4096
"""Tokens per sequence of the plan that a page suggests, if the model has as many positions."""


def page(result: ModelResult, *, verbose: bool) -> Document:
    """A model: its sizes and its parameters by group."""
    model = result.resolved
    shown = {name: value for name, value in model.items() if verbose or name in SIZES}
    padding = result.padding_parameters
    seq = min(SEQ, result.read.model.max_positions or SEQ)
    name = asked("models", result.read.document.path)
    return Document(
        title=result.read.model.name,
        facts=(
            ("source", result.read.source or "not stated"),
            *((name.replace("_", " "), _text(value)) for name, value in shown.items()),
        ),
        tables=(Table(GROUPS, result.records()),),
        notes=(*result.read.notes, *((f"padding of the vocabulary adds {padding:,}",) if padding else ())),
        verdict=result.verdict,
        next_command=f"tpsim plan --model {name} --hw dgx-h100 --dp 8 --seq {seq}",
    )


def list_page(result: ModelListResult, *, verbose: bool) -> Document:
    """Every model of the library in a line; `verbose` adds the sources."""
    records = result.records()
    columns = (*MODELS, Column("source", "source")) if verbose else MODELS
    return Document(
        tables=(Table(columns, records),),
        verdict=result.verdict,
        next_command=f"tpsim model show {records[0]['model']}",
    )


def _text(value: object) -> str:
    """A field as people read it: ``128,256``, ``yes``."""
    if value is None or isinstance(value, bool):
        return "yes" if value else "no" if value is False else "not stated"
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)
