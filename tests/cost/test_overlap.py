"""What the switches of overlap give: products in pieces beside hops, and laws of steps at random seconds and shapes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.cost.conftest import StubTiming, array, settled, typed
from tests.cost.events import simulate
from tests.models import loops
from tpsim.answers.plan import plan
from tpsim.answers.stages import work_of
from tpsim.cost.actions import Actions
from tpsim.cost.collectives import collectives
from tpsim.cost.piece import Piece, step_share
from tpsim.cost.rollup import price
from tpsim.cost.segments import Untimed
from tpsim.cost.sizes import Sizes
from tpsim.cost.timed import Action
from tpsim.program.dims import completed
from tpsim.program.frameworks import PRACTICES
from tpsim.program.kinds import ALIKE
from tpsim.program.lifetimes import in_microbatch
from tpsim.program.op import Einsum, Leaf, Map, Program, Where
from tpsim.program.practice import Overlap
from tpsim.program.schedules import SCHEDULES
from tpsim.program.stages import Chunk, Stages
from tpsim.quantity.errors import InputError

# Products cut to run beside the steps of a collective -----------------------------------------------------------------

RING = Sizes({"s": 64, "h": 8, "f": 8}, {"X": 8}, loops(1, 1))
"""Eight devices: a ring of seven hops."""


def around_a_product(kind, readers=1):
    """One product between a stream that is split over tokens and an array that is split over features, or back.

    readers  as many read what is gathered
    """
    at = Where("F", "mlp", "layer", loops=(("layers", 0), ("microbatches", 0)))
    whole, cut = typed("sh"), typed("sh", s="X")
    weights = array("w", typed("hf", f="X"), "param")
    if kind == "all_gather":
        x, y = array("x", cut), array("y", typed("sf", f="X"))
        gathered = settled(x, whole, "X", kind, at)
        outputs = (y, *(replace(y, name=f"y{other}") for other in range(1, readers)))
        products = (Einsum((gathered.output, weights), output, at) for output in outputs)
        ops = (Leaf((), x, at), Leaf((), weights, at), gathered, *products)
    else:
        x, y = array("x", typed("sf", f="X")), array("y", typed("sh", owes="X"))
        ops = (Leaf((), x, at), Leaf((), weights, at), Einsum((x, weights), y, at), settled(y, cut, "X", kind, at))
    return Program((*ops, _norm(ops[-1].output, at)), ("X",), loops(1), {})


def _norm(x, at):
    """What reads the result next."""
    out = array("z", x.type)
    return Map((x,), out, replace(at, kernel="norm.mlp"), fn="norm")


def seconds_of(kind, tensor, k, c, readers=1):
    """A forward of it where a piece of the product takes k seconds and a hop of the ring c."""
    program = around_a_product(kind, readers)
    calls = collectives(program, coalesce=False)
    practice = replace(PRACTICES["megatron"], overlap=Overlap(tensor=tensor))
    actions = Actions(program.ops, Stages(1, ()), calls, practice, 1, None)
    hops = StubTiming(0, 0, 7 * c, 7 * c, 0, 0, 0, 0, 7)
    (row,) = price(calls, RING, lambda *_: hops)

    def seconds(piece):
        worked = 8 * k if piece.is_product else 0
        return 7 * c if piece.call else piece.cut.of(worked, step_share(row.ranks, row.timing)) if piece.cut else worked

    return actions.action(Chunk(0, ((ALIKE, 1),), True, True), "F").timed(seconds)


GATHER_OR_SCATTER = pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])


@GATHER_OR_SCATTER
@pytest.mark.parametrize(("hop", "split", "exposed", "blocking"), [(2, 24, 0, 38), (5, 38, 14, 59)])
def test_a_product_in_eight_pieces_hides_all_hops_that_are_shorter_than_a_piece(kind, hop, split, exposed, blocking):
    """n 8, a piece of 3 s: k + (n - 1)*max(c, k) in pieces, n*k + (n - 1)*c where the call blocks."""
    pieces = seconds_of(kind, "split", 3, hop)
    assert pieces.through.seconds == split
    assert sum(pieces.exposed.values()) == exposed
    assert list(pieces.through.calls.values()) == ([1] if exposed else [])
    assert seconds_of(kind, "beside", 3, hop).through.seconds == blocking
    assert seconds_of(kind, "none", 3, hop).through.seconds == blocking


def test_a_gather_that_several_products_read_is_whole_before_they_begin():
    """7 hops of 2 s, and then two products of 24."""
    assert seconds_of("all_gather", "split", 3, 2, readers=2).through.seconds == 14 + 2 * 24


@GATHER_OR_SCATTER
@given(k=st.integers(1, 20), c=st.integers(0, 20))
def test_pieces_beside_hops_end_when_events_say_of_each_piece_and_hop(kind, k, c):
    tasks, hops, pieces = [], [], []
    for piece in range(8):
        if kind == "all_gather":
            tasks.append((["c"], ["c"], k, hops[-1:]))
            if piece < 7:
                hops = [len(tasks)]
                tasks.append((["net"], ["net"], c, []))
        else:
            if pieces:
                tasks.append((["net"], ["net"], c, pieces[-1:]))
            pieces = [len(tasks)]
            tasks.append((["c"], ["c"], k, []))
    assert seconds_of(kind, "split", k, c).through.seconds == max(end for _, end in simulate(tasks))


# Laws of whole steps: all schedules, all bundles, random switches, seconds and shapes ---------------------------------

DEGREES = ("none", "beside", "split")
SORTS = ("tensor", "gradients", "weights", "stages")


@cache
def asked(practice, schedule, *shape):
    """A small question: its answer, and the rows that are priced."""
    pp, tp, zero, sp, m = shape
    stages = {"pp": pp, "schedule": schedule, "chunks": 2 if SCHEDULES[schedule].several else 1} if pp > 1 else {}
    one = {"model": "llama-3-8b", "hw": "dgx-h100", "tp": tp, "dp": 2, "zero": zero, "sp": sp and tp > 1}
    switches = f"{{base: {practice}, overlap: {{stages: beside}}, bucket: step}}"  # one call, whatever else runs beside
    small = ("model={extends: llama-3-8b, layers: 8}", f"practice={switches}")
    answer = plan(**one, **stages, seq=4096, batch=2 * m, microbatches=m, overrides=small)
    return answer, answer.pipeline.rows if answer.pipeline else answer.rows


@st.composite
def questions(draw):
    """An answer, and rows whose calls take random seconds."""
    schedule, pp = draw(st.sampled_from(sorted(SCHEDULES))), draw(st.sampled_from([1, 2, 4]))
    zero = draw(st.integers(0, 3 if pp == 1 else 1))
    shape = (draw(st.sampled_from(sorted(PRACTICES))), schedule, pp, draw(st.sampled_from([1, 2, 8])), zero)
    shape = (*shape, draw(st.booleans()), pp * draw(st.integers(1, 2)))
    answer, rows = asked(*shape)
    return Drawn(shape, answer, [replace(row, timing=Other(row.timing, draw(st.floats(0, 5)))) for row in rows])


class Drawn:
    """An answer and its rows, which a failure tells in a line: all that a plan holds would take minutes to print."""

    def __init__(self, shape, answer, rows):
        self.shape, self.answer, self.rows = shape, answer, rows

    def __iter__(self):
        return iter((self.answer, self.rows))

    def __repr__(self):
        return f"asked{self.shape} with calls of {[row.timing.time_s for row in self.rows]}"


class Other:
    """A timing with other seconds, and links that are filled as much longer: never longer than it takes."""

    def __init__(self, timing, times):
        self.timing, self.time_s = timing, timing.time_s * times
        self.stages = [one._replace(bandwidth_s=one.bandwidth_s * times) for one in timing.stages]

    def __getattr__(self, name):
        return getattr(self.timing, name)


switches = st.fixed_dictionaries({sort: st.sampled_from(DEGREES[: 3 if sort == "tensor" else 2]) for sort in SORTS})


def step_with(answer, rows, overlap, scale, launch=0, *, late=True):
    """The step at other switches; None where its orders deadlock; late: False where no rank comes late.

    scale  times the tokens of kernels, but not of calls
    """
    practice = replace(answer.question.practice, overlap=Overlap(**overlap))
    question, dims = replace(answer.question, practice=practice), answer.sizes.dims
    sizes = replace(answer.sizes, dims=completed({**dims, "b": dims["b"] * scale}))
    try:
        work = work_of(question, answer.lowered, sizes, rows)
        tied = work.clock.tied if late else 1
        return replace(work, clock=replace(work.clock, launch_s=launch, tied=tied)).step()
    except InputError as error:
        assert "deadlock" in str(error)  # noqa: PT017
        return None


@settings(max_examples=15)
@given(drawn=questions(), overlap=switches, sort=st.sampled_from(SORTS), scale=st.floats(0.1, 4))
def test_more_overlap_of_a_sort_is_never_slower(drawn, overlap, sort, scale):
    """But where gradients travel, by a call at most: what makes them may be issued later, beside other calls.

    And but where stages gather new weights when they need them: each waits for its own behind those before it; nor is
    it held here of stages that end together, whose updates are counted before they meet. And where ranks come late:
    what is sent layer by layer lets them meet more often.
    """
    question = drawn.answer.question
    ahead, usual = question.practice.ahead, SCHEDULES[question.orders.name].early if question.schedule else True
    alone = question.practice.clip != "norm" and ahead.is_early(usual=usual)
    assume(sort != "weights" or question.stages.ranks == 1 or alone or not question.layout.zero)
    degrees = DEGREES[: 3 if sort == "tensor" else 2]
    steps = [step_with(*drawn, {**overlap, sort: degree}, scale, late=False) for degree in degrees]
    assume(all(steps))
    longest = max(row.timing.time_s for row in drawn.rows) if sort == "gradients" else 0
    less, *more = (step.time_s for step in steps)
    for one in more:
        assert one <= less * (1 + 1e-12) + longest
        less = min(one, less)


@settings(max_examples=15)
@given(drawn=questions(), overlap=switches, scale=st.floats(0.1, 4), launch=st.sampled_from([0, 2e-5, 1e-3]))
def test_compute_exposed_bubble_and_host_are_the_step_for_every_rank(drawn, overlap, scale, launch):
    step = step_with(*drawn, overlap, scale, launch)
    assume(step)
    assert all((stage.host_s > 0) == (launch == 1e-3) for stage in step.told.stages if launch != 2e-5)
    for stage in step.told.stages:
        parts = stage.compute.time_s + stage.exposed_s + stage.bubble_s + stage.host_s + stage.stragglers_s
        assert parts == pytest.approx(step.time_s, rel=1e-11)
        mine = [row for row in stage.rows if row.call.where.place != "cut"]
        rounded = step.time_s * 1e-14  # calls of 1e-16 s stand in steps of seconds
        assert all(row.exposed_s <= row.busy_s * (1 + 1e-9) + rounded for row in mine)  # nothing is waited for twice


# A host that launches kernels one by one ------------------------------------------------------------------------------


def launched(kernels, host, *, layers=1):
    """Kernels of so many seconds in a row, `layers` times over, each launched in `host` seconds."""
    steps = [Untimed((Piece("F"),), ()) for _ in kernels]
    of = {id(step.pieces[0]): s for step, s in zip(steps, kernels, strict=True)}
    whole = Action(((tuple(steps), layers),))
    return whole.timed(lambda piece: of[id(piece)], lambda _: host)


def test_tiny_kernels_are_launch_bound_and_long_ones_wait_for_the_first_launch_alone():
    """Forty kernels: of 1 s behind launches of 2 s the last ends at 40*2 + 1; of 3 s all but the first are ahead."""
    tiny, long = (launched([s] * 10, 2, layers=4) for s in (1, 3))
    assert (tiny.through.seconds, tiny.host_s) == (81, 41)
    assert (long.through.seconds, long.host_s) == (122, 2)
    assert launched([3] * 10, 0, layers=4).host_s == 0


def test_long_kernels_let_the_host_run_ahead_of_tiny_ones_behind_them():
    """10 s of compute while four more are launched in 2 s each: the tiny ones follow without a pause."""
    assert launched([10, 1, 1, 1, 1], 2).through.seconds == 2 + 10 + 4
    assert launched([1, 1, 1, 1, 10], 2).through.seconds == 5 * 2 + 10


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(0, 9), st.integers(1, 5))
def test_launched_kernels_end_when_events_say(kernels, host, layers):
    tasks = []
    for seconds in kernels * layers:
        tasks += [(["host"], ["host"], host, []), (["c"], ["c"], seconds, [len(tasks)])]
    assert launched(kernels, host, layers=layers).through.seconds == max(end for _, end in simulate(tasks))


SMALL = ("workload.seq=8", "assume.kernel_launch=1 ms")


def test_a_plan_of_tiny_kernels_is_bound_by_its_host():
    """Each kernel and call of a microbatch takes 1 ms, however small it is."""
    answer = plan("gpt2-xl-a100-dp", overrides=SMALL)
    work = work_of(answer.question, answer.lowered, answer.sizes, answer.rows)
    ran = work.step().ran
    kernels = [one.count(answer.sizes) for one in answer.lowered.kernels if in_microbatch(one.where)]
    calls = [row.count for row in answer.rows if row.call.per_microbatch]
    assert ran.end == pytest.approx(1e-3 * sum([*kernels, *calls]), rel=0.05)
    assert answer.step.bound_by == "host"
    assert answer.step.host_s > 0.5 * answer.step.time_s
    assert answer.step.time_s == pytest.approx(work.step().time_s, rel=1e-12)
    assert "bound by the host, which launches kernels" in answer.verdict
    assert not any("kernel_launch" in one for one in answer.not_modelled)
    without = plan("gpt2-xl-a100-dp", overrides=SMALL[:1])
    assert without.step.host_s == 0
    assert any("assume.kernel_launch states its seconds" in one for one in without.not_modelled)


def test_a_host_and_a_framework_that_launch_both_are_refused():
    with pytest.raises(InputError) as error:
        plan("gpt2-xl-a100-dp", overrides=(SMALL[1], "collectives.launch=framework"))
    assert "error[launched-twice]: a framework's launch of collectives has the host's seconds in it" in str(error.value)
    assert "^^^^^^^^^ write threads, or graph" in str(error.value)


def test_a_call_once_per_step_is_launched_together_with_the_others_wherever_it_runs():
    """Reducing gradients beside compute makes no launch that reducing them at the end has not."""
    steps = [
        plan(
            "gpt2-xl-a100-dp", overrides=["assume.kernel_launch=1 ms", f"practice.overlap.gradients={how}"]
        ).step.time_s
        for how in ("beside", "none")
    ]
    assert steps[0] < steps[1]


def test_the_first_layer_waits_for_what_the_embedding_sends_though_sums_run_beside_compute():
    """The stream is the embedding's own result where a part of the stack begins: nothing lies between them."""
    (row,) = (one for one in plan("gpt-neox-20b-a100", practice="ideal").rows if one.array == "embedding.out")
    assert row.exposed_s == pytest.approx(row.busy_s, rel=1e-12)
    assert row.busy_s > 0


@pytest.mark.parametrize("zero", [0, 1])
def test_sums_that_wait_for_the_step_s_end_wait_for_what_makes_their_gradients(zero):
    """Nothing is sharded between microbatches below ZeRO 2: `auto` and `per_step` are the same step."""
    switches = [f"layout.zero={zero}", "practice.overlap.gradients=beside", "practice.bucket=layer"]
    auto, waiting = (
        plan("gpt2-xl-a100-dp", overrides=[*switches, f"practice.gradients={often}"]) for often in ("auto", "per_step")
    )
    assert waiting.step.time_s == auto.step.time_s
    assert waiting.memory.peak_bytes == auto.memory.peak_bytes
    assert [row.exposed_s for row in waiting.rows] == [row.exposed_s for row in auto.rows]
