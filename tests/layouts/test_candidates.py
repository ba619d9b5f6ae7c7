"""What a search knows of layouts before it plans them: memory as in a plan, seconds that none takes less than."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import gcd
from pathlib import Path

import numpy as np
import pytest

from tpsim.answers.plan import priced
from tpsim.answers.ranking import weigh
from tpsim.layouts.candidates import evaluate
from tpsim.layouts.legal import Legal
from tpsim.layouts.space import spaces
from tpsim.layouts.walk import _most, _walked, alive, begins, settled, together
from tpsim.program.schedules import SCHEDULES
from tpsim.quantity.errors import InputError
from tpsim.quantity.size import divisors
from tpsim.question.memo import Memo
from tpsim.question.scenario import resolve

GEMMA_2 = Path(__file__).parents[1] / "data" / "hf" / "gemma-2-2b.json"
TINY = {"model": {"extends": "gpt-tiny", "layers": 4}, "hardware": "dgx-h100"}
WORK = {"global_batch": 16, "seq": 16, "dtype": "bf16", "grad_dtype": "f32"}
KINDS = ["zero=0,1,3", "recompute=none,full"]
H100 = {"hardware": "dgx-h100"}
LATENT = {
    "extends": "deepseek-v3",
    "hidden": 1024,
    "layers": [{"repeat": 2, "of": ["latent", "dense"]}, {"repeat": 6, "of": ["latent", "sparse"]}],
}

TARDY = {"hardware": {"extends": "dgx-h100", "chip": {"interruption": "1 ms"}}, "practice": "fsdp2"}

LATE = "ranks that wait for the last of them, once per step or in every microbatch"

SPACES = {
    "tensor and data": (TINY, WORK, 4, ["pp=1", "microbatches"], 11),
    "stages that block": (TINY, WORK, 4, ["dp=1,2", "schedule=gpipe,1f1b", "microbatches=2,8", *KINDS], 7),
    "messages that take long": (
        {**TINY, "hardware": {"extends": "dgx-h100", "levels": {"nvlink": {"link": {"hop_latency": "1 ms"}}}}},
        WORK,
        4,
        ["tp=1", "dp=1,2", "microbatches=1,2,4,8", "zero=0", "recompute=none"],
        7,
    ),
    "chunks": (TINY, WORK, 4, ["tp=1", "schedule=interleaved", "microbatches", *KINDS], 3),
    "backward in two": (TINY, WORK, 4, ["tp=1,2", "schedule=zb-h1,zb-h2", "microbatches=1,8", *KINDS], 7),
    "gathers ahead, without overlap of gradients": (
        {**TINY, "practice": {"base": "deepspeed"}},
        WORK,
        4,
        ["tp=1,2", "cp=1", "zero=3", "microbatches=1,4", "schedule=1f1b"],
        7,
    ),
    "gathers that only forward hides": (
        {**TINY, "practice": {"base": "fsdp2", "overlap": {"weights": "forward"}}},
        WORK,
        4,
        ["tp=1,2", "cp=1", "zero=3", "microbatches=1,4", "schedule=1f1b"],
        7,
    ),
    LATE: (
        {**TINY, **TARDY},
        WORK,
        8,
        ["tp=1", "schedule=1f1b,interleaved,zb-h2", "microbatches=2,4", "zero=0,1,3", "recompute=none"],
        7,
    ),
    "the norm of all gradients": (
        {**TINY, "practice": {"clip": "norm"}},
        WORK,
        4,
        ["tp=1", "schedule=1f1b,interleaved,zb-h2", "microbatches=2,4", *KINDS],
        21,
    ),
    "a norm that comes behind the update": (
        {
            "model": {"extends": "gpt3-175b", "layers": 4, "tie_embeddings": False},
            "practice": {"clip": "deferred"},
            **H100,
        },
        WORK,
        4,
        ["pp=4", "schedule=zb-h2", "microbatches=4,8,16", "zero=0,1", "recompute=none,full"],
        7,
    ),
    "products cut to run beside gathers": (
        {
            "model": {"extends": "llama-3-8b", "layers": 4},
            "hardware": "dgx-h100",
            "practice": {"overlap": {"tensor": "split"}},
        },
        {**WORK, "seq": 2048},
        8,
        ["tp=1,2,8", "microbatches=1,2", "zero=0,3", "recompute=none,full", "schedule=1f1b,zb-h1"],
        35,
    ),
    "kv heads beside tensor": (
        {"model": {"extends": "llama-3-8b", "layers": 4}, "hardware": "dgx-a100"},
        {**WORK, "seq": 2048},
        32,
        ["tp=4,16,32", "microbatches=1,2", "zero=0,2", "recompute=none,selective", "schedule=1f1b,interleaved"],
        49,
    ),
    "layers of two kinds, with windows and without": (
        {"model": str(GEMMA_2), "hardware": "dgx-h100"},
        {**WORK, "seq": 2048},
        4,
        ["pp=1,2", "schedule=1f1b", "microbatches=4", "zero=0,1", "recompute=none"],
        21,
    ),
    "experts on a part of the data shards, beside kernels that run again": (
        {"model": {"extends": "mixtral-8x7b", "layers": [{"repeat": 4, "of": ["attention", "experts"]}]}, **H100},
        {**WORK, "seq": 2048},
        16,
        ["tp=1,2", "pp=1,2", "microbatches=2", "zero=0,3", "schedule=1f1b", "recompute=none,full"],
        35,
    ),
    "copies of rows go to nodes that axes of their own tell apart": (
        {
            "model": {"extends": "mixtral-8x7b", "layers": [{"repeat": 2, "of": ["attention", "experts"]}]},
            **H100,
            "practice": {"rows": {"dispatch": "node"}},
        },
        {**WORK, "seq": 2048},
        32,
        ["tp=4,8", "pp=1", "microbatches=1,2", "zero=0", "recompute=none,full"],
        21,
    ),
    "experts with a capacity, copies of a token stated, in numbers that share a scale": (
        {
            "model": {"extends": "mixtral-8x7b", "layers": [{"repeat": 4, "of": ["attention", "experts"]}]},
            **H100,
            "practice": {"rows": {"dispatch": "rank", "dtype": "fp8_128"}},
            "assume": {"routing": {"drop": 1.25, "copies": {"rank": 1.5}}},
        },
        {**WORK, "seq": 2048},
        16,
        ["tp=1,2", "pp=1,2", "microbatches=1,2", "ep=4,8", "zero=0,3", "schedule=1f1b", "recompute=none,full"],
        21,
    ),
    "dense layers first, one more behind the head": (
        {"model": LATENT, **H100},
        {**WORK, "seq": 1024},
        16,
        ["tp=1", "pp=1,2", "ep=4", "microbatches=2", "zero=1,3", "schedule=1f1b,interleaved", "recompute=none,full"],
        7,
    ),
    "layers of two kinds, split as stated": (
        {"model": LATENT, **H100, "pipeline": {"layers": [3, 5]}},
        {**WORK, "seq": 1024},
        16,
        ["tp=1", "pp=2", "ep=2,4,8", "microbatches=2", "zero=1", "schedule=1f1b,zb-h1", "recompute=none,full"],
        7,
    ),
    "weights of experts that are cast where they lie": (
        {"model": {"extends": "mixtral-8x7b", "layers": [{"repeat": 4, "of": ["attention", "experts"]}]}, **H100}
        | {"practice": "xla"},
        {**WORK, "param_dtype": "f32"},
        4,
        ["tp=1", "cp=1", "pp=1", "ep=1,2,4", "microbatches=2", "zero=1,3", "recompute=none,full"],
        1,
    ),
    "experts or sequences outside nodes": (
        {"model": {"extends": "mixtral-8x7b", "layers": [{"repeat": 4, "of": ["attention", "experts"]}]}, **H100},
        {**WORK, "global_batch": 32, "seq": 4096},
        32,
        ["tp=2", "cp=2", "pp=1,2", "ep=4", "microbatches=4", "zero=1,3", "schedule=1f1b", "recompute=none"],
        1,
    ),
    "layers that do not divide over stages": (
        {"model": {"extends": "llama-3-8b", "layers": 7}, **H100},
        {**WORK, "seq": 2048},
        24,
        ["tp=1,2", "cp=1", "pp=2,3,4", "microbatches=4,12", "zero=0,3", "recompute=none,full"],
        19,
    ),
    "layers of two kinds that do not divide over stages": (
        {"model": {**LATENT, "layers": [{**LATENT["layers"][0], "repeat": 1}, LATENT["layers"][1]]}, **H100},
        {**WORK, "global_batch": 48, "seq": 1024},
        24,
        ["tp=1", "pp=2,3", "ep=4", "microbatches=2,6", "zero=1,3", "recompute=none,full"],
        7,
    ),
    "some layers run again": (
        {"model": {"extends": "llama-3-8b", "layers": 4}, **H100, "recompute": {"base": "full", "layers": 1}},
        {**WORK, "seq": 2048},
        8,
        ["tp=1,2", "pp=1,2", "microbatches=2", "zero=1", "schedule=1f1b,interleaved,zb-h1"],
        7,
    ),
    "sequences that devices share": (
        {"model": {"extends": "llama-3-8b", "layers": 4}, **H100, "practice": {"context": "ring", "order": "zigzag"}},
        {**WORK, "seq": 2048},
        8,
        ["cp=1,2,4", "pp=1,2", "tp=1,2", "microbatches=2", "zero=0,3", "schedule=1f1b", "recompute=none"],
        21,
    ),
    "latents of a sequence that devices share, handed on as heads": (
        {"model": LATENT, **H100},
        {**WORK, "seq": 1024},
        16,
        [
            "tp=1,2",
            "pp=1,2",
            "cp=1,2",
            "ep=4",
            "microbatches=2",
            "zero=1",
            "recompute=none",
            "layout.context=ring,heads",
        ],
        2,
    ),
    "a split by seconds, where one by layers were even": (
        {"model": {"extends": "llama-3-8b", "layers": 6}, "hardware": "dgx-h100"},
        {**WORK, "seq": 2048},
        8,
        ["pipeline.layers=balanced", "pp=2", "schedule=1f1b", "microbatches=4", "zero=0,1", "recompute=none"],
        2,
    ),
    "a torus": (
        {"model": {"extends": "llama-3-8b", "layers": 4}, "hardware": "tpu-v5p"},
        {**WORK, "seq": 2048},
        64,
        ["tp=1,4", "pp=1", "zero=0,3", "microbatches=1"],
        7,
    ),
}
"""Scenario, workload, chips, what is varied, and of how many layouts one is planned."""


@pytest.fixture(scope="module", params=SPACES.values(), ids=SPACES.keys())
def bounded(request):
    """Layouts with their plans, and what whole stacks say of each before its actions do."""
    found = weighed(*request.param)
    rough = [one.step_s for one, _ in found]
    for one, _ in found:
        one.family.bound()
    return found, rough


@pytest.fixture(scope="module")
def planned(bounded):
    """Layouts with their plans."""
    return bounded[0]


def weighed(scenario, work, chips, vary, every):
    memo = Memo()
    document = {"tpsim": "scenario/1", **scenario, "workload": work, "chips": chips}
    found = evaluate(spaces(document, flags={}, overrides=(), vary=vary, memo=memo), memo, weigh)
    assert len(found.candidates) > 5
    return [(one, priced(one.space.question(one.layout, memo), memo)) for one in found.candidates[::every]]


def test_whole_stacks_take_no_longer_than_actions(bounded):
    each = [(rough, one.step_s) for (one, _), rough in zip(*bounded, strict=True) if one.room_bytes >= 0]
    assert all(0 < rough <= nearer * (1 + 1e-12) for rough, nearer in each)


def test_no_step_takes_less_than_its_bound(planned):
    late = [
        (one.layout, one.step_s, plan.step.time_s)
        for one, plan in planned
        if one.step_s > plan.step.time_s * (1 + 1e-9)
    ]
    assert late == []


def test_the_bound_is_near_enough_to_rank_by(planned):
    near = [one.step_s / plan.step.time_s for one, plan in planned]
    assert sum(near) / len(near) > 0.6


def test_memory_is_that_of_the_plan(planned):
    for one, plan in planned:
        assert one.peak_bytes == pytest.approx(float(plan.memory.peak_bytes), rel=1e-9), one.layout
        assert one.room_bytes == pytest.approx(plan.memory.room_bytes, rel=1e-9, abs=1), one.layout


@pytest.mark.parametrize(
    ("practice", "zero"),
    [
        *(({"keeps": name}, "0,1") for name in ("megatron-te", "nanotron")),
        ({"base": "fsdp2"}, "0,2,3"),
        ({"base": "deepspeed", "overlap": {"gradients": "beside"}, "bucket": {"elements": 100_000}}, "1,2,3"),
    ],
)
def test_what_a_stack_keeps_and_the_buffers_of_its_buckets_are_in_it(practice, zero):
    vary = ["schedule=1f1b", "microbatches=4", f"zero={zero}", "recompute=none,full"]
    test_memory_is_that_of_the_plan(weighed({**TINY, "practice": practice}, WORK, 4, vary, 20))


@pytest.mark.parametrize("clip", ["none", "norm", "deferred"])
def test_copies_of_kv_heads_in_one_layout_cost_another_nothing(clip):
    """Where gradients have a norm, squares of what is copied are a sum of their own, of one device or of many."""
    model = {"extends": "llama-3-8b", "layers": 4, "kv_heads": 2}
    scenario = {"tpsim": "scenario/1", "model": model, **H100, "chips": 8, "practice": {"base": "xla", "clip": clip}}
    told = []
    for tp in ("2", "2,4"):
        memo, vary = Memo(), [f"tp={tp}", "pp=2", "cp=1", "zero=0,1", "microbatches=2", "schedule=1f1b", "sp=true"]
        several = spaces({**scenario, "workload": WORK}, flags={}, overrides=(), vary=vary, memo=memo)
        found = evaluate(several, memo, weigh).candidates
        for one in found:
            one.family.bound()
        told.append({one.layout: one.step_s for one in found if one.layout.tp == 2})
    alone, beside = told
    assert len(alone) > 3
    assert beside == pytest.approx(alone, rel=1e-9)


def test_what_zero_cannot_split_refuses_no_layout_without_it():
    """All stages are cut as the last one is: over 24 shards of 4,096 the first needs none of them to divide."""
    practice = {"base": "megatron", "padding": "none"}
    asked = {"tpsim": "scenario/1", "model": "llama-3-8b", **H100, "chips": 24, "practice": practice}
    memo, vary = Memo(), ["tp=1", "pp=1", "cp=1", "zero=0,1,3", "microbatches=1", "recompute=none"]
    work = {**WORK, "global_batch": 24}
    found = evaluate(spaces({**asked, "workload": work}, flags={}, overrides=(), vary=vary, memo=memo), memo, weigh)
    assert [one.layout.zero for one in found.candidates] == [0]
    assert dict(found.refused) == {"hidden-not-divisible": 2}


def test_layouts_are_refused_as_plan_refuses_them_and_no_others():
    memo, chips, batch = Memo(), 12, 12
    document = {"tpsim": "scenario/1", **TINY, "workload": {**WORK, "global_batch": batch}, "chips": chips}
    (space,) = spaces(document, flags={}, overrides=(), vary=["microbatches=1,3", "recompute=none"], memo=memo)
    found = evaluate([space], memo, weigh)
    reasons: Counter[str] = Counter()
    legal = covered = 0
    for tp, cp, pp in product(divisors(chips), repeat=3):
        if chips % (tp * cp * pp):
            continue
        dp = chips // (tp * cp * pp)
        orders = [(name, 1) for name, maker in SCHEDULES.items() if not maker.several] + [
            ("interleaved", v)
            for v in {*divisors(-(-4 // pp)), *(divisors(6 // pp) if not 6 % pp else ())}  # the ends count as layers
            if v > 1
        ]
        for zero, sp, m, (name, v) in product(
            range(4) if dp * cp > 1 else (0,),
            (False, True) if tp > 1 else (False,),
            (1, 3),
            orders if pp > 1 else [("", 1)],
        ):
            if batch % (dp * m) == 0 and gcd(cp, batch // (dp * m)) > 1:
                covered += 1
                continue
            sizes = {"pipe": pp, "data": dp, "context": cp, "tensor": tp}
            roles = {"pp": "pipe", "dp": "data", "cp": "context", "tp": "tensor"}
            asked = {
                **document,
                "mesh": sizes,
                "layout": {**roles, "zero": zero, "sequence_parallel": sp},
                "workload": {**WORK, "global_batch": batch, "microbatches": m},
                **({"pipeline": {"schedule": name, "chunks": v, "layers": "nearly-even"}} if pp > 1 else {}),
            }
            try:
                resolve(asked, memo=memo)
                legal += 1
            except InputError as error:
                reasons[error.problems[0].slug] += 1
    assert reasons == found.refused
    assert (len(found.candidates), found.considered) == (legal, legal + reasons.total())
    assert (found.covered, covered > 0, "sequence-not-divisible" in reasons) == (covered, True, True)
    assert {"batch-not-divisible", "heads-not-divisible", "too-few-layers", "microbatches-not-divisible"} <= set(
        reasons
    )


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("p", [2, 3, 4])
def test_orders_hold_no_more_once_they_have_settled(schedule, p):
    for v in (2, 3) if SCHEDULES[schedule].several else (1,):
        m = settled(schedule, p, v, 100 * p)
        of = (0, *(1,) * (p * v - 2), 2)
        few, many = alive(schedule, p, m, of), _walked(schedule, p, m + 2 * p, of)[0]
        assert few.keys() == many.keys()
        for ranked, each in few.items():
            assert [_with(one, 2 * p) for one in each] == [_with(one, 0) for one in many[ranked]]


def _with(one, others):
    """What is alive beside an action with so many microbatches more."""
    counts = one.counts if one.more is None else one.counts + one.more * others
    return one.now, {*map(tuple, counts.tolist())}


def test_what_is_alive_is_listed_once_per_action():
    found = alive("1f1b", 4, 8, (0, 1, 1, 2))
    assert {ranked: len(each) for ranked, each in found.items()} == {(0,): 2, (1,): 2, (2,): 2}
    (forward,) = (one for one in found[0,] if one.now == (0, "F"))
    assert forward.counts.tolist() == [[3, 0, 0, 0, 0, 0]]


def test_of_what_is_alive_only_that_is_listed_which_nothing_surpasses():
    rows = np.array([[3, 1], [2, 2], [1, 2], [0, 5], [3, 0]])
    assert _most(rows).tolist() == [[3, 1], [2, 2], [0, 5]]
    beside = np.array([[0, 3, 1], [1, 2, 2], [1, 1, 2], [0, 0, 5], [1, 2, 1]])
    assert _most(beside).tolist() == [[0, 3, 1], [1, 2, 2], [0, 0, 5]]
    assert _most(np.array([[4, 0], [7, 0]])).tolist() == [[7, 0]]


def test_copies_of_weights_that_nobody_gathers_do_not_stand():
    """Experts over all data shards have no copy of their weights for backward; on fewer, stages share one."""
    model = {"extends": "mixtral-8x7b", "layers": [{"repeat": 4, "of": ["attention", "experts"]}]}
    scenario = {"model": model, "hardware": "dgx-h100", "practice": {"base": "ideal", "ahead": {"layers": 3}}}
    vary = ["tp=1", "pp=2,4", "cp=1", "ep", "zero=3", "recompute=none", "microbatches=4", "schedule=1f1b,zb-h2"]
    work = {"global_batch": 64, "seq": 1024, "grad_dtype": "bf16"}
    test_memory_is_that_of_the_plan(weighed(scenario, work, 16, vary, 1))


def test_weights_of_both_ends_that_are_freed_at_once_are_held_together_without_stages():
    """FSDP2's root has the embedding and the head: at a peak in the loss one chip has both, a stage one."""
    model = {"extends": "llama-3-8b", "hidden": 1024, "vocab": 32000, "layers": 6, "heads": 8, "kv_heads": 8}
    practice = {"base": "fsdp2", "overlap": {"weights": "zero3"}, "gradients": "per_microbatch"}
    scenario = {"model": model, "hardware": "dgx-h100", "practice": practice}
    vary = ["tp=1", "pp=1,2", "cp=1", "zero=3", "recompute=none", "microbatches=1,2", "schedule=1f1b,gpipe"]
    work = {"global_batch": 32, "seq": 4096, "grad_dtype": "bf16"}
    test_memory_is_that_of_the_plan(weighed(scenario, work, 8, vary, 1))


