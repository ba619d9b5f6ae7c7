"""Tokens of a sequence on several devices: every way to share them sends what it must, and equals one device."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from tests.models import GPT, LLAMA, blocks
from tests.program.test_collectives import collectives
from tests.reference import test_experts as experts
from tests.reference.judge import difference, run, unsharded
from tpsim.algebra.mesh import Mesh
from tpsim.program.dtypes import Dtypes
from tpsim.program.layout import Layout, layout
from tpsim.program.lower import lower
from tpsim.program.op import Reshard
from tpsim.program.practice import Practice
from tpsim.reference import streamed

WAYS = {
    "gathered": (
        layout(cp=("C",)),
        {"all_gather_C [b, t_C, g, d]": 2},
        {"reduce_scatter_C [b, t, g, d]{U_C}": 2},
    ),
    "heads": (
        layout(cp=("C",), heads=("C",)),
        {"all_to_all_C [b, s_C, g, r, d]": 1, "all_to_all_C [b, t_C, g, d]": 2, "all_to_all_C [b, s, g_C, r, d]": 1},
        {"all_to_all_C [b, s_C, g, r, d]": 1, "all_to_all_C [b, t, g_C, d]": 2, "all_to_all_C [b, s, g_C, r, d]": 1},
    ),
    "heads beyond kv heads": (
        layout(cp=("C", "D"), heads=("C", "D"), kv_split=1),
        {
            "all_to_all_D [b, s_CD, g, r, d]": 1,
            "all_to_all_C [b, s_C, g, r_D, d]": 1,
            "all_gather_D [b, t_CD, g, d]": 2,
            "all_to_all_C [b, t_C, g, d]": 2,
            "all_to_all_C [b, s, g_C, r_D, d]": 1,
            "all_to_all_D [b, s_C, g, r_D, d]": 1,
        },
        {
            "all_to_all_D [b, s_CD, g, r, d]": 1,
            "all_to_all_C [b, s_C, g, r_D, d]": 1,
            "all_to_all_C [b, t, g_C, d]{U_D}": 2,
            "reduce_scatter_D [b, t_C, g, d]{U_D}": 2,
            "all_to_all_C [b, s, g_C, r_D, d]": 1,
            "all_to_all_D [b, s_C, g, r_D, d]": 1,
        },
    ),
    "both": (
        layout(cp=("C", "D"), heads=("D",)),
        {
            "all_to_all_D [b, s_CD, g, r, d]": 1,
            "all_to_all_D [b, t_CD, g, d]": 2,
            "all_gather_C [b, t_C, g_D, d]": 2,
            "all_to_all_D [b, s_C, g_D, r, d]": 1,
        },
        {
            "all_to_all_D [b, s_CD, g, r, d]": 1,
            "reduce_scatter_C [b, t, g_D, d]{U_C}": 2,
            "all_to_all_D [b, t_C, g_D, d]": 2,
            "all_to_all_D [b, s_C, g_D, r, d]": 1,
        },
    ),
    "gathered, tensor and sequence parallel": (
        layout(cp=("C",), tp=("X",), sequence_parallel=True),
        {
            "all_gather_X [b, s_CX, h]": 2,
            "reduce_scatter_X [b, s_C, h]{U_X}": 2,
            "all_gather_C [b, t_C, g_X, d]": 2,
        },
        {
            "all_gather_X [b, s_CX, h]": 2,
            "reduce_scatter_X [b, s_C, h]{U_X}": 2,
            "reduce_scatter_C [b, t, g_X, d]{U_C}": 2,
        },
    ),
    "queries": (
        Layout({"*": {"s": ("C",)}, "heads": {"s": (), "t": ("C",)}}),
        {
            "all_gather_C [b, s_C, g, r, d]": 1,
            "all_reduce_C [b, g, r, s]{M_C}": 1,
            "all_reduce_C [b, g, r, s]{U_C}": 1,
            "reduce_scatter_C [b, s, g, r, d]{U_C}": 1,
        },
        {
            "all_gather_C [b, s_C, g, r, d]": 1,
            "all_reduce_C [b, g, r, s]{U_C}": 1,
            "reduce_scatter_C [b, s, g, r, d]{U_C}": 1,
        },
    ),
}
"""What a layer sends forward and backward, that on parameters left out; queries: these travel, keys and values stay."""

MESH = Mesh({"D": 2, "C": 2, "X": 2})


@cache
def whole(model, practice):
    return unsharded(model, practice)


def layer(where, phase, practice=None, mesh=MESH):
    """The collectives of one layer that are not on parameters."""
    program = lower(LLAMA, where, practice or Practice(), Dtypes(), mesh.order, layers=1)
    return collectives(program, phase, layer=0, names=("attention", "mlp", "d."))


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_share_a_sequence_sends_what_the_algebra_says_and_equals_one_device(way):
    where, forward, backward = WAYS[way]
    assert layer(where, "forward") == forward
    assert layer(where, "backward") == backward
    assert difference(run(LLAMA, where, Practice(), MESH), whole(LLAMA, Practice())) < 1e-10


@pytest.mark.parametrize("zero", [1, 2, 3])
@pytest.mark.parametrize("heads", [(), ("C",)], ids=["gathered", "heads"])
def test_context_data_tensor_and_sequence_parallelism_with_zero_equal_one_device(zero, heads):
    where = layout(dp=("D",), cp=("C",), heads=heads, tp=("X",), sequence_parallel=True, zero=zero)
    assert difference(run(LLAMA, where, Practice(), MESH), whole(LLAMA, Practice())) < 1e-10


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_a_sequence_on_one_row_of_devices_alone_with_zero_equals_one_device(zero):
    where = layout(cp=("C",), zero=zero)
    assert difference(run(LLAMA, where, Practice(), Mesh({"C": 2})), whole(LLAMA, Practice())) < 1e-10


@pytest.mark.parametrize("order", ["zigzag", "striped"])
@pytest.mark.parametrize("way", ["gathered", "both", "queries"])
def test_in_every_order_of_tokens_nothing_more_moves_and_numbers_are_those_of_one_device(way, order):
    where, forward, _ = WAYS[way]
    practice = Practice(order=order)
    assert layer(where, "forward", practice) == forward
    assert difference(run(LLAMA, where, practice, MESH), whole(LLAMA, Practice())) < 1e-10


def test_positions_that_are_learned_are_those_of_the_tokens_in_every_order():
    practice = Practice(order="zigzag")
    sharded = run(GPT, layout(cp=("C",)), practice, Mesh({"C": 2}))
    assert difference(sharded, whole(GPT, Practice())) < 1e-9


RINGS = {
    "gathered": (layout(cp=("C",)), Mesh({"C": 4})),
    "over two axes": (layout(cp=("C", "D")), Mesh({"D": 2, "C": 2})),
    "both": (layout(cp=("C", "D"), heads=("D",), tp=("X",), sequence_parallel=True), MESH),
    "with ZeRO": (layout(cp=("C",), dp=("D",), tp=("X",), sequence_parallel=True, zero=3), MESH),
    "alone": (layout(cp=("C",)), Mesh({"C": 1})),
}


@pytest.mark.parametrize(("order", "home"), [("contiguous", "scatter"), ("zigzag", "scatter"), ("zigzag", "circle")])
@pytest.mark.parametrize("way", RINGS)
def test_keys_and_values_that_come_block_after_block_make_what_they_make_together(way, order, home):
    """A kernel never has all of them: it corrects its sums by the row's maximum and sum so far."""
    where, mesh = RINGS[way]
    ring = run(LLAMA, where, Practice(context="ring", order=order, home=home), mesh)
    assert difference(ring, whole(LLAMA, Practice())) < 1e-10


