"""What backward finds kept, byte by byte, and what it makes again: kernels and recompute."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

import pytest
import sympy

from tests.models import GPT, LLAMA, blocks, mixture
from tpsim.program.copies import Level
from tpsim.program.dtypes import DTYPE_BYTES, Dtypes
from tpsim.program.frameworks import PRACTICES
from tpsim.program.layout import Layout, layout
from tpsim.program.lifetimes import lifetimes
from tpsim.program.lower import lower
from tpsim.program.op import Einsum, Rename, Reshard
from tpsim.program.practice import Practice
from tpsim.program.schedules import in_flight, pipeline_schedule

TP = layout(tp=("X",))
SP = layout(tp=("X",), sequence_parallel=True)
PLAIN = Practice(attention="plain", regather=True)
FUSED = replace(PLAIN, attention="fused")
SELECTIVE = replace(PLAIN, recompute=("attention",), replay="whole")
FULL = replace(PLAIN, recompute=("full",), replay="whole")
NEEDED = replace(FULL, replay="needed")

a, b, s, h, f, r, t = sympy.symbols("a b s h f r t", positive=True)
GPT_SIZES = {"b": b, "s": s, "t": s, "h": h, "g": a, "r": 1, "d": h / a, "e": h / a, "j": 3, "f": 4 * h}
LLAMA_SIZES = {**GPT_SIZES, "g": a / r, "r": r, "f": f}
DROPPING = replace(GPT, dropout=0.1)
LAYER = 1
"""The traced layer that has a layer before it and one behind it in the list of ops."""


def derive(model, where, practice):
    return lower(model, where, practice, Dtypes(), ("D", "X"), layers=3)


def kept(program, sizes, split=1, made="F", read="BW"):
    """Bytes per token of what an act makes and others read in one layer; a view is what it shows."""
    makers = {op.output: op for op in program.ops}

    def whole(x):
        op = makers[x]
        view = isinstance(op, Rename) or (isinstance(op, Reshard) and not op.moves)
        return whole(op.inputs[0]) if view else x

    found = {}
    for op in program.ops:
        if op.where.act in read and op.where.index("layers") == LAYER:
            for x in map(whole, op.inputs):
                if makers[x].where.act == made and x.role == "activation" and "b" in x.dims:
                    shards = split ** len([axis for axis in x.type.sharded_axes if axis == "X"])
                    found[x] = sympy.prod(sizes[dim] for dim in x.dims) * DTYPE_BYTES[x.dtype] / shards
    return found


def together(program, sizes, split=1):
    return sympy.expand(sum(kept(program, sizes, split).values()))


MEANS = 16 * b * s
"""Two norms of two statistics of four bytes per token, which the paper leaves out."""
SUMS = 4 * a * b * s
"""Softmax' sum, or the logarithm of it: four bytes per head and token, which the paper leaves out."""


TABLE_2 = {
    "nothing split": (layout(), PLAIN, 34 * s * b * h + 5 * a * s**2 * b, 32 * s * b * h + 2 * a * s**2 * b),
    "t": (
        TP,
        PLAIN,
        s * b * (10 * h + 24 * h / t) + 5 * a * s**2 * b / t,
        s * b * (8 * h + 24 * h / t) + 2 * a * s**2 * b / t,
    ),
    "t + sp": (SP, PLAIN, (34 * s * b * h + 5 * a * s**2 * b) / t, (32 * s * b * h + 2 * a * s**2 * b) / t),
    "t + selective": (TP, SELECTIVE, s * b * (10 * h + 24 * h / t), s * b * (8 * h + 24 * h / t)),
    "t + sp + selective": (SP, SELECTIVE, 34 * s * b * h / t, 32 * s * b * h / t),
    "full": (TP, FULL, 2 * s * b * h, 2 * s * b * h),
    "full, as needed": (TP, NEEDED, 2 * s * b * h, 2 * s * b * h),
}
"""Korthikanti et al. 2022, table 2; then the same without dropout, whose masks are 2sbh + as^2b and leave 2as^2b."""


