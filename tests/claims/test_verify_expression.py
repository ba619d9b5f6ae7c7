"""`verify` of one expression: every way of `shard` runs, and what is said of it is what devices did."""

from __future__ import annotations

import re
import tracemalloc

import pytest

from tpsim.algebra import moves
from tpsim.algebra.notation import NotationError
from tpsim.answers.shard import shard
from tpsim.claims import claims
from tpsim.claims import verify_expression as module
from tpsim.claims.verify import verify
from tpsim.claims.verify_expression import verify_expression
from tpsim.machine import algorithms, forms
from tpsim.quantity.errors import InputError

WIDE = "A[B,J_X] . B[B,J,K_Y,L_X] -> C[B_YXZ,L,K]"
"""A product of large arrays, with a dozen ways to it."""

EXPRESSIONS = [
    "A[I_X,J] . B[J,K] -> C[I,K]",
    "A[I,J_X] . B[J,K] -> C[I,K]",
    "A[I,J_X] . B[J_X,K] -> C[I,K]",
    "A[I,J_X] . B[J_X,K] -> C[I_X,K]",
    "A[I_X,J] . B[J,K_X] -> C[I,K_X]",
    "A[I_X,J_Y] . B[J_Y,K] -> C[I_X,K_Y]",
    "A[I_Y,J_X] . B[J_X,K_Y]",
    "A[B,I_X,J] . B[B,J,K_Y] -> C[B,I_X,K_Y]",
    "A[I,J]{U_X} . B[J,K_Y]",
    "A[I,J]{U_X} . B[J,K]{U_X}",
    "A[I,J]{U_X} . B[J_X,K] -> C[I,K]{U_X}",
    "A[I,J]{U_Y} . B[J,K_Y] -> C[I_Y,K]{U_X}",
    "A[I,J]{M_X} . B[J,K_X] -> C[I,K]",
    "A[I,J] . B[J_X,K] -> C[I,K]{U_X}",
    "A[I,J] . B[J,K] -> C[I,K]{U_XY}",
    "A[I,J]{U_X} -> A[I_X,J]",
    "A[I,J]{U_XY} -> A[I,J]",
    "A[I,J]{M_X} -> A[I,J]",
    "A[I_X,J] -> A[I,J_X]",
    "A[I_XY] -> A[I_X]",
    "A[I_XY] -> A[I_YX]",
    "A[I_X,J_Y] -> A[I,J]",
    "A[I_Y,J_X] -> A[I,J]",
    "A[I,J]{U_XY} -> A[I_X,J_Y]",
    "A[J_Y,I,K_X]{U_Z} -> A[J,I_Z,K]",
    "A[I] -> A[I_X]",
    "A[I_XY,J]",
]


def failing(*args, **options):
    (run,) = verify_expression(*args, **options).runs
    return {check.check: check.detail for check in run.failed}


@pytest.mark.parametrize("machine", [None, "dgx-h100", "tpu-v5p"])
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_way_to_an_expression_runs_as_claimed(expression, machine):
    result = verify_expression(expression, "X=4,Y=2,Z=2" if "Z" in expression else "X=4,Y=2", hw=machine)
    (run,) = result.runs
    names = ["values", "blocks", "collectives", "links", "formulas"]
    seen = [check.check for check in run.checks]
    assert seen == [name for name in names if name in seen]
    assert ({"collectives", "formulas"} <= set(seen)) == (run.collectives > 0)
    assert machine or "links" not in seen
    assert result.ok, result.verdict
    assert run.difference < 1e-12


def test_dims_are_the_least_that_every_way_divides_unless_given():
    (least,) = verify_expression("A[I_X,J] . B[J,K_X] -> C[I,K]", "X=3").runs
    assert least.dims == {"I": 6, "J": 6, "K": 6}
    (given,) = verify_expression("A[I_X,J] . B[J,K_X] -> C[I,K]", "X=3", dims="I=9,J=1,K=3").runs
    assert given.dims == {"I": 9, "J": 1, "K": 3}


def test_an_axis_of_one_device_sends_nothing():
    (run,) = verify_expression("A[I_X,J] -> A[I,J]", "X=1").runs
    assert (run.ok, run.devices, run.collectives) == (True, 1, 0)


def test_a_check_with_nothing_to_check_is_not_said_to_hold():
    result = verify_expression("A[I,J_X] . B[J_X,K]")
    assert [(check.check, check.detail) for check in result.runs[0].checks] == [
        ("values", "1 array as on one device, relative differences below 1e-12")
    ]
    assert result.verdict == (
        "A[I,J_X] . B[J_X,K]: its check holds; 1 array as on one device with differences below 1e-12, "
        "no collective calls"
    )


def test_an_array_that_is_the_result_is_one_array():
    (run,) = verify_expression("A[I_X,J] -> A[I,J]", "X=4").runs
    assert run.arrays == 1
    assert run.checks[1].detail == "4 blocks of 1 array, each the one that its type declares"


def test_every_way_is_run_not_only_the_cheapest():
    (run,) = verify_expression("A[I,J_X] . B[J_X,K] -> C[I,K]", "X=4").runs
    assert run.collectives == 3, "one all-reduce, or two gathers"


def test_a_wrong_factor_is_seen_with_the_way_and_the_move(monkeypatch):
    monkeypatch.setitem(moves.WIRE, "all_to_all", moves.over)
    found = failing("A[I_X,J] -> A[I,J_X]", "X=4")
    assert found == {
        "collectives": "all_to_all, all_to_all over X of A: wire planned 32 B, counted 24 B",
        "formulas": "all_to_all, all_to_all over X of A: 2*I*J/X is 32, counted 24",
    }


