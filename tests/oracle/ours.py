"""What tpsim answers to the same questions: the book's plan, and the cheapest that works no more than XLA's."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

from tests.models import blocks
from tests.oracle.calls import Run, called
from tests.oracle.questions import AXIS, FOUR, MODEL, WORK
from tpsim.algebra.contract import Contraction
from tpsim.algebra.mesh import Mesh
from tpsim.algebra.notation import Conversion as Change
from tpsim.algebra.notation import parse_expression
from tpsim.algebra.planner import Prices, product_ways, reshard_ways
from tpsim.answers.shard_way import Pricing
from tpsim.program.dtypes import Dtypes
from tpsim.program.frameworks import PRACTICES
from tpsim.program.layout import layout
from tpsim.program.lower import lower
from tpsim.program.op import Reshard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.oracle.questions import Layer, Question
    from tpsim.algebra.planner import Plan


def book(question: Question) -> Run:
    """The book's plan."""
    return _run(question, next(plan for plan in _plans(question, inf) if plan.planner == "book"))


def cheapest(question: Question, most: int) -> Run:
    """The plan that moves least among those of at most so many FLOPs per device; axes that idle may be put to work."""
    return _run(question, _plans(question, most)[0])


def _plans(question: Question, most: float) -> Sequence[Plan]:
    mesh, read = Mesh(question.mesh), parse_expression(question.expression, tuple(question.mesh))
    prices = _prices(Pricing(mesh, question.dims, "int8"), most)
    if isinstance(read, Change):
        return reshard_ways(read.before.name, read.before.type, read.after.type, mesh.order, prices).plans
    (left, right, out) = ((array.name, array.type) for array in read.arrays)
    return product_ways(Contraction(left, right, out[0], out[1].dims, out[1]), mesh.order, prices).plans


def _prices(pricing: Pricing, most: float) -> Prices:
    """Elements on the wire; FLOPs break ties, and more than `most` are out of the question."""

    def product(work: Any) -> float:
        return 0 if work <= most else inf

    return replace(pricing.prices(), product=product)


def _run(question: Question, plan: Plan) -> Run:
    return Run(called(plan.moves, question.dims, question.mesh), int(plan.flops))


def layer(asked: Layer, practice: str) -> Run:
    """The collectives of one layer and of its gradients, under a named bundle of switches; FLOPs are not compared."""
    where = layout(tp=(AXIS,), sequence_parallel=asked.sequence)
    program = lower(blocks(MODEL, ffn={"kind": asked.ffn}), where, PRACTICES[practice], Dtypes(), (AXIS,))
    ops = [op for op in program.ops if isinstance(op, Reshard) and op.where.index("layers") == 0]
    moves = [move for op in ops for move in op.moves]
    sizes = {**WORK, "h": MODEL.hidden, "f": MODEL.ffn_hidden, "g": MODEL.kv_heads, "d": MODEL.head_dim}
    return Run(called(moves, {**sizes, "r": MODEL.heads // MODEL.kv_heads}, FOUR), 0)
