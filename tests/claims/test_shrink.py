"""A shrunk question: small enough to run, and of the same structure as the one that was asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.levels import WireLevel
from tpsim.algebra.mesh import Mesh
from tpsim.answers.plan import priced
from tpsim.claims.shrink import shrink, shrunk_placement
from tpsim.cost.collectives import travelling
from tpsim.fabric.placement import place
from tpsim.fabric.wires import Wrap
from tpsim.quantity.errors import InputError
from tpsim.question.memo import Memo, choices
from tpsim.question.scenario import resolve

SHIPPED = sorted(path.stem for path in (Path(__file__).parents[2] / "scenarios").glob("*.yaml"))
SWITCH = WireLevel("switch", "switch")
RINGS = WireLevel("ici", "torus", (16, 16, 16), Wrap(always=True))


def wires(question, axes):
    """The shape of the wires under a collective, without its sizes."""
    return [(one.axis, one.topology, one.stride > 1) for one in question.placement.route(axes)]


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_question_keeps_its_structure_and_becomes_small(name):
    asked = resolve(name)
    small = shrink(asked)
    assert small.mesh.devices <= 64
    assert small.mesh.order == asked.mesh.order
    for axis, n in asked.mesh.axes.items():
        assert (small.mesh.axes[axis] > 1) == (n > 1)
        assert small.mesh.axes[axis] <= n
    some = asked.practice.recompute_layers is not None
    practice = replace(asked.practice, recompute_layers=1) if some else asked.practice
    assert (small.layout, small.practice, small.dtypes) == (asked.layout, practice, asked.dtypes)
    full = [chunk for chunk in small.stages.chunks if chunk.layers]
    alike = len({chunk.layers for chunk in asked.stages.chunks} - {0}) == 1
    had = asked.workload.microbatches
    if asked.schedule and asked.schedule.chunks > 1:  # as many for each stage, so that they are taken in whole groups
        had = small.stages.ranks * (had // asked.stages.ranks)
    each = 2 * len(asked.model.kinds) if len(asked.stages.chunks) == 1 else 2
    layers = each * len(full) if alike else sum(small.split)
    microbatches = min(2 * small.stages.ranks, had)
    assert (small.model.layers, small.workload.microbatches) == (layers, microbatches)
    assert choices(small.model) == choices(asked.model)
    assert {kind for kind, _ in small.model.stack} == {kind for kind, _ in asked.model.stack}
    assert (small.model.heads > small.model.kv_heads) == (asked.model.heads > asked.model.kv_heads)
    assert (small.model.vocab == small.model.vocab_padded) == (asked.model.vocab == asked.model.vocab_padded)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shrunk_question_has_the_collectives_of_the_question_on_the_same_wires(name):
    asked = resolve(name)
    small = shrink(asked)
    calls = [travelling(Memo().lowered(one).collectives, one.mesh.axes) for one in (asked, small)]
    assert [call.shape for call in calls[1]] == [call.shape for call in calls[0]]
    for axes in {call.axes for call in calls[1] if call.kind != "send"}:
        assert wires(small, axes) == wires(asked, axes)


@pytest.mark.parametrize(("pp", "microbatches"), [(2, 3), (4, 4), (4, 7), (8, 15)])
def test_stages_that_meet_for_every_message_are_shrunk_to_so_many_microbatches_that_they_still_can(pp, microbatches):
    held_up = {"pp": pp, "microbatches": microbatches, "batch": 64 * microbatches}
    overrides = ["pipeline={schedule: zb-h2}", "practice.overlap.stages=none"]
    question = resolve("llama3-70b-h100", overrides=overrides, flags={"chips": 64 * pp, **held_up})
    small = shrink(question)
    assert small.workload.microbatches == 3
    assert priced(small).pipeline.blocking is True


def test_every_shard_has_two_elements_where_it_had_two():
    asked, small = resolve("llama3-70b-h100"), shrink(resolve("llama3-70b-h100"))
    dims = small.model.dims(sequences=small.workload.sequences, seq=small.workload.seq)
    assert small.mesh.axes == {"data": 4, "tensor": 4}
    assert (dims["s"], dims["f"], dims["v"], dims["b"]) == (8, 8, 8, 8)
    assert asked.model.kv_heads == asked.mesh.axes["tensor"]
    assert dims["g"] == 4, "one kv head per device before and after"


def test_strides_follow_from_the_parts_inside():
    placement = place([RINGS], Mesh({"outer": 8, "inner": 2}), {"outer": "ici.0", "inner": "ici.0"})
    small = shrunk_placement(placement)
    assert small.mesh.axes == {"outer": 4, "inner": 2}
    assert [(piece.n, piece.stride) for piece in small.pieces["outer"]] == [(4, 2)]
    assert small.carriers["ici.0"].extent == 8


def test_the_largest_parts_give_way_until_the_mesh_is_small_enough():
    axes = {"a": 4, "b": 4, "c": 4, "d": 4}
    small = shrunk_placement(place([SWITCH], Mesh(axes)))
    assert small.mesh.devices == 64
    assert min(small.mesh.axes.values()) == 2


def test_a_closed_ring_never_becomes_a_pair():
    axes = {"a": 8, "b": 8, "c": 8}
    placement = place([SWITCH, RINGS], Mesh({**axes, "d": 4}), {axis: f"ici.{at}" for at, axis in enumerate(axes)})
    small = shrunk_placement(placement)
    assert small.mesh.devices <= 64
    assert all(small.mesh.axes[axis] >= 3 for axis in axes)


def test_five_axes_of_which_a_kv_split_makes_six_are_more_devices_and_none_is_lost():
    question = {
        "tpsim": "scenario/1",
        "model": "llama-3-70b",
        "hardware": "dgx-h100",
        "mesh": {"pipe": 4, "data": 2, "fsdp": 2, "context": 2, "tensor": 16},
        "layout": {"pp": "pipe", "dp": ["data", "fsdp"], "cp": "context", "tp": "tensor", "sequence_parallel": True},
        "pipeline": {"layers": [19, 21, 20, 20]},
        "workload": {"global_batch": 64, "seq": 4096, "dtype": "bf16", "microbatches": 4},
    }
    pairs = dict.fromkeys(("pipe", "data", "fsdp", "context", "tensor_rep"), 2)
    assert shrink(resolve(question)).mesh.axes == {**pairs, "tensor_kv": 4}  # over NVLink and over the network


def test_a_mesh_of_too_many_axes_is_refused():
    with pytest.raises(InputError) as error:
        shrunk_placement(place([SWITCH], Mesh(dict.fromkeys("abcdefghi", 2))))
    assert str(error.value) == (
        "error[too-many-axes]: a 2 x b 2 x c 2 x d 2 x e 2 x f 2 x g 2 x h 2 x i 2 cannot be shrunk to 256 devices "
        "with every axis kept\n  = verify a scenario with fewer mesh axes"
    )
