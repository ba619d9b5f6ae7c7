"""What experts of published models send: sizes are those of their config.json, bytes are worked out by hand.

One exchange brings T tokens of each rank, in bf16, to the top experts of each: V = ranks * T * top * hidden * 2 bytes,
and a rank injects V*(n-1)/n^2. Gathering the tokens instead costs ranks * T * hidden * 2 * (n-1)/n.
"""

from __future__ import annotations

from math import prod

import pytest

import tpsim
from tests.models import LLAMA, mixture
from tests.program.test_experts import ORDER
from tpsim.algebra.mesh import Mesh
from tpsim.cost.collectives import collectives
from tpsim.cost.compute import compute, kernel_s
from tpsim.cost.kernels import kernels
from tpsim.cost.memory import kept, local_bytes
from tpsim.cost.rollup import price
from tpsim.cost.sizes import Sizes
from tpsim.machine import profile, timing
from tpsim.machine.chip_seconds import pause_s
from tpsim.program.dims import completed
from tpsim.program.dtypes import Dtypes
from tpsim.program.layout import Layout, layout
from tpsim.program.lower import lower
from tpsim.program.practice import Practice, Rows
from tpsim.quantity.errors import InputError

MODEL = mixture()
EXCHANGED = layout(dp=("E",), ep=("E",))
GATHERED = Layout({"*": {"b": ("E",), "n": ("E",)}, "routed": {"b": ()}})
FOLDED = layout(dp=("E",), tp=("X",), sequence_parallel=True, ep=("E", "X"))
SPLIT = layout(dp=("E",), tp=("X",), sequence_parallel=True, ep=("E",), etp=("X",))

HF = "tests/data/hf"
PUBLISHED = {
    "Mixtral-8x7B": ("mixtral-8x7b", 8, 4096, 536_870_912, 58_720_256, 234_881_024, 8192),
    "Mixtral-8x22B": ("mixtral-8x22b", 8, 4096, 805_306_368, 88_080_384, 352_321_536, 8192),
    "Qwen3-235B": (
        "qwen3-235b-a22b",
        8,
        4096,
        2_147_483_648,
        234_881_024,
        234_881_024,
        2048,
    ),  # a tie: top is the ranks
    "Qwen3-235B over 32": ("qwen3-235b-a22b", 32, 4096, 8_589_934_592, 260_046_848, 1_040_187_392, 8192),
    "Qwen3-30B": (f"{HF}/qwen3-30b.json", 8, 4096, 1_073_741_824, 117_440_512, 117_440_512, 2048),
    "gpt-oss-120b": ("gpt-oss-120b", 8, 8192, 1_509_949_440, 165_150_720, 330_301_440, 2048),
    "DeepSeek-V2": (f"{HF}/deepseek-v2.json", 8, 4096, 2_013_265_920, 220_200_960, 293_601_280, 1228.8),
    "DeepSeek-V3": ("deepseek-v3", 64, 4096, 30_064_771_072, 462_422_016, 3_699_376_128, 8192),
    "Llama-4-Maverick": (f"{HF}/llama-4-maverick.json", 64, 8192, 5_368_709_120, 82_575_360, 5_284_823_040, 4096),
}
"""Model, ranks, tokens of a rank; V and wire of one exchange, wire of a gather, rows per expert."""


def asked(model, tokens, *, mesh=None, layout=None, **fields):
    """The plan of a sequence of so many tokens on each rank."""
    mesh = {"expert": 8} if mesh is None else mesh
    where = {"layout": layout} if layout else {}
    work = {"seq": tokens, "global_batch": mesh.get("expert", 1), "dtype": "bf16", **fields.pop("workload", {})}
    base = {"tpsim": "scenario/1", "name": "rows", "hardware": "dgx-h100", "practice": "ideal"}
    return tpsim.plan({**base, "model": model, "mesh": mesh, **where, **fields, "workload": work})


def program(where):
    return lower(MODEL, where, Practice(), Dtypes(), ORDER, layers=1)


PROGRAMS = {name: program(where) for name, where in (("exchanged", EXCHANGED), ("gathered", GATHERED))}


def sizes_of(hidden, experts, top, tokens, *, peaks=None, factor=1, copies=None, **axes):
    """Of copies how many a token has for nodes, which R tells apart, and for ranks."""
    dims = MODEL.dims(sequences=prod(axes.values()) if copies else axes.get("E", 1), seq=tokens)
    own = {"h": hidden, "n": experts, "i": experts, "k": top, "q": factor}
    if copies:
        own |= {"nn": axes["R"], "kn": copies["node"], "nr": axes["R"] * axes["E"], "kr": copies["rank"]}
    loops = {"layers": 1, "microbatches": 1, "chunks": 1}
    return Sizes(completed({**dims, **own}), {**dict.fromkeys(ORDER, 1), **axes}, loops, peaks=peaks or {})