def test_tokens_that_choose_experts_by_chance_fill_as_many_rows_as_in_the_plan():
    memo, asked = Memo(), {"flags": {"chips": 16, "tp": 1, "pp": 1, "cp": 1}, "vary": ["microbatches=8,16", "ep"]}
    overrides = ["assume.routing.load=uniform", "layout.zero=1", "recompute=full"]
    candidates = evaluate(spaces("mixtral-8x7b-h100", overrides=overrides, memo=memo, **asked), memo, weigh)
    for family in candidates.families:
        family.hold()  # of what holds too much from step to step already, too
    peaks = {one.layout.ep: one.peak_bytes for one in candidates.candidates}
    assert len(set(peaks.values())) == len(peaks) > 2
    for one in candidates.candidates:
        plan = priced(one.space.question(one.layout, memo), memo)
        assert one.peak_bytes == pytest.approx(float(plan.memory.peak_bytes), rel=1e-9)


def test_experts_that_lie_otherwise_on_the_same_mesh_fill_rows_of_their_own():
    """Over tp, where a tensor rank has rows of its own tokens, or beside it: seconds of one were taken for both."""
    model = {"extends": "mixtral-8x7b", "layers": [{"repeat": 4, "of": ["attention", "experts"]}]}
    practice = {"base": "megatron", "overlap": {"tensor": "none", "gradients": "none"}}
    scenario = {"model": model, "hardware": "dgx-h100", "practice": practice}
    scenario |= {"assume": {"routing": {"load": "uniform"}}}
    vary = ["pp=1,2", "cp=1", "ep", "zero=0", "recompute=none", "microbatches=1", "schedule=1f1b"]
    plans = weighed(scenario, {"global_batch": 16, "seq": 1024}, 8, [*vary, "tp=2,4", "sequence_parallel"], 1)
    for one, _ in plans:
        one.family.bound()
    test_no_step_takes_less_than_its_bound(plans)


