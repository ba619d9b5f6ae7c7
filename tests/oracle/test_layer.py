"""One transformer layer, forward and backward: the collectives of jax against those that tpsim derives."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.oracle import ours
from tests.oracle.calls import Call
from tests.oracle.questions import AXIS, FOUR, LAYERS, MODEL, WORK

pytestmark = pytest.mark.oracle

STREAM = WORK["b"] * WORK["s"] * MODEL.hidden
RANKS = FOUR[AXIS]
USES = {"gelu": 4, "swiglu": 5}
"""Projections that read the stream: queries, keys, values, and one or two of the MLP."""


def stream(kind: str) -> Call:
    """One move of the residual stream."""
    return Call(kind, (AXIS,), STREAM, RANKS)


GAIN = Call("all_reduce", (AXIS,), MODEL.hidden, RANKS)


def layers(**wanted: bool) -> list:
    return [layer for layer in LAYERS if all(getattr(layer, name) == value for name, value in wanted.items())]


@pytest.mark.parametrize("layer", layers(sequence=False, once=True, partitioned=False), ids=str)
def test_a_layer_written_by_hand_has_four_all_reduces(xla, layer):
    assert xla(layer).calls == ours.layer(layer, "ideal").calls == {stream("all_reduce"): 4}


@pytest.mark.parametrize("layer", layers(sequence=True, partitioned=False), ids=str)
def test_a_sequence_parallel_layer_has_four_gathers_four_scatters_and_a_small_all_reduce_per_gain(xla, layer):
    expected = {stream("all_gather"): 4, stream("reduce_scatter"): 4, GAIN: 2}
    assert xla(layer).calls == ours.layer(layer, "ideal").calls == expected


@pytest.mark.parametrize("layer", layers(sequence=False, once=False), ids=str)
def test_a_stream_that_enters_a_block_by_several_doors_is_summed_once_per_use(xla, layer):
    assert xla(layer).calls == ours.layer(layer, "xla").calls == {stream("all_reduce"): 2 + USES[layer.ffn]}


@pytest.mark.parametrize("layer", layers(sequence=False, partitioned=True), ids=str)
def test_the_partitioner_settles_per_use(xla, layer):
    assert xla(layer).calls == ours.layer(layer, "xla").calls == {stream("all_reduce"): 2 + USES[layer.ffn]}


@pytest.mark.parametrize("layer", layers(sequence=True, partitioned=True), ids=str)
def test_the_partitioner_sums_every_cotangent_whole_before_it_adds_and_slices_where_ours_scatters_one_sum(xla, layer):
    """Reason: it settles a cotangent where it is made; only a sum that is sliced right away is a reduce-scatter."""
    theirs, once, per_use = xla(layer), ours.layer(layer, "ideal"), ours.layer(layer, "xla")
    several = {"gelu": 3, "swiglu": 5}[layer.ffn]
    scattered = 2 + USES[layer.ffn] - several
    assert theirs.calls == {
        stream("all_gather"): 4,
        stream("all_reduce"): several,
        stream("reduce_scatter"): scattered,
        GAIN: 2,
    }
    assert per_use.calls == {stream("all_gather"): 4, stream("reduce_scatter"): several + scattered, GAIN: 2}
    assert once.wire < per_use.wire < theirs.wire


def test_leaving_out_one_move_would_be_seen(xla):
    layer = layers(sequence=True, partitioned=False)[0]
    fewer = ours.layer(layer, "ideal").calls - Counter([GAIN])
    assert xla(layer).calls != fewer
