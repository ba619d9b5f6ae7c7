"""Seconds of a collective on a route, and of work on a chip: the two cost models, chosen by name; measured curves."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tpsim.algebra.moves import HOMEWARD, MoveKind, wire
from tpsim.fabric.wires import Route, ranks, ranks_text
from tpsim.machine import additive
from tpsim.machine.additive import Choice
from tpsim.machine.combined import repeated
from tpsim.machine.cost import FREE, Cost, Count, Derived, Way
from tpsim.machine.groups import groups
from tpsim.machine.parts import Machine, Watched, changed
from tpsim.machine.ways import CHANGE, Launch
from tpsim.quantity.errors import InputError, unknown
from tpsim.quantity.size import PLAIN, Size, total
from tpsim.quantity.units import show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.fabric.change import Change
    from tpsim.machine.curve import MeasuredCurve

CostModel = Literal["additive", "book"]

COST_MODELS: tuple[CostModel, ...] = ("additive", "book")


class Asked(NamedTuple):
    """What was timed: the arguments of `time`."""

    machine: Machine
    route: Route
    kind: MoveKind
    V: Size
    cost_model: CostModel
    choice: Choice
    change: Change | None
    streamed: bool = False

    def constants(self) -> tuple[str, ...]:
        """The paths of the machine's constants that are read when it is timed, in its order, and of its curves."""
        seen: set[str] = set()
        machine = changed(self.machine, lambda constant: Watched(constant, seen))
        how = {"cost_model": self.cost_model, "change": self.change, "streamed": self.streamed, **self.choice._asdict()}
        timed = time(machine, self.route, self.kind, self.V, **how)
        own = (constant.path for constant in self.machine.constants() if constant.path in seen)
        return (*own, *(curve.path for curve in timed.curves))

    def formulas(self) -> tuple[str, ...]:
        """The formulas that it is made with, by their names in a lock."""
        if self.kind in HOMEWARD:
            return (f"wire.{self.kind}",)
        segments = groups(self.machine, self.route)
        if self.change is not None:  # its blocks are summed one by one
            forms: Iterator[str] = (
                f"form.{wire.topology}.permute.change" for group in segments for wire in group.segments
            )
        elif self.cost_model == "book":
            from tpsim.machine import book

            forms = book.formulas(segments, self.runs)
        else:
            forms = additive.formulas(segments, self.runs, self.V, self.choice)
        seconds = (f"seconds.{self.cost_model}.{self.machine.name}.{group.level.name}" for group in segments)
        return tuple(dict.fromkeys((f"wire.{self.kind}", *forms, *seconds)))

    @property
    def runs(self) -> MoveKind:
        """What runs, once or several times."""
        return "permute" if self.streamed else self.kind


class Timing(Derived):
    """What one collective takes and moves; numbers or arrays, as the sizes were; by the book symbols, too.

    The way that is taken, with these beside it and instead of what they are there:
    time_s       launch, and latency with bandwidth as the cost model joins them
    ramp_s       what bytes cost beyond the links' bandwidth: the own share through memory, and chunks
    curve_s      what a curve measured on this very route adds to all of these; negative where they are too slow
    curves       those that say so; of arrays of ranks those that may
    pipelined_s  the same by the constants if all levels worked at once: the least that the algorithm could take
    wire         bytes that a device must inject; carried: what it sends with this algorithm, on average
    link_total, link_serial  of the level whose links carry most; every level's own are in `stages`
    asked        what was timed; None where nothing is known of it
    """

    asked: Asked | None
    curves: tuple[MeasuredCurve, ...]
    curve_s: Any

    def __init__(
        self, cost: Way, asked: Asked | None, curves: tuple[MeasuredCurve, ...] = (), curve_s: Any = None
    ) -> None:
        """A way as what was asked, with what curves add to its seconds."""

        def of(number: str) -> Any:
            value = getattr(cost, number)
            if number == "pipelined_s":
                return cost.launch_s + value
            return value + curve_s if number == "time_s" and curves else value

        super().__init__(cost.algorithm, cost.protocol, of, time=True)
        self.asked, self.curves, self.curve_s = asked, curves, curve_s if curves else 0
        self._chosen_by = cost.counted

    def __eq__(self, other: object) -> bool:
        """True for what was asked for alike, and takes and moves as much."""
        told = (*Cost._fields, "asked", "curves", "curve_s")
        return isinstance(other, Timing) and all(getattr(self, name) == getattr(other, name) for name in told)

    def __hash__(self) -> int:
        return hash((self.algorithm, self.protocol))

    @cached_property
    def wire(self) -> Any:
        """Bytes that a device must inject, whatever the algorithm."""
        return 0 if self.asked is None else wire(self.asked.kind, self.asked.V, ranks(self.asked.route))

    @property
    def wires_s(self) -> dict[str, Any]:
        """Seconds in which it fills the links of each level, or of each axis of a torus."""
        places = [(segment.level, segment.axis) for segment in self.asked.route] if self.asked else []
        return {axis: seconds for filled, seconds in self.fills for level, axis in places if level == filled}

    @property
    def forced(self) -> tuple[str, ...]:
        """Algorithm and protocol, as far as they were not chosen."""
        return () if self.asked is None else self.asked.choice.forced

    @property
    def counted(self) -> Count | None:
        """What the library's own count says of the way, if that chose it; None if the least time did."""
        return self._chosen_by

    @property
    def constants(self) -> tuple[str, ...]:
        """Paths of the machine's constants, and of its curves, that can move this.

        Of every way that was compared or counted, not of the one that is taken alone. Found out when it is asked for.
        """
        return () if self.asked is None else self.asked.constants()

    @property
    def formulas(self) -> tuple[str, ...]:
        """The formulas that can move this, by their names in a lock; the machine is called by its name."""
        return () if self.asked is None else self.asked.formulas()


