"""Where a scenario puts a model's experts, which of its axes tell nodes apart, and how full it takes rows to be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from tpsim.program.copies import DEDUPLICATED, DIMS_OF, Level, Of, most_reached, parts_of, reached
from tpsim.program.dims import BUSY, CAPACITY, EXPERTS, RAGGED, completed
from tpsim.quantity.errors import At, InputError, Problem
from tpsim.quantity.size import divisors, largest, log, over, product, root, smallest
from tpsim.question.divisibility import listed
from tpsim.report.answer import Assumption

if TYPE_CHECKING:
    from tpsim.algebra.mesh import Mesh
    from tpsim.algebra.moves import Axes
    from tpsim.fabric.placement import Placement
    from tpsim.program.layout import Layout
    from tpsim.program.model import Model
    from tpsim.program.practice import Practice
    from tpsim.question.question import Question
    from tpsim.question.scenario_file import LayoutFields

Values = Mapping[str, Any]

NO_EXPERTS = "remove it, or take a model with experts"


def expert_axes(fields: LayoutFields | None, model: Model, at: At) -> tuple[Axes, Axes]:
    """The axes that experts lie on, and those that split each of them: unless stated those of tp that are left.

    Raises InputError for experts of a model that has none, and for axes that no tokens and no products are split over.
    """
    ep, etp = (fields.ep, fields.etp) if fields else ((), None)
    for role, axes in (("ep", ep), ("etp", etp)):
        if axes and not model.experts:
            message = f"layout.{role} is where experts lie, and {model.name} has none"
            raise InputError.one("no-experts", message, at("layout", role), NO_EXPERTS)
    if not fields or not model.experts:
        return (), ()
    etp = tuple(axis for axis in fields.tp if axis not in ep) if etp is None else etp
    inside = {"tp": fields.tp}
    for role, axes, whose in (("ep", ep, {"dp": fields.dp, "cp": fields.cp, **inside}), ("etp", etp, inside)):
        for axis in axes:
            if axis not in {name for own in whose.values() for name in own}:
                message = f"layout.{role} names {axis}, which is no axis of {' or '.join(whose)}"
                listed = ", ".join(f"{name}: {' '.join(own) or 'none'}" for name, own in whose.items())
                raise InputError.one("experts-elsewhere", message, at("layout", role), f"take some of {listed}")
    if twice := {*ep} & {*etp} or {axis for axis in ep if ep.count(axis) > 1}:
        message = f"mesh axis {min(twice)} would split experts twice"
        raise InputError.one("axis-used-twice", message, at("layout", "etp"), "an axis has experts, or splits each")
    return ep, etp


def expert_problems(model: Model, mesh: Mesh, at: At, **roles: Axes) -> Iterator[Problem]:
    """What of the experts does not come out even: their number over ep, their hidden size over etp."""
    if not model.experts:
        return
    for role, size, noun in (
        ("ep", model.experts.experts, "experts"),
        ("etp", model.experts.hidden, "hidden size of an expert"),
    ):
        ways = mesh.size(*roles[role])
        if size % ways:
            message = f"{noun} {size} is not divisible by {role} {ways}"
            yield Problem("experts-not-divisible", message, at("layout", role), "legal: " + listed(divisors(size)))


# Copies ----------------------------------------------------------------------------------------------------------


def levelled(practice: Practice, layout: Layout, placement: Placement, at: At) -> Practice:
    """The practice with the axes that copies of tokens go over: nodes are what the innermost level holds together.

    Raises InputError where nodes, or tokens, are not told apart by axes of their own.
    """
    of = DEDUPLICATED[practice.rows.dispatch]
    home, here = layout.roles.get("ep", ()), ("practice", "rows", "dispatch")
    if not (of and home):
        return practice  # rows that stay where they are need no copies
    tokens = layout.routed
    if whole := [axis for axis in home if axis not in tokens]:
        message = f"every device along {' and '.join(whole)} has all tokens, so no copies of them go there"
        raise InputError.one("no-copies", message, at(*here), "write flat, or split tokens: sequence_parallel: true")
    nodes = _nodes(home, placement, at(*here)) if "node" in of else ()
    axes: Mapping[Of, Axes] = {"node": nodes, "rank": home[len(nodes) :]}
    levels = tuple(Level(level, axes[level]) for level in of if axes[level])
    return replace(practice, levels=levels)


def _nodes(home: Axes, placement: Placement, at: Any) -> Axes:
    """Of the axes that experts lie on those that tell nodes apart, which stand first."""
    inside = placement.levels[0]
    lies = {axis: {placement.carriers[piece.carrier].level for piece in placement.pieces[axis]} for axis in home}
    nodes = tuple(axis for axis in home if lies[axis] - {0})
    if both := [axis for axis in nodes if 0 in lies[axis]]:
        message = f"{both[0]} lies inside nodes ({inside}) and between them, so it does not tell nodes apart"
        remedy = f"cut {both[0]} into two mesh axes, one for {inside}, and name both in layout.dp and layout.ep"
        raise InputError.one("nodes-not-apart", message, at, remedy)
    if not nodes:
        message = (
            f"experts lie on one node ({', '.join(home) or 'no axis'} on {inside}), so there is no node to copy to"
        )
        raise InputError.one("one-node", message, at, "write rank, or flat")
    if nodes != home[: len(nodes)]:
        message = f"experts of a node do not lie side by side where layout.ep is {', '.join(home)}"
        remedy = f"write layout.ep: [{', '.join((*nodes, *(axis for axis in home if axis not in nodes)))}]"
        raise InputError.one("nodes-not-apart", message, at, remedy)
    return nodes


def _copies(question: Question, axes: Values) -> Iterator[tuple[Of, Any, Any]]:
    """Of each level how many nodes or ranks there are, and how many of these a token goes to.

    What is stated counts as far as it can be: a token goes to a rank at least of each of its nodes.
    """
    moe, copies = question.model.experts, question.assume.routing.copies
    if not moe:
        return
    many: Any = 1
    for of, parts in parts_of(question.practice.levels, axes):
        most = most_reached(parts, moe.router)
        if copies == "bound":
            many = most
        elif copies != "uniform" and (stated := getattr(copies, of)) is not None:
            many = smallest(largest(Fraction(str(stated)), many), most)
        else:
            many = reached(parts, moe.router)
        yield of, parts, many


# Loads -----------------------------------------------------------------------------------------------------------


def _filled(question: Question, dims: Values, axes: Values) -> Any:
    """The rows of the fullest device over the mean: no more than if every token chose what experts it can there.

    uniform  1 + sqrt(2 ln R / C) for R ranks with C rows each on average: an upper estimate of what drawing leaves,
             within 6 % of a simulation down to 128 rows (the law of large numbers for a maximum of R normal variables)
    """
    load = question.assume.routing.load
    if load == "balanced" or question.assume.routing.drop != "none":
        return 1
    home, stay = question.layout.at_experts
    ranks = product(axes[axis] for axis in home)
    most = over(smallest(dims["k"] * ranks, dims[EXPERTS]), dims["k"])
    if load != "uniform":
        return smallest(load, most)
    rows = over(dims[RAGGED] * dims[EXPERTS], ranks * product(axes[axis] for axis in stay))
    return smallest(1 + root(2 * log(ranks) / rows), most)


def _busy(question: Question, dims: Values, axes: Values, fullest: Any) -> Any:
    """The share of the experts on the fullest device that have rows: of one at least; of padded ones all have.

    fullest  its rows over the mean
    uniform  an expert is missed by each of T tokens with the probability 1 - k/n, so 1 - (1 - k/n)^T; else even: a row
             goes to an expert that has none yet
    """
    if question.assume.routing.drop != "none":
        return 1
    home, stay = question.layout.at_experts
    experts = over(dims[EXPERTS], product(axes[axis] for axis in home))
    rows = over(dims[RAGGED], product(axes[axis] for axis in stay)) * fullest
    if question.assume.routing.load == "uniform":
        chosen = over(dims["k"], dims[EXPERTS])
        rows = 1 - (1 - chosen) ** over(rows, chosen)
    return smallest(1, largest(over(1, experts), rows))


def routed(question: Question, dims: Values, axes: Values) -> tuple[Values, Values]:
    """The dims with the rows that experts have, dropped ones left out, and the peak of those over their mean.

    Copies of tokens are taken to come as unevenly as the rows that are made of them.
    """
    if not question.model.experts:
        return dims, {}
    drop, levels = question.assume.routing.drop, [*_copies(question, axes)]
    known = {CAPACITY: 1 if drop == "none" else Fraction(str(drop))}
    if question.practice.rows.counts == "exchange":
        known["js"] = product(axes[axis] for axis in question.layout.routed)
    for of, parts, many in levels:
        known |= dict(zip(DIMS_OF[of][::2], (parts, many), strict=True))
    dims = completed({**dims, **known})
    ragged = (RAGGED, *(DIMS_OF[of][1] for of, *_ in levels))
    fullest = _filled(question, dims, axes)
    return {**dims, BUSY: _busy(question, dims, axes, fullest)}, dict.fromkeys(ragged, fullest)


def check_routing(question: Question, at: At) -> None:
    """Refuse what is stated of experts where there are none, and counts of rows that are as many anyway.

    Raises InputError.
    """
    assume, model, practice = question.assume, question.model, question.practice
    if practice.rows.counts == "exchange" and assume.routing.drop != "none":
        message = "experts have rows for a capacity (assume.routing.drop), so nobody needs to be told how many come"
        raise InputError.one("no-counts", message, at("practice", "rows", "counts"), "write none")
    for (section, name), says, stated in (
        (("assume", "routing"), "how tokens choose experts", bool(assume.routing.model_fields_set)),
        (("workload", "expert_dtype"), "the number format of experts", question.dtypes.experts is not None),
    ):
        if stated and not model.experts:
            message = f"{section}.{name} is {says}, and {model.name} has none"
            raise InputError.one("no-experts", message, at(section, name), NO_EXPERTS)


def routing_assumptions(question: Question) -> Iterator[Assumption]:
    """What is assumed of how tokens choose, and of how many copies of them travel."""
    assume, model = question.assume, question.model
    if not model.experts:
        return
    load, drop = assume.routing.load, assume.routing.drop
    kind: Literal["stated", "default"] = "stated" if assume.routing.model_fields_set else "default"
    if drop != "none":
        text = f"an expert has rows for {drop:g} times the mean of tokens that choose it, padded; others are dropped"
    elif load == "balanced":
        text = "tokens choose experts evenly, none is dropped: every expert has as many rows (assume.routing.load)"
    elif load == "uniform":
        text = "tokens choose experts by chance, none is dropped: seconds and memory of the fullest rank, estimated"
    else:
        fullest = _filled(question, question.workload.dims(model), question.mesh.axes)
        most = f": {load:g} times is more than tokens can choose there" if fullest < load else ""
        text = f"the fullest rank of experts has {float(fullest):g} times the mean of rows, none is dropped{most}"
    yield Assumption(text, kind)
    if drop != "none" and load != "balanced":
        yield Assumption("assume.routing.load changes nothing here, with rows for a capacity", kind)
    idle = 1 - routed(question, question.workload.dims(model), question.mesh.axes)[0][BUSY]
    if idle > 0:
        yield Assumption(f"{100 * float(idle):.3g} % of a chip's experts have no rows, and are not read", "model")
    for of, parts, many in _copies(question, question.mesh.axes):
        yield Assumption(f"a token goes to {float(many):.4g} of {parts} {of}s, {_why(question, of, many)}", kind)


def _why(question: Question, of: Of, many: Any) -> str:
    """Where so many copies are from."""
    moe, copies = question.model.experts, question.assume.routing.copies
    if copies == "bound":
        return "the most that its experts can lie on (assume.routing.copies)"
    if copies != "uniform" and (stated := getattr(copies, of)) is not None:
        as_stated = "as stated" if many == Fraction(str(stated)) else f"as near to {float(stated):g} as can be"
        return f"{as_stated} (assume.routing.copies)"
    if moe and moe.groups > 1:
        limit = f"the {moe.top_groups} of {moe.groups} groups with the best expert each"
        return (
            f"as chance has it where {moe.top} of {moe.experts} experts are chosen from {limit} (assume.routing.copies)"
        )
    return "as chance has it: n*(1 - C(experts - experts/n, top)/C(experts, top)) of n (assume.routing.copies)"
