"""From a model and a layout to the program of one training step: forward, backward, update."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from tpsim.program.acts import parted
from tpsim.program.op import Array, Program, Where
from tpsim.program.parameters import Parameter, parameters
from tpsim.program.trace import Path, Trace, book_path
from tpsim.program.transformer import FUSED, Transformer
from tpsim.program.transpose import Backward
from tpsim.program.update import Update

if TYPE_CHECKING:
    from tpsim.program.layout import Dtypes, Layout, Practice
    from tpsim.program.model import Model

ROOT = Where("F", "embedding", "embedding", (("stages", 0),))
BLOCKS = {"embedding": "embedding", "attention": "attention", "mlp": "mlp", "norms": "norm", "output": "head"}
"""The block in which a group of parameters is used."""


def lower(
    model: Model,
    layout: Layout,
    practice: Practice,
    dtypes: Dtypes,
    order: tuple[str, ...],
    *,
    layers: int = 1,
    microbatches: int = 1,
    path: Path = book_path,
) -> Program:
    """The typed program of a training step of `model` under `layout`, which may part what `practice` fuses.

    order         mesh axes, major first
    layers        layers to trace; each stands for ``model.layers / layers``
    microbatches  microbatches to trace
    path          chooses the moves of a reshard; the book's greedy path unless stated
    Raises ShardingError if the layout asks for what the algebra forbids, with the reason in the notation.
    """
    trace, practice = Trace(layout, order, ROOT, path=path), practice.under(layout)
    weights = _weights(trace, model, practice, dtypes, layers)
    transformer, backward = Transformer(trace, model, practice, dtypes, weights), Backward(trace, practice)
    update = Update(trace, layout, practice, dtypes)
    gradients: dict[Array, list[Array]] = defaultdict(list)
    losses = []
    for microbatch in range(microbatches):
        with trace.at(ROOT.inside("microbatches", microbatch)):
            start = len(trace.ops)
            losses.append(transformer.forward(layers))
            uses = backward.run(trace.ops[start:], losses[-1])
        for weight, parts in uses.items():
            with trace.at(trace.producer[weight].where.inside("microbatches", microbatch)):
                gradients[weight] += update.added(weight, parts)
    with trace.at(replace(ROOT, block="loss", place="head"), "vocab"):
        total = trace.settled(trace.lin("loss", *losses), "the reported loss is complete")
    results = {"loss": total}
    for (name, layer), weight in weights.items():
        label = name if layer is None else f"{layer}.{name}"
        with trace.at(trace.producer[weight].where):
            gradient = update.gradient(weight, gradients[weight])
            results[f"grad.{label}"], results[f"new.{label}"] = update.apply(weight, gradient)
    settled = [array for name, array in results.items() if name.startswith("grad.")]
    traced = {"layers": layers, "microbatches": microbatches, "stages": 1}
    return Program(parted(trace.ops, backward.stream, settled), order, traced, layout.table, results)


def _weights(
    trace: Trace, model: Model, practice: Practice, dtypes: Dtypes, layers: int
) -> dict[tuple[str, int | None], Array]:
    """A leaf per parameter, those of a layer once per traced layer."""
    weights: dict[tuple[str, int | None], Array] = {}
    for parameter in _projected(parameters(model), practice):
        for layer in range(layers) if parameter.per_layer else (None,):
            with trace.at(_home(parameter, layer)):
                leaf = trace.leaf(parameter.name, parameter.dims, "stored", dtypes.params, "param")
            weights[parameter.name, layer] = leaf
    return weights


def _home(parameter: Parameter, layer: int | None) -> Where:
    """Where a parameter belongs to."""
    where = replace(ROOT, block=BLOCKS[parameter.group])
    if layer is not None:
        return replace(where, place="layer").inside("layers", layer)
    return where if parameter.group == "embedding" else replace(where, place="head")


def _projected(all_parameters: tuple[Parameter, ...], practice: Practice) -> list[Parameter]:
    """The parameters with the weights and the biases of fused projections joined into one array over slots each."""
    fused, slot = FUSED[practice.qkv]
    kept = [parameter for parameter in all_parameters if parameter.name[1:] not in set(fused)]
    joined = {f"{p.name[0]}{fused}": p for p in all_parameters if p.name[1:] in set(fused)}
    return kept + [replace(p, name=name, dims=(*p.dims[:-1], slot, p.dims[-1])) for name, p in joined.items()]
