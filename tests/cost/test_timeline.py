"""Tasks on lanes: what overlap gives, who was waited for, and worked examples of layers, buckets and pipelines."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.answers.test_verdict import SHARDED
from tests.cost.conftest import array, typed
from tests.plans import planned
from tpsim.answers.plan import plan
from tpsim.answers.stages import work_of
from tpsim.cost.actions import Actions
from tpsim.cost.collectives import GRADIENTS, TENSOR, WEIGHTS
from tpsim.cost.issue import Issue, gathered
from tpsim.cost.orders import run as pass_over
from tpsim.cost.piece import Node, Piece
from tpsim.cost.segments import Untimed, runs
from tpsim.cost.timed import Action, Length, Timed
from tpsim.cost.timeline import COMPUTE, Task, run
from tpsim.program.op import Einsum, Where
from tpsim.program.schedules import pipeline_schedule

NONE = "practice.overlap={tensor: none, gradients: none, weights: none}"
"""Messages as the schedule has them: some deadlock where they block."""
SCENARIOS = sorted(one.stem for one in Path("scenarios").glob("*.yaml") if not one.stem.startswith("megatron-"))
"""Of the stages of Megatron's papers, which are many, the tests of published steps have all."""


class _Call:
    streamed = False

    def __init__(self, sort):
        self.sort = sort


CALL, GATHER = _Call(GRADIENTS), _Call(WEIGHTS)


def compute(seconds, *after):
    return Task((COMPUTE,), (COMPUTE,), seconds, after)


def call(lane, seconds, *after, blocks=False):
    return Task((COMPUTE, lane), (COMPUTE, lane) if blocks else (lane,), seconds, after)


def end(tasks):
    return max(run(tasks).ends)


def test_plain_tuples_run():
    ran = run([(("a",), ("a",), 2, ()), (("a", "b"), ("b",), 3, ()), (("a",), ("a",), 4, (1,))])
    assert (ran.starts, ran.ends, [ran.bound(task) for task in range(3)]) == ([0, 2, 5], [2, 5, 9], [None, 0, 1])


def test_a_lane_that_is_busy_at_first_is_waited_for():
    assert run([compute(1)], {COMPUTE: 5}).ends == [6]


@pytest.mark.parametrize(("f", "g", "seconds"), [(10, 6, 326), (10, 14, 458)])
def test_forward_of_sharded_weights_waits_for_the_first_gather_and_the_longer_of_both(f, g, seconds):
    """L 32 uniform layers, gathered one layer ahead: g + (L - 1)*max(f, g) + f, as the notes of PyTorch's FSDP say."""
    tasks = [call(WEIGHTS, g)]
    for layer in range(32):
        at = len(tasks)
        tasks += [call(WEIGHTS, g)] if layer < 31 else []
        tasks.append(compute(f, (at - 2 if layer else 0)))
    assert end(tasks) == seconds == g + 31 * max(f, g) + f


@pytest.mark.parametrize(
    ("f", "g", "ahead", "seconds"), [(10, 6, 0, 512), (10, 6, 1, 326), (10, 14, 1, 458), (10, 6, 3, 326)]
)
def test_as_many_layers_are_gathered_ahead_as_the_practice_says(f, g, ahead, seconds):
    x, w, y = (array(name, typed(dims)) for name, dims in (("x", "sh"), ("w", "hf"), ("y", "sf")))
    gather, product = Piece("F", (), GATHER, blocks=False), Piece("F", (Einsum((x, w), y, Where("F", "mlp", "layer")),))
    nodes = [one for at in range(0, 64, 2) for one in (Node(gather, ()), Node(product, (at,)))]
    order = list(gathered(nodes, Issue(nodes).order(), ahead, lambda _: 1))
    held = [len([one for one in order[:place] if not one % 2]) for place, at in enumerate(order) if at % 2]
    assert max(begun - at for at, begun in enumerate(held)) == ahead + 1
    action = Action(tuple(runs(nodes, order, range(0, 64, 2))))
    assert action.timed(lambda piece: g if piece.call else f).through.seconds == seconds


