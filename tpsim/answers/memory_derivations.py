"""The derivations of a plan's memory: what a chip holds from step to step, keeps, works with, and has beside."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tpsim.answers.derivation import CHECKS, Derivation, derived, of_rank
from tpsim.cost.memory import Kept, kept, memory
from tpsim.program.kinds import ALIKE, kinds
from tpsim.quantity.size import total
from tpsim.quantity.units import show
from tpsim.question.prices import sizes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tpsim.answers.plan import PlanResult
    from tpsim.cost.sizes import Sizes

MEMORY = ("parameters", "gradients", "optimizer", "static")
CACHE = "cache"
"""What inference holds, and training does not."""

ON_HOST = "host"
"""What a chip holds elsewhere, where anything is offloaded."""


def held(result: PlanResult, rest: str) -> Iterator[Derivation]:
    """What a chip holds: ``parameters``, ``gradients``, ``optimizer``, or all with ``static``."""
    part = rest.removesuffix("_bytes")
    if part in OVER_TIME:
        yield from OVER_TIME[part](result)
    cached = part == CACHE and result.memory.cache_bytes is not None
    hosted = part == ON_HOST and result.memory.host_bytes is not None
    if part not in MEMORY and not cached and not hosted:
        return
    program, fullest = result.memo.lowered(result.question).program, result.memory.peak_rank
    sizes, work = result.sizes, result.question.inference
    if work:
        sizes = sizes_of(replace(result.question, workload=work.at_peak))
    yield derived(
        replace(result, sizes=sizes.of_stage(result.question.stages.loops(fullest))),
        f"bytes of {part} on one chip{_where_most(result)}",
        "bytes",
        lambda sizes: getattr(memory(program, sizes, of_rank(result, fullest)), f"{part}_bytes"),
        because=(f"ZeRO {result.question.layout.zero}; {result.memory.verdict}",),
        checks=CHECKS["memory"],
    )
    drafting = result.serve and result.serve.speculation and result.serve.speculation.drafting
    if drafting:
        yield Derivation(
            what=f"bytes of {part} on one chip, of the draft, beside that",
            dimension="bytes",
            text=f"the same of {drafting.question.model.name}, decoding by itself in as many sequences",
            value=float(getattr(drafting.memory, f"{part}_bytes")),
            checks=CHECKS["memory"],
        )


def _where_most(result: PlanResult) -> str:
    """The rank that holds most, where there are several."""
    return f" of rank {result.memory.peak_rank}" if result.pipeline else ""


def _terms(parts: Mapping[str, Any]) -> str:
    """Parts of a sum of bytes: ``kept 3 GB + spare 1 GB``."""
    return " + ".join(f"{name} {show(float(size), 'bytes')}" for name, size in parts.items())


def _peak(result: PlanResult) -> Iterator[Derivation]:
    """What the arrays of a step take together where that is most."""
    memory = result.memory
    parts = {"states": memory.static_bytes, "kept": memory.kept_bytes, **memory.working}
    yield Derivation(
        what=f"bytes on one chip{_where_most(result)} where they are most, in {memory.peak_action}",
        dimension="bytes",
        text=_terms(parts),
        value=float(memory.peak_bytes),
        because=(
            "what every action of the rank's order leaves behind stands beside the next; highest within it",
            memory.verdict,
        ),
        checks=CHECKS["peak"],
    )


def _working(result: PlanResult) -> Iterator[Derivation]:
    """What arrays and buffers take beside what is held and kept, where all together are most."""
    memory = result.memory
    yield Derivation(
        what=f"bytes at work on one chip{_where_most(result)}, in {memory.peak_action}",
        dimension="bytes",
        text=_terms(memory.working),
        value=float(memory.working_bytes),
        because=("what is neither held from step to step nor kept for a later action, where the peak is",),
        checks=CHECKS["peak"],
    )


def _overhead(result: PlanResult) -> Iterator[Derivation]:
    """What is assumed to stand beside arrays."""
    memory = result.memory
    context, workspace, share = memory.overheads.figures.values()
    assumed = f"context {show(context, 'bytes')} + workspace {show(workspace, 'bytes')}"
    yield Derivation(
        what="bytes assumed on one chip beside its arrays",
        dimension="bytes",
        text=f"{assumed} + fragmentation {share:g} x peak {show(float(memory.peak_bytes), 'bytes')}",
        value=float(memory.overhead_bytes),
        because=("assume.memory states them; nothing is assumed where nothing is stated",),
        checks=CHECKS["memory"],
    )


def _kept(result: PlanResult) -> Iterator[Derivation]:
    """What is kept at the peak, and what a microbatch keeps: of a layer, and of what is around the layers."""
    memory = result.memory
    yield Derivation(
        what=f"bytes kept on one chip{_where_most(result)} where all together are most, in {memory.peak_action}",
        dimension="bytes",
        text="arrays that a later action reads, of all microbatches that are in flight there",
        value=float(memory.kept_bytes),
        because=(memory.verdict,),
        checks=CHECKS["peak"],
    )
    sorts: dict[str, Callable[[Kept], bool]] = {}
    for kind in kinds(result.question.practice, result.question.model.stack):
        one_layer = "of one layer" if kind == ALIKE else f"of one {kind} layer"
        sorts[f"{one_layer} from forward to backward"] = partial(_kept_in, kind, forward=True)
        sorts[f"{one_layer} within backward, where gradients of weights wait"] = partial(_kept_in, kind, forward=False)
    for noun, belongs in {**sorts, "around the layers": lambda entry: not entry.per_layer}.items():
        arrays = partial(_kept_so, result, belongs)
        yield derived(
            result,
            f"bytes that one microbatch keeps {noun}",
            "bytes",
            lambda sizes, arrays=arrays: total(entry.bytes_each for entry in arrays(sizes)),  # type: ignore[misc]
            because=tuple(f"{entry}, {show(float(entry.bytes_each), 'bytes')}" for entry in arrays(result.sizes)),
            checks=CHECKS["peak"],
        )


def _kept_in(kind: str, entry: Kept, *, forward: bool) -> bool:
    return entry.per_layer and entry.reader.where.kind == kind and (entry.maker.where.act == "F") == forward


def _kept_so(result: PlanResult, belongs: Callable[[Kept], bool], sizes: Sizes) -> list[Kept]:
    program, practice = result.memo.lowered(result.question).program, result.question.practice
    return [entry for entry in kept(program, sizes, practice.keeps) if belongs(entry)]


OVER_TIME: Mapping[str, Callable[[PlanResult], Iterator[Derivation]]] = {
    "peak": _peak,
    "kept": _kept,
    "working": _working,
    "overhead": _overhead,
}
"""What of memory changes within a step, or stands beside its arrays."""
