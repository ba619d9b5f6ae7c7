"""Where a scenario puts a model's experts, and how full it takes their rows to be."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import log
from typing import TYPE_CHECKING, Any, Literal

from tpsim.program.dims import RAGGED, completed
from tpsim.program.dispatch import at_experts
from tpsim.quantity.errors import InputError, Problem
from tpsim.quantity.size import over, product, root
from tpsim.question.divisibility import divisors
from tpsim.report.answer import Assumption

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.algebra.mesh import Mesh
    from tpsim.program.layout import Axes, Layout
    from tpsim.program.model import Model
    from tpsim.question.divisibility import At
    from tpsim.question.question import Question
    from tpsim.question.scenario_file import Assume, LayoutFields

Values = Mapping[str, Any]

CAPACITY = "q"
"""The dim of the capacity factor: what an expert has rows for, over the mean of what chooses it."""


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
            if axis not in {one for own in whose.values() for one in own}:
                message = f"layout.{role} names {axis}, which is no axis of {' or '.join(whose)}"
                listed = ", ".join(f"{name}: {' '.join(own) or 'none'}" for name, own in whose.items())
                raise InputError.one("experts-elsewhere", message, at("layout", role), f"take some of {listed}")
    if twice := {*ep} & {*etp} or {axis for axis in ep if ep.count(axis) > 1}:
        message = f"mesh axis {min(twice)} would split experts twice"
        raise InputError.one("axis-used-twice", message, at("layout", "etp"), "an axis has experts, or splits each")
    return ep, etp


def expert_problems(model: Model, mesh: Mesh, at: At, **roles: Axes) -> Iterator[Problem]:
    """What of the experts does not come out even: their number over ep, their hidden size over etp, what is shared."""
    if not model.experts:
        return
    for role, size, what in (
        ("ep", model.experts.experts, "experts"),
        ("etp", model.experts.hidden, "hidden size of an expert"),
        ("tp", model.experts.shared or 0, "hidden size of shared experts"),
    ):
        ways = mesh.size(*roles[role])
        if size % ways:
            message = f"{what} {size} is not divisible by {role} {ways}"
            legal = "legal: " + ", ".join(map(str, divisors(size)))
            yield Problem("experts-not-divisible", message, at("layout", role), legal)


def filled(assume: Assume, model: Model, layout: Layout, dims: Values, axes: Values) -> Any:
    """The rows of the fullest device over the mean.

    uniform  1 + sqrt(2 ln R / C) for R ranks with C rows each on average: an upper estimate of what drawing leaves,
             within 6 % of a simulation down to 128 rows (the law of large numbers for a maximum of R normal variables)
    """
    load = assume.routing.load
    if not model.experts or load == "balanced" or assume.routing.drop != "none":
        return 1
    if load != "uniform":
        return load
    home, stay = at_experts(layout)
    rows = over(dims[RAGGED] * dims["n"], product(axes[axis] for axis in (*home, *stay)))
    return 1 + root(2 * log(product(axes[axis] for axis in home)) / rows)


def routed(question: Question, dims: Values, axes: Values) -> tuple[Values, Values]:
    """The dims with the rows that experts have, dropped ones left out, and the peak of those over their mean."""
    model, assume = question.model, question.assume
    if not model.experts:
        return dims, {}
    drop = assume.routing.drop
    dims = completed({**dims, CAPACITY: 1 if drop == "none" else Fraction(str(drop))})
    return dims, {RAGGED: filled(assume, model, question.layout, dims, axes)}


def check_routing(assume: Assume, model: Model, at: At) -> None:
    """Refuse a load of experts where there are none. Raises InputError."""
    if assume.routing.model_fields_set and not model.experts:
        message = f"assume.routing is how tokens choose experts, and {model.name} has none"
        raise InputError.one("no-experts", message, at("assume", "routing"), NO_EXPERTS)


def routing_assumption(assume: Assume, model: Model) -> Iterator[Assumption]:
    """What is assumed of how tokens choose."""
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
        text = f"the fullest rank of experts has {load:g} times the mean of rows, none is dropped"
    yield Assumption(text, kind)