@pytest.mark.parametrize(("where", "practice", "paper", "without"), TABLE_2.values(), ids=TABLE_2)
def test_a_layer_keeps_the_bytes_of_the_sequence_parallelism_paper(where, practice, paper, without):
    split = t if where.table["*"]["f"] else 1
    means = 0 if practice.recompute == ("full",) else MEANS / (t if where is SP else 1)
    sums = SUMS / split if practice is PLAIN else 0
    for model, expected in ((DROPPING, paper), (GPT, without)):
        assert sympy.expand(together(derive(model, where, practice), GPT_SIZES, split) - expected - means - sums) == 0


LAYER_MB = {
    "nothing split": 7080,
    "t": 1325.4,
    "t + sp": 885.0,
    "t + selective": 654.3,
    "t + sp + selective": 213.9,
    "full": 100.7,
}
FIRST_RANK_GIB = {
    "22B": ((6144, 64, 4, 48), (1, 1, 4), 59.25, 9.56),
    "175B": ((12288, 96, 1, 96), (8, 3, 24), 66.84, 12.35),
    "530B": ((20480, 128, 1, 105), (35, 3, 105), 114.02, 23.08),
    "1T": ((25600, 160, 1, 128), (64, 1, 64), 131.25, 26.56),
}
"""Korthikanti et al. 2022, sections 4 and 5: h, heads, sequences, layers; stages, chunks, microbatches; t 8, s 2048."""


@pytest.fixture(scope="module")
def kept_by_rows():
    """Bytes of a layer by the rows of table 2, with dropout, as the paper's models have it."""
    rows = {row: TABLE_2[row] for row in LAYER_MB}
    return {
        row: together(derive(DROPPING, where, practice), GPT_SIZES, t if where.table["*"]["f"] else 1)
        for row, (where, practice, *_) in rows.items()
    }


@pytest.mark.parametrize("row", LAYER_MB)
def test_a_layer_of_the_22b_keeps_the_megabytes_of_the_paper(row, kept_by_rows):
    found = kept_by_rows[row].subs({a: 64, b: 4, s: 2048, h: 6144, t: 8})
    assert float(found) == pytest.approx(1e6 * LAYER_MB[row], rel=1e-3)


@pytest.mark.parametrize(("model", "order", "plain", "least"), FIRST_RANK_GIB.values(), ids=FIRST_RANK_GIB)
def test_the_first_rank_keeps_the_activations_that_the_paper_says(model, order, plain, least, kept_by_rows):
    (hidden, heads, sequences, layers), (p, v, m) = model, order
    flying = in_flight(pipeline_schedule("interleaved" if v > 1 else "1f1b", p, v, m), 0)
    at = {a: heads, b: sequences, s: 2048, h: hidden, t: 8}
    for row, gib in (("t", plain), ("t + sp + selective", least)):
        each = float(kept_by_rows[row].subs(at))
        assert each * flying * layers / p / 2**30 == pytest.approx(gib, rel=1e-3)


def test_masks_of_dropout_are_a_byte_per_element_and_a_fused_kernel_draws_its_own_again():
    masks, drawn = (
        {x.name: x.dtype for x in kept(derive(DROPPING, layout(), practice), GPT_SIZES) if "mask" in x.name}
        for practice in (PLAIN, FUSED)
    )
    assert masks == dict.fromkeys(("attention.mask", "add.attention.mask", "add.mlp.mask"), "int8")
    assert masks.keys() - drawn.keys() == {"attention.mask"}
    fused = [together(derive(model, layout(), FUSED), GPT_SIZES) for model in (DROPPING, GPT)]
    assert sympy.expand(fused[0] - fused[1]) == 2 * s * b * h


def test_fused_attention_keeps_no_scores_but_four_bytes_per_head_and_token():
    fused, plain = (together(derive(GPT, TP, practice), GPT_SIZES) for practice in (FUSED, PLAIN))
    assert sympy.expand(plain - fused) == 2 * a * b * s**2
    names = {x.name for x in kept(derive(GPT, TP, FUSED), GPT_SIZES)}
    assert {name for name in names if name.startswith("attention.") and "exp" in name} == set()
    assert "attention.logsum" in names


