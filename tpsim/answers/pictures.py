"""Answers as pictures: a plan over time, layouts by speed and memory, a collective over sizes."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING

from tpsim.algebra.moves import wire
from tpsim.answers import course
from tpsim.cost.collectives import SORT_OF, TENSOR
from tpsim.cost.segments import Segment, joined
from tpsim.cost.timeline import COMPUTE, Timeline
from tpsim.program.kinds import ALIKE
from tpsim.program.schedules import acts_of
from tpsim.report.picture import Curve, Curves, Measure, Picture, Span, Spans

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpsim.answers.collective import CollectiveResult, CollectiveRow
    from tpsim.answers.layout_row import Row
    from tpsim.answers.plan import PlanResult
    from tpsim.answers.search import SearchResult
    from tpsim.cost.piece import Piece
    from tpsim.cost.pipeline import Pipelined, Work


def of_plan(plan: PlanResult) -> Iterator[Picture]:
    """All pictures of a plan, in the order in which they are read."""
    step = course.step_of(plan)
    yield layer(course.work(plan), step)
    yield ranks(plan, step)
    yield memory(plan, step)


# A layer --------------------------------------------------------------------------------------------------------------

LANES = {COMPUTE: COMPUTE, TENSOR: "activations"}
"""Lanes that are called otherwise than what they carry; all but the first are of collectives."""

ACTS = {"F": "forward", "BW": "backward", "B": "backward of activations", "W": "backward of weights"}
"""What passes of one microbatch do."""

PRODUCT, KERNEL, AGAIN, CALL = "matrix products", "other kernels", "computed again", "collectives"
SORTS = (PRODUCT, KERNEL, CALL, AGAIN)
"""The sorts of what a layer runs."""


def layer(work: Work, step: Pipelined) -> Spans:
    """One layer and one microbatch of the rank that sets the pace, forward and then backward."""
    chunk = work.stages.of(step.pacing.rank)[0]
    lanes: dict[str, list[Span]] = {LANES.get(lane, lane): [] for lane in (COMPUTE, *SORT_OF.values())}
    marks, before = [], 0.0
    for acts in dict.fromkeys(map(acts_of, work.schedule.kinds.examples)):
        runs = work.actions.action(chunk, acts).runs if acts in ACTS else ()
        steps = joined(segment for segment, often in runs for _ in range(often))
        ran, seen = work.clock.ran(steps), set[str]()
        for first, last in _periods(steps):
            kind = _kind(steps[first].pieces[0])
            marks.append((f"{ACTS[acts]}{kind}{LATER if kind in seen else ''}", before))
            before = _put(steps, ran, (first, last), lanes, before)
            seen.add(kind)
    stack = f"stage {step.pacing.rank}" if work.stages.ranks > 1 else "the stack"
    about = (
        f"A layer in the middle of {stack}, in one microbatch, kernel by kernel; below compute the collectives, by "
        "what they carry. What runs beside compute is hidden; where compute has a gap, it waits."
    )
    return Spans("One layer", about, {name: lane for name, lane in lanes.items() if lane}, SORTS, marks)


LATER = ", behind all layers"
"""What is said of the part of a layer that is run when all layers have run the rest."""


def _kind(piece: Piece) -> str:
    """The kind of layer that a piece stands in, where there are several."""
    kind = piece.ops[0].where.kind if piece.ops else ALIKE
    return "" if kind == ALIKE else f" ({kind})"


FEW = 2
"""Layers that have no one in the middle: all that they run is shown."""


def _periods(steps: Segment) -> Iterator[tuple[int, int]]:
    """Stretches of tasks in which a layer in the middle runs: from where each begins to where the next layer's does.

    What is met again and again begins one, unless it stands in one already.
    """
    met = Counter(id(step.pieces[0]) for step in steps if step.pieces[0].call is None)
    if max(met.values(), default=0) <= FEW:
        yield from [(0, len(steps))] * bool(steps)
        return
    covered = set[int]()
    for step in steps:
        piece = id(step.pieces[0])
        if met[piece] > FEW and piece not in covered:
            places = [place for place, task in enumerate(steps) if id(task.pieces[0]) == piece]
            first, last = places[(len(places) - 1) // 2 :][:2]
            covered |= {id(task.pieces[0]) for task in steps[first:last]}
            yield first, last


def _put(steps: Segment, ran: Timeline, period: tuple[int, int], lanes: dict[str, list[Span]], before: float) -> float:
    """Puts what runs in a stretch on the lanes, from `before` on; when it ends."""
    first, last = period
    start, end = ran.starts[first], ran.starts[last] if last < len(steps) else max(ran.ends)
    for task, begun, ended in zip(steps, ran.starts, ran.ends, strict=True):
        low, high, piece = max(begun, start), min(ended, end), task.pieces[0]
        if high > low:
            span = Span(before + float(low - start), before + float(high - start), _sort(piece), _name(piece))
            lanes[LANES.get(piece.lane, piece.lane)].append(span)
    return before + float(end - start)


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


# Ranks ----------------------------------------------------------------------------------------------------------------

SEVERAL, UPDATE = "forward and backward together", "update"

MOST_LANES, MOST_CURVES = 32, 8
"""Ranks that are drawn of a pipeline's: of more the fullest, the first, the last, and some between."""


