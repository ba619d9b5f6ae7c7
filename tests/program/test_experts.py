"""Where experts lie decides what rows do: every way as an expected list, derived from the table alone."""

from __future__ import annotations

import pytest

from tests.models import MIXTURE, mixture
from tpsim.algebra.sharding import ShardingError
from tpsim.program import dispatch
from tpsim.program.dtypes import Dtypes
from tpsim.program.layout import Layout, layout
from tpsim.program.lower import ROOT, lower
from tpsim.program.op import Combine, Dispatch, Reshard
from tpsim.program.practice import Practice, Rows
from tpsim.program.trace import Trace

ORDER = ("R", "E", "X")
TOKENS = {"b": ("R", "E")}
SP = {"g": ("X",), "v": ("X",), "z": ("X",)}
GATHERED = Layout({"*": {**TOKENS, "n": ("E",)}, "routed": {"b": ("R",)}})

WAYS = {
    "over all of dp": (
        layout(dp=("E",), ep=("E",)),
        ["all_to_all_E [n, c_E, h]", "all_to_all_E [n_E, c, h]"],
        ["all_to_all_E [n, c_E, h]", "all_to_all_E [n_E, c, h]"],
        [],
    ),
    "over part of dp": (
        layout(dp=("R", "E"), ep=("E",)),
        ["all_to_all_E [n, c_RE, h]", "all_to_all_E [n_E, c_R, h]"],
        ["all_to_all_E [n, c_RE, h]", "all_to_all_E [n_E, c_R, h]"],
        ["all_reduce_R [n_E, h, y]{U_R}"],
    ),
    "folded over dp and tp": (
        layout(dp=("E",), tp=("X",), sequence_parallel=True, ep=("E", "X")),
        ["all_to_all_EX [n, c_EX, h]", "all_to_all_EX [n_EX, c, h]"],
        ["all_to_all_EX [n, c_EX, h]", "all_to_all_EX [n_EX, c, h]"],
        [],
    ),
    "expert tensor parallel": (
        layout(dp=("E",), tp=("X",), sequence_parallel=True, ep=("E",), etp=("X",)),
        [
            *("all_to_all_E [n, c_XE, h]", "all_gather_X [n_E, c_X, h]"),
            *("reduce_scatter_X [n_E, c, h]{U_X}", "all_to_all_E [n_E, c_X, h]"),
        ],
        [
            *("all_to_all_E [n, c_XE, h]", "all_gather_X [n_E, c_X, h]"),
            *("reduce_scatter_X [n_E, c, h]{U_X}", "all_to_all_E [n_E, c_X, h]"),
        ],
        [],
    ),
    "expert tensor parallel, tokens on every tp rank": (
        layout(dp=("E",), tp=("X",), ep=("E",), etp=("X",)),
        ["all_to_all_E [n, c_E, h]", "all_to_all_E [n_E, c, h]{U_X}", "all_reduce_X [b_E, s, h]{U_X}"],
        ["all_to_all_E [n, c_E, h]", "all_to_all_E [n_E, c, h]{U_X}", "all_reduce_X [b_E, s, h]{U_X}"],
        [],
    ),
    "tokens gathered": (
        GATHERED,
        ["all_gather_E [b_RE, s, h]", "reduce_scatter_E [b_R, s, h]{U_E}"],
        ["all_gather_E [b_RE, s, h]", "all_gather_E [b_R, s, i_E]", "reduce_scatter_E [b_R, s, h]{U_E}"],
        ["all_reduce_R [n_E, h, y]{U_R}"],
    ),
    "over tp": (
        layout(dp=("R",), tp=("X",), sequence_parallel=True, ep=("X",)),
        ["all_to_all_X [n, c_RX, h]", "all_to_all_X [n_X, c_R, h]"],
        ["all_to_all_X [n, c_RX, h]", "all_to_all_X [n_X, c_R, h]"],
        ["all_reduce_R [n_X, h, y]{U_R}"],
    ),
    "over tp, tokens on every rank": (
        layout(dp=("R",), tp=("X",), ep=("X",)),
        ["all_reduce_X [b_R, s, h]{U_X}"],
        ["all_gather_X [b_R, s, i_X]", "all_reduce_X [b_R, s, h]{U_X}"],
        ["all_reduce_R [n_X, h, y]{U_R}"],
    ),
    "each split over tp, none elsewhere": (
        layout(dp=("R",), tp=("X",), sequence_parallel=True, etp=("X",)),
        ["all_gather_X [n, c_RX, h]", "reduce_scatter_X [n, c_R, h]{U_X}"],
        ["all_gather_X [n, c_RX, h]", "reduce_scatter_X [n, c_R, h]{U_X}"],
        ["all_reduce_R [n, h, y_X]{U_R}"],
    ),
    "over context": (
        layout(dp=("R",), cp=("X",), ep=("X",)),
        ["all_to_all_X [n, c_RX, h]", "all_to_all_X [n_X, c_R, h]"],
        ["all_to_all_X [n, c_RX, h]", "all_to_all_X [n_X, c_R, h]"],
        ["all_reduce_R [n_X, h, y]{U_R}"],
    ),
}
"""Name of a layout -> its table, and what it sends of rows (or tokens, or gates): forward, backward, gradients."""

ROWS = ("dispatch.rows", "combine.", "router.in", "d.dispatch.rows", "d.combine.", "d.router.")


PLAIN = Practice()


def derive(where, practice=PLAIN, model=MIXTURE):
    return lower(model, where, practice, Dtypes(), ORDER, layers=1)


