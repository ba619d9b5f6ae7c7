"""How a scenario says that devices share the tokens of a sequence, what that comes to, and what is refused."""

from __future__ import annotations

import pytest

from tpsim.answers.plan import plan
from tpsim.answers.search import search
from tpsim.cost.compute import kernel_s
from tpsim.cost.memory import held_bytes
from tpsim.program.lifetimes import lifetimes
from tpsim.quantity.errors import InputError
from tpsim.question.scenario import resolve

BASE = {
    "tpsim": "scenario/1",
    "name": "shared",
    "model": "llama-3-8b",
    "hardware": "dgx-h100",
    "mesh": {"data": 2, "context": 4, "tensor": 2},
    "layout": {"dp": "data", "cp": "context", "tp": "tensor"},
    "practice": {"base": "fsdp2"},
    "workload": {"seq": 8192, "global_batch": 4, "dtype": "bf16", "grad_dtype": "f32"},
}


def asked(*overrides):
    return resolve(BASE, overrides=overrides)


def refused(*overrides):
    with pytest.raises(InputError) as error:
        asked(*overrides)
    return str(error.value)


@pytest.mark.parametrize(
    ("context", "inside"),
    [
        ("gather", None),
        ("heads", {"s": (), "g": ("tensor", "context"), "r": ()}),
        ("{heads: context}", {"s": (), "g": ("tensor", "context"), "r": ()}),
    ],
)
def test_a_context_is_short_for_where_tokens_and_heads_lie_in_attention(context, inside):
    table = asked(f"layout.context={context}").layout.table
    assert table.get("heads") == inside
    assert table["*"]["s"] == ("context",)


def test_heads_beyond_the_kv_heads_split_the_queries_of_one():
    found = asked("mesh.context=8", "layout.context=heads")
    assert found.layout.table["heads"] == {"s": (), "g": ("tensor", "context_kv"), "r": ("context_rep",)}
    assert found.layout.table["*"]["s"] == ("context_kv", "context_rep")
    assert found.mesh.axes == {"data": 2, "context_kv": 4, "context_rep": 2, "tensor": 2}


def test_states_lie_on_context_and_data_and_both_are_told_with_the_layout():
    found = asked("layout.zero=1")
    assert found.layout.data == ("data", "context")
    assert found.layout.table["state"]["h"] == ("data", "context")
    assert found.resolved["layout"]["cp"] == ["context"]


def test_an_order_that_gives_each_device_two_pieces_needs_a_sequence_that_divides():
    assert refused("workload.seq=8196", "practice.order=zigzag") == (
        "error[sequence-not-divisible]: seq 8196 is not divisible by cp 4 in the order zigzag, which gives each two"
        " pieces\n --> command line:1:20\n  |\n1 | --set workload.seq=8196\n"
        "  |                    ^^^^ write 8192 or 8200, or practice: {order: contiguous}"
    )
    assert asked("workload.seq=8196", "practice.order=contiguous").practice.order == "contiguous"


def test_zero_divides_hidden_over_context_and_data():
    assert "hidden 4096 is not divisible by dp 2 x cp 3, which zero 1 splits it over" in refused(
        "mesh.context=3", "workload.seq=8190", "layout.zero=1", "practice.padding=none"
    )


def test_sequence_parallelism_divides_what_context_leaves():
    assert "seq 8196 is not divisible by tp 2 x cp 4, which sequence_parallel splits it over" in refused(
        "workload.seq=8196", "layout.sequence_parallel=true"
    )


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (["layout.cp=[]", "layout.context=heads"], "error[context-without-cp]: context says how devices share"),
        (["layout.context={heads: tensor}"], "error[context-not-cp]: context does not share out cp [context]"),
        (["layout.context=gather", "practice.context=ring"], "error[context-twice]: layout.context is gather and"),
        (["layout.cp=data"], "error[axis-used-twice]: mesh axis data is used twice, in dp and cp"),
        (["mesh.context=3", "layout.context=heads", "workload.seq=8190"], "error[heads-not-divisible]: 32 heads of 8"),
    ],
)
def test_what_devices_cannot_share_is_refused(overrides, text):
    assert text in refused(*overrides)


