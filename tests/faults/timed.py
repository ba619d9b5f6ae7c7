"""Deliberate faults: memory, FLOPs and seconds, what runs beside compute, stages and schedules."""

from __future__ import annotations

from dataclasses import replace

from tests.faults.fault import Fault, given, gives
from tests.faults.judges import STAGES
from tpsim.algebra.moves import Move
from tpsim.algebra.sharding import Sharding
from tpsim.cost import grid, kernels, memory, nodes
from tpsim.cost.piece import Piece
from tpsim.machine import cost as ways
from tpsim.program import schedules, stages, trace
from tpsim.program.kinds import ALIKE
from tpsim.program.op import Einsum, Reshard
from tpsim.program.schedules import DEFAULT, pipeline_schedule
from tpsim.quantity.size import over, smallest


def whole_state(array):
    """An optimizer's state as if no axis split it."""
    return replace(array, type=Sharding(array.dims, ((),) * len(array.dims))) if array.role == "state" else array


def of_one_layer(homes):
    """Arrays of layers as if they stood in none, once for all of them."""
    return {array: where.outside(ALIKE) for array, where in homes.items()}


def without_what_is_once(work):
    """The work of a rank that computes nothing once per step."""
    work.own[0] = replace(work.own[0], once_s=0, late_s=0)
    return work


def holding(lanes):
    """Pieces that hold other lanes than they should."""

    def wrong(right):
        def made(piece):
            right(piece)
            object.__setattr__(piece, "holds", lanes(piece))

        return made

    return wrong


def kept_back(right):
    """Nothing is sent in backward: it is read where it is."""
    return lambda trace, x, name, because: x if trace.where.act == "B" else right(trace, x, name, because)


def not_added(op):
    """A sum of what several stages have that moves nothing."""
    adds = isinstance(op, Reshard) and any(move.kind == "all_reduce" and move.members for move in op.moves)
    return replace(op, moves=()) if adds else op


def other_side(where):
    """For one side of a cut the other."""
    return replace(where, chunks=(1 - where.chunks[0],)) if where.place == "side" else where


def other_way(where):
    """For a message the one that goes the other way, whose sender receives it."""
    return replace(where, act="B" if where.act == "F" else "F") if where.place == "cut" else where


def as_forwards(right):
    """Backwards go through the chunks in the order of the forwards."""

    def in_turn(forwards, _backwards, warm):
        chunks, microbatches = zip(*((part.chunk, part.microbatch) for (part,) in forwards), strict=True)
        return right(forwards, schedules._backwards(chunks, microbatches), warm)

    return in_turn


FAULTS: list[Fault] = [
    # Memory, FLOPs, seconds
    Fault(
        "all steps wait for one hop",
        ways.TunedLink.seconds,
        given(steps=lambda steps: smallest(steps, 1)),
        "seconds_are_steps_by_hops_and_bytes_by_bandwidth",
        "1e-06",
    ),
    Fault(
        "a link sends both ways as fast as one way",
        ways.TunedLink.bandwidth,
        gives(lambda bandwidth: 2 * bandwidth),
        "seconds_are_steps_by_hops_and_bytes_by_bandwidth",
        "broken",
    ),
    Fault(
        "a group has the devices of one axis",
        Move.ranks,
        given(self=lambda move: replace(move, axes=move.axes[:1])),
        "verify gather of two axes",
        "wire planned",
    ),
    Fault(
        "a product counts one FLOP per pair",
        Einsum.flops,
        gives(lambda flops: over(flops, 2)),
        "a_chip_multiplies_what_its_blocks_say",
        "broken",
    ),
    Fault(
        "FLOPs are those of all devices",
        Einsum.flops,
        given(axes=lambda axes: dict.fromkeys(axes, 1)),
        "a_chip_multiplies_what_its_blocks_say",
        "broken",
    ),
    Fault(
        "memory holds one layer",
        memory.Standing._held,
        given(homes=of_one_layer),
        "a_chip_holds_what_its_blocks_say",
        "broken",
    ),
    Fault(
        "optimizer states are held whole",
        memory.local_bytes,
        given(array=whole_state),
        "a_chip_holds_what_its_blocks_say",
        "broken",
    ),
    Fault(
        "scores are read from memory",
        kernels._Gathering._reads,
        given(self=lambda gathering: replace(gathering, maker={})),
        "attention_keeps_its_scores_on_the_chip",
        "broken",
    ),
    Fault(
        "a grid runs one of equal microbatches",
        grid.step_s,
        given(work=lambda work: replace(work, schedule=pipeline_schedule(DEFAULT, 1, 1, 1))),
        "a_grid_prices_a_layout_as_a_plan_does",
        "broken",
    ),
    Fault(
        "a grid leaves out what its rank does once",
        grid.step_s,
        given(work=without_what_is_once),
        "a_grid_prices_a_layout_as_a_plan_does",
        "broken",
    ),
    # What runs beside compute
    Fault(
        "gradients are ready before the products that make them",
        nodes.Builder._moves,
        given(reads=lambda _: frozenset()),
        "what_is_made_last_waits_for_all_compute",
        "broken",
    ),
    Fault(
        "a collective beside compute holds it up",
        Piece.__post_init__,
        holding(lambda piece: piece.waits),
        "law: gradients by layer",
        "broken",
    ),
    Fault(
        "a collective that is not beside compute lets it go on",
        Piece.__post_init__,
        holding(lambda piece: (piece.lane,)),
        "law: gradients that block",
        "broken",
    ),
    # Stages and schedules
    Fault(
        "what comes behind a cut is not sent back",
        trace.Trace.send,
        kept_back,
        f"verify {STAGES}",
        "reads d.",
    ),
    Fault(
        "the parts of a tied embedding's gradient are not added",
        trace.Trace.emit,
        given(op=not_added),
        f"verify {STAGES}",
        "grad.E",
    ),
    Fault(
        "a rank counts a layer for each of its chunks",
        stages.Stages.times,
        gives(lambda count: min(count, 1)),
        "law: stages",
        "broken",
    ),
    Fault(
        "the side behind a cut is taken for the one before it",
        stages.Stages.times,
        given(where=other_side),
        "law: stages",
        "broken",
    ),
    Fault(
        "messages are counted at the rank that receives them",
        stages.Stages.times,
        given(where=other_way),
        "law: stages",
        "broken",
    ),
    Fault(
        "gradients of weights come a microbatch late",
        schedules._split,
        given(late=lambda late: late + 1),
        "law: what is in flight",
        "broken",
    ),
    Fault(
        "backwards go through the chunks as forwards do",
        schedules._in_turn,
        as_forwards,
        "law: published bubbles",
        "deadlock",
    ),
    Fault(
        "a rank warms up with a forward more than its backward needs",
        schedules._in_turn,
        given(warm=lambda warm: warm + 1),
        "law: what is in flight",
        "broken",
    ),
]
