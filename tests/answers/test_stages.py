"""Plans in stages: the step of every rank, its formula, what is sent, held and refused."""

from __future__ import annotations

import gc
from collections import Counter
from functools import cache, reduce

import pytest

from tests.models import LLAMA
from tpsim.answers.explain import explain
from tpsim.answers.plan import plan
from tpsim.answers.verdict import percent
from tpsim.claims.shrink import shrink
from tpsim.claims.verify import verify
from tpsim.cost.ran import Message, Ran
from tpsim.program.schedules import SCHEDULES
from tpsim.quantity.errors import InputError
from tpsim.question.scenario import resolve

GPT3 = "gpt3-175b-a100-tp8"
STAGES = {"pp": 8, "chips": 512, "microbatches": 24, "batch": 192}
WAYS = [
    pytest.param({"schedule": name, **({"chunks": 2} if maker.several else {})}, id=name)
    for name, maker in SCHEDULES.items()
]


@cache
def staged(*overrides, **flags):
    """The plan of many tests."""
    return plan(GPT3, overrides=overrides, **{**STAGES, **flags})


@pytest.mark.parametrize("way", WAYS)
def test_compute_exposed_and_bubble_are_the_step_for_every_rank(way):
    result = staged(**way)
    step = result.pipeline.step
    for stage in step.told.stages:
        assert stage.compute.time_s + stage.exposed_s + stage.bubble_s == pytest.approx(step.time_s, rel=1e-12)
        assert stage.bubble_s > 0
    assert result.step.time_s == pytest.approx(step.time_s, rel=1e-12)


@pytest.mark.parametrize("way", WAYS)
def test_the_formula_comes_to_the_step(way):
    step = staged(**way).pipeline.step
    assert eval(step.told.formula, dict(step.told.seconds)) == pytest.approx(step.time_s, rel=1e-12)  # noqa: S307


def test_stages_with_as_many_layers_of_other_kinds_have_names_of_their_own_in_the_formula():
    """Of nine layers of gpt-oss four see a window alone, or five."""
    asked = {
        "tpsim": "scenario/1",
        "model": "gpt-oss-120b",
        "hardware": "dgx-h100",
        "mesh": {"pipe": 4, "tensor": 2},
        "layout": {"pp": "pipe", "tp": "tensor"},
        "pipeline": {"schedule": "gpipe", "layers": "even"},
        "workload": {"global_batch": 4, "seq": 4096, "microbatches": 4},
    }
    step = plan(asked).pipeline.step
    assert {"F_first", "F_chunk_1", "F_chunk_2", "F_last"} <= {*step.told.counts}
    assert eval(step.told.formula, dict(step.told.seconds)) == pytest.approx(step.time_s, rel=1e-12)  # noqa: S307


def test_no_cheaper_path_leads_over_stages_which_hold_other_layers():
    """Slices over the pipeline are free, and wrong: a whole array could not be gathered from them."""
    result = staged(zero=3)
    calls = [row.call for row in result.cheapest.every_row if "pipe" in row.call.axes]
    assert {call.kind for call in calls if not call.shared} == {"send"}
    assert result.step.cheapest_saves_s == 0  # 9.86 of 32.99 s if they could


def test_one_forward_one_backward_hangs_on_the_heavy_last_stage():
    step = staged().pipeline.step
    assert step.pacing.rank == 0  # with the last rank it has the shared embedding's sum, and ends last
    assert step.told.counts["F_last"] == step.told.counts["BW_last"] == 24
    assert step.told.counts["F"] + step.told.counts["F_first"] == 7


def test_the_rank_that_ends_last_gives_the_sums_and_the_others_are_listed():
    result = staged()
    rows = {(row["array"], row["collective"], row["phase"]): row for row in result.to_json()["result"]["collectives"]}
    forward, back = rows["cut.out", "send", "forward"], rows["d.cut.out", "send", "backward"]
    assert (forward["stage"], back["stage"]) == ("0-6", "1-7")
    for row in (forward, back):
        assert (row["ranks"], row["count"], row["formula"]) == (2, 24, "2*b*h*s/d")
        assert row["logical_bytes"] == row["wire_bytes_per_device"] == 50_331_648
    (half,) = (row for row in staged("workload.grad_dtype=bf16").collectives if row.call.shared and row.block != "clip")
    assert half.logical_bytes == half.wire_bytes_per_device == 157_286_400
    tied = rows["grad.E", "all_reduce", "backward"]
    assert (tied["stage"], tied["ranks"], tied["logical_bytes"]) == ("0,7", 2, 314_572_800)
    assert tied["wire_bytes_per_device"] == 314_572_800
    layer = rows["mlp.out", "all_reduce", "forward"]
    assert (layer.get("stage"), layer["layer"], layer["count"]) == (None, "0-95", 12 * 24)
    assert back["exposed_s"] == 0  # the first rank sends nothing back
    summed = sum(row["busy_s"] for row in rows.values() if row["collective"] == "send" and row is not back)
    assert result.totals["by_collective"]["send"].time_s == pytest.approx(summed)


