"""What lives on the host of its device: ZeRO-Offload (Ren et al. 2021, 2101.06840) by homes alone, to the byte."""

import numpy as np
import pytest

import tpsim
from tpsim.answers.plan import PlanResult, priced
from tpsim.answers.ranking import weigh
from tpsim.layouts.candidates import evaluate
from tpsim.layouts.space import spaces
from tpsim.quantity.errors import InputError
from tpsim.question.memo import Memo

HOST = {"chips": 8, "capacity": "2 TB", "bandwidth": "100 GB/s"}


def asked(**changed: object) -> dict[str, object]:
    """Qwen2-7B on one A100 whose host has 100 GB/s, as ZeRO-Offload has it: gradients and weights in 16 bits."""
    return {
        "tpsim": "scenario/1",
        "model": "qwen2-7b",
        "hardware": {"extends": "dgx-a100", "chip": {"host": {"bandwidth": "16 GB/s"}}, "host": HOST},
        "mesh": {"data": 1},
        "layout": {"dp": "data", "zero": 0},
        "practice": {"base": "deepspeed", "clip": "none"},
        "offload": {"state": "host"},
        "workload": {"seq": 1024, "dtype": "bf16", "grad_dtype": "bf16"},
        **changed,
    }


def planned(**changed: object) -> PlanResult:
    return tpsim.plan(asked(**changed))


def copied(plan: PlanResult, kind: str) -> float:
    """Bytes of one device and step."""
    return sum(row.payload_bytes for row in plan.rows if row.collective == kind)


def copying_s(plan: PlanResult) -> float:
    return sum(row.busy_s for row in plan.rows if row.axis == "host")


N = 7_615_616_512


# Bytes and seconds ------------------------------------------------------------------------------------------------


def test_two_bytes_of_each_parameter_leave_and_two_come():
    plan = planned()
    assert (copied(plan, "store"), copied(plan, "load")) == (2 * N, 2 * N)
    assert copying_s(plan) == pytest.approx(4 * N / 16e9, rel=1e-12)


@pytest.mark.parametrize("shards", [1, 8])
def test_ten_billion_parameters_as_the_worked_example_has_them(shards):
    """20 GB each way in 1.25 s; of 8 devices 2.5 GB each; 140 GB on the host; an update of 2.8 s at 100 GB/s."""
    plan = planned(mesh={"data": shards}, layout={"dp": "data", "zero": 2})
    scale = 10e9 / N
    assert copied(plan, "store") * scale == copied(plan, "load") * scale == pytest.approx(20e9 / shards)
    assert copying_s(plan) * scale == pytest.approx(2 * 1.25 / shards)
    assert plan.memory.host_bytes * shards * scale == pytest.approx(140e9)
    assert plan.compute.seconds["update"] * scale == pytest.approx(2.8)


def test_gradients_of_four_bytes_leave_as_they_are():
    plan = planned(workload={"seq": 1024, "dtype": "bf16", "grad_dtype": "f32"})
    assert (copied(plan, "store"), copied(plan, "load")) == (4 * N, 2 * N)


@pytest.mark.parametrize(("gradients", "updated", "held"), [("bf16", 28, 14), ("f32", 30, 16)])
def test_the_host_reads_and_writes_what_an_update_takes_and_holds_states_and_gradients(gradients, updated, held):
    plan = planned(workload={"seq": 1024, "dtype": "bf16", "grad_dtype": gradients})
    assert plan.compute.seconds["update"] == pytest.approx(updated * N / 100e9, rel=1e-12)
    assert plan.memory.host_bytes == held * N
    assert plan.memory.optimizer_bytes == 0
    assert plan.memory.parameters_bytes == 2 * N


def test_each_of_several_devices_copies_its_part_and_all_of_a_host_share_its_memory():
    alone, four = planned(), planned(mesh={"data": 4}, layout={"dp": "data", "zero": 2})
    assert copied(four, "store") == copied(four, "load") == copied(alone, "load") / 4
    assert four.memory.host_bytes == alone.memory.host_bytes / 4
    assert four.compute.seconds["update"] == pytest.approx(alone.compute.seconds["update"], rel=1e-12)


def test_no_more_chips_than_a_host_has_share_its_memory():
    sixteen = planned(mesh={"data": 16}, layout={"dp": "data", "zero": 1})
    assert sixteen.compute.seconds["update"] == pytest.approx(28 * N / 16 * 8 / 100e9, rel=1e-12)
    assert sixteen.memory.host_capacity_bytes == 2e12 / 8


