"""Where a scenario may put experts, what it may say of their rows, and what is refused with a remedy."""

from __future__ import annotations

import pytest

from tpsim.answers.plan import priced
from tpsim.claims.shrink import shrink
from tpsim.quantity.errors import InputError
from tpsim.question.routing import routed
from tpsim.question.scenario import resolve

SCENARIO = "mixtral-8x7b-h100"
ELSEWHERE = "layout.ep names idle, which is no axis of dp or cp or tp"
NODE = "practice.rows.dispatch=node"
WIDE = ["model=qwen3-235b-a22b", "workload.microbatches=1", "placement={}"]
ONE_AXIS = [*WIDE, "mesh={all: 64}", "layout={dp: all, ep: all}"]
TWO_AXES = [*WIDE, "mesh={node: 8, gpu: 8}", "layout={dp: [node, gpu], ep: [node, gpu]}"]
TURNED = [*TWO_AXES, "layout.ep=[gpu, node]"]
REPEATED = [*TWO_AXES, "layout={dp: node, tp: gpu, ep: [node, gpu]}", "mesh={node: 16, gpu: 4}"]


def refusal(*overrides, scenario=SCENARIO):
    with pytest.raises(InputError) as error:
        resolve(scenario, overrides=overrides)
    return str(error.value)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["layout.ep=[pod]"], '"pod" is not a mesh axis'),
        (["mesh={data: 8, expert: 4, idle: 2}", "placement={}", "layout={dp: [data, expert], ep: idle}"], ELSEWHERE),
        (["layout.ep=[expert, expert]"], "mesh axis expert would split experts twice"),
        (["layout={dp: data, tp: expert, ep: expert, etp: expert}"], "mesh axis expert would split experts twice"),
        (["layout={dp: [data, expert], ep: [data, expert]}"], "experts 8 is not divisible by ep 64"),
        (["assume.routing.load=0.5"], "0.5"),
        (["assume.routing.load=most"], "most"),
        (["practice.rows.gates=nowhere"], "nowhere"),
        (["practice.rows.dispatch=nowhere"], "nowhere"),
        (["practice.rows.dispatch=node"], "experts lie on one node (expert on nvlink), so there is no node to copy to"),
        ([*ONE_AXIS, NODE], "all lies inside nodes (nvlink) and between them, so it does not tell nodes apart"),
        ([*TURNED, NODE], "write layout.ep: [node, gpu]"),
        ([*REPEATED, NODE], "every device along gpu has all tokens, so no copies of them go there"),
        (["assume.routing.copies={node: 0.5}"], "0.5"),
        (["assume.routing.copies=many"], "many"),
        (["practice.rows.overlap=pair"], "exchanges beside another microbatch) is not modelled yet"),
        (["practice.overlap.rows=pair"], "did you mean practice.rows?"),
    ],
)
def test_experts_lie_where_tokens_or_products_are_split(overrides, expected):
    assert expected in refusal(*overrides)


def test_a_model_without_experts_has_nowhere_to_put_them():
    text = refusal("layout.ep=data", scenario="llama3-70b-h100")
    assert "error[no-experts]: layout.ep is where experts lie, and llama-3-70b has none" in text
    assert "remove it, or take a model with experts" in text
    assert "no-experts" in refusal("assume.routing.load=2", scenario="llama3-70b-h100")
    text = refusal("workload.expert_dtype=int4", scenario="llama3-70b-h100-decode")
    assert "workload.expert_dtype is the number format of experts, and llama-3-70b has none" in text


def test_each_expert_is_split_over_what_ep_leaves_of_tp():
    layout = resolve(SCENARIO, overrides=["layout={dp: data, tp: expert, sequence_parallel: true}"]).layout
    assert (layout.roles["etp"], "ep" in layout.roles) == (("expert",), False)
    folded = resolve(SCENARIO, overrides=["layout={dp: data, tp: expert, sequence_parallel: true, ep: expert}"]).layout
    assert ("etp" in folded.roles, folded.roles["ep"]) == (False, ("expert",))


@pytest.mark.parametrize("experts", ["ep: [], etp: []", "ep: expert, etp: []", "ep: tensor", "ep: []"])
def test_what_all_tokens_share_is_split_as_a_dense_feed_forward_wherever_experts_lie(experts):
    """An axis of one device is none: experts are whole on every device, and what works beside them is not."""
    mesh = ["mesh={data: 16, expert: 1, tensor: 8}", f"layout={{dp: [data, expert], tp: tensor, {experts}}}"]
    layout = resolve("deepseek-v3-h100-decode", overrides=[*mesh, "placement={}"]).layout
    assert layout.type_in(("h", "z"), "*").axes("z") == layout.type_in(("h", "f"), "*").axes("f") == ("tensor",)


