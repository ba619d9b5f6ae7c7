"""Deliberate faults: bytes on wires, and their seconds."""

from __future__ import annotations

from dataclasses import replace

from tests.faults.fault import Fault, given, gives
from tpsim.fabric import change, placement, wires
from tpsim.machine import additive, combined, curve, forms, groups, permutes, timing
from tpsim.machine.algorithms import GATHERED
from tpsim.machine.cost import Derived
from tpsim.machine.ways import ProtocolWays
from tpsim.quantity.size import largest, over, product, where_many


def part_closes(right):
    """The ends of a part are joined as those of the whole are."""
    return lambda levels, carrier, pieces: replace(right(levels, carrier, pieces), topology=carrier.topology)


def sees(gathered, part):
    """A level that sees another part of the array, of a gather or else of an exchange.

    part  makes it of the bytes, and of the devices inside of the level, on it and outside
    """

    def wrong(right):
        def on_level(ways, at, V):
            n = [group.n for group in ways.groups]
            seen = part(V, product(n[:at]), n[at], product(n[at + 1 :]))
            return right(ways, at, seen if (ways.kind in GATHERED) == gathered else V)

        return on_level

    return wrong


def but(way, **numbers):
    """A way of which some numbers are others."""
    return Derived(way.algorithm, way.protocol, lambda name: numbers[name] if name in numbers else getattr(way, name))


def steps_of_the_longest(right):
    """Steps of levels in turn as if they were taken at once."""
    return lambda costs, *others: but(right(costs, *others), steps=largest(*(cost.steps for cost in costs)))


def by_nodes(right):
    """What a flat ring sends is divided among as many cards as there are nodes."""

    def flat_ring_gather(V, g, nodes):
        ring = right(V, g, nodes)
        sent = ring.port + ring.nic
        nic = where_many(nodes, over(sent, nodes))
        return ring._replace(port=sent - nic, nic=nic)

    return flat_ring_gather


def longer_way_round(right):
    """On a ring blocks go the other way."""

    def ways(topology, n, here, there):
        shortest = right(topology, n, here, there)
        return tuple((-way, n - hops) for way, hops in shortest) if topology == "ring" else shortest

    return ways


def paid_alone(right):
    """The launch is paid however few the devices are."""

    def single(ways, at, offer, *moved):
        cost = right(ways, at, offer, *moved)
        return cost._replace(launch_s=offer.launch_s + cost.link.latency_s(ways.groups[at].n))

    return single


def of_any_ranks(right):
    """A curve is taken for one of as many ranks as there are."""
    return lambda measured, here: right(tuple(replace(own, n=wires.ranks(here)) for own in measured), here)


def as_predicted(measured):
    """A curve whose knots say what the constants say."""
    return replace(measured, knots=tuple(replace(knot, fitted=knot.predicted) for knot in measured.knots))


