"""Every collective algorithm as one value: its closed forms, the levels it runs on, what it needs, its other names.

All else looks things up here: what a profile may offer, what can be forced, the ways that are compared, what a lock
samples, and the names by which libraries call them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tpsim.machine import cable_forms, forms, torus_forms
from tpsim.machine.algorithm import Across, Algorithm, Crossing, Forms, Levels
from tpsim.machine.forms import Form, Traffic, twice
from tpsim.quantity.size import Size, largest, over, total

if TYPE_CHECKING:
    from tpsim.algebra.moves import MoveKind
    from tpsim.machine.torus_forms import TorusAxis


def _gathers(gather: Form, all_reduce: Form | None = None) -> Forms:
    """A gather, the scatter that is the gather run backwards, and an all-reduce: None for both after one another."""
    return {"all_gather": gather, "reduce_scatter": gather, "all_reduce": all_reduce or twice(gather)}


def _exchange(form: Form) -> Forms:
    return {"all_to_all": form}


def _sum(form: Form) -> Forms:
    return {"all_reduce": form}


# Over two levels together ----------------------------------------------------------------------------------------


def _flat_ring(at: Levels) -> Crossing:
    """One ring over all devices of all nodes; ports and NICs work at once."""
    inner, outer = at.links
    ring = forms.flat_ring_gather(at.V, at.inner.n, at.outer.n)
    halves = 2 if at.kind == "all_reduce" else 1
    sent = (halves * ring.port, halves * ring.nic)
    port, nic = at.busiest(sent)
    latency = halves * (ring.inner_steps * inner.hop_s + ring.outer_steps * outer.hop_s)
    fills = over(port, inner.bandwidth), over(nic, outer.bandwidth)
    steps, beside = halves * (ring.inner_steps + ring.outer_steps), {"uplink": at.uplink(sent), "fills": fills}
    return Crossing(latency, largest(*fills), steps, total(sent), largest(port, nic), at.own, **beside)


def _pairwise(at: Levels) -> Crossing:
    """All-to-all with one peer after the other, those in the node by the ports, the others by the NICs."""
    (inner, outer), g, nodes = at.links, at.inner.n, at.outer.n
    sent = (forms.direct_all_to_all_port(at.V, g, nodes), forms.direct_all_to_all_nic(at.V, g, nodes))
    busiest = at.busiest(sent)
    port = sent[0] if at.inner.topology == "mesh" else busiest[0]  # on a mesh one cable after another
    latency = (g - 1) * inner.hop_s + g * (nodes - 1) * outer.hop_s
    fills = over(port, inner.bandwidth), over(busiest[1], outer.bandwidth)
    totals = (at.n - 1, total(sent), largest(*busiest), at.own, largest(port, busiest[1]))
    return Crossing(latency, total(fills), *totals, at.uplink(sent), fills)


def _summed_under(between: Form) -> Callable[[Levels], Crossing]:
    """Sums inside the nodes' switches, and what each device then holds summed `between` the nodes, all streamed."""

    def run(at: Levels) -> Crossing:
        inner, outer = at.links
        inside, above = forms.switch_in_switch(at.V, at.inner.n), between(over(at.V, at.inner.n), at.outer.n)
        sent = (inside.link_total, above.link_total)
        latency = inside.steps * inner.hop_s + above.steps * outer.hop_s
        fills = over(sent[0], inner.bandwidth), over(sent[1], outer.bandwidth)
        steps, carried = inside.steps + above.steps, inside.carried + above.carried
        busiest, beside = largest(*at.busiest(sent)), {"uplink": at.uplink(sent), "fills": fills}
        return Crossing(latency, largest(*fills), steps, carried, busiest, None, **beside)

    return run


def _all_of_it(V: Any, _: Any) -> Any:
    """A message of a streamed way goes through all steps whole."""
    return V


REDUCED: frozenset[MoveKind] = frozenset({"all_reduce"})
GATHERED: frozenset[MoveKind] = frozenset({"all_gather", "reduce_scatter", "all_reduce"})

