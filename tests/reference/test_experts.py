"""Experts on simulated devices: numbers as on one device, and every message with the bytes of its own rows."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from tests.models import MIXTURE, mixture
from tests.program.test_experts import GATHERED, WAYS
from tpsim.algebra.mesh import Mesh
from tpsim.cost.memory import local_bytes
from tpsim.cost.sizes import Sizes
from tpsim.program.dtypes import Dtypes
from tpsim.program.frameworks import PRACTICES
from tpsim.program.layout import Layout, layout
from tpsim.program.lower import lower
from tpsim.program.op import Scale
from tpsim.program.practice import Practice, Rows
from tpsim.reference.compare import TOLERANCE, compared, slopes
from tpsim.reference.execute import elements, execute
from tpsim.reference.functions import INDEX
from tpsim.reference.routing import evenly, own
from tpsim.reference.run import leaves

CUBE = {"R": 2, "E": 2, "X": 2}
PLAIN = Practice()
EVEN = evenly()
TOKENS = Practice(rows=Rows(gates="tokens"))
BIASED = mixture(bias=True, kind="gelu", normalise=False)
SHARED = mixture(shared=8, score="sigmoid", choice_bias=True)


def drawn(seed, skew=0.0):
    """A random choice: of experts whose logits are normally distributed with standard deviation `skew`, 0 for alike."""

    def choose(sizes, b, s, i, *_):
        rng = np.random.default_rng(seed)
        liked = skew * rng.normal(size=int(sizes["n"]))
        logits = liked + rng.gumbel(size=(int(sizes["b"]), int(sizes["s"]), int(sizes["n"])))
        return np.asarray(own(sizes, b, s, i, logits)[b, s, i])

    return choose


def run(where, mesh, choose=own, *, model=MIXTURE, practice=PLAIN, b=8, s=8, rows=None, layers=1, louder=1.0):
    """rows: of an expert; none: as many as there are tokens. louder: by how much the router's weights are larger."""
    sizes = {**model.dims(sequences=b, seq=s), "m": 1, "c": rows or b * s}
    program = lower(model, where, practice, Dtypes(), Mesh(mesh).order, layers=layers)
    router = louder * leaves(sizes)("0.Wr", (sizes["h"], sizes["n"]))
    return execute(program, Mesh(mesh), sizes, leaves(sizes, {"0.Wr": router}), choose=choose)


@cache
def whole(choose=own, model=MIXTURE, practice=PLAIN, rows=None, **sizes):
    return run(layout(), {}, choose, model=model, practice=practice, rows=rows, **sizes)


def difference(sharded, alone):
    return max(one.difference for one in compared(sharded, alone))


@pytest.mark.parametrize("shared_norm", [False, True])
@pytest.mark.parametrize("sp", [False, True])
def test_experts_beside_attention_join_the_stream_though_tensor_splits_their_tokens(sp, shared_norm):
    beside = replace(MIXTURE, parallel_residual=True, shared_norm=shared_norm)
    found = run(layout(dp=("E",), tp=("X",), ep=("E",), sequence_parallel=sp), {"E": 2, "X": 2}, model=beside)
    assert difference(found, whole(model=beside)) < 1e-12


# Numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WAYS)
def test_every_way_of_rows_gives_what_one_device_gives(name):
    assert difference(run(WAYS[name][0], CUBE), whole()) < 1e-10


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_experts_whose_states_are_sharded_give_what_one_device_gives(zero):
    largest = layout(dp=("E",), cp=("R",), tp=("X",), sequence_parallel=True, ep=("E",), etp=("X",), zero=zero)
    sharded = run(largest, CUBE, model=SHARED, practice=PRACTICES["megatron"])
    assert difference(sharded, whole(model=SHARED, practice=PRACTICES["megatron"])) < 1e-10


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_states_of_experts_over_the_ranks_that_have_the_same_ones_give_what_one_device_gives(zero):
    assert difference(run(layout(dp=("R", "E"), ep=("E",), zero=zero), CUBE), whole()) < 1e-10


