"""Parameters that ZeRO shards where dp does not divide them: how they are laid out, and what fills them up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tpsim.algebra.sharding import line_in
from tpsim.program.frameworks import PRACTICES
from tpsim.program.kinds import counted
from tpsim.program.layout import LINES
from tpsim.program.transformer import end_parameters, layer_parameters
from tpsim.report.answer import Assumption

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpsim.program.model import Model
    from tpsim.question.question import Question
    from tpsim.question.scenario_file import ScenarioFile

LAID: Mapping[str, str] = {
    "flat": "each lies in a line that is filled up to a multiple of that (DeepSpeed's ZeRO-3; Megatron-LM fills up one "
    "line per bucket, to a multiple of lcm(dp, 128), in which parameters begin at multiples of 64)",
    "rows": "its first dim is filled up to a multiple of that, so that the last devices hold less, or nothing but zeros"
    " (PyTorch FSDP2: chunks of the first one's size)",
}
"""How parameters are laid out, and who does so."""


def line_of(file: ScenarioFile, model: Model, shards: int) -> Literal["flat", "rows", "none"]:
    """How parameters are laid out that ZeRO shards: as practice does where so many shards do not divide them."""
    if not model.hidden % shards or model.experts:
        return "none"
    return file.practice.padding or PRACTICES[file.practice.base].padding


def line_notes(question: Question) -> Iterator[Assumption]:
    """How parameters are laid out, and how much fills them up."""
    line = next((dim for row in question.layout.table.values() for dim in row if dim in LINES), None)
    if line:
        shards, more = question.mesh.size(*question.layout.data), _filled(question)
        text = f"hidden {question.model.hidden} is not divisible by dp {shards}, which ZeRO splits parameters over: "
        yield Assumption(f"{text}{LAID[line]}; {100 * more:.2g} % of what a device holds fills them up", "derived")


def _filled(question: Question) -> float:
    """The share of what a device holds of all parameters that only fills lines up."""
    model, axes, padded, own = question.model, question.mesh.axes, 0.0, 0.0
    practice, dims = question.practice.under(question.layout), question.workload.dims(question.model)
    parameters = [(parameter, 1) for parameter in end_parameters(model)]
    for name, many in counted(model.stack).items():
        parameters += [(parameter, many) for parameter in layer_parameters(model, model.kinds[name], practice)]
    for parameter, many in parameters:
        type_ = question.layout.home(parameter.dims, "state", parameter.rows)
        if line := line_in(type_):
            padded += many * type_.local_elements(dims, axes)
            own += many * line.of.local_elements(dims, axes) / question.mesh.size(*line.ways)
    return 1 - own / padded
