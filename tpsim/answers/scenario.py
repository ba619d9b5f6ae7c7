"""The verb `scenario`: which questions the library has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpsim.algebra.mesh import sized
from tpsim.quantity import spec
from tpsim.question.inputs import files_of
from tpsim.question.memo import Memo
from tpsim.question.scenario import resolve
from tpsim.report.answer import Answer

if TYPE_CHECKING:
    from tpsim.question.question import Question


@dataclass(frozen=True)
class ScenarioListResult(Answer):
    """The scenarios of the library, by name."""

    schema = "tpsim.scenario-list/1"
    told = ("scenarios",)
    table = "scenarios"

    each: tuple[Question, ...]

    files = files_of(
        lambda answer: [
            part for one in answer.each for part in (one.stated.document, one.base_model.document, one.machine)
        ]
    )

    @property
    def verdict(self) -> str:
        """How many there are, and how to ask something else."""
        return f"{len(self.each)} scenarios; your own: a .yaml file, or flags alone: --model, --hw and --seq"

    @property
    def scenarios(self) -> list[dict[str, Any]]:
        """One row per scenario: what it asks about."""
        return [_row(question) for question in self.each]


def scenario_list() -> ScenarioListResult:
    """Every scenario of the library.

    Raises InputError for one of a folder in TPSIM_PATH that asks nothing that can be answered.
    """
    memo = Memo()
    return ScenarioListResult(tuple(resolve(name, memo=memo) for name in spec.names("scenarios")))


def _row(question: Question) -> dict[str, Any]:
    return {
        "scenario": question.stated.stem,
        "model": question.model.name,
        "hardware": question.machine.name,
        "chips": question.mesh.devices,
        "kind": question.workload.kind,
        "mesh": sized(question.stated_mesh.axes),
    }