def test_a_wire_that_there_is_not_is_refused_in_every_group_of_layouts():
    """The sum that the ends of a pipeline share has no way between them where only neighbours are joined."""
    document = {
        "tpsim": "scenario/1",
        "model": {"extends": "gemma-7b", "layers": 4},
        "hardware": "tpu-v5e",
        "workload": {**WORK, "seq": 2048},
        "chips": 16,
    }
    memo, vary = Memo(), ["tp=1", "pp=4", "schedule=1f1b", "microbatches=4"]
    several = spaces(document, flags={}, overrides=(), vary=vary, memo=memo)
    found = evaluate(several, memo, weigh)
    assert (found.refused, found.candidates) == ({"no-closed-form": found.considered}, [])
    assert found.considered > 5


def test_a_collective_that_nobody_takes_part_in_holds_nothing_up_in_a_bound():
    """Experts that recompute on one tensor rank: sums over it waited in line, which no plan has."""
    mixtral = SPACES["experts on a part of the data shards, beside kernels that run again"][0]
    document = {"tpsim": "scenario/1", **mixtral, "workload": {**WORK, "seq": 2048}, "chips": 16}
    memo, vary = Memo(), ["tp=1", "pp=2", "ep=2", "microbatches=2", "zero=3", "schedule=1f1b", "recompute=full"]
    found = evaluate(spaces(document, flags={}, overrides=(), vary=vary, memo=memo), memo, weigh)
    (one,) = found.candidates
    one.family.bound()
    step = priced(one.space.question(one.layout, memo), memo).step.time_s
    assert 0.98 * step < one.step_s <= step * (1 + 1e-9)


