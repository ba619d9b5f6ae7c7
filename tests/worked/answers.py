"""Who answers each worked problem: problem -> answer -> the call of tpsim and its cost model."""

from __future__ import annotations

from collections import ChainMap
from typing import TYPE_CHECKING

from tests.worked import experts, gpus, serving, sharding, training

if TYPE_CHECKING:
    from tests.worked.answer import Answer

CHAPTERS = (sharding.ANSWERS, training.ANSWERS, serving.ANSWERS, gpus.ANSWERS, experts.ANSWERS)
ANSWERS: dict[str, dict[str, Answer]] = {
    problem: dict(ChainMap(*(chapter[problem] for chapter in CHAPTERS if problem in chapter)))
    for problem in dict.fromkeys(problem for chapter in CHAPTERS for problem in chapter)
}
