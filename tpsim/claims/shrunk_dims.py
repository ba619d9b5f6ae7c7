"""The least sizes of dims that show what a program does, and a model that has them."""

from __future__ import annotations

from dataclasses import replace
from math import lcm
from types import MappingProxyType
from typing import TYPE_CHECKING

from tpsim.algebra.sharding import line_in
from tpsim.claims.shrunk_placement import PAIR
from tpsim.program.dims import HELD
from tpsim.program.kinds import counted
from tpsim.program.kinds_file import merged
from tpsim.program.op import Program, Reshard
from tpsim.reference.routing import turns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpsim.algebra.mesh import Mesh
    from tpsim.algebra.sharding import Sharding
    from tpsim.program.kinds import Layers
    from tpsim.program.model import Model

FEW = 4
"""Elements of a dim at least: LayerNorm of two has no slope left, rotation of two one angle only."""

ROTATED = {"d": "e", "a": "ae"}
"""Dims of heads that positions rotate, and their images."""


def shrunk_dims(
    program: Program,
    old: Mapping[str, int],
    before: Mesh,
    mesh: Mesh,
    *,
    apart: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, int]:
    """The least size of every dim that all types of `program` divide, with `FEW` elements and two per shard.

    A dim that had fewer keeps what it had.

    before, mesh  the meshes of the question and of the run, alike in their axes

    Where the tokens as keys were as many as the tokens as queries (t = s) they still are, else whole times as many; a
    head's image under rotation is as long as the head (e = d), and it is even, because rotation turns pairs. There are
    positions for all tokens, and more than that if there were more. The tokens that a device has of a sequence, or of
    its sequences where some are decoded, choose every expert alike often.

    apart  nodes, or ranks, that they go to alike often, too
    """
    types = list(_types(program))
    sizes = {dim: _least_size(dim, size, types, before, mesh) for dim, size in old.items()}
    filled = {axis for type_ in types if (line := line_in(type_)) for axis in line.ways}
    sizes["h"] += bool(filled) and not sizes["h"] % mesh.size(*filled)  # so that there is something to fill up
    tied = old["s"] == old["t"]
    if tied:
        sizes["s"] = lcm(sizes["s"], sizes["t"])
    for dim, image in ROTATED.items():
        if image in sizes:
            sizes[dim] = sizes[image] = lcm(sizes[dim], sizes[image], PAIR if old[dim] % PAIR == 0 else 1)
    sizes |= {"j": sizes["r"] + PAIR} if "j" in sizes else {}
    if "i" in sizes:
        sizes |= {**_experts(sizes, old), **apart}
        more = "s" if tied else "b"  # of tokens that are decoded there are no more than there were
        parts = lcm(*(mesh.size(*type_.axes(more)) for type_ in types if more in type_.dims))
        each = (1 if apart else sizes["k"]) * sizes[more] // parts
        sizes[more] *= lcm(turns(sizes) if apart else sizes["n"], each) // each
    sizes["t"] = sizes["s"] if tied else lcm(sizes["s"], sizes["t"])
    if HELD in sizes:  # of a window as many are held as it has, and new tokens behind the first
        ways = lcm(*(mesh.size(*type_.axes(HELD)) for type_ in types if HELD in type_.dims))
        behind = 0 if tied else sizes["s"] - 1
        sizes["w"] = -(-(sizes["w"] + behind) // ways) * ways - behind
    enough = -(-sizes["t"] // sizes["p"]) * sizes["p"]
    sizes["p"] = enough + sizes["p"] if old["p"] > old["t"] else enough
    return sizes


def _experts(sizes: Mapping[str, int], old: Mapping[str, int]) -> dict[str, int]:
    """As many experts where they lie as are scored, and in each group enough for what is chosen from some of these."""
    many, groups = lcm(sizes["n"], sizes["i"]), {}
    if "gr" in sizes:
        groups["gt"] = max(1, old["gt"] * sizes["gr"] // old["gr"])
        many = lcm(many, sizes["gr"] * -(-sizes["k"] // groups["gt"]))
    return {"n": many, "i": many, **groups}


def _least_size(dim: str, size: int, types: list[Sharding], before: Mesh, mesh: Mesh) -> int:
    split = {type_.axes(dim) for type_ in types if dim in type_.dims}
    most = max((before.size(*axes) for axes in split), default=1)
    shards = lcm(*(mesh.size(*axes) for axes in split))
    held = max(min(PAIR, size // most), -(-min(FEW, size) // shards))
    return shards * max(1, held)


def _types(program: Program) -> Iterator[Sharding]:
    """Every type that an array takes, on the way too."""
    for op in program.ops:
        yield op.output.type
        if isinstance(op, Reshard):
            yield from (move.after for move in op.moves)


def _fewer(model: Model, layers: int) -> Layers:
    """So many layers in place of a stack: as many of each kind, in the order in which they first stand."""
    kinds = tuple(counted(model.stack))
    return merged((kinds[place * len(kinds) // layers], 1) for place in range(layers))


def shrunk_model(model: Model, dims: Mapping[str, int], layers: int) -> Model:
    """The model with these dims; a padded vocabulary stays a padded one."""
    return replace(
        model,
        hidden=dims["h"],
        kinds={name: kind.resized(dims) for name, kind in model.kinds.items()},
        stack=_fewer(model, layers),
        vocab=dims["v"] - (model.vocab != model.vocab_padded),
        vocab_padded=dims["v"],
        max_positions=dims["p"] if model.max_positions else None,
        params=None,
        active=None,
    )
