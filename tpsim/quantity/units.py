"""Text with a unit to a number in SI and back, as the rules of a field say.

A quantity is a number and one of the field's units, spelled exactly: ``45 GB/s``, ``360 Gbit/s``, ``16 GiB``, ``1 us``.
kB, MB, GB are powers of 1000, KiB, MiB, GiB powers of 1024. Prefixes below 1 exist only for seconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from tpsim.quantity.errors import suggest

Dimension = Literal["bytes", "bytes_per_s", "seconds", "flops", "flops_per_s", "ratio", "count"]

DECIMAL = ("", "k", "M", "G", "T", "P", "E")
BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi")
SMALL = ("", "m", "u", "\u00b5", "\u03bc", "n", "p")

POWERS: Mapping[str, int] = {
    **{prefix: 3 * at for at, prefix in enumerate(DECIMAL)},
    "m": -3,
    "u": -6,
    "\u00b5": -6,
    "\u03bc": -6,
    "n": -9,
    "p": -12,
}
"""Of ten, that decimal prefixes stand for."""

TIMES: Mapping[str, Decimal] = {
    **{prefix: Decimal(10) ** power for prefix, power in POWERS.items()},
    **{prefix: Decimal(1024) ** at for at, prefix in enumerate(BINARY, 1)},
}
"""How many of a unit each prefix stands for."""

BITS_PER_BYTE = 8
PERCENT = 100

LARGEST = 1e200
"""A number beyond it is treated as infinite: with a prefix it might overflow."""

MANY = 100_000
"""Nobody writes this many GB or us; a bare number from here on counts bytes, or FLOPs."""


class UnitError(ValueError):
    """A text that is no quantity of the field's dimension.

    slug     bad-unit, missing-unit, or bad-number
    message  what is wrong
    remedy   what to write instead
    """

    def __init__(self, slug: str, message: str, remedy: str) -> None:
        super().__init__(f"{message}: {remedy}")
        self.slug = slug
        self.message = message
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit, the prefixes it may bear, and how many of it make one of the field's SI unit."""

    name: str
    prefixes: tuple[str, ...]
    per_si: int = 1


@dataclass(frozen=True, slots=True)
class Accepted:
    """What one dimension accepts.

    noun      what messages call it
    units     the units to choose from; the first one is printed
    usual     prefixed units to name in a remedy, none for a pure number
    examples  whole quantities, for remedies and schemas
    """

    noun: str
    units: tuple[Unit, ...]
    usual: tuple[str, ...]
    examples: tuple[str, ...]

    def spellings(self) -> dict[str, Unit]:
        """Every prefixed unit that the dimension accepts."""
        return {prefix + unit.name: unit for unit in self.units for prefix in unit.prefixes}


RULES: Mapping[Dimension, Accepted] = {
    "bytes": Accepted("size", (Unit("B", DECIMAL + BINARY),), ("GB", "GiB"), ("16 GB", "80 GiB")),
    "bytes_per_s": Accepted(
        "bandwidth",
        (Unit("B/s", DECIMAL + BINARY), Unit("bit/s", DECIMAL, BITS_PER_BYTE)),
        ("GB/s", "Gbit/s"),
        ("45 GB/s", "400 Gbit/s"),
    ),
    "seconds": Accepted("time", (Unit("s", SMALL),), ("s", "ms", "us"), ("1 us", "2.5 ms")),
    "flops": Accepted("work", (Unit("FLOP", DECIMAL),), ("TFLOP", "PFLOP"), ("197 TFLOP", "1.5 PFLOP")),
    "flops_per_s": Accepted(
        "compute rate", (Unit("FLOP/s", DECIMAL),), ("TFLOP/s", "PFLOP/s"), ("197 TFLOP/s", "1.5 PFLOP/s")
    ),
    "ratio": Accepted("ratio", (Unit("", ("",)), Unit("%", ("",), PERCENT)), (), ("0.55", "55 %")),
    "count": Accepted("count", (Unit("", ("",)),), (), ("256", "8.03e9")),
}

