"""Holds the formulas that a plan prints against the bytes that devices counted."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from tpsim.answers.derivations import values
from tpsim.claims.checks import Check, counted, judged
from tpsim.claims.claims import by_sort, injected, injected_most, least_injected
from tpsim.claims.sorts import planned
from tpsim.cost import formula

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpsim.answers.plan import PlanResult
    from tpsim.claims.claims import Made
    from tpsim.claims.sorts import Sort
    from tpsim.cost.rollup import Row
    from tpsim.reference.devices import Call


def formulas_check(plan: PlanResult, calls: Sequence[Made]) -> Check:
    """The formulas of calls and of layers, at the sizes that were run, against the bytes that were counted."""
    known = values(plan)
    rows = list(_row_formulas(plan, by_sort(calls), known))
    layers = list(_layer_formulas(plan, calls, known))
    whose = f"{counted(len(rows), 'formula')} of calls and {len(layers)} of single layers"
    seen = f"{whose} come to the bytes that were counted"
    return judged("formulas", seen, [text for text in (*rows, *layers) if text], tried=len(rows) + len(layers))


def _row_formulas(plan: PlanResult, calls: Mapping[Sort, Sequence[Call]], known: Mapping[str, int]) -> Iterator[str]:
    """Per row whose calls ran: "" where its formula holds, else what does not."""
    for row in plan.rows:
        sorts = planned(row.call)
        if least_injected(row.timing) and all(calls.get(sort) for sort in sorts):
            text = row.formula
            claimed = formula.evaluated(text, known)
            seen = sum((_injected(row, calls[sort][0]) for sort in sorts), Fraction(0))
            yield "" if claimed == seen else f"{sorts[0]}: {text} is {claimed}, counted {seen}"


def _injected(row: Row, call: Call) -> Fraction:
    return injected_most(call) if row.collective == "permute" else injected(call)


def _layer_formulas(plan: PlanResult, calls: Sequence[Made], known: Mapping[str, int]) -> Iterator[str]:
    """Per phase of each layer in each microbatch: "" where the formula of a layer holds, else what does not."""
    if not all(least_injected(row.timing) for row in plan.per_layer["total"].rows):
        return
    sums = _sums_of_layers(plan, calls)
    for phase, total in plan.per_layer.items():
        text = total.formula
        claimed = formula.evaluated(text, known)
        for (layer, microbatch), by_phase in sums.items():
            seen = by_phase[phase]
            place = f"layer {layer}, microbatch {microbatch}, {phase}"
            yield "" if seen == claimed else f"{place}: {text} is {claimed}, counted {seen}"


def _sums_of_layers(plan: PlanResult, calls: Sequence[Made]) -> dict[tuple[int, int], dict[str, Fraction]]:
    """Bytes that a device injects in each layer and microbatch, by phase and in all."""
    layers, microbatches = plan.question.model.layers, plan.question.workload.microbatches
    places = [(layer, microbatch) for layer in range(layers) for microbatch in range(microbatches)]
    sums = {place: dict.fromkeys(("forward", "backward", "total"), Fraction(0)) for place in places}
    for one in calls:
        where = one.op.where
        layer, microbatch = where.index("layers"), where.index("microbatches")
        if layer is not None and microbatch is not None:
            for phase in (where.phase, "total"):
                sums[layer, microbatch][phase] += injected(one.call)
    return sums
