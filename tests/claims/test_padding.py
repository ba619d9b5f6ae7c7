"""Parameters that dp does not divide: filled up, priced with what fills them up, and run on devices that hold zeros."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest

from tests.models import GPT
from tpsim.algebra.mesh import Mesh
from tpsim.algebra.sharding import FlatDim, Sharding, unpacked
from tpsim.answers.plan import plan
from tpsim.claims.verify import verify
from tpsim.program.dtypes import Dtypes
from tpsim.program.frameworks import PRACTICES
from tpsim.program.layout import layout
from tpsim.program.lower import lower
from tpsim.program.op import Leaf
from tpsim.quantity.errors import InputError
from tpsim.question.scenario import resolve
from tpsim.reference.blocks import Grid
from tpsim.reference.execute import execute
from tpsim.reference.run import leaves

SMALL = {"model": "gpt2-xl", "hw": "dgx-h100", "dp": 12, "seq": 1024, "batch": 24, "zero": 1}
"""Hidden 1600 over 12: a third of a row is missing."""

H, F, V, P, L = 1600, 6400, 50257, 1024, 48
WEIGHTS = [(3 * H, H), (H, H), (F, H), (H, F)] * L + [(V, H), (P, H)]
"""Rows and columns of gpt2-xl's weights, as PyTorch has them (Radford et al. 2019, the model's config.json)."""
VECTORS = [3 * H, H, F, H, *[H] * 4] * L + [H, H]
"""Its biases and norms."""


def state_bytes(practice, dp):
    """Of a device: master weights and two moments in four bytes each."""
    if practice == "fsdp2":
        held = sum(ceil(rows / dp) * columns for rows, columns in WEIGHTS) + sum(ceil(n / dp) for n in VECTORS)
    else:
        held = sum(ceil(rows * columns / dp) for rows, columns in WEIGHTS) + sum(ceil(n / dp) for n in VECTORS)
    return 12 * held


@pytest.mark.parametrize("practice", ["megatron", "deepspeed", "fsdp2"])
@pytest.mark.parametrize("dp", [3, 12, 96])
def test_states_are_held_with_what_fills_them_up(practice, dp):
    # Queries, keys and values are one weight in a file and three here: of rows that is the same where dp divides them.
    found = plan(**{**SMALL, "dp": dp, "batch": 192, "practice": practice}, overrides=("practice.qkv=fused",))
    assert found.memory.optimizer_bytes == state_bytes(practice, dp)


def test_what_fills_up_travels_with_the_rest():
    """Of a layer's new weights in bf16: the whole lines, (d-1)/d of each are sent."""
    found = plan(**SMALL)
    (row,) = (row for row in found.rows if row.collective == "all_gather" and row.call.per_layer)
    lines = [*WEIGHTS[:4], *((n, 1) for n in VECTORS[:8])]
    lines_bytes = 2 * sum(11 * ceil(rows * columns / 12) for rows, columns in lines)
    assert row.wire_bytes_per_device == row.call.layers * lines_bytes
    assert "ceiling(h/d)" in row.formula


@pytest.mark.parametrize(
    "case",
    [
        {"practice": "megatron", "tp": 5, "sp": True, "seq": 1000},
        {"practice": "deepspeed", "zero": 3, "overrides": ("practice.clip=norm",)},
        {"practice": "fsdp2", "zero": 3, "overrides": ("practice.clip=norm",)},
        {"practice": "fsdp2", "zero": 2, "tp": 5, "microbatches": 2},
        {"practice": "megatron", "zero": 2, "pp": 2, "schedule": "1f1b", "microbatches": 2},
        {"model": "llama-3-8b", "practice": "fsdp2", "zero": 3, "tp": 16, "dp": 6},
    ],
    ids=lambda case: " ".join(map(str, case.values())),
)
def test_a_step_with_lines_is_that_of_one_device_and_sends_what_is_claimed(case):
    asked = {**SMALL, **case}
    overrides = ("model.vocab_padded=50260", *asked.pop("overrides", ()))
    overrides = overrides if asked["model"] == "gpt2-xl" else overrides[1:]
    answer = verify(None, overrides=overrides, **asked)
    assert answer.ok, answer.verdict
    assert answer.runs[0].difference < 1e-10


def ran(practice, how, *, h=5):
    """A step of a small model of hidden 5 on three data shards."""
    dims = {"b": 6, "s": 4, "t": 4, "h": h, "g": 2, "r": 1, "d": 4, "e": 4, "j": 3, "kv": 2, "f": 8, "v": 8, "p": 4}
    made = lower(GPT, layout(dp=("D",), zero=3, line=how), PRACTICES[practice], Dtypes(), ("D",), layers=1)
    return execute(made, Mesh({"D": 3}), {**dims, "m": 1}, leaves(dims))


def test_the_last_devices_hold_less_and_zeros_behind():
    run = ran("fsdp2", "rows")
    (gain,) = (op.output for op in run.program.ops if isinstance(op, Leaf) and op.output.name == "gain_final")
    blocks = [run.blocks[gain][device] for device in run.grid.devices]
    assert [block.size for block in blocks] == [2, 2, 2]  # five in three chunks of the first one's size
    assert blocks[-1][1] == 0
    assert blocks[-1][0] != 0


