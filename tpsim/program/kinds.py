"""Kinds of layers: a program traces one layer of each, and a chunk of the stack says how many of which it has.

A kind is one of the model's, and where the practice recomputes some layers alone, that and whether it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.program.practice import Practice

ALIKE = "layers"
"""The only kind, where all layers are alike; and the loop of all layers, whatever their kinds."""

RECOMPUTED, KEPT = "recomputed", "kept"
"""Layers of which the practice keeps what it says, and those behind them that keep all that backward reads."""

Layers = tuple[tuple[str, int], ...]
"""Layers in order of execution: a kind, and how many of it follow each other."""

ONE: Layers = ((ALIKE, 1),)


FURTHER = "further"
"""In place of a kind, at the end of the stack: a layer that predicts a token further on, with norms and products."""


def further(practice: Practice) -> str:
    """How the practice has that layer: all of it is kept where some layers of a chunk alone are recomputed.

    Source: Megatron-LM at 00611e6, megatron/core/transformer/multi_token_prediction.py, _checkpointed_forward: a
    module is recomputed as layers are, and with recompute_method block not at all.
    """
    return FURTHER if practice.recompute_layers is None else f"{FURTHER}.{KEPT}"


def kinds(practice: Practice, of: Layers = ONE) -> tuple[str, ...]:
    """The kinds of a stack that the model has so, in order of execution."""
    return tuple(kind for layer in dict(of) for kind, _ in _practised(practice, layer, 1, 0))


def one_each(practice: Practice, of: Layers = ONE) -> Layers:
    """What a program traces."""
    return tuple((kind, 1) for kind in kinds(practice, of))


def stack(practice: Practice, layers: int, of: Layers = ONE, start: int = 0) -> Layers:
    """So many layers as one chunk has them: first those that are recomputed (Megatron's recompute_method block).

    of, start  the stack as the model has it, and how many of its layers stand before the chunk
    """
    left = layers if practice.recompute_layers is None else practice.recompute_layers
    return tuple(_chunk(practice, of if len(of) > 1 else ((of[0][0], start + layers),), start, layers, left))


def counted(layers: Layers) -> dict[str, int]:
    """How many layers there are of each kind."""
    counts: dict[str, int] = {}
    for kind, many in layers:
        counts[kind] = counts.get(kind, 0) + many
    return counts


def model_kind(kind: str) -> str:
    """Which of the model's kinds it is."""
    named, _, suffix = kind.rpartition(".")
    return named or (ALIKE if suffix in {RECOMPUTED, KEPT} else suffix)


def keeps_all(kind: str) -> bool:
    """True for layers of which nothing is recomputed though something of others is."""
    return kind.rpartition(".")[2] == KEPT


def _chunk(practice: Practice, of: Layers, start: int, layers: int, left: int) -> Iterator[tuple[str, int]]:
    for kind, many in of:
        before, start = min(start, many), max(0, start - many)
        count = min(many - before, layers)
        if count or len(of) == 1:
            yield from _practised(practice, kind, count, min(left, count))
        layers, left = layers - count, max(0, left - count)
        if not layers:
            return


def _practised(practice: Practice, kind: str, many: int, recomputed: int) -> Layers:
    """Layers of one of the model's kinds, the first so many of which are recomputed."""
    if practice.recompute_layers is None:
        return ((kind, many),)
    first, second = (RECOMPUTED, KEPT) if kind == ALIKE else (f"{kind}.{practised}" for practised in (RECOMPUTED, KEPT))
    return ((first, recomputed), (second, many - recomputed))