@pytest.mark.parametrize(("drop", "rows"), [("none", 1), (1.25, 1), (2, 1), (0.5, 0.5)])
def test_rows_that_pad_an_expert_are_run_but_of_no_use(drop, rows):
    """Mixtral 8x7B as MFU counts it: attention, router, two experts of a token, the head; 6 a weight and token."""
    result = priced(resolve("mixtral-8x7b-h100", overrides=[f"assume.routing.drop={drop}"]))
    seq = result.question.workload.seq
    mixed = 2 * 4096**2 + 2 * 4096 * 1024 + 4096 * 8 + 2 * seq * 4096
    weights = 32 * (mixed + rows * 2 * 3 * 4096 * 14_336) + 4096 * 32_000
    assert result.step.useful_flops == 6 * weights * result.tokens
    assert result.step.hfu > result.step.mfu


@pytest.mark.parametrize(
    ("ranks", "load", "fullest"),
    [(1, 1.5, 1), (1, "uniform", 1), (2, 3, 2), (4, 3, 3), (4, 9, 4), (8, 1.5, 1.5), (8, 9, 4)],
)
def test_no_rank_has_more_rows_than_tokens_can_choose_there(ranks, load, fullest):
    """Mixtral: of a token's 2 rows each of R ranks has 2/R in the mean, and one no more than its 8/R experts, or 2."""
    cut = [f"mesh={{data: {64 // ranks}, expert: {ranks}}}", "placement={}", "layout.zero=1"]
    overrides = [*cut, "layout.dp=[data, expert]", f"layout.ep={'expert' if ranks > 1 else []}"]
    even, full = (
        priced(resolve(SCENARIO, overrides=[*overrides, *more])) for more in ([], [f"assume.routing.load={load}"])
    )
    assert max(kernel.peak(full.sizes) for kernel in full.lowered.kernels if kernel.products) == fullest
    assert (full.memory.kept_bytes > even.memory.kept_bytes) == (fullest > 1)
    texts = [x.text for x in full.question.assumptions if "more than tokens can choose there" in x.text]
    assert len(texts) == (load != "uniform" and load > fullest)


@pytest.mark.parametrize(
    ("stated", "node", "rank"),
    [("{node: 100, rank: 200}", "4", "8"), ("{node: 4, rank: 2}", "4", "4"), ("{node: 2, rank: 3}", "2", "3")],
)
def test_a_token_goes_to_no_more_nodes_and_ranks_than_it_can_and_no_fewer_ranks_than_nodes(stated, node, rank):
    """DeepSeek-V3: 8 experts of the best 4 of 8 groups, each of them a node of 8 ranks here."""
    question = resolve("deepseek-v3-h100", overrides=[f"assume.routing.copies={stated}"])
    texts = [x.text.partition(",")[0] for x in question.assumptions if x.text.startswith("a token goes to")]
    assert texts == [f"a token goes to {node} of 8 nodes", f"a token goes to {rank} of 64 ranks"]
    dims, _ = routed(question, question.workload.dims(question.model), question.mesh.axes)
    assert (dims["kn"], dims["kr"]) == (int(node), int(rank))


def test_a_load_beside_a_capacity_is_told_to_change_nothing():
    question = resolve(SCENARIO, overrides=["assume.routing={load: 1.5, drop: 1.25}"])
    texts = [assumption.text for assumption in question.assumptions]
    assert "assume.routing.load changes nothing here, with rows for a capacity" in texts


def test_what_is_assumed_of_routing_is_said_and_moves_seconds_alone():
    even, full = (resolve(SCENARIO, overrides=one) for one in ([], ["assume.routing.load=1.5"]))
    said = [[one.text for one in question.assumptions if "rows" in one.text] for question in (even, full)]
    assert said[0] == [
        "tokens choose experts evenly, none is dropped: every expert has as many rows (assume.routing.load)"
    ]
    assert said[1] == ["the fullest rank of experts has 1.5 times the mean of rows, none is dropped"]
    before, after = priced(even), priced(full)
    assert after.step.time_s > before.step.time_s
    assert after.memory.kept_bytes > before.memory.kept_bytes
    assert after.compute.useful_flops == before.compute.useful_flops
    assert after.totals["by_op"]["rows"].wire_bytes_per_device == before.totals["by_op"]["rows"].wire_bytes_per_device


@pytest.mark.parametrize("planner", ["book", "cheapest"])
def test_rows_need_not_come_out_even(planner):
    """37 tokens of each of 64 sequences choose 2 of 8 experts: 592 rows for each, 74 from each of 8 data ranks."""
    found = priced(resolve(SCENARIO, overrides=["workload.seq=37", "assume.routing.drop=1.1", f"planner={planner}"]))
    (row,) = (row for row in found.rows if row.array == "combine.rows")
    assert row.logical_bytes == pytest.approx(1.1 * 64 * 37 * 2 * 4096 * 2 / 8)
    assert found.verdict


def test_a_capacity_below_the_mean_is_planned_and_not_verified():
    question = resolve(SCENARIO, overrides=["assume.routing.drop=0.75"])
    (row,) = (row for row in priced(question).rows if row.array == "dispatch.rows")
    assert row.logical_bytes == 536_870_912 * 3 // 4
    with pytest.raises(InputError, match=r"rows for 0\.75 of the mean every device drops tokens of its own"):
        shrink(question)