def test_the_norm_of_gradients_goes_to_the_host_once():
    plan = planned(practice={"base": "deepspeed", "clip": "norm"})
    (norm,) = [row for row in plan.rows if row.array == "squares"]
    assert (norm.collective, norm.count, norm.ranks) == ("store", 1, 1)


def test_a_host_that_is_too_small_makes_a_step_not_fit():
    hardware = {"extends": "dgx-a100", "host": {**HOST, "capacity": "100 GB"}}
    plan = planned(hardware=hardware, workload={"seq": 128, "dtype": "bf16", "grad_dtype": "bf16"})
    assert plan.memory.fit == "does not fit"
    assert plan.memory.room_bytes == 100e9 - 14 * N
    assert "DOES NOT FIT" in plan.memory.brief
    assert "on the host 106.6 GB of 100 GB" in plan.memory.brief


def test_latency_and_share_of_a_link_are_read():
    link = {"bandwidth": "16 GB/s", "efficiency": 0.5, "latency": "10 us"}
    plan = planned(hardware={"extends": "dgx-a100", "chip": {"host": link}, "host": HOST})
    calls = sum(row.count for row in plan.rows if row.axis == "host")
    assert copying_s(plan) == pytest.approx(4 * N / 8e9 + 10e-6 * calls, rel=1e-12)


def test_what_is_on_the_host_is_explained_by_its_name():
    (told,) = tpsim.explain("memory.host", asked()).derivations
    assert told.value == 14 * N


# Refusals ---------------------------------------------------------------------------------------------------------


def test_a_machine_that_states_no_host_is_refused_with_the_lines_to_write():
    with pytest.raises(InputError) as refused:
        planned(hardware="mi300x")
    (problem,) = refused.value.problems
    assert problem.slug == "no-host"
    assert problem.message == "mi300x does not state its host's memory: nothing can be offloaded"
    assert "host: {chips: 8, capacity: 1 TB, bandwidth: 400 GB/s}" in problem.remedy


def test_a_forward_alone_has_no_state_to_offload():
    with pytest.raises(InputError, match="offload says nothing of inference"):
        tpsim.plan("llama3-70b-h100-decode", offload="state")


def test_another_home_is_refused_with_those_that_there_are():
    with pytest.raises(InputError, match="nvme"):
        planned(offload={"state": "nvme"})


# The same in other words ------------------------------------------------------------------------------------------


def test_a_flag_a_word_and_a_map_ask_alike():
    by_map = planned().step.time_s
    assert planned(offload="state").step.time_s == by_map
    assert tpsim.plan(asked(offload={}), offload="state").step.time_s == by_map
    assert tpsim.plan(asked(), offload="none").step.time_s == planned(offload={}).step.time_s < by_map


# On simulated devices ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        {"layout": {"dp": "data", "zero": 2}, "mesh": {"data": 4}},
        {"layout": {"dp": "data", "tp": "tensor", "zero": 1}, "mesh": {"data": 2, "tensor": 2}},
        {
            "layout": {"dp": "data", "pp": "pipe", "zero": 1},
            "mesh": {"pipe": 2, "data": 2},
            "practice": {"base": "megatron", "clip": "norm"},
            "workload": {"seq": 1024, "microbatches": 4},
        },
        {"layout": {"dp": "data", "zero": 3}, "mesh": {"data": 4}, "practice": "fsdp2"},
    ],
    ids=["zero 2", "zero 1 with tensor", "stages with a norm", "fsdp2"],
)
def test_devices_store_and_load_what_is_claimed_and_hosts_hold_it(changed):
    verified = tpsim.verify(asked(**changed))
    assert verified.ok, verified


# Beside compute ---------------------------------------------------------------------------------------------------

SIZED = {"elements": 50_000_000}