@pytest.mark.parametrize("how", ["gather", "ring"])
def test_scores_that_fall_with_the_distance_fall_alike_wherever_tokens_are(how):
    """ALiBi: no position is in the stream, so that a device must know those of its own and of others' tokens."""
    alibi = replace(LLAMA, positions="alibi")
    where = layout(cp=("C",), dp=("D",), tp=("X",), sequence_parallel=True, zero=1)
    sharded = run(alibi, where, Practice(context=how, order="zigzag"), MESH)
    assert difference(sharded, whole(alibi, Practice())) < 1e-10
    none = whole(replace(LLAMA, positions="none"), Practice())
    losses = [float(one.value(one.program.results["loss"])) for one in (whole(alibi, Practice()), none)]
    assert abs(losses[0] - losses[1]) > 1e-6


def streamed_calls(ring):
    return [cause for cause in ring.causes if any(move.streamed for move in cause.op.moves)]


def test_a_ring_sends_the_bytes_of_the_gather_in_hops_to_the_next_device():
    where, mesh = RINGS["gathered"]
    ring, gather = (run(LLAMA, where, Practice(context=how, regather=True), mesh) for how in ("ring", "gather"))

    def sent(one):
        calls = ((cause.move.kind, str(cause.op.output), cause.call) for cause in one.causes)
        return sorted((kind, array, call.injected.tolist(), call.sent.tolist()) for kind, array, call in calls)

    assert sent(ring) == sent(gather)
    assert {cause.move.kind for cause in streamed_calls(ring)} == {"all_gather", "reduce_scatter"}
    calls = [cause.call for cause in streamed_calls(ring)]
    assert len(calls) == 2 * 2 * 3 * 2  # layers, microbatches, k and v: forward, again in backward, their cotangents
    assert all((call.messages == 3).all() for call in calls)  # a hop for each of the others


