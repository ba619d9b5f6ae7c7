"""Bytes of attention over a shared sequence of 131,072 tokens, against what was worked out by hand for one layer."""

from __future__ import annotations

import pytest

from tpsim.answers.plan import plan

SEQ = 131072
MODELS = {
    "llama-3-8b": {"extends": "llama-3-8b"},
    "llama-3-70b": {"extends": "llama-3-70b"},
    "gpt-3": {"extends": "gpt3-175b", "positions": "rope", "max_positions": None, "tie_embeddings": False},
    "qwen3-235b": {"extends": "llama-3-70b", "kv_heads": 4, "params": None},
}


def wire(model, context, *, n=8, phase="forward", **practice):
    """Bytes that one device injects for attention's arrays of one layer, by what is sent."""
    mesh = n if isinstance(n, dict) else {"context": n}
    result = plan(
        {
            "tpsim": "scenario/1",
            "name": "one layer's attention",
            "model": MODELS[model],
            "hardware": "dgx-h100",
            "mesh": mesh,
            "layout": {"cp": list(mesh), "context": context},
            "practice": {"base": "ideal", **practice},
            "workload": {"seq": SEQ, "global_batch": 1, "dtype": "bf16"},
        }
    )
    found = {}
    for row in result.rows:
        if row.phase == phase and row.block == "attention" and row.op == "activation":
            found.setdefault(row.collective, []).append(row.wire_bytes_per_device)
    return found


@pytest.mark.parametrize(
    ("model", "n", "gathered", "heads"),
    [
        ("llama-3-8b", 8, 469_762_048, 293_601_280),
        ("llama-3-70b", 8, 469_762_048, 528_482_304),
        ("gpt-3", 8, 5_637_144_576, 1_409_286_144),
        ("qwen3-235b", 4, 201_326_592, 855_638_016),
    ],
)
def test_keys_and_values_or_heads_are_sent_and_the_ratio_is_that_of_heads(model, n, gathered, heads):
    """Heads cost (r + 1)/n of gathered keys and values, for r queries per kv head."""
    keys = wire(model, "gather", n=n)
    assert keys.keys() == {"all_gather"}
    assert sum(keys["all_gather"]) == gathered
    exchanged = wire(model, "heads", n=n)
    assert exchanged.keys() == {"all_to_all"}
    assert sum(exchanged["all_to_all"]) == heads


def test_each_of_queries_keys_values_and_what_they_make_is_exchanged_by_its_own_bytes():
    assert sorted(wire("llama-3-8b", "heads")["all_to_all"]) == [29_360_128] * 2 + [117_440_512] * 2


def test_backward_scatters_cotangents_of_keys_and_values_and_gathers_these_again_if_practice_dropped_them():
    kept = wire("llama-3-8b", "gather", phase="backward")
    assert kept.keys() == {"reduce_scatter"}
    assert sum(kept["reduce_scatter"]) == 469_762_048
    again = wire("llama-3-8b", "gather", phase="backward", regather=True)
    assert {kind: sum(each) for kind, each in again.items()} == {
        "reduce_scatter": 469_762_048,
        "all_gather": 469_762_048,
    }


def test_heads_over_four_and_keys_over_two_send_what_each_of_them_does():
    both = wire("llama-3-8b", {"gather": "outer", "heads": "inner"}, n={"outer": 2, "inner": 4})
    assert {kind: sum(each) for kind, each in both.items()} == {"all_to_all": 251_658_240, "all_gather": 67_108_864}