@pytest.mark.parametrize("how", ["flat", "rows"])
def test_what_lies_in_a_line_is_what_was_laid_in_it(how):
    grid, shape = Grid(Mesh({"T": 2, "D": 3})), {"h": 5, "f": 8}
    plain = Sharding(("h", "f"), ((), ("T",)))
    line = FlatDim(how, plain, ("h", "f") if how == "flat" else ("f",), ("D",))
    whole = np.arange(40.0).reshape(5, 8)
    laid = grid.relaid(whole, plain, line.type, shape)
    assert laid.shape == ((42,) if how == "flat" else (12, 5))
    assert sorted(laid[laid > 0]) == sorted(whole[whole > 0])
    assert (grid.relaid(laid, line.type, plain, shape) == whole).all()
    assert unpacked(line.type) == plain


def test_blocks_laid_out_in_the_wrong_order_are_found(monkeypatch):
    lined = Grid.lined
    monkeypatch.setattr(Grid, "lined", lambda *args: {at: block[::-1] for at, block in lined(*args).items()})
    answer = verify(None, overrides=("model.vocab_padded=50260",), **SMALL)
    assert {check.check for check in answer.runs[0].failed} >= {"update"}


def test_a_plan_says_how_parameters_are_filled_up_and_how_much_that_is():
    said = [one.text for one in resolve(None, flags={**SMALL, "practice": "fsdp2"}).assumptions]
    (text,) = (one for one in said if "fills them up" in one)
    assert text == (
        "hidden 1600 is not divisible by dp 12, which ZeRO splits parameters over: its first dim is filled up to a "
        "multiple of that, so that the last devices hold less, or nothing but zeros (PyTorch FSDP2: chunks of the "
        "first one's size); 0.36 % of what a device holds fills them up"
    )
    assert not [one for one in resolve(None, flags={**SMALL, "dp": 16, "batch": 32}).assumptions if "fill" in one.text]


def test_padding_none_is_refused_with_what_would_do():
    with pytest.raises(InputError) as error:
        resolve(None, flags={**SMALL, "practice": "xla"})
    assert str(error.value) == (
        "error[hidden-not-divisible]: hidden 1600 is not divisible by dp 12, which zero 1 splits it over\n"
        " --> command line:1:1\n  |\n1 | --zero 1\n  | ^^^^^^^^ legal dp: 1, 2, 4, 5, 8, 10, 16, 20, 25, 32, 40, 50, "
        "64, 80, 100, 160, 200, 320, 400, 800, 1600; or zero: 0\n  = practice: {padding: flat} fills parameters up"
    )


EXPERTS = {"tpsim": "scenario/1", "name": "experts", "model": "mixtral-8x7b", "hardware": "dgx-h100"}
EXPERTS |= {"mesh": {"d": 3, "e": 2}, "workload": {"global_batch": 24, "seq": 1024}}
OF_EXPERTS = {"dp": ["d", "e"], "ep": "e", "zero": 1}
HIDDEN, WIDE, VOCAB, LAYERS = 4096, 14336, 32000, 32
DENSE = [(1, HIDDEN, HIDDEN)] * 2 + [(1, 1024, HIDDEN)] * 2 + [(1, 8, HIDDEN)] + [(1, HIDDEN, 1)] * 2
"""Queries, out, keys, values, the router, two norms: each one array of rows and columns (Mixtral's config.json)."""
MIXED = [(8, WIDE, HIDDEN)] * 2 + [(8, HIDDEN, WIDE)]


def held_with_experts(practice, shards, home):
    """Elements of a device of 6: experts lie on `home` of these, and the rest of the devices splits each."""

    def own(many, rows, columns, over):
        if practice == "fsdp2":
            return many * ceil(rows / over) * columns
        return ceil(many * rows * columns / over)

    around = [(1, VOCAB, HIDDEN)] * 2 + [(1, HIDDEN, 1)]
    dense = sum(own(*array, shards) for array in [*DENSE * LAYERS, *around])
    return dense + LAYERS * sum(own(many // home, *array, shards // home) for many, *array in MIXED)


@pytest.mark.parametrize("practice", ["megatron", "deepspeed", "fsdp2"])
@pytest.mark.parametrize("home", [1, 2])
def test_states_of_experts_are_filled_up_over_the_shards_that_they_do_not_lie_on(practice, home):
    layout = {**OF_EXPERTS, "ep": "e" if home > 1 else []}
    found = plan({**EXPERTS, "layout": layout, "practice": {"base": practice, "qkv": "separate"}})
    assert found.memory.optimizer_bytes == 12 * held_with_experts(practice, 6, home)


@pytest.mark.parametrize(
    ("practice", "layout"),
    [
        ("megatron", {"zero": 1}),
        ("megatron", {"zero": 2, "ep": []}),
        ("fsdp2", {"zero": 3}),
        ("deepspeed", {"zero": 3}),
        ("deepspeed", {"zero": 3, "ep": ["d", "e"]}),
        ("fsdp2", {"zero": 3, "ep": "e", "zero_over": "d"}),
    ],
)
def test_a_step_of_experts_with_lines_is_that_of_one_device(practice, layout):
    attention = {"attention": "gqa", "heads": 32, "kv_heads": 8, "head_dim": 128}
    blocks = {"attention": attention, "experts": {"ffn": "moe", "experts": 6, "top": 2, "hidden": 14336}}
    model = {"extends": "mixtral-8x7b", "params": None, "active": None, "blocks": blocks}
    answer = verify({**EXPERTS, "model": model, "layout": {**OF_EXPERTS, **layout}, "practice": practice})
    assert answer.ok, answer.verdict
