"""Run as a program: asks XLA for the collectives of every question, and prints {question: HLO text} as JSON.

It runs in a process of its own, because the number of devices is fixed when jax is first used.
"""

from __future__ import annotations

import json
import sys
from math import prod
from typing import TYPE_CHECKING

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tests.oracle.layer import gradients
from tests.oracle.questions import EXPRESSIONS, FOUR, LAYERS
from tpsim.algebra.notation import Product, parse_expression

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.oracle.questions import Question
    from tpsim.algebra.notation import NamedArray


def asked(question: Question) -> jax.stages.Lowered:
    """The expression as a program of jax."""
    mesh, read = devices(question.mesh), parse_expression(question.expression, tuple(question.mesh))
    *operands, out = read.arrays
    formula = f"{','.join(''.join(array.type.dims) for array in operands)}->{''.join(out.type.dims)}"
    run = jax.jit(
        (lambda *xs: jax.numpy.einsum(formula, *xs)) if isinstance(read, Product) else lambda x: x,
        in_shardings=tuple(_sharding(mesh, array) for array in operands),
        out_shardings=_sharding(mesh, out),
    )
    shapes = [tuple(question.dims[dim] for dim in array.type.dims) for array in operands]
    return run.lower(*(jax.ShapeDtypeStruct(shape, question.dtype) for shape in shapes))


def devices(mesh: Mapping[str, int]) -> Mesh:
    """The first devices of this machine as a mesh, major axis first."""
    return Mesh(np.array(jax.devices()[: prod(mesh.values())]).reshape(tuple(mesh.values())), tuple(mesh))


def _sharding(mesh: Mesh, array: NamedArray) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec(*(axes or None for axes in array.type.on)))


def main() -> None:
    """Compile every question and print what came of it."""
    lowered = {str(question): asked(question) for question in EXPRESSIONS}
    lowered |= {str(layer): gradients(layer, devices(FOUR)) for layer in LAYERS}
    json.dump({name: one.compile().as_text() for name, one in lowered.items()}, sys.stdout)


if __name__ == "__main__":
    main()
