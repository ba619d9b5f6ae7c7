"""What a search cannot compare or make is refused; what `plan` refuses of a layout is counted, and it goes on."""

from __future__ import annotations

import pytest

import tpsim
from tests.models import SMALL_SCENARIO as SMALL
from tpsim.answers.search import search
from tpsim.pages.search import page
from tpsim.quantity.errors import InputError

FEW = ["microbatches=8", "zero=1", "tp=4", "pp=1"]


@pytest.mark.parametrize("chips", [0, -4])
def test_no_chips_are_refused_and_not_taken_for_those_of_the_scenario(chips):
    with pytest.raises(InputError, match=f"chips {chips} is no size of a mesh that is searched"):
        search(SMALL, chips=chips)


@pytest.mark.parametrize("chips", [[8, 16], (8, 16), "8,16"])
def test_several_numbers_of_chips_are_varied_as_the_remedy_writes_them(chips):
    with pytest.raises(InputError, match="is no size of a mesh that is searched") as error:
        search(SMALL, chips=chips)
    assert error.value.problems[0].remedy == "search several: --vary chips=8,16"


def test_chips_that_an_override_states_are_as_good_as_a_flags_and_no_others_are_taken_beside_one():
    """Of flags alone `--set chips=4` was refused: the mesh that a search begins with is not of so many."""
    asked = {
        "model": "gpt-tiny",
        "hw": "dgx-h100",
        "seq": 16,
        "batch": 8,
        "vary": ["microbatches=1", "zero=1"],
        "top": 1,
    }
    flag, override, both = (
        search(**asked, chips=chips, overrides=overrides)
        for chips, overrides in ((4, []), (None, ["chips=4"]), (4, ["chips=4"]))
    )
    assert flag.rows[0].step_s == override.rows[0].step_s == both.rows[0].step_s
    assert flag.considered == override.considered == both.considered
    with pytest.raises(InputError, match="--chips 4 and --set chips=8 contradict each other"):
        search(**asked, chips=4, overrides=["chips=8"])
    with pytest.raises(InputError, match="contradict each other"):
        search(SMALL, chips=8, zero=1, overrides=["layout.zero=2"])


def test_a_front_of_money_needs_a_price():
    with pytest.raises(InputError, match="a search by money needs the price of a chip hour") as error:
        search(SMALL, vary=FEW, pareto="money,memory")
    assert error.value.problems[0].remedy == "add it: --set assume.price_per_chip_hour=2.5"


def test_paths_that_each_layout_has_of_its_own_are_refused_for_bounds_are_of_the_books():
    """One layout that takes 25.9 ms by the cheapest paths was said to take no less than 29.0."""
    with pytest.raises(InputError, match="search bounds layouts by the book's paths") as error:
        search(SMALL, vary=FEW, planner="cheapest")
    assert error.value.problems[0].remedy == "search with --planner book, then plan the best: --planner cheapest"


@pytest.mark.parametrize("field", ["workload.seq=2048,4096", "model=llama-3-8b,llama-2-7b"])
def test_steps_of_unlike_work_are_not_ranked_by_their_seconds(field):
    found = search(SMALL, vary=[*FEW, field], recompute="full", by="tokens_per_s", top=2)
    assert len(found.rows) == 2
    for asked, remedy in [({}, "--by tokens_per_s"), ({"pareto": "step,memory"}, "--pareto tokens_per_s,memory")]:
        with pytest.raises(InputError, match="steps are not the same work") as error:
            search(SMALL, vary=[*FEW, field], recompute="full", by="tokens_per_s" if asked else "step", **asked)
        assert error.value.problems[0].remedy == f"compare what they get done: {remedy}"


FEW_NODES = ["pp=1", "tp=1", "zero=1", "sp=false", "ep", "placement"]


