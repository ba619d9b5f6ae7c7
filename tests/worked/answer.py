"""What an entry of the tables says: the call that answers, and the cost model that it uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

BOOK = "book"
"""The greater of latency and bytes over bandwidth; a closed ring is charged V/W whatever its size."""
BOOK_MANY = "book, as the axis grows"
"""The same where the book drops the factor (n-1)/n of a switch."""
ADDITIVE = "additive, without launch"
COUNT = "none: bytes, FLOPs, shapes or types"
LINKS = "none: bytes on the busiest link"
MODELS = frozenset({BOOK, BOOK_MANY, ADDITIVE, COUNT, LINKS})


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a worked problem.

    ask      the call of tpsim
    model    the cost model under which it is exact
    formula  the book's formula, where there is no number
    says     what the book's text amounts to in tpsim's words
    """

    ask: Callable[[], Any]
    model: str = BOOK
    formula: Any = None
    says: Any = None
