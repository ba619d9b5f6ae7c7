"""What a stack keeps beside what its kernels need: as its bundle has it, by the name of a list, or array by array."""

from __future__ import annotations

import pytest

from tpsim.answers.plan import plan
from tpsim.claims.verify import verify
from tpsim.cost.memory import held_bytes
from tpsim.program.keeps import GRADIENTS, KEEPS, KEEPS_MARGINS, KEEPS_SOURCES
from tpsim.program.lifetimes import lifetimes
from tpsim.quantity.errors import InputError
from tpsim.question.scenario import resolve
from tpsim.reference import run
from tpsim.reference.run import Live

STAGES = "gpt3-175b-a100-pipeline"
TOKENS, STAGE, T = 2048, 12, 8
H, F, V, KEPT_WHOLE = 12288, 4 * 12288, 51200, "recompute=none"


def held(*overrides):
    return plan(STAGES, overrides=[KEPT_WHOLE, *overrides]).each


def test_a_bundle_brings_the_list_of_its_stack_and_a_plan_says_whose_it_is():
    assert resolve(STAGES).practice.keeps == KEEPS["megatron"]
    assert resolve(STAGES, overrides=["practice.base=fsdp2"]).practice.keeps == ()
    said = [one.text for one in resolve(STAGES).assumptions if one.text.startswith("kept beside")]
    arrays = "loss.exp 2, weights 2, gradients -2 (bytes per element)"
    listed = f"{arrays}, the list megatron ({KEEPS_SOURCES['megatron']})"
    within = f"a peak may be 5 % off: {KEEPS_MARGINS['megatron'].source}"
    assert said == [f"kept beside what kernels need: {listed}; {within}"]


def test_bytes_per_element_of_an_array_stand_as_long_as_every_microbatch_keeps_it():
    plain, more = held("practice.keeps=none")[0], held("practice.keeps={mlp.act: 3}")[0]
    layers, in_flight = 8, STAGE
    assert float(more.peak_bytes - plain.peak_bytes) == 3 * TOKENS * F // T * layers * in_flight


