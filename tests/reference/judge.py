"""The first judge: a lowered program run on many devices against the same program lowered without axes."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from tpsim.algebra.mesh import Mesh
from tpsim.program.layout import Dtypes, Layout, Practice, layout
from tpsim.program.lower import lower
from tpsim.program.trace import Path, book_path
from tpsim.reference.execute import Inputs, Run, execute

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpsim.program.model import Model
    from tpsim.reference.blocks import Block


def inputs(sizes: Mapping[str, int], replaced: Mapping[str, Block] | None = None) -> Inputs:
    """Leaf values that depend on the label only; an optimizer's master copy equals its parameter."""

    def value(label: str, shape: tuple[int, ...]) -> Block:
        name = label.replace("master.", "")
        if replaced and name in replaced:
            return replaced[name]
        rng = np.random.default_rng(crc32(name.encode()))
        if "tokens" in name or "labels" in name:
            return rng.integers(0, sizes["v"], shape).astype(float)
        if "variance" in name:
            return rng.random(shape) + 0.5
        return rng.normal(size=shape) * 0.3 + (1.0 if "gain" in name else 0.0)

    return value


def run(
    model: Model,
    where: Layout,
    practice: Practice,
    mesh: Mesh,
    *,
    microbatches: int = 2,
    replaced: Mapping[str, Block] | None = None,
    path: Path = book_path,
) -> Run:
    """Two layers, four sequences of eight tokens per microbatch."""
    sizes = {**model.dims(sequences=4, seq=8), "m": microbatches}
    program = lower(model, where, practice, Dtypes(), mesh.order, layers=2, microbatches=microbatches, path=path)
    return execute(program, mesh, sizes, inputs(sizes, replaced))


def unsharded(model: Model, practice: Practice, **options: object) -> Run:
    """The same program on one device."""
    return run(model, layout(), practice, Mesh({}), **options)  # type: ignore[arg-type]


def difference(sharded: Run, whole: Run) -> float:
    """The largest difference of any result, relative to the result's own size (1e-3 at least)."""
    worst = 0.0
    assert sharded.program.results.keys() == whole.program.results.keys()
    for name, array in sharded.program.results.items():
        other = whole.program.results[name]
        expected = whole.value(other).transpose([other.dims.index(dim) for dim in array.dims])
        found = sharded.value(array)
        assert found.shape == expected.shape
        worst = max(worst, float(np.max(np.abs(found - expected)) / max(np.max(np.abs(expected)), 1e-3)))
    return worst
