"""Bytes of attention over a shared sequence of 131,072 tokens, against what was worked out by hand for one layer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tpsim.answers.plan import plan
from tpsim.question.context import reaches

DATA = Path(__file__).parent / "data"

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
    ("model", "queries", "n", "gathered", "heads"),
    [
        ("llama-3-8b", 4, 8, 469_762_048, 293_601_280),
        ("llama-3-70b", 8, 8, 469_762_048, 528_482_304),
        ("gpt-3", 1, 8, 5_637_144_576, 1_409_286_144),
        ("qwen3-235b", 16, 4, 201_326_592, 855_638_016),
    ],
)
def test_keys_and_values_or_heads_are_sent_and_the_ratio_is_that_of_heads(model, queries, n, gathered, heads):
    """Heads cost (r + 1)/n of gathered keys and values, for r queries per kv head."""
    keys = wire(model, "gather", n=n)
    assert keys.keys() == {"all_gather"}
    assert sum(keys["all_gather"]) == gathered
    exchanged = wire(model, "heads", n=n)
    assert exchanged.keys() == {"all_to_all"}
    assert sum(exchanged["all_to_all"]) == heads
    assert heads * n == gathered * (queries + 1)


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


def test_a_ring_whose_sums_go_all_the_way_round_in_f32_sends_more_than_twice_as_much_of_them():
    """k and v n - 1 hops, dk and dv n hops of f32: ring-flash-attention adds in f32 and sends these in every step.

    Read in the backward of zhuzilin/ring-flash-attention, `ring_flash_attn/ring_flash_attn.py`.
    """
    circle = wire("llama-3-8b", "ring", phase="backward", home="circle")
    assert sum(circle["all_gather"]) == 469_762_048
    assert sum(circle["reduce_scatter"]) + sum(circle["permute"]) == 1_073_741_824
    assert sum(circle["permute"]) * 8 == 1_073_741_824
    assert sum(wire("llama-3-8b", "ring", phase="backward")["reduce_scatter"]) == 469_762_048


def test_heads_over_four_and_keys_over_two_send_what_each_of_them_does():
    both = wire("llama-3-8b", {"gather": "outer", "heads": "inner"}, n={"outer": 2, "inner": 4})
    assert {kind: sum(each) for kind, each in both.items()} == {"all_to_all": 251_658_240, "all_gather": 67_108_864}


def shared(model, **fields):
    """Attention's rows of a plan of one sequence on 8 devices, forward: array -> V and wire of a call."""
    scenario = {
        "tpsim": "scenario/1",
        "name": "shared",
        "model": model,
        "hardware": "dgx-h100",
        "mesh": {"context": 8},
        "practice": {"base": "ideal", "order": "contiguous"},
        "workload": {"seq": SEQ, "global_batch": 1, "dtype": "bf16"},
    }
    result = plan({**scenario, **fields})
    rows = (row for row in result.rows if (row.phase, row.block, row.op) == ("forward", "attention", "activation"))
    sent = {}
    for row in rows:
        assert sent.setdefault(row.array.removeprefix("attention."), moved(row)) == moved(row)  # alike in all layers
    return result, sent


def moved(row):
    return row.collective, row.logical_bytes, row.wire_bytes_per_device


def test_latents_of_deepseek_v3_are_71_times_less_than_the_heads_that_are_made_of_them():
    """576 numbers of a token, or 40,960 where each of 128 heads has its own rotated key, as frameworks lay them."""
    _, latents = shared("deepseek-v3", layout={"cp": "context", "context": "gather"})
    assert {kind for kind, *_ in latents.values()} == {"all_gather"}
    volume, wire = (sum(one[at] for one in latents.values()) for at in (1, 2))
    assert (volume, wire) == (150_994_944, 132_120_576)
    table = {"*": {"s": "context"}, "latent": {"t": "context"}, "heads": {"s": "context"}}
    _, heads = shared("deepseek-v3", shardings=table)
    expanded = [sum(heads[name][at] for name in ("k", "v", "rotated_keys")) for at in (1, 2)]
    assert expanded == [10_737_418_240, 9_395_240_960]
    assert expanded[0] / volume == pytest.approx(71.1, abs=0.05)


@pytest.mark.parametrize("base", ["megatron", "fsdp2", "deepspeed", "xla"])
def test_frameworks_hand_on_the_heads_that_are_made_of_latents_and_make_them_of_a_device_s_own_tokens_alone(base):
    """Megatron-LM, multi_latent_attention.py: k of 128 + 64 and v of 128 numbers for each of 128 heads are exchanged.

    So are they in torchtitan's model, by DeepSpeed's Ulysses and in MaxText; nobody gathers latents.
    """
    practice = {"base": base, "order": "contiguous"}
    _, sent = shared("deepseek-v3", practice=practice, layout={"cp": "context", "context": "gather"})
    assert {name: volume for name, (_, volume, _) in sent.items()} == {
        "k": SEQ * 128 * 128 * 2,
        "rotated_keys": SEQ * 128 * 64 * 2,
        "v": SEQ * 128 * 128 * 2,
    }
    exchanged, _ = shared("deepseek-v3", practice=practice, layout={"cp": "context", "context": "heads"})
    rows = [row for row in exchanged.rows if (row.block, row.op, row.axis) == ("attention", "activation", "context")]
    assert {row.collective for row in rows} == {"all_to_all"}  # nothing is gathered whole, in backward neither


