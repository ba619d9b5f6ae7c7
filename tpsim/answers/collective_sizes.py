"""The sizes that a collective is timed at: read, and rounded to whole elements."""

from __future__ import annotations

from collections.abc import Sequence

from tpsim.quantity.errors import InputError
from tpsim.quantity.sizes import ByteSizes, read_sizes
from tpsim.quantity.units import UnitError


def sizes_of(sizes: str | int | Sequence[int]) -> ByteSizes:
    """ByteSizes as a text or as numbers; raises InputError for a text that says none."""
    if not isinstance(sizes, str):
        return ByteSizes((sizes,) if isinstance(sizes, int) else tuple(sizes))
    try:
        return read_sizes(sizes)
    except UnitError as error:
        raise InputError.one(error.slug, error.message, remedy=error.remedy) from None


def whole(size: int, shares: int, width: int) -> int:
    """`size` rounded down to whole elements, as many of them for each of the ranks that get a share."""
    least = shares * width
    if size < least:
        each = f" for each of {shares} ranks" if shares > 1 else ""
        message = f"{size} bytes are less than one element{each}"
        raise InputError.one("size-too-small", message, remedy=f"give {least} bytes or more")
    return size // least * least


def rounding(rounded: int, least: int, shares: str) -> list[str]:
    """A note that sizes were rounded, if any was."""
    sizes = "1 size" if rounded == 1 else f"{rounded} sizes"
    return [f"{sizes} rounded down to multiples of {least} bytes: {shares}element"] * bool(rounded)
