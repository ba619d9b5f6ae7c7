"""The pass over orders, against published bubbles and closed forms: nothing of these is in the code."""

from __future__ import annotations

import gc
from itertools import chain, product
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.program.test_schedules import asked
from tpsim.cost.orders import run
from tpsim.cost.ran import Message
from tpsim.program.schedules import SCHEDULES, Pass, PipelineSchedule, in_flight, pipeline_schedule
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError

RATES = spec.load(Path(__file__).parents[1] / "data" / "zero_bubble_rates.yaml").data


durations = st.floats(0.1, 10)


def ran(name, p, m, seconds, c=0.0, *, v=1, blocking=False):
    """A schedule whose ranks take F, B, W seconds for all their chunks, and c for a message."""
    each = dict(zip("FBW", (s / v for s in seconds), strict=True))
    made = pipeline_schedule(name, p, v, m)
    return run(made, lambda action: sum(each[part.act] for part in action), lambda _: c, blocking=blocking)


def span(ran):
    """From the first start to the last end of the rank where that is longest."""
    return max(ends[-1] - starts[0] for starts, ends in zip(ran.starts, ran.ends, strict=True))


@pytest.mark.parametrize("row", RATES["rows"], ids=lambda row: f"p {row['p']}, m {row['m']}, F {row['ms'][0]}")
def test_the_published_bubble_rates_come_out_to_four_digits(row):
    *seconds, c = row["ms"]
    work = row["m"] * sum(seconds)
    spans = [span(ran(name, row["p"], row["m"], seconds, c)) for name in RATES["schedules"]]
    assert [round((whole - work) / whole, 4) for whole in spans] == row["rates"]


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
    ("p", "seconds", "bubble"),
    [
        (4, (1, 1, 1), 0),
        (8, (1, 1, 1), 0),
        (16, (1, 1, 1), 0),
        (4, (1, 1.2, 0.8), 1.8),
        (8, (1, 1.2, 0.8), 4.2),
        (4, (2, 3, 1), 9),
        (8, (2, 3, 1), 21),
    ],
)
def test_h2_leaves_the_bubble_of_a_parallelogram(p, seconds, bubble):
    assert span(ran("zb-h2", p, 3 * p, seconds)) - 3 * p * sum(seconds) == pytest.approx(bubble, abs=1e-9)


@pytest.mark.parametrize(
    ("m", "v", "of_ideal", "of_all"), [(64, 1, 7 / 64, 7 / 71), (64, 3, 7 / 192, 7 / 199), (8, 1, 7 / 8, 7 / 15)]
)
def test_the_bubble_is_the_share_that_its_paper_says(m, v, of_ideal, of_all):
    """Narayanan et al. 2021, section 2.2: (p - 1)/(v m) of ideal time; 10.94 % and 9.86 % at p 8, m 64."""
    end = ran("interleaved" if v > 1 else "1f1b", 8, m, (1, 1.2, 0.8), v=v).end
    assert (end - 3 * m) / (3 * m) == pytest.approx(of_ideal, rel=1e-12)
    assert (end - 3 * m) / end == pytest.approx(of_all, rel=1e-12)


@pytest.mark.parametrize(("slow", "end"), [(0, 40.5), (1, 42.0), (2, 43.5), (3, 45.0), (None, 33.0)])
def test_a_slow_rank_delays_the_step_more_the_later_it_stands(slow, end):
    """1F1B on four ranks, eight microbatches; one rank takes half as much again."""
    made, seconds = pipeline_schedule("1f1b", 4, 1, 8), {"F": 1, "B": 1.2, "W": 0.8}

    def taken(action):
        return sum(seconds[part.act] * (1.5 if part.chunk == slow else 1) for part in action)

    assert run(made, taken, lambda _: 0).end == pytest.approx(end, rel=1e-12)


@given(st.integers(2, 8), st.integers(1, 4), st.floats(1, 1.5), st.data())
def test_one_slow_rank_costs_less_the_more_ranks_stand_behind_it(p, times, slower, data):
    """m S + (p - 1) O - (p - 1 - i)(S - O) where rank i takes S, every other O, forward half as long as backward.

    It holds up to S = 1.5 O: beyond, the warm-up of the slow rank is no longer hidden.
    """
    rank, m = data.draw(st.integers(0, p - 1)), p * times
    made = pipeline_schedule("1f1b", p, 1, m)

    def taken(action):
        return (1 if action[0].act == "F" else 2) * (slower if action[0].chunk == rank else 1)

    expected = 3 * m * slower + 3 * (p - 1) - (p - 1 - rank) * 3 * (slower - 1)
    assert run(made, taken, lambda _: 0).end == pytest.approx(expected, rel=1e-9)


