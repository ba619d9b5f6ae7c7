"""Deliberate faults: memory, FLOPs and seconds, what runs beside compute, stages and schedules."""

from __future__ import annotations

from tests.faults.fault import Fault, Line
from tests.faults.judges import STAGES
from tpsim.algebra import moves
from tpsim.cost import grid, kernels, memory, nodes, piece
from tpsim.machine import cost as ways
from tpsim.program import op, schedules, stages, trace, transpose, update

B, R, U = transpose.Backward, trace.Trace, update.Update
OWES = 'owes |= {(axis, "sum") for dim in contracted for axis in shards[dim]}'

FAULTS: list[Fault | Line] = [
    # Memory, FLOPs, seconds
    Line(
        "all steps wait for one hop",
        ways.Link.seconds,
        "latency = steps * self.hop_s",
        "latency = smallest(steps, 1) * self.hop_s",
        "seconds_are_steps_by_hops_and_bytes_by_bandwidth",
        "1e-06",
    ),
    Line(
        "a link sends both ways as fast as one way",
        ways.Link.bandwidth,
        "return self",
        "return 2 * self",
        "seconds_are_steps_by_hops_and_bytes_by_bandwidth",
        "broken",
    ),
    Line(
        "a group has the devices of one axis",
        moves.Move.ranks,
        "product(axes[axis] for axis in self.axes)",
        "axes[self.axes[0]]",
        "verify gather of two axes",
        "wire planned",
    ),
    Line(
        "a product counts one FLOP per pair",
        op.Einsum.flops,
        "return 2 * split",
        "return split",
        "a_chip_multiplies_what_its_blocks_say",
        "broken",
    ),
    Line(
        "FLOPs are those of all devices",
        op.Einsum.flops,
        ", used, axes)",
        ", (), axes)",
        "a_chip_multiplies_what_its_blocks_say",
        "broken",
    ),
    Line(
        "memory holds one layer",
        memory._held,
        "* program.times(where, sizes.loops)",
        "",
        "a_chip_holds_what_its_blocks_say",
        "broken",
    ),
    Line(
        "optimizer states are held whole",
        memory.local_bytes,
        "sizes.local_elements(type_)",
        "sizes.local_elements(type_.with_axes(type_.dims[0], ()) if type_.dims else type_)",
        "a_chip_holds_what_its_blocks_say",
        "broken",
    ),
    Line(
        "scores are read from memory",
        kernels._Gathering._reads,
        "self.maker.get(x) == number",
        "False",
        "attention_keeps_its_scores_on_the_chip",
        "broken",
    ),
    Line(
        "a grid counts one of equal collectives",
        grid.Traced.priced,
        "map(len, self.groups)",
        "[1] * len(self.groups)",
        "a_grid_prices_a_layout_as_a_plan_does",
        "broken",
    ),
    Line(
        "a grid counts one of equal products",
        grid.Traced._counts,
        "total(runs[kernel.loops] for kernel in group)",
        "runs[group[0].loops]",
        "a_grid_prices_a_layout_as_a_plan_does",
        "broken",
    ),
    # What runs beside compute
    Line(
        "gradients are ready before the products that make them",
        nodes.Builder._moves,
        "self.reads[node] |= reads - {node}",
        "pass",
        "what_is_made_last_waits_for_all_compute",
        "broken",
    ),
    Line(
        "a collective beside compute holds it up",
        piece.Piece.__post_init__,
        "if self.beside",
        "if self.call is None",
        "law: gradients by layer",
        "broken",
    ),
    Line(
        "a collective that is not beside compute lets it go on",
        piece.Piece.__post_init__,
        "if self.beside",
        "if self.call",
        "law: gradients that block",
        "broken",
    ),
    # Stages and schedules
    Line(
        "what comes behind a cut is not sent back",
        B._reshard,
        'self.trace.send(dy, _d(op.output), f"the cotangent of {x.name} is sent back")',
        "dy",
        f"verify {STAGES}",
        "reads d.",
    ),
    Line(
        "the parts of a tied embedding's gradient are not added",
        R.joined,
        "moves=moves",
        "moves=()",
        f"verify {STAGES}",
        "grad.E",
    ),
    Line(
        "a rank counts a layer for each of its chunks",
        stages.Stages.times,
        "return sum(count for kind, count in chunk.stack if kind == where.kind)",
        "return 1",
        "law: stages",
        "broken",
    ),
    Line(
        "the side behind a cut is taken for the one before it",
        stages.Stages.times,
        "(chunk.last, chunk.first)",
        "(chunk.first, chunk.last)",
        "law: stages",
        "broken",
    ),
    Line(
        "messages are counted at the rank that receives them",
        stages.Stages.times,
        'chunk.last if where.act == "F" else chunk.first',
        'chunk.first if where.act == "F" else chunk.last',
        "law: stages",
        "broken",
    ),
    Line(
        "gradients of weights come a microbatch late",
        schedules.zero_bubble_h1,
        "late=i",
        "late=i + 1",
        "law: what is in flight",
        "broken",
    ),
    Line(
        "backwards go through the chunks as forwards do",
        schedules.interleaved,
        "v - 1 - chunk",
        "chunk",
        "law: published bubbles",
        "deadlock",
    ),
    Line(
        "a rank warms up with a forward more than its backward needs",
        schedules.one_forward_one_backward,
        "backwards, p - i - 1",
        "backwards, p - i",
        "law: what is in flight",
        "broken",
    ),
]
