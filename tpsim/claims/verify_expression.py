"""`verify` of one expression: every way that `shard` shows, run on simulated devices, if it is small enough."""

from __future__ import annotations

import shlex
from dataclasses import replace
from math import lcm, prod
from typing import TYPE_CHECKING, Any

from tpsim.algebra.mesh import Mesh, as_flag, sized
from tpsim.answers.shard import ShardResult, shard
from tpsim.claims.checks import Check, Verified, VerifyResult, arising, blocks_check, equal_arrays, stopped
from tpsim.claims.claims import Claim, Ledger, collectives_check, formulas, formulas_check, links_check, ran
from tpsim.claims.shrink import DEVICES, PAIR, POWER, telling
from tpsim.claims.trial import Stopped, machine_wiring, made, on_devices
from tpsim.quantity.arguments import checked
from tpsim.quantity.errors import InputError
from tpsim.question.expression import part_sizes, read_mesh, unsharded
from tpsim.reference.compare import Compared, Misaligned, compared
from tpsim.reference.execute import execute
from tpsim.reference.run import leaves
from tpsim.report.numbers import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tpsim.answers.shard_way import Way
    from tpsim.quantity.progress import Progress

PER_SHARD = 2
"""Elements per shard where no dims are given: a ring of even length halves its antipodal chunk."""


@checked
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
        if grid.devices > DEVICES:
            raise TooLarge(f"a mesh of {grid.devices} devices is too large to run")
        least = dims or _least_dims(shard(expr, grid, dtype=dtype))
        answer = shard(expr, grid, dims=least, hw=hw, placement=placement, dtype=dtype)
        refuse_sizes(answer)
        return answer

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
    types += [step.made.output.type for way in asked.alternatives for step in way.steps]
    dims = dict.fromkeys(dim for type_ in types for dim in type_.dims)
    return {
        dim: PER_SHARD * lcm(*(asked.mesh.size(*type_.axes(dim)) for type_ in types if dim in type_.dims))
        for dim in dims
    }


def _run(asked: ShardResult, way: Way) -> tuple[Ledger, list[Compared]]:
    """One way on all devices, and the same without moves on one; only what is seen of them is kept."""
    sizes = {**(asked.dims or {}), **part_sizes(asked.leaves, asked.mesh)}
    clock, inputs = asked.clock, leaves(sizes)
    wires = machine_wiring(clock.machine, clock.placement) if clock else None
    with on_devices():
        sharded = execute(way.program, asked.mesh, sizes, inputs, wiring=wires)
    whole = execute(unsharded(way.program), Mesh({}), sizes, inputs)
    claims = [
        Claim(row, 1, clock.machine, clock.placement.route(row.call.axes)) if clock else Claim(row)
        for row in way.rows
        if row.ranks > 1
    ]
    ledger = Ledger(claims, made(sharded), asked.pricing.sizes.known, f"{way.ops}, ")
    return ledger, list(compared(sharded, whole))


def _verified(asked: ShardResult, progress: Progress | None) -> Verified:
    ways = asked.alternatives or [asked.way]
    runs: list[tuple[Ledger, list[Compared]]] = []
    try:
        for way in ways:
            if progress is not None:
                progress(len(runs), len(ways), way.ops or asked.expression.text)
            runs.append(_run(asked, way))
    except (Stopped, Misaligned) as error:
        return _verdict(asked, [stopped(error)])
    ledgers, compared = [ledger for ledger, _ in runs], [array for _, arrays in runs for array in arrays]
    lost = [text for way in asked.alternatives for text in _astray(asked, way)]
    checks = [equal_arrays("values", compared), blocks_check(compared, lost), *_claims(ledgers)]
    return _verdict(asked, checks, compared=compared, collectives=ran(ledgers))


def _claims(ledgers: Sequence[Ledger]) -> Iterator[Check]:
    """Collectives, links and formulas of all ways against the calls of their runs."""
    calls, moves = ran(ledgers), sum(len(ledger.claims) for ledger in ledgers)
    both = f"{counted(calls, 'call')} for {counted(moves, 'move')}"
    yield collectives_check(ledgers, f"{both} on {counted(len(ledgers), 'way')}, every one with its bytes")
    yield links_check(ledgers)
    tried = [text for ledger in ledgers for text in formulas(ledger)]
    yield formulas_check(tried, f"the bytes that were counted are those of {counted(len(tried), 'formula')}")


