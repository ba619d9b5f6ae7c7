"""What each collective algorithm moves on each fabric: one plain function of bytes and devices per closed form.

V is the bytes of the whole array that takes part, n the devices. Every form is arithmetic only, vanishes at n = 1, and
serves ints (exactly), float64 arrays and sympy symbols. tests/reference/test_linkload.py holds each against the
messages of every step. A combination that is not here has no known closed form and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tpsim.algebra.moves import MoveKind, wire
from tpsim.quantity.size import Size, floor_over, largest, log2_ceil, over, smallest, total, where_many


class Traffic(NamedTuple):
    """What one run of an algorithm puts on the wires.

    steps        messages that wait for one another
    wire         bytes that each device must inject, whatever the algorithm
    carried      mean bytes that a device sends with this one, forwarded chunks included
    link_total   bytes on the busiest directed link over the whole run: what a streamed run takes
    link_serial  sum over steps of the busiest link: what a lock-step run takes
    piece        bytes of a message that goes through all steps; None: each step sends what its busiest link carries
    """

    steps: Any
    wire: Any
    carried: Any
    link_total: Any
    link_serial: Any
    piece: Any = None

    @property
    def message(self) -> Any:
        """Bytes that one step sends."""
        return over(self.link_serial, largest(self.steps, 1)) if self.piece is None else self.piece

    def then(self, other: Traffic) -> Traffic:
        """This run followed by another one."""
        return Traffic(
            self.steps + other.steps,
            self.wire + other.wire,
            self.carried + other.carried,
            self.link_total + other.link_total,
            self.link_serial + other.link_serial,
            self.piece,
        )


Form = Callable[[Size, Size], Traffic]
"""Bytes of the whole array and devices -> what moves."""


def evenly(steps: Any, sent: Any, link: Any) -> Traffic:
    """Traffic without forwarding, whose busiest link is busy in every step."""
    return Traffic(steps, sent, sent, link, link)


def twice(half: Form) -> Form:
    """A reduce-scatter followed by an all-gather, which costs the same."""

    def all_reduce(V: Size, n: Size) -> Traffic:
        run = half(V, n)
        return run.then(run)

    return all_reduce


# Two-way closed ring ---------------------------------------------------------------------------------------------


def ring_gather(V: Size, n: Size) -> Traffic:
    """All-gather or reduce-scatter both ways round at once; for even n the antipodal chunk goes half each way.

    steps floor(n/2), link V(n-1)/(2n) in each direction.
    Source: How to Scale Your Model, chapter 3, with the finite factor.
    """
    sent = wire("all_gather", V, n)
    return evenly(floor_over(n, 2), sent, over(sent, 2))


def two_rings_gather(V: Size, n: Size) -> Traffic:
    """All-gather or reduce-scatter as halves on two opposite one-way rings: n-1 steps, bytes as `ring_gather`."""
    sent = wire("all_gather", V, n)
    return evenly(n - 1, sent, over(sent, 2))


def ring_all_to_all(V: Size, n: Size) -> Traffic:
    """All-to-all by the shortest way; for even n the antipodal chunk is split.

    carried V floor(n^2/4)/n^2, link half of it: V/8 for even n, a quarter of the all-gather as n grows.
    """
    carried = over(V * floor_over(n * n, 4), n * n)
    link = over(carried, 2)
    return Traffic(floor_over(n, 2), wire("all_to_all", V, n), carried, link, link)


def ring_all_to_all_unsplit(V: Size, n: Size) -> Traffic:
    """All-to-all by the shortest way with the antipodal chunk one way: link V h(h+1)/(2 n^2) with h = floor(n/2)."""
    half = floor_over(n, 2)
    link = over(V * half * (half + 1), 2 * n * n)
    carried = over(V * floor_over(n * n, 4), n * n)
    return Traffic(half, wire("all_to_all", V, n), carried, link, link)


# One-way ring ----------------------------------------------------------------------------------------------------


def one_way_gather(V: Size, n: Size) -> Traffic:
    """All-gather or reduce-scatter round one direction, of a ring or one laid over ports: n-1 steps, link V(n-1)/n."""
    sent = wire("all_gather", V, n)
    return evenly(n - 1, sent, sent)


def one_way_all_to_all(V: Size, n: Size) -> Traffic:
    """All-to-all round one direction: every chunk is forwarded to its place, link V(n-1)/(2n)."""
    link = over(V * (n - 1), 2 * n)
    return Traffic(n - 1, wire("all_to_all", V, n), link, link, link)


# Line ------------------------------------------------------------------------------------------------------------


def line_gather(V: Size, n: Size) -> Traffic:
    """All-gather or reduce-scatter on a line: ends send V/n, inner devices V(n+1)/n, the mean is V(n-1)/n."""
    sent = wire("all_gather", V, n)
    return evenly(n - 1, sent, sent)


def line_all_reduce(V: Size, n: Size) -> Traffic:
    """Reduce-scatter and all-gather on a line: no link is the busiest one in both halves, so the total is only V."""
    sent = wire("all_reduce", V, n)
    return Traffic(2 * (n - 1), sent, sent, where_many(n, V), sent)


def line_all_to_all(V: Size, n: Size) -> Traffic:
    """All-to-all on a line, the farthest chunk first: floor(n^2/4) slots of one chunk V/n^2 over the middle link."""
    slots = floor_over(n * n, 4)
    link = over(V * slots, n * n)
    return Traffic(slots, wire("all_to_all", V, n), _line_carried(V, n), link, link)


def line_all_to_all_lockstep(V: Size, n: Size) -> Traffic:
    """All-to-all on a line in n-1 steps, each as long as its busiest link: V(n-1)/(2n) in sum."""
    busiest = over(V * floor_over(n * n, 4), n * n)
    return Traffic(n - 1, wire("all_to_all", V, n), _line_carried(V, n), busiest, over(V * (n - 1), 2 * n))


def _line_carried(V: Size, n: Size) -> Any:
    return over(V * (n * n - 1), 3 * n * n)


# Switch ----------------------------------------------------------------------------------------------------------


def switch_direct_gather(V: Size, n: Size) -> Traffic:
    """All-gather or reduce-scatter with every chunk sent straight to its place: 1 step, port V(n-1)/n."""
    sent = wire("all_gather", V, n)
    return evenly(where_many(n, 1), sent, sent)


def switch_doubling_gather(V: Size, n: Size) -> Traffic:
    """All-gather by Bruck's doubling (reduce-scatter by its mirror), any n: ceil(log2 n) steps, port V(n-1)/n."""
    sent = wire("all_gather", V, n)
    return evenly(log2_ceil(n), sent, sent)


