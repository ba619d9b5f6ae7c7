"""`verify` of one expression: every way that `shard` shows, run on simulated devices."""

from __future__ import annotations

import shlex
from dataclasses import replace
from math import lcm
from typing import TYPE_CHECKING, Any

from tpsim.algebra.mesh import Mesh
from tpsim.algebra.notation import Product
from tpsim.answers.shard import ShardResult, shard
from tpsim.claims.bounds import TooLarge, refuse_devices, refuse_sizes, smaller
from tpsim.claims.checks import Check, blocks_check, distinct, equal_arrays, stopped, told
from tpsim.claims.claims import made
from tpsim.claims.expression_program import expression_program, part_sizes
from tpsim.claims.trial import Stopped, run
from tpsim.claims.verified import Verified, VerifyResult
from tpsim.claims.way_claims import Way, way_checks, way_text
from tpsim.claims.wiring import machine_wiring
from tpsim.quantity.errors import InputError
from tpsim.question.options import read_mesh
from tpsim.reference.compare import Misaligned, compared
from tpsim.reference.execute import execute
from tpsim.reference.leaves import leaves

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpsim.algebra.planner import Plan
    from tpsim.claims.expression_program import Named
    from tpsim.claims.verify import Progress

PER_SHARD = 2
"""Elements per shard where no dims are given: a ring of even length halves its antipodal chunk."""


def verify_expression(
    expr: str,
    mesh: str | Mapping[str, int] | Mesh = "X=4,Y=2",
    *,
    dims: str | Mapping[str, int] | None = None,
    hw: str | None = None,
    placement: str | Mapping[str, Any] | None = None,
    dtype: str = "bf16",
    progress: Progress | None = None,
) -> VerifyResult:
    """Run a product, a reshard or an array: every way to it, one after another, on every device of the mesh.

    expr, mesh, dims, hw, placement, dtype  as `shard` takes them. Without dims they are the least that all ways divide;
    without a machine every mesh axis is a ring of its own.
    progress  told before each way

    Raises NotationError and InputError as `shard` does, and InputError, with a smaller question, for what takes too
    much to run on any way.
    """
    if progress is not None:
        progress(0, 1, expr)
    grid = read_mesh(mesh)

    def planned(grid: Mesh, dims: str | Mapping[str, int] | None = None) -> ShardResult:
        refuse_devices(grid)
        least = dims or _least_dims(shard(expr, grid))
        found = shard(expr, grid, dims=least, hw=hw, placement=placement, dtype=dtype)
        refuse_sizes(found, _leaves(found))
        return found

    try:
        asked = planned(grid, dims)
    except TooLarge as error:
        raise InputError.one("too-large", str(error), remedy=smaller(planned, grid, dims or None)) from None
    run = _verified(asked, progress)
    words = f"{run.asked} --placement {shlex.quote(placement)}" if isinstance(placement, str) else run.asked
    return VerifyResult((replace(run, asked=words),), asked.files)


def _least_dims(asked: ShardResult) -> dict[str, int]:
    """The least sizes that all types on all ways divide, a few elements per shard."""
    types = [array.type for array in asked.expression.arrays]
    types += [step.output[1] for plan in asked.plans for step in plan.steps]
    dims = dict.fromkeys(dim for type_ in types for dim in type_.dims)
    return {
        dim: PER_SHARD * lcm(*(asked.mesh.size(*type_.axes(dim)) for type_ in types if dim in type_.dims))
        for dim in dims
    }


def _leaves(asked: ShardResult) -> tuple[Named, ...]:
    """What comes from outside: both operands, or the one array."""
    operands = 2 if isinstance(asked.expression, Product) else 1
    return tuple((array.name, array.type) for array in asked.expression.arrays[:operands])


def _run(asked: ShardResult, arrays: Sequence[Named], plan: Plan | None) -> Way:
    """One way on all devices, and the same without moves on one; only what is seen of them is kept."""
    steps = plan.steps if plan else ()
    sizes = {**(asked.dims or {}), **part_sizes(arrays, asked.mesh)}
    many, one = (
        expression_program(arrays, steps, asked.mesh.order, asked.dtype, sharded=sharded) for sharded in (True, False)
    )
    wires = machine_wiring(asked.clock.machine, asked.clock.placement) if asked.clock else None
    inputs = leaves(sizes)
    sharded = run(many, asked.mesh, sizes, inputs, wires)
    calls = tuple(one.call for one in made(sharded))
    return Way(asked, plan, calls, tuple(compared(sharded, execute(one, Mesh({}), sizes, inputs))))


def _verified(asked: ShardResult, progress: Progress | None) -> Verified:
    arrays, plans = _leaves(asked), asked.plans or (None,)
    ways: list[Way] = []
    try:
        for plan in plans:
            if progress is not None:
                progress(len(ways), len(plans), way_text(plan) or asked.expression.text)
            ways.append(_run(asked, arrays, plan))
    except (Stopped, Misaligned) as error:
        return _verdict(asked, (stopped(error),))
    found = [one for way in ways for one in way.compared]
    lost = [text for plan in asked.plans for text in _astray(asked, plan)]
    checks = (equal_arrays("values", found), blocks_check(found, lost), *way_checks(ways))
    return replace(
        _verdict(asked, checks),
        arrays=distinct(found),
        collectives=sum(len(way.calls) for way in ways),
        difference=max(one.difference for one in found),
    )


def _astray(asked: ShardResult, plan: Plan) -> Iterator[str]:
    """What is wrong if a way does not end in the type that was asked for."""
    asked_for = asked.expression.arrays[len(_leaves(asked)) :]
    ends = plan.steps[-1].output[1] if plan.steps else asked.expression.arrays[0].type
    if asked_for and ends != asked_for[0].type:
        yield f"{asked_for[0]} is asked for, but a way ends in {ends}"


def _verdict(asked: ShardResult, checks: tuple[Check, ...]) -> Verified:
    """What was run, nothing counted yet."""
    return Verified(
        name=asked.expression.text,
        asked=_asked(asked),
        is_expression=True,
        mesh=asked.mesh.axes,
        dims=asked.dims or {},
        placement=tuple(asked.clock.placement.describe()) if asked.clock else (),
        devices=asked.mesh.devices,
        checks=told(checks),
    )


def _asked(asked: ShardResult) -> str:
    """The words that ask `shard` for the same."""
    words = ["--mesh", ",".join(f"{axis}={n}" for axis, n in asked.mesh.axes.items())]
    words += ["--dims", ",".join(f"{dim}={n}" for dim, n in (asked.dims or {}).items())]
    words += ["--dtype", asked.dtype] if asked.dtype != "bf16" else []
    words += ["--hw", asked.hardware] if asked.hardware else []
    return f'"{asked.expression.text}" {shlex.join(words)}'