def test_sums_that_are_left_where_they_were_behind_their_home_are_wrong(monkeypatch):
    where, mesh = RINGS["gathered"]
    monkeypatch.setattr(
        streamed,
        "brought",
        lambda run, move, blocks, parts: (
            blocks,
            streamed._together([streamed._hop(run, move, blocks, parts)[1]], len(blocks)),
        ),
    )
    ring = run(LLAMA, where, Practice(context="ring", home="circle"), mesh)
    assert difference(ring, whole(LLAMA, Practice())) > 1e-3


def test_a_ring_keeps_no_gathered_keys_whatever_practice_does():
    where, _, backward = WAYS["gathered"]
    assert layer(where, "backward", Practice(context="ring")) == {**backward, "all_gather_C [b, t_C, g, d]": 2}


def test_without_its_corrections_a_kernel_of_blocks_is_wrong(monkeypatch):
    where, mesh = RINGS["gathered"]
    monkeypatch.setattr(streamed.KernelRun, "_factor", lambda self, one, *_: dict.fromkeys(self.running[one], 1.0))
    ring = run(LLAMA, where, Practice(context="ring"), mesh)
    assert difference(ring, whole(LLAMA, Practice())) > 1e-3


def test_gradients_of_parameters_are_reduced_over_context_and_data_in_one_call():
    program = lower(LLAMA, layout(dp=("D",), cp=("C",)), Practice(), Dtypes(), MESH.order, layers=1)
    over = {name.split()[0] for name in collectives(program, "backward", names=("grad.",))}
    assert over == {"all_reduce_DC"}


def test_optimizer_states_lie_on_context_and_data_axes_alike():
    table = layout(dp=("D",), cp=("C",), tp=("X",), zero=1).table
    assert table["state"] == {"h": ("D", "C"), "d": ("D", "C"), "f": ("X", "D", "C")}


def test_what_was_gathered_is_gathered_again_where_practice_drops_it():
    where, forward, backward = WAYS["gathered"]
    again = Practice(regather=True)
    assert layer(where, "forward", again) == forward
    assert layer(where, "backward", again) == {**backward, "all_gather_C [b, t_C, g, d]": 2}


@pytest.mark.parametrize("order", ["contiguous", "zigzag"])
def test_experts_of_tokens_that_devices_share_out_of_order_equal_those_of_one_device(order):
    where = layout(cp=("C",), dp=("D",), tp=("X",), ep=("D",), sequence_parallel=True, zero=1)
    practice = Practice(context="ring", order=order)
    assert difference(experts.run(where, dict(MESH.axes), practice=practice), experts.whole()) < 1e-10


@pytest.mark.parametrize(
    "options",
    [
        {"sinks": True, "softcap": 2.0},
        {"qk_norm": "head"},
        {"mask": "window", "window": 3},
        {"mask": "chunk", "window": 4},
    ],
    ids=", ".join,
)
def test_every_option_of_attention_is_had_of_a_shared_sequence_too(options):
    model = blocks(LLAMA, options, {})
    for how in ("gather", "ring"):
        sharded = run(model, layout(cp=("C",)), Practice(context=how, order="zigzag"), Mesh({"C": 2}))
        assert difference(sharded, unsharded(model, Practice())) < 1e-10


HEADS_ON_ANOTHER_AXIS = Layout({"*": {"s": ("C",)}, "heads": {"s": ("C",), "g": ("D",)}})
SEQUENCES_OF_ANOTHER_AXIS = Layout({"*": {"s": ("C",)}, "block": {"b": ("D",)}})
QUERIES_OF_ANOTHER_AXIS = Layout({"*": {"s": ("C",)}, "block": {"s": ("C", "D")}})


@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("where", [HEADS_ON_ANOTHER_AXIS, QUERIES_OF_ANOTHER_AXIS, SEQUENCES_OF_ANOTHER_AXIS])
def test_a_ring_of_a_table_that_cuts_heads_or_blocks_otherwise_equals_one_device(where, sinks):
    """Heads are sliced before blocks come and gathered behind their sums; a device may see a hidden block first."""
    model, mesh = blocks(LLAMA, {"sinks": sinks}), Mesh({"C": 2, "D": 2})
    ring = run(model, where, Practice(context="ring"), mesh)
    assert difference(ring, unsharded(model, Practice())) < 1e-10


def test_of_what_returns_to_its_blocks_only_the_sum_over_blocks_is_streamed():
    mesh = Mesh({"C": 2, "D": 2})
    program = lower(LLAMA, HEADS_ON_ANOTHER_AXIS, Practice(context="ring"), Dtypes(), mesh.order)
    moves = [
        [(move.kind, move.streamed) for move in op.moves]
        for op in program.ops
        if isinstance(op, Reshard) and op.output.name == "d.attention.keys"
    ]
    assert moves == [[("reduce_scatter", True), ("all_gather", False)]]
