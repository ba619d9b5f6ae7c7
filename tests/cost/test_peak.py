"""Memory over time: what is kept, as symbols, and its fold over orders."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest
import sympy

from tests.models import GPT, LLAMA, loops, mixture
from tpsim.cost.memory import kept, memory
from tpsim.cost.peak import Courses, peak
from tpsim.cost.sizes import Sizes
from tpsim.program.dtypes import Dtypes
from tpsim.program.frameworks import PRACTICES
from tpsim.program.layout import layout
from tpsim.program.lifetimes import lifetimes
from tpsim.program.lower import lower
from tpsim.program.practice import Ahead, Practice
from tpsim.program.schedules import pipeline_schedule
from tpsim.program.stages import linear
from tpsim.program.transformer import layer_parameters, parameter_count
from tpsim.program.turnover import turnover
from tpsim.quantity.size import total

a, b, s, h, t = sympy.symbols("a b s h t", positive=True)
SYMBOLS = {"b": b, "s": s, "t": s, "h": h, "g": a, "r": 1, "d": h / a, "e": h / a, "j": 3, "f": 4 * h, "p": s, "v": 8}
MEGATRON = PRACTICES["megatron"]


def bytes_kept(maker, reader, where=None, axes=None):
    """Of one GPT layer, in symbols; gradients of biases and norms, vectors of h, left out."""
    program = lower(GPT, where or layout(), MEGATRON, Dtypes(), ("X",) if where else ())
    found = kept(program, Sizes(SYMBOLS, axes or {}, loops(1)))
    mine = [one for one in found if one.per_layer and (one.maker.where.act, one.reader.where.act) == (maker, reader)]
    return sympy.expand(total(one.bytes_each for one in mine if "b" in one.array.dims))


def test_gradients_of_weights_wait_for_14_bytes_of_inputs_and_18_of_cotangents_per_token_and_unit():
    """M_W = 32sbh of the zero-bubble paper's table 1: 14sbh from forward, 18sbh (6 + 2 + 8 + 2) from backward."""
    assert bytes_kept("F", "W") == 14 * s * b * h
    assert bytes_kept("B", "W") == 18 * s * b * h


def test_with_sequence_parallelism_gathered_cotangents_stay_whole_until_gradients_are_made():
    where = layout(tp=("X",), sequence_parallel=True)
    assert bytes_kept("F", "W", where, {"X": t}) == sympy.expand(14 * s * b * h / t)
    stream = 2 * s * b * h / t  # whose sum is the gradient of a bias
    assert bytes_kept("B", "W", where, {"X": t}) == sympy.expand(s * b * (4 * h + 14 * h / t) + stream)


def test_two_readers_share_one_array_and_views_have_no_bytes():
    program = lower(LLAMA, layout(), MEGATRON, Dtypes(), ())
    found = kept(program, Sizes(LLAMA.dims(sequences=2, seq=8), {}, loops(1)))
    names = [one.array.name for one in found if one.maker.where.act == "F"]
    assert names.count("attention.qkv") == 1  # read as queries, keys and values, and by their backward
    assert "attention.in" not in names  # the norm's output under another name
    assert not [one for one in found if one.array.role == "param"]


def test_a_gather_that_is_run_again_is_not_kept():
    where = layout(tp=("X",), sequence_parallel=True)
    sizes = Sizes(GPT.dims(sequences=2, seq=8), {"X": 2}, loops(1))
    again, stays = (
        {str(one.array) for one in kept(lower(GPT, where, replace(MEGATRON, regather=one), Dtypes(), ("X",)), sizes)}
        for one in (True, False)
    )
    assert "mlp.in[b, s, h]" in stays - again


# --- over orders --------------------------------------------------------------------------------------------------


SIZES = GPT.dims(sequences=2, seq=8)
STAGED = lower(GPT, layout(pp=("pipe",)), MEGATRON, Dtypes(), ("pipe",), layers=(1, 0))