@pytest.mark.parametrize("recompute", [("full",), ("dispatch.rows",)], ids=["layers", "rows"])
def test_rows_that_are_recomputed_travel_again(recompute):
    again = Practice(recompute=recompute)
    sharded = run(WAYS["expert tensor parallel"][0], CUBE, practice=again)
    assert difference(sharded, whole(practice=again)) < 1e-10
    replayed = [one.op.output.name for one in sharded.causes if one.op.where.again and one.op.output.filled]
    assert replayed[:2] == ["dispatch.rows"] * 2


@pytest.mark.parametrize("seed", range(6))
def test_experts_anywhere_give_what_one_device_gives(seed):
    """Tokens, experts, what splits each, and states over any axes in any order."""
    rng = np.random.default_rng(seed)
    b, n, y = (tuple(map(str, rng.permutation(list(CUBE))[: rng.integers(0, 4)])) for _ in range(3))
    s = tuple(axis for axis in CUBE if axis not in b)[: rng.integers(0, 2)]
    table = {"*": {"b": b, "n": n, "y": tuple(axis for axis in y if axis not in n)}, "stored": {"h": b}}
    if rng.random() < 0.5:
        table |= {"residual": {"s": s}, "routed": {"b": b[: rng.integers(0, 4)], "s": s}}
    assert difference(run(Layout(table), CUBE), whole()) < 1e-10


@pytest.mark.parametrize("model", [BIASED, SHARED], ids=["biased", "shared"])
@pytest.mark.parametrize("practice", [PLAIN, TOKENS], ids=["gates at experts", "gates at tokens"])
def test_switches_of_experts_give_what_one_device_gives(model, practice):
    where = WAYS["expert tensor parallel"][0]
    assert difference(run(where, CUBE, model=model, practice=practice), whole(own, model, practice)) < 1e-10


@pytest.mark.parametrize("name", ["over part of dp", "expert tensor parallel", "tokens gathered"])
def test_what_goes_to_experts_may_have_fewer_bits_and_what_comes_back_has_not(name):
    """DeepSeek-V3 (2024, 3.3.3): tokens, and gradients of what experts make, in fp8; both sums in bf16."""
    where, narrow = WAYS[name][0], Practice(rows=Rows(dtype="fp8_128"))
    sharded, wide = run(where, CUBE, practice=narrow), run(where, CUBE)
    assert difference(sharded, whole(practice=narrow)) < 1e-10
    assert difference(wide, whole()) < 1e-10

    def sent(one):
        calls = [(cause.op.output, cause.call) for cause in one.causes if cause.op.output.filled]
        return [(x.name, x.dtype, list(call.injected)) for x, call in calls if x.name.endswith("rows")]

    there = {"dispatch.rows": Fraction(33, 64), "d.combine.rows": Fraction(33, 64)}  # of two bytes
    pairs = list(zip(sent(sharded), sent(wide), strict=True))
    assert bool(pairs) is (name != "tokens gathered")
    for (array, dtype, fewer), (_, _, more) in pairs:
        assert dtype == ("fp8_128" if array in there else "bf16")
        assert fewer == [there.get(array, 1) * size for size in more]


@pytest.mark.parametrize("model", [MIXTURE, SHARED, BIASED], ids=["softmax", "sigmoid", "not normalised"])
def test_derived_gradients_of_experts_are_the_slopes_of_the_loss(model):
    found = {one.parameter: one.difference for one in slopes(whole(own, model))}
    assert {"0.Wr", "0.W1_experts", "0.W2_experts"} <= found.keys()
    assert "0.choice_bias" not in found
    assert max(found.values()) < 1e-6


# Two nodes of four ranks, eight tokens, the best two of eight experts --------------------------------------------

NODES = {"R": 2, "E": 4}
CHOSEN = ((0, 1), (4, 5), (2, 6), (3, 0), (5, 1), (7, 6), (4, 7), (0, 3))
"""The experts of each token, which stands on the rank of its number, four ranks in a node.

By hand: over all ranks expert n lies on rank n; inside a node experts 2n and 2n + 1 lie on its rank n.
"""


