"""One arithmetic for sizes: exact ints, float64 arrays and sympy symbols go through the same lines.

A cost formula takes a `Size` and must never branch on its value: structure steers Python, size does not.
The protocol has no ``<``, so the type checker refuses comparisons; the helpers below say what a formula may need
instead. What decides by a value (`where_positive`, `where_equal`, `by_least`) and `root` take numbers and arrays: ways
are chosen by seconds, which are no formulas. numpy and sympy are touched only when a value of theirs arrives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import cache, partial, reduce
from typing import Any, Protocol


class Size(Protocol):
    """A number of bytes, devices, steps or elements: int, Fraction, float, float64 array or sympy expression."""

    def __add__(self, other: Any, /) -> Any: ...
    def __radd__(self, other: Any, /) -> Any: ...
    def __sub__(self, other: Any, /) -> Any: ...
    def __rsub__(self, other: Any, /) -> Any: ...
    def __mul__(self, other: Any, /) -> Any: ...
    def __rmul__(self, other: Any, /) -> Any: ...
    def __truediv__(self, other: Any, /) -> Any: ...
    def __rtruediv__(self, other: Any, /) -> Any: ...


EXACT = frozenset({int, bool, Fraction})
"""Types of numbers that are never rounded."""

PLAIN = EXACT | {float}
"""Types of numbers that no package brings."""


@cache
def _package(kind: type) -> str:
    """The package that defines a type; asked for by every operation, so no line of Python may run for it twice."""
    return kind.__module__.partition(".")[0]


def _symbolic(*values: object) -> bool:
    return "sympy" in map(_package, map(type, values))


def _array(*values: object) -> bool:
    return "numpy" in map(_package, map(type, values))


def _exact(*values: object) -> bool:
    return EXACT.issuperset(map(type, values))


def over(a: Size, b: Size) -> Any:
    """a/b. Two exact numbers give an exact int or Fraction, never a float.

    >>> over(6, 3), over(7, 2)
    (2, Fraction(7, 2))
    """
    if isinstance(a, int) and isinstance(b, int) and b and not a % b:
        return a // b  # what most sizes do, without a Fraction on the way
    kind, other = type(a), type(b)
    if kind in PLAIN and other in PLAIN:
        if kind is float or other is float:
            return float(a) / float(b)  # type: ignore[arg-type]
        exact: Fraction = Fraction(a) / b  # type: ignore[call-overload]
        return exact.numerator if exact.denominator == 1 else exact
    if _symbolic(a, b):
        import sympy

        return sympy.sympify(a) / sympy.sympify(b)
    return _rounded(a) / _rounded(b)


def floor_over(a: Size, b: Size) -> Any:
    """The whole part of a/b.

    >>> floor_over(7, 2)
    3
    """
    if _exact(a, b):
        return a // b  # type: ignore[operator]
    if _symbolic(a, b):
        import sympy

        return sympy.floor(over(a, b))
    return _mapped("floor", over(a, b))


def ceil_over(a: Size, b: Size) -> Any:
    """a/b rounded up to a whole number.

    >>> ceil_over(7, 2)
    4
    """
    if _exact(a, b):
        return -(-a // b)  # type: ignore[operator]
    if _symbolic(a, b):
        import sympy

        return sympy.ceiling(over(a, b))
    return _mapped("ceil", over(a, b))


def _mapped(function: str, value: Any) -> Any:
    """A function that numbers and arrays have under one name."""
    if _array(value):
        import numpy as np

        return getattr(np, function)(value)
    return getattr(math, function)(value)


def root(value: Size) -> Any:
    """The square root.

    >>> root(9)
    3.0
    """
    return _mapped("sqrt", value)


def log(value: Size) -> Any:
    """The natural logarithm.

    >>> log(1)
    0.0
    """
    return _mapped("log", value)


def log2_ceil(n: Size) -> Any:
    """Rounds of doubling that reach n devices: the least k with 2**k >= n.

    >>> log2_ceil(1), log2_ceil(8), log2_ceil(9)
    (0, 3, 4)
    """
    if _exact(n):
        return (math.ceil(n) - 1).bit_length()  # type: ignore[call-overload]
    if _symbolic(n):
        import sympy

        return sympy.ceiling(sympy.log(n, 2))
    if _array(n):
        import numpy as np

        return np.ceil(np.log2(n))  # type: ignore[call-overload]
    return math.ceil(math.log2(n))  # type: ignore[arg-type]


def _extreme(values: tuple[Any, ...], sympy_name: str, numpy_name: str, plain: Any) -> Any:
    if _symbolic(*values):
        import sympy

        return getattr(sympy, sympy_name)(*values)
    if _array(*values):
        import numpy as np

        return reduce(getattr(np, numpy_name), values)
    return plain(values)


def largest(*values: Size) -> Any:
    """The greatest of the values, element by element for arrays.

    >>> largest(2, 7, 3)
    7
    """
    for value in values:
        if type(value) not in PLAIN:
            return _extreme(values, "Max", "maximum", max)
    return max(values)  # type: ignore[type-var]


def smallest(*values: Size) -> Any:
    """The least of the values, element by element for arrays.

    >>> smallest(2, 7, 3)
    2
    """
    for value in values:
        if type(value) not in PLAIN:
            return _extreme(values, "Min", "minimum", min)
    return min(values)  # type: ignore[type-var]


def by_least(keys: Sequence[Size]) -> Callable[[Sequence[Size]], Any]:
    """What picks, of values beside `keys`, the one whose key is the least; element by element, of equals the first.

    >>> by_least([3, 1, 2])(["a", "b", "c"])
    'b'
    """
    if _array(*keys):
        return partial(_where_least, _firsts(keys))
    first = min(range(len(keys)), key=keys.__getitem__)  # type: ignore[arg-type]
    return lambda values: values[first]


def _firsts(keys: Sequence[Any]) -> list[Any]:
    """For every key but the first, where it is less than all before it."""
    import numpy as np

    least, firsts = keys[0], []
    for key in keys[1:]:
        firsts.append(key < least)
        least = np.minimum(key, least)
    return firsts


def _where_least(firsts: Sequence[Any], values: Sequence[Any]) -> Any:
    """The value of the least key: each later one takes the place of what is before it."""
    import numpy as np

    least = values[0]
    for first, value in zip(firsts, values[1:], strict=True):
        if value is not least:
            least = np.where(first, value, least)
    return least


def where_many(n: Size, value: Size, otherwise: Size = 0) -> Any:
    """`value` where n > 1, else 0 or what is given: what is paid only if there is somebody to talk to (a launch).

    >>> where_many(1, 3.0), where_many(2, 3.0)
    (0, 3.0)
    """
    if type(n) in PLAIN:
        return value if n > 1 else otherwise  # type: ignore[operator]
    if _symbolic(n):
        import sympy

        return sympy.Piecewise((value, n > 1), (otherwise, True))  # type: ignore[operator]
    if _array(n):
        import numpy as np

        return np.where(n > 1, value, otherwise)  # type: ignore[operator, call-overload]
    return value if n > 1 else otherwise  # type: ignore[operator]


def where_positive(x: Size, value: Size, otherwise: Size = 0) -> Any:
    """`value` where x > 0, else 0 or what is given.

    >>> where_positive(-0.5, 3.0), where_positive(0.5, 3.0)
    (0, 3.0)
    """
    if _array(x):
        import numpy as np

        return np.where(x > 0, value, otherwise)  # type: ignore[operator, call-overload]
    return value if x > 0 else otherwise  # type: ignore[operator]


def where_equal(a: Size, b: Size, value: Size, otherwise: Size = 0) -> Any:
    """`value` where a equals b, else 0 or what is given.

    >>> where_equal(8, 8, 3.0), where_equal(4, 8, 3.0)
    (3.0, 0)
    """
    if _array(a, b):
        import numpy as np

        return np.where(np.equal(a, b), value, otherwise)  # type: ignore[call-overload]
    return value if a == b else otherwise


def narrowed(size: Size) -> Any:
    """A grid without the lines in which nothing varies, e.g. b/d where b is so many per shard; any other size as it is.

    What is worked out of it is worked out once for all of them, and stretched where it meets what varies.
    """
    if type(size) in PLAIN:
        return size
    for axis, n in enumerate(size.shape if _array(size) and size.ndim > 1 else ()):  # type: ignore[attr-defined]
        first = size[(slice(None),) * axis + (slice(1),)]  # type: ignore[index]
        if n > 1 and (size == first).all():
            size = first
    return size


def total(values: Iterable[Any]) -> Any:
    """The sum of sizes of any kind, one after another; 0 for none.

    Python's own `sum` rounds floats in one way up to 3.11 and in another from 3.12 on, so that answers would differ.

    >>> total([0.1] * 10), total([1, 2])
    (0.9999999999999999, 3)
    """
    whole = None
    for value in values:
        if type(value) is not int or value:  # whole arrays are not worth adding nothing to
            whole = value if whole is None else whole + value
    return 0 if whole is None else whole


def product(values: Iterable[Size]) -> Any:
    """The product of sizes; 1 for none.

    >>> product([2, 3])
    6
    """
    sizes = [*values]
    return math.prod(map(_rounded, sizes) if Fraction in map(type, sizes) and _array(*sizes) else sizes)


def _rounded(value: Size) -> Size:
    """A Fraction as a float: beside arrays, which it would make arrays of objects."""
    return float(value) if type(value) is Fraction else value


def whole(size: Size) -> int:
    """A size as the number that it must be where messages or blocks are counted one by one.

    Raises TypeError for anything else.
    """
    if not isinstance(size, int):
        raise TypeError(f"{size} is no number of devices")
    return size


def divisors(number: int) -> list[int]:
    """The divisors of `number`, ascending.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [n for n in range(1, math.isqrt(number) + 1) if not number % n]
    return sorted({*small, *(number // n for n in small)})
