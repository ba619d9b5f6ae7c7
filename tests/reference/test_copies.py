"""Copies of tokens on simulated devices: one for each node, or rank, that experts of a token lie on, row by row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.models import MIXTURE, mixture
from tests.reference.test_experts import CUBE, NODES, SHARED, difference, drawn, stated
from tpsim.algebra.mesh import Mesh
from tpsim.algebra.sharding import ShardingError
from tpsim.claims.trial import machine_wiring
from tpsim.fabric.placement import place
from tpsim.machine import profile
from tpsim.program import dispatch
from tpsim.program.copies import DIMS_OF, Level, parts_of
from tpsim.program.dtypes import Dtypes
from tpsim.program.frameworks import PRACTICES
from tpsim.program.layout import layout
from tpsim.program.lower import lower
from tpsim.program.op import Reshard
from tpsim.program.practice import Practice, Rows
from tpsim.reference.compare import slopes
from tpsim.reference.execute import execute
from tpsim.reference.routing import evenly, own, turned_copies, turns
from tpsim.reference.run import leaves

NODE, RANK = Level("node", ("R",)), Level("rank", ("E",))
BOTH = layout(dp=("R", "E"), ep=("R", "E"))
INSIDE = layout(dp=("R", "E"), ep=("E",))
LIMITED = mixture(groups=4, top_groups=2, shared=8, score="sigmoid", choice_bias=True)


def levelled(*levels, base=Practice(), **rows):  # noqa: B008 - frozen
    return replace(base, levels=levels, rows=Rows(**rows))


def program_of(where, practice, mesh, model=MIXTURE):
    return lower(model, where, practice, Dtypes(), Mesh(mesh).order, layers=1)


def both(where, axes, practice, choose=own, *, model=MIXTURE, b=8, s=8, wiring=None, more=None):
    """The run on devices, and that on one of the same program: as many nodes and ranks there are in both."""
    sizes = {**model.dims(sequences=b, seq=s), "m": 1, "c": b * s, **(more or {})}
    for of, parts in parts_of(practice.levels, axes):
        sizes |= dict(zip(DIMS_OF[of], (parts, b * s), strict=False))
    asked = ((where, axes, wiring), (layout(), {}, None))
    return [
        execute(program_of(at, practice, mesh, model), Mesh(mesh), sizes, leaves(sizes), choose=choose, wiring=wires)
        for at, mesh, wires in asked
    ]


def sent(run, array, row=2 * MIXTURE.hidden):
    """Of each call the rows that every rank sends to others. Nothing else is in them."""
    calls = [cause.call for cause in run.causes if cause.op.output.name == array]
    assert not any((call.injected % row).any() for call in calls)
    return [tuple(map(int, call.injected // row)) for call in calls]


# Two nodes of four ranks, eight tokens, the best two of eight experts: the ways of `stated`, by hand ----------------
#
# Token t stands on rank t. Over both nodes expert n lies on rank n:
#
#   token  experts  nodes  between the nodes     then, inside the node where the copy is
#   0      0, 1     0      -                     0: stays, 1: from 0
#   1      4, 5     1      copy 1 -> 5           4: from 5, 5: stays
#   2      2, 6     0, 1   copy 2 -> 6           2: stays, 6: stays
#   3      3, 0     0      -                     3: stays, 0: from 3
#   4      5, 1     1, 0   copy 4 -> 0           5: from 4, 1: from 0
#   5      7, 6     1      -                     7: from 5, 6: from 5
#   6      4, 7     1      -                     4: from 6, 7: from 6
#   7      0, 3     0      copy 7 -> 3           0: from 3, 3: stays

BETWEEN = (0, 1, 1, 0, 1, 0, 0, 1)
WITHIN = (2, 0, 0, 2, 1, 3, 2, 0)
BACK_WITHIN = (2, 2, 0, 0, 2, 1, 1, 2)
BACK_BETWEEN = (1, 0, 0, 1, 0, 1, 1, 0)
FLAT, FLAT_BACK = (1, 2, 1, 1, 2, 2, 2, 2), (2, 2, 0, 1, 2, 2, 2, 2)

BY_HAND = {
    "a row for each expert": (BOTH, (), {"dispatch.rows": [FLAT], "combine.rows": [FLAT_BACK]}, (6, 10)),
    "a copy for each rank": (  # which has one expert: as many as rows
        BOTH,
        (Level("rank", ("R", "E")),),
        {"dispatch.ranks": [FLAT], "dispatch.rows": [], "combine.rows": [], "combine.ranks": [FLAT_BACK]},
        (6, 10),
    ),
    "a copy for each node": (
        BOTH,
        (NODE,),
        {
            "dispatch.nodes": [BETWEEN],
            "dispatch.rows": [WITHIN],
            "combine.rows": [BACK_WITHIN],
            "combine.nodes": [BACK_BETWEEN],
        },
        (4, 10),
    ),
    "a copy for each node, then for each rank": (
        BOTH,
        (NODE, RANK),
        {
            "dispatch.nodes": [BETWEEN],
            "dispatch.ranks": [WITHIN],
            "dispatch.rows": [],
            "combine.rows": [],
            "combine.ranks": [BACK_WITHIN],
            "combine.nodes": [BACK_BETWEEN],
        },
        (4, 10),
    ),
    "a copy for each rank of a node": (  # which has two: those of tokens 0, 1 and 5 lie together, and of 0 at home
        INSIDE,
        (RANK,),
        {"dispatch.ranks": [(0, 1, 2, 2, 1, 1, 1, 2)], "combine.ranks": [(1, 2, 1, 1, 1, 1, 1, 2)]},
        (0, 10),
    ),
}
"""Name -> layout, levels, rows that every rank sends, and all rows that leave ranks between nodes and within them.