MIXTRAL = {"model": "mixtral-8x7b", "hw": "dgx-h100", "seq": 4096}


@pytest.mark.parametrize(
    ("scenario", "flags", "mesh", "roles"),
    [
        (None, {"dp": 32, "tp": 2, "ep": 8}, {"data": 4, "expert": 8, "tensor": 2}, (("data", "expert"), ("expert",))),
        (
            None,
            {"chips": 64, "tp": 2, "ep": 8},
            {"data": 4, "expert": 8, "tensor": 2},
            (("data", "expert"), ("expert",)),
        ),
        (None, {"dp": 8, "ep": 8}, {"data": 8, "tensor": 1}, (("data",), ("data",))),
        (None, {"dp": 8, "ep": "data"}, {"data": 8, "tensor": 1}, (("data",), ("data",))),
        (None, {"mesh": "data=4,expert=2", "ep": 2}, {"data": 4, "expert": 2}, (("data", "expert"), ("expert",))),
        ("mixtral-8x7b-h100", {"ep": 4}, {"data": 16, "expert": 4}, (("data", "expert"), ("expert",))),
    ],
)
def test_a_number_of_the_ep_flag_parts_the_shards_of_dp(scenario, flags, mesh, roles):
    question = resolve(scenario, flags={**({} if scenario else MIXTRAL), **flags})
    assert question.mesh.axes == mesh
    assert (question.layout.roles["dp"], question.layout.roles["ep"]) == roles


def test_experts_that_do_not_part_the_shards_of_dp_are_refused_with_what_would():
    with pytest.raises(InputError) as error:
        resolve(None, flags={**MIXTRAL, "dp": 32, "ep": 3})
    assert error.value.problems[0].message == "experts lie on a part of dp: 32 shards do not part by 3"
    assert error.value.problems[0].remedy == "give a divisor: 1, 2, 4, 8, 16, 32"


ASKED = {
    "tpsim": "scenario/1",
    "name": "asked",
    "model": "mixtral-8x7b",
    "hardware": "dgx-h100",
    "workload": {"seq": 4096},
}


@pytest.mark.parametrize(
    ("mesh", "layout", "message"),
    [
        ({"data": 8}, {"dp": "dat"}, '"dat" is not a mesh axis'),
        ({"data": 8}, {"dp": ["data", "expert"], "ep": "expert"}, '"expert" is not a mesh axis'),
        ({"data": "four"}, {"dp": "data"}, 'mesh.data is "four", not a whole number'),
        ({"data": 6}, {"dp": "data", "tp": "tensor"}, "experts lie on a part of dp: 6 shards do not part by 4"),
    ],
)
def test_a_count_of_experts_is_no_bug_where_the_mesh_is_wrong(mesh, layout, message):
    with pytest.raises(InputError) as error:
        resolve({**ASKED, "mesh": mesh, "layout": layout}, flags={"ep": 4})
    assert error.value.problems[0].message == message


def test_experts_of_more_parts_than_dp_has_may_lie_on_tp():
    """As inference engines put them: the remedy was to take one part."""
    decode, flags = ["workload={kind: decode, context: 1024}"], {"model": "gpt-oss-120b", "hw": "dgx-h100", "tp": 8}
    with pytest.raises(InputError) as error:
        resolve(None, overrides=decode, flags={**flags, "ep": 8})
    assert error.value.problems[0].remedy == "give a divisor: 1, or the axes that they lie on: --ep tensor"
    assert resolve(None, overrides=decode, flags={**flags, "ep": "tensor"}).layout.roles["ep"] == ("tensor",)


def said_of_whole_streams(*overrides):
    scenario = {
        "tpsim": "scenario/1",
        "name": "experts",
        "model": "mixtral-8x7b",
        "hardware": "dgx-h100",
        "mesh": {"data": 2, "x": 4, "y": 2},
        "layout": {"dp": "data", "tp": ["x", "y"], "ep": "x", "etp": "y"},
        "workload": {"global_batch": 2, "seq": 4096},
    }
    said = resolve(scenario, overrides=overrides).remarks
    return [text for text in said if text.startswith("experts beside tensor parallelism without sequence parallelism")]


def test_experts_under_tensor_parallelism_without_sequence_parallelism_are_warned_of():
    """Two sums as wide as the stream per layer, which Megatron-LM's MoELayer refuses to train with."""
    both = "what comes back from the router owes a sum over y, that from its experts over x, y, and each is paid by an "
    both += "all-reduce as wide as the stream"
    refused = "Megatron-LM refuses to train so (moe_layer.py)"
    (said,) = said_of_whole_streams()
    assert said.endswith(f": {both}; {refused}; --sp splits tokens")
    assert said_of_whole_streams("practice=fsdp2")[0].endswith(f": {both}; --sp splits tokens")
    assert said_of_whole_streams("layout.etp=[x, y]", "layout.ep=[]")[0].endswith(f": {refused}; --sp splits tokens")
    assert said_of_whole_streams("layout.sequence_parallel=true") == []
    assert said_of_whole_streams("practice=fsdp2", "layout.etp=[x, y]", "layout.ep=[]") == []
