"""A plan as pictures: what a layer runs, what the ranks run, and what their chips hold, each over time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tpsim.answers import course
from tpsim.cost.segments import joined
from tpsim.cost.timeline import COMPUTE
from tpsim.report.picture import Curve, Curves, Measure, Span, Spans

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpsim.answers.plan import PlanResult
    from tpsim.cost.nodes import Piece
    from tpsim.cost.pipeline import Pipelined, Work
    from tpsim.cost.segments import Segment
    from tpsim.program.stages import Chunk
    from tpsim.report.picture import Picture


def pictures(plan: PlanResult) -> Iterator[Picture]:
    """All pictures of a plan, in the order in which they are read."""
    step = course.step_of(plan)
    yield layer(course.work(plan), step)
    yield ranks(plan, step)
    yield memory(plan, step)


# A layer --------------------------------------------------------------------------------------------------------------

LANES = {COMPUTE: "compute", "tensor": "activations", "gradients": "gradients", "weights": "weights"}
"""What runs on each lane; all but the first are of collectives."""

PHASES = {"F": "forward", "B": "backward", "W": "gradients of weights", "BW": "backward"}

PRODUCT, KERNEL, AGAIN, CALL = "matrix products", "other kernels", "computed again", "collectives"
SORTS = (PRODUCT, KERNEL, CALL, AGAIN)
"""The sorts of what a layer runs."""


def layer(work: Work, step: Pipelined) -> Spans:
    """One layer and one microbatch of the rank that sets the pace, forward and then backward."""
    chunk = work.stages.of(step.pacing.rank)[0]
    lanes: dict[str, list[Span]] = {name: [] for name in LANES.values()}
    marks, before = [], 0.0
    for acts in dict.fromkeys(course.acts(action) for action in work.schedule.kinds.examples):
        if acts in PHASES:
            marks.append((PHASES[acts], before))
            before = _period(work, chunk, acts, lanes, before)
    about = (
        "A layer in the middle of the stack, in one microbatch, kernel by kernel; below compute the collectives of "
        "activations, gradients and weights. What runs beside compute is hidden; where compute has a gap, it waits."
    )
    return Spans("One layer", about, {name: lane for name, lane in lanes.items() if lane}, SORTS, marks)


REPEATS = 3
"""Runs of a repeated part that are looked at: the middle one has neighbours like itself."""


def _period(work: Work, chunk: Chunk, acts: str, lanes: dict[str, list[Span]], before: float) -> float:
    """Puts what an action does in one layer on the lanes, from `before` on; when it ends.

    A layer lasts from where compute begins it until where it begins the next one.
    """
    runs = work.actions.action(chunk, acts).runs
    steps = joined(segment for segment, often in runs for _ in range(min(often, REPEATS)))
    ran = work.clock.ran(steps)
    first, last = _ends(steps)
    start = ran.starts[first] if first else 0.0
    end = max(ran.ends) if last == len(steps) else ran.starts[last]
    for one, begun, ended in zip(steps, ran.starts, ran.ends, strict=True):
        low, high = max(float(begun), float(start)), min(float(ended), float(end))
        piece = one.pieces[0]
        if high > low:
            lanes[LANES[piece.lane]].append(
                Span(before + low - start, before + high - start, _sort(piece), _name(piece))
            )
    return before + float(end - start)


def _ends(steps: Segment) -> tuple[int, int]:
    """The place where a layer in the middle begins, and that where it ends: what is met most often begins one."""
    met = Counter(id(step.pieces[0]) for step in steps)
    most = max(met.values(), default=1)
    marked = [
        place for place, step in enumerate(steps) if met[id(step.pieces[0])] == most and step.pieces[0].call is None
    ]
    first = marked[0] if marked and most > 1 else None
    places = [place for place in marked if first is not None and steps[place].pieces[0] is steps[first].pieces[0]]
    middle = (len(places) - 1) // 2
    return (places[middle], places[middle + 1]) if len(places) > 1 else (0, len(steps))


def _sort(piece: Piece) -> str:
    if piece.call:
        return CALL
    if any(op.where.again for op in piece.ops):
        return AGAIN
    return PRODUCT if piece.is_product else KERNEL


def _name(piece: Piece) -> str:
    """The collective and its array, the kernel, or the array that a product makes."""
    if piece.call:
        return f"{piece.call.kind} {piece.call.array}"
    first = piece.ops[0] if piece.ops else None
    return (first.where.kernel or first.output.name) if first else ""


# All ranks ------------------------------------------------------------------------------------------------------------

ACTS = {**PHASES, "B": "backward of activations", "W": "backward of weights"}
SEVERAL, UPDATE = "forward and backward together", "update"


def ranks(plan: PlanResult, step: Pipelined) -> Spans:
    """What every rank runs in a step."""
    split = any("B" in acts and "W" not in acts for acts in map(course.acts, step.ran.schedule.kinds.examples))
    words = ACTS if split else PHASES
    lanes = {}
    for stage in step.stages:
        name = f"stage {stage.rank}" if plan.pipeline else "chip"
        lanes[name] = [
            Span(float(one.start), float(one.end), _what(one, words), one.name)
            for one in (*course.actions(step, stage.rank), *course.updates(step, stage))
        ]
    gaps = " Gaps are waiting: for other stages and for messages between them." if plan.pipeline else ""
    about = f"Every microbatch of a step, and the update behind the last one; F 3 is forward of microbatch 3.{gaps}"
    return Spans(
        "The pipeline" if plan.pipeline else "The step",
        about,
        lanes,
        list(dict.fromkeys([*words.values(), UPDATE, SEVERAL])),
    )


def _what(one: course.Lasting, words: dict[str, str]) -> str:
    if one.action is None:
        return UPDATE
    return words.get(course.acts(one.action), SEVERAL)


# Memory ---------------------------------------------------------------------------------------------------------------

MOST_CURVES = 8
"""Ranks whose memory is drawn: of more the fullest, the first, the last, and some between."""


def memory(plan: PlanResult, step: Pipelined) -> Curves:
    """What a chip of each rank holds over a step, beside what it has."""
    shown = _shown(len(step.stages), plan.memory.peak_rank)
    curves = [
        Curve(
            f"stage {rank}" if plan.pipeline else "chip",
            _highest([(float(at), float(size)) for at, size, _ in course.memory(step, rank, plan.each[rank])], step),
            "steps",
        )
        for rank in shown
    ]
    some = (
        f" {len(shown)} of {len(step.stages)} stages are drawn, the fullest among them."
        if len(shown) < len(step.stages)
        else ""
    )
    capacity = float(plan.memory.capacity_bytes)
    about = f"What a chip holds: states all the time, and what microbatches keep between forward and backward.{some}"
    limits = [("capacity", capacity)]
    return Curves("Memory over time", about, Measure("time", "seconds"), Measure("held", "bytes"), curves, limits)


def _shown(count: int, fullest: int) -> list[int]:
    """The ranks that are drawn."""
    if count <= MOST_CURVES:
        return list(range(count))
    spread = {round(at * (count - 1) / (MOST_CURVES - 2)) for at in range(MOST_CURVES - 1)}
    return sorted({*spread, fullest})


POINTS = 400
"""Points of a curve above which those of each cell in time are its least and its most."""


def _highest(points: Sequence[tuple[float, float]], step: Pipelined) -> list[tuple[float, float]]:
    """A curve that holds until the step's end; of many points in a cell the first, the least, the most and the last."""
    end = float(step.time_s)
    cells: dict[int, list[tuple[float, float]]] = {}
    for one in points:
        cells.setdefault(int(one[0] / end * POINTS), []).append(one)
    thin = (
        point
        for cell in cells.values()
        for point in sorted({cell[0], min(cell, key=_size), max(cell, key=_size), cell[-1]})
    )
    return [*(thin if len(points) > POINTS else points), (end, points[-1][1])]


def _size(point: tuple[float, float]) -> float:
    return point[1]