def test_a_search_of_a_stated_mesh_holds_context_and_says_so():
    stated = {**BASE, "workload": {**BASE["workload"], "microbatches": 1}}
    found = search(stated, overrides=["layout.zero=1", "layout.sequence_parallel=true", "recompute=none"])
    assert found.held["layout.cp"] == "context"
    step = plan(stated, overrides=["layout.zero=1", "layout.sequence_parallel=true"]).step
    assert found.rows[0].step_s == pytest.approx(step.time_s, rel=1e-12)


def test_a_search_splits_states_over_context_alone():
    stated = {**BASE, "mesh": {"data": 1, "context": 4, "tensor": 2}}
    found = search(stated, overrides=["workload.microbatches=1", "recompute=none", "layout.sequence_parallel=true"])
    assert {row.zero for row in found.rows} >= {1, 2, 3}


def test_a_flag_sizes_context_beside_tensor_and_keeps_the_chips():
    alone = resolve(None, flags={"model": "llama-3-8b", "hw": "dgx-h100", "tp": 2, "cp": 4, "pp": 2, "seq": 8192})
    assert alone.mesh.axes == {"pipe": 2, "data": 1, "context": 4, "tensor": 2}
    assert alone.layout.roles == {"tp": ("tensor",), "dp": ("data",), "cp": ("context",), "pp": ("pipe",)}
    beside = resolve("llama3-70b-h100", flags={"cp": 4})
    assert beside.mesh.axes == {"data": 8, "context": 4, "tensor": 8}
    assert resolve(BASE, flags={"cp": 2}).mesh.axes == {"data": 4, "context": 2, "tensor": 2}
    assert resolve(BASE, flags={"cp": "data", "dp": "context"}).layout.roles["cp"] == ("data",)
    stated = resolve(BASE, flags={"mesh": "context=4,tensor=2", "cp": 4}, overrides=["layout.dp=[]"])
    assert stated.mesh.axes == {"context": 4, "tensor": 2}


def test_shares_of_peak_count_the_whole_square_or_what_the_mask_shows_and_say_which():
    whole, seen = (plan(BASE, overrides=[f"assume.mfu={how}"]).step for how in ("full", "causal"))
    assert whole.time_s == seen.time_s
    s = BASE["workload"]["seq"]
    attention = 3 * 2 * 32 * 2 * 4096 * s * s * 4  # forward and twice backward: 2 products, 32 layers, 4 sequences
    assert whole.counted[0] - seen.counted[0] == pytest.approx(attention * (1 - (s + 1) / (2 * s)), rel=1e-12)
    assert seen.mfu / whole.mfu == pytest.approx(seen.counted[0] / whole.counted[0], rel=1e-12)
    assert seen.flops_counted == "matrix products, of attention's s by s what its mask lets through"


@pytest.mark.parametrize(
    ("order", "busiest"), [("contiguous", lambda s: (s * 7 / 4 + 1) / (s + 1)), ("striped", lambda s: 1 + 3 / (s + 1))]
)
def test_unfair_orders_take_the_busiest_device_longer_than_a_fair_share_and_move_the_same(order, busiest):
    """Of four devices; in zigzag all have as many pairs."""
    fair, unfair = (plan(BASE, overrides=[f"practice.order={one}"]) for one in ("zigzag", order))
    assert [row.wire_bytes_per_device for row in fair.rows] == [row.wire_bytes_per_device for row in unfair.rows]
    assert fair.step.mfu > unfair.step.mfu
    assert fair.compute.flops == unfair.compute.flops
    kernels = [one for one in fair.lowered.kernels if one.mask]
    for one, other in zip(kernels, (one for one in unfair.lowered.kernels if one.mask), strict=True):
        s = BASE["workload"]["seq"]
        ratio = other.run_flops(unfair.sizes) / one.run_flops(fair.sizes)
        assert float(ratio) == pytest.approx(busiest(s), rel=1e-12)


def ring(seq, how="ring", *, regather=True):
    """One layer whose keys and values travel over a network."""
    return plan(
        {
            **BASE,
            "model": {"extends": "llama-3-8b", "layers": 1, "params": None},
            "mesh": {"context": 8},
            "placement": {"context": "network"},
            "layout": {"cp": "context", "context": how},
            "practice": {"base": "ideal", "overlap": {"tensor": "none"}, "regather": regather},
            "workload": {"seq": seq, "global_batch": 1, "dtype": "bf16"},
        }
    )


