"""The text of a compiled program (HLO), line by line: operations, shapes, operands, groups of devices."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

_HEAD = re.compile(r"^(ENTRY )?%(?P<name>\S+) \(")
_LINE = re.compile(r"\s*(ROOT )?%(?P<name>\S+) = (?P<shape>\(.*?\)|\S+) (?P<op>[a-z][a-z0-9-]*)\((?P<rest>.*)")
_ARRAY = re.compile(r"[a-z]\w*\[([\d,]*)\]")
_OPERAND = re.compile(r"%([^\s,()]+)")


@dataclass(frozen=True, slots=True)
class Line:
    """One operation: its results' shapes, its operands' names, what stands in its brackets, and its attributes."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    op: str
    operands: tuple[str, ...]
    inside: str
    attributes: str

    @property
    def elements(self) -> int:
        """Elements of the result; of the first if there are several."""
        return prod(self.shapes[0])

    def numbers(self, attribute: str) -> tuple[int, ...]:
        """The numbers in ``attribute={1,2}``; none if it is not there."""
        found = re.search(rf"\b{attribute}=\{{([\d,]*)\}}", self.attributes)
        return _sizes(found[1]) if found else ()


Body = dict[str, Line]


@dataclass(frozen=True, slots=True)
class Program:
    """What each device runs (`main`), and the bodies of fusions and sums that it refers to."""

    main: Body
    bodies: Mapping[str, Body]


def read(text: str) -> Program:
    """The program in `text`."""
    bodies: dict[str, Body] = {}
    main = now = ""
    for line in text.splitlines():
        if head := _HEAD.match(line):
            now = head["name"]
            main = now if line.startswith("ENTRY") else main
            bodies[now] = {}
        elif found := _LINE.match(line):
            bodies[now][found["name"]] = _line(found)
    return Program(bodies.pop(main), bodies)


def _line(found: re.Match[str]) -> Line:
    inside, _, attributes = found["rest"].partition(")")
    shapes = tuple(_sizes(dims) for dims in _ARRAY.findall(found["shape"]))
    return Line(found["name"], shapes, found["op"], tuple(_OPERAND.findall(inside)), inside, attributes)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split(",") if size)


def groups(line: Line, devices: int) -> list[list[int]]:
    """The groups of devices among which a collective runs: written out, or as the devices turned and cut.

    >>> def line(groups): return Line("", (), "all-reduce", (), "", f", replica_groups={groups}, ")
    >>> groups(line("[2,4]<=[4,2]T(1,0)"), 8)
    [[0, 2, 4, 6], [1, 3, 5, 7]]
    >>> groups(line("{{0,1},{2,3}}"), 4)
    [[0, 1], [2, 3]]
    """
    short = re.search(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", line.attributes)
    if short:
        many, shape, turn = (_sizes(part or "") for part in short.groups())
        grid = np.arange(devices).reshape(shape)
        cut = (grid.transpose(turn) if turn else grid).reshape(many)
        return [[int(device) for device in group] for group in cut]
    written = re.search(r"replica_groups=\{((?:\{[\d,]+\},?)+)\}", line.attributes)
    if written is None:
        raise ValueError(f"no groups of devices in {line}")
    return [list(_sizes(group)) for group in re.findall(r"\{([\d,]+)\}", written[1])]


def pairs(line: Line) -> list[tuple[int, int]]:
    """Who sends to whom in a permute.

    >>> pairs(Line("", (), "collective-permute", (), "", ", source_target_pairs={{0,1},{1,0}}, "))
    [(0, 1), (1, 0)]
    """
    listed = line.attributes.partition("source_target_pairs=")[2]
    return [(int(source), int(target)) for source, target in re.findall(r"\{(\d+),(\d+)\}", listed)]