NUMBER = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_TEXT = re.compile(rf"(?P<number>{NUMBER}) *(?P<unit>(?:[^\W\d_]|[%/])*)")


HOUR_S = 3600
"""Seconds of an hour, as chips are paid by."""


def parse(text: object, dimension: Dimension, *, zero: bool = False, share: bool = False) -> float:
    """The number in SI units (bytes, bytes/s, seconds, FLOP/s) that `text` stands for, rounded once.

    zero   True where nothing at all is a sensible answer, as for a latency
    share  True for a ratio that is a part of a whole, and so at most 1

    Raises UnitError, which says what to write instead.

    >>> parse("360 Gbit/s", "bytes_per_s")
    45000000000.0
    """
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise UnitError("bad-number", _no_quantity(text), _examples(dimension))
    written = str(text).strip()
    match = _TEXT.fullmatch(written)
    if match is None:
        raise _refused(written, dimension)
    number, spelling = match["number"], match["unit"]
    if float(number) > LARGEST:
        raise UnitError("bad-number", f'"{written}" is not finite', _examples(dimension))
    unit = RULES[dimension].spellings().get(spelling)
    if unit is None:
        raise _wrong_unit(written, number, spelling, dimension)
    value = _read(number, spelling, unit)
    if value == 0 and not zero:
        raise UnitError("bad-number", f'"{written}" is not positive', _examples(dimension))
    if share and value > 1:
        percent = not spelling and value <= PERCENT
        remedy = f"write {number} % if percent are meant" if percent else _examples(dimension)
        raise UnitError("bad-number", f'"{written}" is more than the whole, and this is a share of it', remedy)
    return value


def other_units(text: object, dimension: Dimension) -> list[tuple[str, float]]:
    """The number in `text` with every other unit of the dimension, and in SI units then; the likeliest slip first.

    A prefix that is one off is likelier than one further off, and likelier than bits for bytes.

    >>> [text for text, _ in other_units("450 TB/s", "bytes_per_s")][:4]
    ['450 GB/s', '450 PB/s', '450 Tbit/s', '450 MB/s']
    """
    match = _TEXT.fullmatch(str(text).strip())
    known = RULES[dimension].spellings()
    if match is None or match["unit"] not in known:
        return []
    number, own = match["number"], match["unit"]
    others = [spelling for spelling in known if spelling != own and spelling.isascii()]
    others.sort(key=lambda unit: _apart(unit, own, known))
    return [(f"{number} {unit}", _read(number, unit, known[unit])) for unit in others]


def _apart(spelling: str, other: str, known: Mapping[str, Unit]) -> tuple[int, bool]:
    """How far two units of a dimension are from each other: in prefixes, bits for bytes being one more."""
    ranks = [known[unit].prefixes.index(unit.removesuffix(known[unit].name)) for unit in (spelling, other)]
    differ = known[spelling] is not known[other]
    return abs(ranks[0] - ranks[1]) + differ, differ


def _read(number: str, spelling: str, unit: Unit) -> float:
    """The value in SI units; decimals are exact until they are rounded, once."""
    exact = Decimal(number if float(number) else 0)  # a decimal may be smaller than any float, but not boundlessly so
    return float(exact * TIMES[spelling.removesuffix(unit.name)]) / unit.per_si


def _no_quantity(value: object) -> str:
    if value is None:
        return "nothing is given"
    if isinstance(value, bool):
        return f"{str(value).lower()} is not a quantity"
    return f"a {'map' if isinstance(value, dict) else 'list'} is not a quantity"


def _without_commas(written: str) -> str:
    """Without those that part thousands; with a point for one that parts decimals."""
    if re.match(r"[1-9]\d{0,2}(?:,\d{3})+(?![\d,])", written):
        return written.replace(",", "")
    return written.replace(",", ".") if re.match(r"\d+,\d+(?![\d,.])", written) else written


