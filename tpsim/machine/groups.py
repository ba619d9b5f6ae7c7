"""Levels as collectives meet them: the segments of a route in groups, and the closed forms that each has."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from tpsim.fabric.wires import Segment, joined
from tpsim.machine.algorithms import ALGORITHMS, FORMS, TORUS_FORMS
from tpsim.machine.cable_forms import on_one_host
from tpsim.machine.cost import PLAIN, TunedLink, tuned
from tpsim.machine.forms import Traffic, strided
from tpsim.machine.torus_forms import TorusAxis
from tpsim.quantity.errors import InputError
from tpsim.quantity.size import Size, product

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from tpsim.algebra.moves import MoveKind
    from tpsim.machine.parts import Level, Machine


@dataclass(frozen=True)
class LevelGroup:
    """Segments of one level that an algorithm uses together: one axis, or the axes of a torus.

    links  where the machine remembers its levels as algorithms meet them
    """

    level: Level
    segments: tuple[Segment, ...]
    links: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)

    def link(self, algorithm: str, protocol: str) -> TunedLink | None:
        """The level as an algorithm meets it with a protocol, looked up once; None if it cannot run it."""
        key = (self.level.name, algorithm, protocol)
        if key not in self.links:
            self.links[key] = tuned(self.level, met_as(self.level, algorithm), protocol)
        return self.links[key]  # type: ignore[no-any-return]  # a link

    def sharing(self, link: TunedLink) -> TunedLink:
        """The same as its devices meet it, who may share an uplink."""
        sharing = self.segments[0].sharing
        return link if sharing is None else link._replace(sharing=sharing)

    @cached_property
    def n(self) -> Any:
        """Devices along the group."""
        return product(segment.n for segment in self.segments)

    @cached_property
    def wires(self) -> str:
        """How its devices are joined; several axes together are a torus."""
        return self.segments[0].topology if len(self.segments) == 1 else "torus"

    @cached_property
    def switched(self) -> bool:
        """True for a level where every member reaches every other one directly."""
        return joined(self.segments[0].topology) is not None

    @property
    def torus(self) -> tuple[TorusAxis, ...]:
        """The group's axes; those whose ends are open first, so that they gather the smallest parts."""
        axes = [TorusAxis(segment.n, segment.topology == "ring") for segment in self.segments]
        return tuple(sorted(axes, key=lambda axis: axis.closed))


def met_as(level: Level, algorithm: str) -> str:
    """The algorithm whose figures on a level are those of this one: another, where the level states none of its own."""
    return algorithm if level.algorithms.get(algorithm, PLAIN) != PLAIN else ALGORITHMS[algorithm].met_as or algorithm


def groups(machine: Machine, route: Sequence[Segment]) -> tuple[LevelGroup, ...]:
    """The route in groups, innermost first; an axis whose links others share is a group of its own.

    On one level such an axis comes last, where the least is left to move over it.
    """
    groups: list[LevelGroup] = []
    levels = {level.name: level for level in machine.levels}
    place = {name: at for at, name in enumerate(levels)}
    for segment in sorted(route, key=lambda part: (place[part.level], not _joins(part))):
        level, own = levels[segment.level], (segment,)
        if groups and groups[-1].level is level and _joins(segment) and all(map(_joins, groups[-1].segments)):
            groups[-1] = LevelGroup(level, (*groups[-1].segments, segment), machine.links)
        else:
            groups.append(LevelGroup(level, own, machine.links))
    return tuple(groups)


def _joins(segment: Segment) -> bool:
    return segment.topology in {"ring", "line"} and segment.stride == 1


def forms(group: LevelGroup, kind: MoveKind) -> Mapping[str, Callable[[Size], Traffic]]:
    """Every closed form of a move on a group, by the algorithm's name, as a function of the bytes.

    Raises InputError where none is known.
    """
    return {name: partial(traffic, group, kind, name) for name in named_forms(group, kind)}


def traffic(group: LevelGroup, kind: MoveKind, name: str, V: Size) -> Traffic:
    """What an algorithm puts on the wires of a group."""
    if len(group.segments) > 1:
        return TORUS_FORMS[kind][name](V, group.torus)
    (segment,) = group.segments
    return _on_segment(FORMS[segment.topology][kind][name], segment, V)


def _on_segment(form: Callable[[Size, Size], Traffic], segment: Segment, V: Size) -> Traffic:
    if segment.topology == "host":
        return on_one_host(form(V, segment.n), segment.stride)
    return form(V, segment.n) if joined(segment.topology) else strided(form(V, segment.n), segment.stride)


def named_forms(group: LevelGroup, kind: MoveKind) -> list[str]:
    """The algorithms that have a form on the group's wires. Raises InputError where there is none."""
    known = TORUS_FORMS.get(kind) if group.wires == "torus" else FORMS[group.wires].get(kind)
    if known is None:
        raise InputError.one("no-closed-form", f"no closed form of {kind} is known on {wires_text([group])}")
    offered = group.level.algorithms
    return [name for name in known if not ALGORITHMS[name].hardware or name in offered]


def wires_text(groups: Sequence[LevelGroup]) -> str:
    """What these groups run over, in words: ``nvlink 8 x network 2``."""
    return " x ".join(str(segment) for group in groups for segment in group.segments)


def on_offer(group: LevelGroup, kind: MoveKind) -> list[str]:
    """The algorithms that the profile offers for the move; the plain ones where it names none."""
    key = (group.level.name, group.wires, kind)
    if key not in group.links:
        known = named_forms(group, kind)
        offered = [name for name in known if name in group.level.algorithms]
        group.links[key] = offered or [name for name in known if ALGORITHMS[name].plain] or known
    return group.links[key]  # type: ignore[no-any-return]  # names
