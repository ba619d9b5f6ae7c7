"""Layers in line: what one hangs on, and many of them."""

from __future__ import annotations

from functools import reduce
from types import SimpleNamespace

import numpy as np
import pytest

from tpsim.cost.piece import Node, Part, Piece
from tpsim.layouts import in_line


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8])
def test_layers_in_a_row_are_one_behind_the_other(n):
    one = np.random.default_rng(n).uniform(0, 9, (2, 2, 5))
    one[0, 1, 2] = -np.inf
    assert in_line.times(one, n) == pytest.approx(reduce(in_line.then, [one] * n))


def test_what_one_layer_gives_the_next_one_waits_for_and_what_it_computes_first_it_does_not():
    """Kernels of 2 and 3 s, the second reads what comes in: so do both of the next layer, one behind the other."""
    seconds = {(first := Piece(act="B")): 2, (second := Piece(act="B")): 3}
    nodes = (Node(first, ()), Node(second, (0,)))
    one = in_line.layer(Part(nodes, frozenset({1}), (1,)), seconds.__getitem__)
    assert one[..., 0].tolist() == [[5, 3], [5, 3]]
    assert in_line.times(one, 3)[0, 0] == [15]


def test_what_only_gradients_need_counts_where_it_stands_whatever_the_next_layer_issues():
    """Of kernels of 10 and 100 s for gradients the second waits for a call, in flight when the layer ends."""
    gather = SimpleNamespace(sort="tensor", streamed=False)
    stream, own = Piece(act="B"), Piece(act="W")
    call, behind = Piece(act="B", call=gather, blocks=False), Piece(act="W")  # type: ignore[arg-type]
    seconds = {stream: 2, own: 10, call: 7, behind: 100}
    nodes = (Node(stream, ()), Node(own, ()), Node(call, (0,)), Node(behind, (2,)))
    one = in_line.layer(Part(nodes, frozenset({0}), (0,)), seconds.__getitem__)
    assert one[..., 0].tolist() == [[12, 12], [2, 2]]


def test_a_call_that_reads_what_came_in_does_not_wait_for_what_the_layer_before_has_left_to_compute():
    """Of 20 s for gradients at a layer's end 6 run beside the call of the next layer, which has what it reads."""
    gather = SimpleNamespace(sort="tensor", streamed=False)
    call, stream, own = Piece(act="B", call=gather, blocks=False), Piece(act="B"), Piece(act="W")  # type: ignore[arg-type]
    nodes = (Node(call, ()), Node(stream, (0,)), Node(own, (1,)))
    one = in_line.layer(Part(nodes, frozenset({0}), (1,)), {call: 6, stream: 3, own: 20}.__getitem__)
    assert in_line.times(one, 2)[:, 1, 0].tolist() == [52, 32]


def test_calls_that_hold_a_layer_up_count():
    reduced, weights = (SimpleNamespace(sort=sort, streamed=False) for sort in ("gradients", "weights"))
    fetch, stream = Piece(act="B", call=weights), Piece(act="B")  # type: ignore[arg-type]
    own, call = Piece(act="W"), Piece(act="W", call=reduced)  # type: ignore[arg-type]
    nodes = (Node(fetch, ()), Node(stream, (0,)), Node(own, (1,)), Node(call, (2,)))
    one = in_line.layer(Part(nodes, frozenset({1}), (1,)), {fetch: 5, stream: 2, own: 1, call: 4}.__getitem__)
    assert one[..., 0].tolist() == [[12, 7], [7, 2]]


def test_a_layer_that_an_action_begins_with_waits_for_its_own_weights_and_the_others_do_not():
    """Gathers of 5 and 4 s beside kernels of 2 and 1 s that read them: the second waits until 9."""
    weights = SimpleNamespace(sort="weights", streamed=False)
    fetches = [Piece(act="F", call=weights, blocks=False) for _ in range(2)]  # type: ignore[arg-type]
    first, second = Piece(act="F"), Piece(act="F")
    part = Part(
        (*(Node(fetch, ()) for fetch in fetches), Node(first, (0,)), Node(second, (1, 2))), frozenset({2}), (3,)
    )
    seconds = dict(zip((*fetches, first, second), (5, 4, 2, 1), strict=True)).__getitem__
    assert in_line.layer(part, seconds, begins=True)[..., 0].tolist() == [[10, 3], [10, 3]]
    assert in_line.layer(part, seconds)[..., 0].tolist() == [[3, 3], [3, 3]]