def sent(program, phase, names):
    return [
        f"{move.kind}_{''.join(move.axes)} {move.before}"
        for op in program.ops
        if isinstance(op, Reshard) and op.where.phase == phase and op.output.name.startswith(names)
        for move in op.moves
        if move.kind != "slice"
    ]


@pytest.mark.parametrize("name", WAYS)
def test_rows_go_the_ways_that_the_table_says(name):
    where, forward, backward, gradients = WAYS[name]
    program = derive(where)
    assert sent(program, "forward", ROWS) == forward
    assert sent(program, "backward", ROWS) == backward
    assert sent(program, "backward", ("grad.W1_experts",)) == gradients
    assert all(op.because for op in program.ops if isinstance(op, Reshard) and op.moves and op.output.filled)


@pytest.mark.parametrize("gates", ["experts", "tokens"])
@pytest.mark.parametrize("name", WAYS)
def test_a_bias_of_experts_settles_nothing_and_moves_nothing(name, gates):
    """Each of the devices that split an expert adds its part of it, as torchtitan does (gpt_oss/moe.py)."""
    practice, names = Practice(rows=Rows(gates=gates)), (*ROWS, "experts.", "d.experts.")
    plain, biased = (derive(WAYS[name][0], practice, mixture(bias=bias)) for bias in (False, True))
    for phase in ("forward", "backward"):
        assert sent(biased, phase, names) == sent(plain, phase, names)


def test_gates_travel_with_their_rows_unless_they_are_applied_where_tokens_are():
    where = WAYS["over all of dp"][0]
    assert sent(derive(where), "forward", ("dispatch.gates",)) == ["all_to_all_E [n, c_E]"]
    assert sent(derive(where), "backward", ("d.dispatch.gates",)) == ["all_to_all_E [n_E, c]"]
    tokens = derive(where, Practice(rows=Rows(gates="tokens")))
    assert sent(tokens, "forward", ("dispatch.gates",)) == sent(tokens, "backward", ("d.dispatch.gates",)) == []


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_zero_shards_experts_over_the_data_axes_that_they_do_not_lie_on(zero):
    program = derive(layout(dp=("R", "E"), ep=("E",), zero=zero))
    weights = [op for op in program.ops if isinstance(op, Reshard) and op.output.dims == ("n", "h", "y")]
    ways = {(op.where.phase, move.kind, str(move.before)) for op in weights for move in op.moves}
    home = ("update", "all_gather", "[n_E, h_R, y]") if zero < 3 else ("forward", "all_gather", "[n_E, h_R, y]")
    reduced = ("update" if zero == 1 else "backward", "reduce_scatter", "[n_E, h, y]{U_R}")
    assert {way for way in ways if way[1] != "slice"} == {reduced, home}
    assert str(program.results["new.0.W1_experts"].type) == ("[n_E, h_R, y]" if zero == 3 else "[n_E, h, y]")


def test_what_all_tokens_share_owes_over_tp_and_joins_in_the_stream():
    program = derive(WAYS["folded over dp and tp"][0], model=mixture(shared=8))
    assert sent(program, "forward", ("shared.",)) == ["all_gather_X [b_E, s_X, h]", "reduce_scatter_X [b_E, s, h]{U_X}"]
    alike = derive(layout(dp=("R",), tp=("X",), ep=("X",)), model=mixture(shared=8))
    assert sent(alike, "forward", ("shared.", "combine.", "experts.")) == ["all_reduce_X [b_R, s, h]{U_X}"]


def test_dispatch_and_combine_are_each_others_transposes():
    program = derive(WAYS["over part of dp"][0])
    rows = [op for op in program.ops if isinstance(op, Dispatch | Combine)]
    kinds = [(op.where.phase, type(op).__name__, op.output.name) for op in rows]
    assert kinds == [
        ("forward", "Dispatch", "dispatch.rows"),
        ("forward", "Dispatch", "dispatch.gates"),
        ("forward", "Combine", "combine.out"),
        ("backward", "Dispatch", "d.combine.rows"),
        ("backward", "Combine", "d.router.gates"),
        ("backward", "Combine", "d.router.in"),
    ]


def test_rows_whose_home_axes_do_not_stand_last_would_be_gathered_first(monkeypatch):
    born = dispatch._born
    monkeypatch.setattr(dispatch, "_born", lambda *which: (born(*which)[0], born(*which)[1][::-1]))
    ways = sent(derive(WAYS["over part of dp"][0]), "forward", ROWS)
    assert ways != WAYS["over part of dp"][1]
    assert "all_gather_R [n, c_ER, h]" in ways


def test_split_router_scores_are_refused_with_the_remedy():
    with pytest.raises(ShardingError) as error:
        derive(Layout({"*": {"b": ("R",), "n": ("X",)}, "routed": {"i": ("X",)}}))
    assert str(error.value) == (
        "router.logits[b_R, s, i_X] is split on i over X: a choice needs all scores; gather them"
    )


def test_rows_that_do_not_lie_as_their_tokens_are_refused():
    trace = Trace(layout(dp=("R",), ep=("R",)), ORDER, ROOT)
    scores = trace.leaf("scores", ("b", "s", "i"), "routed", "bf16", "activation")
    chosen = dispatch.choice(trace, scores)
    x = trace.leaf("x", ("b", "s", "h"), "routed", "bf16", "activation")
    rows = dispatch.to_experts(trace, dispatch.dispatch(trace, "rows", x, chosen), "rows")
    with pytest.raises(ShardingError) as error:
        dispatch.combine(trace, "out", rows, chosen, x)
    assert str(error.value) == "out: rows[n_R, c, h] does not lie as its tokens [b_R, s, i]; bring it back first"
