"""Chains: programs of sharded products with nonlinear functions between them, with the derived backward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
from hypothesis import strategies as st

from tests.generators.layouts import practices
from tests.generators.meshes import meshes
from tests.generators.writer import DIMS, TWINS, Writer
from tpsim.algebra.mesh import Mesh
from tpsim.algebra.moves import wire
from tpsim.algebra.reshard import Routes
from tpsim.program.op import Program
from tpsim.program.trace import book_path
from tpsim.program.transpose import Backward

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hypothesis.vendor.pretty import RepresentationPrinter
    from numpy.typing import NDArray

    from tpsim.algebra.moves import Move
    from tpsim.program.op import Array, Op
    from tpsim.program.practice import Practice
    from tpsim.program.trace import Path


@dataclass(frozen=True, slots=True, repr=False)
class Chain:
    """A program with what its run needs.

    program    forward and derived backward; its results are ``loss`` and ``grad.<parameter>`` for every parameter
    forward    the same without backward; its one result is ``loss``
    mesh       of the program
    sizes      elements per dim, and ``m``
    practice   under which backward was derived
    seed       of the values of its leaves
    """

    program: Program
    forward: Program
    mesh: Mesh
    sizes: Mapping[str, int]
    practice: Practice
    seed: int

    @property
    def alone(self) -> Mesh:
        """The mesh with one device on every axis: the same program, nothing sharded and every sum of one part."""
        return Mesh(dict.fromkeys(self.mesh.order, 1))

    @property
    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Every parameter with its shape."""
        grads = {name.removeprefix("grad."): x for name, x in self.program.results.items() if name != "loss"}
        return {name: tuple(self.sizes[dim] for dim in x.dims) for name, x in grads.items()}

    def value(self, leaf: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """The global value of a leaf: standard normal numbers that depend on its name and the seed."""
        return np.random.default_rng([self.seed, crc32(leaf.encode())]).normal(size=shape)

    def __repr__(self) -> str:
        """The ops, one a line: what a failing law prints."""
        head = f"chain on {dict(self.mesh.axes)}, {self.practice}, sizes {dict(self.sizes)}, seed {self.seed}"
        return "\n".join([head, *map(_line, self.program.ops)])

    def _repr_pretty_(self, printer: RepresentationPrinter, cycle: bool) -> None:  # noqa: ARG002  # one of a pair
        """Print as `repr` does where hypothesis prints the arguments of a failing law."""
        printer.text(repr(self))


def _line(op: Op) -> str:
    return f"{op.where.phase:8} {type(op).__name__:8} {op.output} <- {', '.join(map(str, op.inputs))}"


@st.composite
def chains(
    draw: st.DrawFn,
    mesh: st.SearchStrategy[Mesh] | None = None,
    practice: st.SearchStrategy[Practice] | None = None,
    *,
    steps: int = 5,
) -> Chain:
    """Parameters and data through up to `steps` of: product, pointwise function, sum, softmax, norm, reshard, repeat.

    Every array lies in any way that the next op allows; where an op needs an operand settled or aligned, a reshard
    stands before it. The loss sums the squares of all that is left.
    mesh, practice  what to draw them from: all meshes of up to eight devices, all switches

    >>> from hypothesis import given, settings
    >>> from tpsim.reference.execute import execute
    >>> @settings(max_examples=5)
    ... @given(chains())
    ... def law(chain):
    ...     run = execute(chain.program, chain.mesh, chain.sizes, chain.value)
    ...     assert run.value(chain.program.results["loss"]) >= 0
    >>> law()
    """
    grid = draw(meshes(devices=8) if mesh is None else mesh)
    switches = draw(practices() if practice is None else practice)
    sizes = {dim: grid.devices * draw(st.integers(1, 2)) for dim in DIMS}
    sizes |= {twin: sizes[dim] for dim, twin in TWINS.items()} | {"m": 1}
    writer = Writer.begin(draw, grid, draw(st.sampled_from([book_path, _cheapest(grid, sizes)])))
    for _ in range(draw(st.integers(0, steps))):
        writer.step()
    loss = writer.loss()
    trace, forward = writer.trace, tuple(writer.trace.ops)
    uses = Backward(trace, switches).run(list(forward), loss)
    results = {f"grad.{leaf.name}": _gradient(writer, leaf, parts) for leaf, parts in uses.items()}
    return Chain(
        _program(tuple(trace.ops), grid, {"loss": loss, **results}),
        _program(forward, grid, {"loss": loss}),
        grid,
        sizes,
        switches,
        draw(st.integers(0, 99)),
    )


def _cheapest(mesh: Mesh, sizes: Mapping[str, int]) -> Path:
    """The moves that inject the fewest elements."""

    def elements(move: Move) -> int:
        return int(wire(move.kind, move.logical_elements(sizes, mesh.axes), move.ranks(mesh.axes)))

    routes = Routes(mesh.order, elements)
    return lambda x, to, _: routes.path(x.type, to)


def _gradient(writer: Writer, leaf: Array, parts: list[Array]) -> Array:
    """The cotangents of all uses of a parameter, brought to its own type and added."""
    there = [writer.trace.reshard(part, leaf.type, "the gradient is kept as the parameter") for part in parts]
    return writer.trace.lin(f"grad.{leaf.name}", *there, role="gradient")


def _program(ops: tuple[Op, ...], mesh: Mesh, results: dict[str, Array]) -> Program:
    return Program(ops, mesh.order, {}, {}, results)