@pytest.mark.parametrize("workers", [1, 3])
def test_a_reason_is_told_with_what_a_plan_says_of_the_first_layout(workers):
    """A reason was a slug that no page explained: now each has a message, and a plan that is refused says the same."""
    found = search("qwen2-7b-h100", chips=64, recompute="none", top=1, workers=workers)
    told = {one.reason: one.example for one in found.refused}
    turns = "4 microbatches are not divisible by 8 stages: this schedule takes as many at a time"
    assert told == {
        "heads-not-divisible": "28 heads are not divisible by tp 8",
        "too-few-layers": "28 layers are too few for 32 chunks: only the first and the last may have none",
        "microbatches-not-divisible": turns,
    }
    with pytest.raises(InputError) as error:
        tpsim.plan("qwen2-7b-h100", chips=64, tp=8, dp=8)
    assert told[error.value.problems[0].slug] == error.value.problems[0].message
    (table,) = [one for one in page(found, verbose=True).tables if one.title == "why layouts are refused"]
    assert [row["example"] for row in table.rows] == list(told.values())


@pytest.mark.parametrize(
    ("asked", "slug"),
    [
        ({"scenario": "llama3-70b-h100-decode", "chips": 16, "batch": "largest", "by": "tokens_per_s"}, "no-room"),
        ({"scenario": "deepseek-v3-h100", "chips": 64, "plans": 1, "vary": FEW_NODES}, "nodes-not-apart"),
        ({"scenario": "gpt2-xl-a100-dp", "chips": 8, "plans": 1}, "heads-not-divisible"),
    ],
)
def test_every_reason_has_words(asked, slug):
    found = search(**asked, top=1)
    assert all(" " in one.example for one in found.refused)
    assert slug in {one.reason for one in found.refused}


def test_schedules_that_deadlock_are_counted_as_refused_before_any_layout_is_planned():
    vary = ["microbatches=8", "zero=1", "tp=4", "pp=1,2", "schedule=1f1b,zb-h2"]
    asked = {"vary": vary, "recompute": "full", "overrides": ["practice.overlap.stages=none"]}
    found = search(SMALL, top=20, **asked)
    first = search(SMALL, top=1, plans=1, **asked)
    assert (first.legal, first.fitting, first.refused) == (found.legal, found.fitting, found.refused)
    assert {row.schedule for row in found.rows} == {"1f1b", None}
    refused = {one.reason: one.layouts for one in found.refused}
    assert refused["deadlock"] > 0
    assert found.considered == found.legal + sum(refused.values())
    assert found.fitting <= found.legal


@pytest.mark.parametrize(
    ("asked", "message", "place"),
    [
        (
            {"tp": 16, "pp": 16},
            "the mesh is pipe 16 x data -1 x tensor 16 = a multiple of 256 chips, but chips is 16",
            "--pp 16",
        ),
        (
            {"tp": 4, "pp": 2, "vary": ["dp=8"]},
            "the mesh is pipe 2 x data 8 x tensor 4 = 64 chips, but chips is 16",
            "--pp 2",
        ),
        (
            {"vary": ["tp=3,5"]},
            "the mesh is data -1 x tensor 3 = a multiple of 3 chips, but chips is 16",
            "--vary tp=3,5",
        ),
    ],
)
def test_where_no_mesh_has_so_many_chips_that_is_said_as_plan_says_it(asked, message, place):
    with pytest.raises(InputError) as error:
        search(SMALL, **asked)
    problem = error.value.problems[-1]
    assert (problem.slug, problem.message, problem.place.text) == ("mesh-product", message, place)


def test_where_a_schedule_has_no_chunks_that_is_said_as_plan_says_it():
    with pytest.raises(InputError, match="8 layers cannot be split evenly over 16 stages"):
        search(SMALL, pp=16, schedule="interleaved")


def test_where_nothing_fits_the_least_peak_is_told_and_nothing_is_saved():
    found = search({**SMALL, "model": "llama-3-70b"}, chips=8, vary=["microbatches=8,16", "zero=0"], pp=1)
    least = found.smallest
    assert least.candidate.peak_bytes == min(one.peak_bytes for one in found.evaluation.candidates)
    peak = f"{float(least.plan.memory.peak_bytes) / 1e9:.4g} GB"
    assert found.lines[0].text.startswith(
        f"no layout fits: least peak {peak} of 80 GB, tp 8, dp 1, pp 1, 16 microbatches of "
    )
    assert page(found, verbose=False).next_command == found.to_ease != found.to_save