def test_heads_of_other_devices_tokens_are_made_and_kept_only_where_latents_are_handed_on():
    """Of 62 layers both products of a latent of 512, once forward and twice backward, for the tokens of seven others.

    What these make, and one rotated key, attention keeps of all tokens: no sharing makes that less. Of heads each has
    a rotated key of its own, of a device's tokens.
    """
    latents, heads = (
        shared(
            "deepseek-v3",
            practice={"base": "megatron", "order": "contiguous", "handed": handed},
            layout={"cp": "context", "context": "ring"},
        )[0]
        for handed in ("latents", "heads")
    )
    others, made = 62 * SEQ * 7 // 8, 128 * (128 + 128)
    assert latents.compute.flops - heads.compute.flops == 3 * 2 * others * 512 * made
    kept = 62 * SEQ * (made + 64), 62 * SEQ // 8 * (made + 128 * 64)
    assert latents.memory.kept_bytes - heads.memory.kept_bytes == 2 * (kept[0] - kept[1])


def test_each_head_keeps_a_rotated_key_of_its_own_where_attention_is_handed_those_of_heads():
    """Frameworks expand k_pe to all 128 heads, and lay it beside the rest of a key: 62 layers keep 64 of each token."""
    one, every = (
        shared("deepseek-v3", practice={"base": "megatron", "handed": handed}, mesh={"one": 1})[0]
        for handed in ("latents", "heads")
    )
    assert every.memory.kept_bytes - one.memory.kept_bytes == 62 * SEQ * (128 - 1) * 64 * 2


def test_a_window_would_need_a_hundredth_of_what_is_gathered_for_it_and_the_plan_says_so():
    """A local layer of Gemma 3: the neighbour's last 1,023 tokens, 8,380,416 bytes, against all keys and values."""
    found, sent = shared("tests/data/hf/gemma-3-27b.json", layout={"cp": "context", "context": "gather"})
    assert sent["keys"][2] + sent["values"][2] == 939_524_096
    ((tokens, needed, gathered),) = reaches(found.question)
    assert (tokens, needed, gathered) == (1024, 8_380_416, 939_524_096)
    (said,) = (text for text in found.not_modelled if "window" in text)
    assert "1,024 tokens reads no more than 8.38 MB" in said
    assert "939.5 MB of every layer with one are gathered" in said
    heads, _ = shared("tests/data/hf/gemma-3-27b.json", layout={"cp": "context", "context": "heads"})
    assert not reaches(heads.question)


RUNS = [row for row in json.loads((DATA / "measured_memory.json").read_text())["rows"] if row.get("context", 1) > 1]


@pytest.mark.parametrize("row", RUNS, ids=lambda row: row["id"])
def test_peaks_of_published_runs_that_exchange_heads_are_within_1_1_percent(row):
    """Megatron-LM with Transformer Engine, cp 4 by all-to-all, tp 2 on 8 B200, as MooreThreads/SimuMax measured it.

    What that stack keeps besides (`keeps`) was found by looking at its other runs: of these it is a forecast.
    """
    result = plan(
        {
            "tpsim": "scenario/1",
            "name": row["id"],
            "model": {"extends": "llama-3-70b", **row["model"], "params": None},
            "hardware": "dgx-b200",
            "mesh": {"context": row["context"], "tensor": row["mesh"]["tensor"]},
            "layout": {
                "cp": "context",
                "context": "heads",
                "tp": "tensor",
                "zero": row["zero"],
                "sequence_parallel": row["sequence_parallel"],
            },
            "practice": {"base": "megatron", "keeps": "megatron-te"},
            "workload": {
                "seq": row["seq"],
                "global_batch": row["each"] * row["microbatches"],
                "microbatches": row["microbatches"],
                "dtype": "bf16",
                "grad_dtype": "f32",
            },
        }
    )
    assert result.memory.peak_bytes / 2**30 == pytest.approx(row["gib"], rel=0.011)


@pytest.mark.parametrize(
    ("machine", "level", "network", "queries", "tokens"),
    [
        ("dgx-h100", "nvlink", "50 GB/s", 4, 549),
        ("dgx-h100", "network", "50 GB/s", 4, 4945),
        ("dgx-h100", "network", "50 GB/s", 1, 19_780),
        ("dgx-a100", "nvlink", "12.5 GB/s", 1, 1040),
        ("dgx-a100", "network", "12.5 GB/s", 1, 24_960),
    ],
)
def test_hops_hide_behind_blocks_from_so_many_tokens_of_a_device(machine, level, network, queries, tokens):
    """peak/(r*w), for r queries per kv head over links of w: 989 TFLOP/s and 450 or 50 GB/s, 312 and 300 or 12.5.

    A little less where the pause behind a kernel counts. Ring Attention (arXiv 2310.01889), table 2, has peak/w of the
    A100: 1.0e3 and 24.5e3, the latter 2 % below 312e12/12.5e9.
    """

    def exposed(own):
        result = plan(
            {
                "tpsim": "scenario/1",
                "name": "hops",
                "model": {**MODELS["llama-3-8b"], "layers": 1, "kv_heads": 32 // queries, "params": None},
                "hardware": {"extends": machine, "levels": {"network": {"link": {"bandwidth": network}}}},
                "mesh": {"context": 8},
                "placement": {"context": level},
                "layout": {"cp": "context", "context": "ring"},
                "practice": {"base": "ideal", "causal": "whole"},
                "cost_model": "book",
                "workload": {"seq": 8 * own, "global_batch": 1, "dtype": "bf16"},
            }
        )
        return sum(row.exposed_s for row in result.rows if row.call.streamed and row.phase == "forward")

    assert exposed(tokens * 9 // 10 // 2 * 2) > 0
    assert exposed(tokens * 51 // 50 // 2 * 2) == 0