@given(st.integers(1, 8), st.integers(1, 8), durations, durations, durations)
def test_with_fewer_microbatches_than_ranks_only_zero_bubble_orders_save(p, m, f, b, w):
    """1F1B takes (m + p - 1)(F + B + W), zero-bubble orders (m + p - 1)(F + B) + W (Qi et al., appendix H)."""
    w = min(f, b, w)
    assume(m <= p)
    assert ran("1f1b", p, m, (f, b, w)).end == pytest.approx((m + p - 1) * (f + b + w), rel=1e-9)
    assert ran("zb-h1", p, m, (f, b, w)).end == pytest.approx((m + p - 1) * (f + b) + w, rel=1e-9)


@given(st.integers(2, 6), st.integers(2, 3), st.integers(2, 3), st.tuples(durations, durations, durations))
def test_sends_lengthen_each_schedule_by_those_on_its_critical_path(p, v, times, seconds):
    """c small: 1F1B (2m(p-1)/p + 2(p-2)) c, GPipe 2(p-1) c, interleaved 2(pv-1) c.

    ZB-H1 4(p-1) c where W is the shortest; ZB-H2 (p-1) c to the end where F = B = W.
    """
    f, b, _ = seconds
    m, c, shortest = p * times, min(seconds) / 1000, (f, b, min(seconds))
    for name, counted, chunks, passes in (
        ("1f1b", 2 * m * (p - 1) / p + 2 * (p - 2), 1, seconds),
        ("gpipe", 2 * (p - 1), 1, seconds),
        ("interleaved", 2 * (p * v - 1), v, seconds),
        ("zb-h1", 4 * (p - 1), 1, shortest),
        ("zb-h2", p - 1, 1, (f, f, f)),
    ):
        still, sent = (ran(name, p, m, passes, each, v=chunks).end for each in (0, c))
        assert sent - still == pytest.approx(counted * c, rel=1e-6), name


def test_a_published_throughput_follows_from_bubbles_alone():
    """Qi et al., table 4 over table 5: samples per GPU and second of 1F1B, freed of its bubble as ZB-2p is.

    Measured were 14.5 and 0.99; they are reported here, not asserted.
    """
    rates = {(row["p"], row["m"], row["ms"][0]): row["rates"][0] for row in RATES["rows"]}
    for key, samples, zb_2p, freed in (((8, 24, 18.522), 11.8, 0.0433, 14.9), ((32, 96, 10.419), 0.76, 0.0038, 1.03)):
        assert samples * (1 - zb_2p) / (1 - rates[key]) == pytest.approx(freed, rel=5e-3)


def test_sends_that_block_are_exchanged_in_pairs():
    seconds = (18.522, 18.086, 9.337)
    assert ran("1f1b", 8, 24, seconds, 0.6).end == pytest.approx(31 * sum(seconds) + 54 * 0.6, rel=1e-12)
    assert round(ran("1f1b", 8, 24, seconds, 0.6, blocking=True).end, 1) == 1459.7


@pytest.mark.parametrize(("p", "v"), [(2, 2), (4, 2), (4, 3), (8, 2)])
def test_interleaved_stages_that_block_exchange_once_for_each_pair_of_passes(p, v):
    """Megatron-LM before May 2023: a microbatch more takes F + B + W and a message for each of its chunks."""
    c, step = 0.05, [ran("interleaved", p, p * k, (1, 1.2, 0.8), 0.05, v=v, blocking=True).end for k in (3, 4, 5)]
    assert step[2] - step[1] == pytest.approx(step[1] - step[0], rel=1e-9) == pytest.approx(p * (3 + v * c), rel=1e-9)


@pytest.mark.parametrize("blocking", [False, "steady", True])
def test_an_action_that_is_due_later_ends_then_and_all_else_follows_as_if_it_took_as_long(blocking):
    made = pipeline_schedule("interleaved", 4, 2, 8)
    examples, of = made.kinds
    firsts = {kind: 5.0 + 3 * examples[kind][0].chunk for kind in {*chain(*of)} if examples[kind][0][::2] == ("F", 0)}
    due = run(made, len, lambda _: 0.1, blocking=blocking, due=firsts)
    rows = [row for rank in zip(of, due.starts, due.ends, strict=True) for row in zip(*rank, strict=True)]
    took = {kind: end - start for kind, start, end in rows}
    assert len(firsts) == 8
    assert all(took[kind] >= 1 for kind in firsts)
    assert sum(took[kind] > 1 for kind in firsts) > 4
    of_action = {example: took[kind] for kind, example in enumerate(examples)}
    alike = run(made, of_action.get, lambda _: 0.1, blocking=blocking)
    for one, other in zip(chain(*due.ends), chain(*alike.ends), strict=True):
        assert one == pytest.approx(other, rel=1e-12)
    ends = {kind: end for kind, _, end in rows if kind in firsts}
    assert all(ends[kind] == pytest.approx(s) for kind, s in firsts.items() if took[kind] > 1)


