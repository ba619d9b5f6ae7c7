"""Files of the format model/2: blocks by name, layers as a pattern, what they count and what is refused in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.models import LLAMA
from tpsim.answers.model import model_show
from tpsim.answers.plan import plan
from tpsim.pages.model import page
from tpsim.program.model import Attention
from tpsim.program.model_file import load_model, with_fields
from tpsim.quantity.errors import InputError
from tpsim.quantity.spec import Document

if TYPE_CHECKING:
    from pathlib import Path

MINIMAX = """\
tpsim: model/2
name: minimax-m2.5
source: {title: "config.json of MiniMax-M2.5", read: 2026-11-21}
hidden: 3072
vocab: 200064
blocks:
  attention: {attention: gqa, heads: 48, kv_heads: 8, head_dim: 128, qk_norm: all}
  experts: {ffn: moe, experts: 256, top: 8, hidden: 1536, score: sigmoid, choice_bias: true}
layers: [{repeat: 62, of: [attention, experts]}]
params: 230e9
"""
LOCAL = """\
tpsim: model/2
name: local
hidden: 64
vocab: 128
blocks:
  near: {attention: gqa, heads: 4, kv_heads: 2, head_dim: 16, mask: window, window: 8}
  far: {attention: gqa, heads: 4, kv_heads: 2, head_dim: 16}
  mlp: {ffn: mlp, kind: swiglu, hidden: 128}
layers:
  - {repeat: 3, cycle: [[near, mlp], [near, mlp], [far, mlp]]}
  - {repeat: 2, of: [near, mlp]}
"""


@pytest.fixture
def written(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "model.yaml"
        path.write_text(text)
        return path

    return write


def test_a_family_that_nobody_knows_is_counted_from_a_file(written):
    """P16: MiniMax-M2.5, with a QK-norm over all heads of a token; the README of MiniMax-M2 has 230e9 (10e9 active)."""
    shown = model_show(written(MINIMAX))
    assert shown.parameters["total"] == 228_689_764_864
    assert (shown.active, shown.active_without_embedding) == (11_030_553_088, 10_415_956_480)
    assert "11,030,553,088 work for a token (10,415,956,480 without the embedding)" in shown.verdict


def test_a_pattern_is_unrolled_in_order_and_shown_as_it_is_written(written):
    read = load_model(written(LOCAL))
    assert read.model.stack == (("near", 2), ("far", 1)) * 3 + (("near", 2),)
    facts = dict(page(model_show(written(LOCAL)), verbose=False).facts)
    assert facts["layers"] == "3 x (2 near, 1 far), 2 near"
    assert facts["far"] == "ffn mlp, kind swiglu, hidden 128"
    assert with_fields(read, Document({"vocab_padded": 256}, "changes", "", "")).model.vocab_padded == 256


def test_one_field_of_a_block_or_of_a_feed_forward_can_be_changed_and_the_rest_stays():
    """Blocks were replaced whole, so that every one had to say all of itself again."""
    read = load_model("deepseek-v3")
    sparse, latent = {"experts": 128}, {"value": 64}
    changed = with_fields(read, Document({"blocks": {"sparse": sparse, "latent": latent}}, "changes", "", "")).model
    was, now = (of.kinds["sparse"] for of in (read.model, changed))
    assert dict(now.ffn) == {**dict(was.ffn), **sparse}
    assert dict(now.attention) == {**dict(was.attention), **latent}
    llama = load_model("llama-3-8b")
    assert with_fields(llama, Document({"ffn": {"hidden": 7168}}, "changes", "", "")).model.ffn_hidden == 7168


def test_a_block_that_says_what_it_is_replaces_the_one_before():
    plain = {"attention": "gqa", "heads": 64, "kv_heads": 8, "head_dim": 64}
    changed = with_fields(load_model("gpt-oss-120b"), Document({"blocks": {"local": plain}}, "changes", "", "")).model
    assert changed.kinds["local"].attention == Attention(heads=64, kv_heads=8, head_dim=64)


def test_one_kind_of_layers_is_the_model_that_model_1_says(written):
    text = """\