@pytest.mark.parametrize(
    ("stages", "sends"),
    [
        ("auto", "blocking"),
        ("none", "blocking"),
        ("steady", "blocking in warm-up and flush"),
        ("beside", "beside compute"),
    ],
)
def test_whether_sends_block_is_told_as_it_is_priced(stages, sends):
    answer = plan(GPT3, overrides=(f"practice.overlap.stages={stages}",), **STAGES)
    assert answer.pipeline.sends == sends
    said = [one["text"] for one in answer.assumptions if one["text"].startswith("sends between stages")]
    assert [text.split()[3] for text in said] == ["run" if stages == "beside" else "hold"]
    assert (answer.step.time_s == staged().step.time_s) == (sends == "blocking")


def test_interleaved_stages_block_in_warm_up_and_flush_unless_they_are_told_otherwise():
    name = "gpt3-175b-a100-interleaved"
    before, usual, free = (
        plan(name, overrides=(f"practice.overlap.stages={one}",)) for one in ("none", "auto", "beside")
    )
    assert (before.pipeline.sends, usual.pipeline.sends) == ("blocking", "blocking in warm-up and flush")
    assert before.step.time_s > usual.step.time_s > free.step.time_s
    for one in (before, usual):
        for stage in one.pipeline.step.told.stages:
            parts = stage.compute.time_s + stage.exposed_s + stage.bubble_s + stage.host_s + stage.stragglers_s
            assert parts == pytest.approx(one.step.time_s, rel=1e-12)


def test_what_a_rank_waits_for_on_its_way_is_of_the_send_that_brings_it():
    step = staged().pipeline.step
    for stage in step.told.stages[1:-1]:
        flights = Counter()
        for late, before in zip(step.ran.late[stage.rank], [0, *step.ran.ends[stage.rank]], strict=True):
            if late:
                message = Message(*late)
                flights[message.way.channel.act] += message.end - max(message.start, before)
        sends = {row.call.where.act: row.exposed_s for row in stage.rows if row.collective == "send"}
        assert sends == pytest.approx(flights)
        assert flights["F"] != flights["B"]


def test_gradients_of_a_chunk_wait_for_those_of_the_chunk_before_it_on_their_lane():
    """Links so slow that gradients alone matter: the first are ready when the first chunk has made its own."""
    slow = {"nvlink": {"link": {"bandwidth": {"value": "30 MB/s", "kind": "guess"}}}}
    step = plan(
        {
            "tpsim": "scenario/1",
            "model": {"extends": "gpt-tiny", "layers": 8},
            "hardware": {"extends": "dgx-h100", "levels": slow},
            "chips": 4,
            "mesh": {"pipe": 2, "data": 2},
            "layout": {"pp": "pipe", "dp": "data"},
            "pipeline": {"schedule": "interleaved", "chunks": 2},
            "practice": {"base": "fsdp2", "clip": "none"},
            "workload": {"seq": 16, "global_batch": 16, "microbatches": 4},
        }
    ).pipeline.step
    for stage in step.told.stages:
        order, starts = step.ran.schedule.orders[stage.rank], step.ran.starts[stage.rank]
        first = min(at for at, action in enumerate(order) if action[-1].act == "W" and action[-1].microbatch == 3)
        sent = sum(row.busy_s for row in stage.rows if row.op == "gradient" and not row.call.shared)
        assert starts[first] + sent < stage.own_s < starts[first + 1] + sent


def test_new_weights_are_gathered_before_the_first_microbatch_alone():
    new_weights = plan(GPT3, **STAGES, zero=1, overrides=("practice.overlap.weights=beside",)).pipeline.step
    odd = {name.partition("_of_")[2] for name in new_weights.told.counts if name.startswith("F")} - {""}
    assert odd == {"0"}


