"""What a plan takes for granted about its model and its run, and how many guesses it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.program.layout import Dtypes
from tpsim.question.question import Assumption

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpsim.fabric.placement import Placement
    from tpsim.machine.profile import Machine
    from tpsim.program.model_file import ModelRead
    from tpsim.question.scenario_file import ScenarioFile


def model_assumptions(read: ModelRead) -> Iterator[Assumption]:
    """What is assumed of the model: its padding, and what reading its file left aside."""
    model = read.model
    if model.vocab_padded != model.vocab:
        yield Assumption(f"vocabulary {model.vocab} is padded to {model.vocab_padded}", "stated")
    yield from (Assumption(f"{model.name}: {note}", "derived") for note in read.notes)


def run_assumptions(file: ScenarioFile, placement: Placement) -> Iterator[Assumption]:
    """What is assumed of efficiency, overlap, number formats and placement."""
    efficiency = file.assume.matmul_efficiency
    if efficiency is not None:
        kind = "stated" if efficiency.kind == "measured" else efficiency.kind
        yield Assumption(f"matrix products reach {efficiency.value:.4g} of peak", kind)
    elif file.cost_model == "book":
        yield Assumption("matrix products reach their peak, as the cost model book has it", "stated")
    overlap = [f"{axis} behind {what}" for axis, what in file.assume.overlap.items() if what != "none"]
    yield Assumption("overlap: " + (", ".join(overlap) or "none"), "stated")
    if file.workload.dtype is None:
        yield Assumption(f"products and parameters in {Dtypes().activations}: workload.dtype is not stated", "guess")
    if file.workload.grad_dtype is None:
        yield Assumption(f"gradients in {Dtypes().gradients}: workload.grad_dtype is not stated", "guess")
    if placement.rule:
        yield Assumption(f"placement chosen by tpsim: {placement.rule}", "derived")
    yield from (Assumption(text, "derived") for text in placement.idle)


def guesses(assumptions: Sequence[Assumption], file: ScenarioFile, machine: Machine) -> int:
    """Guessed assumptions, and guessed constants of the machine but an efficiency that something replaces."""
    guessed = [one.path for one in machine.constants() if one.kind == "guess"]
    if file.assume.matmul_efficiency is not None or file.cost_model == "book":
        guessed = [path for path in guessed if not path.endswith("matmul_efficiency")]
    return len(guessed) + sum(assumption.kind == "guess" for assumption in assumptions)