def _astray(asked: ShardResult, way: Way) -> Iterator[str]:
    """What is wrong if a way does not end in the type that was asked for."""
    asked_for, ends = asked.expression.arrays[len(asked.leaves) :], way.program.results["result"].type
    if asked_for and ends != asked_for[0].type:
        yield f"{asked_for[0]} is asked for, but a way ends in {ends}"


def _verdict(asked: ShardResult, checks: Sequence[Check], **seen: Any) -> Verified:
    """What was run, with what was `seen` of it."""
    return Verified(
        name=asked.expression.text,
        asked=_asked(asked),
        is_expression=True,
        mesh=asked.mesh.axes,
        dims=asked.dims or {},
        placement=tuple(asked.clock.placement.describe()) if asked.clock else (),
        devices=asked.mesh.devices,
        checks=arising(checks),
        **seen,
    )


def _asked(asked: ShardResult) -> str:
    """The words that ask `shard` for the same."""
    words = ["--mesh", as_flag(asked.mesh.axes), "--dims", as_flag(asked.dims or {})]
    words += ["--dtype", asked.dtype] if asked.dtype != "bf16" else []
    words += ["--hw", asked.hardware] if asked.hardware else []
    return f'"{asked.expression.text}" {shlex.join(words)}'


WORK, HELD = 2**24, 2**27
"""The most multiplications of a product on one device, and the most elements, of 8 bytes, that devices hold at once."""


class TooLarge(Exception):  # noqa: N818  # it says what was found
    """Why an expression is not run."""


def refuse_sizes(asked: ShardResult) -> None:
    """Raise TooLarge for dims that take too long on one device, or too much memory on all of them on any way."""
    dims = asked.dims or {}
    if prod(dims.values()) > WORK:
        raise TooLarge(f"{sized(dims)} is too much to run")
    for way in asked.alternatives or (asked.way,):
        elements = _elements(asked, way)
        if elements > HELD:
            path = f" on the way {way.ops}" if way.steps else ""
            room = f"{8 * elements / 1e9:.1f} GB{path}, of {8 * HELD / 1e9:.1f} that are allowed"
            raise TooLarge(f"{asked.mesh.devices} devices would take {room}")


def _elements(asked: ShardResult, way: Way) -> int:
    """Elements at once: what comes from outside, every array on the way, and twice the flat arrays of a move."""
    dims, axes = asked.dims or {}, asked.mesh.axes
    parts = prod(part_sizes(asked.leaves, asked.mesh).values())
    outside = 2 * parts * sum(prod(dims[dim] for dim in type_.dims) for _, type_ in asked.leaves)
    moved = [row.call.parts[0].move.logical_elements(dims, axes) for row in way.rows]
    outputs = [step.made.output.type.local_elements(dims, axes) for step in way.steps]
    return int(outside + asked.mesh.devices * (sum(outputs) + 2 * max(moved, default=0)))


def smaller(runs: Callable[[Mesh], object], mesh: Mesh, dims: str | Mapping[str, int] | None) -> str:
    """What to ask instead: without the dims if some were given, else a mesh of fewer devices, whose rings are alike.

    runs  raises TooLarge or InputError for a mesh that cannot be run with the least dims
    """
    if dims is not None and _can(runs, mesh):
        return "leave --dims out: the least sizes show the same"
    also = " without --dims" if dims is not None else ""
    fits = next((less for less in _smaller_meshes(mesh) if _can(runs, less)), None)
    if fits is None:
        return "write it with fewer mesh axes"
    return f"take fewer devices{also}: --mesh {as_flag(fits.axes)}"


def _can(runs: Callable[[Mesh], object], mesh: Mesh) -> bool:
    try:
        runs(mesh)
    except (TooLarge, InputError):
        return False
    return True


def _smaller_meshes(mesh: Mesh) -> Iterator[Mesh]:
    """The longest axis at the least size that is like it, then as a pair; and so on until all are pairs."""
    sizes = dict(mesh.axes)
    while (n := max(sizes.values(), default=0)) > PAIR:
        axis = next(name for name, size in sizes.items() if size == n)
        sizes[axis] = telling(n, "ring") if n > POWER else PAIR
        yield Mesh(dict(sizes))