def test_a_wrong_closed_form_of_the_links_is_seen(monkeypatch):
    monkeypatch.setitem(algorithms.FORMS["line"], "all_gather", {"line": forms.ring_gather})
    found = failing("A[I_X] -> A[I]", "X=4", hw="tpu-v5e")
    assert "all_gather over X of A, line: steps claimed 2, counted 3" in found["links"]


def test_scenarios_and_expressions_are_held_by_one_checker(monkeypatch):
    claimed = claims.Claim.measures.fget

    def dearer(claim):
        yield from ((what, bytes_ + 1, measure) for what, bytes_, measure in claimed(claim))

    monkeypatch.setattr(claims.Claim, "measures", property(dearer))
    (scenario,) = verify("gpt3-175b-a100-tp8").runs
    (expression,) = verify_expression("A[I_X,J] -> A[I,J]", "X=4").runs
    for run in (scenario, expression):
        assert [check.check for check in run.failed] == ["collectives"]
    assert "of A: wire planned 25 B, counted 24 B" in expression.failed[0].detail


def test_an_expression_that_says_something_illegal_is_refused_as_shard_refuses_it():
    with pytest.raises(NotationError, match="no move makes an array owe over X"):
        verify_expression("A[I] . B[J] -> C[I,J]{U_X}")


NO_DIMS = "leave --dims out: the least sizes show the same"


@pytest.mark.parametrize(
    ("args", "options", "message", "remedy"),
    [
        (("A[I_X]", "X=128"), {}, "a mesh of 128 devices is too large to run", "take fewer devices: --mesh X=4"),
        (
            ("A[I_X,J] -> A[I,J]", "X=8,Y=16"),
            {"dims": "I=8,J=8"},
            "a mesh of 128 devices is too large to run",
            "take fewer devices without --dims: --mesh X=8,Y=4",
        ),
        (("A[I] . B[I]",), {"dims": "I=33554432"}, "I 33554432 is too much to run", NO_DIMS),
        (
            ("A[I]{U_XYZ} -> A[I]", "X=4,Y=4,Z=4"),
            {"dims": "I=16777216"},
            "64 devices would take 42.9 GB on the way all_reduce, of 1.1 that are allowed",
            NO_DIMS,
        ),
    ],
)
def test_what_is_too_large_is_refused_with_a_smaller_question(args, options, message, remedy):
    with pytest.raises(InputError) as error:
        verify_expression(*args, **options)
    assert str(error.value) == f"error[too-large]: {message}\n  = {remedy}"


def test_a_way_that_takes_too_much_at_the_least_sizes_is_refused_with_a_mesh_that_does_not():
    with pytest.raises(InputError) as error:
        verify_expression(WIDE, "X=6,Y=2,Z=3")
    (problem,) = error.value.problems
    assert re.fullmatch(r"36 devices would take [0-9.]+ GB on the way .+, of 1\.1 that are allowed", problem.message)
    smaller = re.fullmatch(r"take fewer devices: --mesh (X=\d,Y=2,Z=\d)", problem.remedy)
    module.refuse_sizes(shard(WIDE, smaller[1], dims=module._least_dims(shard(WIDE, smaller[1]))))


@pytest.mark.parametrize(
    ("expression", "mesh", "dims"),
    [
        (WIDE, "X=2,Y=2,Z=3", "B=24,J=24,K=24,L=24"),
        ("A[I_X,J] -> A[I,J_X]", "X=16", "I=256,J=256"),
        ("A[I_XY,J] -> A[I_YX,J]", "X=4,Y=4", "I=256,J=256"),
        ("A[I,J]{U_X} -> A[I,J]", "X=16", "I=256,J=256"),
        ("A[I_X,J] . B[J,K_X] -> C[I,K]", "X=16", "I=256,J=256,K=128"),
    ],
)
def test_what_is_held_to_be_taken_is_what_a_run_takes(expression, mesh, dims):
    asked = shard(expression, mesh, dims=dims)
    for way in asked.alternatives:
        claimed = 8 * module._elements(asked, way)
        tracemalloc.start()
        module._run(asked, way)
        taken = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert 0.6 * claimed < taken < 1.5 * claimed, way


def test_one_way_is_held_at_a_time():
    mesh, dims = "X=2,Y=2,Z=3", "B=12,J=24,K=24,L=24"
    tracemalloc.start()
    result = verify_expression(WIDE, mesh, dims=dims)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    asked = shard(WIDE, mesh, dims=dims)
    most = [8 * module._elements(asked, way) for way in asked.alternatives]
    assert result.ok
    assert taken < 1.4 * max(most) < sum(most) / 2


@pytest.mark.parametrize(
    "expression", ["A[I_XY,J] -> A[I_YX,J]", "A[I_Y,J] -> A[I_XY,J]", "A[I_X,J]{U_Y} -> A[I_YX,J]"]
)
@pytest.mark.parametrize("mesh", ["X=1,Y=3", "X=2,Y=1"])
def test_an_axis_of_one_device_makes_no_shards_change_places(expression, mesh):
    assert verify_expression(expression, mesh).ok
    assert "permute" not in [step.op for step in shard(expression, mesh).steps]


def test_a_placement_without_a_machine_is_refused():
    with pytest.raises(InputError, match="a placement needs a machine") as error:
        verify_expression("A[I_X]", placement="X=ici.0")
    assert error.value.problems[0].remedy
