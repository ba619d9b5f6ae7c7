"""What a lock holds: constants, models, switches, formulas, and what every scenario came to; one fact, one line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

TOLERANCE = 1e-9
"""Relative difference up to which two times are the same: what another processor's rounding may do, and no more."""


@dataclass(frozen=True, slots=True)
class ConstantFact:
    """A figure or a property of a machine, with its source in words and its kind.

    dimension  of a figure, which is in SI units; "" for a property
    """

    value: Any
    source: str
    kind: str
    dimension: str = ""


@dataclass(frozen=True, slots=True)
class FormulaFact:
    """A formula: its canonical text, which informs, and its exact values at sample sizes, which decide."""

    text: str
    samples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CallsFact:
    """One collective of a scenario: `calls` equal calls per step and device.

    bytes     logical bytes of one call
    wire      bytes that one device must inject in one call
    messages  messages that wait for one another, over all calls
    time_s    seconds of one call
    by        what carries it: level, wires and algorithm, levels joined by a semicolon
    """

    calls: int
    bytes: float
    wire: float
    messages: float
    time_s: float
    by: str

    def __str__(self) -> str:
        """The fact as its line in the lock says it."""
        sizes = f"{self.calls} calls of {self.bytes} B, wire {self.wire} B, {self.messages} messages"
        return f"{sizes}, {self.time_s!r} s each, {self.by}"

    @classmethod
    def parse(cls, text: str) -> CallsFact:
        """The fact that a line says. Raises ValueError for a line that says none."""
        found = _CALLS.fullmatch(text)
        if found is None:
            raise ValueError(f'not "{EXAMPLE}"')
        calls, volume, sent, messages, seconds, by = found.groups()
        return cls(int(calls), _number(volume), _number(sent), _number(messages), float(seconds), by)

    @property
    def wire_in_all(self) -> float:
        """Bytes that one device must inject in a step."""
        return self.calls * self.wire

    @property
    def busy_s(self) -> float:
        """Seconds of all calls."""
        return self.calls * self.time_s


_NUMBER = r"([0-9.]+(?:e[-+]?[0-9]+)?)"
_CALLS = re.compile(rf"([0-9]+) calls of {_NUMBER} B, wire {_NUMBER} B, {_NUMBER} messages, {_NUMBER} s each, (\S.*)")
EXAMPLE = "8 calls of 1024 B, wire 896 B, 56 messages, 1.5e-05 s each, nvlink switch ring"


def _number(text: str) -> float:
    return int(text) if text.isdecimal() else float(text)


@dataclass(frozen=True, slots=True)
class ScenarioFact:
    """A scenario: what it asks, resolved; what it came to; its collectives by ``phase place kind axes array``."""

    inputs: Mapping[str, Any]
    results: Mapping[str, Any]
    collectives: Mapping[str, CallsFact]


@dataclass(frozen=True, slots=True)
class Lock:
    """Everything that a check compares.

    version    of tpsim that wrote it
    tolerance  relative, of times alone: bytes and messages are exact
    paths      the files and folders whose scenarios it holds, from the lock's own folder
    """

    version: str
    tolerance: float = TOLERANCE
    paths: tuple[str, ...] = ()
    constants: Mapping[str, ConstantFact] = field(default_factory=dict)
    models: Mapping[str, Any] = field(default_factory=dict)
    switches: Mapping[str, Any] = field(default_factory=dict)
    formulas: Mapping[str, FormulaFact] = field(default_factory=dict)
    scenarios: Mapping[str, ScenarioFact] = field(default_factory=dict)
