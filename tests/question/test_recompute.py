"""What a scenario says it does not keep for backward, and what that comes to."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tpsim.answers.explain import explain
from tpsim.answers.plan import plan, priced
from tpsim.claims.verify import verify
from tpsim.quantity.errors import InputError
from tpsim.question.edits import FLAGS
from tpsim.question.foreign_names import foreign_name, not_yet
from tpsim.question.memo import Memo
from tpsim.question.scenario import resolve

NODE = "gpt3-175b-a100-tp8"
"""One layer's all-reduces inside a node, attention as it was before it was fused."""

STAGES = "gpt3-175b-a100-pipeline"
"""Twelve stages of eight layers."""


def asked(value, scenario=NODE, **flags):
    return resolve(scenario, overrides=[f"recompute={value}"], flags=flags)


@pytest.mark.parametrize(
    ("value", "dropped"),
    [
        ("none", ()),
        ("selective", ("attention",)),
        ("full", ("full",)),
        ("{drop: [mlp.act, norm]}", ("mlp.act", "norm")),
        ("{base: selective, drop: norm.mlp}", ("attention", "norm.mlp")),
        ("{layers: 4}", ("full",)),
        ("{drop: norm, layers: 4}", ("norm",)),
    ],
)
def test_a_recompute_is_a_word_or_names_what_is_dropped(value, dropped):
    assert asked(value).practice.recompute == dropped


@pytest.mark.parametrize(("base", "replay"), [("megatron", "whole"), ("fsdp2", "needed"), ("xla", "needed")])
def test_how_a_layer_is_run_once_more_is_of_the_practice_until_it_is_stated(base, replay):
    assert asked("full", practice=base).practice.replay == replay
    assert asked("{base: full, replay: whole}", practice=base).practice.replay == "whole"


def test_the_flag_says_the_same_as_the_file():
    flag, file = resolve(NODE, flags={"recompute": "full"}), asked("full")
    assert flag.practice == file.practice
    assert flag.stated.data()["recompute"] == file.stated.data()["recompute"] == "full"
    assert FLAGS["recompute"] == "--recompute"
    assert resolve(NODE, flags={"recompute": "full"}, overrides=["recompute.replay=needed"]).practice.replay == "needed"


@pytest.mark.parametrize(
    ("value", "message", "remedy"),
    [
        ("most", 'recompute cannot be "most"', "values: none, selective, full"),
        ("{drop: mlp.atc}", '"mlp.atc" is not a kernel or array of a layer', 'did you mean "mlp.act"?'),
        ("{drop: layer.in}", '"layer.in" is not a kernel or array of a layer', "mlp.variance, norm.attention"),
        (
            "{layers: 97}",
            "97 layers of each chunk are recomputed, and a chunk has 96",
            "write at most 96, or leave layers out: every layer is recomputed",
        ),
        (
            "{base: none, layers: 4}",
            "4 layers of each chunk are recomputed, and nothing of them is dropped",
            "write base: full, or leave layers out",
        ),
    ],
)
def test_what_cannot_be_recomputed_is_refused_where_it_is_written(value, message, remedy):
    with pytest.raises(InputError) as error:
        asked(value)
    assert message in str(error.value)
    assert remedy in str(error.value)
    assert f"--set recompute={value}" in str(error.value)


@pytest.mark.parametrize(
    ("word", "path"),
    [
        ("recompute_granularity", "recompute"),
        ("activation_checkpointing", "recompute"),
        ("gradient_checkpointing", "recompute"),
        ("remat", "recompute"),
        ("--recompute-modules", "recompute.drop"),
        ("--recompute-num-layers", "recompute.layers"),
        ("recompute_method", "recompute.layers, which is of each chunk; without it all are"),
    ],
)
def test_other_frameworks_names_of_it_get_the_path_of_tpsim(word, path):
    assert foreign_name(word) == path
    assert not_yet(word) is None


def test_selective_recompute_of_fused_attention_says_that_it_gains_nothing():
    said = "recompute of fused attention gains nothing: it keeps one number per head and token, which this frees, and "
    assert any(one.startswith(said) for one in asked("selective", "llama3-70b-h100").remarks)
    assert not asked("selective").remarks
    assert not asked("full", "llama3-70b-h100").remarks


def rows(**flags):
    return plan(NODE, **flags).rows


@pytest.mark.parametrize(("replay", "arrays"), [("whole", {"attention.out", "mlp.out"}), ("needed", {"attention.out"})])
def test_collectives_that_run_once_more_are_rows_that_say_so(replay, arrays):
    recomputed = [
        row
        for row in plan(NODE, overrides=[f"recompute={{base: full, replay: {replay}}}"]).rows
        if row.op == "recomputed"
    ]
    forward = {row.array: row for row in rows() if row.phase == "forward"}
    assert {row.array for row in recomputed} == arrays
    for row in recomputed:
        once = forward[row.array]
        assert (row.phase, row.count, row.logical_bytes) == ("backward", 96, once.logical_bytes)
        assert row.because.endswith("recomputed because it was not kept")
    assert not [row for row in rows() if row.op == "recomputed"]


def test_the_rows_of_a_step_that_keeps_everything_are_among_those_of_one_that_recomputes():
    def sent(**flags):
        return [
            (row.phase, row.array, row.count, row.wire_bytes_per_device)
            for row in rows(**flags)
            if row.op != "recomputed"
        ]

    assert sent() == sent(recompute="full") == sent(recompute="selective")