def call(of, array):
    return next(one for one in collectives(of, coalesce=False) if one.array == array)


@pytest.mark.parametrize("name", PUBLISHED)
def test_an_exchange_of_rows_is_of_the_bytes_that_are_worked_out_by_hand(name):
    """Each of four in a training layer; gates are one number of each row: 1/h of it, 0.014 % of DeepSeek-V3's."""
    model, ranks, tokens, volume, wire, gathered, rows = PUBLISHED[name]
    plan = asked(model, tokens, mesh={"expert": ranks}, layout={"dp": "expert", "ep": "expert"})
    sent = {}
    for row in plan.rows:
        sent.setdefault(row.array, set()).add((row.collective, row.logical_bytes, row.wire_bytes_per_device))
    for array in ("dispatch.rows", "combine.rows", "d.combine.rows", "d.dispatch.rows"):
        assert sent[array] == {("all_to_all", volume, wire)}
    assert plan.sizes.dims["c"] == pytest.approx(rows, rel=1e-12)
    hidden = plan.question.model.hidden
    assert {one[1] * hidden for one in sent["dispatch.gates"]} == {volume}
    table = {"*": {"b": "expert", "n": "expert"}, "routed": {"b": []}}
    others = asked(model, tokens, mesh={"expert": ranks}, shardings=table)
    assert {row.wire_bytes_per_device for row in others.rows if row.array == "router.in"} == {gathered}


def test_an_exchange_sends_less_than_a_gather_if_a_token_has_fewer_experts_than_there_are_ranks():
    for top in range(1, 9):
        for ranks in (1, 2, 4, 8):
            sizes = sizes_of(64, 8, top, 16, E=ranks)
            exchange, gather = (call(PROGRAMS[name], array).wire_bytes(sizes) for name, array in ARRAYS)
            assert exchange * ranks == gather * top


ARRAYS = (("exchanged", "dispatch.rows"), ("gathered", "router.in"))


def test_folding_mixtral_8x22b_sends_a_quarter_of_what_experts_that_are_split_send():
    """tp 4 with sequence parallelism, dp 2, 1024 tokens of each rank: mcore's reference mapping, and folded."""

    def sent(**experts):
        shared = {"dp": "expert", "tp": "tensor", "sequence_parallel": True, **experts}
        plan = asked("mixtral-8x22b", 4096, mesh={"expert": 2, "tensor": 4}, layout=shared)
        rows = (row for row in plan.rows if row.array in ("dispatch.rows", "combine.rows") and row.phase == "forward")
        return [(row.collective, row.logical_bytes, row.wire_bytes_per_device) for row in rows]

    exchange, gather = ("all_to_all", 50_331_648, 12_582_912), ("all_gather", 100_663_296, 75_497_472)
    split, folded = sent(ep="expert", etp="tensor"), sent(ep=["expert", "tensor"])
    assert sorted(split) == sorted([exchange, gather, ("reduce_scatter", *gather[1:]), exchange])
    assert folded == [("all_to_all", 201_326_592, 22_020_096)] * 2
    assert sum(one[2] for one in split) == 4 * sum(one[2] for one in folded) == 176_160_768


@pytest.mark.parametrize(("model", "ranks"), [("mixtral-8x7b", 8), ("deepseek-v3", 64)])
def test_gradients_of_experts_are_summed_over_the_ranks_that_hold_the_same_ones(model, ranks):
    """176,160,768 parameters of a rank and layer, of both, over 2 of 16 or 128 ranks in f32; the router over all."""
    mesh, work = {"replica": 2, "expert": ranks}, {"global_batch": 2 * ranks, "grad_dtype": "f32"}
    shared = {"layout": {"dp": ["replica", "expert"], "ep": "expert"}, "practice": {"base": "ideal"}, "workload": work}
    plan = asked(model, 64, mesh=mesh, **shared)
    experts = [row for row in plan.rows if row.block == "experts" and row.op == "gradient" and row.axis == "replica"]
    layers = {}
    for row in experts:
        layers[row.layer] = layers.get(row.layer, 0) + row.wire_bytes_per_device
    assert {*layers.values()} == {704_643_072}
    routers = {row.logical_bytes for row in plan.rows if row.array == "grad.Wr"}
    sizes = plan.question.model
    assert routers == {4 * sizes.hidden * sizes.experts.experts}
    assert {row.axis for row in plan.rows if row.array == "grad.Wr"} == {"replica,expert"}