A flat exchange goes from level to level, too: a row first to the place in its node that its expert has in the other.
"""


@pytest.mark.parametrize("name", BY_HAND)
def test_copies_go_the_ways_that_are_written_by_hand(name):
    where, levels, ways, (between, within) = BY_HAND[name]
    machine = profile.load("dgx-h100")
    wires = machine_wiring(machine, place(machine.levels, Mesh(NODES), {"R": ("network",), "E": ("nvlink",)}))
    sharded, alone = both(where, NODES, levelled(*levels), stated, b=8, s=1, wiring=wires)
    assert difference(sharded, alone) < 1e-10
    assert {array: sent(sharded, array) for array in ways} == ways
    there = [cause for cause in sharded.causes if cause.op.where.act == "F" and cause.op.output.name.startswith("disp")]
    calls = [cause.call for cause in there if "h" in cause.op.output.dims]
    row = 2 * MIXTURE.hidden
    assert out_of_ranks(calls, "network") == between * row
    assert out_of_ranks(calls, "nvlink") == within * row


def out_of_ranks(calls, level):
    """Bytes on all links of a level that lead out of a rank."""
    links = [call.levels[level].links for call in calls if level in call.levels]
    return sum(size for each in links for (_, way, _), size in each.items() if way == "out")


def test_weights_of_experts_travel_with_every_copy_level_by_level():
    sharded, _ = both(BOTH, NODES, levelled(NODE), stated, b=8, s=1)
    assert sent(sharded, "dispatch.gates", row=2) == [(0, 2, 1, 0, 1, 0, 0, 2), WITHIN]


def test_counts_that_go_ahead_are_those_of_the_rows_that_come():
    """Every expert lies on the rank of its number, and every rank has a sequence."""
    choose = drawn(3)
    sharded, _ = both(BOTH, NODES, levelled(NODE, counts="exchange"), choose, more={"js": 8})
    there = [op.output for op in sharded.program.ops if op.output.name == "dispatch.counts"][-1]
    b, s, i = np.meshgrid(*(np.arange(8) for _ in "bsi"), indexing="ij")
    chosen = choose(sharded.sizes, b, s, i)
    assert (sharded.value(there)[:, SOURCES] == chosen.sum(axis=1).T).all()
    assert set(map(int, chosen.sum(axis=1).ravel())) > {0, 1, 2}


SOURCES = [0, 2, 4, 6, 1, 3, 5, 7]
"""Where the counts of each rank stand: those of its likes on both nodes side by side."""


# Any layout ------------------------------------------------------------------------------------------------------

LEVELS = {
    "node": (NODE,),
    "rank": (Level("rank", ("R", "E")),),
    "node_rank": (NODE, RANK),
    "node, then two axes": (NODE, Level("rank", ("E", "X"))),
}
LAYOUTS = {
    "over dp": (BOTH, "node_rank"),
    "one copy for each rank": (BOTH, "rank"),
    "folded over dp and tp": (
        layout(dp=("R", "E"), tp=("X",), sequence_parallel=True, ep=("R", "E", "X")),
        "node, then two axes",
    ),
    "over nodes, and what is left as rows": (
        layout(dp=("R", "E"), tp=("X",), sequence_parallel=True, ep=("R", "E", "X")),
        "node",
    ),
    "expert tensor parallel": (
        layout(dp=("R", "E"), tp=("X",), sequence_parallel=True, ep=("R", "E"), etp=("X",)),
        "node_rank",
    ),
    "expert tensor parallel, tokens on every tp rank": (
        layout(dp=("R", "E"), tp=("X",), ep=("R", "E"), etp=("X",)),
        "node",
    ),
    "over context": (layout(dp=("R",), cp=("E",), ep=("R", "E")), "node_rank"),
}
TOKENS = {"gates": "tokens"}


@pytest.mark.parametrize("name", LAYOUTS)
def test_copies_give_what_one_device_gives(name):
    where, levels = LAYOUTS[name]
    assert difference(*both(where, CUBE, levelled(*LEVELS[levels]))) < 1e-10


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_copies_for_experts_whose_states_are_sharded_give_what_one_device_gives(zero):
    where = layout(dp=("R", "E"), tp=("X",), sequence_parallel=True, ep=("R", "E"), etp=("X",), zero=zero)
    practice = levelled(NODE, RANK, base=replace(PRACTICES["megatron"], recompute=("full",)))
    assert difference(*both(where, CUBE, practice, model=SHARED)) < 1e-10


@pytest.mark.parametrize("rows", [{}, TOKENS], ids=["gates at experts", "gates at tokens"])
def test_copies_from_a_router_that_takes_groups_give_what_one_device_gives(rows):
    where, levels = LAYOUTS["over nodes, and what is left as rows"]
    sharded, alone = both(where, CUBE, levelled(*LEVELS[levels], **rows), model=LIMITED)
    assert difference(sharded, alone) < 1e-10
    assert max(one.difference for one in slopes(alone)) < 1e-6


# Loads -----------------------------------------------------------------------------------------------------------


def copies_by_counting(choose, sizes, ranks, parts):
    """Copies from each rank to each node: token by token, each node once."""
    b, s, i = np.meshgrid(*(np.arange(sizes[dim]) for dim in "bsn"), indexing="ij")
    chosen = choose(sizes, b, s, i, np.zeros(b.shape))
    found = np.zeros((ranks, parts), dtype=int)
    for sequence, token in np.ndindex(chosen.shape[:2]):
        for part in {int(expert) * parts // sizes["n"] for expert in np.flatnonzero(chosen[sequence, token])}:
            found[sequence * ranks // sizes["b"], part] += 1
    return found


@pytest.mark.parametrize("skew", [0.0, 1.5])
def test_a_drawn_routing_sends_exactly_its_own_copies(skew):
    choose = drawn(7, skew)
    sharded, alone = both(BOTH, {"R": 4, "E": 2}, levelled(NODE, RANK), choose)
    assert difference(sharded, alone) < 1e-10
    to_nodes, to_ranks = (copies_by_counting(choose, sharded.sizes, 8, parts) for parts in (4, 8))
    homes = np.arange(8) // 2
    leave = to_nodes.sum(axis=1) - to_nodes[np.arange(8), homes]
    assert sent(sharded, "dispatch.nodes") == sent(sharded, "d.combine.nodes") == [tuple(leave)]
    arrive = [sum(to_nodes[2 * node + place, home] for node in range(4) if node != home) for home, place in PLACES]
    assert sent(sharded, "combine.nodes") == sent(sharded, "d.dispatch.nodes") == [tuple(arrive)]
    beside = [sum(to_ranks[2 * node + place, 2 * home + 1 - place] for node in range(4)) for home, place in PLACES]
    assert sent(sharded, "dispatch.ranks") == [tuple(beside)]


PLACES = [(node, place) for node in range(4) for place in range(2)]
"""Of eight ranks."""


@pytest.mark.parametrize("top", [2, 3, 4])
@pytest.mark.parametrize("groups", [{}, {"gr": 4, "gt": 2}], ids=["any expert", "two groups of four"])
@pytest.mark.parametrize("parts", [{"nn": 2, "nr": 8}, {"nn": 4}])
def test_tokens_that_choose_evenly_but_apart_reach_every_node_alike(top, groups, parts):
    sizes = {"b": 4, "s": 16, "n": 16, "k": top, **groups, **parts}
    b, s, i = np.meshgrid(*(np.arange(sizes[dim]) for dim in "bsn"), indexing="ij")
    every, turn = evenly(apart=True)(sizes, b, s, i), turns(sizes)
    assert turn in {4, 8, 16}
    chosen = every.reshape(-1, turn, 16)
    assert (chosen.sum(axis=-1) == top).all()
    assert (chosen.sum(axis=1) * 16 == top * turn).all()
    for dim, many in parts.items():
        found = copies_by_counting(evenly(apart=True), sizes, 4, many)
        assert (found == 16 * turned_copies(sizes, many) / many).all(), dim
    if groups:
        assert (every.reshape(4, 16, 4, 4).max(axis=-1).sum(axis=-1) <= 2).all()


# Seen to fail ----------------------------------------------------------------------------------------------------


def test_copies_whose_first_axes_do_not_stand_last_would_be_gathered(monkeypatch):
    born = dispatch._born
    monkeypatch.setattr(dispatch, "_born", lambda *which: (born(*which)[0], born(*which)[1][::-1]))
    ops = program_of(BOTH, levelled(NODE), NODES).ops
    ways = [
        [move.kind for move in op.moves] for op in ops if op.output.name == "dispatch.nodes" and isinstance(op, Reshard)
    ]
    assert "all_gather" in ways[0]


def test_a_row_without_a_copy_of_its_token_is_found(monkeypatch):
    """A token that is not sent to one of its nodes."""
    from tpsim.reference import local_ops

    def forgetful(parts, chosen):
        found = np.array(chosen.reshape(*chosen.shape[:-1], parts, -1).max(axis=-1))
        found[0, 0] = 0
        return found

    monkeypatch.setattr(local_ops, "parts_reached", forgetful)
    with pytest.raises(ValueError, match=r"dispatch.rows\[n_R, c_E, h\]: device .* was never sent a copy of each of"):
        both(BOTH, NODES, levelled(NODE), stated, b=8, s=1)


def test_copies_for_devices_that_have_all_tokens_are_refused():
    with pytest.raises(ShardingError) as error:
        program_of(layout(dp=("R",), tp=("E",), ep=("R", "E")), levelled(NODE), NODES)
    assert str(error.value) == ("experts lie on ER, and tokens are not split over all of it: there is no copy to send")


def test_rows_that_do_not_lie_as_the_copies_that_they_were_made_of_are_refused(monkeypatch):
    monkeypatch.setattr("tpsim.program.blocks.moe.from_experts", lambda _, rows, *__: rows)
    with pytest.raises(ShardingError) as error:
        program_of(BOTH, levelled(NODE), NODES)
    assert str(error.value) == (
        "combine.nodes: experts.out[n_RE, c, h] does not lie as dispatch.nodes[nn_R, cn_E, h]; bring it back first"
    )