def test_where_nothing_fits_no_layout_holds_less_than_the_one_that_is_told():
    """Though what many hold from step to step is less than that of the one whose peak is the least."""
    room = {"extends": "dgx-h100", "chip": {"memory": {"capacity": "8 GB"}}}
    found = search({**SMALL, "model": "llama-3-70b", "hardware": room}, chips=64, cp=1)
    told = found.smallest.candidate.room_bytes
    firsts = sorted(found.evaluation.families, key=lambda family: family.room_bytes.max(), reverse=True)
    for family in firsts:
        family.hold()
    assert found.fitting == 0
    assert told == max(family.room_bytes.max() for family in firsts)


def test_where_the_least_peak_is_too_close_to_say_no_layout_is_said_not_to_fit():
    few = {**SMALL, "model": {"extends": "llama-3-70b", "layers": 18}}
    asked = {"chips": 8, "vary": ["microbatches=4", "zero=1"], "pp": 1, "tp": 8, "recompute": "none"}

    def on(capacity):
        room = {"extends": SMALL["hardware"], "chip": {"memory": {"capacity": capacity}}}
        return search({**few, "hardware": room}, by="memory", **asked)

    least = on("2 TB").best.plan.memory.peak_bytes
    found = on(f"{float(least) * 0.97:.0f} B")
    assert (found.fitting, found.smallest.plan.memory.fit) == (0, "too close to say")
    assert found.lines[0].text.startswith("no layout surely fits: least peak ")


def test_where_nothing_is_legal_the_answer_does_not_speak_of_fitting():
    found = search(SMALL, vary=["microbatches=64", "zero=1", "pp=1"], dp=4)
    assert (found.ok, found.legal) == (False, 0)
    assert found.verdict.startswith("best  no layout is legal: ")


def test_where_the_best_is_too_close_to_say_the_best_that_surely_fits_is_named():
    scenario = {**SMALL, "model": {"extends": "llama-3-70b", "layers": 18}, "chips": 8}
    vary = ["microbatches=4,8,16", "pp=1,2", "schedule=1f1b", "tp=4,8", "zero=1"]
    found = search(scenario, vary=vary, recompute="none", top=50)
    fits = [row.plan.memory.fits for row in found.rows]
    assert fits[0] is None
    assert len(fits) == found.fitting
    assert (found.close, True in fits) == (fits.count(None), True)
    assert found.sure.best[0].plan is found.rows[fits.index(True)].plan
    assert f" fit ({found.close} of these too close to say); " in found.verdict
    assert [line.label for line in found.lines].count("surely") == 1
    shown = page(found, verbose=False)
    (table,) = shown.tables
    assert [row["fit"] for row in table.rows] == [{None: "close", True: "yes"}[one] for one in fits]
    assert "fit" in [column.key for column in table.columns]
    sure = search(scenario, vary=[*vary[:1], "pp=1", "tp=8", "zero=1"], recompute="full", top=1)
    assert (sure.best.fits, sure.sure) == (True, None)


def test_a_page_states_its_question():
    found = search(SMALL, vary=[*FEW, "practice=megatron,fsdp2"], top=1, overrides=["recompute.base=full"])
    facts = dict(page(found, verbose=False).facts)
    assert facts["work"] == "64 sequences of 4,096 tokens"
    assert facts["machine"] == "dgx-h100, 16 chips"
    assert facts["model"].endswith(" parameters")
    assert facts["practice"].startswith("fsdp2: recompute full, overlap")  # by name, however they were listed
    assert " or megatron: recompute full, " in facts["practice"]


