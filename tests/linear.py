"""Programs of one linear layer with its backward, and what the moves of any program inject, in symbols."""

from __future__ import annotations

import numpy as np
import sympy

from tpsim.algebra.mesh import Mesh
from tpsim.algebra.moves import wire
from tpsim.program.layout import Layout
from tpsim.program.op import Program, Reshard, Where
from tpsim.program.practice import Practice
from tpsim.program.trace import Trace
from tpsim.program.transpose import Backward
from tpsim.reference.execute import execute

WHERE = Where("F", "mlp", loops=(("layers", 0), ("microbatches", 0)))
SIZES = {"b": 2, "s": 4, "h": 8, "k": 12, "m": 1}
b, s, h, k, n = sympy.symbols("b s h k n", positive=True)
DIMS = {"b": b, "s": s, "t": s, "h": h, "k": k, "f": 4 * h, "v": sympy.Symbol("v", positive=True)}
SPLITS = {"columns": {"k": ("X",)}, "rows": {"h": ("X",)}, "none": {}}


def linear(split: str) -> Program:
    """y = x . W with W split by columns or rows over X, x and y whole on every device, then the loss and backward."""
    trace = Trace(Layout(table={"block": SPLITS[split], "stored": SPLITS[split]}), ("X",), WHERE, "residual")
    given = trace.leaf("input", ("b", "s", "h"), "residual", "bf16", "param")
    weight = trace.leaf("W", ("h", "k"), "stored", "bf16", "param")
    x = trace.lin("x", trace.reshard(given, given.type, "use"), role="activation")
    with trace.at(WHERE, "block"):
        y = trace.einsum("y", ("b", "s", "k"), trace.pin(x, "block"), trace.reshard(weight, weight.type, "use"))
    y = trace.pin(y, "residual", name="y")
    target = trace.leaf("target", ("b", "s", "k"), "residual", "bf16", "activation")
    loss = trace.einsum("loss", (), trace.map("square", "square", y), target)
    found = Backward(trace, Practice()).run(list(trace.ops), loss)
    settled = {array: trace.settled(parts[0], "the test reads it") for array, parts in found.items()}
    results = {"y": y, "d.x": settled[given], "d.W": settled[weight]}
    return Program(tuple(trace.ops), ("X",), {"layers": 1, "microbatches": 1}, trace.layout.table, results)


def values(program: Program, ranks: int = 4) -> dict[str, np.ndarray]:
    """The global values of the results, from a run on `ranks` devices."""
    mesh = Mesh({"X": ranks}) if program.axes else Mesh({})

    def leaf(label: str, shape: tuple[int, ...]) -> np.ndarray:
        return np.random.default_rng(len(label)).normal(size=shape)

    run = execute(program, mesh, SIZES, leaf)
    return {name: run.value(array).transpose(_sorted(array.dims)) for name, array in program.results.items()}


def _sorted(dims: tuple[str, ...]) -> list[int]:
    return [dims.index(dim) for dim in sorted(dims)]


def moves(program: Program, phase: str, *, names: tuple[str, ...] = (), layer: object = "any") -> list[str]:
    """Every move of a phase as ``kind array``, free slices too; `names` keeps arrays whose name starts so."""
    return [f"{move.kind} {name}" for name, move in _moves(program, phase, names, layer)]


def injected(program: Program, phase: str, *, names: tuple[str, ...] = (), layer: object = "any") -> sympy.Expr:
    """Elements that one device injects in a phase, in symbols; n devices on every axis."""
    axes = dict.fromkeys(program.axes, n)
    parts = [
        wire(move.kind, move.logical_elements(DIMS, axes), move.ranks(axes))
        for _, move in _moves(program, phase, names, layer)
    ]
    return sympy.simplify(sum(parts))


def payload(program: Program, phase: str, *, names: tuple[str, ...] = (), layer: object = "any") -> sympy.Expr:
    """Logical elements of all moves of a phase, in symbols."""
    axes = dict.fromkeys(program.axes, n)
    found = [move for _, move in _moves(program, phase, names, layer) if move.kind != "slice"]
    return sympy.simplify(sum(move.logical_elements(DIMS, axes) for move in found))


def _moves(program, phase, names, layer):
    return [
        (op.output.name, move)
        for op in program.ops
        if isinstance(op, Reshard) and op.where.phase == phase and layer in ("any", op.where.index("layers"))
        for move in op.moves
        if not names or op.output.name.startswith(names)
    ]
