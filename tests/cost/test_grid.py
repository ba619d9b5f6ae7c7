"""Layouts in arrays equal layouts one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from study import Study
from tests.models import MIDDLE
from tpsim.algebra.sharding import Sharding
from tpsim.answers.plan import plan
from tpsim.cost.sizes import Sizes
from tpsim.machine import profile
from tpsim.program.dtypes import Dtypes
from tpsim.program.frameworks import PRACTICES
from tpsim.quantity.errors import InputError

LAYOUTS = list(product((2, 4, 8), (1, 4, 16, 256), (1, 3)))
"""tp, dp, sequences per data shard."""


CURVES = Path(__file__).parents[1] / "data" / "with_curves.yaml"
"""A machine with measured curves over 8 ranks of a node, and over two nodes."""


@pytest.fixture(params=["dgx-h100", CURVES], ids=["constants", "curves"])
def study(request):
    return Study(
        model=MIDDLE,
        machine=profile.load(request.param),
        practice=PRACTICES["megatron"],
        dtypes=Dtypes(),
        seq=2048,
        microbatches=2,
    )


@pytest.mark.parametrize(("zero", "sp"), list(product((0, 1, 2, 3), (False, True))))
def test_arrays_give_what_numbers_give(study, zero, sp):
    found = study.traced(zero=zero, sequence_parallel=sp)
    tp, dp, each = (np.array(column, float) for column in zip(*LAYOUTS, strict=True))
    many = study.priced(found, tp=tp, dp=dp, batch=2 * dp * each)
    for place, (t, d, e) in enumerate(LAYOUTS):
        one = study.priced(found, tp=t, dp=d, batch=2 * d * e)
        for held in ("wire_bytes", "static_bytes"):
            assert getattr(many, held)[place] == getattr(one, held)
        for seconds in ("compute_s", "communication_s", "exposed_s", "time_s"):
            assert getattr(many, seconds)[place] == pytest.approx(float(getattr(one, seconds)), rel=1e-12)


@pytest.mark.parametrize(
    ("model", "machine", "practice", "zero", "sizes"),
    [
        *product(["llama-3-8b"], ["dgx-h100", "mi300x", "l40s-pcie", "superpod-h100"], ["megatron"], [1], [(128, 2)]),
        ("llama-3-8b", "superpod-h100", "megatron", 1, (64, 4)),
        ("llama-3-8b", "mi300x", "megatron", 1, (2, 2)),
        *product(["llama-3-8b", "gemma-2-27b"], ["dgx-b200"], ["xla", "megatron"], [0, 3], [(16, 1)]),
        ("mixtral-8x7b", "gb200-hosts", "fsdp2", 0, (2, 1)),
        ("deepseek-v3", "dgx-b200", "xla", 3, (8, 4)),
    ],
)
def test_layouts_are_what_their_plans_are(model, machine, practice, zero, sizes):
    dp, tp = sizes
    work = {"seq": 2048, "microbatches": 2, "batch": 4 * dp}
    answer = plan(model=model, hw=machine, practice=practice, dp=dp, tp=tp, zero=zero, sp=tp > 1, **work)
    asked = answer.question
    drawn = Study(
        model=asked.model,
        machine=asked.machine,
        practice=asked.practice,
        dtypes=asked.dtypes,
        seq=2048,
        microbatches=2,
    )
    traced = drawn.traced(zero=zero, sequence_parallel=True, tensor=tp > 1)
    found = drawn.priced(traced, tp=tp, dp=dp, batch=4 * dp)
    assert found.time_s == pytest.approx(float(answer.step.time_s), rel=1e-9)
    assert found.static_bytes == pytest.approx(float(answer.memory.static_bytes), rel=1e-12)


@pytest.mark.parametrize(
    ("machine", "zero", "dp", "message"),
    [
        ("gb200-nvl72", 0, np.array([8.0, 128.0]), "data does not fill nvlink of gb200-nvl72 evenly"),
        ("dgx-h100", 0, 3, "data does not fill nvlink of dgx-h100 evenly"),
        ("dgx-h100", 1, 48, "h of master.E, 4096, is not divisible by data"),
        ("dgx-h100", 3, np.array([16.0, 48.0]), "h of E, 4096, is not divisible by data"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(study, machine, zero, dp, message):
    drawn = replace(study, machine=profile.load(machine))
    with pytest.raises(InputError, match=message):
        drawn.priced(drawn.traced(zero=zero, sequence_parallel=True), tp=4, dp=dp, batch=2 * dp)


def test_a_curve_shows_in_the_layouts_whose_ranks_were_measured():
    plain, curved = (
        Study(model=MIDDLE, machine=profile.load(one), practice=PRACTICES["megatron"], dtypes=Dtypes(), seq=2048)
        for one in ("dgx-h100", CURVES)
    )
    found = plain.traced(zero=0, sequence_parallel=True)
    tp = np.array([1.0, 2.0, 4.0, 8.0])
    was, now = (one.priced(found, tp=tp, dp=8 / tp, batch=16 / tp).communication_s for one in (plain, curved))
    assert (was != now).tolist() == [False, False, False, True]


@pytest.mark.parametrize("zero", [0, 1, 3])
def test_sizes_along_axes_of_their_own_span_every_layout(study, zero):
    found = study.traced(zero=zero, sequence_parallel=True)
    tp, dp, each = np.ix_([2.0, 8.0, 4.0], [4.0, 8.0, 1.0], [1.0, 2.0, 5.0, 9.0])
    spanned = study.priced(found, tp=tp, dp=dp, batch=2 * dp * each)
    columns = [size.ravel() for size in np.broadcast_arrays(tp, dp, 2 * dp * each)]
    listed = study.priced(found, **dict(zip(("tp", "dp", "batch"), columns, strict=True)))
    assert np.allclose(spanned.time_s.ravel(), listed.time_s, rtol=1e-12, atol=0)


def test_what_layouts_share_is_worked_out_once():
    tp, dp, each = np.ix_([2.0, 8.0, 4.0], [4.0, 8.0, 1.0], [1.0, 2.0, 5.0, 9.0])
    sizes = Sizes({"b": 2 * dp * each, "h": 64}, {"data": dp, "tensor": tp}, {})
    stream = sizes.local_elements(Sharding(("b", "h"), (("data",), ())))
    assert stream.tolist() == [[[128.0, 256.0, 640.0, 1152.0]]]
    assert sizes.local_elements(Sharding(("h",), (("tensor",),))).tolist() == [[[32.0]], [[8.0]], [[16.0]]]
    assert sizes.local_elements(Sharding(("b",), (("tensor",),))).shape == (3, 3, 4)


def test_a_machine_whose_levels_are_no_switches_is_refused(study):
    torus = replace(study, machine=profile.load("tpu-v5e"))
    with pytest.raises(InputError) as error:
        torus.priced(torus.traced(zero=0, sequence_parallel=False), tp=1, dp=1, batch=2)
    assert "a grid of layouts needs switched levels; ici of tpu-v5e is a torus" in str(error.value)


def test_one_chip_sends_nothing(study):
    alone = study.priced(study.traced(zero=3, sequence_parallel=True), tp=1, dp=1, batch=2)
    assert alone.wire_bytes == 0
    assert alone.communication_s == 0
