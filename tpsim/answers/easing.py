"""What makes a layout fit where a search finds none that does: one thing asked otherwise, and searched again."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, log2
from typing import TYPE_CHECKING, Any

from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tpsim.answers.planned import Planned
    from tpsim.answers.search import SearchResult

HELD = ("microbatches", "recompute", "zero")
"""Parts of a layout that decide what a chip holds, and that a scenario or a flag may have stated."""

TIMES = 2
"""How often chips are doubled, from as many as hold together what the smallest layout holds on each."""


@dataclass(frozen=True)
class Again:
    """How to search again with something asked otherwise.

    search  the same search for the best alone, less `vary` and `flags`
    vary    what it was asked to vary, and the flags that it was asked with
    """

    search: Callable[..., SearchResult] = field(repr=False)
    vary: Sequence[str]
    flags: Mapping[str, Any]

    def eased(self, result: SearchResult) -> tuple[str, SearchResult] | None:
        """A change by which layouts fit, in words of the command line, with what is found then.

        The first by which one meets what is required, too; else the first.
        """
        first = None
        for words, vary, changed in self._changes(result):
            if vary and not self._may_fit(result, vary):
                continue
            try:
                found = self.search(vary=[*self.vary, *vary], **{**self.flags, **changed})
            except InputError:
                continue  # it cannot be asked so
            if found.best:
                return words, found
            first = first or ((words, found) if found.fitting else None)
        return first

    def _may_fit(self, result: SearchResult, vary: Sequence[str]) -> bool:
        """False where nothing on the mesh that holds least fits so: one mesh is quick to search, and tells of most."""
        if not (result.smallest and result.spaces[0].chips):
            return True
        if _stands_too_much(result, result.smallest, *vary):
            return False
        layout = result.smallest.candidate.layout
        alone = [f"{role}={getattr(layout, role)}" for role in ("tp", "cp", "pp")]
        try:
            return bool(self.search(vary=[*self.vary, *vary, *alone], **self.flags).fitting)
        except InputError:
            return True  # a flag states some of these

    def _changes(self, result: SearchResult) -> Iterator[tuple[str, tuple[str, ...], dict[str, Any]]]:
        """Words of the command line, what they vary, and what else is asked otherwise: what costs no chips first."""
        if result.questions[0].inference:
            by = "tokens_per_s_chip" if result.by in ("step", "memory") else result.by
            words = "--batch largest" + (f" --by {by}" if by != result.by else "")
            yield words, (), {"batch": "largest", "by": by}
        else:
            for part in HELD:
                if self.flags.get(part) is not None:
                    yield f"without --{part}", (), {part: None}
                elif part not in result.searched:
                    yield f"--vary {part}", (part,), {}
        chips = result.spaces[0].chips or result.questions[0].mesh.devices
        memory = result.smallest and result.smallest.plan.memory
        short = ceil(memory.peak_bytes / memory.capacity_bytes) if memory else 1
        least = max(1, ceil(log2(short)))
        for doublings in range(least, least + TIMES):
            more = chips * 2**doublings
            yield f"--chips {more}", (), {"chips": more}


def _stands_too_much(result: SearchResult, smallest: Planned, part: str) -> bool:
    """True where the layout that holds least holds too much from step to step, sharded as far as ZeRO is searched.

    Recompute changes nothing of that, and microbatches the format in which gradients wait for each other.
    """
    memory, zeros = smallest.plan.memory, [family.group.first.zero for family in result.evaluation.families]
    stands = {
        "recompute": memory.static_bytes,
        "microbatches": memory.parameters_bytes + memory.optimizer_bytes,
    }
    return smallest.candidate.layout.zero == max(zeros) and stands.get(part, 0) > memory.capacity_bytes
