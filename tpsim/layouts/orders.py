"""How the stages of a search may take turns, and how a stack may be cut into them."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, get_args

from tpsim.layouts.group import ALONE
from tpsim.layouts.layout import Order
from tpsim.layouts.space import CHUNKED, Space
from tpsim.program.schedules import SCHEDULES
from tpsim.program.stages import ENDS, CutBy
from tpsim.quantity.size import divisors
from tpsim.question.scenario_file import PipelineFields

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpsim.question.pipeline import Split
    from tpsim.question.question import Question

EVEN, NEARLY_EVEN, BALANCED = get_args(CutBy)
"""Rules that cut a stack: the last by seconds, which only a plan knows."""


def orders(space: Space, base: Question, pp: int) -> list[Order]:
    """All orders of so many stages; rules that cut the stack alike are looked at once."""
    return [*dict.fromkeys(_orders(space, base, pp))]


def _orders(space: Space, base: Question, pp: int) -> Iterator[Order]:
    if pp == ALONE:
        yield Order()
        return
    stated = base.stated.file.pipeline or PipelineFields(chunks=1, layers=EVEN)
    schedules = (
        ("",)
        if base.inference
        else space.values("schedule", sorted(SCHEDULES, key=CHUNKED.__contains__), stated.schedule)
    )
    layers = base.model.layers
    for rule, schedule in product(space.values("layers", (NEARLY_EVEN,), stated.layers), schedules):
        known = SCHEDULES.get(schedule)
        all_ = _several(rule, layers, pp) if known and known.several else (1,)
        for chunks in (1,) if base.inference else space.values("chunks", all_, stated.chunks):
            yield Order(schedule, chunks, _cut_by(rule, layers, pp * chunks))


def _several(rule: CutBy | Split, layers: int, pp: int) -> Sequence[int]:
    """Chunks of which a stage may have several: as many as divide the layers of the fullest or of all, or as stated.

    Where the ends count as layers, and make all stages alike, as many as divide those.
    """
    if not isinstance(rule, str):
        return [v for v in (len(rule) // pp,) if v > 1]
    ends = 0 if rule == EVEN or (layers + ENDS) % pp else ENDS
    chunks = {-(-layers // pp), (layers + ends) // pp} if rule != EVEN or not layers % pp else ()
    return sorted({v for each in chunks for v in divisors(each) if v > 1})


def _cut_by(rule: CutBy | Split, layers: int, pieces: int) -> CutBy | Split | None:
    """As a layout has it."""
    if isinstance(rule, str):
        return None if rule != BALANCED and not layers % pieces else rule
    return tuple(rule)
