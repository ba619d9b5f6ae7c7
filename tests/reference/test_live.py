"""Bytes that devices hold, counted as they run, against the fold of one traced layer over the orders of ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from tests.generators import formats, practices, schemes
from tests.models import GEMMA, GPT, LLAMA, NEOX, QWEN, deep, loops
from tpsim.algebra.mesh import Mesh
from tpsim.algebra.sharding import ShardingError
from tpsim.cost.memory import memory
from tpsim.cost.peak import Courses, peak
from tpsim.cost.sizes import Sizes
from tpsim.program import lifetimes as lifetimes_of
from tpsim.program.dtypes import Dtypes
from tpsim.program.frameworks import PRACTICES
from tpsim.program.layout import LAYERS, Layout, layout
from tpsim.program.lifetimes import lifetimes
from tpsim.program.lower import lower
from tpsim.program.op import Leaf, Program, is_cast
from tpsim.program.practice import Ahead, Practice
from tpsim.program.saved import Saved
from tpsim.program.schedules import SCHEDULES, pipeline_schedule
from tpsim.program.stages import linear
from tpsim.program.turnover import Turnover, turnover
from tpsim.question.memo import one_cut
from tpsim.reference import run as run_module
from tpsim.reference.execute import execute
from tpsim.reference.run import Run, leaves

MODELS = {model.name: model for model in (LLAMA, GPT, NEOX, QWEN, GEMMA)}
SEQ = 8
BF16, MIXED = Dtypes(), Dtypes(params="f32")


def sizes(model, mesh: Mesh, m: int) -> Sizes:
    return Sizes(model.dims(sequences=4, seq=SEQ), mesh.axes, loops(1, m))


def traced(model, where: Layout, practice: Practice, mesh: Mesh, dtypes: Dtypes = BF16) -> Program:
    return lower(model, where, practice, dtypes, mesh.order, layers=one_cut(practice) if where.stages else None)


def run(asked, dtypes: Dtypes = BF16) -> Run:
    model, where, practice, mesh, schedule, layers = asked
    model, m = deep(model, sum(layers)), schedule.microbatches
    program = lower(model, where, practice, dtypes, mesh.order, layers=layers, microbatches=m)
    numbers = {**sizes(model, mesh, m).dims, "m": m}
    return execute(program, mesh, numbers, leaves(numbers), schedule=schedule, beside=dict(practice.keeps))


def folded(asked, dtypes: Dtypes = BF16):
    model, where, practice, mesh, schedule, layers = asked
    numbers = sizes(model, mesh, schedule.microbatches)
    courses = Courses(turnover(traced(model, where, practice, mesh, dtypes)), numbers, practice.keeps)
    chunks = linear(layers, schedule.ranks, practice).chunks
    return {rank: peak(courses, schedule, rank, chunks).course for rank in range(schedule.ranks)}


def counted(seen: Run):
    return {rank: [set(devices) for devices in levels] for rank, levels in seen.live.levels.items()}


def as_counted(courses):
    return {rank: [{(most, left)} for _, most, left in course] for rank, course in courses.items()}


@settings(max_examples=6, deadline=None)
@given(data=st.data(), name=st.sampled_from(sorted(MODELS)), practice=practices(), ranks=st.integers(1, 3))
def test_the_fold_of_one_layer_is_what_devices_hold_after_every_action(data, name, practice, ranks):
    of = data.draw(st.sampled_from([one for one in SCHEDULES if ranks > 1 or not SCHEDULES[one].several]))
    chunks = 2 if SCHEDULES[of].several else 1
    schedule = pipeline_schedule(of, ranks, chunks, ranks * data.draw(st.integers(1, 2)))
    layers = tuple(data.draw(st.lists(st.integers(0, 2), min_size=ranks * chunks, max_size=ranks * chunks)))
    assume(sum(layers))
    mesh = Mesh({"pipe": ranks, "X": 2, "Y": 2})
    plain = data.draw(schemes(Mesh({"X": 2, "Y": 2}), sizes(MODELS[name], mesh, 1).dims))
    staged = {"*": {**plain.table["*"], LAYERS: ("pipe",)}} if ranks > 1 else {}
    where = Layout({**plain.table, **staged})
    practice, dtypes = data.draw(formats(practice))
    asked = (MODELS[name], where, practice, mesh, schedule, layers)
    try:
        claimed = folded(asked, dtypes)
    except ShardingError:
        reject()
    assert as_counted(claimed) == counted(run(asked, dtypes))
    assert {course[-1][2] for course in claimed.values()} == {0}


@pytest.mark.parametrize(("ahead", "weights"), [(1, "beside"), (2, "beside"), (2, "none")])
def test_devices_hold_the_weights_of_as_many_layers_as_are_gathered_ahead(monkeypatch, ahead, weights):
    where, base = layout(dp=("Y",), pp=("pipe",), zero=3), PRACTICES["fsdp2"]
    practice = replace(base, ahead=Ahead(layers=ahead), overlap=base.overlap.but(weights=weights))
    mesh = Mesh({"pipe": 2, "Y": 4})
    asked = (LLAMA, where, practice, mesh, pipeline_schedule("1f1b", 2, 1, 2), (4, 3))
    counts = counted(run(asked))
    assert as_counted(folded(asked)) == counts
    for other in {0, 1, 2} - {practice.layers_ahead}:  # the first rank's weights are more than its activations
        monkeypatch.setattr(Practice, "layers_ahead", other)
        assert as_counted(folded(asked))[0] != counts[0]


FREED = {
    0: (lifetimes_of, "is_view", lambda right: lambda op: is_cast(op) or right(op)),
    3: (Saved, "_gathered", lambda right: lambda self, op: not is_cast(op) and right(self, op)),
}
"""By ZeRO stage: casts that have no bytes, and casts of shards that are kept for backward."""


@pytest.mark.parametrize("zero", FREED)
def test_devices_hold_casts_of_weights_as_long_as_somebody_reads_them(monkeypatch, zero):
    where, mesh = layout(dp=("Y",), zero=zero), Mesh({"pipe": 1, "Y": 4})
    asked = (LLAMA, where, PRACTICES["fsdp2"], mesh, pipeline_schedule("1f1b", 1, 1, 2), (7,))
    counts = counted(run(asked, MIXED))
    assert as_counted(folded(asked, MIXED)) == counts
    owner, name, wrong = FREED[zero]
    monkeypatch.setattr(owner, name, wrong(getattr(owner, name)))
    assert as_counted(folded(asked, MIXED)) != counts


@pytest.mark.parametrize(("practice", "zero"), [("xla", 0), ("ideal", 3)])
def test_weights_that_microbatches_of_stages_keep_stand_once(monkeypatch, practice, zero):
    """Devices keep what a microbatch has cast, or gathered; so many in flight would have so many copies."""
    where, mesh = layout(dp=("Y",), pp=("pipe",), zero=zero), Mesh({"pipe": 2, "Y": 4})
    asked = (LLAMA, where, PRACTICES[practice], mesh, pipeline_schedule("gpipe", 2, 1, 4), (4, 3))
    once = counted(run(asked, MIXED))
    assert as_counted(folded(asked, MIXED)) == once
    monkeypatch.setattr(lifetimes_of, "_shared", lambda *_: ())
    each = counted(run(asked, MIXED))
    assert as_counted(folded(asked, MIXED)) == each != once


TP = layout(tp=("X",), dp=("Y",), pp=("pipe",))
MESH = Mesh({"pipe": 2, "X": 2, "Y": 2})


@pytest.mark.parametrize("name", ["1f1b", "zb-h1"])
def test_what_is_freed_at_b_instead_of_w_is_seen(monkeypatch, name):
    """The mistake of a pipeline that splits backward: inputs of linears are let go with the cotangent of the stream."""
    asked = (GPT, TP, PRACTICES["megatron"], MESH, pipeline_schedule(name, 2, 1, 4), (1, 1))
    last = Turnover._last

    def too_soon(self, array, acts):
        early = [op for op in self.lifetimes.readers[array] if op.where.act != "W"]
        return early[-1] if early else last(self, array, acts)

    monkeypatch.setattr(Turnover, "_last", too_soon)
    assert as_counted(folded(asked)) != counted(run(asked))


def test_what_kernels_hold_inside_is_executed_and_not_counted(monkeypatch):
    asked = (GPT, TP, PRACTICES["megatron"], MESH, pipeline_schedule("1f1b", 2, 1, 2), (1, 1))
    plain = run(asked)
    monkeypatch.setattr(run_module, "lifetimes", lambda program: lifetimes(program, interiors=True))
    full = run(asked)
    pairs = [
        (most, more)
        for rank, levels in plain.live.levels.items()
        for mine, others in zip(levels, full.live.levels[rank], strict=True)
        for (most, _), (more, _) in zip(mine, others, strict=True)
    ]
    assert all(more >= most for most, more in pairs)
    assert any(more > most for most, more in pairs)


def test_a_device_holds_the_weights_and_states_that_memory_claims():
    where, practice = layout(tp=("X",), dp=("Y",), zero=1), PRACTICES["megatron"]
    seen = run((GPT, where, practice, MESH, pipeline_schedule("1f1b", 1, 1, 2), (1,)))
    held = memory(traced(GPT, where, practice, MESH), sizes(GPT, MESH, 2))
    for role, claimed in (("param", held.parameters_bytes), ("state", held.optimizer_bytes)):
        leaves_of = [op.output for op in seen.program.ops if isinstance(op, Leaf) and op.output.role == role]
        assert {sum(seen.bytes_on(device, one) for one in leaves_of) for device in seen.of_rank(0)} == {claimed}


def test_a_gradient_that_is_made_last_leaves_no_other_waiting():
    """Gradients are added up as soon as they are made: none of a layer's stands beside those of the next."""
    courses = Courses(turnover(traced(GPT, TP, PRACTICES["megatron"], MESH)), sizes(GPT, MESH, 1))
    middles = [linear((0, layers, 0), 1).chunks[1] for layers in (1, 9)]
    one, many = (courses.of(middle, "BW").most["activations"] for middle in middles)
    assert one == many