@pytest.mark.parametrize("bandwidth", ["3 GB/s", "30 GB/s"])
@pytest.mark.parametrize("schedule", [name for name, maker in SCHEDULES.items() if maker.early])
def test_new_weights_are_gathered_before_the_first_message_where_a_framework_does_not_wait_for_it(schedule, bandwidth):
    """All ranks end a step together, so their gathers begin with the next: no rank waits for those of the others."""
    slow = {"network": {"link": {"bandwidth": {"value": bandwidth, "kind": "guess"}}}}
    chunks = 2 if SCHEDULES[schedule].several else 1
    asked = {
        "tpsim": "scenario/1",
        "model": {"extends": "llama-3-8b", "layers": 16},
        "hardware": {"extends": "dgx-h100", "levels": slow},
        "mesh": {"pipe": 4, "data": 8},
        "placement": {"pipe": "nvlink", "data": "network"},
        "layout": {"pp": "pipe", "dp": "data", "zero": 1},
        "pipeline": {"schedule": schedule, "chunks": chunks},
        "practice": {"base": "fsdp2", "coalesce": False},
        "workload": {"seq": 4096, "global_batch": 64, "microbatches": 8},
    }
    beside = plan(asked)
    assert beside.step.time_s < plan(asked, overrides=("practice.overlap.weights=none",)).step.time_s
    late = plan(asked, overrides=("practice.ahead={layers: 0}",))  # no word on what begins with the step
    assert late.step.time_s == pytest.approx(beside.step.time_s, rel=1e-12)
    ran = beside.pipeline.step.ran
    for stage in beside.pipeline.step.told.stages[1:-1]:
        order, times = ran.schedule.orders[stage.rank], zip(ran.starts[stage.rank], ran.ends[stage.rank], strict=True)
        took = {action[0]: span for action, span in zip(order, times, strict=True)}
        of_chunk = sum(row.busy_s for row in stage.rows if row.op == "new weights") / chunks
        for at in range(chunks):
            (first, end), (start, other) = (took["F", at * 4 + stage.rank, j] for j in (0, 1))
            forward, there = other - start, (at + 1) * of_chunk
            assert max(first + forward, there) * (1 - 1e-9) <= end <= max(first, there) + forward + 1e-9
        assert sum(row.exposed_s for row in stage.rows if row.op == "new weights") <= of_chunk * chunks
    step = beside.pipeline.step
    for stage in step.told.stages:
        parts = stage.compute.time_s + stage.exposed_s + stage.bubble_s + stage.host_s + stage.stragglers_s
        assert parts == pytest.approx(step.time_s, rel=1e-11)
    assert eval(step.told.formula, dict(step.told.seconds)) == pytest.approx(step.time_s, rel=1e-12)  # noqa: S307
    assert "weights_and_F" in step.told.formula