def switch_one_shot(V: Size, n: Size) -> Traffic:
    """All-reduce in which everyone sends everything to everyone: 1 step, port V(n-1)."""
    sent = V * (n - 1)
    return Traffic(where_many(n, 1), wire("all_reduce", V, n), sent, sent, sent)


def switch_in_switch(V: Size, n: Size) -> Traffic:
    """All-reduce inside the switch: reads that it sums, stores that it multicasts; port V(n+1)/n each way."""
    sent = where_many(n, over(V * (n + 1), n))
    return Traffic(where_many(n, 2), wire("all_reduce", V, n), sent, sent, sent)


def switch_in_network(V: Size, n: Size) -> Traffic:
    """All-reduce by a network whose switches sum on the way up and copy on the way down: 1 step, port V each way.

    Nobody owns a chunk: every member hands over all it has and gets all of the sum.
    Source: NVIDIA, Scalable Hierarchical Aggregation and Reduction Protocol (SHARP), which NCCL calls CollNet.
    """
    sent = where_many(n, V)
    return Traffic(where_many(n, 1), wire("all_reduce", V, n), sent, sent, sent)


def switch_tree(V: Size, n: Size) -> Traffic:
    """All-reduce over two binary trees of half the array each, up and down, streamed: about 2 log2 n hops.

    A device is an inner node of one tree at most: it sends V at n = 2, 3V/2 at 3, 2V from 4 on.
    """
    busiest = where_many(n, over(V * smallest(n, 4), 2))
    return Traffic(2 * log2_ceil(n), wire("all_reduce", V, n), wire("all_reduce", V, n), busiest, busiest, V)


