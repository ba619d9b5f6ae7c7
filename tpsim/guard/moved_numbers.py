"""The numbers that moved between two locks, and how much: signs are new - old, positive is more bytes or seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from tpsim.answers.verdict import signed
from tpsim.guard.lock_parts import AskedField

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpsim.guard.lock import Lock
    from tpsim.guard.lock_parts import CallName, ScenarioFact

HELD = ("parameters_bytes", "gradients_bytes", "optimizer_bytes")
"""The results that states are the sum of."""

WAITS = ("bubble_s", "host_s", "stragglers_s")
"""Seconds of a step in which its rank waits; a step without them has no such result."""

CACHE, OVERHEADS = "cache_bytes", "overhead_bytes"
"""What a chip of inference holds beside, and what is assumed beside the arrays of a step, where anything is."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A number that moved, from `old` to `new`; None where it is not there.

    part      the collective, None for a number of the whole scenario
    quantity  calls, bytes, wire, messages, time_s, by; or step_s, flops, ...; or states_fit, require.step, ...
    """

    scenario: str
    part: CallName | None
    quantity: str
    old: Any
    new: Any

    @property
    def relative(self) -> float | None:
        """(new - old)/old; None where that says nothing: texts, a number that is new or gone."""
        return relative(self.old, self.new)


def relative(old: Any, new: Any) -> float | None:
    """The relative change from `old` to `new`; None if either is no number, or if there was nothing before.

    >>> relative(4, 5), relative(0, 5), relative("a", "b")
    (0.25, None, None)
    """
    numbers = all(isinstance(side, int | float) and not isinstance(side, bool) for side in (old, new))
    return (new - old) / old if numbers and old else None


def change(old: Any, new: Any) -> str:
    """The change in words, with its sign: ``+25 %``, ``new`` from nothing, ``gone`` to nothing, "" for texts.

    >>> change(4, 5), change(0, 5), change(5, 0), change(None, 5), change("a", "b"), change(3, 3)
    ('+25 %', 'new', 'gone', 'new', '', '')
    """
    if old == new or not (old or new):
        return ""
    if old is None or (old == 0 and not isinstance(old, bool) and new):
        return "new"
    if new is None or (new == 0 and not isinstance(new, bool) and old):
        return "gone"
    share = relative(old, new)
    if share is None:
        return ""
    return signed(share) if abs(share) >= LEAST else "<0.01 %"


LEAST = 1e-4
"""The relative change below which its size is of no interest: it is said to be below this."""


def moved_in(name: str, old: Lock, new: Lock) -> Iterator[Moved]:
    """The numbers of one scenario that moved."""
    before, after = old.scenarios[name], new.scenarios[name]
    for key in keys(before.results, after.results):
        values = result(before, key), result(after, key)
        if not same(*values, old.tolerance if key.endswith("_s") else 0):
            yield Moved(name, None, key, *values)
    for call in keys(before.calls, after.calls):
        yield from _moved_calls(name, call, old, new)


def result(fact: ScenarioFact, key: str) -> Any:
    """A result; a demand that is not made holds, and a step of decoding without drafts is what a token takes."""
    if key in fact.results:
        return fact.result(key)
    decodes = key == TPOT and fact.asked.get(KIND) in ("decode", "serve")
    return fact.result("step_s") if decodes else is_outcome(key) or None


MOVED, PROMPT_PEAK = ("transfer_bytes", "transfer_s"), "prompt_peak_bytes"
"""Of servers that read prompts alone: the cache that they send, and what a chip of them holds at most."""

TPOT = "tpot_s"
"""Seconds of a token, which a lock has of steps that verify drafts."""

KIND = AskedField("workload", "kind")
"""What of a scenario says whether it trains."""


STATES_FIT = "states_fit"
"""The outcome that parameters, gradients and optimizer state are no more than a chip's memory."""


def is_outcome(quantity: str) -> bool:
    """True for what a scenario's answer does or does not satisfy: ``states_fit``, ``require.step``."""
    return quantity == STATES_FIT or quantity.startswith("require.")


def outcome(quantity: str, value: Any) -> str:
    """An outcome in words.

    >>> outcome("states_fit", True), outcome("states_fit", False), outcome("require.step", True)
    ('states fit', 'does not fit', 'require.step holds')
    """
    if quantity == STATES_FIT:
        return "states fit" if value else "does not fit"
    return f"{quantity} {'holds' if value else 'is violated'}"


QUANTITIES = ("calls", "bytes", "wire", "messages", "time_s", "by")


def _moved_calls(name: str, call: CallName, old: Lock, new: Lock) -> Iterator[Moved]:
    calls = [lock.scenarios[name].calls.get(call) for lock in (old, new)]
    for quantity in QUANTITIES:
        before, after = (getattr(side, quantity, None) for side in calls)
        if not same(before, after, old.tolerance if quantity == "time_s" else 0):
            yield Moved(name, call, quantity, before, after)


def same(old: Any, new: Any, tolerance: float) -> bool:
    """True if two values are equal, numbers within a relative tolerance.

    >>> same(1.0, 1.0 + 1e-12, 1e-9), same(1, 2, 1e-9), same("a", "a", 0)
    (True, False, True)
    """
    if old == new or not tolerance or not (isinstance(old, float) and isinstance(new, float)):
        return bool(old == new)
    return abs(new - old) <= tolerance * max(abs(old), abs(new))


K = TypeVar("K")


def in_both(old: Lock, new: Lock) -> list[str]:
    """The scenarios of both locks, in the order of the new one."""
    return [name for name in new.scenarios if name in old.scenarios]


def keys(old: Mapping[K, Any], new: Mapping[K, Any]) -> list[K]:
    """The keys of both, in the order of the new one, then those that are gone."""
    return list(dict.fromkeys([*new, *old]))


def few(names: Sequence[str], most: int = 3) -> str:
    """Some names, the rest counted.

    >>> few(["a", "b"]), few(list("abcdefgh"), 6)
    ('a, b', 'a, b, c, d, e, f and 2 more')
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
