"""What a plan takes for granted about its model and its run, and how many guesses it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.program.layout import Dtypes
from tpsim.question.question import Assumption
from tpsim.question.scenario_file import LayoutFields

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpsim.fabric.placement import Placement
    from tpsim.machine.profile import Machine
    from tpsim.program.model_file import ModelRead
    from tpsim.question.scenario_file import ScenarioFile

EFFICIENCY = "chip.matmul_efficiency"
"""The constant of a machine that a plan names among its assumptions, as a scenario may state another one."""


def model_assumptions(read: ModelRead) -> Iterator[Assumption]:
    """What is assumed of the model: its padding, and what reading its file left aside."""
    model = read.model
    if model.vocab_padded != model.vocab:
        yield Assumption(f"vocabulary {model.vocab} is padded to {model.vocab_padded}", "stated")
    yield from (Assumption(f"{model.name}: {note}", "derived") for note in read.notes)


def run_assumptions(file: ScenarioFile, machine: Machine, placement: Placement) -> Iterator[Assumption]:
    """What is assumed of efficiency, overlap, placement, and of all that the scenario leaves open."""
    yield from _efficiency(file, machine)
    overlap = [f"{axis} behind {what}" for axis, what in file.assume.overlap.items() if what != "none"]
    if "overlap" in file.assume.model_fields_set:
        yield Assumption("overlap: " + (", ".join(overlap) or "none"), "stated")
    yield from (
        Assumption(f"{what}: {field} is not stated", "guess") for field, what in left_open(file, machine).items()
    )
    if usual := _usual(file):
        yield Assumption(f"where nothing else is stated: {', '.join(usual)}", "default")
    if placement.rule:
        yield Assumption(f"placement chosen by tpsim: {placement.rule}", "derived")
    yield from (Assumption(text, "derived") for text in placement.idle)


def _efficiency(file: ScenarioFile, machine: Machine) -> Iterator[Assumption]:
    stated, own = file.assume.matmul_efficiency, machine.chip.matmul_efficiency
    if stated is not None:
        kind = "stated" if stated.kind == "measured" else stated.kind
        yield Assumption(f"matrix products reach {stated.value:.4g} of peak", kind)
    elif file.cost_model == "book":
        yield Assumption("matrix products reach their peak, as the cost model book has it", "stated")
    elif own is not None:
        kind = "guess" if own.kind == "guess" else "stated"
        yield Assumption(f"matrix products reach {own.value:.4g} of peak on {machine.name}", kind)


def left_open(file: ScenarioFile, machine: Machine) -> dict[str, str]:
    """The fields that a run decides and the scenario does not state, each with what is guessed."""
    work, dtypes = file.workload, Dtypes()
    harness = next((next(iter(level.launch)) for level in machine.levels if len(level.launch) > 1), "")
    return {
        name: what
        for name, what, stated in (
            ("workload.microbatches", "one microbatch", "microbatches" in work.model_fields_set),
            ("workload.dtype", f"products and parameters in {dtypes.activations}", work.dtype),
            ("workload.grad_dtype", f"gradients in {dtypes.gradients}", work.grad_dtype),
            ("practice", f"the switches of {file.practice.base}", "base" in file.practice.model_fields_set),
            ("assume.overlap", "no collective runs beside compute", "overlap" in file.assume.model_fields_set),
            (
                "collectives.launch",
                f"the launch latency of {harness}",
                file.collectives.launch or file.cost_model == "book" or not harness,
            ),
        )
        if not stated
    }


def _usual(file: ScenarioFile) -> list[str]:
    """What a scenario means by leaving a field out, where that moves numbers: no guess about the run, yet a choice."""
    work, layout, dtypes = file.workload, file.layout or LayoutFields(), Dtypes()
    said: Mapping[str, bool] = {
        "ZeRO 0": file.shardings is not None or "zero" in layout.model_fields_set,
        "no sequence parallelism": file.shardings is not None or "sequence_parallel" in layout.model_fields_set,
        f"loss in {dtypes.loss}": work.loss_dtype is not None,
        f"optimizer state in {dtypes.optimizer}": work.optimizer_dtype is not None,
        f"cost model {file.cost_model}": "cost_model" in file.model_fields_set,
        f"planner {file.planner}": "planner" in file.model_fields_set,
    }
    return [what for what, stated in said.items() if not stated]


def guesses(assumptions: Sequence[Assumption], machine: Machine) -> int:
    """Guessed assumptions, and guessed constants of the machine but the one that is an assumption."""
    constants = [one.path for one in machine.constants() if one.kind == "guess" and one.path != EFFICIENCY]
    return len(constants) + sum(assumption.kind == "guess" for assumption in assumptions)