def test_blocking_sends_that_deadlock_are_refused_with_what_every_rank_waits_for():
    with pytest.raises(InputError) as error:
        ran("zb-h2", 2, 4, (1, 1, 1), 0.1, blocking=True)
    assert str(error.value) == (
        "error[deadlock]: schedule zb-h2 deadlocks: "
        "rank 0 waits for the message of F of chunk 0, microbatch 3 before B of chunk 0, microbatch 1; "
        "rank 1 waits for the message of B of chunk 1, microbatch 2 before W of chunk 1, microbatch 0\n"
        "  = let messages fly beside compute, practice.overlap.stages: beside, or take another schedule"
    )


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_most_microbatches_that_can_meet_are_those_that_do_not_deadlock(name):
    maker = SCHEDULES[name]
    chunks = (2, 3, 4) if maker.several else (1,)
    for p, v, times in product(range(2, 8), chunks, range(1, 5 if maker.several else 18)):
        m = times * p if maker.several else times
        for blocking in (False, "steady", True):
            try:
                ran(name, p, m, (1, 1, 1), 0.1, v=v, blocking=blocking)
                runs = True
            except InputError as error:
                runs = error.problems[0].slug != "deadlock"
            assert runs == (blocking is not True or m <= maker.meets(p)), (p, v, m, blocking)


def test_a_schedule_of_too_many_actions_is_refused_with_their_number():
    orders = tuple(((Pass("F", rank, 0),),) * 200_000 for rank in range(2))
    with pytest.raises(InputError, match="400,000 actions are more than the 300,000"):
        run(PipelineSchedule("long", 1, 1, orders), lambda _: 1, lambda _: 0)


def test_nothing_is_collected_while_orders_are_made_and_run_and_everything_afterwards():
    gc.freeze()  # what other tests have left is not looked through
    looks, often = [], gc.get_threshold()
    gc.callbacks.append(lambda phase, _: looks.append(phase))
    gc.set_threshold(100, 1000, 1000)
    try:
        ran("zb-h1", 8, 64, (1, 1, 1))
        few = len(looks)
        ends = [((Pass("F", rank, 0),), (Pass("B", rank, 0), Pass("W", rank, 0))) for rank in range(2)]
        orders = (ends[0][::-1], ends[1])
        with pytest.raises(InputError, match="deadlock"):
            run(PipelineSchedule("stuck", 1, 1, orders), lambda _: 1, lambda _: 0)
        assert gc.isenabled()
    finally:
        gc.set_threshold(*often)
        gc.callbacks.pop()
    assert few < 8 * 64 * 3 / 100  # a tuple per action is more than that


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


def test_a_message_hangs_on_the_rank_that_comes_last_for_it_and_of_two_at_once_on_its_receiver():
    way = ran("1f1b", 3, 3, (1, 1, 1), 0.5, blocking=True).ways["F", 0, 1]
    assert (way.gives, way.takes) == ([1, 2.5, 4], [0, 2.5, 8.5])
    assert [Message(way, number).cause for number in range(3)] == [0, 1, 1]


@given(asked(), durations, durations, durations, st.floats(0, 3))
def test_work_flights_and_waits_of_a_rank_fill_its_time(one, f, b, w, c):
    name, p, v, m = one
    found = ran(name, p, m, (f, b, w), c, v=v)
    for rank in range(p):
        wait_s, flights = found.waits(rank)
        assert min(wait_s, *flights.values(), 0) >= 0
        assert m * (f + b + w) + wait_s + sum(flights.values()) == pytest.approx(found.done(rank), rel=1e-9)


@given(asked(), st.tuples(durations, durations, durations, st.floats(0, 3)), st.sampled_from(range(4)))
def test_nothing_gets_faster_when_something_takes_longer(one, seconds, longer):
    name, p, v, m = one
    later = [s * 1.5 if at == longer else s for at, s in enumerate(seconds)]
    before, after = (ran(name, p, m, each[:3], each[3], v=v).end for each in (seconds, later))
    assert after >= before * (1 - 1e-12)


def flying(name, p, m, v=1, **kept):
    made = pipeline_schedule(name, p, v, m)
    return [in_flight(made, rank, **kept) for rank in range(p)]


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
