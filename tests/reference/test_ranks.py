"""Ranks that hold only their stage, with real messages between them: every schedule, against one device."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from tests.models import GPT, LLAMA, QWEN, deep
from tpsim.algebra.mesh import Mesh
from tpsim.program.dtypes import Dtypes
from tpsim.program.frameworks import PRACTICES
from tpsim.program.layout import layout
from tpsim.program.lower import lower
from tpsim.program.op import Lin, Reshard, Scale
from tpsim.program.schedules import SCHEDULES, PipelineSchedule, pipeline_schedule
from tpsim.reference.compare import compared
from tpsim.reference.execute import execute
from tpsim.reference.run import leaves


def runs(model, name, *, p=2, v=1, m=4, tp=1, dp=1, change=None, schedule=None, **chosen):
    """The model on the ranks of a pipeline, one layer per chunk, and on one device."""
    model, mesh = deep(model, p * v), Mesh({"pipe": p, "data": dp, "tensor": tp})
    laid = layout(tp=("tensor",), dp=("data",), pp=("pipe",), **chosen)
    practice = PRACTICES["megatron"]
    sizes = {**model.dims(sequences=2 * dp, seq=4), "m": m}
    program = lower(model, laid, practice, Dtypes(), mesh.order, layers=(1,) * (p * v), microbatches=m)
    program = change(program) if change else program
    schedule = schedule or pipeline_schedule(name, p, v, m)
    staged = execute(program, mesh, sizes, leaves(sizes), schedule=schedule)
    return staged, alone(model, practice.under(laid), p * v, 2 * dp, m)


@cache
def alone(model, practice, layers, sequences, m):
    """The model on one device."""
    sizes = {**model.dims(sequences=sequences, seq=4), "m": m}
    whole = lower(model, layout(), practice, Dtypes(), (), layers=layers, microbatches=m)
    return execute(whole, Mesh({}), sizes, leaves(sizes))


def worst(staged, whole):
    return max(compared(staged, whole), key=lambda one: one.difference)


# A schedule knows no model: each schedule meets many microbatches, some few, and each model one more shape.
STAGED = [
    *((name, GPT, 3, 6) for name in SCHEDULES),
    *((name, GPT, 2, 2) for name in ("interleaved", "zb-h2")),
    ("1f1b", LLAMA, 2, 4),
    ("1f1b", QWEN, 4, 4),
]


@pytest.mark.parametrize(("name", "model", "p", "m"), STAGED)
def test_every_schedule_gives_loss_gradients_and_update_of_one_device(name, model, p, m):
    staged, whole = runs(model, name, p=p, v=2 if SCHEDULES[name].several else 1, m=m)
    assert worst(staged, whole).difference < 1e-10
    results = set(staged.program.results)
    assert results == set(whole.program.results)
    assert "grad.E" in results
    assert "new.E" in results


@pytest.mark.parametrize(("zero", "sp"), [(0, True), (1, False), (2, True), (3, False)])
def test_stages_go_with_tensor_sequence_and_data_parallelism(zero, sp):
    staged, whole = runs(GPT, "1f1b", tp=2, dp=2, zero=zero, sequence_parallel=sp)
    assert worst(staged, whole).difference < 1e-10


def test_a_device_holds_its_own_stage_and_nothing_else():
    staged, _ = runs(GPT, "1f1b", p=3, m=3)
    home = {op.output: {chunk % 3 for chunk in op.where.chunks} for op in staged.program.ops}
    assert all({device[0] for device in blocks} == home[array] for array, blocks in staged.blocks.items())
    tied = next(array for array in staged.blocks if array.name == "E" and array.role == "param")
    assert {device[0] for device in staged.blocks[tied]} == {0, 2}


def test_every_message_is_counted_with_its_bytes():
    p, m, tp = 3, 4, 2
    staged, _ = runs(LLAMA, "1f1b", p=p, m=m, tp=tp)
    sends = [cause for cause in staged.causes if cause.move.kind == "send"]
    ways = Counter((cause.op.where.act, cause.op.where.chunks[0]) for cause in sends)
    assert ways == {("F", 1): m, ("F", 2): m, ("B", 0): m, ("B", 1): m}
    volume = 2 * 4 * LLAMA.hidden * 2
    assert {tuple(cause.call.injected) for cause in sends} == {(volume,) * tp}


def test_the_gradient_of_a_tied_embedding_goes_between_the_two_stages_that_hold_it():
    staged, _ = runs(GPT, "1f1b", p=3, m=3)
    summed = [cause for cause in staged.causes if cause.move.axes == ("pipe",) and cause.move.kind == "all_reduce"]
    calls = [cause.call for cause in summed if cause.op.where.block != "clip"]
    assert [tuple(call.injected) for call in calls] == [(GPT.hidden * GPT.vocab_padded * 4,) * 2]


# Faults: what each of these breaks must be seen.


def broken(program, wrong):
    """The program with ops replaced."""
    return replace(program, ops=tuple(wrong(op) or op for op in program.ops))


def test_a_cotangent_that_is_sent_back_wrong_is_seen():
    def twice(op):
        if isinstance(op, Lin) and op.where.act == "B" and op.where.place == "layer" and len(op.inputs) > 1:
            return replace(op, scales=(Scale(2.0), *op.scales[1:]))
        return None

    staged, whole = runs(LLAMA, "1f1b", change=lambda program: broken(program, twice))
    assert worst(staged, whole).difference > 1e-3


def test_a_tied_gradient_that_is_not_joined_is_seen():
    def kept(op):
        if isinstance(op, Reshard) and any(move.members and move.kind == "all_reduce" for move in op.moves):
            return replace(op, moves=())
        return None

    staged, whole = runs(GPT, "1f1b", change=lambda program: broken(program, kept))
    bad = {one.name.split("[")[0] for one in compared(staged, whole) if one.difference > 1e-6}
    assert "grad.E" in bad


def test_a_message_that_is_never_sent_leaves_ranks_waiting():
    made = pipeline_schedule("1f1b", 2, 1, 2)
    short = PipelineSchedule("short", 1, 2, (made.orders[0][:1], made.orders[1]))
    with pytest.raises(ValueError, match=r"^deadlock: rank 1 waits for the message of F of chunk 0, microbatch 1"):
        runs(LLAMA, "", m=2, schedule=short)


def test_messages_that_leave_in_another_order_than_they_are_wanted_are_seen():
    made = pipeline_schedule("gpipe", 2, 1, 2)
    first, second, *rest = made.orders[0]
    swapped = PipelineSchedule("swapped", 1, 2, ((second, first, *rest), made.orders[1]))
    with pytest.raises(ValueError, match="another message comes first"):
        runs(LLAMA, "", m=2, schedule=swapped)


def test_what_another_stage_holds_cannot_be_read():
    def lost(op):
        return replace(op, moves=()) if isinstance(op, Reshard) and op.output.name == "cut.out" else None

    made = pipeline_schedule("gpipe", 2, 1, 2)
    early = PipelineSchedule("early", 1, 2, (made.orders[0], (((*made.orders[1][2],)), *made.orders[1])))
    with pytest.raises((KeyError, ValueError)):
        runs(LLAMA, "", m=2, schedule=early, change=lambda program: broken(program, lost))
