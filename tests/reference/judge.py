"""The first judge: a lowered program run on many devices against the same program lowered without axes."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tpsim.algebra.mesh import Mesh
from tpsim.program.dtypes import Dtypes
from tpsim.program.layout import Layout, layout
from tpsim.program.lower import lower
from tpsim.program.trace import Path, book_path
from tpsim.reference.compare import compared
from tpsim.reference.execute import execute
from tpsim.reference.run import Run, leaves

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpsim.program.model import Model
    from tpsim.program.op import Program
    from tpsim.program.practice import Practice
    from tpsim.reference.blocks import Block

inputs = leaves


def run(
    model: Model,
    where: Layout,
    practice: Practice,
    mesh: Mesh,
    *,
    layers: int = 2,
    microbatches: int = 2,
    path: Path = book_path,
) -> Run:
    """Four sequences of eight tokens per microbatch."""
    program = lower(model, where, practice, Dtypes(), mesh.order, layers=layers, microbatches=microbatches, path=path)
    return executed(program, model, mesh, microbatches)


def executed(program: Program, model: Model, mesh: Mesh, microbatches: int, *replaced: Mapping[str, Block]) -> Run:
    """The program on the devices of a mesh, some of its values replaced."""
    sizes = {**model.dims(sequences=4, seq=8), "m": microbatches}
    return execute(program, mesh, sizes, inputs(sizes, *replaced))


@lru_cache(maxsize=32)
def alone(model: Model, practice: Practice, layers: int = 2, microbatches: int = 2) -> Run:
    """The program on one device, run once for all that are held against it."""
    return run(model, layout(), practice, Mesh({}), layers=layers, microbatches=microbatches)


def unsharded(
    model: Model,
    practice: Practice,
    where: Layout | None = None,
    *,
    replaced: Mapping[str, Block] | None = None,
    **sizes: int,
) -> Run:
    """The same program on one device; its projections are fused as far as `where` lets them be."""
    whole = alone(model, practice.under(where or layout()), **sizes)
    return executed(whole.program, model, Mesh({}), whole.sizes["m"], replaced) if replaced else whole


def difference(sharded: Run, whole: Run) -> float:
    """The largest difference of any array of the program on any device, relative to the array's own size."""
    assert sharded.program.results.keys() == whole.program.results.keys()
    found = list(compared(sharded, whole))
    assert len(found) > len(sharded.program.results)
    return max(one.difference for one in found)
