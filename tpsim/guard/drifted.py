"""A drift as a result: its summary, its tidy rows and its JSON document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tpsim import __version__
from tpsim.guard.moved import change, is_outcome, outcome, relative
from tpsim.quantity.size import total
from tpsim.quantity.units import Dimension, show
from tpsim.report.answer import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpsim.guard.causes import Cause
    from tpsim.guard.drift import Drift

SIGN = "changes are new - old: + is more bytes or more seconds"


@dataclass(frozen=True)
class Drifted(Answer):
    """What moved between two locks, as every verb that compares answers."""

    drift: Drift

    schema: ClassVar[str]
    columns: ClassVar[tuple[str, ...]] = (
        "scenario",
        "collective",
        "quantity",
        "old",
        "new",
        "relative",
        "change",
        "causes",
    )

    @property
    def summary(self) -> str:
        """What moved in one line."""
        drift, causes = self.drift, self.drift.causes
        touched, both = len(drift.changed), len(drift.new.scenarios) - len(drift.added)
        more = len(causes) - 1
        parts = self._versions() + [sentence(cause) for cause in causes[:1]]
        parts += [f"{more} more cause{'s'[: more - 1]}"] if more > 0 else []
        parts += [f"numbers of {touched} of {both} scenarios moved"] if touched else []
        said = [f"{name}: {', '.join(found)}" for name in drift.changed if (found := outcomes(name, drift))]
        parts += [_some(tuple(said))] if said else []
        for names, word in ((drift.added, "new"), (drift.dropped, "gone")):
            parts += [f"{word}: {_some(names)}"] if names else []
        return "; ".join(parts)

    def _versions(self) -> list[str]:
        """That another tpsim made the old side, unless a cause says it."""
        old, new = self.drift.old.version, self.drift.new.version
        said = any(one.name == VERSION for one in self.drift.causes)
        return [] if old == new or said or not self.drift else [f"tpsim changed since: {old} -> {new}"]

    @property
    def edits(self) -> tuple[Cause, ...]:
        """The causes that whoever asks has made, and not what they bring with them; told first."""
        return ()

    @property
    def resolved(self) -> dict[str, Any]:
        """What was asked."""
        return {}

    @property
    def notices(self) -> tuple[str, ...]:
        """What a reader should know beside what moved."""
        return ()

    @property
    def verdict(self) -> str:
        """The answer in one line."""
        return self.summary or "nothing moved"

    def records(self) -> list[dict[str, Any]]:
        """One row per number that moved, with its causes; then one per cause that moved none."""
        return [*self._numbers(), *self._silent()]

    def _numbers(self) -> Iterator[dict[str, Any]]:
        drift = self.drift
        for one in drift.moved:
            causes = [cause.name for cause in drift.causes if cause.makes(one, drift.old, drift.new)]
            yield {
                "scenario": one.scenario,
                "collective": one.part and str(one.part),
                "quantity": one.quantity,
                "old": one.old,
                "new": one.new,
                "relative": one.relative,
                "change": change(one.old, one.new) or None,
                "causes": "; ".join(causes) or None,
            }

    def _silent(self) -> Iterator[dict[str, Any]]:
        rows: list[tuple[Any, ...]] = [(name, "scenario", None, "held", name) for name in self.drift.added]
        rows += [(name, "scenario", "held", None, name) for name in self.drift.dropped]
        rows += [(None, one.kind, one.old, one.new, one.name) for one in self.drift.causes if not one.scenarios]
        for scenario, quantity, old, new, name in rows:
            yield {
                "scenario": scenario,
                "collective": None,
                "quantity": quantity,
                "old": old,
                "new": new,
                "relative": relative(old, new),
                "change": change(old, new) or None,
                "causes": name,
            }

    def to_json(self) -> dict[str, Any]:
        """The whole document."""
        drift = self.drift
        return {
            "schema": self.schema,
            "tpsim": __version__,
            "inputs": [],
            "resolved": self.resolved,
            "result": {
                "verdict": self.verdict,
                "moved": bool(drift),
                "sign": SIGN,
                "notices": list(self.notices),
                "causes": [_cause_record(one) for one in drift.causes],
                "new_scenarios": list(drift.added),
                "gone_scenarios": list(drift.dropped),
                "changes": self.records(),
            },
            "assumptions": [],
            "not_modelled": [],
        }


VERSION = "tpsim"
"""What stands for the formulas of a saved result: the version of tpsim that made it."""


def _cause_record(one: Cause) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "name": one.name,
        "old": one.old,
        "new": one.new,
        "change": one.change or None,
        "note": one.note or None,
        "scenarios": list(one.scenarios),
        "collectives": list(one.collectives),
        "step_relative": one.effect,
    }


def sentence(cause: Cause) -> str:
    """A cause in words: ``constant tpu-v5e.levels.ici.link.bandwidth 45 GB/s -> 40 GB/s (-11.1 %)``.

    A formula's texts are for the table: a line has no room for them.
    """
    text = cause.kind == "formula" and cause.name != VERSION
    old, new = ("", "") if text else values(cause)
    moved = f" {old or 'none'} -> {new or 'none'}" if old or new else ""
    said = ", ".join(filter(None, ["" if text else cause.change, cause.note]))
    return f"{cause.kind} {cause.name}{moved}" + (f" ({said})" if said else "")


def values(cause: Cause) -> tuple[str, str]:
    """What a fact was and is, with its unit."""
    return _said(cause.old, cause.dimension), _said(cause.new, cause.dimension)


DIGITS = 10
"""Of a figure that moved: enough to see a small move."""


def _said(value: Any, dimension: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if dimension and isinstance(value, int | float):
        return show(value, dimension, DIGITS)
    return f"{value:,}" if isinstance(value, int) else str(value)


def outcomes(name: str, drift: Drift) -> list[str]:
    """What a scenario satisfies now and did not before, or the other way round: ``does not fit``."""
    return [outcome(one.quantity, one.new) for one in drift.moved if one.scenario == name and is_outcome(one.quantity)]


HELD = ("parameters_bytes", "gradients_bytes", "optimizer_bytes")
SIZES: Mapping[str, tuple[tuple[str, ...], Dimension]] = {
    "step": (("step_s",), "seconds"),
    "compute": (("compute_s",), "seconds"),
    "exposed": (("exposed_s",), "seconds"),
    "states": (HELD, "bytes"),
}
"""What a reader of one scenario asks first: the results that it is the sum of, and their dimension."""


def sizes(name: str, drift: Drift) -> dict[str, str]:
    """Those of a scenario's `SIZES` that moved: ``10.27 s -> 11.5 s (+12 %)``."""
    found: dict[str, str] = {}
    moved = {one.quantity for one in drift.moved if one.scenario == name and one.part is None}
    sides = [lock.scenarios[name] for lock in (drift.old, drift.new)]
    for what, (keys, dimension) in SIZES.items():
        if moved & {*keys} and all(key in side.results for side in sides for key in keys):
            old, new = (total(side.result(key) for key in keys) for side in sides)
            share = change(old, new)
            found[what] = f"{show(old, dimension)} -> {show(new, dimension)}" + (f" ({share})" if share else "")
    return found


FEW = 3


def _some(names: tuple[str, ...]) -> str:
    """A few names, the rest counted."""
    shown = ", ".join(names[:FEW])
    return shown if len(names) <= FEW else f"{shown} and {len(names) - FEW} more"