def test_numbers_of_chips_are_weighed_together_as_each_alone():
    document, vary = (
        {"tpsim": "scenario/1", **TINY, "workload": WORK},
        ["schedule=1f1b", "tp=1,2", "zero=1", "microbatches=2", "recompute=none"],
    )
    memo = Memo()
    both = spaces(document, flags={}, overrides=(), vary=[*vary, "chips=4,8"], memo=memo)
    found = evaluate(both, memo, weigh)
    alone = [evaluate([one], memo, weigh) for one in both]
    assert len({id(one.group) for one in found.families}) < sum(len({id(f.group) for f in w.families}) for w in alone)
    assert _told(found.candidates) == _told([one for each in alone for one in each.candidates])
    assert {one.space.chips for one in found.candidates} == {4, 8}


def _told(found):
    for one in found:
        one.family.bound()
    return sorted((one.space.chips, one.layout, one.peak_bytes, one.step_s) for one in found)


@pytest.mark.parametrize(
    ("scenario", "flags", "vary", "fewer"),
    [
        ("llama3-8b-v5e", {"chips": 16, "batch": 8}, ["microbatches=1,8", "zero=1,3", "schedule=1f1b,zb-h1"], 2),
        (
            "llama3-8b-v5e",
            {"chips": 16, "batch": 8, "placement": ["tensor=ici.0:2,ici.1"]},
            ["microbatches=1,8", "zero=3", "schedule=1f1b"],
            2,
        ),
        ("llama3-405b-h100-cp", {"chips": 64, "batch": 8}, ["microbatches=1,8", "zero=0,3", "schedule=1f1b"], 1.5),
        (
            "gpt-neox-20b-a100",
            {"chips": 16, "batch": 2},
            ["microbatches=1,2", "recompute=selective", "schedule=1f1b", "practice.context=gather"],
            1.5,
        ),
        (
            "mixtral-8x7b-h100",
            {"chips": 32, "batch": 8},
            ["microbatches=2,4", "zero=0,1,2,3", "recompute=selective,full", "schedule=1f1b"],
            1.2,
        ),
        (
            {
                "tpsim": "scenario/1",
                "model": {"extends": "deepseek-v3", "layers": [{"repeat": 4, "of": ["latent", "dense"]}], "mtp": None},
                "hardware": "dgx-h100",
                "practice": "fsdp2",
                "workload": {"seq": 512, "global_batch": 4},
            },
            {"chips": 16},
            ["cp=1,2", "tp=2", "pp=2", "zero=1", "microbatches=1,2", "schedule=1f1b"],
            2,
        ),
    ],
)
def test_layouts_of_one_program_are_weighed_as_each_by_the_program_of_its_plan(
    monkeypatch, scenario, flags, vary, fewer
):
    """An axis of one device has nobody to send to, and what it would bring is there already."""

    def weighed_alone():
        memo = Memo()
        space = spaces(scenario, flags=flags, overrides=["require={}"], vary=vary, memo=memo)
        found = evaluate(space, memo, weigh)
        told = {one[:3]: one[3] for one in _told(found.candidates)}
        return told, found.refused, len({id(one.group) for one in found.families})

    together_, refused, groups = weighed_alone()
    monkeypatch.setattr(Legal, "_also", lambda *_: [])
    apart, refused_apart, more = weighed_alone()
    assert (together_.keys(), refused) == (apart.keys(), refused_apart)
    assert more >= fewer * groups
    assert [*together_.values()] == pytest.approx([apart[one] for one in together_], rel=1e-12)


