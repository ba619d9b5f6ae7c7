"""What a collective is timed at: sizes, as ``10kB:1GB,8MB`` or as nccl-tests writes them, and ranks, where they lie."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from tpsim.algebra.mesh import Mesh
from tpsim.fabric.placement import Placement, carriers_of, place
from tpsim.fabric.wires import Route, Wires, ranks_text
from tpsim.quantity.errors import COMMAND_LINE, InputError, Place, Problem
from tpsim.quantity.units import UnitError, parse
from tpsim.question.inputs import asked
from tpsim.report.numbers import counted

if TYPE_CHECKING:
    from tpsim.machine.parts import Machine

MOST = 10_000
"""More sizes than anybody reads; a step was forgotten, or is far too small."""

AS_NCCL = re.compile(r"([0-9.]+)\s*([kmg])", re.IGNORECASE)
"""A size without its B: nccl-tests, whose prefixes are powers of 1024 (src/common.cu, parsesize)."""

FLAG = "--sizes"

RANGE = "FROM:TO doubles, FROM:TO:x4 grows fourfold, FROM:TO:+1MB by steps; each ends at TO"


@dataclass(frozen=True, slots=True)
class ByteSizes:
    """Bytes, ascending and without repeats; notes say how they were read where that is not plain."""

    bytes: tuple[int, ...]
    notes: tuple[str, ...] = ()


def read_sizes(text: str) -> ByteSizes:
    """The sizes of a list; entries are separated by a comma or a bar, and each is a size or a range, see `RANGE`.

    Raises InputError.

    >>> read_sizes("1kB:5kB,64kB").bytes, read_sizes("1kB:4kB:+1kB").bytes
    ((1000, 2000, 4000, 5000, 64000), (1000, 2000, 3000, 4000))
    >>> read_sizes("1M")
    ByteSizes(bytes=(1048576,), notes=('1M is 1 MiB, as nccl-tests writes it',))
    """
    entries = list(_entries(text))
    sizes = {size for entry in entries for size in _read(text, *entry)}
    ends = [part.strip().removeprefix("+") for _, entry in entries for part in entry.split(":")]
    short = next((match for end in ends if (match := AS_NCCL.fullmatch(end))), None)
    notes = () if short is None else (f"{short[0]} is {_with_b(short)}, as nccl-tests writes it",)
    return ByteSizes(tuple(sorted(sizes)), notes)


def _entries(text: str) -> Iterator[tuple[int, str]]:
    """What commas and bars part, and where it begins."""
    start = 0
    for part in re.split(r"[,|]", text):
        yield start + len(part) - len(part.lstrip()), part.strip()
        start += len(part) + 1


def _read(text: str, start: int, entry: str) -> list[int]:
    try:
        return list(_entry(entry))
    except UnitError as error:
        place = Place(COMMAND_LINE, 1, len(f"{FLAG} ") + start + 1, f"{FLAG} {text}", len(entry))
        raise InputError.one(error.slug, error.message, place, error.remedy) from None


def _entry(entry: str) -> Iterator[int]:
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
    match = re.fullmatch(r"x([0-9]+(?:\.[0-9]+)?)", by)
    if match is None or Fraction(match[1]) <= 1:
        raise UnitError("bad-range", f'"{by}" of "{entry}" is neither a factor above 1 nor a step', f"write {RANGE}")
    return Fraction(match[1])


def _whole(text: str) -> int:
    written = text.strip()
    short, bare = AS_NCCL.fullmatch(written), re.fullmatch(r"[0-9]+", written)
    if bare and written.strip("0"):
        raise UnitError("missing-unit", f"{written} has no unit", f"write {written} B, {written} kB or {written} MB")
    value = parse(f"{written} B" if bare else written if short is None else _with_b(short), "bytes")
    if not value.is_integer():
        raise UnitError("bad-number", f'"{written}" is not a whole number of bytes', "write 8 MB")
    return int(value)


def _with_b(short: re.Match[str]) -> str:
    return f"{short[1]} {short[2].upper()}iB"


def sizes_of(sizes: str | float | Sequence[float]) -> ByteSizes:
    """ByteSizes as a text or as numbers, as ``1e9``; raises InputError for what says no whole number of bytes."""
    if not isinstance(sizes, str):
        numbers: tuple[Any, ...] = tuple(sizes) if isinstance(sizes, Iterable) else (sizes,)
        for number in numbers or ("nothing",):
            if not isinstance(number, Integral) and not (isinstance(number, Real) and float(number).is_integer()):
                remedy = f'write 8e6, or all in one text: sizes="{",".join(map(str, numbers)) or "10kB:1GB"}"'
                raise InputError.one("bad-number", f"{number} is not a whole number of bytes", remedy=remedy)
        return ByteSizes(tuple(map(int, numbers)))
    return read_sizes(sizes)


def whole(size: int, shares: int, width: int) -> int:
    """`size` rounded down to whole elements, as many of them for each of the ranks that get a share."""
    least = shares * width
    if size < least:
        suffix = f" for each of {shares} ranks" if shares > 1 else ""
        message = f"{size} bytes are less than one element{suffix}"
        raise InputError.one("size-too-small", message, remedy=f"give {least} bytes or more")
    return size // least * least


def rounding(rounded: int, least: int, shares: str) -> list[str]:
    """A note that sizes were rounded, if any was."""
    return [f"{counted(rounded, 'size')} rounded down to multiples of {least} bytes: {shares}element"] * bool(rounded)


def placed(machine: Machine, ranks: int, level: str | None) -> tuple[Placement, tuple[str, ...]]:
    """The ranks on the machine, and what was taken for granted about the chips beside them."""
    if ranks < 1:
        raise InputError.one("bad-ranks", f"there cannot be {ranks} ranks", remedy="give 1 or more")
    if level is None:
        placement = _placed(machine, ranks, Mesh({"ranks": ranks}))
        return placement, tuple(_alone(machine, ranks, placement.route(["ranks"])))
    carriers = carriers_of(level)
    sides = dict(_beside(machine.levels, carriers))
    beside = {f"beside {name}": side for name, side in sides.items()}
    binding = {"ranks": carriers, **{f"beside {name}": [name] for name in sides}}
    placement = _placed(machine, ranks, Mesh({**beside, "ranks": ranks}), binding)
    notes = [f"the slice has {side} chips along {name}" for name, side in sides.items()]
    return placement, (*notes, *_left_empty(placement, ranks, carriers))


def _placed(machine: Machine, ranks: int, mesh: Mesh, binding: Mapping[str, Sequence[str]] | None = None) -> Placement:
    """The placement, or why there is none in words of the flags: nobody has named an axis."""
    try:
        return place(machine.levels, mesh, binding)
    except InputError as error:
        raise InputError(_of_ranks(problem, ranks) for problem in error.problems) from None


def _of_ranks(problem: Problem, ranks: int) -> Problem:
    message = problem.message.replace(f"mesh axis ranks of {ranks}", f"{ranks} ranks")
    if message == problem.message:
        return problem
    remedy = problem.remedy.replace("make it smaller", "ask for fewer ranks").replace("bind it to more", "name more")
    remedy = BIND.sub(lambda found: f"write --level {found[1].replace('+', ',')}", remedy)
    return replace(problem, message=message.replace("does not fit", "do not fit"), remedy=remedy)


BIND = re.compile(r"bind it to (\S+[^,\s])")


def _alone(machine: Machine, ranks: int, route: Route) -> Iterator[str]:
    """Where as many chips of a torus lie that are a slice by themselves, as a plan takes them, if that is elsewhere."""
    try:
        placement = place(machine.levels, Mesh({"ranks": ranks}), alone=True)
    except InputError:
        return
    own = placement.route(["ranks"])
    if own != route and not placement.idle:
        level = ",".join(f"{segment.axis}:{segment.n}" for segment in own)
        yield f"in a slice of their own they would lie on {ranks_text(own)}: --level {level}"


def _left_empty(placement: Placement, ranks: int, carriers: Sequence[str]) -> Iterator[str]:
    """What was named and has no rank, and where all of them went instead."""
    route, names = placement.route(["ranks"]), [carrier.partition(":")[0] for carrier in carriers]
    empty = [name for name in names if not any(name in (segment.level, segment.axis) for segment in route)]
    if empty and route:
        share = next(part for part in range(ranks // 2, 0, -1) if not ranks % part)
        example = ",".join([f"{route[0].axis}:{share}", *(name for name in names if name != route[0].axis)])
        yield f"no rank lies on {', '.join(empty)}: {ranks_text(route)} holds all; --level {example} says otherwise"


def on_command_line(machine: Machine, ranks: int, level: str | None) -> str:
    """The flags that ask for the same ranks on the same machine."""
    words = ["--hw", asked("hardware", machine.path), "--ranks", str(ranks)]
    return shlex.join([*words, *(["--level", level] if level else [])])


def _beside(levels: Sequence[Wires], carriers: Sequence[str]) -> Iterator[tuple[str, int]]:
    """The physical axes of a torus that closes on cubes and was named by axis: those not named have a cube's side.

    An axis that is timed alone is meant as an axis of a slice, not as a slice of its own.
    """
    named = {carrier.partition(":")[0] for carrier in carriers}
    for level in levels:
        axes = [f"{level.name}.{index}" for index in range(len(level.shape))]
        if level.wrap.cube is not None and named & set(axes):
            yield from ((axis, side) for axis, side in zip(axes, level.wrap.cube, strict=True) if axis not in named)
