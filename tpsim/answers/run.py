"""What a training run comes to: days and chip hours of its tokens, and money where a chip hour has a price."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tpsim.frozen import dataclass
from tpsim.quantity.units import HOUR_S
from tpsim.report.record import Number, Record

if TYPE_CHECKING:
    from tpsim.answers.plan import PlanResult

HOURS_A_DAY = 24
MILLION = 1e6


@dataclass(frozen=True, slots=True)
class TrainingRun(Record):
    """Steps one after the other, without a pause.

    tokens      of the run, if they are stated
    chip_hours  of a step, per million tokens, of the run
    price       of a chip hour, in whatever money it is stated
    """

    told: ClassVar[tuple[str, ...]] = (
        *("chip_hours_per_million_tokens", "tokens?", "days?", "chip_hours?"),
        *("price_per_chip_hour?", "price_per_step?", "price_per_million_tokens?", "price?"),
    )

    step_s: float
    chips: int
    step_tokens: int
    tokens: Number | None
    price_per_chip_hour: Number | None

    @property
    def chip_hours_per_million_tokens(self) -> Number:
        """Hours of chips that a million tokens take."""
        return MILLION * self._step_chip_hours / self.step_tokens

    @property
    def days(self) -> Number | None:
        """Of the run; left out where its tokens are not stated."""
        return None if self.tokens is None else self.tokens / self.step_tokens * self.step_s / HOUR_S / HOURS_A_DAY

    @property
    def chip_hours(self) -> Number | None:
        """Of the run; left out where its tokens are not stated."""
        return None if self.tokens is None else self.chip_hours_per_million_tokens * self.tokens / MILLION

    @property
    def price_per_step(self) -> Number | None:
        """Money for a step; left out where a chip hour has no price."""
        return self._priced(self._step_chip_hours)

    @property
    def price_per_million_tokens(self) -> Number | None:
        """Money for a million tokens; left out where a chip hour has no price."""
        return self._priced(self.chip_hours_per_million_tokens)

    @property
    def price(self) -> Number | None:
        """Money for the run; left out where its tokens or the price of a chip hour are not stated."""
        return self._priced(self.chip_hours)

    @property
    def _step_chip_hours(self) -> float:
        return self.chips * self.step_s / HOUR_S

    def _priced(self, chip_hours: float | None) -> float | None:
        return None if chip_hours is None or self.price_per_chip_hour is None else chip_hours * self.price_per_chip_hour

    @property
    def text(self) -> str:
        """In words: ``15e12 tokens in 23.4 days, 1.1e6 chip hours, ...``."""
        parts = []
        if self.tokens is not None:
            parts.append(f"{self.tokens:.4g} tokens in {self.days:.4g} days, {self.chip_hours:,.0f} chip hours")
        if self.price_per_chip_hour is not None:
            whole = "" if self.price is None else f"{self.price:,.0f}, "
            each = f"{self.price_per_million_tokens:.4g} per million tokens"
            parts.append(f"{whole}{each} at {self.price_per_chip_hour:g} a chip hour")
        return "; ".join(parts)


def run_of(plan: PlanResult) -> TrainingRun | None:
    """The run of a plan; None where neither its tokens nor a price are stated."""
    price, tokens = plan.question.price, getattr(plan.question.stated.file.workload, "run_tokens", None)
    if price is None and tokens is None:
        return None
    return TrainingRun(float(plan.step.time_s), plan.chips, plan.tokens, tokens, price and price.value)