# Loads -----------------------------------------------------------------------------------------------------------


def test_the_fullest_rank_decides_seconds_and_memory_and_the_mean_decides_bytes():
    """Seconds at a peak are those of as many times the tokens; bytes, FLOPs and formulas stay the mean."""
    machine = profile.load("dgx-h100")
    even, full = (sizes_of(4096, 8, 2, 4096, E=8, peaks=peaks) for peaks in ({}, {"c": 1.5}))
    one = call(PROGRAMS["exchanged"], "dispatch.rows")
    route = tpsim_route(machine)
    asked = []

    def seconds(move, volume):
        asked.append(volume)
        return timing.time(machine, route, move.kind, volume)

    rows = [price([one], sizes, seconds)[0] for sizes in (even, full)]
    assert asked == [536_870_912, 1.5 * 536_870_912]
    assert rows[0].wire_bytes_per_device == rows[1].wire_bytes_per_device == 58_720_256
    assert rows[0].time_s < rows[1].time_s < 1.5 * rows[0].time_s  # what is no byte stays
    products = [one for one in kernels(PROGRAMS["exchanged"]) if one.ops[0].output.name == "experts.up"]
    more = sizes_of(4096, 8, 2, 6144, E=8)
    for share in (None, 0.001):  # in tiles, and without
        before, after, due = (compute(products, sizes, machine, "bf16", share) for sizes in (even, full, more))
        assert after.time_s == pytest.approx(due.time_s)
        assert after.flops == before.flops < due.flops
    assert due.time_s - pause_s(machine) == pytest.approx(1.5 * (before.time_s - pause_s(machine)))
    array = products[0].ops[0].output
    assert local_bytes(array, full) == 1.5 * local_bytes(array, even)


def tpsim_route(machine):
    from tpsim.fabric.placement import place

    return place(machine.levels, Mesh({"E": 8})).route(("E",))


@pytest.mark.parametrize(
    ("experts", "top", "ranks", "tokens", "peak"),
    [
        *((256, 8, 64, 4096, 1.016), (256, 8, 64, 128, 1.090)),
        *((288, 8, 144, 128, 1.099), (288, 8, 72, 256, 1.065)),
        *((128, 4, 8, 32, 1.180), (8, 2, 8, 4096, 1.0225), (8, 2, 8, 64, 1.180)),
    ],
)
def test_chance_fills_the_fullest_rank_as_simulations_have_it(experts, top, ranks, tokens, peak):
    """1 + sqrt(2 ln R / (tokens * top)); simulated 1.013, 1.076, 1.080, 1.055, 1.140, 1.013 and 1.121."""
    blocks = {"experts": {"ffn": "moe", "experts": experts, "top": top, "hidden": 64}, "attention": ATTENTION}
    model = {"extends": "mixtral-8x7b", "blocks": blocks, "params": None, "active": None}
    where = {"mesh": {"expert": ranks}, "layout": {"dp": "expert", "ep": "expert"}}
    plan = asked(model, tokens, **where, assume={"routing": {"load": "uniform"}})
    assert plan.sizes.peaks["c"] == pytest.approx(peak, abs=5e-4)


ATTENTION = {"attention": "gqa", "heads": 32, "kv_heads": 8, "head_dim": 128}


def test_experts_keep_their_rows_and_what_is_as_wide_as_they_are():
    """Rows for dW1 and dWgate, both factors, what W2 reads; weighed at the tokens, the rows that come back, too."""
    sizes, tokens = sizes_of(4096, 8, 2, 4096, E=8), Practice(rows=Rows(gates="tokens"))
    for of, more in ((PROGRAMS["exchanged"], []), (lower(MODEL, EXCHANGED, tokens, Dtypes(), ORDER), ["combine.rows"])):
        held = [one.array for one in kept(of, sizes) if one.maker.where.act == "F" and one.array.filled]
        wide = [x.name for x in held if x.dims[2:] == ("y",)]
        assert [x.name for x in held if x.dims[2:] == ("h",)] == ["dispatch.rows", *more]
        assert wide == ["experts.up", "experts.gate", "experts.act" if more else "experts.weighed"]


