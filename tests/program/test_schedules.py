"""Schedules are orders: what makes one legal, what is refused, and that their names stand in one file."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpsim.program.legal_orders import checked
from tpsim.program.schedules import LATER, SCHEDULES, Pass, PipelineSchedule, pipeline_schedule
from tpsim.quantity.errors import InputError

ROOT = Path(__file__).parents[2]


@st.composite
def asked(draw):
    """A schedule's name with ranks, chunks and microbatches that suit it."""
    name, p = draw(st.sampled_from(sorted(SCHEDULES))), draw(st.integers(1, 6))
    several = SCHEDULES[name].several
    v = draw(st.integers(2, 3)) if several else 1
    m = p * draw(st.integers(1, 4)) if several else draw(st.integers(1, 20))
    return name, p, v, m


@given(asked())
def test_every_order_can_be_run_and_has_every_pass_of_its_rank_once(one):
    name, p, v, m = one
    made = pipeline_schedule(name, p, v, m)
    for rank, order in enumerate(made.orders):
        passes = [part for action in order for part in action]
        due = {Pass(act, chunk * p + rank, j) for act in "FBW" for chunk in range(v) for j in range(m)}
        assert len(passes) == len(due)
        assert set(passes) == due
    assert checked(made) is made


def moved(schedule, rank, old, new):
    """The same schedule with one action of a rank at another place."""
    orders = [list(order) for order in schedule.orders]
    orders[rank].insert(new, orders[rank].pop(old))
    return PipelineSchedule(schedule.name, schedule.chunks, schedule.microbatches, tuple(map(tuple, orders)))


def refusal(schedule):
    with pytest.raises(InputError) as error:
        checked(schedule)
    return str(error.value)


LEGAL = pipeline_schedule("zb-h1", 2, 1, 3)
ORDER = [str(action[0]).replace(" of chunk 1, microbatch ", "") for action in LEGAL.orders[1]]


@pytest.mark.parametrize(
    ("rank", "old", "new", "said"),
    [
        (
            1,
            ORDER.index("B0"),
            0,
            "B of chunk 1, microbatch 0, action 0 of rank 1, comes before F of chunk 1, microbatch 0",
        ),
        (
            1,
            ORDER.index("W0"),
            0,
            "W of chunk 1, microbatch 0, action 0 of rank 1, comes before B of chunk 1, microbatch 0",
        ),
        (1, ORDER.index("W1"), ORDER.index("W0"), "comes before W of chunk 1, microbatch 0"),
        (
            1,
            ORDER.index("F1"),
            0,
            "rank 1 wants the message of F of chunk 0, microbatch 1 where rank 0 sends that of F of chunk 0, micro",
        ),
    ],
    ids=["backward before forward", "weights before backward", "weights out of order", "messages out of order"],
)
def test_an_order_that_cannot_be_run_is_refused_with_its_first_offending_action(rank, old, new, said):
    assert said in refusal(moved(LEGAL, rank, old, new))


def test_a_pass_that_is_missing_comes_twice_or_is_another_ranks_is_refused():
    first, second = LEGAL.orders
    for orders, said in [
        ((first, second[:-1]), "W of chunk 1, microbatch 2 is missing on rank 1"),
        ((first, (*second, second[-1])), "comes twice"),
        ((first, first), "F of chunk 0, microbatch 0, action 0 of rank 1, belongs to rank 0"),
        ((first, ((Pass("F", 9, 0),), *second)), "is none of this pipeline's"),
    ]:
        assert said in refusal(PipelineSchedule("mine", 1, 3, orders))


def test_interleaving_refuses_microbatches_that_are_no_multiple_of_the_stages():
    with pytest.raises(InputError) as error:
        pipeline_schedule("interleaved", 4, 2, 6)
    assert str(error.value) == (
        "error[microbatches-not-divisible]: 6 microbatches are not divisible by 4 stages: "
        "this schedule takes as many at a time\n"
        "  = write a multiple of 4"
    )


def named(path, names):
    """The strings of a file, but for docstrings, that are the name of a schedule."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docs
            and node.value in names
        ):
            yield f"{path.name}:{node.lineno} {node.value}"


def test_the_name_of_a_schedule_stands_in_the_registry_and_nowhere_else():
    names = {*SCHEDULES, *LATER}
    files = [path for path in (ROOT / "tpsim").rglob("*.py") if path.name != "schedules.py"]
    assert [found for path in files for found in named(path, names)] == []
    assert {found.split()[1] for found in named(ROOT / "tpsim" / "program" / "schedules.py", names)} == names


def test_actions_are_alike_that_differ_in_microbatches_between_the_first_and_the_last_and_in_nothing_else():
    def action(*parts):
        return tuple(Pass(*part) for part in parts)

    orders = (
        action(("F", 0, 0)),
        action(("F", 0, 1)),
        action(("F", 0, 2)),
        action(("F", 0, 3)),
        action(("B", 0, 1), ("W", 0, 1)),
        action(("B", 0, 2), ("W", 0, 2)),
        action(("F", 0, 1), ("B", 1, 1), ("W", 0, 1)),
        action(("F", 0, 1), ("B", 2, 1), ("W", 0, 1)),
        action(("F", 0, 2), ("B", 2, 2), ("W", 0, 2)),
    )
    assert PipelineSchedule("drawn", 1, 4, (orders,)).kinds.of == [[0, 1, 1, 2, 3, 3, 4, 5, 5]]


@pytest.mark.parametrize("name", SCHEDULES)
def test_more_passes_than_are_run_one_by_one_are_refused_before_any_order_is_made(name):
    """100,000 microbatches of 126 stages took 37 s until they were refused; these would take forever."""
    v = 2 if SCHEDULES[name].several else 1
    assert sum(map(len, pipeline_schedule(name, 4, v, 8).orders)) >= 4 * v * 8  # no action has two passes forward
    with pytest.raises(InputError) as error:
        pipeline_schedule(name, 126, 1, 126 * 10**15)
    (problem,) = error.value.problems
    assert problem.slug == "too-many-actions"
    assert problem.message.startswith("15,876,000,000,000,000,000 passes forward alone are more than the 300,000")
