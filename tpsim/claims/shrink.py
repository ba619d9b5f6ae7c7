"""A question made small enough to run: the same structure, the least sizes that show it.

Every piece of a mesh axis keeps as few devices as tell its wires.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from math import lcm, prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tpsim.algebra.mesh import Mesh, sized
from tpsim.algebra.sharding import Sharding, flat_dim
from tpsim.fabric.placement import Placement
from tpsim.fabric.slices import AxisPiece
from tpsim.fabric.wires import SegmentTopology, joined
from tpsim.program.copies import DIMS_OF, parts_of
from tpsim.program.dims import HELD
from tpsim.program.kinds import Layers, counted
from tpsim.program.kinds_file import merged
from tpsim.program.legal_orders import checked
from tpsim.program.op import Program, Reshard
from tpsim.program.schedules import SCHEDULES, PipelineSchedule, forward_only, pipeline_schedule
from tpsim.quantity.errors import InputError
from tpsim.question.expression import SIMULATED
from tpsim.question.memo import Memo
from tpsim.question.question import Inference, Question
from tpsim.question.scenario_file import CopiesFields
from tpsim.reference.routing import turned_copies, turns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from fractions import Fraction

    from tpsim.program.model import Model
    from tpsim.program.practice import Practice
    from tpsim.program.stages import Stages
    from tpsim.question.stated import Stated


POWER, OTHER = 4, 3
"""The least sizes above a pair that are a power of two, and that are odd and no power of two."""

DEVICES, MOST = SIMULATED, 256
"""Devices of a mesh that is run, and of one whose axes cannot be shrunk to that."""


PAIR = 2
"""The fewest devices that have anything to say to each other, and the fewest elements of which a shard has several."""


def shrunk_placement(placement: Placement, stages: Mapping[str, int] | None = None) -> Placement:
    """The same mesh axes on the same carriers with fewer members.

    stages  the axis of them, and how many show all that several do

    Each part of an axis becomes the least size of its kind (`telling`); while those are more than 64 devices together,
    the largest part becomes the least that its carrier can be: a pair, or a third of a ring that it fills alone.
    Strides follow from the parts inside. Raises InputError where that leaves more than 256.
    """
    sizes = {
        (axis, place): max(_least(placement, axis, place), min(piece.n, stages[axis]))
        if stages and axis in stages
        else telling(piece.n, placement.carriers[piece.carrier].topology)
        for axis, pieces in placement.pieces.items()
        for place, piece in enumerate(pieces)
    }
    while prod(sizes.values()) > DEVICES:
        wide = [key for key, n in sizes.items() if n > _least(placement, *key)]
        if not wide:
            break
        key = max(wide, key=lambda piece: sizes[piece])
        sizes[key] = _least(placement, *key)
    if prod(sizes.values()) > MOST:
        raise _too_many(placement)
    return _laid(placement, sizes)


def telling(n: int, topology: SegmentTopology) -> int:
    """The least size that is like `n`: itself up to 3, else 3 or 4.

    A ring and a line stay odd or even, which decides what the antipodal and the middle chunk do; a switch stays a power
    of two or none, which decides how doubling and trees come out.

    >>> [telling(n, "ring") for n in (1, 2, 3, 8, 15, 48)], telling(48, "switch")
    ([1, 2, 3, 4, 3, 4], 3)
    """
    even = not n & (n - 1) if topology == "switch" else not n % PAIR
    return min(n, POWER if even else OTHER)


def _least(placement: Placement, axis: str, place: int) -> int:
    """The fewest members that a part can have: a ring that it fills alone needs three."""
    piece = placement.pieces[axis][place]
    carrier = placement.carriers[piece.carrier]
    return OTHER if carrier.closed and piece.n == carrier.extent else PAIR


def _laid(placement: Placement, sizes: Mapping[tuple[str, int], int]) -> Placement:
    """The placement with these members per (axis, place)."""
    extents = dict.fromkeys(placement.carriers, 1)
    pieces = {axis: list(parts) for axis, parts in placement.pieces.items()}
    inside_first = sorted(sizes, key=lambda key: placement.pieces[key[0]][key[1]].stride)
    for axis, place in inside_first:
        name, n = placement.pieces[axis][place].carrier, sizes[axis, place]
        stride = 1 if joined(placement.carriers[name].topology) else extents[name]
        pieces[axis][place] = AxisPiece(name, n, stride)
        extents[name] *= n
    mesh = Mesh({axis: prod(piece.n for piece in pieces[axis]) for axis in placement.mesh.axes})
    carriers = {name: replace(carrier, extent=extents[name]) for name, carrier in placement.carriers.items()}
    laid = {axis: tuple(parts) for axis, parts in pieces.items()}
    return Placement(mesh, placement.levels, laid, carriers, placement.rule)


def _too_many(placement: Placement) -> InputError:
    axes = {axis: n for axis, n in placement.mesh.axes.items() if n > 1}
    message = f"{sized(axes)} cannot be shrunk to {MOST} devices with every axis kept"
    return InputError.one("too-many-axes", message, remedy="verify a scenario with fewer mesh axes")


LAYERS, MICROBATCHES, CHUNKS = 2, 2, 2
"""Enough to show what is repeated, what is shared and what is added up, and that ranks take turns among chunks."""


def shrink(question: Question, memo: Memo | None = None) -> Question:
    """`question` at sizes that run in seconds; a valid question of its own, which a plan can price.

    memo  programs that other questions of the same request have lowered

    Raises InputError if the mesh has so many axes that pairs and least rings alone are more than 256 devices.
    """
    stages = question.stages
    apart = OTHER if _unlike(stages) else PAIR
    pipe = question.layout.stages
    placement = shrunk_placement(question.placement, dict.fromkeys(pipe, apart if len(pipe) == 1 else PAIR))
    mesh = placement.mesh
    program = (memo or Memo()).lowered(question).program
    old = question.workload.dims(question.model)
    levels = question.practice.levels
    goals = dict(parts_of(levels, mesh.axes))
    dims = shrunk_dims(program, old, question.mesh, mesh, apart={DIMS_OF[of][0]: n for of, n in goals.items()})
    taking_turns = shrunk_schedule(question, mesh)
    several = 1 if question.inference else min(MICROBATCHES, question.workload.microbatches)  # gradients add up
    microbatches = taking_turns.microbatches if taking_turns else several
    split = shrunk_split(stages, taking_turns.ranks, taking_turns.chunks) if taking_turns else ()
    workload = replace(
        question.workload, global_batch=dims["b"] * microbatches, seq=dims["s"], microbatches=microbatches
    )
    if isinstance(workload, Inference):  # of a whole reply, one of its steps
        tokens = dims["t"]
        one: dict[str, Any] = {"steps": 1, "fills": False, "block": 1, "speculation": None, "budget": None}
        workload = replace(workload, kind=workload.serving.phase, attended=tokens, longest=tokens, **one)
    return replace(
        question,
        stated=_balanced(question, {of: turned_copies(dims, parts) for of, parts in goals.items()}),
        model=shrunk_model(question.model, dims, sum(split) or LAYERS * len(question.model.kinds)),
        practice=shrunk_practice(question),
        mesh=mesh,
        placement=placement,
        workload=workload,
        schedule=taking_turns,
        split=split,
        limits=(),
    )


def _balanced(question: Question, copies: Mapping[str, Fraction]) -> Stated:
    """What is stated, but for the load of experts: tokens choose evenly, so that every call has the mean.

    copies  of each token, for nodes or ranks, where these are fewer than its experts

    A capacity above the mean of rows becomes twice that: none is dropped then, and as many as come stay empty.

    Raises InputError for a capacity below it: one device alone would drop other tokens.
    """
    stated, routing = question.stated, question.assume.routing
    even = type(routing)()
    if question.model.experts and routing.drop != "none":
        if routing.drop < 1:
            message = f"with rows for {routing.drop:g} of the mean every device drops tokens of its own"
            message += ", and a device alone others: there is no result to hold the run to"
            remedy = f"verify it with drop: 1; of the rows and bytes that are held there a plan counts {routing.drop:g}"
            raise InputError.one("capacity-per-device", message, stated.at("assume", "routing", "drop"), remedy)
        even = even.model_copy(update={"drop": min(PAIR, -(-routing.drop // 1))})
    if copies:  # exact, as no file could state them
        exact = CopiesFields.model_construct(node=copies.get("node"), rank=copies.get("rank"))
        even = even.model_copy(update={"copies": exact})
    assume = question.assume.model_copy(update={"routing": even})
    return replace(stated, file=stated.file.model_copy(update={"assume": assume}))


def shrunk_practice(question: Question) -> Practice:
    """Where some layers of a chunk are recomputed one is, and all where all are."""
    practice, most = question.practice, max(chunk.layers for chunk in question.stages.chunks)
    if practice.recompute_layers is None:
        return practice
    return replace(practice, recompute_layers=LAYERS if practice.recompute_layers == most else 1)


# Devices ---------------------------------------------------------------------------------------------------------


def shrunk_schedule(question: Question, mesh: Mesh) -> PipelineSchedule | None:
    """The same schedule for the stages that are left, with two microbatches for each of them where there were."""
    if not question.schedule:
        return None
    ranks, had = mesh.size(*question.layout.stages), question.workload.microbatches
    if question.inference:
        return forward_only(ranks)
    rounds = ranks * max(1, had // question.schedule.ranks)
    parts = min(MICROBATCHES * ranks, rounds if question.schedule.chunks > 1 else had)
    name = question.schedule.name
    meets = SCHEDULES[name].meets(ranks)
    parts = int(min(parts, meets)) if question.blocking is True else parts
    return checked(pipeline_schedule(name, ranks, min(CHUNKS, question.schedule.chunks), parts))


def shrunk_split(stages: Stages, ranks: int, chunks: int) -> tuple[int, ...]:
    """The layers of each chunk of so many ranks: of the first, the last, and between them the one that is unlike these.

    Two where all chunks that have any are alike; where not, as few as keep apart who had fewer and who had more.
    """
    had = [(*own[: chunks - 1], own[-1]) for own in map(stages.chunk_layers, range(stages.ranks))]
    kept = [had[0], *(had[_unlike(stages)] for _ in range(ranks - PAIR)), had[-1]]
    sizes = sorted({0, *chain.from_iterable(kept)})
    few = {0: 0, sizes[-1]: LAYERS} if len(sizes) == PAIR else {size: at for at, size in enumerate(sizes)}
    return tuple(few[layers] for turn in zip(*kept, strict=True) for layers in turn)


def _unlike(stages: Stages) -> int:
    """The first rank with a chunk that no chunk of the first and of the last rank is like; 0 without one."""
    ends = {*stages.chunk_layers(0), *stages.chunk_layers(stages.ranks - 1)}
    return next((rank for rank in range(stages.ranks) if {*stages.chunk_layers(rank)} - ends), 0)


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

    A dim that had fewer keeps what it had. Convolutions read fewer tokens than there are.

    before, mesh  the meshes of the question and of the run, alike in their axes

    Where the tokens as keys were as many as the tokens as queries (t = s) they still are, else whole times as many; a
    head's image under rotation is as long as the head (e = d), and it is even, because rotation turns pairs. There are
    positions for all tokens, and more than that if there were more. The tokens that a device has of a sequence, or of
    its sequences where some are decoded, choose every expert alike often.

    apart  nodes, or ranks, that they go to alike often, too
    """
    types = list(_types(program))
    # A mean of contexts may be no whole number.
    sizes = {dim: _least_size(dim, int(size), types, before, mesh) for dim, size in old.items()}
    filled = {axis for type_ in types if (line := flat_dim(type_)) for axis in line.ways}
    sizes["h"] += bool(filled) and not sizes["h"] % mesh.size(*filled)  # so that there is something to fill up
    tied = old["s"] == old["t"]
    if tied:
        sizes["s"] = lcm(sizes["s"], sizes["t"])
    for dim, image in ROTATED.items():
        if image in sizes:
            sizes[dim] = sizes[image] = lcm(sizes[dim], sizes[image], PAIR if old[dim] % PAIR == 0 else 1)
    sizes |= {"j": sizes["r"] + PAIR} if "j" in sizes else {}
    if "lw" in sizes:
        sizes["lw"] = min(FEW - 1, old["lw"])
        sizes["lp"] = sizes["lpe"] = sizes["lw"] - 1
    if "i" in sizes:
        sizes |= {**_experts(sizes, old), **apart}
        more = "s" if tied else "b"  # of tokens that are decoded there are no more than there were
        parts = lcm(*(mesh.size(*type_.axes(more)) for type_ in types if more in type_.dims))
        block = (1 if apart else sizes["k"]) * sizes[more] // parts
        sizes[more] *= lcm(turns(sizes) if apart else sizes["n"], block) // block
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
    block = max(min(PAIR, size // most), -(-min(FEW, size) // shards))
    return shards * max(1, block)


def _types(program: Program) -> Iterator[Sharding]:
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