def folds(name, p, m, v=1, sizes=SIZES):
    """Of every rank of two layers per chunk."""
    courses = Courses(turnover(STAGED), Sizes(sizes, {"pipe": p}, loops(2 * v, m)))
    stages = linear((2,) * p * v, p)
    schedule = pipeline_schedule(name, p, v, m)
    return [peak(courses, schedule, rank, stages.chunks) for rank in range(schedule.ranks)]


def between(sizes=SIZES, p=8, v=1):
    """What a chunk in the middle keeps of a microbatch until its B, and from there until its W."""
    courses, stages = Courses(turnover(STAGED), Sizes(sizes, {"pipe": p}, loops(2, 1))), linear((2,) * p * v, p)
    forward = courses.of(stages.chunks[1], "F").left
    return forward, forward + courses.of(stages.chunks[1], "B").left


def most_left(fold):
    return max(left for _, _, left in fold.course)


@pytest.mark.parametrize("acts", ["F", "BW"])
@pytest.mark.parametrize("model", [GPT, LLAMA, mixture()], ids=lambda model: model.name)
def test_a_fused_kernel_frees_nothing_that_it_reads_before_all_is_there_that_it_makes(model, acts):
    """But for the loss, whose gradient takes the place of the softmax."""
    program = lower(model, layout(), MEGATRON, Dtypes(), ())
    alive, (chunk,) = lifetimes(program), linear((1,), 1).chunks
    changes = [change for run, _ in turnover(program).runs(chunk, acts) for change in run]
    kernels = {op.where.kernel for op in program.ops if op.where.act in acts} - {"", "loss"}
    assert "attention" in kernels
    for kernel in kernels:
        for act in acts:
            inside = {op for op in program.ops if (op.where.kernel, op.where.act) == (kernel, act)}
            read = {
                array for array, ops in alive.readers.items() if inside & {*ops} and alive.makers[array] not in inside
            }
            made = {array for array, op in alive.makers.items() if op in inside}
            freed = [at for at, (array, by) in enumerate(changes) if by < 0 and array in read]
            assert all(at > changes.index((array, 1)) for at in freed for array in made), kernel


def test_ranks_in_the_middle_of_1f1b_hold_as_many_microbatches_as_ranks_follow_and_those_of_gpipe_all():
    """E6: p 8, m 24: 8, 7, ..., 1 in flight; GPipe 24 everywhere."""
    until_b, _ = between()
    assert [most_left(one) / until_b for one in folds("1f1b", 8, 24)[1:-1]] == [7, 6, 5, 4, 3, 2]
    assert [most_left(one) / until_b for one in folds("gpipe", 8, 24)[1:-1]] == [24] * 6


def test_interleaved_ranks_hold_fractions_of_their_layers():
    """E7: p 8, m 24, v 3: 10.333 on the first rank, 2/3 less on each that follows; here of ranks without ends."""
    until_b, _ = between(v=3)
    assert [most_left(one) / until_b / 3 for one in folds("interleaved", 8, 24, 3)[1:-1]] == [
        pytest.approx((31 - 2 * i) / 3) for i in range(1, 7)
    ]


def test_zero_bubble_ranks_hold_what_waits_for_w_as_well():
    """E8 of the zero-bubble paper: (p - i) M_B + i M_W, and (2p - 1 - 2i) M_B + 2i M_W."""
    until_b, until_w = between()
    h1, h2 = (folds(name, 8, 24)[1:-1] for name in ("zb-h1", "zb-h2"))
    assert [most_left(one) for one in h1] == [(8 - i) * until_b + i * until_w for i in range(1, 7)]
    assert [most_left(one) for one in h2] == [(15 - 2 * i) * until_b + 2 * i * until_w for i in range(1, 7)]


def test_zero_bubble_takes_no_more_than_1f1b_and_what_waits_for_w():
    _, until_w = between()
    pairs = zip(folds("zb-h1", 8, 24), folds("1f1b", 8, 24), strict=True)
    for rank, (split, whole) in enumerate(pairs):
        assert split.total <= whole.total + max(1, rank) * until_w * 2


