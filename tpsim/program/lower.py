"""From a model and a layout to the program of one training step: forward, backward, update."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from tpsim.program.acts import parted
from tpsim.program.kinds import ALIKE, one_each, stack
from tpsim.program.op import Array, Program, Where
from tpsim.program.parameters import Parameter, parameters
from tpsim.program.trace import Path, Trace, book_path
from tpsim.program.transformer import FUSED, Transformer
from tpsim.program.transpose import Backward
from tpsim.program.update import Update

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.program.kinds import Layers
    from tpsim.program.layout import Dtypes, Layout, Practice
    from tpsim.program.model import Model

ROOT = Where("F", "embedding", "embedding")
BLOCKS = {"embedding": "embedding", "attention": "attention", "mlp": "mlp", "norms": "norm", "output": "head"}
"""The block in which a group of parameters is used."""


def lower(
    model: Model,
    layout: Layout,
    practice: Practice,
    dtypes: Dtypes,
    order: tuple[str, ...],
    *,
    layers: int | tuple[int | Layers, ...] | None = None,
    microbatches: int = 1,
    path: Path = book_path,
) -> Program:
    """The typed program of a training step of `model` under `layout`, which may part what `practice` fuses.

    order         mesh axes, major first
    layers        layers to trace, one of each kind unless stated; of each chunk, where the stack is cut into several
    microbatches  microbatches to trace
    path          chooses the moves of a reshard; the book's greedy path unless stated
    Raises ShardingError if the layout asks for what the algebra forbids, with the reason in the notation.
    """
    trace, practice = Trace(layout, order, ROOT, path=path), practice.under(layout)
    stacks = stacks_of(layers, practice)
    weights = leaves_of(trace, model, practice, dtypes, stacks)
    transformer, backward = Transformer(trace, model, practice, dtypes, weights), Backward(trace, practice)
    update = Update(trace, layout, practice, dtypes)
    gradients: dict[tuple[Array, int], list[Array]] = defaultdict(list)
    losses = []
    for microbatch in range(microbatches):
        with trace.at(ROOT.inside("microbatches", microbatch)):
            start = len(trace.ops)
            losses.append(transformer.forward(stacks))
            uses = backward.run(trace.ops[start:], losses[-1])
        for weight, parts in uses.items():
            for chunk, mine in _by_chunk(trace, weight, parts):
                where = replace(trace.producer[weight].where, chunks=(chunk,))
                with trace.at(where.inside("microbatches", microbatch)):
                    gradients[weight, chunk] += update.added(weight, mine)
    with trace.at(replace(ROOT, block="loss", place="head", chunks=(len(stacks) - 1,)), "vocab"):
        total = trace.settled(trace.lin("loss", *losses), "the reported loss is complete")
    results = {"loss": total}
    squares: Array | None = None

    def updated(label: str, weight: Array) -> None:
        with trace.at(trace.producer[weight].where):
            results[f"new.{label}"] = update.apply(weight, results[f"grad.{label}"], squares)

    labels = {name if layer is None else f"{layer}.{name}": weight for (name, layer), weight in weights.items()}
    for label, weight in labels.items():
        where = trace.producer[weight].where
        with trace.at(where):
            gradient = update.gradient(weight, {chunk: gradients[weight, chunk] for chunk in where.chunks})
            results[f"grad.{label}"] = update.received(weight, gradient)
        if practice.clip == "none":
            updated(label, weight)
    if practice.clip == "norm":
        squares = update.squares([results[f"grad.{label}"] for label in labels], len(stacks))
        for label, weight in labels.items():
            updated(label, weight)
    settled = [array for name, array in results.items() if name.startswith("grad.")]
    each = [kind for stack in stacks for kind in stack]
    traced = {**Counter(each), ALIKE: len(each), "microbatches": microbatches, "chunks": max(1, len(stacks) - 1)}
    return Program(parted(trace.ops, backward.stream, settled), order, traced, layout.table, results)


def stacks_of(layers: int | tuple[int | Layers, ...] | None, practice: Practice) -> tuple[tuple[str, ...], ...]:
    """The kind of every traced layer of each chunk."""
    alone = layers if isinstance(layers, int) else one_each(practice)
    chunks = layers if isinstance(layers, tuple) else (alone,)
    stacks = [stack(practice, each) if isinstance(each, int) else each for each in chunks]
    return tuple(tuple(kind for kind, many in each for _ in range(many)) for each in stacks)


def _by_chunk(trace: Trace, weight: Array, parts: list[Array]) -> Iterator[tuple[int, list[Array]]]:
    """The cotangents of a weight's uses, those of each chunk that holds it."""
    for chunk in trace.producer[weight].where.chunks:
        if mine := [part for part in parts if trace.producer[part].where.chunks == (chunk,)]:
            yield chunk, mine


def leaves_of(
    trace: Trace, model: Model, practice: Practice, dtypes: Dtypes, stacks: tuple[tuple[str, ...], ...]
) -> dict[tuple[str, int | None], Array]:
    """A leaf per parameter, those of a layer once per traced layer."""
    weights: dict[tuple[str, int | None], Array] = {}
    for parameter in _projected(parameters(model), practice):
        for layer in range(sum(map(len, stacks))) if parameter.per_layer else (None,):
            with trace.at(_home(parameter, layer, stacks, model)):
                leaf = trace.leaf(parameter.name, parameter.dims, "stored", dtypes.params, "param")
            weights[parameter.name, layer] = leaf
    return weights


def _home(parameter: Parameter, layer: int | None, stacks: tuple[tuple[str, ...], ...], model: Model) -> Where:
    """Where a parameter belongs to: a tied embedding is used by the first chunk of the stack and by the last."""
    where, last = replace(ROOT, block=BLOCKS[parameter.group]), len(stacks) - 1
    if layer is not None:
        chunk, kind = [(chunk, kind) for chunk, stack in enumerate(stacks) for kind in stack][layer]
        return replace(where, place="layer", chunks=(chunk,), kind=kind).inside("layers", layer)
    if parameter.group != "embedding":
        return replace(where, place="head", chunks=(last,))
    tied = last and parameter.name == "E" and model.tie_embeddings
    return replace(where, chunks=(0, last)) if tied else where


def _projected(all_parameters: tuple[Parameter, ...], practice: Practice) -> list[Parameter]:
    """The parameters with the weights and the biases of fused projections joined into one array over slots each."""
    fused, slot = FUSED[practice.qkv]
    kept = [parameter for parameter in all_parameters if parameter.name[1:] not in set(fused)]
    joined = {f"{p.name[0]}{fused}": p for p in all_parameters if p.name[1:] in set(fused)}
    return kept + [replace(p, name=name, dims=(*p.dims[:-1], slot, p.dims[-1])) for name, p in joined.items()]
