"""A file as plain data in which every key and value still knows its place in the user's text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from os.path import realpath
from pathlib import Path
from typing import Any

from tpsim.quantity.errors import InputError, Place, unknown

Keys = tuple[str | int, ...]
"""The way to a value: a string goes into a map, an int into a list."""


@dataclass(frozen=True, slots=True)
class Spot:
    """Where an entry stands: its key (None in a list), and its value."""

    key: Place | None
    value: Place


@dataclass(frozen=True, slots=True)
class Document:
    """What a file holds: maps with string keys, lists, strings, ints, floats, booleans, None.

    path    as the user gave it; "-" for standard input
    text    the whole file; empty when the data came from elsewhere
    sha256  of the file's bytes
    spots   place of every entry
    below   path and hash of every file that it is laid on
    within  of a map that is read as a document of its own where that map stands in the whole
    replaced  by key the names of the items that stood in a list which one of its own replaces
    """

    data: dict[str, Any]
    path: str
    text: str
    sha256: str
    spots: Mapping[Keys, Spot] = field(default_factory=dict, repr=False, compare=False)
    below: tuple[tuple[str, str], ...] = ()
    within: Keys = ()
    replaced: Mapping[str, Sequence[str]] = field(default_factory=dict, compare=False)

    def value(self, *keys: str | int) -> Any:
        """What stands at `keys`."""
        value: Any = self.data
        for key in keys:
            value = value[key]
        return value

    def place(self, *keys: str | int) -> Place | None:
        """Where that value stands; its key if it fills several lines, the nearest map around it if it is not there.

        None when the data did not come from text.
        """
        spot = self._spot(keys)
        if spot is None:
            return None
        return spot.key if spot.key and spot.value.line != spot.key.line else spot.value

    def key_place(self, *keys: str | int) -> Place | None:
        """Where that key stands; the value itself in a list, and the nearest map around it if it is not there."""
        spot = self._spot(keys)
        return (spot.key or spot.value) if spot else None

    def folder(self, *keys: str | int) -> Path:
        """The folder that a relative path there starts from: that of the file which states it, else the current one."""
        place = self.place(*keys)
        return Path(place.file).parent if place else Path()

    def _spot(self, keys: Keys) -> Spot | None:
        around = (self.spots.get(keys[:depth]) for depth in range(len(keys), -1, -1))
        return next((spot for spot in around if spot), None)


def with_data(document: Document, data: Mapping[str, Any], spots: Mapping[Keys, Spot] | None = None) -> Document:
    """The document with other data; what the text does not hold is placed at the nearest map around it."""
    return replace(document, data=dict(data), spots=document.spots if spots is None else spots)


def part(document: Document, key: str) -> Document:
    """The map at `key` as a document of its own; what is wrong in it is shown where it stands in the whole."""
    spots = {at[1:]: spot for at, spot in document.spots.items() if at[:1] == (key,)}
    return replace(document, data=document.data[key], spots=spots, within=(*document.within, key))


def with_value(
    document: Document,
    keys: Sequence[str | int],
    value: object,
    place: Place | None,
    key: Place | None = None,
    *,
    inside: Mapping[Keys, Spot] | None = None,
) -> Document:
    """The document with one value set, made of maps where there are none; errors about it point to `place`.

    Errors about its name, and about maps that it makes, point to `key`, which is `place` if it is not given; those
    about what stands inside the value to where `inside` has it.

    None takes a field away, so that its default holds; one that is not there stays to be judged, for its name may be
    misspelled.

    Raises InputError when `keys` leads into something that has no fields.
    """
    path = tuple(_indices(document.data, keys))
    data = _set(document.data, path, value, 0, place)
    spots = {at: spot for at, spot in document.spots.items() if at[: len(path)] != path}
    if place:
        named = Spot(key or place, place)
        spots |= {path[:depth]: named for depth in range(1, len(path) + 1) if path[:depth] not in spots}
        spots |= {(*path, *at): spot for at, spot in (inside or {}).items()}
    return replace(document, data=data, spots=spots)


def _indices(data: Any, keys: Iterable[str | int]) -> Iterator[str | int]:
    """The keys as the data has them: a text of digits is an index where there is a list."""
    for key in keys:
        index = isinstance(data, list) and str(key).isdecimal()
        at = int(key) if index else key
        yield at
        items = data if isinstance(data, dict) else dict(enumerate(data)) if index else {}
        data = items.get(at)


def _set(data: Any, path: Keys, value: object, depth: int, place: Place | None) -> Any:
    """A copy of `data` along `path`, with `value` at its end."""
    if depth == len(path):
        return value
    key = path[depth]
    if isinstance(data, list) and isinstance(key, int) and key < len(data):
        return [*data[:key], _set(data[key], path, value, depth + 1, place), *data[key + 1 :]]
    if data is not None and not isinstance(data, dict):
        here = ".".join(map(str, path[:depth]))
        problem = f"{here} is a list of {len(data)}" if isinstance(data, list) else f"{here} has no fields"
        raise InputError.one("bad-override", problem, place, f"set {here} itself")
    inside = data or {}
    if value is None and depth == len(path) - 1 and key in inside:
        return {other: kept for other, kept in inside.items() if other != key}
    return {**inside, key: _set(inside.get(key), path, value, depth + 1, place)}


def merge(base: Any, over: Any) -> Any:
    """`over` laid on `base`: maps merge key by key, anything else replaces; so does a map with a value of its own.

    What a value's source and note say holds for that value alone.

    >>> merge({"a": {"x": 1, "y": 2}, "b": [1]}, {"a": {"y": 3}, "b": []})
    {'a': {'x': 1, 'y': 3}, 'b': []}
    >>> merge({"link": {"value": "45 GB/s", "source": "book"}}, {"link": {"value": "50 GB/s"}})
    {'link': {'value': '50 GB/s'}}
    """
    if not _merge(base, over):
        return over
    return {**base, **{key: merge(base[key], value) if key in base else value for key, value in over.items()}}


def _merge(base: Any, over: Any) -> bool:
    return isinstance(base, Mapping) and isinstance(over, Mapping) and VALUE not in over


VALUE = "value"
"""The key of a figure that stands with its source, kind and note."""


Load = Callable[[str, Path], Document]
"""Reads a document by the name that a file gives, and the folder of the file that says so."""

LoadPart = Callable[[Document, str, Path], Document]
"""Likewise what a file takes a part from; it is first told what that file says of the rest."""

NO_PARTS: Mapping[str, LoadPart] = {}


def extended(
    document: Document, load: Load, parts: Mapping[str, LoadPart] = NO_PARTS, above: Sequence[Document] = ()
) -> Document:
    """The document laid on the one that its ``extends`` names, on the one that that one names, and so on.

    Maps merge; lists, and values with their sources, replace. A map where the other document has a list of named items
    changes those items: ``levels: {network: {link: {...}}}``.

    parts  maps that a document may take from a file of their own, by that file's name or with an ``extends`` in them:
           it replaces such a map of what is extended, and the document's own figures lie on it
    above  documents that extend this one

    Raises InputError when the chain goes round in a circle, and for the name of an item that there is not.
    """
    below, own = None, document
    if EXTENDS in document.data:
        base, chain = _named(document, (EXTENDS,), load), [*above, document]
        if realpath(base.path) in {realpath(link.path) for link in chain}:
            message = f"extends goes round in a circle: {' -> '.join(link.path for link in [*chain, base])}"
            raise InputError.one("circular-extends", message, document.place(EXTENDS), "break the circle")
        below, own = extended(base, load, parts, chain), with_value(document, (EXTENDS,), None, None)
    for key, load_part in parts.items():
        link = document.data.get(key)
        if isinstance(link, str) or (isinstance(link, dict) and EXTENDS in link):
            at = (key,) if isinstance(link, str) else (key, EXTENDS)
            own = with_value(own, at, None, None)
            below = with_value(below, (key,), None, None) if below and key in below.data else below
            part = _named(document, at, partial(load_part, own if below is None else _laid_on(below, own)))
            below = part if below is None else _laid_on(below, part)
    return own if below is None else _laid_on(below, own)


EXTENDS = "extends"
"""The field that names the file, or the model of a scenario, whose fields this one changes."""


def _named(document: Document, keys: Keys, load: Load) -> Document:
    name = document.value(*keys)
    if not isinstance(name, str):
        raise InputError.one("bad-value", "extends is not a name", document.place(*keys), "write one name or file")
    try:
        return load(name, document.folder(*keys))
    except InputError as error:  # that there is none is a mistake where the name stands
        raise error.at(document.place(*keys)) from None


def _laid_on(base: Document, over: Document) -> Document:
    """Both merged; a list of named items and a map of such items by name merge as what the map says of the list's."""
    sides = [(key, base.data[key], value) for key, value in over.data.items() if key in base.data]
    lists = {key: data for key, *both in sides for data, other in (both, both[::-1]) if _lists(data, other)}
    for key, items in lists.items():
        names = [item["name"] for item in items]
        base, over = (_numbered(side, key, names, base.data.get("name", base.path)) for side in (base, over))
    replaced = {at for at in over.spots if at and not _is_map(base.data, at, over.data)}
    tops = {at[0] for at in replaced}
    kept = {
        at: spot
        for at, spot in base.spots.items()
        if not at or at[0] not in tops or replaced.isdisjoint(at[:depth] for depth in range(len(at) + 1))
    }
    merged = merge(base.data, over.data)
    data = {**merged, **{key: [item for _, item in sorted(merged[key].items())] for key in lists}}
    below = (*over.below, (base.path, base.sha256), *base.below)
    gone = {key: [item["name"] for item in old] for key, old, new in sides if _are_named(old) and _are_named(new)}
    return replace(over, data=data, spots={**kept, **over.spots}, below=below, replaced={**over.replaced, **gone})