def test_gpipe_never_takes_less_than_1f1b():
    for gpipe, other in zip(folds("gpipe", 4, 8), folds("1f1b", 4, 8), strict=True):
        assert gpipe.total >= other.total


def test_peaks_grow_with_the_microbatch():
    for small, large in zip(folds("1f1b", 4, 8), folds("1f1b", 4, 8, sizes=GPT.dims(sequences=4, seq=8)), strict=True):
        assert small.total < large.total <= 2 * small.total


def test_the_peak_is_at_its_action_and_its_parts_add_up():
    for fold in folds("1f1b", 4, 8):
        assert max(most for _, most, _ in fold.course) == fold.total == sum(fold.parts.values())
        assert any(most == fold.total for place, most, _ in fold.course if place == fold.action)
        assert min(fold.parts.values()) >= 0


def test_without_a_pipeline_memory_is_that_of_one_rank_and_does_not_grow_with_microbatches():
    courses = Courses(turnover(lower(GPT, layout(), MEGATRON, Dtypes(), ())), Sizes(SIZES, {}, loops(4)))
    one, many = (peak(courses, pipeline_schedule("1f1b", 1, 1, m), 0, linear((4,), 1).chunks).total for m in (1, 8))
    assert one == many


@pytest.mark.parametrize(
    ("ahead", "weights", "held"), [(0, "beside", 1), (1, "beside", 2), (3, "beside", 4), (3, "none", 1)]
)
def test_gathered_weights_are_those_of_a_layer_and_of_those_ahead_of_it(ahead, weights, held):
    """ZeRO-3 with tokens so few that weights are what a peak is made of. What blocks is not gathered ahead."""
    sizes = Sizes(LLAMA.dims(sequences=4, seq=1), {"D": 4}, loops(8))
    fsdp2 = PRACTICES["fsdp2"]
    practice = replace(fsdp2, ahead=Ahead(layers=ahead), overlap=fsdp2.overlap.but(weights=weights))
    program = lower(LLAMA, layout(dp=("D",), zero=3), practice, Dtypes(), ("D",))
    chunk = replace(linear((8,), 1).chunks[0], first=False, last=False)
    chunks = [replace(chunk, stack=(("layers", n),)) for n in (0, 1, 2, 9)]
    found = [Courses(turnover(program), sizes).of(one, "F").most["weights"] for one in chunks]
    layer = 2 * sum(prod(sizes.dims[dim] for dim in one.dims) for one in layer_parameters(LLAMA, *LLAMA.kinds.values()))
    assert found == [0, *(min(n, held) * layer for n in (1, 2, 9))]
    single = lower(LLAMA, layout(dp=("D",), zero=3), replace(practice, units="arrays"), Dtypes(), ("D",))
    read = 2 * sizes.dims["h"]  # the first norm's gain, at the peak
    alone = [Courses(turnover(single), sizes).of(one, "F").most["weights"] for one in chunks]
    assert alone == [0, *(min(n, held) * layer - read for n in (1, 2, 9))]


def test_weights_that_are_not_sharded_are_not_gathered():
    sizes = Sizes(LLAMA.dims(sequences=4, seq=8), {"D": 4}, loops(8))
    program = lower(LLAMA, layout(dp=("D",), zero=0), PRACTICES["fsdp2"], Dtypes(), ("D",))
    assert Courses(turnover(program), sizes).of(linear((8,), 1).chunks[0], "F").most["weights"] == 0


def test_states_are_18_bytes_per_parameter_and_7_and_a_half_over_eight_data_ranks():
    """E25: bf16 weights 2, f32 gradients 4, f32 master and two moments 12, these over 8 with ZeRO-1."""
    parameters, model = parameter_count(LLAMA), LLAMA
    for zero, each in ((0, 18), (1, 7.5)):
        program = lower(model, layout(dp=("D",), zero=zero), Practice(), Dtypes(), ("D",))
        held = memory(program, Sizes(model.dims(sequences=8, seq=8), {"D": 8}, loops(2)))
        assert held.static_bytes == each * parameters
