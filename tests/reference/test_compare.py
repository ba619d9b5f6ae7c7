"""What is compared between two runs, and that each kind of difference is seen where it is."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tests.models import GPT, LLAMA
from tests.reference.judge import run, unsharded
from tpsim.algebra.mesh import Mesh
from tpsim.program.layout import layout
from tpsim.program.op import Map, Reshard
from tpsim.program.practice import Practice
from tpsim.reference import compare, local_ops
from tpsim.reference.compare import FLOOR, TOLERANCE, Misaligned, compared, slopes

MESH, WHERE = Mesh({"D": 2, "X": 2}), layout(tp=("X",), dp=("D",), zero=1, sequence_parallel=True)


@pytest.fixture(scope="module")
def whole():
    return unsharded(LLAMA, Practice())


@pytest.fixture
def sharded():
    return run(LLAMA, WHERE, Practice(), MESH)


def named(sharded, name, layer=0):
    """The outputs of that name in a layer, in order of the program."""
    found = [op for op in sharded.program.ops if op.output.name == name and op.where.index("layers") == layer]
    return [op.output for op in found if op.where.index("microbatches") == 0]


def worst(sharded, whole):
    return max(compared(sharded, whole), key=lambda one: one.difference)


def test_everything_that_a_step_computes_is_compared_and_equal(sharded, whole):
    found = list(compared(sharded, whole))
    names = {one.name.partition("[")[0] for one in found}
    assert {"0.mlp.out.0", "1.d.mlp.in.1", "loss", "grad.0.Wq", "new.1.W2", "0.new.moment.Wq"} <= names
    assert {one.phase for one in found} == {"forward", "backward", "update"}
    handed = sharded.program.results
    assert [one.name for one in found][-len(handed) :] == [f"{name}{array.type}" for name, array in handed.items()]
    assert max(one.difference for one in found) < 1e-12
    assert all(one.blocks == 4 for one in found)


def test_a_value_that_one_device_holds_wrong_is_named_with_the_device(sharded, whole):
    array = named(sharded, "mlp.act")[0]
    block = sharded.blocks[array][1, 0].copy()
    block.flat[3] += 1.0
    sharded.blocks[array][1, 0] = block
    found = worst(sharded, whole)
    assert (found.name, found.device) == (f"0.mlp.act.0{array.type}", "D 1, X 0")
    assert found.difference == pytest.approx(1.0 / np.abs(whole.value(named(whole, "mlp.act")[0])).max())


def test_a_replica_that_differs_from_the_others_is_named(sharded, whole):
    array = named(sharded, "mlp.in")[0]
    sharded.blocks[array][0, 1] = sharded.blocks[array][0, 1] * 2.0
    found = worst(sharded, whole)
    assert (found.name, found.device) == (f"0.mlp.in.0{array.type}", "D 0, X 1")


def test_two_devices_that_hold_each_others_blocks_are_seen(sharded, whole):
    array = named(sharded, "residual")[0]
    blocks = sharded.blocks[array]
    blocks[0, 0], blocks[0, 1] = blocks[0, 1], blocks[0, 0]
    assert worst(sharded, whole).name.startswith("0.residual.0[b_D, s_X, h]")


def test_an_array_that_owes_is_compared_when_its_parts_are_paid(sharded, whole):
    owing = named(sharded, "mlp.out")[0]
    assert owing.type.owed_axes == {"X"}
    for device in ((0, 0), (1, 0)):
        sharded.blocks[owing][device] = sharded.blocks[owing][device] + 1.0
    found = worst(sharded, whole)
    assert (found.name, found.device) == (f"0.mlp.out.0{owing.type}", "")
    for device in ((0, 1), (1, 1)):
        sharded.blocks[owing][device] = sharded.blocks[owing][device] - 1.0
    assert worst(sharded, whole).difference < 1e-12


def test_a_block_of_another_shape_or_without_numbers_is_an_infinite_difference(sharded, whole):
    array = named(sharded, "mlp.act")[0]
    right = sharded.blocks[array][0, 0]
    for wrong in (right[:1], np.full_like(right, np.nan)):
        sharded.blocks[array][0, 0] = wrong
        found = worst(sharded, whole)
        assert (found.difference, found.device) == (float("inf"), "D 0, X 0")


def test_a_move_must_keep_what_it_moves_though_backward_groups_it_otherwise(sharded, whole):
    moved = next(op for op in sharded.program.ops if isinstance(op, Reshard) and op.output.name == "d.mlp.in")
    sharded.blocks[moved.output] = {device: 2.0 * block for device, block in sharded.blocks[moved.output].items()}
    assert worst(sharded, whole).name.startswith("1.d.mlp.in.0[b_D, s_X, h]")


def test_programs_of_other_ops_are_not_compared(sharded):
    with pytest.raises(Misaligned, match="stands where one device has"):
        list(compared(sharded, unsharded(LLAMA, Practice(qkv="fused"))))


def test_what_runs_once_more_is_what_ran_first_whatever_one_device_runs_again(whole):
    """On one device a dropped array may not be missing, or another one may: of keys it gathers none."""
    again = run(LLAMA, WHERE, Practice(recompute=("mlp.act", "attention.mixed")), MESH)
    assert worst(again, whole).difference < 1e-12
    made = next(op.output for op in again.program.ops if op.where.again == "replay" and op.output.name == "mlp.act")
    again.blocks[made] = {device: 2.0 * block for device, block in again.blocks[made].items()}
    assert worst(again, whole).name.startswith("1.mlp.act.0")


def test_an_op_that_one_program_lacks_is_seen(sharded, whole):
    ops = whole.program.ops
    last = max(at for at, op in enumerate(ops) if op.where.phase == "update" and not isinstance(op, Reshard))
    whole = replace(whole, program=replace(whole.program, ops=ops[:last] + ops[last + 1 :]))
    with pytest.raises(Misaligned):
        list(compared(sharded, whole))


@pytest.mark.parametrize("model", [LLAMA, GPT], ids=lambda model: model.name)
def test_every_parameter_has_a_slope_and_a_gradient_that_is_zero_is_no_difference(model):
    one = unsharded(model, Practice())
    found = {slope.parameter: slope.difference for slope in slopes(one)}
    assert {f"grad.{name}" for name in found} == {name for name in one.program.results if name.startswith("grad.")}
    assert max(found.values()) < 1e-5


def test_a_gradient_that_is_wrong_in_one_element_has_another_slope(whole):
    blocks = whole.blocks[whole.program.results["grad.1.W2"]]
    (device,) = blocks
    right = blocks[device]
    try:
        blocks[device] = right.copy()
        blocks[device].flat[5] += 0.01 * np.linalg.norm(right)
        found = {slope.parameter: slope.difference for slope in slopes(whole)}
    finally:
        blocks[device] = right
    assert [name for name, difference in found.items() if difference > 1e-5] == ["1.W2"]


def test_parameters_that_are_moved_at_once_or_side_by_side_have_the_slopes_of_each_alone(whole, monkeypatch):
    at_once = {one.parameter: one.difference for one in slopes(whole)}
    monkeypatch.setattr(compare, "NEAR", 0.0)  # nothing is near enough: all are looked at again
    beside = {one.parameter: one.difference for one in slopes(whole)}
    monkeypatch.setattr(compare, "TOGETHER", 1)
    alone = {one.parameter: one.difference for one in slopes(whole)}
    assert len({*at_once.values()}) == 1 < len({*alone.values()})
    assert at_once == pytest.approx(alone, abs=1e-7)
    assert beside == pytest.approx(alone, abs=1e-7)


def test_a_gradient_of_another_order_of_size_is_moved_with_none_that_is_shorter_by_far():
    moves = [SimpleNamespace(length=length) for length in (1.0, 3e-4, 90.0, 0.02, 101.0)]
    assert [[one.length for one in group] for group in compare._groups(moves)] == [[3e-4, 0.02], [1.0, 90.0], [101.0]]


def test_what_devices_do_side_by_side_is_what_each_does_alone(monkeypatch):
    together = run(LLAMA, WHERE, Practice(), MESH)
    monkeypatch.setattr(local_ops, "SIDE_BY_SIDE", ())
    alone = run(LLAMA, WHERE, Practice(), MESH)
    for one, other in zip(together.blocks.values(), alone.blocks.values(), strict=True):
        assert one.keys() == other.keys()
        assert all(np.allclose(one[device], other[device], rtol=1e-10, atol=1e-12) for device in one)


def test_blocks_that_are_not_as_large_are_worked_on_one_by_one():
    op = next(op for op in run(LLAMA, WHERE, Practice(), MESH).program.ops if isinstance(op, Map))
    blocks = {(0,): np.ones((2, 3)), (1,): np.ones((2, 2))}
    found = local_ops.made(op, lambda _, own: 2 * own[0], [blocks], [(0,), (1,)])
    assert {device: block.shape for device, block in found.items()} == {(0,): (2, 3), (1,): (2, 2)}


def test_what_is_left_of_values_that_cancel_differs_by_less_than_counts():
    """Of the latent attention of DeepSeek a layer's scale hardly matters: 8e-7 is left of 0.43, rounded to 1e-16."""
    assert 10 * np.finfo(float).eps / FLOOR < TOLERANCE