@pytest.mark.parametrize("bucket", ["layer", "step", SIZED], ids=["layer", "step", "elements"])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_copies_beside_compute_are_never_slower_and_each_is_exposed_for_no_longer_than_it_takes(zero, bucket):
    """What brings new weights stands before what gathers them, once, however many gathers wait for it."""

    def overlapping(mode: str) -> PlanResult:
        overlap = {"gradients": mode, "weights": mode}
        practice = {"base": "fsdp2" if zero == 3 else "megatron", "clip": "none", "overlap": overlap, "bucket": bucket}
        return planned(mesh={"data": 8}, layout={"dp": "data", "zero": zero}, practice=practice)

    blocking, beside = overlapping("none"), overlapping("beside")
    assert copied(beside, "load") == copied(blocking, "load")
    own, others = (plan.step.time_s - plan.step.stragglers_s for plan in (beside, blocking))
    assert own <= others * (1 + 1e-12)
    assert own < others or bucket == "step"
    for row in beside.rows:
        assert row.exposed_s <= row.busy_s * (1 + 1e-9), row
    assert all(row.exposed_s == pytest.approx(row.busy_s) for row in blocking.rows if row.axis == "host")


# Searched ---------------------------------------------------------------------------------------------------------


def test_a_search_over_homes_finds_what_all_plans_together_would():
    """Qwen2-7B on eight H100: of both homes, four ZeRO stages and two recomputes the best is that of brute force."""
    base = {"tpsim": "scenario/1", "model": "qwen2-7b", "mesh": {"data": 8}, "layout": {"dp": "data"}}
    scenario = {**base, "hardware": "dgx-h100", "workload": {"global_batch": 32, "seq": 2048}}
    plans = {
        (home, zero, recompute): tpsim.plan(
            scenario, overrides=[f"offload.state={home}"], zero=zero, recompute=recompute
        )
        for home in ("device", "host")
        for zero in (0, 1, 2, 3)
        for recompute in ("none", "full")
    }
    fitting = {key: plan.step.time_s for key, plan in plans.items() if plan.memory.room_bytes >= 0}
    found = tpsim.search(scenario, chips=8, vary=["offload.state=device,host", "recompute", "tp=1", "pp=1"], top=99)
    steps = sorted(row.plan.step.time_s for row in found.rows)
    assert {key[0] for key in fitting} == {"device", "host"}
    assert steps[0] == pytest.approx(min(fitting.values()), rel=1e-9)
    assert all(any(step == pytest.approx(one, rel=1e-9) for step in steps) for one in fitting.values())


def test_drawn_layouts_with_states_on_hosts_hold_what_their_plans_do_and_none_is_faster_than_its_bound():
    memo, overrides = Memo(), ["require={}", "practice.overlap={gradients: beside, weights: beside}"]
    vary = ["offload.state=device,host", "microbatches", "zero=0,1,2,3", "pp=1,2", "tp=1,2", "recompute=none,full"]
    several = spaces("qwen2-7b-h100", flags={"chips": 16}, overrides=overrides, vary=vary, memo=memo)
    candidates = evaluate(several, memo, weigh).candidates
    drawn = [candidates[at] for at in np.random.default_rng(7).choice(len(candidates), 12, replace=False)]
    plans = [priced(one.space.question(one.layout, memo), memo) for one in drawn]
    assert {plan.question.practice.offload for plan in plans} == {(), ("state",)}
    for one, plan in zip(drawn, plans, strict=True):
        assert one.peak_bytes == pytest.approx(float(plan.memory.peak_bytes), rel=1e-9), one.layout
        assert one.room_bytes == pytest.approx(float(plan.memory.room_bytes), abs=1e3), one.layout
        assert one.step_s <= float(plan.step.time_s) * (1 + 1e-9), one.layout


def test_a_search_lists_no_layout_whose_host_is_too_small():
    small = {"extends": "dgx-h100", "host": {"chips": 8, "capacity": "50 GB", "bandwidth": "100 GB/s"}}
    scenario = {**asked(hardware=small, offload={}), "workload": {"global_batch": 32, "seq": 2048}}
    found = tpsim.search(scenario, chips=8, vary=["offload.state=device,host", "recompute", "tp=1", "pp=1"], top=99)
    assert {row.varied["offload.state"] for row in found.rows} == {"device"}


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_states_on_the_host_take_their_bytes_off_the_chip(zero):
    device, host = (
        planned(offload=offload, mesh={"data": 4}, layout={"dp": "data", "zero": zero}) for offload in ({}, "state")
    )
    assert device.memory.static_bytes - host.memory.static_bytes == device.memory.optimizer_bytes
    assert device.memory.peak.total == host.memory.peak.total
    assert host.memory.host_bytes == device.memory.optimizer_bytes * 14 / 12
