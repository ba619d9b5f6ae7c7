"""How many numbers a model holds, and how many of them work for a token."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from tpsim.program.kinds import counted
from tpsim.program.model import Moe
from tpsim.program.transformer import end_parameters, layer_parameters, mtp_parameters

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tpsim.program.model import Kind, Model
    from tpsim.program.text import Parameter

GROUPS: Mapping[str, str] = {
    "embedding": "embedding",
    "attention": "attention",
    "mlp": "mlp",
    "router": "router",
    "experts": "experts",
    "shared": "shared experts",
    "norm": "norms",
    "head": "output",
}
"""Block -> what counts call its parameters."""


def parameter_counts(model: Model, *, padded: bool = False, active: bool = False) -> Mapping[str, int]:
    """Parameters by group over all layers, for groups that the model has; a tied output has none of its own.

    padded  the vocabulary is the padded one that is sharded; the published counts are of the unpadded one
    active  of experts those that work for a token

    Modules that predict tokens further on are not among them: see `mtp_count`.
    """
    sizes = _sizes(model, padded=padded)
    counts = dict.fromkeys(GROUPS.values(), 0)
    for name, many in counted(model.stack).items():
        kind = model.kinds[name]
        for parameter, count in _each(layer_parameters(model, kind), kind, sizes, active=active):
            counts[GROUPS[parameter.block]] += many * count
    for parameter, count in _each(end_parameters(model), None, sizes):
        counts[GROUPS[parameter.block]] += count
    return {group: count for group, count in counts.items() if count or group == GROUPS["head"]}


def parameter_count(model: Model, *, padded: bool = False, active: bool = False) -> int:
    """All parameters together; see `parameter_counts`."""
    return sum(parameter_counts(model, padded=padded, active=active).values())


def mtp_count(model: Model, *, active: bool = False) -> int:
    """Parameters of the modules that predict tokens further on, without the tables that they share; 0 without any."""
    if not model.mtp:
        return 0
    name, many = model.mtp
    each = _each(mtp_parameters(model), model.kinds[name], _sizes(model, padded=False), active=active)
    return many * sum(count for _, count in each)


def _sizes(model: Model, *, padded: bool) -> Mapping[str, int]:
    return {**model.dims(sequences=1, seq=1), **({} if padded else {"v": model.vocab})}


def _each(
    parameters: Iterable[Parameter], kind: Kind | None, sizes: Mapping[str, int], *, active: bool = False
) -> Iterable[tuple[Parameter, int]]:
    """Every parameter, and how many numbers it has, or has for a token."""
    own = {**sizes, **(kind.sizes if kind else {})}
    if active and kind and isinstance(kind.ffn, Moe):
        own["n"] = kind.ffn.top
    return ((parameter, prod(own[dim] for dim in parameter.dims)) for parameter in parameters)