def switch_pairwise_all_to_all(V: Size, n: Size) -> Traffic:
    """All-to-all with one peer after the other: n-1 steps, port V(n-1)/n^2."""
    sent = wire("all_to_all", V, n)
    return evenly(n - 1, sent, sent)


def switch_direct_all_to_all(V: Size, n: Size) -> Traffic:
    """All-to-all with all peers at once: 1 step, port V(n-1)/n^2."""
    sent = wire("all_to_all", V, n)
    return evenly(where_many(n, 1), sent, sent)


def permute(V: Size, n: Size) -> Traffic:
    """Every device sends its shard to one other device beside it: 1 step, V/n; nothing at n = 1."""
    sent = where_many(n, over(V, n))
    return Traffic(where_many(n, 1), wire("permute", V, n), sent, sent, sent)


# Several groups, axes and levels ---------------------------------------------------------------------------------


def strided(traffic: Traffic, groups: Size) -> Traffic:
    """The same run by `groups` interleaved groups at once: each link of one is `groups` links that all of them use."""
    return Traffic(
        traffic.steps * groups,
        traffic.wire,
        traffic.carried * groups,
        traffic.link_total * groups,
        traffic.link_serial * groups,
    )


def in_turn(runs: Sequence[Traffic]) -> Traffic:
    """Runs on links of their own, one after another: seconds add up, the busiest link is one of them."""
    return Traffic(
        total(run.steps for run in runs),
        total(run.wire for run in runs),
        total(run.carried for run in runs),
        largest(*(run.link_total for run in runs)),
        total(run.link_serial for run in runs),
    )


class FlatRing(NamedTuple):
    """A ring over all devices of M nodes of g: what a device's port inside the node and its NIC carry."""

    inner_steps: Any
    outer_steps: Any
    port: Any
    nic: Any


def flat_ring_gather(V: Size, g: Size, nodes: Size) -> FlatRing:
    """All-gather or reduce-scatter round one ring per rail over all devices: both kinds of links work at once.

    NIC V(n-1)/(g n), port V(g-1)(n-1)/(g n), n = g*nodes; n-1 steps. A chunk that starts inside a node waits for a NIC
    `nodes` times, with one device per node nodes-1 times.
    A single node sends nothing over its NICs: its ring is closed inside.
    """
    n = g * nodes
    sent = wire("all_gather", V, n)
    nic = where_many(nodes, over(sent, g))
    crossings = where_many(nodes, nodes - 1 + where_many(g, 1))
    return FlatRing(n - 1 - crossings, crossings, sent - nic, nic)


def own_share(kind: MoveKind, V: Size, n: Size) -> Any:
    """Bytes that a device passes on to itself: its shard of V/n, of an all-to-all its chunk of V/n^2; 0 if n = 1.

    None of a permute, in which nobody keeps anything.
    """
    if kind == "permute":
        return None
    return where_many(n, over(V, n * n if kind == "all_to_all" else n))


def direct_all_to_all_port(V: Size, g: Size, nodes: Size) -> Any:
    """Bytes that a device sends to the g-1 others of its node in an all-to-all straight to everyone: V(g-1)/n^2."""
    n = g * nodes
    return over(V * (g - 1), n * n)


def direct_all_to_all_nic(V: Size, g: Size, nodes: Size) -> Any:
    """Bytes that a device sends to other nodes in an all-to-all straight to everyone: V(M-1)/(g M^2)."""
    return over(V * (nodes - 1), g * nodes * nodes)
