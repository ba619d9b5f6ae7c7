"""Formulas as text: the same costs, evaluated with symbols instead of numbers. Loads sympy when called."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tpsim.program.dims import DIMS, LOOPS, ROLES
from tpsim.quantity.size import over, product, total

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tpsim.cost.rollup import Collective, Sizes


def symbols(sizes: Sizes) -> Sizes:
    """Sizes made of symbols where `sizes` has numbers.

    An axis of one device stays 1, and what has no symbol of its own (a pair of two) stays its number. Where a role
    takes several axes, all but the last have symbols of their own and the last is the role's symbol over theirs, so
    that whatever takes part over the whole role shows t or d. One of those as long as there are kv heads is
    kv_heads: tp beyond the kv heads replicates them.
    """
    dims = {name: _symbol(DIMS[name].symbol) or size for name, size in sizes.dims.items()}
    loops = {name: _symbol(LOOPS[name].symbol) or size for name, size in sizes.loops.items()}
    axes: dict[str, Any] = {axis: size if size == 1 else _symbol(axis) for axis, size in sizes.axes.items()}
    for role, named in ROLES.items():
        used = [axis for axis in sizes.roles.get(role, ()) if axis in sizes.axes and sizes.axes[axis] != 1]
        axes.update(_role_axes(used, named.symbol, sizes, dims))
    return replace(sizes, dims=dims, axes=axes, loops=loops)


def _role_axes(axes: Sequence[str], letter: str, sizes: Sizes, dims: Mapping[str, Any]) -> dict[str, Any]:
    if not axes:
        return {}
    *leading, last = axes
    own = {axis: dims["g"] if sizes.axes[axis] == sizes.dims.get("g") else _symbol(axis) for axis in leading}
    return {**own, last: over(_symbol(letter), product(own.values()))}


def _symbol(name: str) -> Any:
    """The symbol of a size; None for one without a name."""
    import sympy

    return sympy.Symbol(name, positive=True) if name else None


def text(expression: Any) -> str:
    """`expression` as one line: numbers and common factors in front.

    >>> import sympy
    >>> t, b = sympy.symbols("t b", positive=True)
    >>> text(16 * b - 16 * b / t)
    '16*b*(t - 1)/t'
    """
    import sympy

    return str(sympy.factor(sympy.sympify(expression)))


def evaluated(line: str, values: Mapping[str, int]) -> Fraction:
    """What a printed formula comes to when its symbols have these values, exactly.

    >>> evaluated("16*b*(t - 1)/t", {"b": 3, "t": 8})
    Fraction(42, 1)
    """
    import sympy

    number = sympy.sympify(line, locals={name: sympy.Integer(value) for name, value in values.items()})
    return Fraction(int(number.p), int(number.q))


def wire(found: Iterable[Collective], sizes: Sizes) -> Any:
    """Bytes that one device injects in all calls of a step."""
    return total(one.wire_bytes(sizes) * one.count(sizes) for one in found)


def wire_text(found: Iterable[Collective], sizes: Sizes, per: Any = 1) -> str:
    """The same over `per` as one line: a term per group of axes, since those do not factor together."""
    groups: dict[tuple[str, ...], list[Collective]] = {}
    for one in found:
        groups.setdefault(one.axes, []).append(one)
    return " + ".join(text(wire(group, sizes) / per) for group in groups.values()) or "0"
