"""The judge by hand; then the pass over orders by the judge."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.cost.events import pipeline, simulate
from tpsim.cost import timeline
from tpsim.cost.turns import run
from tpsim.program.schedules import SCHEDULES, pipeline_schedule
from tpsim.quantity.errors import InputError

# --- Tasks on lanes -----------------------------------------------------------------------------------------------


def end(tasks, shares=None):
    """When the last task has ended."""
    return max(end for _, end in simulate(tasks, shares))


def test_a_lane_serves_its_tasks_in_the_order_of_their_issue():
    # The third is ready at once, but the second, issued before it, waits for the other lane until second 5.
    tasks = [(["a"], ["a"], 5, []), (["b"], ["b"], 2, [0]), (["b"], ["b"], 1, [])]
    assert simulate(tasks) == [(0, 5), (5, 7), (7, 8)]


def test_a_task_that_only_waits_for_a_lane_starts_where_it_stands_and_leaves_the_lane_free():
    tasks = [(["c"], ["c"], 3, []), (["c", "net"], ["net"], 4, []), (["c"], ["c"], 1, []), (["c"], ["c"], 1, [1])]
    assert simulate(tasks) == [(0, 3), (3, 7), (3, 4), (7, 8)]


def test_a_blocking_task_holds_both_lanes():
    tasks = [(["c"], ["c"], 3, []), (["c", "net"], ["c", "net"], 4, [0]), (["c"], ["c"], 1, [])]
    assert simulate(tasks) == [(0, 3), (3, 7), (7, 8)]


def test_a_lane_is_let_go_of_after_its_share_and_the_task_ends_after_its_seconds():
    tasks = [(["near", "far"], ["near", "far"], 12, []), (["near"], ["near"], 1, []), (["far"], ["far"], 1, [])]
    assert simulate(tasks, {(0, "near"): 2}) == [(0, 12), (2, 3), (12, 13)]


@pytest.mark.parametrize(("gather", "seconds"), [(6, 6 + 32 * 10), (14, 32 * 14 + 10)])
def test_gathers_one_layer_ahead_hide_behind_the_forward_or_it_behind_them(gather, seconds):
    tasks = [(["c", "weights"], ["weights"], gather, [])]
    for layer in range(32):
        ready = len(tasks) - (1 if layer == 0 else 2)  # the gather of this layer
        if layer < 31:
            tasks.append((["c", "weights"], ["weights"], gather, []))
        tasks.append((["c"], ["c"], 10, [ready]))
    assert end(tasks) == seconds


@pytest.mark.parametrize(("scatter", "exposed"), [(6, 6), (26, 26 + 31 * 6)])
def test_gradients_of_each_layer_expose_the_last_scatter_and_what_the_lane_fell_behind(scatter, exposed):
    tasks = []
    for _ in range(32):
        tasks.append((["c"], ["c"], 20, []))
        tasks.append((["c", "gradients"], ["gradients"], scatter, [len(tasks) - 1]))
    assert end(tasks) == 32 * 20 + exposed


@pytest.mark.parametrize(("hop", "beside", "blocking"), [(2, 24, 38), (5, 38, 59)])
def test_a_product_in_eight_pieces_begins_with_its_own_and_hides_hops_behind_the_others(hop, beside, blocking):
    for holds, seconds in ((["net"], beside), (["net", "c"], blocking)):
        tasks, arrived = [], []
        for piece in range(8):
            if piece < 7:
                tasks.append((["net", "c"], holds, hop, arrived))
            tasks.append((["c"], ["c"], 3, arrived))
            arrived = [len(tasks) - 2] if piece < 7 else []
        assert end(tasks) == seconds


def issue(tasks, waits, holds, seconds, after):
    """Append a task; what waits for it waits for this."""
    tasks.append((waits, holds, seconds, after))
    return [len(tasks) - 1]


def one_forward_one_backward(*, gradients, buckets, network):
    """Eight ranks, 16 microbatches, 20 s forward, 40 s backward, sends of 0.5 s; gradients leave in the last backward.

    network  "own": gradients and sends have lanes of their own; "one" for both, per rank; or "none" beside compute
    """
    schedule, tasks, messages = pipeline_schedule("1f1b", 8, 1, 16), [], {}
    times = even("1f1b", 8, 16, (20, 40, 0), 0.5)
    for _, rank, i in sorted((second, rank, i) for rank, row in enumerate(times) for i, second in enumerate(row)):
        act, _, j = schedule.orders[rank][i][0]
        compute, sends, own = [f"compute {rank}"], [f"{rank} sends {act}"], [f"gradients {rank}"]
        if network == "one":
            sends = own = [f"network {rank}"]
        leaving = gradients if act == "B" and j == 15 else 0
        after, parts = messages.get((act, rank, j), []), buckets if leaving and network != "none" else 1
        for _ in range(parts):
            after = issue(tasks, compute, compute, (20 if act == "F" else 40) / parts, after)
            if leaving and network != "none":
                issue(tasks, [*compute, *own], own, leaving / parts, after)
        if 0 <= (to := rank + (1 if act == "F" else -1)) < 8:
            messages[act, to, j] = issue(tasks, sends, sends, 0.5, after)
        if leaving and network == "none":
            issue(tasks, [*compute, *own], [*compute, *own], leaving, after)
    return end(tasks)


@pytest.mark.parametrize(
    ("gradients", "buckets", "none", "one", "own"),
    [(40, 4, 1440, 1480, 1410), (40, 1, 1440, 1720, 1440), (120, 4, 1520, 2120, 1490)],
)
def test_gradients_in_one_lane_with_sends_are_slower_than_no_overlap(gradients, buckets, none, one, own):
    # 23 * 60 + 40 * 0.5 = 1400 without gradients. A lane of their own exposes what is left behind the last backward;
    # in one lane the last message of each of seven ranks waits for that, too: eight times what is left.
    found = [
        one_forward_one_backward(gradients=gradients, buckets=buckets, network=network)
        for network in ("none", "one", "own")
    ]
    assert found == [none, one, own]
    assert one - 1400 == 8 * (own - 1400)


@pytest.mark.parametrize(
    ("lanes", "seconds"),
    [
        ("blocking", 304),  # 20 * 8 + 40 * 0.6 + 10 * 12
        ("whole", 268),  # 184 + 12, and nine times the next tensor call waits 12 - 4 s
        ("shares", 196),  # 184 + 12
    ],
)
def test_a_bucket_that_uses_the_near_level_for_its_share_only_holds_no_tensor_call_up(lanes, seconds):
    tasks, shares, near, far = [], {}, ["compute", "near"], ["compute", "near", "far"]
    for layer in range(20):
        for _half in range(2):
            tasks.append((["compute"], ["compute"], 4, []))
            tasks.append((near, near, 0.6, [len(tasks) - 1]))
        if layer % 2:
            if lanes == "shares":
                shares[len(tasks), "near"] = 0.11 * 12
            tasks.append((far, far if lanes == "blocking" else far[1:], 12, [len(tasks) - 1]))
    assert end(tasks, shares) == pytest.approx(seconds, abs=1e-9)


def max_and_plus(tasks, shares):
    """Start and end of every task in one pass in their order: the latest of what it waits for, plus its seconds."""
    free, times = defaultdict(float), []
    for i, (waits, holds, seconds, after) in enumerate(tasks):
        start = max((*(free[lane] for lane in waits), *(times[j][1] for j in after)), default=0)
        times.append((start, start + seconds))
        free |= {lane: start + shares.get((i, lane), seconds) for lane in holds}
    return times


@st.composite
def tasks_on_lanes(draw):
    """Tasks that hold no lane that they do not wait for."""
    tasks = []
    for i in range(draw(st.integers(0, 12))):
        waits = draw(st.lists(st.sampled_from("abcd"), unique=True))
        holds = [lane for lane in waits if draw(st.booleans())]
        tasks.append((waits, holds, draw(st.integers(0, 9)), draw(st.lists(st.sampled_from(range(i)))) if i else []))
    return tasks


@st.composite
def tasks_and_shares(draw):
    """Such tasks, and seconds after which some of them let go of a lane."""
    tasks = draw(tasks_on_lanes())
    held = [(i, lane) for i, (_, holds, _, _) in enumerate(tasks) for lane in holds if draw(st.booleans())]
    return tasks, {(i, lane): draw(st.integers(0, tasks[i][2])) for i, lane in held}


@given(tasks_and_shares())
def test_a_pass_of_max_and_plus_in_issue_order_is_what_events_do(drawn):
    assert max_and_plus(*drawn) == simulate(*drawn)


@given(tasks_on_lanes())
def test_tasks_on_lanes_start_and_end_when_events_say(tasks):
    ran = timeline.run(tasks)
    assert list(zip(ran.starts, ran.ends, strict=True)) == simulate(tasks)


# --- Pipelines ----------------------------------------------------------------------------------------------------


def ends(schedule, seconds, flights, blocking):
    orders = [[[tuple(one) for one in action] for action in order] for order in schedule.orders]
    return pipeline(orders, seconds, flights, blocking=blocking)


def even(name, p, m, passes, flight, *, v=1, blocking=False):
    """Ends where every rank takes (F, B, W) seconds for a microbatch."""
    seconds = {(k, act): s / v for k in range(p * v) for act, s in zip("FBW", passes, strict=True)}
    flights = {(k, act): flight for k in range(p * v) for act in "FB"}
    return ends(pipeline_schedule(name, p, v, m), seconds, flights, blocking)


def about(times):
    return [pytest.approx(row, abs=1e-9) for row in times]


def test_two_ranks_and_two_microbatches_by_hand():
    assert even("1f1b", 2, 2, (1, 1, 1), 0.1) == about([[1, 2, 6.2, 9.2], [2.1, 4.1, 5.1, 7.1]])


def test_two_ranks_that_exchange_are_held_up_by_what_they_send_by_hand():
    # Rank 0 is held up by its first send to 1.1, rank 1 by the exchange of B 0 for F 1 from 4.1 to 4.2.
    found = even("1f1b", 2, 2, (1, 1, 1), 0.1, blocking=True)
    assert found == about([[1, 2.1, 6.2, 9.3], [2.1, 4.1, 5.2, 7.2]])


def test_ranks_are_held_up_in_warm_up_and_flush_alone_by_hand():
    # Rank 0 is held up by its first send, to 1.5, and by none of those in steady state; nothing is sent in its flush.
    found = even("1f1b", 2, 3, (1, 1, 1), 0.5, blocking="steady")
    assert found == about([[1, 2.5, 7, 8, 10, 14], [2.5, 4.5, 5.5, 7.5, 9.5, 11.5]])


def test_a_message_sets_off_when_the_one_before_it_in_its_channel_has_arrived():
    schedule = pipeline_schedule("gpipe", 2, 1, 3)
    seconds = {(k, act): s for k in range(2) for act, s in zip("FBW", (1, 1, 0), strict=True)}
    found = ends(schedule, seconds, {(0, "F"): 2.5, (1, "B"): 0}, blocking=False)
    assert found == about([[1, 2, 3, 11.5, 12.5, 13.5], [4.5, 7, 9.5, 10.5, 11.5, 12.5]])


def test_the_message_of_a_split_backward_leaves_before_its_weight_gradients():
    assert even("zb-h1", 2, 1, (1, 1, 1), 0) == about([[1, 4, 5], [2, 3, 4]])
    assert even("1f1b", 2, 1, (1, 1, 1), 0) == about([[1, 6], [2, 4]])


@pytest.mark.parametrize(
    ("name", "p", "m", "flight", "last"),
    [
        ("1f1b", 4, 8, 0.1, 11 * 3 + 16 * 0.1),
        ("gpipe", 4, 8, 0.1, 11 * 3 + 6 * 0.1),
        ("1f1b", 8, 24, 0.1, 31 * 3 + 54 * 0.1),
        ("zb-h1", 8, 24, 0.1, 24 * 3 + 7 + 28 * 0.1),
        ("zb-h2", 4, 12, 0, 12 * 3 + 3),
        ("zb-h2", 16, 48, 0, 48 * 3 + 15),
    ],
)
def test_the_published_bubbles_come_out_of_events(name, p, m, flight, last):
    assert max(map(max, even(name, p, m, (1, 1, 1), flight))) == pytest.approx(last)


def test_the_published_bubble_of_interleaving_comes_out_of_events():
    found = even("interleaved", 8, 24, (1, 1, 1), 0.05, v=2)
    assert max(map(max, found)) == pytest.approx(24 * 3 + 7 * 3 / 2 + 30 * 0.05)


@pytest.mark.parametrize(("blocking", "last"), [(False, 1456.695), (True, 1459.695)])
def test_exchanges_cost_five_messages_more_than_sends_beside(blocking, last):
    found = even("1f1b", 8, 24, (18.522, 18.086, 9.337), 0.6, blocking=blocking)
    assert max(map(max, found)) == pytest.approx(last)


@pytest.mark.parametrize(("slow", "last"), [(0, 40.5), (1, 42), (2, 43.5), (3, 45)])
def test_a_slow_last_rank_costs_more_than_a_slow_first_one(slow, last):
    seconds = {(k, act): 1.5 if k == slow else 1 for k in range(4) for act in "FBW"}
    flights = {(k, act): 0 for k in range(4) for act in "FB"}
    assert max(map(max, ends(pipeline_schedule("1f1b", 4, 1, 8), seconds, flights, blocking=False))) == last


def test_orders_that_wait_for_each_other_deadlock():
    orders = [[[("B", 0, 0)], [("F", 0, 0)]], [[("F", 1, 0)], [("B", 1, 0)]]]
    with pytest.raises(RuntimeError) as error:
        pipeline(orders, defaultdict(float), defaultdict(float))
    assert str(error.value) == "deadlock: (0, 0) and 3 more never happened"


@st.composite
def schedules(draw):
    """Any schedule of the registry."""
    name, m, p = draw(st.sampled_from(sorted(SCHEDULES))), draw(st.integers(1, 9)), draw(st.integers(1, 5))
    v = draw(st.integers(1, 3)) if SCHEDULES[name].several else 1
    return pipeline_schedule(name, p, v, m * p if name == "interleaved" else m)


@st.composite
def runs(draw, kinds):
    """A schedule, seconds of its passes and seconds on the way of their messages."""
    schedule, some = draw(kinds), st.floats(0, 9) | st.integers(0, 3)
    sizes = [{(k, act): draw(some) for k in range(schedule.ranks * schedule.chunks) for act in "FBW"} for _ in range(2)]
    return schedule, *sizes


def judged(schedule, seconds, flights, *, blocking):
    """Ends by the pass and by events; None where the orders deadlock."""
    try:
        ours = run(
            schedule,
            lambda action: sum(seconds[one.chunk, one.act] for one in action),
            lambda one: flights[one.chunk, one.act],
            blocking=blocking,
        ).ends
    except InputError:
        ours = None
    try:
        theirs = ends(schedule, seconds, flights, blocking)
    except RuntimeError:
        theirs = None
    return ours, theirs


BLOCKING = st.sampled_from((False, "steady", True))

BOTH_WAYS = pipeline_schedule("interleaved", 2, 2, 6), defaultdict(lambda: 1), defaultdict(lambda: 9)
"""Messages of F and those of B fly from rank 0 to rank 1, each kind in a channel of its own."""


@example(drawn=BOTH_WAYS, blocking=False)
@given(drawn=runs(schedules()), blocking=BLOCKING)
def test_the_pass_over_orders_ends_every_action_when_events_do(drawn, blocking):
    ours, theirs = judged(*drawn, blocking=blocking)
    assert (ours is None) == (theirs is None)
    assert (ours or []) == about(theirs or [])


def test_a_rank_alone_sends_nothing_from_chunk_to_chunk():
    schedule = pipeline_schedule("interleaved", 1, 2, 1)
    ours, theirs = judged(schedule, defaultdict(lambda: 1), defaultdict(lambda: 1), blocking=False)
    assert theirs == [[1, 2, 4, 6]]
    assert ours == theirs


@st.composite
def glued(draw):
    """A schedule some of whose neighbouring actions run as one."""
    schedule, orders = draw(schedules()), []
    for order in schedule.orders:
        cuts = [0, *(i for i in range(1, len(order)) if draw(st.integers(0, 3))), len(order)]
        orders.append(tuple(sum(order[a:b], ()) for a, b in pairwise(cuts)))
    return replace(schedule, orders=tuple(orders))


@given(drawn=runs(glued()), blocking=BLOCKING)
def test_actions_of_several_microbatches_end_when_events_say(drawn, blocking):
    ours, theirs = judged(*drawn, blocking=blocking)
    assert (ours is None) == (theirs is None)
    assert (ours or []) == about(theirs or [])


@given(drawn=runs(schedules()))
def test_messages_that_block_at_the_ends_alone_take_no_longer_than_all_and_no_less_than_none(drawn):
    times = [judged(*drawn, blocking=one)[0] for one in (False, "steady", True)]
    assert times[1] is not None  # it does not deadlock
    last = [max(map(max, each)) for each in times if each]
    assert all(one <= other + 1e-9 for one, other in pairwise(last))