@pytest.mark.parametrize(
    ("sizes", "expected"), [((4096, 14336, 32, 4), 139_392), ((8192, 28672, 64, 8), 274_688)], ids=["8b", "70b"]
)
def test_a_llama_layer_keeps_so_many_bytes_per_token(sizes, expected):
    """12h + 4h/r + 6f + 4a and two statistics of four bytes: inputs of norms and products, q, k, v, gate and up."""
    bytes_ = together(derive(LLAMA, layout(), FUSED), LLAMA_SIZES)
    assert sympy.expand(bytes_ - b * s * (12 * h + 4 * h / r + 6 * f + 4 * a + 8)) == 0
    assert bytes_.subs({b: 1, s: 1, **dict(zip((h, f, a, r), sizes, strict=True))}) == expected + 8


@pytest.mark.parametrize(("where", "bytes_"), [(TP, 375.5e6), (SP, 140.6e6)], ids=["tp", "sp"])
def test_a_llama_70b_layer_of_4096_tokens_over_8_keeps_so_many_bytes(where, bytes_):
    found = together(derive(LLAMA, where, FUSED), LLAMA_SIZES, t)
    assert float(found.subs({b: 1, s: 4096, h: 8192, f: 28672, a: 64, r: 8, t: 8})) == pytest.approx(bytes_, rel=1e-3)


@pytest.mark.parametrize(
    ("practice", "from_forward", "from_b"), [(PLAIN, 14, 18), (FULL, 0, 32)], ids=["kept", "recomputed"]
)
def test_what_waits_for_w_is_inputs_of_products_and_cotangents_of_their_outputs(practice, from_forward, from_b):
    """32sbh together, M_W of Qi et al. 2023, table 1; what is recomputed is made in B, so zero-bubble saves little."""
    program = derive(blocks(GPT, {"bias": "none"}, {"bias": False}), layout(), practice)
    found = {made: sum(kept(program, GPT_SIZES, made=made, read="W").values()) for made in "FB"}
    assert sympy.expand(found["F"] - from_forward * s * b * h) == 0
    assert sympy.expand(found["B"] - from_b * s * b * h) == 0


@pytest.mark.parametrize(("practice", "share"), [(FUSED, 0.94), (PLAIN, 0.28)], ids=["fused", "plain"])
def test_of_what_waits_for_b_a_share_goes_on_to_w(practice, share):
    """M_W over M_B = 32/(34 + 5as/h) of GPT-3, or without the scores of plain attention."""
    program = derive(DROPPING, layout(), practice)
    at = {a: 96, b: 1, s: 2048, h: 12288}
    waits = sum(sum(kept(program, GPT_SIZES, made=made, read="W").values()) for made in "FB")
    assert float((waits / together(program, GPT_SIZES)).subs(at)) == pytest.approx(share, abs=5e-3)


def has_rows_and_columns(op):
    """True for a product whose operands each have a dim that the other has not; the rest is pointwise."""
    dims = [set(x.dims) for x in op.inputs]
    return op.is_matmul and dims[0] - dims[1] and dims[1] - dims[0]


def flops(model, practice, **which):
    """Of a layer's matrix products, by act."""
    found = defaultdict(int)
    for op in derive(model, TP, practice).ops:
        here = op.where.index("layers") == LAYER and all(
            getattr(op.where, key) == value for key, value in which.items()
        )
        if here and isinstance(op, Einsum) and has_rows_and_columns(op):
            found[op.where.act] += op.flops(GPT_SIZES, {"D": 1, "X": 1})
    return {act: sympy.expand(value) for act, value in found.items()}


LINEAR, SCORES = 24 * b * s * h**2, 4 * b * s**2 * h
"""Products with weights, and products of attention, in one forward."""