def test_a_capacity_pads_every_expert_to_it():
    sizes = sizes_of(4096, 8, 2, 4096, E=8, factor=2)
    assert call(PROGRAMS["exchanged"], "dispatch.rows").logical_bytes(sizes) == 2 * 536_870_912


# A scenario ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def planned():
    return tpsim.plan("mixtral-8x7b-h100")


def test_flops_of_a_step_are_those_of_the_active_parameters(planned):
    """6 per parameter that works for a token, without the input table, and attention's 12 * L * heads * dh * s."""
    per_token = planned.compute.useful_flops / planned.tokens
    assert per_token == pytest.approx(6 * 12_748_853_248 + 12 * 32 * 32 * 128 * 4096, rel=1e-3)


def test_mixtral_in_the_mapping_that_was_published_reaches_nearly_the_rate_that_was():
    """468 TFLOP/s of an H100 (Megatron-Core 0.9, moe/README.md): tp 1, ep 8, pp 4 of 8 chunks, 16 microbatches of 1."""
    asked = ["mesh={pipe: 4, data: 2, expert: 8}", "layout.pp=pipe", "pipeline={schedule: interleaved, chunks: 8}"]
    found = tpsim.plan("mixtral-8x7b-h100", overrides=[*asked, "placement.pipe=network", "workload.microbatches=16"])
    assert found.step.mfu * 989 == pytest.approx(468, rel=0.1)
    assert found.memory.fits


def test_rows_are_named_in_the_plan_with_their_reasons_and_formulas(planned):
    rows = {row.array: row for row in planned.collectives if row.op == "rows"}
    assert set(rows) == {
        *("dispatch.rows", "dispatch.gates", "combine.rows"),
        *("d.combine.rows", "d.dispatch.gates", "d.dispatch.rows"),
    }
    one = rows["dispatch.rows"]
    assert (one.collective, one.axis, one.ranks, one.block) == ("all_to_all", "expert", 8, "experts")
    assert one.formula == "2*b*h*s*top*(expert - 1)/(d*expert)"
    assert "goes to the experts of its tokens" in one.because


@pytest.mark.parametrize("dispatch", ["flat", "rank"])
def test_exchanges_hide_behind_what_all_tokens_share_where_practice_lets_them(dispatch):
    shared = "{ffn: moe, experts: 8, top: 2, hidden: 14336, shared: 14336}"
    blocks = f"{{attention: {{attention: gqa, heads: 32, kv_heads: 8, head_dim: 128}}, experts: {shared}}}"
    asked = [f"model={{extends: mixtral-8x7b, blocks: {blocks}}}", f"practice.rows.dispatch={dispatch}"]
    exposed = {}
    for overlap in ("none", "beside"):
        found = tpsim.plan("mixtral-8x7b-h100", overrides=[*asked, f"practice.rows.overlap={overlap}"])
        rows = found.totals["by_op"]["rows"]
        exposed[overlap] = rows.exposed_s / rows.time_s
    assert exposed["none"] == pytest.approx(1)
    assert exposed["beside"] < 0.5


@pytest.mark.parametrize("overlap", ["none", "beside"])
def test_rows_that_travel_once_more_run_as_those_that_travel_first(overlap):
    """Recomputed, they ran beside compute where activations do, whatever is said of rows."""
    shared = "model={extends: mixtral-8x7b, blocks: {experts: {shared: 14336}}}"
    asked = [shared, "recompute={base: full}", "practice.overlap.tensor=beside", f"practice.rows.overlap={overlap}"]
    found = tpsim.plan("mixtral-8x7b-h100", overrides=asked)
    first, again = (
        {
            row.array: row.exposed_s
            for row in found.collectives
            if (row.phase, row.op) == of and "gates" not in row.array
        }
        for of in (("forward", "rows"), ("backward", "recomputed"))
    )
    assert first == pytest.approx(again)


def test_decoding_with_experts_gives_what_a_prompt_gives():
    """Every check of a run; what a step samples from is held with the model's own choice of experts."""
    layout, work = {"dp": "expert", "ep": "expert"}, {"kind": "decode", "batch": 64, "context": 4096}
    asked = {"tpsim": "scenario/1", "model": "mixtral-8x7b", "hardware": "dgx-h100", "mesh": {"expert": 8}}
    found = tpsim.verify(asked | {"layout": layout, "workload": work})
    assert found.ok, found.verdict
    assert "cache" in {one.check for one in found.runs[0].checks}


