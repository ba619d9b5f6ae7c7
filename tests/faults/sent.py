"""Deliberate faults: what is sent, what is owed, and to whom it goes."""

from __future__ import annotations

from dataclasses import replace

from tests.faults.fault import Fault, always, given, gives
from tests.faults.judges import KV, LLAMA, SP, TP
from tpsim.algebra import contract, legality
from tpsim.program import practice, saved, text, trace, transpose, update
from tpsim.program.op import Bcast, Einsum, Map, Max

B, R, U = transpose.Backward, trace.Trace, update.Update


def owing(op, owes):
    """The same op, but its output owes this."""
    return replace(op, output=replace(op.output, type=op.output.type.owing(owes)))


def unsummed(op, dims):
    """A sum over dims of what devices have, taken for that of all."""
    apart = {axis for x in op.inputs for dim in dims if dim in x.dims for axis in x.type.axes(dim)}
    return owing(op, {owed for owed in op.output.type.owes if owed[0] not in apart})


def of_a_gain(op):
    """Whether an op sums the cotangent of a gain."""
    return isinstance(op, Einsum) and op.output.name.startswith("d.gain")


def over_another_axis(right):
    """What gains owe over some axis is owed over the first of the mesh."""

    def emit(self, op):
        astray = of_a_gain(op) and not op.output.type.complete
        return right(self, owing(op, {(self.order[0], "sum")}) if astray else op)

    return emit


def in_the_first_microbatch(right):
    """Whatever microbatch asks, it is answered as the first."""

    def use(self, name):
        where = self.trace.where
        first = tuple((loop, 0 if loop == "microbatches" else run) for loop, run in where.loops)
        with self.trace.at(replace(where, loops=first)):
            return right(self, name)

    return use


def settled_at_once(right):
    """What is scattered in a microbatch is summed over the other axes, too."""

    def _taken_up(self, param, bag):
        scattered = right(self, param, bag)
        return bag if scattered is bag else self.trace.settled(scattered, "")

    return _taken_up


def left_as_updated(right):
    """What goes to where weights are stored stays where it is."""

    def reshard(self, x, to, because, *, region=None, **how):
        return x if region == "stored" else right(self, x, to, because, region=region, **how)

    return reshard


def in_one_order(operands):
    """Operands in types in which the first one's order of axes is everyone's."""
    shards = {}
    for name, type_ in operands:
        alike = type_
        for dim, axes in zip(type_.dims, type_.on, strict=True):
            first = shards.setdefault(dim, axes)
            alike = alike.with_axes(dim, first) if sorted(first) == sorted(axes) else alike
        yield name, alike


def on_the_same_axes(ask):
    """A product whose left operand has the axes of the right one wherever it has as many."""
    (_, left), (_, right) = ask.operands
    for dim in ask.shared:
        if len(left.axes(dim)) == len(right.axes(dim)):
            left = left.with_axes(dim, right.axes(dim))
    return ask.between(left, right)


