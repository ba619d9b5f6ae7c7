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
        return tuple(dict.fromkeys(number.scenario for number in self.moved))


def drift(old: Lock, new: Lock) -> Drift:
    """What moved from `old` to `new`; times are compared with the tolerance of the old lock."""
    old, renamed = in_names_of(new, old)
    both = [name for name in new.scenarios if name in old.scenarios]
    moved = tuple(number for name in both for number in moved_in(name, old, new))
    touched = [_touched(cause, moved, old, new) for cause in [*causes(old, new), *renamed]]
    # What moved a number comes before what moved none.
    touching = sorted(touched, key=lambda cause: not cause.scenarios)
    return Drift(
        old,
        new,
        (*touching, *_unexplained(touching, moved, old, new)),
        moved,
        added=tuple(name for name in new.scenarios if name not in old.scenarios),
        dropped=tuple(name for name in old.scenarios if name not in new.scenarios),
    )


def at_least(whole: Drift, share: float) -> Drift:
    """The drift without the numbers that moved by less than a share, and without the causes of nothing else."""
    moved = tuple(number for number in whole.moved if number.relative is None or abs(number.relative) >= share)
    numbers = {(number.scenario, number.part) for number in moved if not isinstance(number.new or number.old, str)}
    moved = tuple(number for number in moved if (number.scenario, number.part) in numbers)
    left = {number.scenario for number in moved}
    causes = tuple(cause for cause in whole.causes if not cause.scenarios or left & {*cause.scenarios})
    kept = [cause if cause.kind == "scenario" else replace(cause, scenarios=()) for cause in causes]
    again = tuple(_touched(cause, moved, whole.old, whole.new) for cause in kept)
    return replace(whole, moved=moved, causes=again)


def _touched(cause: Cause, moved: Sequence[Moved], old: Lock, new: Lock) -> Cause:
    """The cause with the scenarios and collectives whose numbers moved and that use it."""
    if cause.note.endswith(STILL):
        return cause
    hits = [number for number in moved if cause.makes(number, old, new)]
    names = tuple(dict.fromkeys([*cause.scenarios, *(hit.scenario for hit in hits)]))
    over = dict.fromkeys(hit.part.over for hit in hits if hit.part)
    return replace(cause, scenarios=names, collectives=tuple(over), effect=_effect(hits))


def _effect(hits: Sequence[Moved]) -> float | None:
    """The largest change of a step among these numbers."""
    steps = [hit.relative for hit in hits if hit.quantity == "step_s"]
    return max((step for step in steps if step is not None), key=abs, default=None)


def _unexplained(causes: Sequence[Cause], moved: Sequence[Moved], old: Lock, new: Lock) -> Iterator[Cause]:
    """Numbers that moved though no fact did that they use: other code of tpsim is to blame, and is said to be."""
    left = [number for number in moved if not any(cause.makes(number, old, new) for cause in causes)]
    if left:
        names = tuple(dict.fromkeys(number.scenario for number in left))
        over = tuple(dict.fromkeys(number.part.over for number in left if number.part))
        what = "moved: " + ", ".join(sorted({number.quantity for number in left}))
        yield Cause("formula", UNKNOWN, None, None, what, names, over, effect=_effect(left))