def time(
    machine: Machine,
    route: Route,
    kind: MoveKind,
    V: Size,
    *,
    cost_model: CostModel = "additive",
    launch: Launch = None,
    algorithm: str | None = None,
    protocol: str | None = None,
    change: Change | None = None,
    streamed: bool = False,
) -> Timing:
    """Seconds and bytes of one collective.

    A curve of the machine's that was measured on this route says the seconds, unless something is forced. Of plain
    numbers a machine remembers what was timed last: layouts of one model ask the same again and again.

    route      the wires, innermost first, from `Placement.route`
    V          bytes of the whole array taking part, per remaining shard of the other axes
    change     where a permute's blocks go, from `Placement.change`; None: each to the device beside it
    streamed   a gather or a scatter as n - 1 hops to the next device, each launched by itself
    launch     seconds, or a harness that the profile names; None is the profile's default
    algorithm  forced; None is what the library takes: what it counts least for, else the least of those on offer
    protocol   likewise

    Raises InputError for an unknown name, where no closed form is known (of a change of axes: in numbers of devices
    that are arrays or symbols), and for a choice that the book has not.
    """
    if cost_model not in COST_MODELS:
        raise unknown(cost_model, "cost model", COST_MODELS)
    if kind == "slice":
        return Timing(FREE, None)
    asked = Asked(machine, tuple(route), kind, V, cost_model, Choice(launch, algorithm, protocol), change, streamed)
    if type(V) not in PLAIN or any(type(segment.n) is not int for segment in route):
        return _timed(asked)
    known, key = machine.timed, (type(V), *asked[1:])
    if key not in known:
        if len(known) >= REMEMBERED:
            known.clear()
        known[key] = _timed(asked)
    return known[key]  # type: ignore[no-any-return]  # put there above


REMEMBERED = 10_000
"""Collectives that a machine remembers at most."""


def _timed(asked: Asked) -> Timing:
    machine, route, kind, V, cost_model, choice, change, streamed = asked
    if streamed:
        once = choice._replace(algorithm=None)
        hop = time(machine, route, "permute", V, cost_model=cost_model, change=change, **once._asdict())
        run = hop if kind == "permute" else repeated(hop, ranks(route) - 1)
        return Timing(run, asked._replace(choice=once), hop.curves, 0)
    if kind in HOMEWARD:
        from tpsim.machine.host import copied

        return Timing(copied(machine, V), asked._replace(choice=Choice(None, None, None)))
    segments, change = groups(machine, route), _counted(route, change)
    asked = asked._replace(change=change)
    if cost_model == "book":
        from tpsim.machine import book

        _leaves_no_choice(choice)
        return Timing(book.cost(segments, kind, V, change), asked)
    taken = additive.cost(segments, kind, V, choice, change)
    measured = not choice.forced and (change is None or _one_hop(route))
    curves = list(_curves(machine, route, kind, choice.launch)) if measured else []
    added = total(where * (curve.seconds(V, taken.time_s) - taken.time_s) for curve, where in curves)
    return Timing(taken, asked, tuple(curve for curve, _ in curves), added)


