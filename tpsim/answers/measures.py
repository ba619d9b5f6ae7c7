"""What a search is asked to measure, and how much room it wants to be sure of."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from tpsim.answers.ranking import By
from tpsim.program.keeps import margin
from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpsim.question.question import Question


def spare_bytes(question: Question) -> float:
    """Bytes of a chip that are free in a layout that surely fits."""
    return margin(question.practice.keeps).share * float(question.machine.chip.memory_capacity.value)


def measured(pareto: str) -> By:
    """The measure of ``step,memory`` that is weighed against memory."""
    first, _, second = pareto.partition(",")
    if second != "memory" or first == "memory" or first not in get_args(By):
        raise InputError.one("bad-value", f"{pareto} is no pair of measures", remedy="write --pareto step,memory")
    return first  # type: ignore[return-value]  # one of them


def measurable(flag: str, measure: By, questions: Sequence[Question]) -> None:
    """Refuse a measure that a scenario has no figures for, or that compares unlike things. Raises InputError."""
    if measure == "money" and not all(question.price for question in questions):
        message = "a search by money needs the price of a chip hour, and none is stated"
        raise InputError.one("missing-price", message, remedy="add it: --set assume.price_per_chip_hour=2.5")
    first, *others = questions
    if measure == "step" and any(
        (other.workload.tokens, other.model) != (first.workload.tokens, first.model) for other in others
    ):
        message = "steps are not the same work where their tokens or their models differ"
        remedy = "--by tokens_per_s" if flag == "by" else "--pareto tokens_per_s,memory"
        raise InputError.one("unlike-work", message, remedy=f"compare what they get done: {remedy}")