def test_sequence_parallelism_sends_a_shard():
    rows = staged(sp=True).to_json()["result"]["collectives"]
    assert {row["logical_bytes"] for row in rows if row["collective"] == "send"} == {50_331_648 // 8}


def test_every_rank_holds_its_own_layers_and_ends():
    result = staged()
    h, positions, vocabulary = 12288, 2048, 51200
    middle = 12 * (12 * h * h // 8 + (4 * h + 3 * h) // 8 + 6 * h)  # products and split biases over t; the rest whole
    held = [one.parameters_bytes // 2 for one in result.pipeline.each]
    assert held == [middle + h * vocabulary // 8 + h * positions, *[middle] * 6, middle + h * vocabulary // 8 + 2 * h]
    assert {one.static_bytes // one.parameters_bytes for one in result.pipeline.each} == {9}  # 2 + 4 + 12 bytes
    assert result.memory.static_bytes == result.pipeline.each[0].static_bytes


def test_gradients_are_held_whole_until_the_step_ends_those_of_a_tied_embedding_too():
    result = staged(zero=1)
    assert [one.gradients_bytes for one in result.pipeline.each] == [
        2 * one.parameters_bytes for one in result.pipeline.each
    ]


def test_a_send_takes_its_bytes_over_one_port():
    result = staged(cost_model="book")
    (level,) = (level for level in result.question.machine.levels if level.name == "network")
    (row,) = (row for row in result.rows if row.collective == "send")
    assert row.timing.time_s == pytest.approx(50_331_648 / level.link.bandwidth.value, rel=1e-12)


@pytest.mark.parametrize(("recompute", "again"), [("full", 24 + 4 / 6), ("none", 0)])
def test_hfu_is_of_all_stages_and_not_of_the_one_that_the_step_hangs_on(recompute, again):
    """A layer's forward is 24bsh^2 + 4bs^2h, here s = h/6, and the head 2bshv (Korthikanti et al. 2022, appendix A)."""
    step = staged("practice.attention=plain", recompute=recompute).step
    layer, head = 24 + 4 / 6, 2 * 51_200 / (96 * 12_288)
    useful = 3 * (layer + head)
    assert step.hfu / step.mfu == pytest.approx((useful + again) / useful)
    assert step.flops_per_device * 512 == pytest.approx(step.useful_flops * (useful + again) / useful)


@pytest.mark.parametrize("stages", [1, 4])
def test_scores_that_a_mask_hides_are_left_out_once_those_of_a_module_for_further_tokens_too(stages):
    """61 layers and a module: 128 heads have scores of 192 products, values of 128 (DeepSeek-V3's config.json)."""
    asked = {"model": "deepseek-v3", "hw": "dgx-h100", "dp": 8, "pp": stages, "seq": 4096}
    split = ["pipeline.layers=nearly-even"] if stages > 1 else []
    whole, seen = (plan(**asked, overrides=[*split, f"assume.mfu={by}"]).step for by in ("full", "causal"))
    tokens = 8 * 4096
    hidden = 62 * 3 * tokens * 2 * 128 * (192 + 128) * (4096 - 4097 / 2)
    assert float(whole.useful_flops - seen.useful_flops) == pytest.approx(hidden, rel=1e-12)
    again = 62 * tokens * 2 * 128 * 192 * (4096 - 4097 / 2)  # scores, which fused attention makes once more
    run = (whole.flops_per_device - seen.flops_per_device) * 8 * stages
    assert float(run) == pytest.approx(hidden + again, rel=1e-12)


def test_of_layers_of_several_kinds_the_mean_of_the_rank_is_no_layer_and_is_called_so():
    """Rank 0 of deepseek-v3-h100 has three dense layers, which send nothing, and one with experts."""
    result = plan("deepseek-v3-h100")
    sparse = [row for row in result.rows if row.phase == "forward" and row.call.where.kind == "sparse"]
    assert result.per_layer["forward"].wire_bytes_per_device * 4 == sum(row.wire_bytes_per_device for row in sparse)
    asked = {"a mean layer of rank 0": "deepseek-v3-h100", "a mean layer": "gpt-oss-120b-h100-decode"}
    for layer, scenario in {**asked, "one layer": "llama3-70b-h100"}.items():
        (told,) = explain("per_layer.forward.wire", scenario).derivations
        assert told.what == f"wire bytes of {layer} and one microbatch, forward"


def test_stages_share_the_work_of_one_device():
    whole = plan(GPT3, chips=64, microbatches=24, batch=192, dp=8)
    cut = staged()
    each = [stage.compute.flops for stage in cut.pipeline.step.told.stages]
    assert sum(each) == whole.compute.flops
    assert sum(work.useful_flops for work in cut.works) == whole.compute.useful_flops
    assert cut.step.mfu < whole.step.mfu


def test_one_stage_is_no_pipeline():
    unclipped = ("practice.clip=none",)  # of one stage a norm adds up what it has of two chunks first
    plain, one = plan(GPT3, overrides=unclipped), plan(GPT3, overrides=unclipped, pp=1)
    assert one.pipeline is None
    assert dict(one.step) == dict(plain.step)
    assert one.memory == plain.memory


def test_a_send_on_neighbouring_chips_of_a_torus_takes_its_own_link():
    result = plan(
        "llama3-70b-v5p",
        mesh="pipe=4,data=4,tensor=4",
        pp="pipe",
        microbatches=4,
        batch=64,
        chips=64,
        overrides=("placement={pipe: ici.0, data: ici.1, tensor: ici.2}",),
    )
    (route,) = {result.question.placement.hop(("pipe",), 0, 1), result.question.placement.hop(("pipe",), 3, 2)}
    assert [(segment.axis, segment.topology, segment.n) for segment in route] == [("ici.0", "line", 2)]
    with pytest.raises(InputError, match="places 0 and 2 of mesh axis pipe are no neighbours"):
        result.question.placement.hop(("pipe",), 0, 2)


def over_two_axes(verb, mesh, *more):
    placed = "placement={pods: network, pipe: network, data: network, tensor: nvlink}"
    return verb("gpt3-175b-a100-pipeline", overrides=[f"mesh={mesh}", placed, "layout.pp=[pods, pipe]", *more])


def test_stages_over_two_mesh_axes_are_those_over_one_of_as_many_devices():
    one, two = plan("gpt3-175b-a100-pipeline"), over_two_axes(plan, "{pods: 2, pipe: 6, data: 4, tensor: 8}")
    assert two.step.time_s == pytest.approx(one.step.time_s, rel=1e-12)
    assert [each.peak_bytes for each in two.each] == [each.peak_bytes for each in one.each]
    assert {row.axis for row in two.rows} - {row.axis for row in one.rows} == {"pods,pipe"}


def test_stages_over_two_mesh_axes_send_from_one_to_the_next():
    found = over_two_axes(verify, "{pods: 2, pipe: 2, data: 1, tensor: 1}", "workload.microbatches=4")
    assert [check.check for check in found.checks if not check.ok] == []


UNEVEN = {
    "given": ("pipeline.layers=[11,12,13,12,12,12,12,12]",),
    "empty ends": ("pipeline.layers=[0,16,16,16,16,16,16,0]",),
    "balanced": ("pipeline.layers=balanced", "model={extends: gpt3-175b, layers: 95}"),
    "cut over tensor": ("layout.cut.s=tensor",),
    "uneven, cut over tensor": ("pipeline.layers=[11,12,13,12,12,12,12,12]", "layout.cut.s=tensor"),
}
SPLITS = [pytest.param(overrides, id=name) for name, overrides in UNEVEN.items()]


@pytest.mark.parametrize("overrides", SPLITS)
def test_unlike_stages_fill_the_step_and_their_formula_comes_to_it(overrides):
    result = staged(*overrides)
    step = result.pipeline.step
    for stage in step.told.stages:
        assert stage.compute.time_s + stage.exposed_s + stage.bubble_s == pytest.approx(step.time_s, rel=1e-12)
    assert eval(step.told.formula, dict(step.told.seconds)) == pytest.approx(step.time_s, rel=1e-12)  # noqa: S307
    assert sum(stage.layers for stage in step.told.stages) == result.question.model.layers
    whole = plan(
        GPT3, chips=64, microbatches=24, batch=192, dp=8, overrides=overrides[1:] if "model" in str(overrides) else ()
    )
    assert sum(stage.compute.flops for stage in step.told.stages) == whole.compute.flops


@pytest.mark.parametrize("overrides", [UNEVEN[name] for name in ("empty ends", "balanced", "uneven, cut over tensor")])
def test_unlike_stages_and_split_cuts_are_verified(overrides):
    fewer = {"11,12,13,12,12,12,12,12": "23,24,25,24", "0,16,16,16,16,16,16,0": "0,48,48,0"}
    overrides = [reduce(lambda text, split: text.replace(*split), fewer.items(), one) for one in overrides]
    result = verify(GPT3, overrides=overrides, **{**STAGES, "pp": 4, "chips": 256})
    assert result.ok, result.verdict


def test_a_rank_counts_the_calls_of_its_own_layers():
    result = staged(*UNEVEN["given"])
    counts = [
        next(row.count for row in stage.rows if row.array == "mlp.out" and row.phase == "forward")
        for stage in result.pipeline.step.told.stages
    ]
    assert counts == [24 * layers for layers in (11, 12, 13, 12, 12, 12, 12, 12)]
    assert {row.layer for row in result.rows if row.call.per_layer} == {"0-95"}
    assert result.resolved["pipeline"]["layers"] == [11, 12, 13, 12, 12, 12, 12, 12]
    per_layer = result.per_layer["forward"].payload_bytes
    assert per_layer == staged().per_layer["forward"].payload_bytes


def test_a_balanced_split_is_no_slower_than_any_that_moves_one_layer():
    cut = {"pp": 8, "chips": 64, "microbatches": 24, "batch": 192}
    model = "model={extends: gpt2-xl, layers: 30, vocab_padded: 50304}"

    def step(layers):
        return plan("gpt2-xl-a100-dp", overrides=(model, f"pipeline.layers={layers}"), **cut)

    found = step("balanced")
    split = found.resolved["pipeline"]["layers"]
    assert split[-1] < max(split)  # the head is worth several of its small layers
    for k in range(1, 7):
        other = [*split]
        other[k], other[-1] = other[k] - 1, other[-1] + 1
        assert step(other).step.time_s >= found.step.time_s


def test_a_cut_over_tensor_sends_an_eighth_and_gathers_it():
    """Narayanan et al. 2021, section 4.1: b*s*h/t to the next rank and an all-gather over NVLink behind it."""
    whole, split = staged(), staged(*UNEVEN["cut over tensor"])
    sent = {row.logical_bytes for row in whole.collectives if row.collective == "send"}
    assert (
        {row.logical_bytes for row in split.collectives if row.collective == "send"} == {sum(sent) // 8} == {6_291_456}
    )
    assert sent == {50_331_648}
    around = [row for row in split.collectives if row.call.where.place == "side"]
    assert {(row.collective, row.axis, row.logical_bytes, row.phase, row.stage) for row in around} == {
        ("all_gather", "tensor", 50_331_648, "forward", "1-7"),
        ("all_gather", "tensor", 50_331_648, "backward", "0-6"),
    }
    assert {row.formula for row in split.collectives if row.collective == "send"} == {"2*b*h*s/(d*t)"}
    assert split.step.time_s < whole.step.time_s


def test_a_table_may_state_the_cut_too():
    table = "{'*': {b: data, g: tensor, f: tensor, v: tensor}, cut: {s: tensor}}"
    result = plan(GPT3, overrides=(f"shardings={table}", "layout="))
    assert result.pipeline is None  # a row of what is never sent changes nothing
    assert result.step.time_s == plan(GPT3).step.time_s


def refused(*overrides, **flags):
    with pytest.raises(InputError) as error:
        plan(GPT3, overrides=overrides, **{**STAGES, **flags})
    return str(error.value)


@pytest.mark.parametrize(
    ("overrides", "flags", "said"),
    [
        ((), {"schedule": "dualpipe"}, "the schedule dualpipe is not supported yet"),
        ((), {"schedule": "zb-v"}, "the schedule zb-v is not supported yet"),
        ((), {"schedule": "mine.csv"}, "a schedule from a file is not supported yet"),
        ((), {"schedule": "1f2b"}, '"1f2b" is not a schedule'),
        ((), {"chunks": 2}, "the schedule 1f1b runs one chunk per stage, not 2"),
        ((), {"schedule": "interleaved"}, "takes turns among chunks, and every stage has one"),
        (
            (),
            {"schedule": "interleaved", "chunks": 5},
            "96 layers cannot be split evenly over 8 stages of 5 chunks each",
        ),
        ((), {"schedule": "interleaved", "chunks": 2, "microbatches": 12}, "12 microbatches are not divisible by 8"),
        ((), {"pp": 7, "chips": 448}, "96 layers cannot be split evenly over 7 stages"),
        (("pipeline.layers=[11,13]",), {}, "a split into 2 chunks is given, and there are 8 stages"),
        (("pipeline.layers=[12,12,12,12,12,12,12,11]",), {}, "the split adds up to 95 layers, and the model has 96"),
        (("pipeline.layers=evenly",), {}, '"evenly"'),
        (("layout.cut.s=tensors",), {}, 'did you mean "tensor"?'),
        (("layout.cut.q=tensor",), {}, '"q" is not a dim of a sharding table'),
        (
            ("layout.cut.s=tensor", "workload.seq=2044"),
            {},
            "s = 2044 (tokens per sequence) is not divisible by tensor 8",
        ),
        ((), {"planner": "cheapest"}, "the planner cheapest is not supported with stages yet"),
    ],
)
def test_what_pipelines_cannot_do_yet_is_refused_by_name(overrides, flags, said):
    assert said in refused(*overrides, **flags)


@pytest.mark.parametrize(
    ("word", "what"),
    [
        ("zb-v", "the schedule zb-v"),
        ("dualpipe", "the schedule dualpipe"),
        ("dualpipe-v", "the schedule dualpipe-v"),
        ("mine.csv", "a schedule from a file"),
    ],
)
def test_a_schedule_of_later_is_refused_with_those_that_there_are(word, what):
    text = f"--schedule {word}"
    assert refused(schedule=word) == (
        f"error[not-supported-yet]: {what} is not supported yet\n --> command line:1:1\n  |\n1 | {text}\n"
        f"  | {'^' * len(text)} take gpipe, 1f1b, interleaved, zb-h1, zb-h2"
    )


def test_a_pipeline_without_stages_is_refused():
    with pytest.raises(InputError) as error:
        plan(GPT3, overrides=("pipeline.schedule=gpipe",))
    assert "a pipeline is described, and no mesh axis has its stages" in str(error.value)
    assert "add --pp 4, in a file layout.pp: AXIS; or remove it" in str(error.value)


# The library's own pipelines, which are verified too, run the other schedules.
@pytest.mark.parametrize("way", [{"schedule": "gpipe"}, {"schedule": "zb-h2"}, {"zero": 1, "sp": True}], ids=str)
def test_a_pipeline_is_verified_on_ranks_that_hold_their_own_stage(way):
    result = verify(GPT3, **{**STAGES, "pp": 4, "chips": 256}, **way)
    assert result.ok, result.verdict
    (run,) = result.runs
    assert run.mesh["pipe"] == 2
    assert run.difference < 1e-10
    names = [check.check for check in run.checks]
    assert {"values", "gradients", "update", "collectives", "formulas"} <= set(names)


def test_an_untied_model_with_tiny_layers_needs_no_sum_over_stages():
    assert LLAMA.tie_embeddings is False
    rows = plan("llama3-8b-b200-fsdp", pp=2, overrides=("practice.clip=none",)).to_json()["result"]["collectives"]
    assert not [row for row in rows if row["axis"] == "pipe" and row["collective"] != "send"]


@pytest.mark.parametrize("zero", [0, 1, 2])
def test_what_stages_do_together_fills_their_links_behind_all_else(zero):
    """Links that take nearly all of a step: the shared embedding's sum is not waited for before it begins."""
    slow = {"nvlink": {"link": {"bandwidth": {"value": "1 MB/s", "kind": "guess"}}}}
    result = plan(
        {
            "tpsim": "scenario/1",
            "model": {"extends": "gpt-tiny", "layers": 4},
            "hardware": {"extends": "dgx-h100", "levels": slow},
            "chips": 4,
            "mesh": {"pipe": 2, "data": 2},
            "layout": {"pp": "pipe", "dp": "data", "zero": zero},
            "pipeline": {"schedule": "1f1b"},
            "workload": {"seq": 16, "global_batch": 16, "microbatches": 2},
        }
    )
    for stage in result.pipeline.step.told.stages:
        busy = sum(row.timing.time_s * row.count for row in stage.rows if row.axis != "pipe" or row.call.shared)
        assert stage.exposed_s == pytest.approx(sum(row.exposed_s for row in stage.rows))
        assert stage.exposed_s < busy + 0.04  # what is sent between stages takes at most 4 x 5.2 ms, and waits as often
        parts = stage.compute.time_s + stage.exposed_s + stage.bubble_s + stage.host_s + stage.stragglers_s
        assert parts == pytest.approx(result.step.time_s, rel=1e-12)


def test_what_is_gathered_and_not_read_takes_its_time_in_the_step():
    """Under ZeRO-3 a module is gathered whole for its backward: the embedding's weights, which no derivative reads."""
    result = plan("llama3-8b-b200-fsdp", pp=2, microbatches=4, practice="megatron")
    step = result.pipeline.step
    for stage in step.told.stages:
        parts = stage.compute.time_s + stage.exposed_s + stage.bubble_s + stage.host_s + stage.stragglers_s
        assert parts == pytest.approx(step.time_s, rel=1e-12)
    assert result.step.time_s == pytest.approx(step.time_s, rel=1e-12)


def test_what_only_gradients_of_weights_read_is_gathered_once_where_backward_runs_in_two():
    """The table's cotangent needs weights of a module that predicts further tokens, the stream's does not."""
    layer = ["latent", "dense"]
    result = plan(
        {
            "tpsim": "scenario/1",
            "model": {"extends": "deepseek-v3", "layers": [{"repeat": 2, "of": layer}], "mtp": {"of": layer}},
            "hardware": "dgx-h100",
            "chips": 4,
            "mesh": {"pipe": 2, "data": 2},
            "layout": {"pp": "pipe", "dp": "data", "zero": 3},
            "practice": "megatron",
            "pipeline": {"schedule": "zb-h1"},
            "workload": {"seq": 64, "global_batch": 8, "microbatches": 2},
        }
    )
    again = {"W_mtp_stream": "B", "W_mtp_embedding": "W"}
    last = result.pipeline.step.told.stages[-1]
    gathers = [row.call for row in last.rows if row.op == "param" and row.phase == "backward"]
    for array, act in again.items():
        assert [one.where.act for one in gathers for part in one.parts if part.array == array] == [act]
    for stage in result.pipeline.step.told.stages:
        parts = stage.compute.time_s + stage.exposed_s + stage.bubble_s + stage.host_s + stage.stragglers_s
        assert parts == pytest.approx(result.pipeline.step.time_s, rel=1e-12)


def test_a_schedule_of_one_round_is_verified_as_one():
    """Of blocking messages two rounds of interleaved stages would deadlock."""
    way = {"practice": "deepspeed", "microbatches": 16, "batch": 128}
    assert shrink(resolve("gpt3-175b-a100-interleaved", flags=way)).schedule.microbatches == 2


def test_a_plan_keeps_nothing_of_every_action_but_the_orders_that_are_shared():
    """What a search plans is many such: a pass over orders, and memory over time, are worked out for who asks."""
    gc.freeze()  # what other tests have left is not looked through
    result = plan(GPT3, **STAGES)
    gc.collect()
    orders = result.question.orders
    assert [one for one in gc.get_objects() if isinstance(one, Ran) and one.schedule is orders] == []
    assert all(one.peak.kinds is orders.kinds.of[one.peak_rank] for one in result.each)
    assert len(result.memory.peak.course) == len(result.pipeline.step.ran.starts[0]) == 2 * orders.microbatches


def test_ranks_that_a_step_was_not_asked_for_are_told_later_as_they_would_have_been():
    work = plan("llama3-405b-h100-pipeline").pipeline.step.work
    whole, brief = work.step(), work.step(briefly=True)
    assert brief.whole is None
    assert brief.pacing == whole.pacing
    assert (brief.time_s, brief.ended_s, brief.told.stages, brief.told.formula) == (
        *(whole.time_s, whole.ended_s),
        *(whole.told.stages, whole.told.formula),
    )


@pytest.mark.parametrize("part", ["parameters", "gradients", "optimizer", "static"])
def test_what_the_fullest_rank_holds_is_explained_with_its_own_layers(part):
    """The step hangs on rank 0, of 5 layers; rank 1, of 6, holds most."""
    asked = {"model": "gpt-neox-20b", "hw": "dgx-a100", "pp": 8, "tp": 8, "dp": 2, "seq": 2048, "schedule": "gpipe"}
    asked |= {"batch": 16, "microbatches": 8, "overrides": ["pipeline.layers=balanced"]}
    result = plan(**asked)
    held = {stage.ranks: stage.layers for stage in result.stages}
    assert (result.pipeline.pacing_rank, held["0"]) == (0, 5)
    assert (result.memory.peak_rank, next(n for ranks, n in held.items() if ranks.startswith("1"))) == (1, 6)
    (told,) = explain(f"memory.{part}", **asked).derivations
    assert told.value == getattr(result.memory, f"{part}_bytes")


def test_what_holds_up_the_ends_of_a_pipeline_is_told_of_its_middle():
    """DeepSeek-V3's first rank has three dense layers and one with experts: it waits for those with four of these."""
    slow, fast = (
        plan("deepseek-v3-h100", overrides=["practice.rows.dispatch=flat", *links])
        for links in ([], [f"hardware.levels.{level}.link.bandwidth=1 PB/s" for level in ("nvlink", "network")])
    )
    first, second = slow.stages[:2]
    assert slow.pipeline.pacing_rank == 0
    assert first.bubble_s > first.compute_s
    assert second.exposed_s > 4 * second.bubble_s
    assert slow.step.bound_by == "communication (all_to_all over node,gpu)"
    assert slow.step.time_s - fast.step.time_s > second.exposed_s  # 20.5 of 44.1 s: no bubble of rank 0
    bubble, exposed = (percent(seconds / slow.step.time_s) for seconds in (second.bubble_s, second.exposed_s))
    assert f" to the pipeline's bubble (rank 1: {bubble}, and {exposed} to exposed communication)" in slow.verdict