FAULTS = [
    # Wires
    Fault(
        "interleaved groups have links of their own",
        forms.strided,
        given(groups=lambda _: 1),
        "links of interleaved groups",
        "carried",
    ),
    Fault("a part of a ring closes", placement._segment, part_closes, "verify inner part of a ring", "not beside"),
    Fault(
        "the stride of a part is lost",
        placement._segment,
        gives(lambda segment: replace(segment, stride=1)),
        "verify outer part of a ring",
        "not beside",
    ),
    Fault(
        "every axis of more than two closes",
        wires.Wrap.closes,
        given(self=lambda wrap: wrap.model_copy(update={"always": True})),
        "machines_close_what_their_makers_say",
        "('tpu-v5e', 8)",
    ),
    Fault(
        "an inner level sees the whole array",
        ProtocolWays._part,
        sees(gathered=True, part=lambda V, inside, _own, _outside: V * inside),
        "links of a gather level by level",
        "carried",
    ),
    Fault(
        "a gather goes from inside out",
        ProtocolWays._part,
        sees(gathered=True, part=lambda V, inside, _own, outside: over(V * inside, outside)),
        "links of a gather level by level",
        "link_total",
    ),
    Fault(
        "an exchange sees a share too small at every level",
        ProtocolWays._part,
        sees(gathered=False, part=lambda V, _inside, own, _outside: over(V, own)),
        "links of an exchange level by level",
        "carried",
    ),
    Fault(
        "a way run twice takes its steps once",
        combined.twice,
        lambda right: lambda cost, link_total: but(right(cost, link_total), steps=cost.steps),
        "links of an all-reduce level by level",
        "steps",
    ),
    Fault(
        "levels in turn take the steps of the longest",
        combined.chained,
        steps_of_the_longest,
        "links of a gather level by level",
        "steps",
    ),
    Fault(
        "a way run twice carries its bytes once",
        combined.twice,
        lambda right: lambda cost, link_total: but(right(cost, link_total), carried=cost.carried),
        "links of an all-reduce level by level",
        "carried",
    ),
    Fault(
        "a flat ring of one node closes over its card",
        forms.flat_ring_gather,
        by_nodes,
        "links of a flat ring",
        "link_total",
    ),
    Fault(
        "an exchange over cards forgets who shares the node",
        forms.direct_all_to_all_nic,
        given(g=lambda _: 1),
        "links of an exchange straight to everyone",
        "link_total",
    ),
    Fault(
        "axes with closed ends gather first",
        groups.LevelGroup.torus,
        gives(lambda axes: tuple(sorted(axes, key=lambda axis: not axis.closed))),
        "links of open and closed axes",
        "link_total",
    ),
    Fault(
        "a block goes the longer way round",
        permutes._shortest,
        longer_way_round,
        "a_change_of_axes_loads_real_links_as_claimed",
        "broken",
    ),
    Fault(
        "a block goes whole both ways round",
        permutes._leg,
        gives(lambda leg: (leg[0], tuple((link, permutes.HALVES) for link, _ in leg[1]))),
        "a_change_of_axes_loads_real_links_as_claimed",
        "broken",
    ),
    Fault(
        "a block waits in its node for the right card",
        permutes._straight,
        gives(lambda outermost: [-1] * len(outermost)),
        "a_change_of_axes_loads_real_links_as_claimed",
        "broken",
    ),
    Fault(
        "blocks go where they came from",
        change.Change.targets,
        gives(lambda targets: targets[::-1]),
        "a_change_of_axes_loads_real_links_as_claimed",
        "broken",
    ),
    Fault("a launch is paid among one device", ProtocolWays._single, paid_alone, "one_device_pays_nothing", "dgx-h100"),
    Fault(
        "a measured curve holds for other ranks",
        curve._same,
        of_any_ranks,
        "a_measured_curve_says_what_was_measured_and_nothing_else",
        "elsewhere {'route'",
    ),
    Fault(
        "a measured curve holds for a forced algorithm",
        additive.Choice.forced,
        given(self=lambda choice: choice._replace(algorithm=None)),
        "a_measured_curve_says_what_was_measured_and_nothing_else",
        "elsewhere {'algorithm'",
    ),
    Fault(
        "a measured curve holds for another harness",
        timing._launched_alike,
        lambda _: lambda _machine, _curve, launch: not isinstance(launch, int | float),
        "a_measured_curve_says_what_was_measured_and_nothing_else",
        "elsewhere {'launch'",
    ),
    Fault(
        "between knots the predicted time brings more than was measured",
        curve._powers,
        gives(lambda powers: (1, powers[1])),
        "a_measured_curve_says_what_was_measured_and_nothing_else",
        "knot 1048576",
    ),
    Fault(
        "a profile's curve is not carried to its own constants",
        curve.MeasuredCurve.scaled_to,
        given(self=as_predicted),
        "a_measured_curve_says_what_was_measured_and_nothing_else",
        "knot 4096",
    ),
]