FAULTS: list[Fault] = [
    # What is sent at all
    Fault(
        "the collective after the MLP is dropped",
        trace.book_path,
        lambda right: lambda x, to, order: () if x.name == "mlp.out" else right(x, to, order),
        f"verify {TP}",
        "values: 0.mlp.out",
    ),
    Fault(
        "a reshard loses its last collective",
        trace.book_path,
        gives(lambda moves: moves[:-1]),
        f"verify {LLAMA}",
        "values",
    ),
    Fault(
        "gains on a split sequence forget the sum of their gradients",
        R.emit,
        given(op=lambda op: unsummed(op, op.contracted) if of_a_gain(op) else op),
        f"verify {SP}",
        "grad.gain_attention",
    ),
    Fault(
        "replicated keys and values forget the sum over their replicas",
        R.emit,
        given(op=lambda op: unsummed(op, {"r"}) if isinstance(op, Einsum) and "r" in op.contracted else op),
        f"verify {KV}",
        "gradients",
    ),
    Fault(
        "a gradient is reduced over the wrong axis",
        R.emit,
        over_another_axis,
        f"verify {SP}",
        "gradients",
    ),
    Fault(
        "a sum is settled twice",
        trace.book_path,
        gives(lambda moves: tuple(move for move in moves for _ in range(2 if move.kind == "all_reduce" else 1))),
        f"verify {TP}",
        "values",
    ),
    Fault(
        "a gradient is added twice",
        U._added,
        given(parts=lambda parts: [part for part in parts for _ in range(2)]),
        f"verify {LLAMA}",
        "finite_differences",
    ),
    Fault(
        "only the last microbatch makes a gradient",
        U._added,
        given(parts=lambda parts: {part.type: part for part in parts}.values()),
        f"verify {LLAMA}",
        "finite_differences",
    ),
    Fault(
        "a cotangent is settled at the output of a reshard",
        B._reshard,
        lambda right: lambda self, op, dy: right(self, op, self.trace.settled(dy, "")),
        "a_layer_sends_what_its_paper_says",
        "true",
    ),
    Fault(
        "what was not kept is not gathered again",
        saved.Saved._gathered,
        lambda right: lambda self, op: right(self, op) and op.inputs[0].role == "param",
        "a_layer_sends_what_its_paper_says",
        "megatron",
    ),
    Fault(
        "the second gather of sharded weights is forgotten",
        saved.Saved._gathered,
        lambda right: lambda self, op: right(self, op) and op.inputs[0].role != "param",
        "a_zero_stage_sends_what_its_paper_says",
        "fsdp2",
    ),
    Fault(
        "a weight gathered in the first microbatch serves all",
        text.Text.use,
        in_the_first_microbatch,
        f"verify {LLAMA}",
        "finite_differences",
    ),
    Fault(
        "ZeRO-2 scatters gradients once per step",
        U._taken_up,
        lambda _: lambda _self, _param, bag: bag,
        "a_zero_stage_sends_what_its_paper_says",
        "(2, 'ideal'",
    ),
    Fault(
        "what no dim of a gradient's buffer takes up is summed in every microbatch",
        U._taken_up,
        settled_at_once,
        "law: sums once per step",
        "broken",
    ),
    Fault(
        "queries are fused with keys and values where axes shard them alone",
        practice.Practice.under,
        lambda right: lambda self, layout: replace(right(self, layout), qkv=self.qkv),
        "law: repeated work",
        "broken",
    ),
    Fault(
        "ZeRO-1 completes gradients before it shards them",
        U.owing,
        always(False),
        "a_zero_stage_sends_what_its_paper_says",
        "(1, 'ideal', 'reduce_scatter')",
    ),
    Fault(
        "shards of weights are gathered before they are cast",
        text.Text._cast,
        lambda _: lambda _self, weight: weight,
        "a_zero_stage_sends_what_its_paper_says",
        "(3, 'fsdp2', 'all_gather')",
    ),
    Fault(
        "new weights are not brought home",
        R.reshard,
        left_as_updated,
        f"verify {LLAMA}",
        "blocks: new.",
    ),
    # What is owed, and to whom it goes
    Fault(
        "a maximum is settled as a sum",
        R.emit,
        given(
            op=lambda op: owing(op, {(axis, "sum") for axis in op.output.type.owed_axes}) if isinstance(op, Max) else op
        ),
        f"verify {SP}",
        "logits.max",
    ),
    Fault(
        "every operand's cotangent takes the first one's derivative",
        R.map,
        given(partial=lambda partial: None if partial is None else 0),
        f"verify {TP}",
        "finite_differences",
    ),
    Fault(
        "of cotangents that owe differently one is kept",
        B._one,
        given(bags=lambda bags: bags[:1]),
        "a_layout_without_a_name_equals_one_device",
        "broken",
    ),
    Fault(
        "a weighted sum adds what is owed to what is whole",
        R.settled,
        lambda right: lambda self, x, because: x if "is added to" in because else right(self, x, because),
        "law: sharded chains",
        "broken",
    ),
    Fault(
        "a repeated array forgets what it owes",
        R.emit,
        given(op=lambda op: owing(op, ()) if isinstance(op, Bcast) else op),
        "law: sharded chains",
        "broken",
    ),
    Fault(
        "the scale of a sum is lost on the way back",
        B._scaled,
        given(scale=lambda _: trace.ONE),
        "law: derived gradients",
        "broken",
    ),
    Fault(
        "operands split over the same axes in another order are multiplied",
        legality.split_alike,
        given(operands=in_one_order),
        "operands_split_in_another_order_do_not_meet",
        "different places",
    ),
    Fault(
        "operands split over as many axes, but others, are multiplied",
        contract.local_product,
        given(ask=on_the_same_axes),
        "operands_split_over_different_axes_do_not_meet",
        "different places",
    ),
    Fault(
        "a function forgets on the way back what its cotangent owes",
        R.emit,
        given(op=lambda op: owing(op, ()) if isinstance(op, Map) else op),
        "a_layout_without_a_name_equals_one_device",
        "broken",
    ),
]
