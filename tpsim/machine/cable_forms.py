"""Closed forms with a cable between each two devices, and through the path of their host, as in forms.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tpsim.machine.forms import (
    Traffic,
    one_way_gather,
    permute,
    switch_direct_all_to_all,
    switch_direct_gather,
    switch_one_shot,
    switch_pairwise_all_to_all,
)
from tpsim.quantity.size import Size, largest, over, where_many


def mesh_gather(V: Size, n: Size) -> Traffic:
    """All-gather or reduce-scatter round rings at once that use all cables alike: n-1 steps, cable V/n.

    For odd n the n-1 rings share no cable; for even n 2(n-1) rings with half the bytes cross each cable twice.
    """
    return _on_links(one_way_gather(V, n), where_many(n, over(V, n)))


def mesh_direct_gather(V: Size, n: Size) -> Traffic:
    """All-gather or reduce-scatter with every chunk sent straight to its place: 1 step, cable V/n."""
    return _on_links(switch_direct_gather(V, n), where_many(n, over(V, n)))


def mesh_one_shot(V: Size, n: Size) -> Traffic:
    """All-reduce in which everyone sends everything to everyone: 1 step, cable V."""
    return _on_links(switch_one_shot(V, n), where_many(n, V))


def mesh_pairwise_all_to_all(V: Size, n: Size) -> Traffic:
    """All-to-all with one peer after the other: n-1 steps, each on a cable of its own: V/n^2, V(n-1)/n^2 in turn."""
    run = switch_pairwise_all_to_all(V, n)
    return Traffic(run.steps, run.wire, run.carried, where_many(n, over(V, n * n)), run.link_serial)


def mesh_direct_all_to_all(V: Size, n: Size) -> Traffic:
    """All-to-all with all peers at once: 1 step, cable V/n^2."""
    return _on_links(switch_direct_all_to_all(V, n), where_many(n, over(V, n * n)))


def host_gather(V: Size, n: Size) -> Traffic:
    """All-gather or reduce-scatter round a ring through the host: its path carries all V(n-1), see `host_passes`."""
    return _on_links(one_way_gather(V, n), V * (n - 1) * host_passes(n))


def host_pairwise_all_to_all(V: Size, n: Size) -> Traffic:
    """All-to-all through the host: its path carries all V(n-1)/n, see `host_passes`."""
    run = switch_pairwise_all_to_all(V, n)
    return _on_links(run, over(V * (n - 1), n) * host_passes(n))._replace(piece=run.message)


def host_permute(V: Size, n: Size) -> Traffic:
    """`permute` through the host: its path carries all V, see `host_passes`."""
    run = permute(V, n)
    return _on_links(run, where_many(n, V * host_passes(n)))._replace(piece=run.message)


def host_passes(n: Size) -> Any:
    """How often a byte crosses the host's path: more than two members stage in its memory, in and out.

    Source: NCCL lets two GPUs of an AMD host write to each other, more of them only below a common PCIe switch
    (src/graph/paths.cc). docs/accuracy.md holds this law against other hosts and other laws.
    """
    return 1 + where_many(n - 1, 1)


def _on_links(run: Traffic, busiest: Any) -> Traffic:
    """The same messages over other links, the busiest of which is equally busy in every step."""
    return Traffic(run.steps, run.wire, run.carried, busiest, busiest)


BUSIEST: Mapping[str, Callable[[Size, Size], Any]] = {
    "switch": lambda sent, _: sent,
    "mesh": lambda sent, n: over(sent, largest(n - 1, 1)),
    "host": lambda sent, n: sent * n * host_passes(n),
}
"""Bytes on the busiest link of a level on which each of n members sends so many, evenly, to the others."""


def on_one_host(traffic: Traffic, groups: Size) -> Traffic:
    """The same run by `groups` groups of one host at once: its path carries them all, their steps coincide."""
    return traffic._replace(link_total=traffic.link_total * groups, link_serial=traffic.link_serial * groups)
