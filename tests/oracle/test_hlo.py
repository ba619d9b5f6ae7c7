"""The reader of HLO on small texts: what it counts, what it takes for a reduce-scatter, what it refuses; no jax."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.oracle.calls import Call, compiled

if TYPE_CHECKING:
    from collections import Counter

MESH = {"X": 2, "Y": 2}
OVER_X = "replica_groups=[2,2]<=[2,2]T(1,0), to_apply=%add"


def program(*lines: str) -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return f"HloModule m\n\nENTRY %main (p: f32[8,4]) -> f32[8,4] {{\n  %p = f32[8,4]{{1,0}} parameter(0)\n{body}\n}}\n"


def counted(*lines: str) -> Counter[Call]:
    return compiled(program(*lines), MESH).calls


def sliced(table: str) -> list[str]:
    """An all-reduce over X of which device i keeps the rows from ``table[i]``."""
    return [
        f"%sum = f32[8,4]{{1,0}} all-reduce(%p), {OVER_X}",
        "%me = u32[] partition-id()",
        f"%table = s32[4]{{0}} constant({{{table}}})",
        "%row = s32[1]{0} dynamic-slice(%table, %me), dynamic_slice_sizes={1}",
        "%start = s32[] bitcast(%row)",
        "%zero = s32[] constant(0)",
        "ROOT %part = f32[4,4]{1,0} dynamic-slice(%sum, %start, %zero), dynamic_slice_sizes={4,4}",
    ]


def test_an_all_reduce_sliced_within_its_groups_is_a_reduce_scatter():
    assert counted(*sliced("0, 0, 4, 4")) == {Call("reduce_scatter", ("X",), 32, 2): 1}


def test_an_all_reduce_sliced_over_another_axis_stays_one():
    assert counted(*sliced("0, 4, 0, 4")) == {Call("all_reduce", ("X",), 32, 2): 1}


def test_an_all_reduce_that_is_also_read_whole_stays_one():
    whole = "%twice = f32[8,4]{1,0} add(%sum, %sum)"
    assert counted(*sliced("0, 0, 4, 4"), whole) == {Call("all_reduce", ("X",), 32, 2): 1}


def test_a_call_on_two_arrays_counts_twice():
    line = f"ROOT %both = (f32[8,4]{{1,0}}, f32[8,4]{{1,0}}) all-reduce(%p, %p), {OVER_X}"
    assert counted(line) == {Call("all_reduce", ("X",), 32, 2): 2}


def test_an_exchange_with_one_operand_per_peer_is_one_array():
    line = "ROOT %swap = (f32[8,4]{1,0}, f32[8,4]{1,0}) all-to-all(%p, %p), replica_groups={{0,1},{2,3}}"
    assert counted(line) == {Call("all_to_all", ("Y",), 128, 2): 1}


def test_a_gather_counts_the_whole_array():
    line = "ROOT %all = f32[32,4]{1,0} all-gather(%p), replica_groups={{0,1,2,3}}, dimensions={0}"
    assert counted(line) == {Call("all_gather", ("X", "Y"), 128, 4): 1}


def test_a_permute_names_the_axes_along_which_blocks_move():
    line = "ROOT %turn = f32[8,4]{1,0} collective-permute(%p), source_target_pairs={{0,0},{1,2},{2,1},{3,3}}"
    assert counted(line) == {Call("permute", ("X", "Y"), 128, 4): 1}


def test_a_group_of_half_an_axis_is_told_from_the_axis():
    line = "ROOT %all = f32[16,4]{1,0} all-gather(%p), replica_groups=[2,2]<=[4], dimensions={0}"
    assert compiled(program(line), {"X": 4}).calls == {Call("all_gather", ("X/2",), 64, 2): 1}


def test_a_product_of_matrices_counts_its_flops():
    line = "ROOT %dot = f32[8,8]{1,0} dot(%p, %p), lhs_contracting_dims={1}, rhs_contracting_dims={1}"
    assert compiled(program(line), MESH).flops == 2 * 8 * 8 * 4


@pytest.mark.parametrize("op", ["all-gather-start", "while", "ragged-all-to-all", "custom-call"])
def test_what_the_reader_cannot_count_is_refused(op):
    with pytest.raises(ValueError, match="might move data in a way that is not counted here"):
        counted(f"ROOT %x = f32[8,4]{{1,0}} {op}(%p)")


def test_devices_that_are_no_axes_are_refused():
    with pytest.raises(ValueError, match="does not run along axes"):
        counted("ROOT %x = f32[8,4]{1,0} all-reduce(%p), replica_groups={{0,3},{1,2}}")
