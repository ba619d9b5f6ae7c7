"""A cost of a plan, evaluated twice: with the plan's numbers and with symbols."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpsim.answers.derivation import Derivation
from tpsim.program.dims import LOOPS, MEANINGS, ROLES, loop
from tpsim.quantity.units import show

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpsim.answers.plan import PlanResult
    from tpsim.cost.sizes import Sizes
    from tpsim.machine.profile import Constant
    from tpsim.program.op import Where
    from tpsim.quantity.units import Dimension


def values(result: PlanResult) -> dict[str, Any]:
    """The number that each symbol of the plan's formulas stands for."""
    mesh, roles = result.question.mesh, result.question.layout.roles
    return {
        **result.sizes.known,
        **{known_role.symbol: mesh.size(*roles[role]) for role, known_role in ROLES.items() if roles.get(role)},
    }


def derived(
    result: PlanResult, what: str, dimension: Dimension, cost: Callable[[Sizes], Any], **rest: Any
) -> Derivation:
    """A cost, evaluated twice: with numbers and with symbols."""
    known = values(result)
    meanings = {**MEANINGS, **{(known_loop := loop(name)).symbol: known_loop.meaning for name in result.sizes.loops}}
    staged = {LOOPS["layers"].symbol: " of a stage"} if result.pipeline else {}
    return Derivation(
        what=what,
        dimension=dimension,
        expression=cost(result.sizes.symbols),
        value=number(cost(result.sizes)),
        known=known,
        meanings={name: meanings[name] + staged.get(name, "") for name in known if name in meanings},
        **rest,
    )


def constant_said(constant: Constant) -> str:
    """A constant with its value, its kind and its source."""
    origin = ", ".join(dict.fromkeys(filter(None, (constant.kind, constant.source))))
    return f"{constant.path} {show(constant.value, constant.dimension)} ({origin})"


def of_rank(result: PlanResult, rank: int) -> Callable[[Where], bool]:
    """What a rank of the pipeline runs and holds; without one everything."""
    stages = result.question.stages
    return lambda where: not result.pipeline or stages.runs(where, rank)


def number(value: Any) -> int | float:
    """The exact int where there is one."""
    return int(value) if value == int(value) else float(value)
