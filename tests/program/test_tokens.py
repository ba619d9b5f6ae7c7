"""Orders of tokens: who has which, and how the work that a mask leaves is shared out."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tpsim.program.tokens import pairs, peak, positions
from tpsim.reference.functions import INDEX

N = 4
S = 48
ORDERS = ("contiguous", "zigzag", "striped")


def pairs_of(order, s, n, rows=None):
    """Pairs of a causal mask on each device, counted; rows: of those that have a share of the heads each."""
    mask = INDEX["causal_mask"]({}, np.arange(s)[:, None], np.arange(s)[None, :]) == 0
    own = np.array(positions(order, s, n)).reshape(rows or n, -1)
    return [int(mask[tokens].sum()) for tokens in own]


@pytest.mark.parametrize("order", ORDERS)
def test_every_order_is_of_all_tokens_once(order):
    assert sorted(positions(order, S, N)) == list(range(S))


def test_pairs_on_each_device_are_as_enumerated_by_hand():
    assert {order: pairs_of(order, S, N) for order in ORDERS} == {
        "contiguous": [78, 222, 366, 510],
        "zigzag": [294] * N,
        "striped": [276, 288, 300, 312],
    }


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("s", "n", "ring"), [(48, 4, 4), (48, 4, 2), (16, 8, 1), (64, 2, 2), (32, 8, 4)])
def test_the_busiest_device_over_the_mean_is_what_the_pairs_say(order, s, n, ring):
    """Where n devices share the tokens and n/ring of them split the heads of a shard."""
    counted = pairs_of(order, s, n, ring)
    assert peak(order, s, ring, n) == Fraction(max(counted) * ring, sum(counted))


@pytest.mark.parametrize(("n", "ideal"), [(2, 0.667), (4, 0.571), (8, 0.533), (16, 0.516)])
def test_neighbours_reach_n_over_2n_minus_1_of_what_a_fair_share_would(n, ideal):
    """Zhu 2024 (ring-flash-attention, README): contiguous reaches 51.4 to 53.9 % of ideal on 8 GPUs, 53.3 % here."""
    assert 1 / peak("contiguous", 131072, n, n) == pytest.approx(ideal, abs=6e-4)


def test_a_causal_mask_lets_through_s_plus_1_of_2_s():
    for s in (1, 8, 64):
        assert pairs("causal_mask", s, s) == sum(pairs_of("contiguous", s, 1))
        assert Fraction(pairs("causal_mask", s, s), s * s) == Fraction(s + 1, 2 * s)
