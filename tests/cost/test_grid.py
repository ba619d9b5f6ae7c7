"""Layouts in arrays equal layouts one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tests.models import MIDDLE
from tpsim.cost.grid import Study
from tpsim.machine import profile
from tpsim.program.dtypes import Dtypes
from tpsim.program.frameworks import PRACTICES
from tpsim.quantity.errors import InputError

LAYOUTS = list(product((1, 2, 8), (1, 4, 16, 256), (1, 3)))
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


def test_a_curve_shows_in_the_layouts_whose_ranks_were_measured():
    plain, curved = (
        Study(model=MIDDLE, machine=profile.load(one), practice=PRACTICES["megatron"], dtypes=Dtypes(), seq=2048)
        for one in ("dgx-h100", CURVES)
    )
    found = plain.traced(zero=0, sequence_parallel=True)
    tp = np.array([1.0, 2.0, 4.0, 8.0])
    was, now = (one.priced(found, tp=tp, dp=8 / tp, batch=16 / tp).communication_s for one in (plain, curved))
    assert (was != now).tolist() == [False, False, False, True]


def test_columns_of_sizes_and_a_row_of_batches_span_every_layout(study):
    found = study.traced(zero=1, sequence_parallel=True)
    tp, dp = np.array([[2.0], [8.0], [4.0]]), np.array([[4.0], [8.0], [1.0]])
    batch = 2 * dp * np.array([[1.0, 2.0, 5.0, 9.0]])
    spanned = study.priced(found, tp=tp, dp=dp, batch=batch)
    full = study.priced(found, tp=tp + 0 * batch, dp=dp + 0 * batch, batch=batch)
    assert np.array_equal(spanned.time_s, full.time_s)


def test_a_machine_whose_levels_are_no_switches_is_refused(study):
    torus = replace(study, machine=profile.load("tpu-v5e"))
    with pytest.raises(InputError) as error:
        torus.priced(torus.traced(zero=0, sequence_parallel=False), tp=1, dp=1, batch=2)
    assert "a grid of layouts needs switched levels; ici of tpu-v5e is a torus" in str(error.value)


def test_one_chip_sends_nothing(study):
    alone = study.priced(study.traced(zero=3, sequence_parallel=True), tp=1, dp=1, batch=2)
    assert alone.wire_bytes == 0
    assert alone.communication_s == 0