def test_spare_gradients_are_held_once_whatever_the_layers():
    each = held("practice.keeps=megatron-te")
    layer = 2 * (3 * H * H + H * H + 2 * H * F) // T
    assert [float(one.spare_bytes) for one in (each[0], each[-1])] == [layer, layer + 2 * H * V // T]
    assert float(each[0].working["spare"]) == layer
    assert (
        float(held("practice.keeps={weights: 2}")[0].peak_bytes)
        == float(held("practice.keeps=none")[0].peak_bytes) + layer
    )


def test_of_experts_spare_gradients_are_those_of_one_and_of_a_latent_both_its_sides():
    """DeepSeek-V3 with a rank's layers of both kinds; a router is no fused product."""
    layers = [{"repeat": 1, "of": ["latent", "dense"]}, {"repeat": 3, "of": ["latent", "sparse"]}]
    asked = {
        "tpsim": "scenario/1",
        "model": {"extends": "deepseek-v3", "params": None, "active": None, "mtp": None, "layers": layers},
        "hardware": "dgx-h100",
        "mesh": {"data": 8},
        "layout": {"dp": "data", "ep": "data", "zero": 1},
        "practice": "megatron",
        "workload": {"global_batch": 8, "seq": 4096},
    }
    h, heads, query, latent, nope, rope = 7168, 128, 1536, 512, 128, 64
    attention = h * (query + latent + rope) + heads * (query * (nope + rope) + latent * 2 * nope + nope * h)
    dense, expert, shared, head = 3 * h * 18432, 3 * h * 2048, 3 * h * 2048, 129280 * h
    assert float(plan(asked).memory.spare_bytes) == 2 * (attention + dense + expert + shared + head)


def test_an_embedding_has_a_gradient_of_its_own_whatever_products_add_up():
    found = lifetimes(plan("llama3-70b-h100").lowered.program)
    named = {array.name for array in found.makers if GRADIENTS in found.names(array)}
    assert {"d.O", "d.W1"} <= named
    assert "d.E" in {array.name for array in found.makers} - named


def test_a_list_never_frees_more_than_an_array_has():
    priced = plan("llama3-70b-h100", overrides=["workload.dtype=fp8"])
    found = lifetimes(priced.lowered.program)
    (weights,) = (array for array in found.makers if array.name == "d.W1")
    assert weights.dtype == "fp8"
    assert held_bytes(weights, priced.sizes, KEEPS["megatron"], found) == 0


def test_gradients_that_are_added_up_where_they_lie_take_no_bytes_of_their_own():
    """The peak is where the one of an MLP's weights is made."""
    plain, added = held("practice.keeps=none")[0], held("practice.keeps={gradients: -2}")[0]
    assert float(plain.peak_bytes - added.peak_bytes) == 2 * H * F // T
    listed = held("practice.keeps=megatron-te")[0]
    assert float(listed.peak_bytes - listed.spare_bytes) == float(added.peak_bytes)


def test_a_list_that_is_not_stated_is_judged_with_more_room():
    margins = {"megatron": 0.05, "nanotron": 0.05, "torchtitan": 0.13, "{loss.exp: 8}": 0.13, "none": 0.2}
    assert {name: held(f"practice.keeps={name}")[0].margin for name in margins} == margins


@pytest.mark.parametrize(
    ("value", "message", "remedy"),
    [
        ("nanotorn", '"nanotorn" is not a list of what a stack keeps', 'did you mean "nanotron"?'),
        ("{mlp.atc: 2}", '"mlp.atc" is not an array of the program with bytes', 'did you mean "mlp.act"?'),
        ("{gradients: -3}", "gradients with -3 bytes per element takes less than", "^^ write at least -2"),
        ("{weights: -100}", "it stands beside all arrays and frees none of them", "^^^^ write at least 0"),
        ("{loss.exp: 4, weights: -1}", "weights with -1 bytes per element takes less than", "^^ write at least 0"),
        ("{mlp.act: -3}", "mlp.act with -3 bytes per element takes less than nothing: it has 2 itself", "at least -2"),
        (
            "{loss.exp: -5}",
            "loss.exp with -5 bytes per element takes less than nothing: it has 4 itself",
            "at least -4",
        ),
        (
            "{residual: 2}",
            "residual is handed on between parts of the stack",
            "an array that one layer both makes and reads",
        ),
        (
            "{add.embedding.dropped: 2}",
            "add.embedding.dropped is handed on",
            "an array that one layer both makes and reads",
        ),
        ("{cut.out: 2}", "cut.out is handed on between", "an array that one layer both makes and reads"),
        ("{d.cut.out: 2}", "d.cut.out is handed on between", "an array that one layer both makes and reads"),
    ],
)
def test_what_no_stack_could_keep_is_refused_where_it_is_written(value, message, remedy):
    with pytest.raises(InputError) as error:
        resolve(STAGES, overrides=[f"practice.keeps={value}"])
    assert message in str(error.value)
    assert remedy in str(error.value)
    assert f"--set practice.keeps={value}" in str(error.value)


@pytest.mark.parametrize("often", ["auto", "per_microbatch"])
def test_spare_gradients_are_refused_where_products_make_none(often):
    """What every microbatch scatters (ZeRO 2, 3) is sent as it is made; a scalar of the loss is no gradient."""
    asked = ["layout.zero=2", f"practice.gradients={often}", "practice.keeps={gradients: 2}"]
    with pytest.raises(InputError, match="microbatches scatter what they make") as error:
        resolve("qwen2-7b-h100", overrides=asked)
    assert "^^^^^^^^^ leave it out, or write gradients: per_step" in str(error.value)
    resolve("qwen2-7b-h100", overrides=[asked[0], "practice.gradients=per_step", asked[2]])


def test_products_make_spare_gradients_however_often_these_are_reduced():
    asked = "practice.keeps={gradients: 2}"
    often = ["auto", "per_step", "per_microbatch"]
    auto, *others = (held(asked, f"practice.gradients={how}")[0].peak_bytes for how in often)
    assert others == [auto, auto]
    assert auto > held("practice.keeps=none")[0].peak_bytes


def test_an_array_may_be_stated_to_take_nothing_by_the_dtypes_of_its_question():
    plain, none = held("practice.keeps=none")[0], held("practice.keeps={mlp.act: -2}")[0]
    layers, in_flight = 8, STAGE
    assert float(plain.peak_bytes - none.peak_bytes) == 2 * TOKENS * F // T * layers * in_flight
    resolve(STAGES, overrides=["workload.dtype=f32", "practice.keeps={mlp.act: -4}"])
    with pytest.raises(InputError, match="it has 1 itself"):
        resolve(STAGES, overrides=["hardware=dgx-h100", "workload.dtype=fp8", "practice.keeps={mlp.act: -2}"])


@pytest.mark.parametrize(("line", "marked"), [("mlp.atc: 2", "^^^^^^^ did you"), ("residual: 2", "^^^^^^^^ state")])
def test_a_name_that_cannot_be_kept_is_marked_itself_in_a_file(tmp_path, line, marked):
    path = tmp_path / "own.yaml"
    path.write_text(f"tpsim: scenario/1\nextends: {STAGES}\npractice:\n  keeps:\n    loss.exp: 4\n    {line}\n")
    with pytest.raises(InputError) as error:
        resolve(path)
    assert "own.yaml:6:5" in str(error.value)
    assert f"|     {marked}" in str(error.value)


def test_what_only_one_layer_hands_on_to_one_like_it_is_refused_too():
    with pytest.raises(InputError, match=r"d\.layer\.in is handed on between parts of the stack"):
        resolve("llama3-8b-v5e", overrides=["practice.keeps={d.layer.in: 1000}"])


SMALL = "gpt3-175b-a100-tp8"


@pytest.mark.parametrize(("scenario", "keeps"), [(SMALL, "nanotron"), ("llama3-8b-v5e", "megatron-te")])
def test_devices_hold_what_a_stack_keeps_after_every_action(scenario, keeps):
    found = verify(scenario, overrides=[f"practice.keeps={keeps}"])
    assert [check.check for check in found.checks if not check.ok] == []


@pytest.mark.parametrize(
    ("scenario", "kept"),
    [("llama3-8b-v5e", "{d.residual: 1000}"), ("gpt2-xl-a100-dp", "{E: 2, d.E: 2}")],
)
def test_cotangents_inside_layers_and_weights_that_parts_share_may_be_kept(scenario, kept):
    found = verify(scenario, overrides=["layout.zero=3", f"practice.keeps={kept}"])
    assert [check.check for check in found.checks if not check.ok] == []


def test_a_device_that_holds_no_more_than_kernels_need_is_noticed(monkeypatch):
    monkeypatch.setattr(run, "Live", lambda lifetimes, _beside, mesh: Live(lifetimes, {}, mesh))
    found = verify(SMALL, overrides=["practice.keeps=nanotron"])
    assert [check.check for check in found.checks if not check.ok] == ["memory"]
