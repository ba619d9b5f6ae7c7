"""Buckets: which layers send together, when their calls start, and that bytes are what layers send alone."""

from __future__ import annotations

from itertools import product

import pytest

from tpsim.answers.course import work
from tpsim.answers.plan import plan
from tpsim.cost.segments import joined

LAYERS = 11
OWN = 218_112_000
"""Numbers of a layer of Llama-3-8B, two norms among them."""
BESIDE = "overlap: {gradients: beside, weights: beside}"


def planned(bucket, *, pp=1, tp=1, zero=1, base="fsdp2", switches=BESIDE, m=1):
    flags = {
        "model": "llama-3-8b",
        "hw": "dgx-h100",
        "dp": 16,
        "zero": zero,
        "seq": 4096,
        "batch": 16 * m,
        "microbatches": m,
    }
    flags |= {"pp": pp} if pp > 1 else {}
    flags |= {"tp": tp, "sp": True} if tp > 1 else {}
    model = f"model={{extends: llama-3-8b, layers: {LAYERS}}}"
    layers = ("pipeline={layers: balanced}",) if pp > 1 else ()
    practice = f"practice={{base: {base}, {switches}, bucket: {bucket}}}"
    return plan(None, overrides=(model, practice, *layers), **flags)


def sent(answer, op):
    return [(row.call.layers, row.count) for row in answer.rows if row.op == op and row.call.per_layer]


@pytest.mark.parametrize(
    ("bucket", "buckets"),
    [
        ("layer", [(1, 11)]),
        ("step", [(11, 1)]),
        (f"{{elements: {OWN}}}", [(1, 11)]),
        (f"{{elements: {OWN + 1}}}", [(2, 5), (1, 1)]),
        (f"{{elements: {4 * OWN}}}", [(4, 2), (3, 1)]),
        (f"{{elements: {4 * OWN}, first_chunk: true}}", [(4, 2), (3, 1)]),
        ("{elements: 1, per_rank: 27264000}", [(2, 5), (1, 1)]),
    ],
)
def test_a_call_is_sent_when_it_has_so_many_layers_and_one_more_has_those_that_are_left(bucket, buckets):
    answer = planned(bucket)
    assert [sent(answer, op) for op in ("gradient", "state")] == [buckets, buckets]


@pytest.mark.parametrize("switches", ["overlap: {gradients: none, weights: none}", "coalesce: false"])
def test_what_a_first_chunk_cuts_beside_compute_is_one_call_elsewhere_and_arrays_that_travel_alone_are_never(switches):
    answer = planned(f"{{elements: {4 * OWN}, first_chunk: true}}", switches=switches)
    assert {layers for op in ("gradient", "state") for layers, _ in sent(answer, op)} == {
        1 if "coalesce" in switches else LAYERS
    }


def test_each_chunk_of_a_pipeline_has_its_own_and_bytes_are_those_of_its_layers():
    answers = [planned(bucket, pp=2, m=4) for bucket in ("step", "layer")]
    split = [sum(many for _, many in chunk.stack) for chunk in answers[0].question.stages.chunks]
    for whole, alone in zip(*(answer.pipeline.step.told.stages for answer in answers), strict=True):
        rows = [row for row in whole.rows if row.op == "gradient" and row.call.per_layer]
        assert [(row.call.layers, row.count) for row in rows] == [(split[whole.rank], 1)]
        assert sum(row.payload_bytes for row in whole.rows) == sum(row.payload_bytes for row in alone.rows)


@pytest.mark.parametrize("elements", [1, 300_000_000, 10**9])
def test_what_every_microbatch_sums_is_cut_by_elements_and_else_by_layers(elements):
    """Of ZeRO 2: a chunk's gradients would be whole until its backward has ended."""
    by_step = planned("step", zero=2, m=2)
    assert sent(by_step, "gradient") == [(1, 2 * LAYERS)]
    counted = planned(f"{{elements: {elements}}}", zero=2, m=2)
    most = -(-elements // OWN)
    left = [(LAYERS % most, 2)] if LAYERS % most else []
    assert sent(counted, "gradient") == [(most, 2 * (LAYERS // most)), *left]
    assert (
        counted.totals["by_step"]["step"].wire_bytes_per_device
        == by_step.totals["by_step"]["step"].wire_bytes_per_device
    )


@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_a_bucket_starts_when_its_last_layer_has_its_gradients(most):
    """By then compute has run so many layers; new weights are there for the first of them."""
    answer = planned(f"{{elements: {most * OWN}}}")
    asked = work(answer)
    (chunk,) = asked.stages.chunks
    buckets = []
    for acts, op in (("BW", "gradient"), ("F", "state")):
        action = asked.actions.action(chunk, acts, first=True, last=True)
        steps = joined(segment for segment, many in action.runs for _ in range(many))
        ran = asked.clock.ran(steps)
        products = [at for at, step in enumerate(steps) if step.pieces[0].is_product and of_layer(step, acts)]
        each = len(products) // LAYERS
        calls = [
            at for at, step in enumerate(steps) if (call := step.pieces[0].call) and call.per_layer and call.op == op
        ]
        done = 0
        for at in calls:
            layers = steps[at].pieces[0].call.layers
            if op == "gradient":
                done += layers
                assert ran.starts[at] >= ran.ends[products[each * done - 1]]
            else:
                assert ran.ends[at] <= ran.starts[products[each * done]]
                done += layers
        assert (done, len(calls)) == (LAYERS, -(-LAYERS // most))
        buckets.append([steps[at].pieces[0].call.layers for at in calls])
    backward, forward = buckets
    assert backward == forward[::-1]  # new weights come in the buckets of their gradients


def of_layer(step, acts):
    """True for products of a layer that calls of gradients wait for, or that read new weights."""
    piece = step.pieces[0]
    where = piece.ops[0].where
    return where.layer is not None and piece.act == acts[-1] and where.again == ""


@pytest.mark.parametrize(("most", "zero"), [*product([2, 4], [1, 2])])
def test_longer_buckets_make_fewer_ranks_wait_for_stragglers_less_often(most, zero):
    """Ranks meet once in a bucket, not once in each of its layers."""
    many, few = (planned(f"{{elements: {layers * OWN}}}", zero=zero) for layers in (1, most))
    assert 0 < few.step.stragglers_s < many.step.stragglers_s


def test_ranks_meet_as_often_as_a_layer_sums_whatever_else_is_one_call_of_all():
    """Sums of norms over tensor are few numbers: one call of all layers, beside that of the layer it stands in."""
    answer = planned(f"{{elements: {OWN // 2}}}", tp=2)
    assert {
        row.axis: (row.call.layers, row.count) for row in answer.rows if row.op == "gradient" and row.call.per_layer
    } == {
        "data": (1, LAYERS),
        "tensor": (LAYERS, 1),
    }
    asked = work(answer)
    (chunk,) = asked.stages.chunks
    action = asked.actions.action(chunk, "BW", last=True)
    pieces = [(step.pieces[0], many) for segment, many in action.runs for step in segment if step.pieces[0].settles]
    assert sum(piece.share * many for piece, many in pieces if piece.call.per_layer) == LAYERS
