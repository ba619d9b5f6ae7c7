"""What short names of schemes stand for: the table of axes, the switches, and bytes per element."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest

from tpsim.answers.shard import shard
from tpsim.program.dtypes import DTYPE_BYTES, FORMATS
from tpsim.program.frameworks import PRACTICES
from tpsim.program.keeps import BUFFERS
from tpsim.program.layout import Layout, layout
from tpsim.program.practice import SWITCHES, Practice
from tpsim.quantity.spec import Value


@pytest.mark.parametrize("dtype", FORMATS)
def test_a_dtype_says_its_bits_in_its_name(dtype):
    assert FORMATS[dtype].bits == int(re.sub(r"\D", "", dtype.partition("_")[0]))


def test_a_scale_that_a_block_shares_is_a_share_of_every_element():
    """I12: 33/32 and 17/32 bytes; the experts of gpt-oss-120b."""
    assert (DTYPE_BYTES["fp8_128"], DTYPE_BYTES["mxfp4"], DTYPE_BYTES["int4"]) == (
        Fraction(33, 32),
        Fraction(17, 32),
        Fraction(1, 2),
    )
    (held,) = shard("e[N_X, W]", "X=4", dims="N=128,W=896106240", dtype="mxfp4").to_json()["result"]["arrays"]
    assert (held["local_bytes"], held["total_bytes"]) == (60_935_224_320 // 4, 60_935_224_320)


@pytest.mark.parametrize(
    ("zero", "regions"), [(0, []), (1, ["state"]), (2, ["grad", "state"]), (3, ["grad", "state", "stored"])]
)
def test_each_stage_of_zero_shards_one_more_region_over_data(zero, regions):
    table = layout(tp=("X",), dp=("D",), zero=zero).table
    assert sorted(set(table) - {"*"}) == regions
    for region in regions:
        assert table[region] == {"h": ("D",), "d": ("D",), "f": ("X", "D")}


def test_leading_tensor_axes_shard_kv_heads_and_the_others_their_queries():
    assert layout(tp=("X", "Y"), kv_split=1).table["*"] == {
        "b": (),
        "g": ("X",),
        "r": ("Y",),
        "f": ("X", "Y"),
        "v": ("X", "Y"),
    }
    assert layout(tp=("X", "Y")).table["*"]["g"] == ("X", "Y")


@pytest.mark.parametrize(
    ("table", "fused"),
    [
        ({"*": {"g": ("X",)}}, "fused"),
        ({"heads": {"r": ("X",)}}, "fused"),
        ({"*": {"r": ("X",)}}, "fused_kv"),
        ({"block": {"r": ("X",)}}, "fused_kv"),
        ({"state": {"r": ("X",)}}, "fused_kv"),
        ({"*": {"r": ("X",)}, "block": {"r": ()}}, "fused_kv"),
        ({"*": {"g": ("X",), "r": ("X",)}}, "fused"),
    ],
)
def test_queries_are_fused_with_keys_and_values_where_no_axis_shards_their_weights_alone(table, fused):
    where = Layout(table=table)
    assert Practice(qkv="fused").under(where).qkv == fused
    assert Practice(qkv="separate").under(where).qkv == "separate"


def plainly(practice):
    values = {name: getattr(practice, name) for name in SWITCHES}
    return {name: dict(value) if isinstance(value, Value) else value for name, value in values.items()}


def test_a_named_practice_differs_from_the_ideal_one_only_in_these_switches():
    ideal, neighbours = plainly(PRACTICES["ideal"]), {"context": "gather", "order": "contiguous"}
    beside = {"gradients": "beside", "weights": "beside", "stages": "beside"}
    blocking = {"tensor": "none", "gradients": "none", "weights": "none", "stages": "auto"}
    assert ideal["overlap"] == {**beside, "tensor": "beside"}
    switches = {
        name: {switch: value for switch, value in plainly(practice).items() if value != ideal[switch]}
        for name, practice in PRACTICES.items()
    }
    buffers = {name: practice.buffers for name, practice in PRACTICES.items() if practice.buffers}
    assert buffers == {"fsdp2": BUFFERS["fsdp2"], "deepspeed": BUFFERS["deepspeed"]}
    lists = [changed["bucket"].pop("buffers") for changed in switches.values() if "bucket" in changed]
    assert lists == [None, None]
    rows = {name: changed.pop("rows") for name, changed in switches.items() if name != "ideal"}
    plain = {"gates": "experts", "overlap": "none", "dispatch": "flat", "counts": "none", "dtype": None}
    assert all(one == plain for one in rows.values())
    assert ideal["rows"] == {**plain, "overlap": "beside"}
    assert ideal["ahead"] == {"layers": 1, "elements": None, "since": "step"}
    as_run = {"ahead": {**ideal["ahead"], "since": "auto"}}
    assert switches == {
        "ideal": {},
        "megatron": {
            **as_run,
            "cast": "products",
            "regather": True,
            "reshard_after_forward": True,
            "qkv": "fused",
            "coalesce": True,
            "keeps": (("loss.exp", 2), ("weights", 2), ("gradients", -2)),
            "latents": "stream",
            "handed": "heads",
            "replay": "whole",
            "padding": "flat",
            "clip": "norm",
            "overlap": {**blocking, "tensor": "beside"},
            "bucket": {"of": "layer", "elements": 40_000_000, "per_rank": 1_000_000, "first_chunk": True},
        },
        "fsdp2": {
            **as_run,
            "reshard_after_forward": "layers",
            "staged": "shared",
            "coalesce": True,
            "copies": "each",
            "settled": "parameters",
            "units": "root",
            "padding": "rows",
            "clip": "norm",
            "context": "gather",
            "handed": "heads",
            "overlap": {**blocking, **beside},
        },
        "deepspeed": {
            **neighbours,
            "reshard_after_forward": True,
            "coalesce": True,
            "copies": "added",
            "handed": "heads",
            "replay": "whole",
            "padding": "flat",
            "clip": "norm",
            "overlap": {"tensor": "none", "gradients": "zero3", "weights": "zero3", "stages": "none"},
            "ahead": {"layers": 1, "elements": 50_000_000, "since": "auto"},
            "bucket": {"of": "layer", "elements": 500_000_000, "per_rank": 0, "first_chunk": False},
        },
        "xla": {
            **neighbours,
            "reshard_after_forward": "layers",
            "cotangents": "per_use",
            "handed": "heads",
            "causal": "whole",
            "overlap": {**beside, "tensor": "split"},
        },
    }
