"""A question made small enough to run: the same structure, the least sizes that show it.

What is kept: the model's arrays and functions, the layout's table, the practice, the dtypes, the machine, every mesh
axis of more than one device, and how each lies on the machine (rings, lines and switches, part by part, strides
included). What shrinks: devices, dims, layers, microbatches.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from tpsim.claims.shrunk_dims import shrunk_dims, shrunk_model
from tpsim.claims.shrunk_placement import OTHER, PAIR, shrunk_placement
from tpsim.program.copies import DIMS_OF, parts_of
from tpsim.program.schedules import checked, forward_only, pipeline_schedule
from tpsim.quantity.errors import InputError
from tpsim.question.question import Inference
from tpsim.question.scenario_file import CopiesFields
from tpsim.question.shelf import lowered
from tpsim.reference.routing import turned_copies

if TYPE_CHECKING:
    from collections.abc import Mapping
    from fractions import Fraction

    from tpsim.algebra.mesh import Mesh
    from tpsim.program.layout import Practice
    from tpsim.program.schedules import PipelineSchedule
    from tpsim.program.stages import Stages
    from tpsim.question.question import Question
    from tpsim.question.stated import Stated

LAYERS, MICROBATCHES, CHUNKS = 2, 2, 2
"""Enough to show what is repeated, what is shared and what is added up, and that ranks take turns among chunks."""


def shrink(question: Question) -> Question:
    """`question` at sizes that run in seconds; a valid question of its own, which a plan can price.

    Raises InputError if the mesh has so many axes that pairs and least rings alone are more than 64 devices.
    """
    stages = question.stages
    apart = OTHER if _unlike(stages) else PAIR
    pipe = question.layout.stages
    placement = shrunk_placement(question.placement, dict.fromkeys(pipe, apart if len(pipe) == 1 else PAIR))
    mesh = placement.mesh
    program = lowered(question).program
    old = question.workload.dims(question.model)
    levels = question.practice.rows.levels
    goals = dict(parts_of(levels, mesh.axes))
    dims = shrunk_dims(program, old, question.mesh, mesh, apart={DIMS_OF[of][0]: n for of, n in goals.items()})
    taking_turns = shrunk_schedule(question, mesh)
    microbatches = taking_turns.microbatches if taking_turns else min(MICROBATCHES, question.workload.microbatches)
    split = shrunk_split(stages, taking_turns.ranks, taking_turns.chunks) if taking_turns else ()
    workload = replace(
        question.workload, global_batch=dims["b"] * microbatches, seq=dims["s"], microbatches=microbatches
    )
    if isinstance(workload, Inference):  # of a whole reply, one of its steps
        tokens = dims["t"]
        workload = replace(workload, kind=workload.serving.phase, attended=tokens, longest=tokens, fills=False)
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
        resolved={},
    )


def _balanced(question: Question, copies: Mapping[str, Fraction]) -> Stated:
    """What is stated, but for the load of experts: tokens choose evenly, so that every call has the mean.

    copies  of each token, for nodes or ranks, where these are fewer than its experts

    Raises InputError where rows are dropped: which ones hangs on the number of devices.
    """
    stated, routing = question.stated, question.assume.routing
    if question.model.experts and routing.drop != "none":
        message = "with a capacity other rows are dropped on fewer devices, so a run cannot be held against one device"
        raise InputError.one(
            "capacity-per-device", message, stated.at("assume", "routing"), "verify it with drop: none"
        )
    even = type(routing)()
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
    return checked(pipeline_schedule(question.schedule.name, ranks, min(CHUNKS, question.schedule.chunks), parts))


def shrunk_split(stages: Stages, ranks: int, chunks: int) -> tuple[int, ...]:
    """The layers of each chunk of so many ranks: of the first, the last, and between them the one that is unlike these.

    Two where all chunks that have any are alike; where not, as few as keep apart who had fewer and who had more.
    """
    had = [_ends(stages.chunk_layers(rank), chunks) for rank in range(stages.ranks)]
    kept = [had[0], *(had[_unlike(stages)] for _ in range(ranks - PAIR)), had[-1]]
    sizes = sorted({0, *chain.from_iterable(kept)})
    few = {0: 0, sizes[-1]: LAYERS} if len(sizes) == PAIR else {size: at for at, size in enumerate(sizes)}
    return tuple(few[layers] for turn in zip(*kept, strict=True) for layers in turn)


def _ends(layers: tuple[int, ...], chunks: int) -> tuple[int, ...]:
    """The chunks of a rank that are kept: the first ones and the last."""
    return (*layers[: chunks - 1], layers[-1])


def _unlike(stages: Stages) -> int:
    """The first rank with a chunk that no chunk of the first and of the last rank is like; 0 without one."""
    told = {*stages.chunk_layers(0), *stages.chunk_layers(stages.ranks - 1)}
    return next((rank for rank in range(stages.ranks) if {*stages.chunk_layers(rank)} - told), 0)
