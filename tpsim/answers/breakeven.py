"""Break-even: at which value of a symbol two costs are equal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    import sympy


def breakeven(left: Any, right: Any, symbol: sympy.Symbol | str) -> Any:
    """The least positive value of `symbol` at which `left` equals `right`.

    left, right  two costs in one unit: numbers or sympy expressions, e.g. seconds of compute and of communication
    symbol       the unknown, a symbol or its name
    Returns an int or an exact sympy number where one exists, else an expression in the other symbols.
    Raises InputError if no positive value makes them equal.

    >>> import sympy
    >>> B = sympy.Symbol("B", positive=True)
    >>> breakeven(2 * B * 4096, 4096 * 4096, B)
    2048
    """
    import sympy

    wanted = _symbol(symbol, sympy.sympify(left), sympy.sympify(right))
    difference = sympy.together(sympy.sympify(left) - sympy.sympify(right))
    found = [
        value
        for value in _solutions(difference, wanted)
        if value.is_positive is not False and value.is_real is not False
    ]
    if not found:
        raise InputError.one(
            "no-breakeven",
            f"no positive {wanted} makes {left} equal {right}",
            remedy="one side is below the other at every value",
        )
    numbers = sorted((value for value in found if value.is_number), key=float)
    best = numbers[0] if numbers else found[0]
    return int(best) if best.is_Integer else best


def _symbol(symbol: sympy.Symbol | str, left: sympy.Expr, right: sympy.Expr) -> sympy.Symbol:
    """The symbol itself, or the one of that name in the expressions (whose assumptions a fresh one would lack)."""
    import sympy

    known = {str(free): free for free in left.free_symbols | right.free_symbols}
    if str(symbol) not in known:
        raise InputError.one(
            "unknown-symbol",
            f"{symbol} occurs in neither {left} nor {right}",
            remedy=f"symbols here: {', '.join(sorted(known)) or 'none'}",
        )
    found = known[str(symbol)]
    if not isinstance(found, sympy.Symbol):
        raise TypeError(f"{found} is no symbol")
    return found


def _solutions(difference: sympy.Expr, symbol: sympy.Symbol) -> list[sympy.Expr]:
    """Where `difference` vanishes, over a positive unknown."""
    import sympy

    positive = sympy.Symbol(symbol.name, positive=True)
    try:
        return list(sympy.solve(difference.subs(symbol, positive), positive))
    except NotImplementedError:
        return []
