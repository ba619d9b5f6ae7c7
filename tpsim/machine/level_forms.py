"""Closed forms over two levels at once: what a device's port inside its node and its NIC carry."""

from __future__ import annotations

from typing import Any, NamedTuple

from tpsim.algebra.moves import MoveKind, wire
from tpsim.quantity.size import Size, over, where_many


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
    if kind in {"permute", "slice"}:
        return None
    return where_many(n, over(V, n * n if kind == "all_to_all" else n))


def direct_all_to_all_port(V: Size, g: Size, nodes: Size) -> Any:
    """Bytes that a device sends to the g-1 others of its node in an all-to-all straight to everyone: V(g-1)/n^2."""
    n = g * nodes
    return over(V * (g - 1), n * n)


def direct_all_to_all_nic(V: Size, g: Size, nodes: Size) -> Any:
    """Bytes that a device sends to other nodes in an all-to-all straight to everyone: V(M-1)/(g M^2)."""
    return over(V * (nodes - 1), g * nodes * nodes)