def bucketed(k, r, layers=32, *, blocks=False):
    segment = (Untimed((Piece(),), ()), Untimed((Piece("W", (), CALL, blocks=blocks),), ()))
    seconds = {False: k, True: r}
    return Action(((segment, layers),)).timed(lambda piece: seconds[piece.call is not None])


@pytest.mark.parametrize(("r", "exposed"), [(6, 6), (26, 212)])
def test_of_gradients_by_layer_the_last_is_exposed_or_all_that_is_longer_than_compute(r, exposed):
    """k 20, L 32: r if r <= k, else r + (L - 1)*(r - k)."""
    timed = bucketed(20, r)
    assert timed.through.seconds == 32 * 20
    assert timed.tail.seconds - timed.through.seconds == exposed


def test_gradients_of_a_layer_are_reduced_beside_the_whole_backward_of_the_layers_below_it():
    """2.4 ms of each of 48 layers, between half of a layer's backward and all of it: only the last is exposed.

    Frameworks go back layer by layer; with the products of all weights behind the whole backward of the stream it was
    34.7 ms.
    """
    answer = plan("gpt2-xl-a100-dp", overrides=("hardware.levels.nvlink.link.bandwidth=180 GB/s",))
    layer = [row for row in answer.rows if row.op == "gradient" and row.count == 48]
    one, backward = sum(row.time_s for row in layer), answer.compute.seconds["backward"] / 2 / 48
    assert backward / 2 < one < backward
    assert sum(row.exposed_s for row in layer) < one


def test_what_is_sent_again_with_a_layer_is_not_hidden_by_the_weights_of_the_layer_above():
    """Full recompute replays a layer when the one above is done: "the recomputed one beside nothing" (Korthikanti)."""
    pipeline = plan("deepseek-v3-h100").pipeline
    assert pipeline
    row = next(
        row for row in pipeline.step.told.stages[1].rows if (row.op, row.array) == ("recomputed", "dispatch.nodes")
    )
    assert row.exposed_s == pytest.approx(row.busy_s, rel=1e-9)


def test_what_a_rank_waits_for_is_not_taken_for_communication():
    """Calls that the end hangs on, of all stages, were held against what one of these does: 14 s of 37 bound a step."""
    step = plan("deepseek-v3-h100").step
    paced = sum(row.time_s * row.pulls for row in step.rows)
    assert step.compute_s + step.exposed_s < 2 * paced < step.time_s
    assert step.bound_by == "compute"


@pytest.mark.usefixtures("anew")
@pytest.mark.parametrize(
    ("name", "layers"), [("llama3-70b-h100", 80), ("gemma-7b-v5e", 28), ("llama3-8b-b200-fsdp", 32)]
)
def test_an_action_issues_its_layers_one_by_one(name, layers, monkeypatch):
    """An add to the stream stands among an action's tasks as often as there are layers, whatever is gathered ahead."""
    forwards: list[Action] = []
    _action = Actions._action

    def made(*args, **named):
        action = _action(*args, **named)
        if args[2] == "F":
            forwards.append(action)
        return action

    monkeypatch.setattr(Actions, "_action", made)
    plan(name, overrides=["recompute.base=none"])
    assert forwards
    for each in forwards:
        tasks = chain.from_iterable(segment * times for segment, times in each.runs)
        ops = chain.from_iterable(piece.ops for step in tasks for piece in step.pieces if not piece.cut)
        often = Counter(op.output for op in ops if op.where.kernel == "add.mlp")
        assert set(often.values()) == {layers}


@pytest.mark.parametrize("r", [6, 26])
def test_gradients_that_block_are_exposed_whole(r):
    assert bucketed(20, r, blocks=True).through.seconds == 32 * (20 + r)


@pytest.mark.parametrize(("gradients", "buckets", "own"), [(40, 4, 1410), (40, 1, 1440), (120, 4, 1490)])
def test_gradients_on_a_lane_of_their_own_never_delay_a_pipeline(gradients, buckets, own):
    """1F1B p 8, m 16, F 20, B + W 40, sends 0.5: buckets of the last backward run behind the sends of others."""
    schedule = pipeline_schedule("1f1b", 8, 1, 16)
    ran = pass_over(schedule, lambda action: 20 if action[0].act == "F" else 40, lambda _: 0.5, blocking=False)
    step = []
    for rank in range(8):
        start, tasks = ran.starts[rank][-1], []
        for _ in range(buckets):
            tasks += [compute(40 / buckets), call(GRADIENTS, gradients / buckets)]
        step.append(start + end(tasks))
    assert max(step) == own
    assert ran.end + gradients == {40: 1440, 120: 1520}[gradients], "one call behind the last backward"


