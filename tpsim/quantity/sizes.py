"""The sizes of a sweep: lists and ranges of bytes, as ``10kB:1GB,8MB`` or as nccl-tests writes them, to whole bytes."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING

from tpsim.frozen import dataclass
from tpsim.quantity.units import UnitError, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST = 10_000
"""More sizes than anybody reads; a step was forgotten, or is far too small."""

AS_NCCL = re.compile(r"([0-9.]+)\s*([kmg])", re.IGNORECASE)
"""A size without its B: nccl-tests, whose prefixes are powers of 1024 (src/common.cu, parsesize)."""

RANGE = "FROM:TO doubles, FROM:TO:x4 grows fourfold, FROM:TO:+1MB by steps; each ends at TO"


@dataclass(frozen=True, slots=True)
class ByteSizes:
    """Bytes, ascending and without repeats; notes say how they were read where that is not plain."""

    bytes: tuple[int, ...]
    notes: tuple[str, ...] = ()


def read_sizes(text: str) -> ByteSizes:
    """The sizes of a list; entries are separated by a comma or a bar, and each is a size or a range, see `RANGE`.

    Raises UnitError.

    >>> read_sizes("1kB:5kB,64kB").bytes, read_sizes("1kB:4kB:+1kB").bytes
    ((1000, 2000, 4000, 5000, 64000), (1000, 2000, 3000, 4000))
    >>> read_sizes("1M")
    ByteSizes(bytes=(1048576,), notes=('1M is 1 MiB, as nccl-tests writes it',))
    """
    entries = [entry.strip() for entry in re.split(r"[,|]", text)]
    sizes = {size for entry in entries for size in _entry(entry)}
    ends = [part.strip().removeprefix("+") for entry in entries for part in entry.split(":")]
    short = next((match for end in ends if (match := AS_NCCL.fullmatch(end))), None)
    notes = () if short is None else (f"{short[0]} is {_with_b(short)}, as nccl-tests writes it",)
    return ByteSizes(tuple(sorted(sizes)), notes)


def _entry(entry: str) -> Iterator[int]:
    """The sizes of one entry."""
    first, *rest = entry.split(":")
    if not rest:
        yield _whole(first)
        return
    last, *by = rest
    if len(by) > 1:
        raise UnitError("bad-range", f'"{entry}" is no range', f"write {RANGE}")
    yield from _range(entry, _whole(first), _whole(last), by[0].strip() if by else "x2")


def _range(entry: str, first: int, last: int, by: str) -> Iterator[int]:
    if last < first:
        start, end, *rest = entry.split(":")
        raise UnitError("bad-number", f'"{entry}" ends below its start', f"write {':'.join([end, start, *rest])}")
    step = _whole(by[1:]) if by.startswith("+") else 0
    factor = Fraction(0) if step else _factor(entry, by)
    size, count = first, 0
    while size < last:
        yield size
        size, count = max(size + step, int(size * factor), size + 1), count + 1
        if count > MOST:
            raise UnitError("too-many-sizes", f'"{entry}" is more than {MOST:,} sizes', "write a larger step")
    yield last


def _factor(entry: str, by: str) -> Fraction:
    """The factor of ``x4``."""
    match = re.fullmatch(r"x([0-9]+(?:\.[0-9]+)?)", by)
    if match is None or Fraction(match[1]) <= 1:
        raise UnitError("bad-range", f'"{by}" of "{entry}" is neither a factor above 1 nor a step', f"write {RANGE}")
    return Fraction(match[1])


def _whole(text: str) -> int:
    written = text.strip()
    short = AS_NCCL.fullmatch(written)
    if re.fullmatch(r"[0-9]+", written):
        raise UnitError("missing-unit", f"{written} has no unit", f"write {written} B, {written} kB or {written} MB")
    value = parse(written if short is None else _with_b(short), "bytes")
    if not value.is_integer():
        raise UnitError("bad-number", f'"{written}" is not a whole number of bytes', "write 8 MB")
    return int(value)


def _with_b(short: re.Match[str]) -> str:
    return f"{short[1]} {short[2].upper()}iB"