def _curves(machine: Machine, route: Route, kind: MoveKind, launch: Launch) -> Iterator[tuple[MeasuredCurve, Any]]:
    """The machine's curves that may hold for a collective, each with 1 where it does and 0 where it does not.

    Elements of arrays of ranks may be those that were measured.
    """
    for curve in machine.measured:
        if curve.kind == kind and _launched_alike(machine, curve, launch):
            where = curve.holds_on(route)
            if not isinstance(where, int) or where:
                yield curve, where


def _launched_alike(machine: Machine, curve: MeasuredCurve, launch: Launch) -> bool:
    """True if the harness is the one that measured the curve; nobody measured a launch in seconds."""
    if isinstance(launch, int | float):
        return False
    return (launch or default_harness(machine, curve.route)) == (curve.launch or default_harness(machine, curve.route))


def default_harness(machine: Machine, route: Route) -> str | None:
    """The harness that the profile takes where none is named: the first one of the innermost level that has any."""
    used = {segment.level for segment in route}
    return next((name for level in machine.levels if level.name in used for name in level.launch), None)


def limits(machine: Machine, route: Route) -> Iterator[str]:
    """Of each level of the route into which devices of a node share an uplink: what binds them, it or their links."""
    for segment in route:
        level = machine.level(segment.level)
        if level.link.uplink is not None and isinstance(segment.sharing, int):
            own, part = level.link.bandwidth.value, level.link.uplink.value / segment.sharing
            share, link = show(part, "bytes_per_s"), show(own, "bytes_per_s")
            binds = f"which binds: a link alone has {link}" if part < own else f"so that the link of {link} binds"
            yield f"{segment.sharing} of a node share its uplink into {level.name}: {share} for each, {binds}"


def sends(machine: Machine, route: Route, kind: MoveKind) -> Iterator[str]:
    """Of each level of the route that limits sends: up to which size they take which of its protocols."""
    for group in groups(machine, route) if kind in SENDS else ():
        links = {protocol: group.link(CHANGE, protocol) for protocol in group.level.protocols}
        limits = {name: None if link is None else link.figures.largest_message for name, link in links.items()}
        told = [f"{name} only up to {show(limit, 'bytes')}" for name, limit in limits.items() if limit is not None]
        told += [f"never {name}" for name, link in links.items() if link is None]
        if told:
            yield f"a message from one device to another over {group.level.name} takes {', '.join(told)}"


SENDS = frozenset({"all_to_all", "permute"})
"""What consists of sends from one device to another."""


def reaches(machine: Machine, route: Route, kind: MoveKind, protocol: str) -> bool:
    """False for sends that the machine limits, which take a protocol by their size, whatever else is forced to one."""
    return protocol not in additive.protocols(groups(machine, route)) or not any(sends(machine, route, kind))


def predicted_by_constants(machine: Machine, curve: MeasuredCurve, V: Size) -> float:
    """Seconds of what a curve is about, by the machine's constants alone.

    Raises InputError where no closed form is known, and for an unknown harness.
    """
    return float(time(replace(machine, measured=()), curve.route, curve.kind, V, launch=curve.launch).time_s)


def algorithms(machine: Machine, route: Route, kind: MoveKind) -> list[str]:
    """Every algorithm that could be forced for a collective on this route; none where nothing moves."""
    segments = groups(machine, route)
    return [] if kind == "slice" else additive.algorithms(segments, kind)


def _leaves_no_choice(choice: Choice) -> None:
    """Refuse what the book's model would silently ignore: it has one bandwidth term per fabric, and no launch."""
    for option in ("algorithm", "launch", "protocol"):
        forced = getattr(choice, option)
        if forced is not None:
            message = f"the cost model book has no {option} to choose: {forced} would change nothing"
            remedy = f"leave the {option} out, or take the cost model additive"
            raise InputError.one("no-choice-by-the-book", message, remedy=remedy)


def _counted(route: Route, change: Change | None) -> Change | None:
    """The change as it can be counted on a route; None where it is one hop, whatever the numbers of devices.

    Raises InputError for numbers of devices that are arrays or symbols anywhere but on one switch or one mesh.
    """
    if change is None or all(isinstance(segment.n, int) for segment in route):
        return change
    if _one_hop(route):
        return None
    message = f"a change of axes on {ranks_text(route)} has no closed form in the numbers of devices"
    raise InputError.one("no-closed-form", message, remedy="give numbers: its blocks are summed one by one")


def _one_hop(route: Route) -> bool:
    """True where every device reaches every other one by ports, or a cable, of its own: any permute costs the same."""
    return len(route) == 1 and route[0].topology in {"switch", "mesh"}
