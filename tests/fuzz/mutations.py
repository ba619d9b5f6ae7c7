"""What a file can hold instead of what it holds: each field deleted, doubled, misspelled, mistyped, out of range."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

Keys = tuple[str | int, ...]


@dataclass(frozen=True)
class Raw:
    """A value as YAML text, for what Python's own values cannot say."""

    text: str


class Pairs(list):
    """A map as its pairs, so that a key can stand there twice."""


@dataclass(frozen=True)
class Mutation:
    """One change of one file: which field, how it is called, and what the file's tree becomes."""

    keys: Keys
    name: str
    changed: Callable[[], Any]

    @property
    def field(self) -> str:
        return ".".join(map(str, self.keys))

    @property
    def text(self) -> str:
        """The file's text after it: written when it is asked for, for most are never tried."""
        return block(self.changed())


def mutations(data: Mapping[str, Any]) -> Iterator[Mutation]:
    """Every mutation of every field, list elements and fields that are not known included, in the file's order."""
    tree = _tree(data)
    for keys, value in _fields(tree):
        for name, changed in _changes(keys[-1], value):
            yield Mutation(keys, name, partial(_edited, tree, keys, changed))


def fields(data: Mapping[str, Any]) -> list[Keys]:
    """Where every field of a file is."""
    return [keys for keys, _ in _fields(_tree(data))]


def block(value: Any, indent: int = 0) -> str:
    """A tree as YAML with a line per entry."""
    pad = " " * indent
    if isinstance(value, Pairs) and value:
        return "".join(f"{pad}{_key(key)}:{_entry(inner, indent)}" for key, inner in value)
    return "".join(f"{pad}-{_entry(inner, indent)}" for inner in value)


def _entry(value: Any, indent: int) -> str:
    if isinstance(value, Raw):
        return f" {value.text}\n"
    if isinstance(value, Pairs) and not value:
        return " {}\n"
    if isinstance(value, list) and value:
        return "\n" + block(value, indent + 2)
    return f" {json.dumps(value, ensure_ascii=False)}\n"


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z][\w.-]*", key) else json.dumps(key, ensure_ascii=False)


def _tree(value: Any) -> Any:
    if isinstance(value, Mapping):
        return Pairs((key, _tree(inner)) for key, inner in value.items())
    return [_tree(inner) for inner in value] if isinstance(value, list) else value