def test_memory_counts_the_experts_of_a_chip(planned):
    """Of 32 layers one expert of three 4096 by 14336 matrices, and all else whole, in bf16."""
    whole = 46_702_792_704 - 32 * 8 * 3 * 4096 * 14336
    assert planned.memory.parameters_bytes == 2 * (whole + 32 * 3 * 4096 * 14336)


def test_dense_models_have_no_dims_of_experts():
    assert not {"n", "c", "k", "q"} & LLAMA.dims(sequences=1, seq=8).keys()


# Number formats --------------------------------------------------------------------------------------------------


def test_deepseek_v3_trains_in_fp8_what_its_report_says():
    """Products of layers with their weights, and rows of 7,168 numbers with 56 scales; attention and head in bf16.

    Report (arXiv 2412.19437), 3.3: rows to the experts, forward and backward, in fp8; both combines in bf16.
    """
    where = {"mesh": {"expert": 64}, "layout": {"dp": "expert", "ep": "expert"}}
    wide = asked("deepseek-v3", 4096, **where)
    practice = {"base": "ideal", "rows": {"dtype": "fp8_128"}}
    narrow = asked("deepseek-v3", 4096, **where, practice=practice, workload={"dtype": "fp8_128"})
    rows = {row.array: row for row in narrow.rows if row.op == "rows"}
    each = {name: rows[name].logical_bytes / (64 * 4096 * 8) for name in rows if name.endswith("rows")}
    fewer, whole = 7168 + 56 * 4, 2 * 7168
    assert each == {
        "dispatch.rows": fewer,
        "d.combine.rows": fewer,
        "combine.rows": whole,
        "d.dispatch.rows": whole,
    }
    machine, due = wide.question.machine, {"experts.up": 0.5, "mlp.out": 0.5, "logits": 1, "router.logits": 1}
    ratios = {}
    for kernel in (one for one in wide.lowered.kernels if one.where.act == "F"):
        name = "attention" if kernel.fused else kernel.ops[0].output.name
        seconds = [kernel_s(kernel, wide.sizes, machine, dtype, None) for dtype in ("fp8_128", "bf16")]
        ratios[name] = seconds[0] / seconds[1]
    assert ratios["attention"] == 1
    assert {name: ratios[name] for name in due} == pytest.approx(due, rel=0.02)
    assert narrow.memory.parameters_bytes == wide.memory.parameters_bytes
    said = "products in fp8_128, on arrays that are held and sent in bf16"
    assert said in [one.text for one in narrow.assumptions]
    left = "kernels that bring what products read to fp8_128, and stacks that gather it, and keep it for backward, so"
    assert [left in plan.not_modelled for plan in (narrow, wide)] == [True, False]
    assert narrow.step.mfu == pytest.approx(narrow.step.counted[0] / (narrow.step.time_s * 64 * 1979e12))


@pytest.mark.parametrize(("dtype", "said"), [("fp8", True), ("int8", True), ("fp8_128", False), ("bf16", False)])
def test_training_on_arrays_of_a_byte_is_said_to_have_all_of_them_so(dtype, said):
    """No stack trains so: what is meant by training in fp8 are products."""
    hint = f"all arrays in {dtype}, the stream among them: workload.dtype: fp8_128 has products of layers in fp8 alone"
    plan = tpsim.plan("qwen2-7b-h100", dtype=dtype)
    assert (hint in [one.text for one in plan.assumptions]) is said
    decode = tpsim.plan("llama3-70b-h100-decode", dtype=dtype)
    assert not [one for one in decode.assumptions if one.text.startswith("all arrays in")]


def test_experts_of_gpt_oss_are_held_as_they_are_published():
    """114,701,598,720 parameters in blocks of 32 with a scale of 8 bits: 17/32 byte each."""
    scenario, experts = "gpt-oss-120b-h100-decode", 114_701_598_720
    published, wide = (tpsim.plan(scenario, overrides=one).memory for one in ([], ["workload.expert_dtype=bf16"]))
    assert 8 * (wide.parameters_bytes - published.parameters_bytes) == 2 * experts - 60_935_224_320
    assert experts * 17 // 32 == 60_935_224_320


@pytest.mark.parametrize(
    ("field", "value"),
    [("dtype", "int4"), ("param_dtype", "mxfp4"), ("grad_dtype", "fp8_128"), ("optimizer_dtype", "int4")],
)
def test_formats_that_no_training_of_these_has_are_refused_by_name(field, value):
    with pytest.raises(InputError, match=f'unknown-value.*workload.{field} cannot be "{value}"'):
        tpsim.plan("mixtral-8x7b-h100", overrides=[f"workload.{field}={value}"])
