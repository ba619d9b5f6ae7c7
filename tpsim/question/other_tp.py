"""Which sizes tensor parallelism of a refused scenario can have: those that nothing else it states is in the way of."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tpsim.quantity.errors import InputError
from tpsim.question.divisibility import legal_text, legal_tp, listed

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpsim.program.model import Model
    from tpsim.question.scenario_file import ScenarioFile


def with_legal_tp(
    error: InputError, file: ScenarioFile, model: Model, lay: Callable[[ScenarioFile], object]
) -> InputError:
    """The refusal of a tp, with those sizes of the model's that the rest of the scenario can be laid out with first.

    lay  lays out a scenario. Raises InputError for one that cannot be
    Where tp takes several axes, or no size helps, all that the model can have are listed, as they were.
    """
    every, told, axes = legal_tp(model), legal_text(model), file.layout.tp if file.layout else ()
    if len(axes) != 1 or all(problem.remedy != told for problem in error.problems):
        return error
    here = [tp for tp in every if _lies(file.model_copy(update={"mesh": {**file.mesh, axes[0]: tp}}), lay)]
    others = [tp for tp in every if tp not in here]
    if not here or not others:
        return error
    remedy = f"legal tp: {listed(here)}; with other sizes beside it also {listed(others)}"
    return InputError(
        replace(problem, remedy=remedy) if problem.remedy == told else problem for problem in error.problems
    )


def _lies(file: ScenarioFile, lay: Callable[[ScenarioFile], object]) -> bool:
    try:
        lay(file)
    except InputError:
        return False
    return True
