"""One number with its derivation: a formula, the values of its symbols, reasons, sources and checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tpsim.cost import formula
from tpsim.quantity.units import show

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpsim.quantity.units import Dimension

CHECKS: Mapping[str, tuple[str, ...]] = {
    "wire": ("tests/algebra/test_moves.py", "tests/machine/test_algorithms.py"),
    "program": ("tests/program/test_collectives.py", "tests/reference/test_execute.py"),
    "seconds": ("tests/machine/test_algorithms.py",),
    "links": ("tests/reference/test_linkload.py",),
    "memory": ("tests/cost/test_memory.py",),
    "compute": ("tests/cost/test_compute.py", "tests/cost/test_step.py"),
    "constant": ("tpsim hw validate",),
}
"""What holds a kind of number against something that does not know its formula."""


@dataclass(frozen=True, kw_only=True)
class Derivation:
    """A number explained.

    what        the number in words
    expression  a sympy expression, None if the number is given and not derived
    text        the formula in words, where it is no expression in symbols
    symbols     the values of the expression's symbols, by name; meanings say what the symbols are
    value       None if nothing says what the symbols are
    because     why it exists
    """

    what: str
    dimension: Dimension
    expression: Any = None
    text: str = ""
    symbols: Mapping[str, Any] = field(default_factory=dict)
    meanings: Mapping[str, str] = field(default_factory=dict)
    value: float | None = None
    because: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()

    @property
    def formula(self) -> str:
        """The formula as text; empty for a given number."""
        return self.text if self.expression is None else formula.text(self.expression)

    @property
    def latex(self) -> str:
        """The formula in LaTeX."""
        if self.expression is None:
            return rf"\text{{{self.text}}}" if self.text else ""
        import sympy

        return str(sympy.latex(sympy.factor(sympy.sympify(self.expression))))

    @property
    def used(self) -> dict[str, Any]:
        """The symbols that the expression has, with their values."""
        free = sorted(str(one) for one in getattr(self.expression, "free_symbols", ()))
        return {name: self.symbols[name] for name in free if name in self.symbols}

    @property
    def shown(self) -> str:
        """The value with its unit."""
        return "" if self.value is None else show(self.value, self.dimension)

    @property
    def sentence(self) -> str:
        """The number in one line."""
        return f"{self.what} = " + " = ".join(filter(None, [self.formula, self.shown]))

    def record(self) -> dict[str, Any]:
        """A flat row."""
        return {
            "what": self.what,
            "formula": self.formula or None,
            "symbols": ", ".join(f"{name}={value}" for name, value in self.used.items()) or None,
            "value": self.value,
            "dimension": self.dimension,
            "because": "; ".join(self.because) or None,
            "sources": "; ".join(self.sources) or None,
            "checks": "; ".join(self.checks) or None,
        }

    def to_json(self) -> dict[str, Any]:
        """As JSON shows it."""
        return {
            "what": self.what,
            "formula": self.formula or None,
            "latex": self.latex or None,
            "symbols": self.used,
            "value": self.value,
            "dimension": self.dimension,
            "because": list(self.because),
            "sources": list(self.sources),
            "checks": list(self.checks),
        }


def symbol(name: str) -> Any:
    """A positive symbol. Loads sympy."""
    import sympy

    return sympy.Symbol(name, positive=True)
