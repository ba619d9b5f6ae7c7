"""Scenarios of inference: what they state, what does not apply to them, and what does not divide."""

from __future__ import annotations

import pytest

from tpsim.quantity.errors import InputError
from tpsim.question.scenario import resolve

TEXT = """\
tpsim: scenario/1
model: gpt2-xl
hardware: dgx-h100
mesh: {data: 2, tensor: 4}
layout: {tp: tensor, dp: data}
workload: {kind: decode, batch: 8, context: 64}
"""
WORK = "{kind: decode, batch: 8, context: 64}"
PADDED = ["model={extends: gpt2-xl, vocab_padded: 50304, heads: 20, kv_heads: 20, head_dim: 80, params: null}"]


REFUSED = {
    "ZeRO": (("dp: data}", "dp: data, zero: 1}"), "layout.zero says nothing of inference: ZeRO shards gradients"),
    "schedules": (
        ("dp: data}", "pp: data}\npipeline: {schedule: gpipe}"),
        "pipeline.schedule says nothing of inference: batches go forward through the stages, one after the other",
    ),
    "context parallelism": (
        ("dp: data}", "cp: data}"),
        "layout.cp says nothing of inference: context parallelism of inference is not planned yet, but for",
    ),
    "recompute": (("model:", "recompute: full\nmodel:"), "recompute says nothing of inference: nothing is kept"),
    "a switch of backward": (
        ("model:", "practice: {base: megatron, regather: true}\nmodel:"),
        "practice.regather says nothing of inference: it steers what backward or the update does",
    ),
    "gradients": (
        (WORK, "{kind: decode, context: 64, grad_dtype: f32}"),
        '"grad_dtype" is not a field of a workload that',
    ),
    "microbatches": (
        (WORK, "{kind: serve, batch: 2, prompt: 8, output: 8, microbatches: 2}"),
        "batch 2 is not divisible by dp 2 x microbatches 2 = 4",
    ),
    "no context": ((WORK, "{kind: decode, batch: 8}"), 'a workload that decodes needs "context"'),
    "an unknown kind": ((WORK, "{kind: chat, batch: 8}"), "known: train, prefill, decode, serve"),
    "a batch that does not divide": (
        (WORK, "{kind: decode, batch: 7, context: 64}"),
        "batch 7 is not divisible by dp 2",
    ),
    "more new tokens than there are": (
        (WORK, "{kind: decode, batch: 8, context: 4, tokens: 5}"),
        "tokens 5 is more than a context of 4 tokens can have",
    ),
    "a prompt that is cached whole": (
        (WORK, "{kind: prefill, batch: 8, prompt: 4, cached: 4}"),
        "cached 4 is more than a prompt of 4 tokens can have",
    ),
    "longer than the model": (
        (WORK, "{kind: serve, batch: 8, prompt: 1000, output: 100}"),
        "1100 tokens are more than the 1024 positions that gpt2-xl has learned",
    ),
    "a cache that does not divide by tokens": (
        (
            f"tp: tensor, dp: data}}\nworkload: {WORK}",
            "tp: tensor, dp: data, cache: sequence}\nworkload: {kind: decode, batch: 8, context: 63}",
        ),
        "a cache of 63 tokens is not divisible by tensor = 4, over which layout.cache splits it",
    ),
    "new tokens split": (
        ("tp: tensor,", "tp: tensor, sequence_parallel: true,"),
        "1 new tokens are not divisible by tp 4",
    ),
}


@pytest.mark.parametrize(("edit", "message"), REFUSED.values(), ids=REFUSED)
def test_what_says_nothing_of_inference_is_refused_by_name_at_its_place(case, edit, message):
    with pytest.raises(InputError) as error:
        resolve(case(*edit), overrides=PADDED)
    text = str(error.value)
    assert message in text
    assert "case.yaml:" in text
    assert "^" in text


def test_what_a_window_holds_is_no_field_so_another_way_to_split_it_is_named(case):
    """The last two of 5,000 tokens read 4,096 each, 4,097 together."""
    path = case("gpt2-xl", "mistral-7b")
    asked = [
        "layout={tp: tensor, dp: data, cache: sequence}",
        "workload={kind: decode, batch: 8, context: 5000, tokens: 2}",
    ]
    with pytest.raises(InputError, match=r"a cache of 4097 tokens of a window is not divisible") as error:
        resolve(path, overrides=asked)
    (problem,) = error.value.problems
    assert problem.remedy == "layout.cache: heads"
    assert resolve(path, overrides=[*asked, problem.remedy.replace(": ", "=")])


def test_the_flag_of_the_batch_sets_the_batch_of_inference(case):
    assert resolve(case(), overrides=PADDED, flags={"batch": 64}).workload.global_batch == 64


def test_a_saved_scenario_asks_the_same_again(case, tmp_path):
    from tpsim.question.save import scenario_text

    question = resolve(case(), overrides=PADDED)
    again = tmp_path / "again.yaml"
    again.write_text(scenario_text(question, tmp_path), encoding="utf-8")
    assert resolve(again).resolved["workload"] == question.resolved["workload"]
    assert "\n# workload: {sampling: gather, tokens: 1, dtype: bf16," in again.read_text()


def test_where_caches_lie_says_nothing_of_training():
    with pytest.raises(InputError, match=r"layout\.cache says nothing of training") as error:
        resolve("llama3-8b-v5e", overrides=["layout.cache=sequence"])
    assert "^^^^^^^^ remove layout.cache" in str(error.value)


def test_questions_of_other_sizes_share_a_program_and_other_phases_do_not(case):
    from tpsim.question.memo import structure

    base = structure(resolve(case(), overrides=PADDED))
    assert structure(resolve(case(), overrides=[*PADDED, "workload.batch=16", "workload.context=128"])) == base
    for other in ("workload.sampling=argmax", "layout.cache=batch", "workload={kind: prefill, batch: 8, prompt: 64}"):
        assert structure(resolve(case(), overrides=[*PADDED, other])) != base


@pytest.mark.parametrize(
    ("kind", "tokens"),
    [("decode", "context"), ("prefill", "prompt"), ("serve", "prompt")],
    ids=("decode", "prefill", "serve"),
)
def test_flags_mean_what_inference_calls_so_where_an_override_says_that_it_is_inference(kind, tokens):
    flags = {"model": "llama-3-8b", "hw": "dgx-h100", "tp": 8, "batch": 16, "seq": 4096}
    reply = ["workload.output=64"] if kind == "serve" else []
    stated = resolve(None, overrides=[f"workload.kind={kind}", *reply], flags=flags).stated.file.workload
    assert (stated.kind, stated.batch, getattr(stated, tokens)) == (kind, 16, 4096)


def test_a_file_of_inference_takes_the_flag_of_tokens(case):
    assert resolve(case(), overrides=PADDED, flags={"seq": 96}).stated.file.workload.context == 96