@pytest.mark.parametrize("seq", [8192, 16384, 131072])
def test_hops_are_exposed_by_what_each_takes_longer_than_a_block(seq):
    """T = block + (n - 1) * max(block, hop): n - 1 hops beside n blocks, the first of which is a device's own."""
    n, result = 8, ring(seq)
    seconds = {
        one.where.act: kernel_s(one, result.sizes, result.question.machine, "bf16", None)
        for one in result.lowered.kernels
        if one.mask
    }
    for phase, act, arrays in (("forward", "F", 2), ("backward", "B", 4)):
        rows = [row for row in result.rows if row.call.streamed and row.phase == phase]
        assert len(rows) == arrays
        hop, block = sum(row.time_s for row in rows) / (n - 1), seconds[act] / n
        assert sum(row.exposed_s for row in rows) == pytest.approx((n - 1) * max(0, hop - block), rel=1e-9)


def test_a_ring_sends_what_a_gather_does_waits_less_and_keeps_its_own_block_alone():
    streamed, gathered = ring(131072), ring(131072, "gather")
    for phase in ("forward", "backward"):
        sent = [
            sorted((row.collective, row.wire_bytes_per_device, row.formula) for row in one.rows if row.phase == phase)
            for one in (streamed, gathered)
        ]
        assert sent[0] == sent[1]
    assert streamed.step.time_s < gathered.step.time_s
    keys, kept = 131072 * 1024 * 2, ring(131072, "gather", regather=False)
    assert kept.memory.kept_bytes - streamed.memory.kept_bytes == 2 * keys * 7 // 8
    found = lifetimes(streamed.lowered.program)
    assert len(found.streamed) == 6  # keys and values in forward, again in backward, and their cotangents
    assert {held_bytes(x, streamed.sizes, (), found) for x in found.streamed} == {2 * keys // 8}


@pytest.mark.parametrize("recompute", ["selective", "full"])
def test_what_is_recomputed_has_its_blocks_come_once_more(recompute):
    once, more = (
        plan(BASE, overrides=["layout.context=ring", f"recompute={how}", "practice.order=zigzag"])
        for how in ("none", recompute)
    )
    kept = {row.array for row in once.rows if row.call.streamed}
    assert {row.array for row in more.rows if row.call.streamed} == kept
    assert more.compute.time_s > once.compute.time_s
    assert more.step.time_s > once.step.time_s


def test_attention_that_makes_all_scores_at_once_has_no_ring():
    assert "error[not-streamed]: attention: plain makes all scores at once" in refused(
        "practice.base=megatron", "practice.attention=plain"
    )
    assert asked("practice.base=megatron", "practice.attention=plain", "layout.context=gather").practice.context


CHUNKS = ("model=tests/data/hf/llama-4-scout.json", "layout.tp=null", "mesh={data: 2, context: 4}")


@pytest.mark.parametrize("order", ["contiguous", "zigzag"])
def test_a_sequence_that_chunks_of_attention_do_not_fill_is_shared_by_heads_alone(order):
    """Chunks of 8,192: of 12,288 tokens on 4 ranks the third has 1.45 times the mean, and not the last, 0.75."""
    ragged = (*CHUNKS, "workload.seq=12288", f"practice.order={order}")
    said = refused(*ragged)
    assert "error[chunks-not-whole]: seq 12288 is no multiple of the 8192 tokens of a chunk of attention" in said
    assert "write 8192 or 16384" in said
    for whole in (8192, 16384, 4096):
        assert asked(*CHUNKS, f"workload.seq={whole}", f"practice.order={order}").workload.seq == whole
    assert asked(*ragged, "layout.context=heads").workload.seq == 12288
    assert asked(*ragged, "mesh={data: 2, context: 1}").workload.seq == 12288


def test_a_ring_whose_scores_owe_a_sum_in_every_block_is_refused():
    table = {"*": {"b": "data", "s": "context", "d": "tensor"}}
    scenario = {key: value for key, value in BASE.items() if key != "layout"} | {"shardings": table}
    with pytest.raises(InputError, match="heads are split over tensor: scores owe a sum then"):
        resolve(scenario, overrides=["practice.context=ring"])
    assert resolve(scenario, overrides=["practice.context=gather"]).layout.table["*"]["d"] == ("tensor",)
