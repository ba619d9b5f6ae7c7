"""Laws of the typed ops and of derived backward, held against one device and against finite differences."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.generators import chains, meshes, shardings
from tests.generators.shardings import OWED
from tpsim.algebra.mesh import Mesh
from tpsim.algebra.sharding import Sharding, ShardingError
from tpsim.program.layout import Layout
from tpsim.program.op import Program, Scale, Where
from tpsim.program.trace import Trace
from tpsim.reference.execute import execute

SMALL = meshes(devices=8)

OPS = {
    "product": lambda trace, x, y: trace.einsum("z", x.dims[:1], x, y),
    "sum": lambda trace, x, _: trace.einsum("z", x.dims[:1], x),
    "function": lambda trace, x, _: trace.map("z", "gelu", x),
    "function of two": lambda trace, x, y: trace.map("z", "mul", x, y),
    "scaled": lambda trace, x, _: trace.lin("z", x, scales=(Scale(-2.0),)),
    "weighted sum": lambda trace, x, y: trace.lin("z", x, y, scales=(Scale(-2.0), Scale(3.0))),
    "maximum": lambda trace, x, _: trace.max("z", x, x.dims[-1]),
    "rename": lambda trace, x, _: trace.rename("z", x, x.dims[0], "r"),
    "repeated": lambda trace, x, _: trace.bcast("z", x, Sharding((*x.dims, "r"), (*x.type.on, ()))),
}


@st.composite
def pairs(draw, mesh):
    """Types of two operands: any, the same twice, alike on the dims that both have, or with axes in another order."""
    first = draw(shardings(mesh, draw(st.sampled_from(["i", "ij", "ji"])), owes=draw(st.sampled_from([(), OWED]))))
    dims = draw(st.sampled_from(["i", "ij", "jk"]))
    follows = Sharding(tuple(dims), tuple(first.axes(dim) if dim in first.dims else () for dim in dims))
    backwards = replace(first, on=tuple(axes[::-1] for axes in first.on))
    return first, draw(st.one_of(st.just(first), st.just(follows), st.just(backwards), shardings(mesh, dims)))


def attempted(op, mesh, types):
    """The program that applies an op to operands of these types, or why the op is refused."""
    trace = Trace(Layout(table={}), mesh.order, Where("F", "mlp"))
    x, y = (lay(trace, name, type_) for name, type_ in zip("xy", types, strict=True))
    try:
        made = OPS[op](trace, x, y)
    except ShardingError as refusal:
        return str(refusal)
    return Program(tuple(trace.ops), mesh.order, {}, {}, {"z": made})


@given(data=st.data(), mesh=SMALL)
def test_any_op_on_any_types_is_right_or_refused_with_a_reason(data, mesh):
    types = data.draw(pairs(mesh))
    sizes = dict.fromkeys(["i", "j", "k", "r", "x.parts", "y.parts"], mesh.devices)
    for op in OPS:
        found = attempted(op, mesh, types)
        if isinstance(found, str):
            assert any(remedy in found for remedy in ("first", "needs a pin", "is used twice")), op
            continue
        many, one = (execute(found, each, sizes, normal).value(found.results["z"]) for each in (mesh, alone(mesh)))
        assert np.allclose(many, one, rtol=1e-10, atol=1e-12), op


def test_every_op_runs_on_most_types_and_refusals_are_not_the_majority():
    ran, refused = Counter(), Counter()

    @given(data=st.data(), mesh=SMALL)
    def attempt(data, mesh):
        types = data.draw(pairs(mesh))
        for op in OPS:
            (refused if isinstance(attempted(op, mesh, types), str) else ran)[op] += 1

    attempt()
    assert ran.total() > refused.total()
    assert ran.keys() == OPS.keys()


def lay(trace, name, type_):
    """An array of any type, owing or not: the sum or the maximum of parts over a dim that is split so."""
    owed, parts = tuple(sorted(type_.owed_axes)), f"{name}.parts"
    trace.layout = Layout(table={name: dict(zip((parts, *type_.dims), (owed, *type_.on), strict=True))})
    whole = trace.leaf(f"{name}0", (parts, *type_.dims), name, "f32", "activation")
    if "max" in dict(type_.owes).values():
        return trace.max(name, whole, parts)
    return trace.einsum(name, type_.dims, whole)


def alone(mesh):
    """The mesh with one device on every axis."""
    return Mesh(dict.fromkeys(mesh.order, 1))


def normal(label, shape):
    return np.random.default_rng(len(label) + len(shape)).normal(size=shape)


@given(chain=chains())
def test_a_sharded_chain_and_its_gradients_equal_those_of_one_device(chain):
    many, one = (execute(chain.program, mesh, chain.sizes, chain.value) for mesh in (chain.mesh, chain.alone))
    for name, array in chain.program.results.items():
        found, expected = many.value(array), one.value(array)
        assert np.max(np.abs(found - expected)) <= 1e-10 * max(np.max(np.abs(expected)), 1e-3), name


@given(chain=chains())
def test_derived_gradients_equal_central_differences(chain):
    run = execute(chain.program, chain.alone, chain.sizes, chain.value)
    for leaf, shape in chain.parameters.items():
        direction = np.random.default_rng(0).normal(size=shape)
        slope = float(np.sum(run.value(chain.program.results[f"grad.{leaf}"]) * direction))
        assert difference(chain, leaf, direction) == pytest.approx(slope, rel=1e-5, abs=1e-6), leaf


def difference(chain, leaf, direction, step=1e-5):
    """How the loss changes when one parameter moves both ways."""

    def loss(steps):
        def moved(label, shape):
            return chain.value(label, shape) + (steps * step * direction if label == leaf else 0.0)

        return float(execute(chain.forward, chain.alone, chain.sizes, moved).value(chain.forward.results["loss"]))

    near, far = ((loss(n) - loss(-n)) / (2 * n * step) for n in (1, 2))
    return (4 * near - far) / 3  # of fourth order: a norm of small values is too curved for the second
