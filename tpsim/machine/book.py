"""The cost model `book`: the greater of steps*latency and the bandwidth term of How to Scale Your Model.

The book's W is both directions of one axis, 2w here. A closed ring is charged V/W whatever its size; lines and switches
carry their finite factor, as in the book. Levels work at once: the slowest counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpsim.machine.combined import by_level
from tpsim.machine.cost import FREE, Cost, LevelFigures, TunedLink
from tpsim.machine.forms import Traffic, in_turn
from tpsim.machine.groups import LevelGroup, forms
from tpsim.machine.permutes import changing
from tpsim.quantity.size import Size, largest, over, product, total, where_many

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpsim.algebra.moves import MoveKind
    from tpsim.fabric.change import Change
    from tpsim.fabric.wires import Segment


def cost(groups: Sequence[LevelGroup], kind: MoveKind, V: Size, change: Change | None = None) -> Cost:
    """What the book charges for a collective over these groups; `change` says where a permute's blocks go."""
    if not groups:
        return FREE
    if change is not None:
        return _changing(groups, V, change)
    halves = 2 if kind == "all_reduce" else 1
    half: MoveKind = "all_gather" if kind == "all_reduce" else kind
    volumes = [_volume(groups, at, kind, V) for at in range(len(groups))]
    runs = [_traffic(group, half, volume) for group, volume in zip(groups, volumes, strict=True)]
    links = [TunedLink(LevelFigures(group.level), sharing=group.segments[0].sharing) for group in groups]
    latency = total(halves * run.steps * link.hop_s for run, link in zip(runs, links, strict=True))
    terms = [
        over(halves * _bytes(group, half, volume, run), link.port)
        for group, volume, run, link in zip(groups, volumes, runs, links, strict=True)
    ]
    bandwidth = largest(*terms)
    moved = [_traffic(group, kind, volume) for group, volume in zip(groups, volumes, strict=True)]
    serial = by_level([run.link_serial for run in moved], [group.level.name for group in groups])
    whole, work = in_turn(moved), largest(latency, bandwidth)
    totals = (whole.steps, whole.carried, whole.link_total, serial)
    uplink = largest(*(link.uplink(run.link_total) for link, run in zip(links, moved, strict=True)))
    return Cost("book", 0, latency, bandwidth, work, work, *totals, uplink=uplink, fills=_fills(groups, terms))


def formulas(groups: Sequence[LevelGroup], kind: MoveKind) -> Iterator[str]:
    """Every closed form that `cost` reads, by its name in a lock: ``form.ring.all_gather.ring``; some twice."""
    made_of: tuple[MoveKind, ...] = ("all_gather", "all_reduce") if kind == "all_reduce" else (kind,)
    yield from (f"form.{group.wires}.{of}.{next(iter(forms(group, of)))}" for group in groups for of in made_of)


def _changing(groups: Sequence[LevelGroup], V: Size, change: Change) -> Cost:
    """A change of axes: the hops of the longest way, and the busiest link of the slowest level."""
    run = changing([group.segments for group in groups], V, change)
    latency = run.latency_s([LevelFigures(group.level).hop_latency for group in groups])
    slowest = zip(run.parts, run.uplinks, groups, strict=True)
    terms = [group.level.passing_s(part.link_total, up) for part, up, group in slowest]
    bandwidth, whole = largest(*terms), run.whole
    work, uplink = largest(latency, bandwidth), largest(*run.uplinks)
    totals = (whole.steps, whole.carried, whole.link_total, whole.link_serial)
    return Cost("book", 0, latency, bandwidth, work, work, *totals, uplink=uplink, fills=_fills(groups, terms))


def _fills(groups: Sequence[LevelGroup], terms: Sequence[Any]) -> tuple[tuple[str, Any], ...]:
    """What the links of each level are full with, by its name."""
    return tuple(zip((group.level.name for group in groups), terms, strict=True))


def _volume(groups: Sequence[LevelGroup], at: int, kind: MoveKind, V: Size) -> Any:
    """The bytes that a level sees: what is left per inner shard; in an all-to-all its share of the exchange."""
    if kind in {"all_to_all", "permute"}:
        return over(V * groups[at].n, product(group.n for group in groups))
    return over(V, product(group.n for group in groups[:at]))


def _traffic(group: LevelGroup, kind: MoveKind, V: Size) -> Traffic:
    """The plain algorithm, for its steps and its bytes."""
    plain = next(iter(forms(group, kind).values()))
    return plain(V)


def _bytes(group: LevelGroup, kind: MoveKind, V: Size, run: Traffic) -> Any:
    """What the book divides by the bandwidth of one link in one direction."""
    topologies = {segment.topology for segment in group.segments}
    if kind == "all_to_all" and topologies <= {"ring", "line"}:
        return largest(*(_exchange(group, segment, V) for segment in group.segments))
    if kind in {"all_gather", "reduce_scatter"} and topologies == {"ring"}:
        links = total(where_many(segment.n, 2) for segment in group.segments)
        return where_many(group.n, over(V * group.segments[0].stride, largest(links, 1)))
    return run.link_serial


def _exchange(group: LevelGroup, segment: Segment, V: Size) -> Any:
    """An all-to-all along one axis: V/4W on a closed ring, twice that on a line."""
    here = over(V * segment.n * segment.stride, group.n)
    return where_many(segment.n, over(here, 8 if segment.topology == "ring" else 4))