def test_what_is_held_of_a_layout_counts_in_what_is_refused_though_one_chip_needs_none_of_it():
    asked = {"flags": {"chips": 6, "tp": 1, "cp": 1}, "overrides": ["layout.zero=3", "practice.padding=none"]}
    memo = Memo()
    found = evaluate(spaces("mixtral-8x7b-h100", vary=["pp=1,2", "batch=24"], memo=memo, **asked), memo, weigh)
    assert found.refused["hidden-not-divisible"] > 3
    assert {one.layout.zero for one in found.candidates} <= {3}


def test_what_stages_sum_together_is_no_part_of_a_bound_without_stages():
    scenario, work, chips, vary, _ = SPACES["the norm of all gradients"]
    document, memo = {"tpsim": "scenario/1", **scenario, "workload": work, "chips": chips}, Memo()

    def told(*only):
        space = spaces(document, flags={}, overrides=(), vary=[*vary, *only], memo=memo)
        return {one[:3]: one[3] for one in _told(evaluate(space, memo, weigh).candidates)}

    alone, all_ = told("pp=1"), told()
    assert len(alone) > 5
    assert all(all_[one] <= step_s * (1 + 1e-12) for one, step_s in alone.items())


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1"])
def test_what_is_alive_with_several_numbers_of_microbatches_is_that_of_each(schedule):
    many = (1,) if SCHEDULES[schedule].grows else (1, 2, 3, 8)
    found = together(schedule, 4, many, (0, 1, 1, 2))
    states = [(found.ranks[rank], found.nows[now]) for rank, now in found.at.T]
    for order, m in enumerate(many):
        each = {(ranked, one.now): one for ranked, all_ in alive(schedule, 4, m, (0, 1, 1, 2)).items() for one in all_}
        assert {key for key, never in zip(states, found.never[:, order], strict=True) if not never} == each.keys()
        for key, one in each.items():
            rows = found.counts[[state == key for state in states], order]
            assert {*map(tuple, rows)} - {(0,) * rows.shape[1]} == {*map(tuple, one.counts)} - {(0,) * rows.shape[1]}


