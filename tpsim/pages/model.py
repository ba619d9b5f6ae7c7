"""The pages of a model and of the list of models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpsim.program.transformer import unwritten
from tpsim.question.inputs import asked
from tpsim.report.table import Column, Page, Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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

PATTERN = ("kinds", "stack")
"""What says which layers there are, where they are of several kinds."""

BEFORE = 3
"""Runs of layers before a cycle that is looked for."""

SEQ = 4096
"""Tokens per sequence of the plan that a page suggests, if the model has as many positions."""


def page(result: ModelResult, *, verbose: bool) -> Page:
    """A model: its sizes and its parameters by group."""
    model = result.resolved
    shown = {name: value for name, value in model.items() if name in SIZES or (verbose and name not in PATTERN)}
    padding, mtp = result.padding_parameters, result.mtp_parameters
    seq = min(SEQ, result.read.model.max_positions or SEQ)
    name = asked("models", result.read.document.path)
    plan = f"tpsim plan --model {name} --hw dgx-h100 --dp 8 --seq {seq}"
    return Page(
        result,
        title=result.read.model.name,
        facts=(
            ("source", result.read.source or "not stated"),
            *((name.replace("_", " "), _text(value)) for name, value in shown.items()),
            *((("output", "the embedding's table"),) if result.read.model.tie_embeddings else ()),
            *_pattern(*(model.get(name) for name in PATTERN)),
        ),
        tables=(Table(GROUPS, result.records()),),
        notes=(
            *result.read.notes,
            *((f"padding of the vocabulary adds {padding:,}",) if padding else ()),
            *((f"modules that predict further tokens add {mtp:,}, beside the tables that they share",) if mtp else ()),
        ),
        next_command="tpsim model list" if any(unwritten(result.read.model)) else plan,
    )


def list_page(result: ModelListResult, *, verbose: bool) -> Page:
    """Every model of the library in a line; `verbose` adds what works for a token, and the sources."""
    records = result.records()
    columns = (*MODELS, Column("active", "active", "integer"), Column("source", "source")) if verbose else MODELS
    return Page(
        result,
        tables=(Table(columns, records),),
        next_command=f"tpsim model show {records[0]['model']}",
    )


def _pattern(kinds: Any, stack: Any) -> Iterator[tuple[str, str]]:
    """The layers in order, and the blocks of each kind; nothing of a model that has none."""
    if not kinds:
        return
    several = len(kinds) > 1
    yield "layers", _runs([f"{many} {kind}" if several else str(many) for kind, many in stack])
    for kind, blocks in kinds.items():
        for block in blocks:
            stated = [f"{name} {_text(value)}" for name, value in block.items() if value not in (None, False)]
            yield kind if several else "each", ", ".join(stated)


def _runs(runs: Sequence[str]) -> str:
    """Layers in order, those of a cycle once; a few may stand before it.

    >>> _runs(["3 dense", "58 sparse"]), _runs(["5 local", "1 global"] * 10 + ["2 local"])
    ('3 dense, 58 sparse', '10 x (5 local, 1 global), 2 local')
    >>> _runs(["1 dense", *["2 local", "1 global"] * 5])
    '1 dense, 5 x (2 local, 1 global)'
    """
    for before in range(min(BEFORE, len(runs)) + 1):
        rest = list(runs[before:])
        for length in range(1, len(rest) // 2 + 1):
            turns = 1
            while rest[turns * length : (turns + 1) * length] == rest[:length]:
                turns += 1
            if turns > 1:
                cycle = f"{turns} x ({', '.join(rest[:length])})"
                return ", ".join([*runs[:before], cycle, *rest[turns * length :]])
    return ", ".join(runs)


def _text(value: object) -> str:
    """A field as people read it: ``128,256``, ``yes``."""
    if value is None or isinstance(value, bool):
        return "yes" if value else "no" if value is False else "not stated"
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)