tpsim: model/2
name: small-llama
hidden: 16
vocab: 32
blocks: {a: {attention: gqa, heads: 8, kv_heads: 4, head_dim: 4}, f: {ffn: mlp, kind: swiglu, hidden: 32}}
layers: [{repeat: 2, of: [a, f]}]
"""
    assert load_model(written(text)).model == LLAMA


@pytest.mark.parametrize(
    ("old", "new", "message", "remedy"),
    [
        ("attention: gqa", "attention: mqa", 'blocks.near.attention cannot be "mqa"', "write gqa, with kv_heads: 1"),
        ("attention: gqa", "attention: mha", 'blocks.near.attention cannot be "mha"', "as many kv_heads as heads"),
        ("attention: gqa", "attention: mal", 'blocks.near.attention cannot be "mal"', 'did you mean "mla"?'),
        ("ffn: mlp", "ffn: swiglu", 'blocks.mlp.ffn cannot be "swiglu"', "write mlp, with kind: swiglu"),
        ("ffn: mlp, ", "", "block mlp does not say what it is", "add attention: gqa, or ffn: mlp"),
        (
            "heads: 4",
            "num_heads: 4",
            '"num_heads" is not a field of an attention',
            "tpsim calls this blocks.NAME.heads",
        ),
        ("window: 8", "windows: 8", '"windows" is not a field of an attention', 'did you mean "window"?'),
        ("mask: window, ", "", "mask causal, window 8", "write mask: window and window: 4096, or neither"),
        ("[far, mlp]", "[mlp, far]", '"mlp" is not an attention of the model', "blocks: near, far"),
        ("[far, mlp]", "[mlp, far]", '"mlp" is not an attention', "a pair is an attention, then a feed-forward"),
        ("[near, mlp], [far, mlp]", "[near, far]", '"far" is not a feed-forward of the model', "blocks: mlp"),
        (
            "[[near, mlp], [near, mlp], [far, mlp]]",
            "[]",
            "layers[0].cycle is a list of too few entries",
            "write 1 or more",
        ),
        ("repeat: 2, of: [near, mlp]", "repeat: 2", "layers are of one pair of blocks, or a cycle", "repeat: 32"),
        ("  mlp:", "  layers:", 'no block can be called "layers"', "a word that is no loop's"),
        ("kv_heads: 2", "kv_heads: 3", "4 heads are not divisible by 3 kv_heads", "every kv head serves"),
        ("head_dim: 16", "head_dim: 15", "head_dim 15 is odd, and rope turns pairs", "an even head_dim"),
        ("hidden: 64", "hidden: 64\nactive: 1e9", "active says 1,000,000,000, the sizes make", "remove active"),
    ],
)
def test_a_pattern_that_says_nothing_is_refused_where_it_stands(written, old, new, message, remedy):
    with pytest.raises(InputError) as error:
        load_model(written(LOCAL.replace(old, new, 1)))
    assert message in str(error.value)
    assert remedy in str(error.value)
    assert "model.yaml:" in str(error.value)


@pytest.mark.parametrize("verb", [model_show, load_model])
def test_a_model_of_no_layers_is_refused(written, verb):
    """It ended as a bug of tpsim."""
    text = LOCAL.partition("layers:")[0] + "layers: []\n"
    with pytest.raises(InputError, match="layers is a list of too few entries"):
        verb(written(text))


def test_an_odd_head_dim_is_shown_in_its_block(written):
    with pytest.raises(InputError) as error:
        load_model(written(LOCAL.replace("head_dim: 16}", "head_dim: 15}")))
    (problem,) = error.value.problems
    assert problem.place.text.lstrip().startswith("far: ")


def test_blocks_in_a_file_of_model_1_are_told_the_version_that_has_them(written):
    with pytest.raises(InputError, match="tpsim calls this blocks, in a file of tpsim: model/2"):
        load_model(written(LOCAL.replace("model/2", "model/1")))


def test_a_newer_version_is_measured_by_the_newest(written):
    with pytest.raises(InputError, match="this is version 3 of the model format; this tpsim reads version 2"):
        load_model(written(LOCAL.replace("model/2", "model/3")))


def test_what_has_no_text_yet_is_refused_by_its_name(written):
    text = LOCAL + "mtp: {depth: 2, of: [far, mlp]}\n"
    with pytest.raises(InputError) as error:
        plan(model=str(written(text)), hw="dgx-h100", batch=8, seq=64)
    assert "local has several modules that predict tokens further on, which can be counted" in str(error.value)
