"""What moved between two locks: every difference in numbers with the facts that caused it.

A fact that moved explains the numbers that moved and use it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tpsim.guard.causes import STILL, Cause, causes
from tpsim.guard.moved_numbers import Moved, moved_in
from tpsim.guard.renamed import in_names_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpsim.guard.lock import Lock

UNKNOWN = "code of tpsim that no formula of the lock samples"
"""What is to blame where numbers moved and no fact that they use did."""


@dataclass(frozen=True, slots=True)
class Drift:
    """All that moved between two locks.

    old             in the names of the new one, where a machine or a model was renamed
    moved           numbers, by scenario and collective
    added, dropped  scenarios that only the new lock has, or only the old one
    """

    old: Lock
    new: Lock
    causes: tuple[Cause, ...] = ()
    moved: tuple[Moved, ...] = ()
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """True if anything moved."""
        return bool(self.causes or self.moved or self.added or self.dropped)

    @property
    def changed(self) -> tuple[str, ...]:
        """Scenarios in both locks whose numbers moved."""
        return tuple(dict.fromkeys(one.scenario for one in self.moved))


def drift(old: Lock, new: Lock) -> Drift:
    """What moved from `old` to `new`; times are compared with the tolerance of the old lock."""
    old, renamed = in_names_of(new, old)
    both = [name for name in new.scenarios if name in old.scenarios]
    moved = tuple(one for name in both for one in moved_in(name, old, new))
    found = [_touched(one, moved, old, new) for one in [*causes(old, new), *renamed]]
    touching = sorted(found, key=lambda one: not one.scenarios)  # what moved a number comes before what moved none
    return Drift(
        old,
        new,
        (*touching, *_unexplained(touching, moved, old, new)),
        moved,
        added=tuple(name for name in new.scenarios if name not in old.scenarios),
        dropped=tuple(name for name in old.scenarios if name not in new.scenarios),
    )


def at_least(found: Drift, share: float) -> Drift:
    """The drift without the numbers that moved by less than a share, and without the causes of nothing else."""
    moved = tuple(one for one in found.moved if one.relative is None or abs(one.relative) >= share)
    numbers = {(one.scenario, one.part) for one in moved if not isinstance(one.new or one.old, str)}
    moved = tuple(one for one in moved if (one.scenario, one.part) in numbers)
    left = {one.scenario for one in moved}
    causes = tuple(one for one in found.causes if not one.scenarios or left & {*one.scenarios})
    kept = [one if one.kind == "scenario" else replace(one, scenarios=()) for one in causes]
    again = tuple(_touched(one, moved, found.old, found.new) for one in kept)
    return replace(found, moved=moved, causes=again)


def _touched(cause: Cause, moved: Sequence[Moved], old: Lock, new: Lock) -> Cause:
    """The cause with the scenarios and collectives whose numbers moved and that use it."""
    if cause.note.endswith(STILL):
        return cause
    hits = [one for one in moved if cause.makes(one, old, new)]
    names = tuple(dict.fromkeys([*cause.scenarios, *(one.scenario for one in hits)]))
    over = dict.fromkeys(one.part.over for one in hits if one.part)
    return replace(cause, scenarios=names, collectives=tuple(over), effect=_effect(hits))


def _effect(hits: Sequence[Moved]) -> float | None:
    """The largest change of a step among these numbers."""
    steps = [one.relative for one in hits if one.quantity == "step_s"]
    return max((one for one in steps if one is not None), key=abs, default=None)


def _unexplained(found: Sequence[Cause], moved: Sequence[Moved], old: Lock, new: Lock) -> Iterator[Cause]:
    """Numbers that moved though no fact did that they use: other code of tpsim is to blame, and is said to be."""
    left = [one for one in moved if not any(cause.makes(one, old, new) for cause in found)]
    if left:
        names = tuple(dict.fromkeys(one.scenario for one in left))
        over = tuple(dict.fromkeys(one.part.over for one in left if one.part))
        what = "moved: " + ", ".join(sorted({one.quantity for one in left}))
        yield Cause("formula", UNKNOWN, None, None, what, names, over, effect=_effect(left))
