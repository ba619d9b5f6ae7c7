"""`verify` of one expression: every way of `shard` runs, and what is said of it is what devices did."""

from __future__ import annotations

import pytest

from tpsim.algebra import moves
from tpsim.algebra.notation import NotationError
from tpsim.claims.verify_expression import verify_expression
from tpsim.machine import algorithms
from tpsim.quantity.errors import InputError

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
    assert ({"collectives", "formulas"} <= set(seen)) == (run.calls > 0)
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
    assert (run.ok, run.devices, run.calls) == (True, 1, 0)


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
    assert run.calls == 3, "one all-reduce, or two gathers"


def test_a_wrong_factor_is_seen_with_the_way_and_the_move(monkeypatch):
    monkeypatch.setitem(moves.WIRE, "all_to_all", moves.over)
    found = failing("A[I_X,J] -> A[I,J_X]", "X=4")
    assert found == {
        "collectives": "all_to_all, all_to_all over X of A: wire planned 32 B, counted 24 B",
        "formulas": "all_to_all, all_to_all over X of A: 2*I*J/X is 32, counted 24",
    }


def test_a_wrong_closed_form_of_the_links_is_seen(monkeypatch):
    monkeypatch.setitem(algorithms.FORMS["line"], "all_gather", {"line": algorithms.ring_gather})
    found = failing("A[I_X] -> A[I]", "X=4", hw="tpu-v5e")
    assert "all_gather over X of A, line: steps claimed 2, counted 3" in found["links"]


def test_an_expression_that_says_something_illegal_is_refused_as_shard_refuses_it():
    with pytest.raises(NotationError, match="no move makes an array owe over X"):
        verify_expression("A[I] . B[J] -> C[I,J]{U_X}")


@pytest.mark.parametrize(
    ("args", "options", "text"),
    [
        (("A[I_X]", "X=128"), {}, "error[too-large]: a mesh of 128 devices is too large to run"),
        (("A[I] . B[I]",), {"dims": "I=33554432"}, "error[too-large]: I 33554432 is too much to run"),
        (("A[I_X]",), {"placement": "X=ici.0"}, "error[missing-machine]: a placement needs a machine"),
    ],
)
def test_what_cannot_be_run_is_refused_with_a_remedy(args, options, text):
    with pytest.raises(InputError) as error:
        verify_expression(*args, **options)
    assert str(error.value).splitlines()[0] == text
    assert error.value.problems[0].remedy
