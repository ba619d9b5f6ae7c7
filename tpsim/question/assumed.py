"""What a plan takes for granted about its model and its run, and how many guesses it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tpsim.program.layout import STORED_AS, Dtypes
from tpsim.quantity.units import show
from tpsim.question.question import Assumption

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpsim.fabric.placement import Placement
    from tpsim.machine.profile import Constant, Machine
    from tpsim.program.model_file import ModelRead
    from tpsim.question.question import Workload
    from tpsim.question.scenario_file import ScenarioFile


def model_assumptions(read: ModelRead) -> Iterator[Assumption]:
    """What is assumed of the model: its padding, and what reading its file left aside."""
    model = read.model
    if model.vocab_padded != model.vocab:
        yield Assumption(f"vocabulary {model.vocab} is padded to {model.vocab_padded}", "stated")
    yield from (Assumption(f"{model.name}: {note}", "derived") for note in read.notes)


def run_assumptions(file: ScenarioFile, workload: Workload, placement: Placement) -> Iterator[Assumption]:
    """What is assumed of batch, efficiency, overlap, number formats and placement."""
    if file.workload.global_batch is None:
        text = f"global batch {workload.global_batch}: one sequence per microbatch and data shard"
        yield Assumption(text, "guess")
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
    elif file.workload.dtype in STORED_AS:
        arrays = STORED_AS[file.workload.dtype]
        yield Assumption(f"products in {file.workload.dtype}, on arrays that are held and sent in {arrays}", "stated")
    if file.workload.grad_dtype is None:
        yield Assumption(f"gradients in {Dtypes().gradients}: workload.grad_dtype is not stated", "guess")
    if placement.rule:
        yield Assumption(f"placement chosen by tpsim: {placement.rule}", "derived")
    yield from (Assumption(text, "derived") for text in placement.idle)


def changes_of(file: ScenarioFile) -> dict[str, Any]:
    """What a scenario changes of its machine, as it states it."""
    stated = {} if isinstance(file.hardware, str) else file.hardware
    return {key: value for key, value in stated.items() if key != "extends"}


def machine_assumptions(file: ScenarioFile, base: Machine, machine: Machine) -> Iterator[Assumption]:
    """What is assumed of the machine: what the scenario changes, what its profile leaves out, what is hard to believe.

    base  the machine before the scenario changed it
    """
    yield from (Assumption(text, "stated") for text in _changed(file, base))
    for one in _left_out(file, machine):
        yield Assumption(f"{one.path} is {_shown(one)}: {machine.name} does not state it ({one.note})", "guess")
    yield from (Assumption(f"{one.message}: {one.remedy}", "stated") for one in machine.doubts)


def remarks(file: ScenarioFile, base: Machine, machine: Machine) -> Iterator[str]:
    """The same in few lines, for whoever reads no assumptions."""
    yield from _changed(file, base)
    if left_out := [f"{one.path} {_shown(one)}" for one in _left_out(file, machine)]:
        yield f"{machine.name} leaves out what is guessed here: {', '.join(left_out)}"
    yield from (f"{one.message}: {one.remedy}" for one in machine.doubts)


def _changed(file: ScenarioFile, base: Machine) -> Iterator[str]:
    """Each field of the machine that the scenario changes, with what it was."""
    before = {one.path: _shown(one) for one in base.constants()}
    for path, value in _leaves(changes_of(file)):
        yield f"{path} is {value} here" + (f"; {base.name} states {before[path]}" if path in before else "")


def _leaves(changes: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Every field that is changed, by its path; a figure with source and kind is one."""
    for key, value in changes.items():
        if isinstance(value, Mapping) and "value" not in value:
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value["value"] if isinstance(value, Mapping) else value


def _left_out(file: ScenarioFile, machine: Machine) -> list[Constant]:
    """The figures that tpsim guesses because the profile leaves them out, and that something rests on."""
    return [one for one in machine.constants() if not one.stated and _counts(one, file)]


def _counts(constant: Constant, file: ScenarioFile) -> bool:
    """False for an efficiency that something replaces."""
    replaced = file.assume.matmul_efficiency is not None or file.cost_model == "book"
    return not (replaced and constant.path.endswith("matmul_efficiency"))


def _shown(constant: Constant) -> str:
    return show(constant.value, constant.dimension)


def guesses(assumptions: Sequence[Assumption], file: ScenarioFile, machine: Machine) -> int:
    """Guessed assumptions, and the guesses that the machine's profile states."""
    guessed = [one for one in machine.constants() if one.kind == "guess" and one.stated and _counts(one, file)]
    return len(guessed) + sum(assumption.kind == "guess" for assumption in assumptions)
