"""The notation of the scaling book: text such as ``A[I_X, J] . B[J, K_Y] -> C[I_X, K_Y]`` to values and back.

It says one array, a reshard or a product, or what is wrong with the text, and where.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from tpsim.algebra.sharding import Owed, OwedKind, Sharding
from tpsim.quantity.errors import TpsimError, suggest

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
        return f"{self.name}{self.type}"


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


def parse_expression(text: str, mesh_axes: Collection[str] | None = None) -> Expression:
    """A single array, a reshard ``A[I_X] -> A[I]``, or a product ``A[I, J] . B[J, K] -> C[I, K]``.

    mesh_axes  the names of the mesh's axes: subscripts are cut into these, ``I_data``, ``I_x`` and ``I_{XY}`` included.
               None when the mesh is not known: every letter (with its digits) is an axis, longer names stand in braces
    The product's sign is ``.``, ``@``, ``*`` or ``·``, and may name what it sums over, ``*_J``; without ``->`` the
    result's type is left open. Raises NotationError.

    >>> parse_expression("A[I_X] -> A[I]").after.type.on
    ((),)
    """
    reader = _Cursor(text, mesh_axes)
    arrays = [reader.array()]
    summed: tuple[str, Span] | None = None
    while reader.take(PRODUCT_SIGNS):
        summed = reader.summed()
        arrays.append(reader.array())
    out = reader.array() if reader.take(("->", "→")) else None
    reader.end("an expression")
    for third in arrays[2:]:
        reader.fail(
            "a product has two operands",
            third.spans["array", third.name],
            "write it as two products, one after the other",
        )
    if len(arrays) == 1:
        return _reshard(reader, arrays[0], out)
    product = _product(reader, arrays, out)
    if summed is not None:
        _refuse_other_sum(reader, product, *summed)
    return product


PRODUCT_SIGNS = (".", "@", "·", "*", "⋅")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9']*")
_ARRAY = re.compile(r"[A-Za-z][A-Za-z0-9_']*")
_SUMMED = re.compile(r"_(?:[A-Za-z][A-Za-z0-9']*|\{[^}]*\})")
_SUBSCRIPT = re.compile(r"[A-Za-z0-9_]+")
_AXIS = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_LETTER = re.compile(r"[A-Za-z][0-9]*")
_OWED: Mapping[str, OwedKind] = {"U": "sum", "M": "max"}


def _reshard(reader: _Cursor, before: NamedArray, after: NamedArray | None) -> Single | Conversion:
    if after is None:
        return Single(reader.text, before)
    if before.type.dims != after.type.dims:
        dims, others = (", ".join(array.type.dims) for array in (before, after))
        reader.fail(
            f"{before.name}[{dims}] cannot become {after.name}[{others}]",
            after.spans["array", after.name],
            f"a reshard keeps the dims and their order: write {before.name}[{dims}] with the axes wanted",
        )
    return Conversion(reader.text, before, after)


def _product(reader: _Cursor, arrays: Sequence[NamedArray], out: NamedArray | None) -> Product:
    left, right = arrays
    for dim in out.type.dims if out else ():
        if out and dim not in (*left.type.dims, *right.type.dims):
            reader.fail(
                f"dim {dim} of {out.name} is in neither {left.name} nor {right.name}",
                out.spans["dim", dim],
                f"the result can have {', '.join(dict.fromkeys((*left.type.dims, *right.type.dims)))}",
            )
    if out and not out.type.complete and any(kind == "max" for _, kind in out.type.owes):
        reader.fail("a product never owes a max", out.spans["array", out.name], "drop the M: a product owes sums only")
    return Product(reader.text, left, right, out)


def _refuse_other_sum(reader: _Cursor, product: Product, stated: str, span: Span) -> None:
    """Refuse a sign's subscript that is not what its operands share and the result lacks."""
    kept = product.out.type.dims if product.out else ()
    shared = [dim for dim in product.left.type.dims if dim in product.right.type.dims and dim not in kept]
    if {dim.strip() for dim in stated.strip("_{}").split(",")} != set(shared):
        over = f"the sum is over {', '.join(shared)}" if shared else "no dim is summed over"
        reader.fail(f"{over}, not over {stated.strip('_{}')}", span, "drop the subscript, or rename the dims")