def stated(_sizes, b, s, i, *_):
    """The choice above, a function of the global token."""
    table = np.array([[float(expert in chosen) for expert in range(8)] for chosen in CHOSEN])
    return table[b + 0 * s, i]


IN_NODE = (0, 2, 2, 2, 1, 2, 1, 2)
"""Rows of each token whose expert lies on another rank of its node: token 0 stands on the rank of both its experts."""

BACK_IN_NODE = (1, 2, 2, 1, 1, 1, 1, 3)
"""Rows of the experts of each rank whose token stands on another one: expert 0 has token 3's, experts 2 and 3 two."""

BY_HAND = {
    "over both nodes": (
        layout(dp=("R", "E"), ep=("R", "E")),
        {"dispatch.rows": [(1, 2, 1, 1, 2, 2, 2, 2)], "combine.rows": [(2, 2, 0, 1, 2, 2, 2, 2)]},
    ),
    "inside each node": (
        layout(dp=("R", "E"), ep=("E",)),
        {"dispatch.rows": [IN_NODE], "combine.rows": [BACK_IN_NODE]},
    ),
    "inside each node, each split over both": (
        Layout({"*": {"b": ("R", "E"), "n": ("E",), "y": ("R",)}}),
        {
            # behind the exchange ranks 0 to 3 of a node hold the rows of experts 0 1, 2 3, 4 5, 6 7, and swap all
            "dispatch.rows": [IN_NODE, (3, 2, 2, 1, 2, 1, 2, 3)],
            # of the sums each node gets those of its own tokens' rows: it sends as many as the other has
            "combine.rows": [(2, 1, 2, 3, 3, 2, 2, 1), BACK_IN_NODE],
        },
    ),
    "tokens gathered in each node": (
        GATHERED,
        {"router.in": [(3,) * 8], "combine.out": [(3,) * 8]},  # every token to three others, and the sums back
    ),
    "tokens on every rank of a node": (
        layout(dp=("R",), tp=("E",), ep=("E",)),
        {"dispatch.rows": [], "combine.out": [(6,) * 8]},  # the sum of four tokens: 2 * 3/4 * 4
    ),
}
"""Layout -> array -> of each call the rows, or tokens, that every rank sends to others."""


