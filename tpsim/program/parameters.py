"""The parameters of a model: which arrays there are, over which dims, and how many numbers they hold by group."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpsim.program.experts import Experts
    from tpsim.program.model import Model

Group = Literal["embedding", "attention", "mlp", "norms", "output"]
GROUPS: tuple[Group, ...] = ("embedding", "attention", "mlp", "norms", "output")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter array: its group, its dims (as in `Model.dims`), and whether every layer has one."""

    group: Group
    name: str
    dims: tuple[str, ...]
    per_layer: bool = True


def parameters(model: Model) -> tuple[Parameter, ...]:
    """Every parameter array of `model`, the arrays of a layer once."""
    return _embedding(model) + _attention(model) + _mlp(model) + _norms(model) + _output(model)


def parameter_counts(model: Model, *, padded: bool = False) -> Mapping[Group, int]:
    """Parameters by group over all layers; with `padded`, the vocabulary is the padded one that is sharded.

    The published counts are of the unpadded vocabulary. A tied output has no parameters of its own.
    """
    sizes = {**model.dims(sequences=1, seq=1), "v": model.vocab_padded if padded else model.vocab}
    counts = dict.fromkeys(GROUPS, 0)
    for parameter in parameters(model):
        copies = model.layers if parameter.per_layer else 1
        counts[parameter.group] += copies * prod(sizes[dim] for dim in parameter.dims)
    return counts


def parameter_count(model: Model, *, padded: bool = False) -> int:
    """All parameters together; see `parameter_counts`."""
    return sum(parameter_counts(model, padded=padded).values())


def _embedding(model: Model) -> tuple[Parameter, ...]:
    table = Parameter("embedding", "E", ("h", "v"), per_layer=False)
    positions = Parameter("embedding", "P", ("h", "p"), per_layer=False)
    return (table, positions) if model.positions == "learned" else (table,)


def _attention(model: Model) -> tuple[Parameter, ...]:
    weights = {"Wq": "hgrd", "Wk": "hgd", "Wv": "hgd", "Wo": "hgrd"}
    biases = {"bq": "grd", "bk": "gd", "bv": "gd"} if model.bias or model.qkv_bias else {}
    output_bias = {"bo": "h"} if model.bias else {}
    return _arrays("attention", weights | biases | output_bias)


def _mlp(model: Model) -> tuple[Parameter, ...]:
    if model.experts:
        return _experts(model, model.experts)
    weights = {"W1": "hf", "W2": "hf"} | ({"Wgate": "hf"} if model.gated else {})
    biases = {"b1": "f", "b2": "h"} | ({"bgate": "f"} if model.gated else {})
    return _arrays("mlp", weights | (biases if model.bias else {}))


def _experts(model: Model, experts: Experts) -> tuple[Parameter, ...]:
    """Those of the router, of each expert, and of the MLP that all tokens share."""
    names = ("1", "2", "gate") if model.gated else ("1", "2")
    shared = {f"W{name}_shared": "hz" for name in names} if experts.shared else {}
    return _arrays("mlp", {"Wr": "hi"} | {f"W{name}_experts": "nhy" for name in names} | shared)


def _norms(model: Model) -> tuple[Parameter, ...]:
    """A gain per norm, two norms per layer and one at the end; LayerNorm has a shift beside each gain."""
    kinds = ("gain", "shift") if model.norm == "layernorm" else ("gain",)
    layer = tuple(Parameter("norms", f"{kind}_{norm}", ("h",)) for norm in ("attention", "mlp") for kind in kinds)
    return layer + tuple(Parameter("norms", f"{kind}_final", ("h",), per_layer=False) for kind in kinds)


def _output(model: Model) -> tuple[Parameter, ...]:
    return () if model.tie_embeddings else (Parameter("output", "O", ("h", "v"), per_layer=False),)


def _arrays(group: Group, dims: Mapping[str, str]) -> tuple[Parameter, ...]:
    return tuple(Parameter(group, name, tuple(letters)) for name, letters in dims.items())