def test_flops_that_run_once_more_are_no_useful_ones():
    kept, full = plan(NODE).step, plan(NODE, recompute="full").step
    assert full.compute.useful_flops == kept.compute.useful_flops
    assert 1.3 < full.compute.flops / kept.compute.flops < 4 / 3  # the head is not recomputed
    assert full.compute_s > kept.compute_s


def staged(value):
    return plan(STAGES, overrides=[f"recompute={value}"])


def test_recompute_of_as_many_layers_as_a_chunk_has_is_that_of_all():
    some, every = staged("{layers: 8}"), staged("full")
    assert some.step.time_s == pytest.approx(every.step.time_s, rel=1e-12)
    assert [one.peak_bytes for one in some.each] == [one.peak_bytes for one in every.each]
    assert sum(row.payload_bytes for row in some.rows) == sum(row.payload_bytes for row in every.rows)


def test_each_layer_more_of_a_chunk_trades_as_many_bytes_for_as_many_seconds():
    """But that what is recomputed is a kind, and a kind has a bucket of its own: one call more."""
    plans = [staged("none"), *(staged(f"{{layers: {n}}}") for n in (1, 2, 3))]
    for of, first in ((lambda one: one.memory.peak_bytes, 1e-9), (lambda one: -one.step.time_s, 1e-4)):
        steps = [float(of(one) - of(more)) for one, more in pairwise(plans)]
        assert steps[0] > 0
        assert steps[1] == pytest.approx(steps[2], rel=1e-9)
        assert steps[0] == pytest.approx(steps[1], rel=first)


def test_a_step_that_drops_is_no_program_of_one_that_does_not_though_both_are_asked_of_one_shelf():
    model = "model={extends: gpt3-175b, name: dropping, params: null, dropout: 0.1}"
    memo = Memo()
    asked_for = [resolve(NODE, overrides=one, memo=memo) for one in ([], [model])]
    kept, dropping = (priced(one, memo).memory.kept_bytes for one in asked_for)
    assert dropping > kept


def test_rows_of_a_stack_of_several_kinds_say_which_layers_have_them():
    rows = [row for row in staged("{layers: 3}").rows if row.array == "attention.out"]
    named = {(row.op, row.layer): row.count // 384 for row in rows if row.phase == "forward" or row.op == "recomputed"}
    assert named == {("activation", "recomputed"): 3, ("activation", "kept"): 5, ("recomputed", "recomputed"): 3}


def test_what_is_kept_is_told_of_each_kind_of_layer():
    derivations = explain("memory.kept", STAGES, overrides=["recompute={layers: 3}"]).derivations
    found = {one.what: one.value for one in derivations}
    forward = "bytes that one microbatch keeps of one {} layer from forward to backward"
    assert found[forward.format("recomputed")] == 2 * 2048 * 12288  # the layer's input, in bf16
    assert found[forward.format("kept")] > 10 * found[forward.format("recomputed")]


@pytest.mark.parametrize(
    ("scenario", "value"),
    [
        (NODE, "{layers: 5}"),
        *(("gpt3-175b-a100-tp8-sp", value) for value in ("{drop: [mlp.act]}", "{base: full, replay: needed}")),
        *(("llama3-8b-b200-fsdp", value) for value in ("full", "selective")),
        (
            "llama3-405b-h100-cp",
            "{drop: [attention.k, norm.mlp]}",
        ),  # a ring keeps no keys of others: one device, its own
        ("qwen3-235b-h100", "{drop: [router.logits, attention.normed, attention.q]}"),
    ],
)
def test_a_recomputed_step_moves_the_bytes_that_are_claimed(scenario, value):
    found = verify(scenario, overrides=[f"recompute={value}"])
    assert [check.check for check in found.checks if not check.ok] == []


@pytest.mark.parametrize("model", ["qwen2-7b", "gpt-oss-120b", "deepseek-v3", "gemma-2-27b"])
@pytest.mark.parametrize("base", ["megatron", "fsdp2", "deepspeed", "xla"])
def test_backward_of_attention_that_is_recomputed_stays_one_kernel(model, base):
    """What it misses is there before it begins, so that its scores never leave the chip, where windows hide most."""
    flags = {"model": model, "hw": "dgx-b200", "seq": 4096, "batch": 1, "practice": base}
    none, selective, full = (plan(**flags, recompute=name) for name in ("none", "selective", "full"))
    assert none.step.compute_s < selective.step.compute_s < full.step.compute_s
    scored = [kernel.where for kernel in selective.lowered.kernels if kernel.on_scores]
    backward = [where.loops for where in scored if where.phase == "backward" and not where.kernel.endswith(".again")]
    assert sorted(backward) == sorted({where.loops for where in scored})


@pytest.mark.parametrize("base", ["megatron", "fsdp2"])
def test_keys_that_are_gathered_again_of_what_is_recomputed_are_there_before_attention_s_backward_begins(base):
    practice = f"practice={{base: {base}, context: gather, regather: true}}"
    flags = {"model": "llama-3-8b", "hw": "dgx-h100", "seq": 4096, "batch": 1, "cp": 4}
    asked = plan(**flags, overrides=[practice, "recompute={drop: [attention.k]}"])
    scored = [kernel for kernel in asked.lowered.kernels if kernel.on_scores]
    assert [(kernel.where.phase, kernel.fused) for kernel in scored] == [("forward", True), ("backward", True)]
    assert not [x for kernel in scored for x in (*kernel.reads, *kernel.writes) if {"s", "t"} <= {*x.dims}]
