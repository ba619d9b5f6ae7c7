"""What a collective puts on wires, derived: its steps, what the busiest link carries, and that beside an all-gather."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.answers.derivation import CHECKS, V_MEANS, Derivation, symbol
from tpsim.fabric.wires import ONE_LINK, LevelTopology, Route, ranks, ranks_text
from tpsim.machine import timing
from tpsim.machine.algorithms import FORMS
from tpsim.machine.groups import LevelGroup, forms, groups

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpsim.algebra.moves import MoveKind
    from tpsim.machine.forms import Traffic
    from tpsim.machine.parts import Machine

SOURCES = ("closed forms, counted message by message",)

LARGE = 2**30
"""Bytes of an array whose way is explained: one that bandwidth decides."""


def one_link(topology: LevelTopology) -> Derivation:
    """What one link of a topology is, and what an all-gather puts on it. Loads sympy."""
    gather = next(iter(FORMS["ring" if topology == "torus" else topology]["all_gather"].values()))
    where = "along one closed axis" if topology == "torus" else "there"
    return Derivation(
        what=f"one link of a {topology}, whose bandwidth in one direction a level states",
        dimension="bytes",
        expression=_of_several(gather(symbol("V"), _several("n")).link_total),
        meanings={"V": V_MEANS, "n": "devices, more than two"},
        because=(ONE_LINK[topology], f"the formula is what an all-gather of V bytes puts on it {where}"),
        sources=SOURCES,
        checks=CHECKS["links"],
    )


def on_wires(machine: Machine, route: Route, kind: MoveKind) -> Iterator[Derivation]:
    """Steps and link bytes of a collective of large arrays on a route, and their ratio to an all-gather's. Loads sympy.

    Raises InputError where no closed form is known.
    """
    load, gather = _load(machine, route, kind), _load(machine, route, "all_gather")
    here = load.timing
    wires, sizes = ranks_text(route), _symbols(route)
    shared = _of_route(route, sizes)
    noun = f"one {kind} over {wires}"
    yield Derivation(
        what=f"steps of {noun}",
        dimension="count",
        expression=load.steps,
        value=int(here.steps),
        because=(f"by the algorithm {here.algorithm}, as of {LARGE >> 30} GiB",),
        **shared,
    )
    yield Derivation(
        what=f"bytes on the busiest link of {noun}",
        dimension="bytes",
        expression=load.link,
        because=tuple(_shares(here, ranks(route))),
        **shared,
    )
    if here.uplink:
        yield Derivation(
            what=f"bytes on the busiest uplink of a node of {noun}",
            dimension="bytes",
            expression=_of_several(here.uplink * symbol("V") / LARGE),
            because=tuple(timing.limits(machine, route)),
            **shared,
        )
    if kind == "all_gather":
        return
    ratio = _simplified(load.link / gather.link)
    yield Derivation(
        what=f"link bytes of {noun} over those of one all_gather",
        dimension="ratio",
        expression=ratio,
        value=float(Fraction(here.link_total) / Fraction(gather.timing.link_total)),
        because=tuple(_grown(ratio, sizes)),
        **shared,
    )


def _of_route(route: Route, sizes: Sequence[Any]) -> dict[str, Any]:
    """What all derivations on a route have in common: its sizes and what they mean, sources and checks."""
    named = list(zip(map(str, sizes), route, strict=True))
    return {
        "known": {name: segment.n for name, segment in named},
        "meanings": {"V": V_MEANS} | {name: f"devices on {segment.axis}" for name, segment in named},
        "sources": SOURCES,
        "checks": CHECKS["links"],
    }


def _shares(here: timing.Timing, n: int) -> Iterator[str]:
    """What part of V the busiest link carries; of each level where they work in turn."""
    yield f"{Fraction(here.link_total) / LARGE} of V over these {n:,}"
    for stage in here.stages if len(here.stages) > 1 else ():
        yield f"{Fraction(stage.traffic.link_total) / LARGE} of V on {stage.level}"


class _Load(NamedTuple):
    """A timing of large arrays; steps, and bytes on the busiest link over the run, as expressions."""

    timing: timing.Timing
    steps: Any
    link: Any


def _load(machine: Machine, route: Route, kind: MoveKind) -> _Load:
    """In V, to which link bytes are proportional, and where the route is one group of wires in its devices."""
    here, segments = timing.time(replace(machine, measured=()), route, kind, LARGE), groups(machine, route)
    if len(segments) == 1 and here.stages:
        traffic = _in_symbols(segments[0], kind, here.stages[0].algorithm)
        return _Load(here, _of_several(traffic.steps), _of_several(traffic.link_total))
    return _Load(here, _of_several(here.steps), _of_several(here.link_total * symbol("V") / LARGE))


def _in_symbols(group: LevelGroup, kind: MoveKind, algorithm: str) -> Traffic:
    sizes = [_several(str(name)) for name in _symbols(group.segments)]
    wires = tuple(replace(segment, n=n) for segment, n in zip(group.segments, sizes, strict=True))
    return forms(replace(group, segments=wires), kind)[algorithm](symbol("V"))


def _symbols(route: Sequence[Any]) -> list[Any]:
    """A symbol for the devices along each segment."""
    import sympy

    names = ["n"] if len(route) == 1 else [f"n_{at}" for at in range(len(route))]
    return [sympy.Symbol(name, positive=True, integer=True) for name in names]


BEYOND = "_beyond_two"
"""Ends the name of a symbol: devices beyond two, so that a formula need not tell what one or two devices do."""


def _several(name: str) -> Any:
    """More than two devices."""
    import sympy

    return 2 + sympy.Symbol(name + BEYOND, positive=True, integer=True)


def _of_several(cost: Any) -> Any:
    """A cost of `_several` devices, in their numbers."""
    import sympy

    cost = sympy.sympify(cost)
    beyond = [symbol for symbol in cost.free_symbols if symbol.name.endswith(BEYOND)]
    numbers = {
        symbol: sympy.Symbol(symbol.name.removesuffix(BEYOND), positive=True, integer=True) - 2 for symbol in beyond
    }
    return _simplified(cost.subs(numbers))


def _simplified(cost: Any) -> Any:
    import sympy

    return sympy.factor(sympy.simplify(cost))


def _grown(ratio: Any, sizes: Sequence[Any]) -> Iterator[str]:
    """What a ratio tends to as one axis grows, where sympy knows."""
    import sympy

    free = [size for size in sizes if size in ratio.free_symbols]
    if len(free) == 1:
        yield f"{sympy.limit(ratio, free[0], sympy.oo)} as {free[0]} grows"
