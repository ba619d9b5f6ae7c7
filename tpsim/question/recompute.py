"""What a scenario does not keep for backward: names of kernels and arrays, as switches of its practice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tpsim.program.kernels import kind
from tpsim.program.layout import FULL, Dtypes
from tpsim.program.lower import lower
from tpsim.program.op import Reshard
from tpsim.quantity.errors import InputError, unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpsim.program.layout import Layout, Practice
    from tpsim.program.model import Model
    from tpsim.question.divisibility import At
    from tpsim.question.scenario_file import RecomputeFields

SELECTIVE = "attention"
"""The kernel whose inside is worth the least FLOPs per byte (Korthikanti et al. 2022, section 5)."""

DROPS: Mapping[str, tuple[str, ...]] = {"none": (), "selective": (SELECTIVE,), "full": (FULL,)}
"""`RecomputeFields.base` -> what it drops."""


def recomputing(fields: RecomputeFields, practice: Practice, model: Model, laid: Layout, at: At) -> Practice:
    """The practice with what the scenario drops, and how that is run once more.

    Raises InputError for names that a layer does not have, and for what is not supported yet.
    """
    if fields.layers is not None:
        message = "layers: recompute of some layers of a chunk is not supported yet"
        remedy = "leave layers out: every layer is recomputed"
        raise InputError.one("not-supported-yet", message, at("recompute", "layers"), remedy)
    if fields.drop:
        _known(fields.drop, practice, model, laid, at)
    dropped = dict.fromkeys((*DROPS[fields.base], *fields.drop))
    return replace(practice, recompute=tuple(dropped), replay=fields.replay or practice.replay)


def _known(names: tuple[str, ...], practice: Practice, model: Model, laid: Layout, at: At) -> None:
    """Refuse names of nothing that a layer makes."""
    axes = tuple({axis: None for dims in laid.table.values() for used in dims.values() for axis in used})
    program = lower(model, laid, practice, Dtypes(), axes)
    made = [op for op in program.ops if op.where.act == "F" and op.where.place == "layer"]
    kernels = {op.where.kernel for op in made if op.where.kernel}
    here = {op.output for op in made}
    edges = {op.output for op in made if isinstance(op, Reshard) and not here & {*op.inputs}}
    arrays = {x.name for x in here - edges if x.role == "activation"}
    for name in names:
        if name not in {*kernels, *map(kind, kernels), *arrays}:
            (problem,) = unknown(name, "kernel or array of a layer", sorted({*kernels, *arrays})).problems
            raise InputError([replace(problem, place=at("recompute", "drop") or at("recompute"))])


def recompute_remarks(practice: Practice) -> Iterator[str]:
    """What nobody may overlook of a recompute: that of fused attention gains nothing."""
    if SELECTIVE in practice.recompute and practice.attention == "fused":
        kept = "it keeps one number per head and token, which this frees, and runs its forward once more"
        yield f"recompute of fused attention gains nothing: {kept}"