def test_axes_that_are_varied_are_named_as_a_scenario_writes_them():
    asked = {"tpsim": "scenario/1", "model": "llama-3-8b", "hardware": "dgx-h100", "mesh": {"replica": 2, "shard": 4}}
    asked |= {"layout": {"dp": ["replica", "shard"], "zero": 3}, "workload": {"seq": 4096, "global_batch": 8}}
    found = search(asked, vary=["layout.zero_over=[replica, shard]", "recompute=full", "zero=3"], top=1)
    assert found.verdict.startswith("best    layout.zero_over [replica, shard], tp 1, dp 8, ")
    assert page(found, verbose=False).tables[0].rows[0]["layout.zero_over"] == "[replica, shard]"


def test_stages_that_layers_do_not_divide_over_are_searched_unless_layers_are_to_be_even():
    asked = {"model": "llama-3-8b", "hw": "dgx-h100", "chips": 24, "batch": 48, "seq": 2048, "recompute": "full"}
    vary = ["zero=1", "tp=8", "schedule=1f1b", "microbatches=8", "cp=1", "pp=3"]
    found = search(**asked, vary=vary)
    assert (found.best.pp, found.best.layers, found.best.plan.question.split) == (3, "nearly-even", (11, 11, 10))
    assert "pp 3 (1f1b, layers nearly-even)" in found.verdict
    assert [column.key for column in page(found, verbose=False).tables[0].columns if column.header == "layers"]
    even = search(**asked, vary=[*vary, "layers=even"])
    assert (even.rows, {one.reason for one in even.refused}) == ([], {"layers-not-divisible"})


def test_a_vocabulary_that_does_not_divide_is_said_with_what_pads_it():
    asked = {"hw": "dgx-h100", "chips": 8, "batch": 32, "seq": 2048, "overrides": ["model.vocab=128259"]}
    found = search(None, model="llama-3-8b", vary=["zero=1", "tp", "pp=1"], recompute="full", **asked)
    assert found.padding == "model.vocab_padded=128264"
    shown = page(found, verbose=False)
    assert ("padding", "--set model.vocab_padded=128264 makes the vocabulary divisible") in shown.facts
    again = search(
        None,
        model="llama-3-8b",
        vary=["zero=1", "tp", "pp=1"],
        recompute="full",
        plans=1,
        **asked | {"overrides": [*asked["overrides"], found.padding]},
    )
    assert again.padding == ""
    assert not any(refused.reason == "vocabulary-not-divisible" for refused in again.refused)


def test_where_no_layout_fits_for_its_vocabulary_the_next_command_pads_it():
    asked = {"hw": "dgx-h100", "chips": 4, "batch": 32, "seq": 65536, "overrides": ["model.vocab=128259"]}
    found = search(None, model="llama-3-8b", vary=["zero=1", "tp", "pp=1"], **asked)
    assert not found.ok
    assert page(found, verbose=False).next_command.endswith("--set model.vocab_padded=128260")


def test_a_search_of_a_changed_model_is_called_as_the_model():
    found = search(
        None,
        model="llama-3-8b",
        hw="dgx-h100",
        batch=32,
        seq=2048,
        chips=8,
        dp=8,
        plans=1,
        overrides=["model.vocab_padded=128512"],
    )
    assert page(found, verbose=False).title == "layouts of llama-3-8b"


@pytest.mark.parametrize(
    ("best", "message", "remedy"),
    [
        ({"schedule": "gpip"}, '"gpip" is not a schedule', 'did you mean "gpipe"?'),
        ({"recompute": "selectiv"}, 'best.recompute cannot be "selectiv"', 'did you mean "selective"?'),
    ],
)
def test_what_the_best_can_never_be_is_refused_and_not_violated_for_ever(best, message, remedy):
    for answer, mesh in ((search, {}), (tpsim.plan, {"mesh": {"data": 8, "tensor": 2}})):
        with pytest.raises(InputError) as error:
            answer({**SMALL, **mesh, "require": {"best": best}})
        assert (error.value.problems[0].message, error.value.problems[0].remedy) == (message, remedy)
