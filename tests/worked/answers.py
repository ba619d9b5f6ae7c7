"""Who answers each worked problem: problem -> answer -> the call of tpsim and its cost model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.worked import gpus, serving, sharding, training

if TYPE_CHECKING:
    from tests.worked.answer import Answer

ANSWERS: dict[str, dict[str, Answer]] = {**sharding.ANSWERS, **training.ANSWERS, **serving.ANSWERS, **gpus.ANSWERS}
