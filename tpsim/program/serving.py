"""From a model and a layout to the program of a step of inference: a prompt read, or new tokens decoded."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tpsim.program.cache import Sampling, Served, attention, caches_of, latent_attention, sampled
from tpsim.program.kinds import ALIKE, Layers, model_kind
from tpsim.program.lower import ROOT, leaves_of, stacks_of
from tpsim.program.model import Attention, Latent, Model
from tpsim.program.op import Array, Program
from tpsim.program.trace import Path, Trace, book_path
from tpsim.program.transformer import forward

if TYPE_CHECKING:
    from tpsim.program.dtypes import Dtypes
    from tpsim.program.layout import Layout
    from tpsim.program.practice import Practice


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What steers the structure of a step of inference.

    phase     prefill: of a prompt, whose last token is sampled from; decode: of new tokens, all of which are
    cached    True if earlier tokens are in the cache
    sampling  how the next token is found over a split vocabulary
    """

    phase: Literal["prefill", "decode"]
    cached: bool = True
    sampling: Sampling = "gather"


def lower_serving(
    model: Model,
    layout: Layout,
    practice: Practice,
    dtypes: Dtypes,
    order: tuple[str, ...],
    *,
    serving: Serving,
    layers: int | tuple[int | Layers, ...] | None = None,
    path: Path = book_path,
) -> Program:
    """The typed program of a step of inference; arguments as `lower` has them.

    Its results are what is sampled from, and the caches behind the step.
    Raises ShardingError if the layout asks for what the algebra forbids, with the reason in the notation.
    """
    trace, practice = Trace(layout, order, ROOT, path=path), practice.under(layout)
    model = replace(model, dropout=0.0, mtp=None)  # what predicts further tokens is for training
    stacks = stacks_of(layers, practice, model)
    weights = leaves_of(trace, model, practice, dtypes, stacks)
    served = Served(
        trace,
        model,
        practice,
        dtypes,
        weights,
        others={Attention: attention, Latent: latent_attention},
        caches=_caches(trace, model, weights, dtypes),
        reads=serving.cached,
        last=serving.phase == "prefill",
        sampling=serving.sampling,
    )
    with trace.at(ROOT.inside("microbatches", 0)):
        results = {"sampled": forward(served, stacks, sampled)}
    results |= {f"cache.{layer}.{name}": array for (name, layer), array in served.appended.items()}
    kinds = [kind for stack in stacks for kind in stack]
    traced = {**Counter(kinds), ALIKE: len(kinds), "microbatches": 1, "chunks": max(1, len(stacks) - 1)}
    plain = practice.attention == "plain"
    return Program(tuple(trace.ops), order, traced, layout.table, results, plain=plain)


def _caches(
    trace: Trace, model: Model, weights: dict[tuple[str, int | None], Array], dtypes: Dtypes
) -> dict[tuple[str, int | None], Array]:
    """The caches of every traced layer, each where the layer is."""
    homes = {layer: trace.producer[weight].where for (name, layer), weight in weights.items() if name == "Wo"}
    caches: dict[tuple[str, int | None], Array] = {}
    for layer, where in homes.items():
        with trace.at(where):
            for name, dims in caches_of(model.kinds[model_kind(where.kind)].attention).items():
                dtype = dtypes.cache or dtypes.activations
                caches[name, layer] = trace.leaf(f"cache.{name}", dims, "cache", dtype, "cache")
    return caches