def _shown(plan: PlanResult, most: int) -> tuple[dict[int, str], str]:
    """The ranks that are drawn, with their names, and what is said of the others."""
    count = len(plan.each)
    spread = {round(at * (count - 1) / max(1, most - 2)) for at in range(most - 1)}
    ranks = sorted({*spread, plan.memory.peak_rank}) if count > most else list(range(count))
    left = f" {len(ranks)} of {count} stages are drawn, the fullest among them." if len(ranks) < count else ""
    return {rank: f"stage {rank}" if plan.pipeline else "chip" for rank in ranks}, left


def ranks(plan: PlanResult, step: Pipelined) -> Spans:
    """What every rank runs in a step."""
    shown, left = _shown(plan, MOST_LANES)
    lanes = {
        name: [
            Span(
                float(lasting.start),
                float(lasting.end),
                ACTS.get(lasting.acts, SEVERAL) if lasting.acts else UPDATE,
                lasting.name,
            )
            for lasting in (*course.actions(step, rank), *course.updates(step, step.told.stages[rank]))
        ]
        for rank, name in shown.items()
    }
    update = ", and the update behind the last one" if any(lane[-1].sort == UPDATE for lane in lanes.values()) else ""
    gaps = " Gaps are waiting: for other stages and for messages between them." if plan.pipeline else ""
    last = plan.question.workload.microbatches - 1
    about = f"Every microbatch of a step{update}; F {last} is forward of microbatch {last}.{gaps}{left}"
    return Spans("The pipeline" if plan.pipeline else "The step", about, lanes, (*ACTS.values(), SEVERAL, UPDATE))


def memory(plan: PlanResult, step: Pipelined) -> Curves:
    """What a chip of each rank holds over a step, beside what it has."""
    (shown, left), each = _shown(plan, MOST_CURVES), plan.each_in_step
    curves = [
        Curve(
            name,
            _highest([(float(at), float(size)) for at, size, _ in course.memory(step, rank, each[rank])], step),
            "steps",
        )
        for rank, name in shown.items()
    ]
    about = (
        "What a chip holds over a step: states all the time, and what microbatches keep and work on; of each action "
        f"the most that it comes to.{left}"
    )
    limits = [("capacity", float(plan.memory.capacity_bytes))]
    return Curves("Memory over time", about, Measure("time", "seconds"), Measure("held", "bytes"), curves, limits)


POINTS = 200
"""Points of a curve above which those of each cell in time are its least, its most and its last, which holds on."""


def _highest(points: Sequence[tuple[float, float]], step: Pipelined) -> list[tuple[float, float]]:
    """A curve that holds until the step's end; of many points in a cell the least, the most and the last."""
    end = float(step.ended_s)
    cells: dict[int, list[tuple[float, float]]] = {}
    for at_point in points:
        cells.setdefault(int(at_point[0] / end * POINTS), []).append(at_point)
    thin = (
        point
        for cell in cells.values()
        for point in sorted({min(cell, key=itemgetter(1)), max(cell, key=itemgetter(1)), cell[-1]})
    )
    return [*(thin if len(points) > POINTS else points), (end, points[-1][1])]


# Layouts --------------------------------------------------------------------------------------------------------------

FAR = 4
"""Times the seconds of the best step beyond which a layout is not drawn."""

CELLS = 60
"""Cells of each axis; of the layouts in one the first is drawn."""