def _lists(items: Any, other: Any) -> bool:
    """True for named items that a map on the other side tells something of."""
    return _are_named(items) and isinstance(other, dict)


def _are_named(items: Any) -> bool:
    """True for a list of items with names."""
    some = isinstance(items, list) and items != []
    return some and all(isinstance(item, dict) and "name" in item for item in items)


def _numbered(document: Document, key: str, names: Sequence[str], of: str) -> Document:
    """The document with a list of items, or with what a map says of items by name, under the items' numbers."""
    entries = document.data[key]
    if isinstance(entries, list):
        return with_data(document, {**document.data, key: dict(enumerate(entries))})
    for name in entries:
        if name not in names:
            raise unknown(str(name), f"item of {key} of {of}", names, document.key_place(key, name))
    items = {names.index(name): changes or {} for name, changes in entries.items()}
    spots = {
        (key, names.index(str(at[1])), *at[2:]) if at[:1] == (key,) and len(at) > 1 else at: spot
        for at, spot in document.spots.items()
    }
    return replace(document, data={**document.data, key: items}, spots=spots)


def _is_map(base: Any, keys: Keys, over: Any) -> bool:
    """True if both sides have a map at `keys`, so that they merge there."""
    for key in keys:
        if not (isinstance(base, dict) and isinstance(over, dict)):
            return False
        base, over = base.get(key), over.get(key)
    return _merge(base, over)