@pytest.mark.parametrize(("beside", "seconds"), [(False, 304), (True, 196)])
def test_buckets_over_the_network_hold_no_tensor_call_of_their_layers_up(beside, seconds):
    """Twenty layers of 8 s with two calls of 0.6 s over tensor, 12 s of buckets behind every second: 184 + 12."""
    tasks = []
    for layer in range(20):
        for _half in range(2):
            tasks.append(compute(4))
            tasks.append(call(TENSOR, 0.6, len(tasks) - 1, blocks=True))
        tasks += [call(GRADIENTS, 12, len(tasks) - 1, blocks=not beside)] if layer % 2 else []
    assert end(tasks) == pytest.approx(seconds, rel=1e-12)


# Random lists of tasks: B, W and calls of three sorts, each of which may run beside compute ---------------------------

lanes = st.sampled_from([TENSOR, GRADIENTS, WEIGHTS])
seconds = st.floats(0.01, 10)
drawn = st.lists(
    st.tuples(st.one_of(st.none(), lanes), seconds, st.sets(st.integers(1, 6), max_size=2)), min_size=1, max_size=30
)


def tasks_of(drawn, beside):
    made = []
    for place, (lane, s, back) in enumerate(drawn):
        after = tuple(place - one for one in sorted(back) if place >= one)
        made.append(compute(s, *after) if lane is None else call(lane, s, *after, blocks=lane not in beside))
    return made


@given(drawn, st.sets(lanes), lanes)
def test_a_sort_beside_compute_is_never_slower_than_one_that_blocks(drawn, beside, more):
    assert end(tasks_of(drawn, beside | {more})) <= end(tasks_of(drawn, beside - {more})) + 1e-9


@given(drawn, st.sets(lanes), st.integers(0, 29), seconds)
def test_a_longer_task_ends_nothing_sooner(drawn, beside, which, more):
    tasks = tasks_of(drawn, beside)
    which %= len(tasks)
    longer = [task._replace(seconds=task.seconds + more) if at == which else task for at, task in enumerate(tasks)]
    assert all(now >= was for was, now in zip(run(tasks).ends, run(longer).ends, strict=True))


@given(drawn, st.sets(lanes))
def test_tasks_of_arrays_end_as_tasks_of_numbers(drawn, beside):
    tasks = tasks_of(drawn, beside)
    many = [task._replace(seconds=np.array([task.seconds, 2 * task.seconds])) for task in tasks]
    for number, several in zip(run(tasks).ends, run(many).ends, strict=True):
        assert several == pytest.approx([number, 2 * number], rel=1e-12)


exact = st.fractions(Fraction(1, 100), 10)
stretches = st.builds(
    lambda through, busy, tail: Timed(Length(through), Length(busy), Length(max(tail, busy))), exact, exact, exact
)


@given(stretches, st.integers(1, 6), stretches)
def test_an_action_n_times_over_is_n_of_it_in_a_row(one, n, before):
    row = before
    for _ in range(n):
        row = row.then(one)
    whole = before.then(one.times(n))
    assert (row.through.seconds, row.busy.seconds, row.tail.seconds) == (
        whole.through.seconds,
        whole.busy.seconds,
        whole.tail.seconds,
    )


# Plans ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCENARIOS)
def test_with_every_switch_none_a_step_is_compute_and_all_communication(name):
    blocking = plan(name, overrides=(NONE,)).step
    if blocking.bubble_s == 0:
        parts = blocking.compute_s + blocking.communication_s + blocking.stragglers_s
        assert blocking.time_s == pytest.approx(parts, rel=1e-12)
    assert planned(name).step.time_s <= blocking.time_s


@pytest.mark.parametrize("name", SCENARIOS)
def test_compute_exposed_bubble_and_host_are_the_step_for_every_rank(name):
    answer = planned(name)
    whole = work_of(answer.question, answer.lowered, answer.sizes, _all_rows(answer)).step()
    for stage in whole.told.stages:
        parts = stage.compute.time_s + stage.exposed_s + stage.bubble_s + stage.host_s + stage.stragglers_s
        assert parts == pytest.approx(whole.time_s, rel=1e-12)