def test_fused_attention_computes_its_scores_again_two_and_a_half_forwards_backward():
    """Dao 2023, section 3: five products backward for two forward."""
    backward = flops(GPT, FUSED)["B"]
    assert sympy.expand(backward - LINEAR - SCORES * 5 / 2) == 0
    assert flops(GPT, FUSED, again="kernel") == {"B": SCORES / 2}
    assert flops(GPT, PLAIN, again="kernel") == {}


def test_full_recompute_is_four_thirds_of_the_flops():
    """Forward twice and backward once for three forwards: Korthikanti et al. 2022, section 5."""
    whole, without = sum(flops(GPT, FULL).values()), sum(flops(GPT, PLAIN).values())
    assert sympy.simplify(whole / without) == sympy.Rational(4, 3)
    skipped = whole - sum(flops(GPT, NEEDED).values())
    assert sympy.expand(skipped - 8 * b * s * h**2) == 0  # the product with W2


def test_full_recompute_runs_fused_attention_once_more_and_its_scores_once_again():
    fused = replace(FUSED, recompute=("full",), replay="whole")
    assert sympy.expand(flops(GPT, fused)["B"] - 2 * LINEAR - SCORES * 7 / 2) == 0


def test_selective_recompute_runs_attentions_two_products_once_more():
    """+ 4bs^2h, s/(18h + 3s) of the layer; the paper's 1 + s/6h counts three times that (section 5 and appendix A)."""
    more = sum(flops(GPT, SELECTIVE).values()) - sum(flops(GPT, PLAIN).values())
    assert sympy.expand(more - SCORES) == 0
    share = more / sum(flops(GPT, PLAIN).values())
    assert sympy.simplify(share - s / (18 * h + 3 * s)) == 0
    stated = 1 + 3 * more / (3 * LINEAR)  # of linear products, three times: as the paper has it
    for hidden, ratio in ((12288, 1.028), (20480, 1.017)):
        assert float(stated.subs({s: 2048, h: hidden})) == pytest.approx(ratio, abs=5e-4)


def test_scores_that_fused_attention_settles_are_settled_again_not_kept():
    """A split head dim: the scores owe a sum inside the kernel."""
    split = Layout({"*": {"d": ("X",), "f": ("X",)}})
    for practice, sums in ((FUSED, 2), (PLAIN, 1)):
        program = derive(GPT, split, practice)
        scores = [op for op in program.ops if isinstance(op, Reshard) and op.output.name == "attention.scores"]
        assert [op.where.act for op in scores if op.where.index("layers") == LAYER] == ["F", "B"][:sums]
        assert "attention.scores" not in {x.name for x in kept(program, GPT_SIZES)}


def test_selective_recompute_of_fused_attention_frees_its_log_sums_and_runs_its_forward_once_more():
    practice = replace(FUSED, recompute=("attention",), replay="whole")
    more = sum(flops(GPT, practice).values()) - sum(flops(GPT, FUSED).values())
    assert sympy.expand(more - SCORES) == 0
    freed = together(derive(GPT, TP, FUSED), GPT_SIZES) - together(derive(GPT, TP, practice), GPT_SIZES)
    assert sympy.expand(freed) == SUMS


def calls(model, where, practice):
    """Collectives on activations of a layer."""
    return Counter(
        move.kind
        for op in derive(model, where, practice).ops
        if isinstance(op, Reshard) and op.where.index("layers") == LAYER and op.output.role == "activation"
        for move in op.moves
        if move.kind != "slice"
    )


@pytest.mark.parametrize("model", [GPT, LLAMA], ids=lambda model: model.name)
def test_full_recompute_adds_one_all_reduce_per_layer_and_a_whole_replay_two(model):
    counts = [calls(model, TP, practice) for practice in (PLAIN, NEEDED, FULL)]
    assert counts == [{"all_reduce": 4}, {"all_reduce": 5}, {"all_reduce": 6}]


def test_full_recompute_gathers_and_scatters_the_stream_once_more_under_sequence_parallelism():
    once = replace(NEEDED, regather=False)
    assert calls(GPT, SP, replace(once, recompute=())) == {"all_gather": 4, "reduce_scatter": 4}
    assert calls(GPT, SP, once) == {"all_gather": 6, "reduce_scatter": 5}
    assert calls(GPT, SP, FULL) == {"all_gather": 8, "reduce_scatter": 6}


