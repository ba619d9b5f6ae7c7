"""What makes a layout fit, or do, where a search finds none: one thing asked otherwise, and searched again."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, log2
from typing import TYPE_CHECKING, Any

from tpsim.layouts.family import Candidate
from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tpsim.answers.planned import Planned
    from tpsim.answers.search import SearchResult
    from tpsim.layouts.layout import Layout

HELD = ("microbatches", "recompute", "zero")
"""Parts of a layout that decide what a chip holds, and that a scenario or a flag may have stated."""

STATE = "state"
"""What may be offloaded: what an optimizer holds."""

TIMES, MOST = 2, 6
"""How often more chips are tried at least, and where nothing fits yet at most."""


@dataclass(frozen=True)
class Again:
    """How to search again with something asked otherwise.

    search     the same search for the best alone, less `vary` and `flags`
    vary       what it was asked to vary, and the flags that it was asked with
    overrides  those that it was asked with, beside which a flag says nothing
    """

    search: Callable[..., SearchResult] = field(repr=False)
    vary: Sequence[str]
    flags: Mapping[str, Any]
    overrides: Sequence[str] = ()

    def eased(self, result: SearchResult) -> tuple[str, SearchResult] | None:
        """A change by which layouts fit, in words of the command line, with what is found then.

        The first by which one meets what is required, too; else the first. Where layouts fit already it is one by which
        one meets that, and of inference alone: its searches are quick.
        """
        fits = result.fitting > 0
        if not result.legal or result.best or (fits and not result.questions[0].inference):
            return None
        first, mesh, passed = None, self._mesh(result), []
        tried: list[SearchResult] = []
        for words, vary, changed in self._changes(result, tried):
            doubtful = vary or fits or "offload" in changed
            doubted = doubtful and mesh and changed.get("batch") != 1  # one sequence is asked of all meshes
            if doubted and not self._may_help(result, mesh, vary, changed):
                passed.append((words, changed))
                continue
            if found := self._found(vary, changed):
                tried.append(found)
                if found.best:
                    return (self._sooner(passed, changed) if fits else None) or (words, found)
                first = first or ((words, found) if found.fitting and not fits else None)
        return first

    def _found(self, vary: Sequence[str], changed: Mapping[str, Any]) -> SearchResult | None:
        """What is found with something asked otherwise; None where it cannot be asked so."""
        try:
            return self.search(vary=[*self.vary, *vary], **{**self.flags, **changed})
        except InputError:
            return None

    def _sooner(
        self, passed: Sequence[tuple[str, Mapping[str, Any]]], changed: Mapping[str, Any]
    ) -> tuple[str, SearchResult] | None:
        """The first change of the same kind that did not help on one mesh, and does on another; None if none does."""
        alike = ((words, self._found((), other)) for words, other in passed if other.keys() == changed.keys())
        return next(((words, found) for words, found in alike if found and found.best), None)

    def _mesh(self, result: SearchResult) -> list[str]:
        """What holds a search to one mesh, which is quick and tells of most: the one that holds least.

        Where layouts fit it is the one of the shortest step, with as many sequences for all: where memory decides how
        many those are, with a few. Empty where meshes are not searched.
        """
        if not result.spaces[0].chips:
            return []
        question = result.questions[0]
        if not result.smallest and question.inference and question.inference.fills:
            batch = _sequences(result)
            try:
                result = self.search(
                    vary=self.vary, **{**self.flags, **self._of_batch(batch >> batch.bit_length() // 2)[1]}
                )
            except InputError:
                return []  # batches are varied
        layout = result.smallest.candidate.layout if result.smallest else _fastest(result)
        roles = ("tp", "pp", *(() if question.inference else ("cp",)))
        return [f"{role}={getattr(layout, role)}" for role in roles] if layout else []

    def _may_help(
        self, result: SearchResult, mesh: Sequence[str], vary: Sequence[str], changed: Mapping[str, Any]
    ) -> bool:
        """False where nothing on one mesh fits so; where layouts fit, where none does what is required."""
        if result.smallest and any(_stands_too_much(result, result.smallest, part) for part in (*vary, *changed)):
            return False
        try:
            found = self.search(vary=[*self.vary, *vary, *mesh], **{**self.flags, **changed})
        except InputError:
            return True  # a flag states some of these
        return bool(found.best if result.fitting else found.fitting)

    def _changes(
        self, result: SearchResult, tried: Sequence[SearchResult]
    ) -> Iterator[tuple[str, tuple[str, ...], dict[str, Any]]]:
        """Words of the command line, what they vary, and what else is asked otherwise: what costs no chips first.

        tried  what has been found by those before, as soon as it is
        """
        if result.questions[0].inference and result.fitting:
            batch = _sequences(result)
            for halvings in range(1, batch.bit_length()):
                words, changed = self._of_batch(batch >> halvings)
                yield words, (), changed
        elif result.questions[0].inference:
            by = "tokens_per_s_chip" if result.by in ("step", "memory") else result.by
            words, changed = self._of_batch("largest")
            yield words + (f" --by {by}" if by != result.by else ""), (), {**changed, "by": by}
        else:
            for part in HELD:
                if self.flags.get(part) is not None:
                    yield f"without --{part}", (), {part: None}
                elif part not in result.searched:
                    yield f"--vary {part}", (part,), {}
            if not any(question.practice.offload for question in result.questions):
                yield f"--offload {STATE}", (), {"offload": STATE}  # a machine whose host is not known refuses it
        begun, chips = len(tried), result.spaces[0].chips or result.questions[0].mesh.devices
        for times in range(MOST):
            last = tried[-1] if len(tried) > begun else result
            if times >= TIMES and (last is result or last.fitting or not last.legal):
                return
            chips *= _short(last)
            yield f"--chips {chips}", (), {"chips": chips}

    def _of_batch(self, size: int | str) -> tuple[str, dict[str, Any]]:
        """Another batch, in words of the command line and as arguments: an override where one states it."""
        stated = [text for text in self.overrides if _path(text) in ("workload", BATCH)]
        if not stated:
            return f"--batch {size}", {"batch": size}
        others = [text for text in self.overrides if _path(text) != BATCH]
        return f"--set {BATCH}={size}", {"overrides": [*others, f"{BATCH}={size}"]}


def _short(result: SearchResult) -> int:
    """How many times as many chips, by doublings, could hold together what the smallest layout holds on each."""
    memory = result.smallest and result.smallest.plan.memory
    short = ceil(memory.peak_bytes / memory.capacity_bytes) if memory else 1
    return int(2 ** max(1, ceil(log2(short))))


BATCH = "workload.batch"


def _path(override: str) -> str:
    return override.partition("=")[0].strip()


def _sequences(result: SearchResult) -> int:
    """Sequences of a step; where memory decides how many those are, of the layout with room for most."""
    work = result.questions[0].workload
    return max(family.tokens for family in result.evaluation.families) * work.global_batch // work.tokens


def _fastest(result: SearchResult) -> Layout | None:
    """The layout of the shortest step, of those that fit; None if none does."""
    fitting = (
        Candidate(family, at) for family in result.evaluation.families for at, fits in enumerate(family.fitting) if fits
    )
    first = min(fitting, key=lambda candidate: candidate.step_s, default=None)
    return first.layout if first else None


def _stands_too_much(result: SearchResult, smallest: Planned, part: str) -> bool:
    """True where the layout that holds least holds too much that a change leaves, sharded as far as ZeRO is searched.

    Recompute changes nothing of what stands from step to step, microbatches the format in which gradients wait for each
    other, and offload what an optimizer holds.
    """
    memory, zeros = smallest.plan.memory, [family.group.first.zero for family in result.evaluation.families]
    stands = {
        "recompute": memory.static_bytes,
        "microbatches": memory.parameters_bytes + memory.optimizer_bytes,
        "offload": memory.peak_bytes - memory.optimizer_bytes,
    }
    return smallest.candidate.layout.zero == max(zeros) and stands.get(part, 0) > memory.capacity_bytes