def test_any_number_of_stages_runs_the_same_tasks():
    memo = Memo()
    document = {"tpsim": "scenario/1", **TINY, "workload": {**WORK, "microbatches": 4}}
    roles = {"layout": {"pp": "pipe", "dp": "data"}}
    asked = [resolve({**document, **roles, "mesh": {"pipe": pp, "data": 2}}, memo=memo) for pp in (2, 4)]
    for one in asked:
        priced(one, memo)
    assert len({id(memo.lowered(one)) for one in asked}) == 1
    assert len(memo.lowered(asked[0]).known) == 1


def space_of(scenario, chips, vary, **work):
    document = {"tpsim": "scenario/1", **scenario, "workload": {**WORK, "seq": 2048, **work}, "chips": chips}
    memo = Memo()
    (space,) = spaces(document, flags={}, overrides=(), vary=vary, memo=memo)
    return space, memo


def test_a_sequence_that_is_split_though_data_shards_can_take_others_is_covered_and_gains_nothing():
    """Asked for by itself, it is looked at: as many more data shards hold no more, and take no longer."""
    scenario = {"model": {"extends": "llama-3-8b", "layers": 4}, **H100}
    vary = ["tp=1,2", "pp=1,2", "microbatches=2,4", "zero=0,3", "recompute=none,selective", "schedule=1f1b"]
    space, memo = space_of(scenario, 8, [*vary, "cp=2"])
    found = evaluate([space], memo, weigh)
    assert found.covered == 0
    batch = WORK["global_batch"]
    several = [one.layout for one in found.candidates if batch > one.layout.dp * one.layout.microbatches]
    for split in several[::7]:
        asked = (split, split._replace(dp=2 * split.dp, cp=1))
        slow, quick = (priced(space.question(one, memo), memo) for one in asked)
        assert quick.step.time_s <= slow.step.time_s
        assert quick.memory.peak_bytes <= slow.memory.peak_bytes
    whole, memo = space_of(scenario, 8, vary)
    every = evaluate([whole], memo, weigh)
    looked = {one.layout for one in every.candidates}
    assert len(several) > 40
    assert not looked & {*several}
    assert looked > {one.layout for one in found.candidates} - {*several}
    assert every.covered >= len(several)


