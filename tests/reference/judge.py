"""The first judge: a lowered program run on many devices against the same program lowered without axes."""

from __future__ import annotations

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
    replaced: Mapping[str, Block] | None = None,
    path: Path = book_path,
) -> Run:
    """Four sequences of eight tokens per microbatch."""
    sizes = {**model.dims(sequences=4, seq=8), "m": microbatches}
    program = lower(model, where, practice, Dtypes(), mesh.order, layers=layers, microbatches=microbatches, path=path)
    return execute(program, mesh, sizes, inputs(sizes, replaced))


def unsharded(model: Model, practice: Practice, where: Layout | None = None, **options: object) -> Run:
    """The same program on one device; its projections are fused as far as `where` lets them be."""
    return run(model, layout(), practice.under(where or layout()), Mesh({}), **options)  # type: ignore[arg-type]


def difference(sharded: Run, whole: Run) -> float:
    """The largest difference of any array of the program on any device, relative to the array's own size."""
    assert sharded.program.results.keys() == whole.program.results.keys()
    found = list(compared(sharded, whole))
    assert len(found) > len(sharded.program.results)
    return max(one.difference for one in found)
