"""The most units for which there is room, beside counting one by one."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpsim.quantity.room import most

FALLS = st.floats(0.01, 3)
ROOMS = st.tuples(st.floats(-1, 300), FALLS, FALLS, st.integers(0, 100))


def room(free, falls, more, bent, units):
    """What is left of so much: from some unit on each takes more, as where activations outgrow gathered weights."""
    return free - falls * units - more * np.maximum(units - bent, 0)


def one_by_one(*asked):
    return next(units for units in count() if room(*asked, units + 1) < 0)


@given(ROOMS)
def test_as_many_as_counting_finds(asked):
    assert most(lambda units: float(room(*asked, units))) == one_by_one(*asked)


@given(st.lists(ROOMS, min_size=1, max_size=8))
def test_of_arrays_each_has_its_own(asked):
    columns = np.array(asked, dtype=float).T
    assert most(lambda units: room(*columns, units)).tolist() == [one_by_one(*one) for one in asked]


def test_a_bent_line_is_not_followed_step_by_step():
    looked = []

    def bent(units):
        looked.append(units)
        return 1e6 - units - 1000 * max(units - 400, 0)

    assert most(bent) == 1398
    assert len(looked) < 25


@pytest.mark.parametrize(("free", "found"), [(-1.0, 0), (0.0, 0), (1.0, 1), (7.5, 7)])
def test_the_last_one_may_fill_it(free, found):
    assert most(lambda units: free - units) == found