def of_search(result: SearchResult) -> Iterator[Picture]:
    """The picture of a search that found a layout."""
    if not result.rows:
        return
    from tpsim.answers.ranking import same_work  # loads numpy, which pictures of plans do not need

    same = same_work(result.questions)
    machines = [question.machine for question in result.questions]
    capacities = {float(machine.chip.memory.capacity.value): machine.name for machine in machines}
    most_s = FAR * _points(result.rows[:1], same=same)[0][0]
    for family in result.evaluation.families:
        family.bound()
    drawn = ((family, family.fitting & (family.step_s > 0)) for family in result.evaluation.families)
    fitting = [
        both
        for family, some in drawn
        for both in zip(
            (family.step_s[some] / (1 if same else family.tokens)).tolist(),
            family.peak_bytes[some].tolist(),
            strict=True,
        )
    ]
    front = _points(result.pareto or (), same=same)
    curves = [
        Curve("fits, and is no faster than drawn", _spread(fitting, most_s, max(capacities)), "cloud"),
        Curve("the best, planned", _points(result.rows, same=same), "points"),
        *([Curve("not surpassed in both", front, "line" if len(front) > 1 else "points")] if front else []),
    ]
    pair = "step,memory" if same else "tokens_per_s,memory"
    asked = "" if front else f" What no other surpasses in both is looked for with --pareto {pair}."
    about = (
        "Each point is a layout that fits; to the left it is faster, further down it holds less. Those that were not "
        f"planned stand at the least that their step can take; {FAR} times that of the best is left out.{asked}"
    )
    whose = capacities if len(capacities) > 1 else dict.fromkeys(capacities, "a chip")
    limits = [(f"capacity of {name}", size) for size, name in whose.items()]
    step = Measure("step" if same else "step, per token", "seconds", log=True)
    peak = Measure("peak memory", "bytes", log=True)
    yield Curves("Speed and memory", about, step, peak, curves, limits)


def _points(rows: Sequence[Row], *, same: bool) -> list[tuple[float, float]]:
    """Seconds and bytes; same: of a step, which has as many tokens in all, else of a token."""
    outcomes = [row.planned.outcome for row in rows]
    return [(float(of.step_s) / (1 if same else of.tokens), float(of.peak_bytes)) for of in outcomes]


def _spread(points: Sequence[tuple[float, float]], most_s: float, most_bytes: float) -> list[tuple[float, float]]:
    """Points of which no two lie in one cell."""
    near = ((s, size) for s, size in points if s <= most_s and size <= most_bytes)
    cells = {(int(CELLS * s / most_s), int(CELLS * size / most_bytes)): (s, size) for s, size in near}
    return sorted(cells.values())


# A collective ---------------------------------------------------------------------------------------------------------

Points = list[tuple[float, float]]
"""Bytes of the whole array, and seconds."""

PREDICTED, CONSTANTS, PROFILE, LOG = "predicted", "by the constants alone", "measured, in the profile", "measured"


def of_collective(result: CollectiveResult, rows: Sequence[CollectiveRow]) -> Iterator[Picture]:
    """Both pictures of some rows of a collective; none of one that costs nothing."""
    curves = {name: points for name, points in _seconds(result, rows).items() if points}
    if not any(name == PREDICTED for name in curves):
        return
    kind, ranks, size = result.asked.collective, result.asked.ranks, Measure("size", "bytes", log=True)
    over = f"{kind} over {result.route} of {result.machine.name}, by the bytes of the whole array"
    rates = {
        name: [(V, float(wire(kind, V, ranks)) / seconds) for V, seconds in points] for name, points in curves.items()
    }
    bandwidth, time = Measure("bus bandwidth", "bytes_per_s"), Measure("time", "seconds", log=True)
    peak = result.curve.peak_busbw_bytes_per_s
    limits = [("what ever larger arrays approach", peak)] if peak else []
    yield Curves("Bus bandwidth", f"Of {over}.", size, bandwidth, _curves(rates), limits)
    yield Curves("Time", f"Of one {over}.", size, time, _curves(curves))


def _seconds(result: CollectiveResult, rows: Sequence[CollectiveRow]) -> dict[str, Points]:
    """What is drawn, by name; measured points of a profile are those of the curves that the rows were timed by."""
    timed = [(float(row.logical_bytes), float(row.time_s), float(row.curve_s), row.measured_s) for row in rows]
    several = dict.fromkeys(curve for row in result.rows for curve in row.timing.curves)
    knots = [(float(knot.V), float(knot.fitted)) for curve in several for knot in curve.knots]
    low, high = min(V for V, *_ in timed), max(V for V, *_ in timed)
    return {
        PREDICTED: [(V, seconds) for V, seconds, _, _ in timed if seconds],
        CONSTANTS: [(V, seconds - curve) for V, seconds, curve, _ in timed if several and seconds > curve],
        PROFILE: [(V, seconds) for V, seconds in knots if low <= V <= high],
        LOG: [(V, float(seconds)) for V, _, _, seconds in timed if seconds],
    }


def _curves(curves: dict[str, Points]) -> list[Curve]:
    return [
        Curve(name, sorted(points), "points" if name in (PROFILE, LOG) or len(points) == 1 else "line")
        for name, points in curves.items()
    ]
