"""The pass over orders, against published bubbles and closed forms: nothing of these is in the code."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.program.test_schedules import asked
from tpsim.cost.orders import Message, run
from tpsim.cost.pipeline import in_flight
from tpsim.program.schedules import Pass, PipelineSchedule, pipeline_schedule
from tpsim.quantity.errors import InputError

QI = """
8   24 18.522 18.086  9.337 0.601 0.2431 0.1585 0.1083
8   32 18.513 18.086  9.331 0.626 0.1985 0.1242 0.0837
8   64 18.546 18.097  9.321 0.762 0.1240 0.0674 0.0444
8   24 29.718 29.444 19.927 0.527 0.2347 0.1323 0.0698
8   32 29.802 29.428 19.530 0.577 0.1898 0.1045 0.0559
8   64 29.935 29.621 19.388 0.535 0.1091 0.0554 0.0294
16  48 11.347 11.248  8.132 0.377 0.2552 0.1397 0.0672
16  64 11.307 11.254  8.101 0.379 0.2082 0.1088 0.0516
16 128 11.325 11.308  8.109 0.378 0.1251 0.0576 0.0266
32  96 10.419 10.207  7.715 0.408 0.2646 0.1421 0.0641
32 128 10.408 10.204  7.703 0.408 0.2168 0.1106 0.0490
32 256 10.402 10.248  7.698 0.460 0.1352 0.0594 0.0257
"""
"""p, m; F, B, W, c in ms; bubble rates of three schedules: Qi et al. 2024, arXiv 2401.10241, tables 9 and 5."""


def ran(name, p, m, seconds, c=0.0, *, v=1, blocking=False):
    """A schedule whose ranks take F, B, W seconds for all their chunks, and c for a message."""
    each = dict(zip("FBW", (s / v for s in seconds), strict=True))
    made = pipeline_schedule(name, p, v, m)
    return run(made, lambda action: sum(each[part.act] for part in action), lambda _: c, blocking=blocking)


@pytest.mark.parametrize("line", QI.strip().splitlines())
def test_the_published_bubble_rates_come_out_to_four_digits(line):
    p, m, *numbers = line.split()
    *seconds, c = map(float, numbers[:4])
    work = int(m) * sum(seconds)
    spans = [ran(name, int(p), int(m), seconds, c).span for name in ("1f1b", "zb-h1", "zb-h2")]
    assert [f"{(span - work) / span:.4f}" for span in spans] == numbers[4:]


@pytest.mark.parametrize(
    ("one", "seconds", "c", "end"),
    [
        (("1f1b", 4, 8, 1), (1, 1.2, 0.8), 0.1, 11 * 3 + 16 * 0.1),
        (("gpipe", 4, 8, 1), (1, 1.2, 0.8), 0.1, 33.6),
        (("1f1b", 8, 24, 1), (1, 1.2, 0.8), 0.1, 93 + 54 * 0.1),
        (("gpipe", 8, 24, 1), (1, 1.2, 0.8), 0.1, 94.4),
        (("zb-h1", 8, 24, 1), (1, 1, 1), 0.1, 79 + 28 * 0.1),
        (("1f1b", 2, 2, 1), (1, 1.2, 0.8), 0.1, 9.2),
        (("interleaved", 8, 24, 2), (1, 1.2, 0.8), 0.05, 84.0),
        (("1f1b", 8, 4, 1), (18, 18, 9), 0, 495),
        (("zb-h1", 8, 4, 1), (18, 18, 9), 0, 405),
        (("1f1b", 8, 8, 1), (18, 18, 9), 0, 675),
        (("zb-h1", 8, 8, 1), (18, 18, 9), 0, 549),
        (("1f1b", 16, 4, 1), (18, 18, 9), 0, 855),
        (("zb-h1", 16, 4, 1), (18, 18, 9), 0, 693),
        (("zb-h2", 4, 12, 1), (1, 1, 1), 0, 36 + 3),
        (("zb-h2", 8, 24, 1), (1, 1, 1), 0, 72 + 7),
        (("zb-h2", 16, 48, 1), (1, 1, 1), 0, 144 + 15),
    ],
)
def test_a_step_ends_when_the_worked_example_says(one, seconds, c, end):
    name, p, m, v = one
    assert ran(name, p, m, seconds, c, v=v).end == pytest.approx(end, rel=1e-12)


@pytest.mark.parametrize(
    ("p", "seconds", "bubble"), [(4, (1, 1, 1), 0), (8, (1, 1, 1), 0), (4, (1, 1.2, 0.8), 1.8), (8, (1, 1.2, 0.8), 4.2)]
)
def test_h2_leaves_the_bubble_of_a_parallelogram(p, seconds, bubble):
    assert ran("zb-h2", p, 3 * p, seconds).span - 3 * p * sum(seconds) == pytest.approx(bubble, abs=1e-9)


def test_sends_that_block_are_exchanged_in_pairs():
    seconds = (18.522, 18.086, 9.337)
    assert ran("1f1b", 8, 24, seconds, 0.6).end == pytest.approx(31 * sum(seconds) + 54 * 0.6, rel=1e-12)
    assert round(ran("1f1b", 8, 24, seconds, 0.6, blocking=True).end, 1) == 1459.7


def test_blocking_sends_that_deadlock_are_refused_with_what_every_rank_waits_for():
    with pytest.raises(InputError) as error:
        ran("zb-h2", 2, 4, (1, 1, 1), 0.1, blocking=True)
    assert str(error.value) == (
        "error[deadlock]: schedule zb-h2 deadlocks: "
        "rank 0 waits for the message of F of chunk 0, microbatch 3 before B of chunk 0, microbatch 1; "
        "rank 1 waits for the message of B of chunk 1, microbatch 2 before W of chunk 1, microbatch 0\n"
        "  = take another schedule"
    )


def test_a_schedule_of_too_many_actions_is_refused_with_their_number():
    orders = tuple(((Pass("F", rank, 0),),) * 200_000 for rank in range(2))
    with pytest.raises(InputError, match="400,000 actions are more than the 300,000"):
        run(PipelineSchedule("long", 1, 1, orders), lambda _: 1, lambda _: 0)


durations = st.floats(0.1, 10)


@given(st.integers(2, 8), st.integers(1, 4), durations, durations, durations)
def test_gpipe_and_one_forward_one_backward_lose_one_microbatch_per_stage_but_one(p, times, f, b, w):
    m = p * times
    for name in ("gpipe", "1f1b"):
        assert ran(name, p, m, (f, b, w)).end == pytest.approx((m + p - 1) * (f + b + w), rel=1e-9)


@given(st.integers(2, 6), st.integers(2, 3), st.integers(1, 3), st.tuples(durations, durations, durations))
def test_interleaving_divides_the_bubble_by_the_chunks(p, v, times, seconds):
    m, work = p * times, sum(seconds)
    assert ran("interleaved", p, m, seconds, v=v).end == pytest.approx(m * work + (p - 1) * work / v, rel=1e-9)


@given(st.integers(2, 8), st.integers(2, 4), durations, durations, st.floats(0, 1))
def test_h1_and_h2_lose_what_their_authors_say_where_w_is_the_shortest(p, times, f, b, share):
    w, m = share * min(f, b), p * times
    work = m * (f + b + w)
    assert ran("zb-h1", p, m, (f, b, w)).end == pytest.approx(work + (p - 1) * (f + b - w), rel=1e-9)
    assert ran("zb-h2", p, m, (f, b, w)).end == pytest.approx(work + (p - 1) * max(f, f + b - 2 * w), rel=1e-9)


@given(asked(), durations, durations, durations, st.floats(0, 3))
def test_the_critical_path_is_as_long_as_the_step(one, f, b, w, c):
    name, p, v, m = one
    found = ran(name, p, m, (f, b, w), c, v=v)
    last = max(range(p), key=found.done)
    seconds = [
        at.end - at.start if isinstance(at, Message) else found.ends[at[0]][at[1]] - found.starts[at[0]][at[1]]
        for at in found.critical(last)
    ]
    assert sum(seconds) == pytest.approx(found.end, rel=1e-9)


@given(asked(), durations, durations, durations, st.floats(0, 3))
def test_work_flights_and_waits_of_a_rank_fill_its_time(one, f, b, w, c):
    name, p, v, m = one
    found = ran(name, p, m, (f, b, w), c, v=v)
    for rank in range(p):
        assert min(min(gap.flight_s, gap.wait_s) for gap in found.gaps[rank]) >= 0
        gaps = sum(gap.flight_s + gap.wait_s for gap in found.gaps[rank])
        assert m * (f + b + w) + gaps == pytest.approx(found.done(rank), rel=1e-9)


@given(asked(), st.tuples(durations, durations, durations, st.floats(0, 3)), st.sampled_from(range(4)))
def test_nothing_gets_faster_when_something_takes_longer(one, seconds, longer):
    name, p, v, m = one
    later = [s * 1.5 if at == longer else s for at, s in enumerate(seconds)]
    before, after = (ran(name, p, m, each[:3], each[3], v=v).end for each in (seconds, later))
    assert after >= before * (1 - 1e-12)


def flying(name, p, m, v=1, **kept):
    return [in_flight(order, v, **kept) for order in pipeline_schedule(name, p, v, m).orders]


def test_what_a_rank_keeps_is_read_off_its_order():
    assert flying("1f1b", 8, 24) == [8, 7, 6, 5, 4, 3, 2, 1]
    assert flying("gpipe", 8, 24) == [24] * 8
    assert [round(one, 3) for one in flying("interleaved", 8, 24, 3)] == [
        10.333, 9.667, 9.0, 8.333, 7.667, 7.0, 6.333, 5.667,
    ]  # fmt: skip
    assert flying("zb-h1", 8, 24, until_b=1, until_w=0.5) == [8, 7.5, 7, 6.5, 6, 5.5, 5, 4.5]
    assert flying("zb-h2", 8, 24, until_b=1, until_w=0.5) == [15, 14, 13, 12, 11, 10, 9, 8]


@given(st.integers(1, 8), st.integers(1, 20), st.floats(0, 1))
def test_in_flight_figures_hold_for_any_stages_and_microbatches(p, m, share):
    assert flying("1f1b", p, m) == [min(m, p - i) for i in range(p)]
    for name, until_b, until_w in (("zb-h1", 1, 1), ("zb-h2", 2, 2)):
        found = flying(name, p, 3 * p, until_b=1, until_w=share)
        first = p if until_b == 1 else 2 * p - 1
        assert found == pytest.approx([(first - until_b * i) + until_w * i * share for i in range(p)])