def _fields(tree: Any, at: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    pairs = tree if isinstance(tree, Pairs) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in pairs:
        yield (*at, key), value
        yield from _fields(value, (*at, key))


def _edited(tree: Any, keys: Keys, changed: Callable[[Any, Any], list[Any]]) -> Any:
    """The tree with one entry replaced by the entries that `changed` makes of it."""
    first, *rest = keys
    if isinstance(tree, Pairs):
        make = changed if not rest else lambda key, value: [(key, _edited(value, tuple(rest), changed))]
        return Pairs(new for key, value in tree for new in (make(key, value) if key == first else [(key, value)]))
    make = changed if not rest else lambda at, value: [(at, _edited(value, tuple(rest), changed))]
    return [new for at, value in enumerate(tree) for _, new in (make(at, value) if at == first else [(at, value)])]


def _changes(key: str | int, value: Any) -> Iterator[tuple[str, Callable[[Any, Any], list[Any]]]]:
    """How an entry can be wrong, each with the entries that stand there instead."""
    yield "delete", lambda _key, _value: []
    yield "duplicate", lambda key, value: [(key, value), (key, value)]
    if isinstance(key, str):
        for name, word in misspelled(key).items():
            yield name, lambda _key, value, word=word: [(word, value)]
        yield "unknown beside", lambda key, value: [(key, value), ("xyzzy", 1)]
    for name, other in _others(value).items():
        yield name, lambda key, _value, other=other: [(key, other)]


def misspelled(word: str) -> dict[str, str]:
    """A letter lost, a letter doubled, a look-alike of another alphabet."""
    middle = len(word) // 2
    lost = word[:middle] + word[middle + 1 :] or "q"
    alike = word.translate(str.maketrans("aeopcx", "аеорсх"))  # noqa: RUF001  # Cyrillic on purpose
    return {
        "misspell": lost,
        "misspell twice": word[:middle] + word[middle] + word[middle:],
        "unicode key": alike if alike != word else word + "\u200b",
        "capital key": word.upper() if word.upper() != word else word + "X",
    }


NUMBERS = {
    "zero": 0,
    "negative": -3,
    "huge": 10**30,
    "absurd": Raw("9" * 450),
    "tiny": Raw("1e-320"),
    "overflow": Raw("1e999"),
    "nan": Raw(".nan"),
    "infinite": Raw("-.inf"),
}
SHAPES = {
    "null": Raw("null"),
    "empty text": "",
    "true": True,
    "a list": Raw("[[], 7]"),
    "a map": Raw("{value: {value: 7}}"),
    "deep": Raw("[" * 45 + "]" * 45),
    "too deep": Raw("[" * 10_000 + "]" * 10_000),
    "control": "a\x07\u202eb",
    "long text": "x" * 5000,
    "tag": Raw("!!python/object:os.system 1"),
    "path": "../../../../etc/passwd",
}
QUANTITY = re.compile(r"([<>]?=? *)(\d[\d.]*(?:e[-+]?\d+)?)( *)([A-Za-z%/]+)")


def _others(value: Any) -> dict[str, Any]:
    """What could stand where `value` stands."""
    return {**NUMBERS, **SHAPES, **_near(value)}


def _near(value: Any) -> dict[str, Any]:
    """Values of the same kind: what is typed by somebody who nearly has it right."""
    if isinstance(value, bool):
        return {"opposite": not value, "yes": Raw("yes"), "one": 1}
    if isinstance(value, int | float):
        return {
            "twice": value * 2,
            "one more": value + 1,
            "quoted": str(value),
            "unit": f"{value} GB",
            "half": value + 0.5,
        }
    if isinstance(value, str):
        return {**_quantities(value), **_texts(value)}
    return {"nested": [value], "wrapped": Pairs([("value", value)])}


OTHER_CHOICE = "other choice"
PAIRS = (
    ("rmsnorm", "layernorm"),
    ("swiglu", "geglu"),
    ("gelu", "relu"),
    ("rope", "none"),
    ("learned", "none"),
    ("bf16", "f16"),
    ("f32", "f64"),
    ("lockstep", "streamed"),
    ("ring", "line"),
    ("megatron", "ideal"),
    ("fsdp2", "xla"),
    ("both", "backward"),
    ("additive", "book"),
    ("stated", "guess"),
    ("datasheet", "measured"),
)
CHOICES = {one: other for pair in PAIRS for one, other in (pair, pair[::-1])} | {"none": "rope"}
"""A value of a field that has a few -> another one, so that a field nobody reads is seen."""


def _texts(text: str) -> dict[str, Any]:
    other = {OTHER_CHOICE: CHOICES[text]} if text in CHOICES else {}
    return {
        **other,
        "listed": [text],
        "nested": Pairs([("value", text)]),
        **{f"value: {name}": new for name, new in misspelled(text or "q").items()},
    }


def _quantities(text: str) -> dict[str, Any]:
    """A quantity with another unit, none, or another number."""
    match = QUANTITY.fullmatch(text)
    if match is None:
        return {"unit": "45 GB/s", "seconds": "7 us"}
    relation, number, space, unit = match.groups()
    return {
        "no unit": f"{relation}{number}",
        "bare number": Raw(number) if not relation else 7,
        "unit": f"{relation}{number}{space}{'us' if unit != 'us' else 'GB'}",
        "unit by case": f"{relation}{number}{space}{unit.swapcase()}",
        "unit of nothing": f"{relation}{number}{space}apples",
        "zero of it": f"{relation}0{space}{unit}",
        "less than none": f"{relation}-{number}{space}{unit}",
        "huge of it": f"{relation}1e300{space}{unit}",
        "tiny of it": f"{relation}1e-300{space}{unit}",
        "overflow of it": f"{relation}1e999{space}{unit}",
        "nan of it": f"{relation}nan{space}{unit}",
        "infinity of it": f"{relation}inf{space}{unit}",
        "wide digits": f"{relation}４５{space}{unit}",  # noqa: RUF001  # full width on purpose
        "comma": f"{relation}1,5{space}{unit}",
        "twice": f"{relation}{float(number) * 2!r}{space}{unit}",
    }