def _all_rows(answer):
    return answer.pipeline.rows if answer.pipeline else answer.rows


@pytest.mark.parametrize(
    "name",
    [
        "llama3-70b-h100",
        "llama3-8b-b200-fsdp",
        "llama2-13b-hsdp-h100",
        "gpt3-175b-a100-tp8-sp",
        "gpt3-175b-a100-pipeline",
    ],
)
def test_the_pulls_of_a_row_lie_between_what_the_step_gains_and_loses(name):
    answer = plan(name)
    rows = _all_rows(answer)

    def step(rows):
        return work_of(answer.question, answer.lowered, answer.sizes, rows).step()

    base = step(rows)
    pulls = {id(row.call): row.pulls for stage in reversed(base.told.stages) for row in stage.rows}
    for place, row in enumerate(rows):
        if row.call.where.place == "cut":
            continue
        by = 1e-4 * row.time_s
        ends = [step([*rows[:place], _slower(row, sign * by), *rows[place + 1 :]]).time_s for sign in (-1, 1)]
        below, above = (base.time_s - ends[0]) / by, (ends[1] - base.time_s) / by
        off = 1e-9 * base.time_s / by
        assert below - off <= pulls[id(row.call)] <= above + off


def _slower(row, seconds):
    class Slower:
        def __getattr__(self, name):
            value = getattr(row.timing, name)
            return value + seconds if name == "time_s" else value

    return replace(row, timing=Slower())


def test_backward_hides_all_but_the_gathers_of_row_parallel_cotangents():
    """GPT-3 and TP 8 with sequence parallelism: B's scatters run beside W's products, and so do the gathers of W."""
    rows = {(row.array, row.phase): row for row in plan("gpt3-175b-a100-tp8-sp").rows if row.layer == "0-95"}
    bare = {
        name
        for (name, phase), row in rows.items()
        if phase == "backward" and row.op == "activation" and row.exposed_s > 0.5 * row.busy_s
    }
    assert bare == {"d.mlp.out", "d.attention.out"}
    assert all(row.hidden_s == pytest.approx(row.busy_s - row.exposed_s, abs=1e-15) for row in rows.values())


def test_gathering_ahead_and_buckets_by_layer_hide_more_than_none_and_step():
    base = "llama3-8b-b200-fsdp"
    ahead, not_ahead = (plan(base, overrides=(f"practice.ahead.layers={n}",)).step.time_s for n in (1, 0))
    assert ahead < not_ahead
    layer, step = (plan(base, overrides=(f"practice.bucket={of}",)).step.time_s for of in ("layer", "step"))
    assert layer < step


def test_links_that_two_sorts_fill_together_are_a_floor_of_the_step():
    """Gathers of weights and scatters of gradients share the network: no overlap ends before it has sent all."""
    answer = plan(SHARDED)
    network = sum(row.wires_s.get("network", 0) for row in answer.rows)
    assert answer.step.time_s == pytest.approx(network, rel=1e-12)
    assert all(row.pulls == (row.count if "network" in row.wires_s else 0) for row in answer.rows)


def test_gathers_that_backward_asks_for_late_hold_it_up_and_those_of_forward_run_beside_it():
    """PyTorch FSDP's BACKWARD_POST: as beside in forward, in backward all of a gather is waited for."""
    beside, forward, none = (
        {
            (row.call.where.act, row.call.where.block): float(row.exposed_s / (row.count * row.timing.pipelined_s))
            for row in plan("llama3-8b-b200-fsdp", overrides=[f"practice.overlap.weights={mode}"]).step.rows
            if row.call.op == "param" and row.call.per_microbatch
        }
        for mode in ("beside", "forward", "none")
    )
    acts = {act for act, _ in beside}
    assert acts == {"F", "B"}
    for (act, block), share in forward.items():
        assert share == pytest.approx({"F": beside, "B": none}[act][act, block], rel=1e-6), (act, block)
    assert (beside["B", "mlp"], none["B", "mlp"]) == (0, pytest.approx(1))