def test_where_a_model_cannot_share_sequences_so_those_layouts_are_refused_and_the_others_looked_at():
    vary = ["pp=1", "tp=1", "microbatches=1", "zero=0", "recompute=none"]
    ring = {"model": str(GEMMA_2), **H100, "practice": {"context": "ring"}}
    space, memo = space_of(ring, 2, vary, global_batch=2)
    found = evaluate([space], memo, weigh)
    assert (found.refused, [one.layout.cp for one in found.candidates], found.covered) == ({}, [1], 1)
    space, memo = space_of(ring, 4, vary, global_batch=2)
    found = evaluate([space], memo, weigh)
    assert (found.refused, found.legal) == ({"not-streamed": 1, "batch-not-divisible": 1}, 0)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("p", [1, 2, 4])
def test_where_ranks_begin_what_they_do_last_is_told_by_orders_that_have_settled(schedule, p):
    for v in (2, 3) if SCHEDULES[schedule].several else (1,):
        of, ranks = (0, *(1,) * (p * v - 2), 2)[: p * v], tuple(range(p))
        several = np.array([p, 2 * p, 8 * p])
        found, more, at = begins(schedule, p, several, of, ranks)
        for number, m in enumerate(several.tolist()):
            exact = [_walked(schedule, p, m, of)[1][of[rank::p]] for rank in ranks]
            acts, last = (np.stack([one[name] for one in exact], axis=1) for name in (0, 1))
            told = found.acts[..., at[number]] + [more[..., at[number]] * (m - 1), *(0 * more[..., 0],) * 2]
            assert (told == acts).all()
            assert (found.last[..., at[number]] == last).all()