class _Cursor:
    """A cursor over the text; every failure shows the whole text with a caret."""

    def __init__(self, text: str, mesh_axes: Collection[str] | None) -> None:
        self.text = text
        self.mesh_axes = mesh_axes
        self.at = 0

    def fail(self, message: str, span: Span, remedy: str, slug: str = "notation") -> NoReturn:
        raise NotationError(message, self.text, span, remedy, slug)

    def skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def take(self, signs: Sequence[str]) -> str | None:
        """The first of `signs` that stands here, and step over it."""
        self.skip()
        for sign in signs:
            if self.text.startswith(sign, self.at):
                self.at += len(sign)
                return sign
        return None

    def expect(self, signs: Sequence[str], message: str, remedy: str) -> str:
        sign = self.take(signs)
        return sign or self.fail(message, (self.at, self.at + 1), remedy)

    def word(self, pattern: re.Pattern[str], message: str, remedy: str) -> tuple[str, Span]:
        self.skip()
        match = pattern.match(self.text, self.at)
        if match is None:
            self.fail(message, (self.at, self.at + 1), remedy)
        self.at = match.end()
        return match.group(), match.span()

    def summed(self) -> tuple[str, Span] | None:
        """The subscript of a product's sign, ``*_J``."""
        if not self.text.startswith("_", self.at):
            return None
        return self.word(_SUMMED, "what the product sums over is missing", "write *_J, or * alone")

    def end(self, noun: str) -> None:
        self.skip()
        if self.at < len(self.text):
            self.fail(
                f"{noun} ends here, but the text goes on",
                (self.at, len(self.text)),
                "a product is A[I, J] . B[J, K] -> C[I, K], a reshard A[I_X, J] -> A[I, J_X]",
            )

    def array(self) -> NamedArray:
        name, span = self.word(_ARRAY, "an array's name is missing", "an array is written A[I_X, J]")
        spans: dict[tuple[str, str], Span] = {("array", name): span}
        if self.text.startswith("(", self.at):
            remedy = "collectives are derived: write what becomes what, A[I_X, J] -> A[I, J]"
            self.fail(f"{name}(...) is no array", span, remedy)
        self.expect(("[",), f"{name} has no dims", f"an array is written {name}[I_X, J]")
        dims, on = self._dims(name, spans)
        owes: list[Owed] = []
        if self.take(("{",)):
            owes = self._owed(name, spans)
        return NamedArray(name, Sharding(tuple(dims), tuple(on), frozenset(owes)), spans)

    def _dims(self, name: str, spans: dict[tuple[str, str], Span]) -> tuple[list[str], list[tuple[str, ...]]]:
        dims: list[str] = []
        on: list[tuple[str, ...]] = []
        if self.take(("]",)):
            return dims, on
        while True:
            remedy = "dims are names with a comma between, [I_X, J]; their sizes go beside, I=1024,J=4096"
            dim, span = self.word(_NAME, f"a dim of {name} is missing", remedy)
            if ("dim", dim) in spans:
                self.fail(f"dim {dim} occurs twice in {name}", span, "give the two dims names of their own")
            spans["dim", dim] = span
            dims.append(dim)
            on.append(self._axes(name, spans))
            if self.expect((",", "]"), f"a comma or ] is missing in {name}", "write [I_X, J]") == "]":
                return dims, on

    def _owed(self, name: str, spans: dict[tuple[str, str], Span]) -> list[Owed]:
        """The part in braces: ``U_X`` a sum over X, ``M_X`` a max."""
        owes: list[Owed] = []
        while True:
            kind, span = self.word(
                _NAME, f"what {name} owes is missing", "write {U_X} for a sum owed over X, {M_X} for a max"
            )
            axes = self._axes(name, spans)
            if kind not in _OWED or not axes:
                self.fail(f"{kind} is not something to owe", span, "write {U_X} for a sum owed over X, {M_X} for a max")
            if owes and _OWED[kind] != owes[0][1]:
                remedy = "they do not commute, so the array would depend on which is paid first; settle one before"
                self.fail(f"{name} owes a sum and a max", span, remedy)
            owes += [(axis, _OWED[kind]) for axis in axes]
            if self.expect((",", "}"), f"a comma or }} is missing in {name}", "write {U_X}") == "}":
                return owes

    def _axes(self, name: str, spans: dict[tuple[str, str], Span]) -> tuple[str, ...]:
        """The subscript that may follow a dim."""
        if not self.text.startswith("_", self.at):
            return ()
        self.at += 1
        axes = self._braced() if self.text.startswith("{", self.at) else self._segmented()
        for axis, span in axes:
            if ("axis", axis) in spans:
                self.fail(
                    f"mesh axis {axis} is used twice in {name}",
                    span,
                    f"an axis may shard one dimension or carry one sum; drop one {axis}",
                )
            spans["axis", axis] = span
        return tuple(axis for axis, _ in axes)

    def _braced(self) -> list[tuple[str, Span]]:
        self.at += 1
        axes = []
        while True:
            word, span = self.word(_AXIS, "an axis is missing", "axes in braces have commas between: I_{dp,tp}")
            axes += [(word, span)] if self.mesh_axes is None else self._of_the_mesh(word, span)
            if self.expect((",", "}"), "a comma or } is missing", "write I_{dp,tp}") == "}":
                return axes

    def _segmented(self) -> list[tuple[str, Span]]:
        word, span = self.word(_SUBSCRIPT, "the axes are missing after _", "write I_X, or I without the _")
        if self.mesh_axes is not None:
            return self._of_the_mesh(word, span)
        if _LETTER.sub("", word):
            self._unknown(word, span)
        return [(letter.group(), letter.span()) for letter in _LETTER.finditer(self.text, *span)]

    def _of_the_mesh(self, word: str, span: Span) -> list[tuple[str, Span]]:
        """A subscript, in braces or not, cut into axes of the mesh."""
        return _segments(word, self.mesh_axes or (), span[0]) or self._unknown(word, span)

    def _unknown(self, word: str, span: Span) -> NoReturn:
        if self.mesh_axes is None:
            self.fail(f"{word} is not a row of axes", span, "an axis begins with a letter; write I_XY or I_{dp,tp}")
        meant = suggest(word, self.mesh_axes) if len(word) > 1 else None
        known = f"the mesh has the axes {', '.join(self.mesh_axes)}"
        remedy = f'did you mean "{meant}"? {known}' if meant else known
        self.fail(f"{word} is not an axis of the mesh", span, remedy, "unknown-axis")


def _known(word: str, axes: Collection[str]) -> str | None:
    """The mesh axis that `word` names: itself, else the one that differs only in case."""
    if word in axes:
        return word
    alike = [axis for axis in axes if axis.lower() == word.lower()]
    return alike[0] if len(alike) == 1 else None


def _segments(word: str, axes: Collection[str], start: int) -> list[tuple[str, Span]] | None:
    """The axes whose names make up `word`, long names first, with their places; None if that is impossible."""
    if not word:
        return []
    for length in range(len(word), 0, -1):
        axis = _known(word[:length], axes)
        rest = None if axis is None else _segments(word[length:], axes, start + length)
        if axis is not None and rest is not None:
            return [(axis, (start, start + length)), *rest]
    return None
