"""Kinds of layers: a program traces one layer of each, and a chunk of the stack says how many of which it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpsim.program.layout import Practice

ALIKE = "layers"
"""The only kind, where all layers are alike; and the loop of all layers, whatever their kinds."""

RECOMPUTED, KEPT = "recomputed", "kept"
"""Layers of which the practice keeps what it says, and those behind them that keep all that backward reads."""

Layers = tuple[tuple[str, int], ...]
"""Layers in order of execution: a kind, and how many of it follow each other."""


def kinds(practice: Practice) -> tuple[str, ...]:
    """The kinds of a stack, in order of execution."""
    return (ALIKE,) if practice.recompute_layers is None else (RECOMPUTED, KEPT)


def one_each(practice: Practice) -> Layers:
    """What a program traces."""
    return tuple((kind, 1) for kind in kinds(practice))


def stack(practice: Practice, layers: int) -> Layers:
    """So many layers as one chunk has them: first those that are recomputed (Megatron's recompute_method block)."""
    if practice.recompute_layers is None:
        return ((ALIKE, layers),)
    first = min(practice.recompute_layers, layers)
    return ((RECOMPUTED, first), (KEPT, layers - first))
