"""Each typed op follows one rule of the algebra and refuses what the algebra forbids, with the reason."""

from __future__ import annotations

import pytest

from tpsim.algebra.sharding import Sharding, ShardingError
from tpsim.program.layout import layout
from tpsim.program.op import Reshard, Where
from tpsim.program.trace import Trace


@pytest.fixture
def trace():
    return Trace(layout(tp=("X",), dp=("D",)), ("D", "X"), Where("F", "mlp"), region="block")


def leaf(trace, name, dims, region="block", role="activation"):
    return trace.leaf(name, tuple(dims), region, "bf16", role)


def test_columns_then_rows_leave_one_owed_sum(trace):
    up = trace.einsum("up", ("b", "s", "f"), leaf(trace, "x", "bsh"), leaf(trace, "W1", "hf"))
    assert str(up.type) == "[b_D, s, f_X]"
    down = trace.einsum("down", ("b", "s", "h"), trace.map("act", "gelu", up), leaf(trace, "W2", "hf"))
    assert str(down.type) == "[b_D, s, h]{U_X}"
    assert trace.owed_because(down) == ["case 3: both operands are split on f over X, so down owes a sum over X"]


def test_a_nonlinear_map_of_an_owed_sum_is_refused(trace):
    down = trace.einsum("down", ("b", "s", "h"), leaf(trace, "a", "bsf"), leaf(trace, "W2", "hf"))
    with pytest.raises(ShardingError) as error:
        trace.map("act", "gelu", down)
    assert str(error.value) == (
        "down[b_D, s, h]{U_X} owes a sum over X: "
        "a nonlinear function of a sum is not the sum of the functions; settle down over X first"
    )


def test_one_axis_on_two_dims_is_case_4(trace):
    with pytest.raises(ShardingError) as error:
        trace.einsum("y", ("v", "f"), leaf(trace, "A", "vh"), leaf(trace, "B", "hf"))
    assert str(error.value) == (
        "y: case 4: A[v_X, h] and B[h, f_X] split two different dims over X; gather one of them first"
    )


def test_a_dim_split_in_two_ways_needs_a_pin(trace):
    whole = trace.reshard(leaf(trace, "a", "bsf"), Sharding(("b", "s", "f"), (("D",), (), ())), "gathered")
    with pytest.raises(ShardingError) as error:
        trace.einsum("y", ("b", "s", "h"), whole, leaf(trace, "W2", "hf"))
    assert str(error.value) == ("y: a[b_D, s, f] and W2[h, f_X] are split differently on f; one of them needs a pin")


def test_an_owed_operand_meets_no_operand_split_over_the_same_axis(trace):
    down = trace.einsum("down", ("b", "s", "h"), leaf(trace, "a", "bsf"), leaf(trace, "W2", "hf"))
    with pytest.raises(ShardingError) as error:
        trace.einsum("y", ("b", "s", "f"), down, leaf(trace, "W1", "hf"))
    assert str(error.value) == (
        "down[b_D, s, h]{U_X} owes a sum over X: each device would multiply its part of down by another block of W1; "
        "settle down over X first"
    )


def test_no_product_preserves_an_owed_max(trace):
    top = trace.max("top", leaf(trace, "logits", "bsv"), "v")
    assert str(top.type) == "[b_D, s]{M_X}"
    with pytest.raises(ShardingError, match="a max must be known before it is multiplied"):
        trace.einsum("y", ("b", "s"), top, top)


def test_sums_owed_alike_are_added_before_they_are_settled(trace):
    one = trace.einsum("one", ("b", "s", "h"), leaf(trace, "a", "bsf"), leaf(trace, "W", "hf"))
    two = trace.einsum("two", ("b", "s", "h"), leaf(trace, "c", "bsf"), leaf(trace, "Q", "hf"))
    assert str(trace.lin("both", one, two).type) == "[b_D, s, h]{U_X}"


def test_a_bias_that_does_not_owe_settles_what_it_is_added_to(trace):
    down = trace.einsum("down", ("b", "s", "h"), leaf(trace, "a", "bsf"), leaf(trace, "W2", "hf"))
    summed = trace.lin("y", down, leaf(trace, "b2", "h"))
    assert str(summed.type) == "[b_D, s, h]"
    moves = [move.kind for op in trace.ops if isinstance(op, Reshard) for move in op.moves]
    assert moves == ["all_reduce"]


def test_a_pullback_may_owe_because_it_is_linear_in_the_cotangent(trace):
    cotangent = trace.einsum("dy", ("b", "s", "h"), leaf(trace, "a", "bsf"), leaf(trace, "W2", "hf"))
    pulled = trace.map("d.x", "square", cotangent, leaf(trace, "x", "bsh"), partial=0)
    assert str(pulled.type) == "[b_D, s, h]{U_X}"
