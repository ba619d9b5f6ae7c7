"""One number with its derivation: formula, values, reasons, sources, checks; costs are evaluated in symbols, too."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from tpsim.cost import formula
from tpsim.program.dims import LOOPS, MEANINGS, ROLES, loop
from tpsim.quantity.units import Dimension, show
from tpsim.report.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tpsim.answers.plan import PlanResult
    from tpsim.cost.sizes import Sizes
    from tpsim.machine.constant import Constant
    from tpsim.program.op import Where

CHECKS: Mapping[str, tuple[str, ...]] = {
    "wire": ("tests/algebra/test_moves.py", "tests/machine/test_algorithms.py"),
    "program": ("tests/program/test_collectives.py", "tests/reference/test_execute.py"),
    "seconds": ("tests/machine/test_algorithms.py",),
    "links": ("tests/reference/test_linkload.py",),
    "memory": ("tests/cost/test_memory.py",),
    "peak": ("tests/cost/test_peak.py", "tests/claims/test_verify.py"),
    "compute": ("tests/cost/test_compute.py", "tests/cost/test_step.py", "tests/cost/test_timeline.py"),
    "stragglers": ("tests/cost/test_stragglers.py",),
    "speculation": ("tests/answers/test_speculation.py",),
    "mixed": ("tests/answers/test_mixed.py",),
    "constant": ("tpsim hw validate",),
}
"""What holds a kind of number against something that does not know its formula."""

WIRE_SOURCE = "How to Scale Your Model, chapter 3, with the finite factor"

V_MEANS = "bytes of the whole array taking part"


@dataclass(frozen=True, kw_only=True)
class Derivation(Record):
    """A number explained.

    what        the number in words
    expression  a sympy expression, None if the number is given and not derived
    text        the formula in words, where it is no expression in symbols
    known       the values of symbols, by name; meanings say what the symbols are
    value       None if nothing says what the symbols are
    because     why it exists
    """

    told: ClassVar[tuple[str, ...]] = (
        *("what", "formula", "latex", "symbols", "value", "dimension", "because", "sources", "checks"),
    )

    what: str
    dimension: Dimension
    expression: Any = None
    text: str = ""
    known: Mapping[str, Any] = field(default_factory=dict)
    meanings: Mapping[str, str] = field(default_factory=dict)
    value: float | None = None
    because: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()

    @property
    def formula(self) -> str | None:
        """The formula as text; None for a given number."""
        return self.text or None if self.expression is None else formula.text(self.expression)

    @property
    def latex(self) -> str | None:
        """The formula in LaTeX; None for a given number."""
        if self.expression is None:
            return rf"\text{{{self.text}}}" if self.text else None
        import sympy

        return str(sympy.latex(sympy.factor(sympy.sympify(self.expression))))

    @property
    def symbols(self) -> dict[str, Any]:
        """The symbols that the expression has, with their values."""
        free = sorted(str(symbol) for symbol in getattr(self.expression, "free_symbols", ()))
        return {name: self.known[name] for name in free if name in self.known}

    @property
    def shown(self) -> str:
        """The value with its unit."""
        return "" if self.value is None else show(self.value, self.dimension)

    @property
    def sentence(self) -> str:
        """The number in one line."""
        return f"{self.what} = " + " = ".join(filter(None, [self.formula, self.shown]))

    def flat(self) -> dict[str, Any]:
        """A flat row, without LaTeX."""
        symbols = ", ".join(f"{name}={value}" for name, value in self.symbols.items())
        lists = {name: "; ".join(self[name]) or None for name in ("because", "sources", "checks")}
        return {name: {**lists, "symbols": symbols or None}.get(name, self[name]) for name in self if name != "latex"}


def symbol(name: str) -> Any:
    """A positive symbol. Loads sympy."""
    import sympy

    return sympy.Symbol(name, positive=True)


def values(result: PlanResult) -> dict[str, Any]:
    """The number that each symbol of the plan's formulas stands for."""
    mesh, roles = result.question.mesh, result.question.layout.roles
    return {
        **result.sizes.known,
        **{known_role.symbol: mesh.size(*roles[role]) for role, known_role in ROLES.items() if roles.get(role)},
    }


def derived(
    result: PlanResult, noun: str, dimension: Dimension, cost: Callable[[Sizes], Any], **rest: Any
) -> Derivation:
    """A cost, evaluated twice: with numbers and with symbols."""
    known = values(result)
    meanings = {**MEANINGS, **{(known_loop := loop(name)).symbol: known_loop.meaning for name in result.sizes.loops}}
    staged = {LOOPS["layers"].symbol: " of a stage"} if result.pipeline else {}
    return Derivation(
        what=noun,
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