EVERY = (
    Algorithm(
        name="ring",
        forms={
            "ring": _gathers(forms.ring_gather),
            "one_way_ring": {**_gathers(forms.one_way_gather), **_exchange(forms.one_way_all_to_all)},
            "switch": _gathers(forms.one_way_gather),
            "mesh": _gathers(cable_forms.mesh_gather),
            "host": _gathers(cable_forms.host_gather),
        },
        plain=True,
        nccl=("ring",),
        on_nodes="flat-ring",
    ),
    Algorithm(name="two-rings", forms={"ring": _gathers(forms.two_rings_gather)}),
    Algorithm(name="line", forms={"line": _gathers(forms.line_gather, forms.line_all_reduce)}, plain=True),
    Algorithm(name="shortest", forms={"ring": _exchange(forms.ring_all_to_all)}, plain=True),
    Algorithm(name="shortest-unsplit", forms={"ring": _exchange(forms.ring_all_to_all_unsplit)}),
    Algorithm(name="lockstep", forms={"line": _exchange(forms.line_all_to_all_lockstep)}, plain=True),
    Algorithm(name="farthest-first", forms={"line": _exchange(forms.line_all_to_all)}, plain=True),
    Algorithm(
        name="all-peers", forms={"mesh": _exchange(cable_forms.mesh_direct_all_to_all)}, plain=True, met_as="pairwise"
    ),
    Algorithm(
        name="pairwise",
        forms={
            "switch": _exchange(forms.switch_pairwise_all_to_all),
            "mesh": _exchange(cable_forms.mesh_pairwise_all_to_all),
            "host": _exchange(cable_forms.host_pairwise_all_to_all),
        },
        across=Across(moves=frozenset({"all_to_all"}), run=_pairwise, message=lambda V, n: over(V, n**2)),
        plain=True,
    ),
    Algorithm(
        name="direct",
        forms={
            "switch": {**_gathers(forms.switch_direct_gather), **_exchange(forms.switch_direct_all_to_all)},
            "mesh": _gathers(cable_forms.mesh_direct_gather),
        },
    ),
    Algorithm(name="doubling", forms={"switch": _gathers(forms.switch_doubling_gather)}),
    Algorithm(
        name="pat",  # NCCL's parallel aggregated trees: the messages of doubling, with latencies of its own
        forms={
            "switch": {
                "all_gather": forms.switch_doubling_gather,
                "reduce_scatter": forms.switch_doubling_gather,
            }
        },
        nccl=("pat",),
    ),
    Algorithm(
        name="one-shot",
        forms={"switch": _sum(forms.switch_one_shot), "mesh": _sum(cable_forms.mesh_one_shot)},
        copies=True,
    ),
    Algorithm(
        name="in-switch",
        forms={"switch": _sum(forms.switch_in_switch)},
        hardware=True,
        streamed=True,
        copies=True,
        nccl=("nvls",),
        on_nodes="in-switch-network",
    ),
    Algorithm(
        name="in-network",
        forms={"switch": _sum(forms.switch_in_network)},
        hardware=True,
        copies=True,
        nccl=("collnet", "collnetdirect", "collnetchain"),
    ),
    Algorithm(name="tree", forms={"switch": _sum(forms.switch_tree)}, streamed=True, nccl=("tree",)),
    Algorithm(
        name="rotated",
        torus={
            "all_gather": torus_forms.torus_gather,
            "reduce_scatter": torus_forms.torus_gather,
            "all_reduce": torus_forms.torus_all_reduce,
            "all_to_all": torus_forms.torus_all_to_all,
        },
        plain=True,
        streamed=True,
    ),
    Algorithm(
        name="in-turn",
        torus={
            "all_gather": torus_forms.torus_gather_in_turn,
            "reduce_scatter": torus_forms.torus_gather_in_turn,
            "all_reduce": torus_forms.torus_all_reduce_in_turn,
            "all_to_all": torus_forms.torus_all_to_all_in_turn,
        },
    ),
    Algorithm(name="flat-ring", across=Across(moves=GATHERED, needs=("", "flat-ring"), run=_flat_ring)),
    Algorithm(
        name="in-switch-tree",
        across=Across(
            moves=REDUCED,
            needs=("in-switch", "in-switch-tree"),
            met_as=("in-switch", ""),
            run=_summed_under(forms.switch_tree),
            message=_all_of_it,
            made_of=("in-switch", "tree"),
        ),
        streamed=True,
        copies=True,
        nccl=("nvlstree",),
    ),
    Algorithm(
        name="in-switch-network",
        across=Across(
            moves=REDUCED,
            needs=("in-switch", "in-switch-network"),
            met_as=("in-switch", ""),
            run=_summed_under(forms.switch_in_network),
            message=_all_of_it,
            made_of=("in-switch", "in-network"),
        ),
        streamed=True,
        copies=True,
    ),
    Algorithm(
        name="direct-in-network",  # NCCL's CollNetDirect: src/device/all_reduce.h, scatter, sum in the network, gather
        across=Across(moves=REDUCED, needs=("", "in-network"), in_turn=("direct", "in-network")),
        copies=True,
    ),
    Algorithm(
        name="permute",
        forms={
            **{joined: {"permute": forms.permute} for joined in ("ring", "one_way_ring", "line", "switch", "mesh")},
            "host": {"permute": cable_forms.host_permute},
        },
        torus={"permute": torus_forms.torus_permute},
        plain=True,
        streamed=True,
        met_as="pairwise",  # sends and receives, as all-to-alls are: NCCL, src/device/sendrecv.h
    ),
)
"""Every algorithm, in the order in which they are compared: of equal ones the first is taken."""

ALGORITHMS: Mapping[str, Algorithm] = {algorithm.name: algorithm for algorithm in EVERY}
"""The same by their names."""

HIERARCHICAL = "hierarchical"
"""What a run is called that takes the levels in turn, each with whatever is best there."""


def _joined() -> dict[str, dict[MoveKind, dict[str, Form]]]:
    forms: dict[str, dict[MoveKind, dict[str, Form]]] = {}
    for algorithm in EVERY:
        for topology, moves in algorithm.forms.items():
            for kind, form in moves.items():
                forms.setdefault(topology, {}).setdefault(kind, {})[algorithm.name] = form
    return forms


FORMS: Mapping[str, Mapping[MoveKind, Mapping[str, Form]]] = _joined()
"""Every closed form of one axis, by how its devices are joined and what is moved."""

TORUS_FORMS: Mapping[MoveKind, Mapping[str, Callable[[Size, Sequence[TorusAxis]], Traffic]]] = {
    kind: {algorithm.name: algorithm.torus[kind] for algorithm in EVERY if kind in algorithm.torus}
    for kind in ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute")
}
"""Every closed form of several axes of one torus that no other group shares."""

ACROSS: Mapping[str, Across] = {algorithm.name: algorithm.across for algorithm in EVERY if algorithm.across is not None}
"""Ways over two levels."""

STREAMED = frozenset(algorithm.name for algorithm in EVERY if algorithm.streamed)
"""Algorithms that run in many small pieces."""

NCCL: Mapping[str, str] = {word: algorithm.name for algorithm in EVERY for word in algorithm.nccl}
"""NCCL's names of algorithms in small letters, in tpsim's."""

OFFERED = frozenset(algorithm.name for algorithm in EVERY if algorithm.forms or algorithm.across)
"""Every algorithm that a level of a profile may offer."""