SLOW = {"extends": "dgx-h100", "levels": {"nvlink": {"link": {"bandwidth": "100 MB/s"}}}}


@pytest.mark.parametrize("practice", ["megatron", {"base": "megatron", "clip": "none"}])
def test_reductions_of_gradients_and_new_weights_that_outlast_compute_are_in_a_bound(practice):
    scenario = {**TINY, "hardware": SLOW, "practice": practice}
    vary = [
        "tp=1",
        "dp=2",
        "pp=2",
        "schedule=1f1b,interleaved,zb-h1",
        "microbatches=2,4",
        "zero=0,1,2",
        "recompute=none",
    ]
    found = weighed(scenario, WORK, 4, vary, 4)
    for one, _ in found:
        one.family.bound()
    near = [one.step_s / plan.step.time_s for one, plan in found]
    assert (min(near) > 0.9, max(near) <= 1 + 1e-9) == (True, True)


@pytest.mark.parametrize(
    ("vary", "least"),
    [(["tp=1", "pp=1"], 0.9), (["tp=4", "pp=2", "schedule=interleaved", "chunks=2", "sp=true"], 0.85)],
)
def test_gradients_of_layers_without_stages_and_what_a_layer_begins_with_are_in_a_bound(vary, least):
    network = {"extends": "dgx-h100", "levels": {"nvlink": {"link": {"bandwidth": "20 GB/s"}}}}
    practice = {"overlap": {"tensor": "beside", "gradients": "none"}, "bucket": "layer"}
    scenario = {**TINY, "hardware": network, "practice": practice}
    found = weighed(scenario, WORK, 8, [*vary, "zero=1", "microbatches=1,2,4,8", "recompute=none,selective,full"], 1)
    for one, _ in found:
        one.family.bound()
    near = [one.step_s / plan.step.time_s for one, plan in found]
    assert (min(near) > least, max(near) <= 1 + 1e-9) == (True, True), near


def test_waits_for_the_last_rank_are_in_a_bound():
    found = weighed(*SPACES[LATE])
    for one, _ in found:
        one.family.bound()
    near = [one.step_s / plan.step.time_s for one, plan in found]
    assert (min(near) > 0.75, max(near) <= 1 + 1e-9) == (True, True), near


def test_calls_beside_compute_that_kernels_wait_for_are_in_a_bound():
    hardware = {"extends": "dgx-h100", "levels": {"nvlink": {"link": {"bandwidth": "20 GB/s"}}}}
    model = {"extends": "llama-3-8b", "layers": 4}
    scenario = {"model": model, "hardware": hardware, "practice": {"overlap": {"tensor": "beside"}}}
    vary = ["tp=8", "pp=1", "sp=false", "microbatches=1,2,4,8", "recompute=none,selective,full"]
    found = weighed(scenario, {**WORK, "seq": 2048}, 8, vary, 4)
    for one, _ in found:
        one.family.bound()
    near = [one.step_s / plan.step.time_s for one, plan in found]
    assert (min(near) > 0.9, max(near) <= 1 + 1e-9) == (True, True), near


@pytest.mark.parametrize(
    ("vary", "least"),
    [
        (["tp=4", "cp=4", "pp=2", "schedule=1f1b,zb-h1", "microbatches=32"], 0.93),
        (["tp=1", "cp=2", "pp=2", "schedule=interleaved", "chunks=4", "microbatches=2,4"], 0.95),
    ],
    ids=["full links", "each chunk waits for its first weights"],
)
def test_what_links_carry_in_all_and_the_weights_that_an_action_begins_with_are_in_a_bound(vary, least):
    scenario = {"model": {"extends": "llama-3-70b", "layers": 8}, "hardware": "tpu-v4", "practice": "xla"}
    work = {"global_batch": 64, "seq": 4096, "grad_dtype": "f32"}
    found = weighed(scenario, work, 64, [*vary, "zero=3", "recompute=none,selective,full", "sp=true,false"], 1)
    for one, _ in found:
        one.family.bound()
    near = [one.step_s / plan.step.time_s for one, plan in found]
    assert (min(near) > least, max(near) <= 1 + 1e-9) == (True, True), near
