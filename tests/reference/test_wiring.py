"""Programs run over the wires of a machine: the same values, other messages; a wrong block names its device."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models import LLAMA
from tests.reference.judge import difference, run, unsharded
from tests.reference.wires import level
from tpsim.algebra.mesh import Mesh
from tpsim.algebra.moves import wire
from tpsim.fabric.placement import place
from tpsim.program.dtypes import Dtypes
from tpsim.program.layout import layout
from tpsim.program.lower import lower
from tpsim.program.op import Reshard
from tpsim.program.practice import Practice
from tpsim.reference.collectives import Stretch, algorithms
from tpsim.reference.execute import execute
from tpsim.reference.network import Network, Wiring

MESH = Mesh({"D": 2, "X": 4})
LEVELS = {
    "a ring that both axes share": [level("ring", 8)],
    "nodes of two": [level("switch", 2, name="port"), level("switch", name="card")],
    "a torus": [level("torus", 4, 2)],
    "slices of lines": [level("line", 4, name="line"), level("switch", name="out")],
}


def wired(levels):
    """Every move by the first algorithm that its wires have."""
    placement = place(levels, MESH)

    def parts(move, volume, op):
        assert volume > 0
        assert move in op.moves
        return [
            Stretch((one,), _first(move.kind, one, placement.route(move.axes))) for one in placement.route(move.axes)
        ]

    return Wiring(Network.of(placement), parts)


def _first(kind, segment, route):
    inner = kind == "all_reduce" and segment is not route[-1]
    return algorithms("all_gather" if inner else kind, [segment])[0]


def lowered():
    sizes = {**LLAMA.dims(sequences=4, seq=8), "m": 2}
    where = layout(tp=("X",), dp=("D",), zero=3, sequence_parallel=True)
    return lower(LLAMA, where, Practice(), Dtypes(), MESH.order, layers=2, microbatches=2), sizes


@pytest.mark.parametrize("levels", LEVELS.values(), ids=LEVELS)
def test_a_program_gives_the_same_over_any_wires(levels):
    program, sizes = lowered()
    whole = unsharded(LLAMA, Practice())
    sharded = execute(program, MESH, sizes, whole.inputs, wiring=wired(levels))
    assert difference(sharded, whole) < 1e-10


@pytest.mark.parametrize("levels", LEVELS.values(), ids=LEVELS)
def test_every_call_of_a_program_injects_what_its_move_must(levels):
    program, sizes = lowered()
    sharded = execute(program, MESH, sizes, unsharded(LLAMA, Practice()).inputs, wiring=wired(levels))
    moves = [move for op in program.ops if isinstance(op, Reshard) for move in op.moves]
    assert [cause.move for cause in sharded.causes] == moves
    each = {"bf16": 2, "f32": 4}
    for move, cause in zip(moves, sharded.causes, strict=True):
        V = move.logical_elements(sizes, MESH.axes) * each[cause.op.output.dtype]
        assert int(cause.call.injected.sum()) == 8 * wire(move.kind, V, move.ranks(MESH.axes)), str(cause.op.output)


def test_a_device_with_a_wrong_block_is_named():
    sharded = run(LLAMA, layout(tp=("X",), dp=("D",)), Practice(), MESH)
    array = sharded.program.results["grad.0.Wo"]
    assert array.type.sharded_axes == ("X",)
    blocks = dict(sharded.blocks[array])
    sharded.blocks[array] = {**blocks, (1, 2): blocks[1, 2] + 1.0, (0, 0): blocks[0, 0]}
    with pytest.raises(ValueError, match=r"replicas differ by 1\.0: device \([01], 2\) holds a wrong block"):
        sharded.value(array)
    sharded.blocks[array] = {**blocks, (1, 2): blocks[1, 2][:1]}
    with pytest.raises(ValueError, match=r"device \(1, 2\) holds \("):
        sharded.value(array)


def test_of_many_replicas_the_odd_one_is_named():
    sharded = run(LLAMA, layout(tp=("X",)), Practice(), Mesh({"D": 4, "X": 2}))
    array = sharded.program.results["loss"]
    blocks = sharded.blocks[array]
    assert {block.shape for block in blocks.values()} == {()}
    for odd in blocks:
        sharded.blocks[array] = {**blocks, odd: np.asarray(blocks[odd] + 1.0)}
        with pytest.raises(ValueError, match=rf"device \({odd[0]}, {odd[1]}\) holds a wrong block"):
            sharded.value(array)
