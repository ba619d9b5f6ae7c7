"""A stack cut into stages: what is sent, what is shared, and that one traced layer and cut stand for all of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.models import GEMMA, GPT, LLAMA, NEOX, QWEN
from tests.program.test_schedules import asked
from tpsim.program.dtypes import Dtypes
from tpsim.program.frameworks import PRACTICES
from tpsim.program.layout import layout
from tpsim.program.lifetimes import lifetimes
from tpsim.program.lower import lower
from tpsim.program.op import Join, Lin, Reshard
from tpsim.program.schedules import pipeline_schedule
from tpsim.program.stages import balanced, even, linear, nearly_even, stated
from tpsim.quantity.errors import InputError
from tpsim.question.memo import one_cut
from tpsim.reference.ranks import Ranks

ORDER = ("pipe", "D", "X")


UNCLIPPED = replace(PRACTICES["megatron"], clip="none")


def traced(model, split, practice=UNCLIPPED, microbatches=1, **chosen):
    """The program of a stack cut into chunks of so many layers."""
    laid = layout(tp=("X",), dp=("D",), pp=("pipe",), **chosen)
    return lower(model, laid, practice, Dtypes(), ORDER, layers=split, microbatches=microbatches)


def key(op):
    """What an op is, but for which layer and chunk it stands in, and what stands before and behind these."""
    where, out = op.where, op.output
    moves = [(move.kind, move.axes, str(move.before), str(move.after)) for move in getattr(op, "moves", ())]
    inputs = tuple((edge(x.name), str(x.type)) for x in op.inputs)
    here = (where.act, where.place, where.kind, where.block, where.kernel, where.again)
    return (type(op).__name__, *here, edge(out.name), str(out.type), out.dtype, inputs, str(moves))


EDGES = {"layer.in", "head.edge", "cut.in", "cut.out", "embedding.out", "embedding.sum", "residual"}


def edge(name):
    """The stream between two parts of the stack bears the name of either of them."""
    return "d.edge" if name.removeprefix("d.") in EDGES and name.startswith("d.") else "edge" if name in EDGES else name


def sender(op):
    """The chunk that sends at a cut: the one before that which receives, or the one behind it."""
    return op.where.chunks[0] + (-1 if op.where.act == "F" else 1)


def many(program):
    """The ops but sums of single numbers, of which a rank that clips has as many as chunks."""
    return (op for op in program.ops if not (op.where.block == "clip" and isinstance(op, Lin | Join)))


def ran(program, stages, rank):
    """The ops of a rank in a program that is traced chunk by chunk."""
    for op in many(program):
        chunks = (sender(op),) if op.where.place == "cut" else op.where.chunks
        if any(stages.chunks[chunk].rank == rank for chunk in chunks):
            yield key(op)


def claimed(program, stages, rank):
    """The same by the program of one layer and one cut, multiplied."""
    counts = Counter()
    for op in many(program):
        counts[key(op)] += stages.count(op.where, rank)
    return +counts


def times(program, stages, rank, microbatches):
    """The same, per microbatch where it stands in one."""
    inside = [op for op in program.ops if op.where.index("microbatches") is not None]
    counts = claimed(replace(program, ops=tuple(inside)), stages, rank)
    return Counter({one: count * microbatches for one, count in counts.items()})


@st.composite
def stacks(draw):
    """The layers of each chunk on some ranks: alike or not, the first and the last chunk with layers or without."""
    p, v = draw(st.integers(2, 4)), draw(st.integers(1, 2))
    ends, inside = st.integers(0, 2), st.lists(st.integers(1, 2), min_size=p * v - 2, max_size=p * v - 2)
    split = (draw(ends), *draw(inside), draw(ends))
    return (split if any(split) else (1, *split[1:])), p


CUTS = [{}, {"s": ("X",)}, {"h": ("X",)}, {"s": (), "h": ("X",)}]
layouts = st.fixed_dictionaries(
    {"zero": st.integers(0, 3), "sequence_parallel": st.booleans(), "cut": st.sampled_from(CUTS)}
)
models = st.sampled_from([GPT, LLAMA, NEOX, QWEN, GEMMA])
practices = st.builds(
    lambda base, dropped, n: replace(base, recompute=dropped, recompute_layers=n),
    st.sampled_from(list(PRACTICES.values())),
    st.sampled_from([(), ("full",)]),
    st.sampled_from([None, 1, 2]),
)


@settings(max_examples=6)
@given(models, practices, layouts, stacks())
def test_one_traced_layer_and_cut_stand_for_every_rank_op_by_op(model, practice, chosen, stack):
    split, p = stack
    whole, one = traced(model, split, practice, **chosen), traced(model, one_cut(practice), practice, **chosen)
    stages = linear(split, p, practice)
    for rank in range(p):
        assert Counter(ran(whole, stages, rank)) == claimed(one, stages, rank)


@settings(max_examples=6)
@given(models, practices, layouts, st.data())
def test_ranks_that_follow_a_schedule_run_what_one_traced_layer_and_cut_claim(model, practice, chosen, data):
    name, p, v, m = data.draw(asked().filter(lambda one: 1 < one[1] < 5 and one[3] < 5))
    split = data.draw(st.tuples(*[st.integers(1, 2)] * (p * v)))
    whole = traced(model, split, practice, microbatches=m, **chosen)
    stages, one = linear(split, p, practice), traced(model, one_cut(practice), practice, **chosen)
    done, schedule = defaultdict(Counter), pipeline_schedule(name, p, v, m)
    arrived, ended = Counter(), Counter()

    def run(op):
        for rank in {chunk % p for chunk in op.where.chunks}:
            done[rank][key(op)] += op.where.index("microbatches") is not None

    def post(cut):
        done[sender(cut) % p][key(cut)] += 1
        return {"from": cut}

    def take(cut, blocks):
        arrived[blocks["from"] is cut, cut] += 1

    def end(rank):
        ended[rank] += 1

    Ranks(whole, schedule, lifetimes(whole).turns, run, post, take, end).run()
    for rank in range(p):
        assert +done[rank] == times(one, stages, rank, m)
        assert ended[rank] == len(schedule.orders[rank])
    cuts = [op for op in lifetimes(whole).turns if op.where.place == "cut"]
    assert arrived == Counter((True, cut) for cut in cuts)


def test_every_cut_is_sent_over_once_each_way_and_nothing_else_is():
    program = traced(GPT, (1, 2, 1))
    sends = [op for op in program.ops if isinstance(op, Reshard) and [m.kind for m in op.moves] == ["send"]]
    assert [(op.where.act, sender(op), *op.where.chunks, op.output.name) for op in sends] == [
        ("F", 0, 1, "cut.out"),
        ("F", 1, 2, "cut.out"),
        ("B", 2, 1, "d.cut.out"),
        ("B", 1, 0, "d.cut.out"),
    ]
    assert {op.where.place for op in sends} == {"cut"}


@pytest.mark.parametrize(("zero", "shards"), [(0, ""), (1, "D"), (3, "D")])
def test_a_tied_embedding_owes_its_gradient_over_the_first_and_the_last_stage(zero, shards):
    program = traced(GPT, (1, 1, 1), zero=zero)
    (joined,) = (op for op in program.ops if isinstance(op, Join))
    assert joined.where.chunks == (0, 2)
    assert joined.output.type.owes == {("pipe", "sum")}
    assert ("D" in joined.output.type.sharded_axes) == bool(shards)
    paid = [op for op in program.ops if joined.output in op.inputs]
    assert [(move.kind, move.axes, move.members) for op in paid for move in op.moves] == [("all_reduce", ("pipe",), 2)]


def test_an_embedding_of_its_own_is_shared_with_nobody():
    untied = replace(GPT, tie_embeddings=False)
    assert not [op for op in traced(untied, (1, 1)).ops if isinstance(op, Join)]
    assert not [op for op in traced(GPT, (2,)).ops if isinstance(op, Join)]  # one stage has both ends


def test_backward_between_two_messages_is_told_apart():
    acts = {op.where.act for op in traced(GPT, (1, 1)).ops if op.where.place == "layer"}
    assert acts == {"F", "B", "W", "U"}
    sent_back = {op.where.act for op in traced(GPT, (1, 1)).ops if op.output.name == "d.cut.out"}
    assert sent_back == {"B"}


def test_chunks_lie_on_the_ranks_in_turn():
    stages = linear(even(16, 4, 2), 4)
    assert [chunk.rank for chunk in stages.chunks] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert {chunk.layers for chunk in stages.chunks} == {2}
    assert [(k, chunk.first, chunk.last) for k, chunk in enumerate(stages.chunks) if chunk.first or chunk.last] == [
        (0, True, False),
        (7, False, True),
    ]


def test_a_split_that_is_not_even_is_refused_with_the_stages_that_would_do():
    with pytest.raises(InputError) as error:
        even(12, 5, 1)
    assert str(error.value) == (
        "error[layers-not-divisible]: 12 layers cannot be split evenly over 5 stages\n"
        "  = stages that would do: 1, 2, 3, 4, 6, 12\n"
        "  = or pipeline.layers: nearly-even, balanced, or a list of 5 numbers"
    )
    with pytest.raises(InputError, match=r"  = stages that would do: 1, 2, 4, 8$"):  # none suits
        even(8, 16, 1)
    with pytest.raises(InputError, match="over 3 stages of 3 chunks each\n  = stages that would do: 1, 2, 4\n"):
        even(12, 3, 3)
    with pytest.raises(InputError, match="no number of stages does; chunks that would do: 1, 3"):
        even(3, 2, 2)


@pytest.mark.parametrize(
    ("split", "said"),
    [
        (
            (12, 12, 12),
            (
                "error[layers-not-split]: a split into 3 chunks is given, and there are 2 stages of 2 chunks each\n"
                "  = list 4 numbers"
            ),
        ),
        (
            (12, 12, 12, 11),
            "error[layers-not-split]: the split adds up to 47 layers, and the model has 48\n  = add 1",
        ),
        (
            (12, 14, 12, 12),
            "error[layers-not-split]: the split adds up to 50 layers, and the model has 48\n  = take away 2",
        ),
        (
            (24, 0, 0, 24),
            (
                "error[layers-not-split]: chunks 1, 2 of the split would have nothing to do\n"
                "  = only the first chunk, which has the embedding, and the last, which has the head, may have none"
            ),
        ),
    ],
)
def test_a_given_split_that_does_not_suit_is_refused_with_what_would(split, said):
    with pytest.raises(InputError) as error:
        stated(split, 48, 2, 2)
    assert str(error.value) == said


def test_a_given_split_may_leave_the_ends_without_layers():
    assert stated((0, 24, 24, 0), 48, 2, 2) == (0, 24, 24, 0)


def test_a_balanced_split_takes_from_the_chunks_that_have_more_to_do():
    even_ends = {"first_s": 0, "last_s": 0}
    assert balanced(46, 8, 1, layer_s=1, **even_ends) == (6, 6, 6, 6, 6, 6, 5, 5)  # late ones would cost more
    assert balanced(94, 8, 1, layer_s=1, first_s=1, last_s=1) == (11, 12, 12, 12, 12, 12, 12, 11)
    assert balanced(12, 2, 2, layer_s=2, first_s=0, last_s=5) == (4, 4, 3, 1)
    assert balanced(4, 3, 1, layer_s=1, first_s=0, last_s=9) == (2, 2, 0)


def test_a_balanced_split_leaves_no_chunk_between_the_ends_without_layers():
    assert balanced(126, 16, 8, layer_s=1, first_s=0, last_s=0) == (0, *[1] * 126, 0)
    with pytest.raises(InputError) as error:
        balanced(8, 16, 1, layer_s=1, first_s=0, last_s=0)
    assert str(error.value) == (
        "error[too-few-layers]: 8 layers are too few for 16 chunks: only the first and the last may have none\n"
        "  = pp x pipeline.chunks may be 10 at most"
    )


@pytest.mark.parametrize(
    ("layers", "p", "v", "split"),
    [
        (80, 8, 1, (10,) * 8),
        (94, 16, 1, (5, *[6] * 14, 5)),  # Qwen3-235B as Megatron splits it with its ends accounted for
        (61, 4, 1, (15, 16, 16, 14)),
        (63, 4, 1, (16, 16, 16, 15)),
        (126, 16, 8, (0, *[1] * 126, 0)),
    ],
)
def test_layers_that_do_not_divide_are_split_as_if_the_ends_were_layers(layers, p, v, split):
    assert nearly_even(layers, p, v) == split


@given(st.integers(1, 8), st.integers(1, 4), st.integers(1, 90))
def test_no_chunk_of_a_nearly_even_split_has_more_layers_than_it_must(p, v, layers):
    assume(p * v <= layers + 2)
    split = nearly_even(layers, p, v)
    assert (len(split), sum(split)) == (p * v, layers)
    assert max(split) == -(-layers // (p * v))
    assert len({*split[1:-1]}) <= 2
    if layers % (p * v):
        ranks = [sum(split[rank::p]) + (rank == 0) + (rank == p - 1) for rank in range(p)]
        assert max(ranks) - min(ranks) <= 1


@given(st.integers(2, 4), st.integers(1, 2), st.integers(12, 30), st.tuples(*[st.floats(0.1, 4)] * 3))
def test_no_layer_of_a_balanced_split_is_better_off_elsewhere(p, v, layers, seconds):
    layer_s, first_s, last_s = seconds
    try:
        split = balanced(layers, p, v, layer_s=layer_s, first_s=first_s, last_s=last_s)
    except InputError:
        assume(False)
    assert sum(split) == layers

    def slowest(one):
        seconds = [each * layer_s for each in one]
        seconds[0] += first_s
        seconds[-1] += last_s
        return max(seconds)

    for source, target in permutations(range(p * v), 2):
        other = list(split)
        other[source], other[target] = split[source] - 1, split[target] + 1
        assert split[source] == 0 or slowest(other) >= slowest(split) * (1 - 1e-12)


def test_what_a_cut_is_split_by_is_sliced_before_it_and_gathered_behind():
    program = traced(GPT, (1, 1), cut={"s": ("X",)})
    around = [op for op in program.ops if op.where.place in ("cut", "side")]
    assert [(op.where.act, op.where.chunks, op.where.place, *(move.kind for move in op.moves)) for op in around] == [
        ("F", (0,), "side", "slice"),
        ("F", (1,), "cut", "send"),
        ("F", (1,), "side", "all_gather"),
        ("B", (1,), "side", "slice"),
        ("B", (0,), "cut", "send"),
        ("B", (0,), "side", "all_gather"),
    ]
    with_sp = traced(GPT, (1, 1), cut={"s": ("X",)}, sequence_parallel=True)
    assert not [op for op in with_sp.ops if op.where.place == "side"]  # the stream is split so anyway