def test_weights_are_not_gathered_more_often_for_a_recompute():
    fsdp = layout(dp=("D",), zero=3)
    gathers = [
        sum(
            move.kind == "all_gather"
            for op in lower(LLAMA, fsdp, replace(PRACTICES["fsdp2"], recompute=names), Dtypes(), ("D",), layers=3).ops
            if isinstance(op, Reshard) and op.inputs[0].role == "param"
            for move in op.moves
        )
        for names in ((), ("full",))
    ]
    assert gathers[0] == gathers[1] > 0


def test_an_array_that_is_dropped_is_not_kept_and_its_view_neither():
    names = [
        {x.name for x in kept(derive(LLAMA, TP, replace(FUSED, recompute=drop)), LLAMA_SIZES)}
        for drop in ((), ("mlp.act", "mlp.normed"))
    ]
    assert names[0] - names[1] == {"mlp.act", "mlp.normed"}
    assert names[1] <= names[0]


@pytest.mark.parametrize("levels", [(), (Level("node", ("D",)),)], ids=["rows", "copies for nodes"])
@pytest.mark.parametrize("replay", ["whole", "needed"])
@pytest.mark.parametrize("score", ["softmax", "sigmoid"])
def test_a_layer_with_experts_that_is_recomputed_keeps_the_stream_and_not_the_scores_it_chose_by(score, replay, levels):
    where = layout(dp=("D",), ep=("D",))

    def kept_of(drop):
        practice = replace(FUSED, recompute=drop, replay=replay, levels=levels)
        alive = lifetimes(derive(mixture(score=score), where, practice))
        return {
            array.name
            for array, maker in alive.makers.items()
            if maker.where.act == "F" and any(_reads_later(op) for op in alive.readers[array])
        }

    assert kept_of(("full",)) == {"residual"}
    assert kept_of(()) - kept_of(("router.logits",)) == {"router.logits"}


def _reads_later(op):
    return op.where.act != "F" and op.where.index("layers") == LAYER


@pytest.mark.parametrize("replay", ["whole", "needed"])
@pytest.mark.parametrize("drop", [("attention.mixed",), ("attention",), ("full",), ("mlp.normed", "norm")])
def test_nothing_is_recomputed_twice(drop, replay):
    program = derive(LLAMA, SP, replace(PLAIN, recompute=drop, replay=replay))
    replayed = Counter((op.output.name, type(op), op.where.loops) for op in program.ops if op.where.again == "replay")
    once = Counter((op.output.name, type(op), op.where.loops) for op in program.ops if op.where.act == "F")
    assert replayed
    assert replayed <= once


def test_a_replay_is_of_b_and_a_kernel_of_its_own():
    program = derive(GPT, TP, FULL)
    replayed = [op.where for op in program.ops if op.where.again == "replay"]
    assert {where.act for where in replayed} == {"B"}
    assert {where.kernel for where in replayed if where.kernel.startswith("attention")} == {"attention.again"}
    inside = {op.where.kernel for op in program.ops if op.where.again == "kernel"}
    assert "norm.mlp" in inside
    assert "" not in inside


@pytest.mark.parametrize("practice", [PLAIN, FUSED, SELECTIVE, FULL, NEEDED])
@pytest.mark.parametrize("model", [GPT, LLAMA], ids=lambda model: model.name)
def test_nothing_inside_a_kernel_is_read_elsewhere_but_what_it_keeps(model, practice):
    program = derive(model, SP, practice)
    inside = {op.output: op for op in program.ops if op.where.kernel}
    crossing = {
        x.name
        for op in program.ops
        for x in op.inputs
        if x in inside and inside[x].where.act == "F" and op.where.act in "BW" and x.role == "activation"
    }
    given = {"normed", "shifted", "act", "mixed", "residual", "q", "k"}
    keeps = {"mean", "variance", "logsum", "exp", "sum_exp"}
    assert {name.rpartition(".")[2] for name in crossing} <= given | keeps
