"""What an expression of the notation says: one array, a reshard or a product, and what is wrong with it."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from tpsim.frozen import dataclass
from tpsim.quantity.errors import TpsimError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpsim.algebra.sharding import Sharding


Span = tuple[int, int]


class NotationError(TpsimError):
    """An expression that cannot be read, or says what the algebra forbids: what is wrong, where, and the remedy.

    message  one line
    text     the user's expression
    span     first character to underline, and the one after the last
    remedy   what to do
    slug     stable short name: ``notation``, or what the same mistake is called in a file
    """

    exit_code = 2

    def __init__(self, message: str, text: str, span: Span, remedy: str, slug: str = "notation") -> None:
        """An error that prints itself as message, expression, carets, remedy."""
        self.slug = slug
        self.message, self.text, self.span, self.remedy = message, text, span, remedy
        start, end = span
        shown = " ".join(text[:start].splitlines()), text.replace("\n", " ")
        carets = " " * len(shown[0]) + "^" * max(1, end - start)
        super().__init__(f"{message}\n  {shown[1]}\n  {carets}\n{remedy}")


@dataclass(frozen=True, slots=True)
class NamedArray:
    """An array with its name, as an expression states it.

    spans  where its parts stand in the text: ("array", name), ("dim", name) or ("axis", name) -> first and end column
    """

    name: str
    type: Sharding
    spans: Mapping[tuple[str, str], Span] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        """The array in the notation."""
        return format_array(self.name, self.type)


@dataclass(frozen=True, slots=True)
class Single:
    """One array alone: what does each device hold?"""

    text: str
    array: NamedArray

    @property
    def arrays(self) -> tuple[NamedArray, ...]:
        """The array."""
        return (self.array,)


@dataclass(frozen=True, slots=True)
class Conversion:
    """One array that is to change its type."""

    text: str
    before: NamedArray
    after: NamedArray

    @property
    def arrays(self) -> tuple[NamedArray, ...]:
        """The array as it is, then as it shall be."""
        return self.before, self.after


@dataclass(frozen=True, slots=True)
class Product:
    """A product by dim names; `out` is None if the expression leaves the result to tpsim."""

    text: str
    left: NamedArray
    right: NamedArray
    out: NamedArray | None

    @property
    def arrays(self) -> tuple[NamedArray, ...]:
        """The operands, then the result if it is stated."""
        return (self.left, self.right, self.out) if self.out else (self.left, self.right)


Expression = Single | Conversion | Product


def format_array(name: str, type_: Sharding) -> str:
    """The array in the notation.

    >>> from tpsim.algebra.sharding import Sharding
    >>> format_array("A", Sharding(("I", "J"), (("X", "Y"), ())))
    'A[I_XY, J]'
    """
    return f"{name}{type_}"