@pytest.mark.parametrize("name", BY_HAND)
def test_two_nodes_of_four_ranks_send_the_rows_that_are_counted_by_hand(name):
    where, ways = BY_HAND[name]
    sharded = run(where, NODES, stated, b=8, s=1)
    assert difference(sharded, whole(stated, b=8, s=1)) < 1e-10
    row = 2 * MIXTURE.hidden
    for array, expected in ways.items():
        calls = [cause.call for cause in sharded.causes if cause.op.output.name == array]
        assert [tuple(map(int, call.injected // row)) for call in calls] == expected
        assert not any((call.injected % row).any() for call in calls)


# Loads -----------------------------------------------------------------------------------------------------------


def traffic(choose, sizes, ranks):
    """Rows from each rank to each, by counting what its tokens choose: token by token, expert by expert."""
    b, s, i = np.meshgrid(*(np.arange(sizes[dim]) for dim in "bsn"), indexing="ij")
    logits = np.zeros(b.shape)
    found = np.zeros((ranks, ranks), dtype=int)
    for sequence, _, expert in np.argwhere(choose(sizes, b, s, i, logits) > 0):
        found[sequence * ranks // sizes["b"], expert * ranks // sizes["n"]] += 1
    return found


@pytest.mark.parametrize("skew", [0.0, 1.5])
def test_a_drawn_routing_sends_exactly_its_own_rows(skew):
    choose, mesh = drawn(7, skew), {"E": 4}
    sharded = run(layout(dp=("E",), ep=("E",)), mesh, choose)
    rows = traffic(choose, sharded.sizes, 4)
    others = rows - np.diag(rows.diagonal())
    calls = {cause.op.output.name: cause.call for cause in sharded.causes if cause.op.output.filled}
    row = 2 * MIXTURE.hidden
    assert list(calls["dispatch.rows"].injected) == list(row * others.sum(axis=1))
    assert list(calls["combine.rows"].injected) == list(row * others.sum(axis=0))
    assert list(calls["d.dispatch.rows"].injected) == list(row * others.sum(axis=0))
    there = next(op.output for op in sharded.program.ops if op.output.name == "experts.out")
    assert list(elements(sharded, there).values()) == list(MIXTURE.hidden * rows.sum(axis=0))
    assert difference(sharded, whole(choose)) < 1e-10
    held, peak = 2 * MIXTURE.hidden * rows.sum(axis=0), rows.sum(axis=0).max() / rows.sum(axis=0).mean()
    full = Sizes(MIXTURE.dims(sequences=8, seq=8), {"E": 4}, {}, peaks={"c": peak})
    assert local_bytes(there, full) == held.max()


def test_tokens_that_choose_evenly_leave_no_row_empty():
    sharded = run(WAYS["over part of dp"][0], CUBE, EVEN, rows=16)
    alone = whole(EVEN, rows=16)
    assert difference(sharded, alone) < 1e-10
    rows = next(op.output for op in sharded.program.ops if op.output.name == "experts.out")
    assert set(elements(sharded, rows).values()) == {4 * 8 * MIXTURE.hidden}  # 4 of 8 experts, 16 rows over R


def test_more_tokens_than_an_expert_has_rows_are_refused():
    with pytest.raises(ValueError, match=r"^\d+ tokens of part 0 choose expert \d, which has 16 rows for them$"):
        run(layout(), {}, drawn(7, 1.5), rows=16)


def test_a_dispatch_without_its_transpose_is_found(monkeypatch):
    """Combined tokens that are weighed twice are another loss: its slopes are not the derived gradients."""
    from tpsim.program import dispatch

    right = dispatch.dispatch

    def wrong(trace, name, x, chosen, *, like=None, **how):
        rows = right(trace, name, x, chosen, like=like, **how)
        return trace.lin(name, rows, scales=[Scale(0.5)]) if like else rows  # what goes forward is like nothing

    monkeypatch.setattr(dispatch, "dispatch", wrong)
    found = {one.parameter: one.difference for one in slopes(run(layout(), {}))}
    assert found["0.W2_experts"] > 0.1


@pytest.mark.parametrize("width", [1, 2, 7])
def test_a_bias_of_an_expert_that_is_split_is_added_once_whatever_the_experts_width(width):
    """Sharded runs and the one on one device would be wrong alike if it were added for every slot."""
    assert INDEX["first_slot"]({}, np.arange(width)).sum() == 1


# What rounding leaves ---------------------------------------------------------------------------------------------

ONE_EACH = replace(mixture(top=1, normalise=True), norms="both")


def least_liked(_sizes, _b, _s, _i, logits):
    return np.asarray(logits == logits.min(axis=-1, keepdims=True), dtype=np.float64)


def worst(**fault):
    """Top-1 gates are one whatever the router says, and a norm behind experts cares for no gate.

    So of cotangents nothing but rounding is left, which the router's small scores bring to ordinary sizes.
    """
    mesh, where = {"E": 2, "X": 2}, layout(dp=("E",), tp=("X",), ep=("E",), sequence_parallel=True)
    sharded = run(where, mesh, least_liked, model=ONE_EACH, louder=4.0)
    alone = whole(least_liked, ONE_EACH, louder=4.0)
    for op in sharded.program.ops:
        if op.output.name in fault:
            device = next(iter(sharded.blocks[op.output]))
            sharded.blocks[op.output][device] = sharded.blocks[op.output][device] + fault[op.output.name]
    return max(compared(sharded, alone), key=lambda one: one.difference)


def test_what_nothing_but_rounding_is_left_of_is_compared_by_how_far_it_moves(monkeypatch):
    assert worst().difference < TOLERANCE
    monkeypatch.setattr("tpsim.reference.compare.TOLERANCE", np.inf)
    left = worst()
    assert (left.difference > 1e-10, left.phase) == (True, "backward")


def test_beside_rounding_a_fault_is_seen():
    assert worst(**{"d.router.kept": 0.1}).difference > TOLERANCE