def _refused(written: str, dimension: Dimension) -> UnitError:
    positive = written.removeprefix("-")
    if positive != written and _TEXT.fullmatch(positive):
        return UnitError("bad-number", f'"{written}" is negative', f"write {positive}")
    plain = _without_commas(re.sub(r"[_'\u00a0]", "", written))
    remedy = f"write {plain}" if plain != written and _TEXT.fullmatch(plain) else _examples(dimension)
    return UnitError("bad-number", f'"{written}" is not a number with a unit', remedy)


def _wrong_unit(written: str, number: str, spelling: str, dimension: Dimension) -> UnitError:
    rule = RULES[dimension]
    if not rule.usual:
        return UnitError("bad-unit", f'"{written}" has a unit where a plain number is due', _examples(dimension))
    if not spelling:
        return UnitError("missing-unit", f"{written} has no unit", _bare(dimension, number))
    message = f'"{spelling}" is not a unit of {rule.noun}'
    if dimension == "bytes_per_s" and (bits := re.fullmatch(r"([kMGTPE]?)(b/s|bps)", spelling)):
        remedy = f"write {number} {bits[1]}bit/s if bits are meant, {number} {bits[1]}B/s if bytes"
        return UnitError("bad-unit", message, remedy)
    near = suggest(spelling, rule.spellings())
    return UnitError("bad-unit", message, _write(dimension, number, _family(near, rule) if near else rule.usual))


def _bare(dimension: Dimension, number: str) -> str:
    """The remedy for a number without a unit: one too large or small for everyday prefixes was meant in SI units."""
    if 1 <= float(number) < MANY or float(number) == 0:
        return _write(dimension, number, RULES[dimension].usual)
    return f"write {show(float(number), dimension, digits=10)}"


def _family(spelling: str, rule: Accepted) -> tuple[str, ...]:
    """The unit and its relatives under the same prefix: GB/s and Gbit/s, kB and KiB."""
    prefix = spelling.removesuffix(rule.spellings()[spelling].name)
    known = [prefix + unit.name for unit in rule.units]
    if len(known) == 1 and len(prefix) == 1:
        known.append(f"{prefix.upper()}i{rule.units[0].name}")
    return tuple(dict.fromkeys([spelling, *[unit for unit in known if unit in rule.spellings()]]))


def _examples(dimension: Dimension) -> str:
    return "write " + " or ".join(RULES[dimension].examples)


def _write(dimension: Dimension, number: str, spellings: tuple[str, ...]) -> str:
    """The remedy: the user's own number in those units; bits are eight times the bytes that the first one says."""
    known = RULES[dimension].spellings()
    first = known[spellings[0]].per_si
    texts = [f"{float(number) * known[spelling].per_si / first:.15g} {spelling}" for spelling in spellings]
    return "write " + " or ".join(texts)


def show(value: float, dimension: Dimension, digits: int = 4) -> str:
    """`value`, in SI units, as text of `digits` significant digits with a decimal prefix.

    >>> show(45e9, "bytes_per_s"), show(2.8e-6, "seconds")
    ('45 GB/s', '2.8 us')
    """
    if dimension == "count" and float(value).is_integer():
        return f"{int(value):,}"
    if dimension in {"count", "ratio"}:
        return f"{float(value):.{digits}g}"
    unit = RULES[dimension].units[0]
    rounded, _, power = f"{float(value) or 0:.{digits - 1}e}".partition("e")
    thousands, over = divmod(int(power or 0), 3)
    prefix = next((prefix for prefix in unit.prefixes if POWERS.get(prefix) == 3 * thousands), None)
    if prefix is None or not power:  # too large or small for a prefix, or no number
        return f"{float(value):.{digits}g} {unit.name}"
    text = f"{float(f'{rounded}e{over}'):.{max(0, digits - 1 - over)}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {prefix}{unit.name}"
