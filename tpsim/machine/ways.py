"""Every way in which one collective can run over several groups with one protocol, each with what it costs."""

from __future__ import annotations

from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.machine.algorithm import Crossing, Levels
from tpsim.machine.algorithms import ACROSS, ALGORITHMS, HIERARCHICAL
from tpsim.machine.combined import chained, least, most_excess, twice, where_more
from tpsim.machine.cost import Cost, TunedLink, Way, single
from tpsim.machine.forms import Traffic, own_share
from tpsim.machine.groups import LevelGroup, forms, named_forms, on_offer, traffic, wires_text
from tpsim.quantity.errors import InputError, unknown
from tpsim.quantity.size import Size, largest, over, product, where_many

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tpsim.algebra.moves import MoveKind
    from tpsim.fabric.change import Change

Launch = float | str | None
"""Seconds, the name of a harness, or the profile's default."""

Moved = dict[tuple[int, "MoveKind", str], "Mapping[str, tuple[Traffic, Any]]"]
"""By group, move and the algorithm that it must be: what algorithms put on the wires, and what stays."""


class Offer(NamedTuple):
    """An algorithm that runs on a level, which it meets as a link, with what a call costs whatever the way."""

    algorithm: str
    link: TunedLink
    launch_s: float


class ProtocolWays(NamedTuple):
    """One collective over several groups with one protocol.

    moved   what is the same for all protocols
    change  where a permute's blocks go; None: each to the device beside it
    each    the algorithm of every group, where these are told apart
    """

    groups: Sequence[LevelGroup]
    kind: MoveKind
    launch: Launch
    forced: str | None
    protocol: str
    moved: Moved
    change: Change | None = None
    each: tuple[str, ...] = ()

    def ways(self, V: Size) -> Iterator[Way]:
        """Every way on offer with this protocol."""
        if self.change is not None and len(self.groups) > 1:
            yield from self.changing(V, self.change)
            return
        if len(self.groups) == 1 or self.forced not in ACROSS:
            yield from self.level_by_level(V)
        for name in self._across:
            if self._takes(name):
                yield from self._over_both(name, V)

    def known(self, algorithm: str) -> bool:
        """True if some part of the run can use the algorithm."""
        return algorithm in self.names()

    def names(self) -> list[str]:
        """Every algorithm that could be forced."""
        several = self.kind == "all_reduce" and len(self.groups) > 1
        kinds: tuple[MoveKind, ...] = (self.kind, "all_gather") if several else (self.kind,)
        own = [name for group in self.groups for kind in kinds for name in forms(group, kind)]
        return list(dict.fromkeys([*own, *self._across, *([HIERARCHICAL] if len(self.groups) > 1 else [])]))

    def unknown(self) -> InputError:
        """The refusal of an algorithm that no part of the run has."""
        return unknown(self.forced or "", f"algorithm of {self.kind} on {wires_text(self.groups)}", self.names())

    @property
    def _across(self) -> list[str]:
        """The ways over both levels that are possible, if the route is two levels of switches."""
        if len(self.groups) != PAIR_OF_LEVELS or not all(group.switched for group in self.groups):
            return []
        inner, outer = self.groups
        key = ("across", inner.level.name, outer.level.name, self.kind)
        if key not in outer.links:
            has = ({"", *inner.level.algorithms}, {"", *outer.level.algorithms})
            outer.links[key] = [
                name
                for name, way in ACROSS.items()
                if self.kind in way.moves and way.needs[0] in has[0] and way.needs[1] in has[1]
            ]
        return outer.links[key]  # type: ignore[no-any-return]  # names

    def _takes(self, name: str) -> bool:
        """True for a way that is forced; of ways that are not, for plain ones and those of the outer level."""
        return self.forced == name or (
            self.forced is None and (ALGORITHMS[name].plain or name in self.groups[-1].level.algorithms)
        )

    def level_by_level(self, V: Size, name: str = HIERARCHICAL) -> Iterator[Way]:
        """Each group in turn on the part of the array that reaches it."""
        if len(self.groups) == 1:
            yield from self._ways(0, self.kind, V)
            return
        every = (self._part(at, V) for at in range(len(self.groups)))
        parts = [part for part in takewhile(lambda part: part is not None, every) if part]
        if len(parts) == len(self.groups):
            hidden = self.groups[-1].level.pipelined
            levels = [group.level.name for group in self.groups]
            yield chained(parts, name, levels, 0.0 if hidden is None else hidden.value)

    def _part(self, at: int, V: Size) -> Way | None:
        """One group's share of the run; None if its level cannot do it with this protocol.

        Gathers come from outside in, scatters go from inside out: a level sees what is left per inner shard. An
        all-to-all exchanges the same bytes at every level. An all-reduce scatters and gathers on all but the
        outermost level, which reduces. A permuted shard goes through every level.
        """
        group = self.groups[at]
        if self.kind in {"all_to_all", "permute"}:
            everyone = product(group.n for group in self.groups)
            return self._least(at, self.kind, over(V * group.n, everyone))
        here = over(V, product(group.n for group in self.groups[:at]))
        outside = self.groups[at + 1 :]
        if self.kind != "all_reduce" or not outside:
            return self._least(at, self.kind, here)
        both = named_forms(group, "all_reduce")
        halves = [
            twice(half, partial(_link_total, group, half.algorithm, here))
            for half in self._ways(at, "all_gather", here)
            if half.algorithm in both
        ]
        rest = product(group.n for group in outside)
        if not halves or (isinstance(rest, int) and rest > 1):
            return least(halves) if halves else None
        whole = self._least(at, self.kind, here)
        return None if whole is None else where_more(rest, least(halves), whole)

    def _least(self, at: int, kind: MoveKind, V: Size) -> Way | None:
        ways = self._ways(at, kind, V)
        return least(ways) if ways else None

    def _ways(self, at: int, kind: MoveKind, V: Size) -> list[Way]:
        """Every algorithm of one level that runs with this protocol."""
        group = self.groups[at]
        only = self.each[at] if self.each else self.forced or ""
        key = (at, kind, only)
        if key not in self.moved:
            self.moved[key] = self._moved(group, kind, V, only)
        moved = self.moved[key]
        return [self._single(at, offer, *moved[offer.algorithm]) for offer in self._offers(group, tuple(moved))]

    def _offers(self, group: LevelGroup, names: tuple[str, ...]) -> list[Offer]:
        """Of these algorithms those that run with this protocol."""
        alone = self.forced is None and not self.each and len(self.groups) == PAIR_OF_LEVELS
        key = ("offers", group.level.name, names, self.protocol, self.launch, alone)
        if key not in group.links:
            met = [(name, group.link(name, self.protocol)) for name in names if not (alone and _alone(group, name))]
            group.links[key] = [Offer(name, link, self._harness_s(link)) for name, link in met if link is not None]
        return group.links[key]  # type: ignore[no-any-return]  # offers

    def _moved(self, group: LevelGroup, kind: MoveKind, V: Size, only: str) -> dict[str, tuple[Traffic, Any]]:
        """Per algorithm on offer its traffic, and the bytes that a device sends to itself beside it."""
        if self.change is not None:
            from tpsim.machine.permutes import changing

            return {CHANGE: (changing([group.segments], V, self.change).whole, None)}
        own, forced = own_share(kind, V, group.n), bool(only) and only in named_forms(group, kind)
        names = [only] if forced else [] if self.each else on_offer(group, kind)
        return {name: (traffic(group, kind, name, V), None if ALGORITHMS[name].hardware else own) for name in names}

    def _single(self, at: int, offer: Offer, traffic: Traffic, own: Any) -> Cost:
        """An algorithm on one level; a small message is not spread over a node's cards, so that all of it goes by one.

        own  bytes that a device sends to itself
        """
        group, inside = self.groups[at], self.groups[:at]
        link = group.sharing(offer.link).sending(lambda: traffic.message * product(other.n for other in inside))
        launch = where_many(group.n, offer.launch_s + link.latency_s(group.n))
        return single(link, (offer.algorithm, self.protocol), traffic, own, launch)

    def _harness_s(self, link: TunedLink) -> float:
        """What a call costs whatever the way: the launch of the harness."""
        level = link.level
        if isinstance(self.launch, int | float):
            return float(self.launch)
        if self.launch is None and link.figures.launch is not None:
            return link.figures.launch  # type: ignore[no-any-return]  # a number
        launch = level.launched(self.launch)
        if launch is None:
            raise unknown(str(self.launch), f"launch of {level.name}", level.launch)
        return launch.value

    def _over_both(self, name: str, V: Size) -> Iterator[Way]:
        way, (inner, outer) = ACROSS[name], self.groups
        if way.in_turn is not None:
            yield from self._replace(forced=None, each=way.in_turn).level_by_level(V, name)
        if way.run is None:
            return
        n = inner.n * outer.n
        met_as = [algorithm or name for algorithm in way.met_as]

        def message() -> Any:
            return way.message(V, n)

        links = self._links(met_as, message)
        if links is not None:
            at = Levels(self.kind, V, inner.segments[0], outer.segments[0], (links[0], links[1]))
            yield self._crossed(name, links, message, way.run(at))

    def changing(self, V: Size, change: Change) -> Iterator[Way]:
        """Every block the shortest way to its place; the levels work at once."""
        from tpsim.machine.permutes import changing

        run = changing([group.segments for group in self.groups], V, change)
        links = self._links([CHANGE] * len(self.groups), lambda: run.whole.message)
        if links is None:
            return
        spent = zip(run.parts, run.uplinks, links, strict=True)
        fills = tuple([link.level.passing_s(part.link_total, up, link.figures.efficiency) for part, up, link in spent])
        latency, whole = run.latency_s([link.hop_s for link in links]), run.whole
        totals = (whole.steps, whole.carried, whole.link_total)
        crossing = Crossing(latency, largest(*fills), *totals, None, uplink=largest(*run.uplinks), fills=fills)
        yield self._crossed(CHANGE, links, lambda: run.whole.message, crossing)

    def _links(self, names: Sequence[str], message: Callable[[], Any]) -> tuple[TunedLink, ...] | None:
        """All levels as algorithms meet them; None if one cannot run its own with this protocol."""
        links = [group.link(name, self.protocol) for group, name in zip(self.groups, names, strict=True)]
        met = zip(self.groups, links, strict=True)
        usable = tuple([group.sharing(link).sending(message) for group, link in met if link is not None])
        return usable if len(usable) == len(links) else None

    def _crossed(self, name: str, links: tuple[TunedLink, ...], message: Callable[[], Any], crossing: Crossing) -> Cost:
        met = zip(self.groups, links, strict=True)
        launches = [where_many(group.n, self._harness_s(link) + link.latency_s(group.n)) for group, link in met]
        serial = crossing.busiest if crossing.serial is None else crossing.serial
        ramp = links[0].ramp(crossing.own, crossing.bandwidth)
        excess = most_excess(link.excess(message) for link in links)
        work = crossing.latency + crossing.bandwidth + ramp
        seconds = (largest(*launches), crossing.latency, crossing.bandwidth, work, work)
        totals = (crossing.steps, crossing.carried, crossing.busiest, serial)
        levels = [group.level.name for group in self.groups]
        beside = {"protocol": self.protocol, "uplink": crossing.uplink, "excess": excess}
        return Cost(
            name, *seconds, *totals, ramp_s=ramp, fills=tuple(zip(levels, crossing.fills, strict=True)), **beside
        )


def _alone(group: LevelGroup, name: str) -> bool:
    """True for a way that serves this level only where it is the only one, unless it is forced."""
    tuning = group.level.algorithms.get(name)
    return tuning is not None and tuning.alone


def _link_total(group: LevelGroup, algorithm: str, V: Size) -> Any:
    """What the busiest link of a group carries in an all-reduce."""
    return traffic(group, "all_reduce", algorithm, V).link_total


CHANGE = "permute"
"""What a change of axes is called, which runs over all levels together."""

PAIR_OF_LEVELS = 2
