"""Model files: what they may leave out, what they must not say, and the parameters that they add up to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.models import parameters
from tpsim.answers.model import model_show
from tpsim.pages.model import page
from tpsim.program.kinds_file import ModelFile2
from tpsim.program.model import Attention, Latent, Mlp, Moe
from tpsim.program.model_file import ModelFile, load_model, with_fields
from tpsim.program.names import FOREIGN
from tpsim.program.transformer import parameter_count, parameter_counts
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError
from tpsim.quantity.spec import Document

if TYPE_CHECKING:
    from pathlib import Path

    from tpsim.program.model import Model

TINY = """\
tpsim: model/1
name: tiny
source: {title: a test, read: 2026-11-20}
hidden: 32
layers: 2
heads: 4
ffn: {kind: gelu, hidden: 128}
vocab: 96
"""


def tiny(tmp_path: Path, *lines: str, text: str = TINY) -> Model:
    path = tmp_path / "tiny.yaml"
    path.write_text(text + "".join(f"{line}\n" for line in lines))
    return load_model(path).model


@pytest.mark.parametrize("name", spec.names("models"))
def test_every_model_of_the_library_has_the_parameters_it_states(name: str) -> None:
    model = load_model(name).model
    assert model.name == name
    assert model.params is None or parameter_count(model) == pytest.approx(model.params, rel=0.01)


def test_what_a_file_leaves_out_follows_from_the_rest(tmp_path: Path) -> None:
    model = tiny(tmp_path)
    assert (model.kv_heads, model.head_dim, model.vocab_padded) == (4, 8, 96)
    assert (model.norm, model.positions, next(model.attentions).bias, model.tie_embeddings) == (
        "rmsnorm",
        "rope",
        "none",
        False,
    )


def test_dropout_is_none_unless_stated_and_less_than_all(tmp_path: Path) -> None:
    assert (tiny(tmp_path).dropout, tiny(tmp_path, "dropout: 0.1").dropout) == (0.0, 0.1)
    with pytest.raises(InputError) as error:
        tiny(tmp_path, "dropout: 1")
    (problem,) = error.value.problems
    assert (problem.message, problem.remedy) == ("dropout is 1", "it must be less than 1")


@pytest.mark.parametrize("name", spec.names("models"))
def test_every_model_of_the_library_says_where_it_was_read(name: str) -> None:
    read = load_model(name)
    assert read.source == read.document.data["source"]["title"] != ""


def test_a_users_own_model_need_not_say_where_it_was_read(tmp_path: Path) -> None:
    text = TINY.replace("source: {title: a test, read: 2026-11-20}\n", "")
    assert tiny(tmp_path, text=text) == tiny(tmp_path)
    (tmp_path / "own.yaml").write_text(text)
    own = load_model(tmp_path / "own.yaml")
    assert own.source == ""
    assert with_fields(own, Document({"layers": 3}, "changes", "", "")).model.layers == 3
    assert ("source", "not stated") in page(model_show(str(tmp_path / "own.yaml")), verbose=False).facts


def test_parameters_by_group_of_a_llama_layer_are_the_textbook_sums() -> None:
    model = load_model("llama-3-8b").model
    h, f, v, layers = 4096, 14336, 128256, 32
    assert parameter_counts(model) == {
        "embedding": v * h,
        "attention": layers * (2 * h * h + 2 * h * 1024),
        "mlp": layers * 3 * h * f,
        "norms": (2 * layers + 1) * h,
        "output": v * h,
    }


def test_parameters_of_a_gpt_layer_are_twelve_h_squared_and_thirteen_h() -> None:
    model = load_model("megatron-22b").model
    counts = parameter_counts(model)
    per_layer = 12 * 6144**2 + 13 * 6144
    assert sum(counts[group] for group in ("attention", "mlp", "norms")) == 48 * per_layer + 2 * 6144
    assert counts["embedding"] == (51200 + 2048) * 6144
    assert counts["output"] == 0


def test_padding_counts_only_where_the_padded_vocabulary_is_asked_for() -> None:
    model = load_model("gpt3-175b").model
    assert parameter_count(model, padded=True) - parameter_count(model) == (51200 - 50257) * 12288


def test_a_head_dim_that_is_stated_is_never_derived() -> None:
    model = load_model("gemma-7b").model
    assert model.head_dim * model.heads == 4096
    assert model.hidden == 3072


def test_biases_and_shifts_are_parameters_of_their_own() -> None:
    names = {parameter.name for parameter in parameters(load_model("gpt-tiny").model)}
    assert {"bq", "bk", "bv", "bo", "b1", "b2", "shift_attention", "shift_final", "P"} <= names
    assert "O" not in names


def test_a_field_of_a_library_model_can_be_changed_and_the_rest_stays() -> None:
    model = with_fields(load_model("gpt2-xl"), Document({"vocab_padded": 50304}, "changes", "", "")).model
    assert (model.vocab, model.vocab_padded, model.layers, model.params) == (50257, 50304, 48, None)


def test_parameters_more_than_a_percent_off_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        tiny(tmp_path, "params: 35e3")
    text = str(error.value)
    assert "params says 35,000, the sizes make 30,880" in text
    assert "tiny.yaml:9:9" in text
    assert "= more than 1 % apart" in text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("kv_heads: 3", "4 heads are not divisible by 3 kv_heads"),
        ("head_dim: 7", "head_dim 7 is odd, and rope turns pairs"),
        ("positions: learned", "positions are learned and max_positions is not stated"),
        ("vocab_padded: 90", "vocab_padded 90 is less than vocab 96"),
        ("biass: true", 'did you mean "bias"?'),
        ("layers: 3", "layers"),
        ("kv_heads: 2.0", "kv_heads"),
        ("bias: yes", "bias"),
    ],
)
def test_sizes_that_contradict_each_other_are_refused_at_their_line(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        tiny(tmp_path, line)
    assert message in str(error.value)
    assert "tiny.yaml:9:" in str(error.value)


def test_heads_that_do_not_divide_the_hidden_size_need_a_head_dim(tmp_path: Path) -> None:
    odd = TINY.replace("heads: 4", "heads: 5")
    with pytest.raises(InputError, match="hidden 32 is not divisible by 5 heads"):
        tiny(tmp_path, text=odd)
    assert tiny(tmp_path, "head_dim: 6", text=odd).head_dim == 6


@pytest.mark.parametrize(
    ("ours", "theirs", "path"),
    [
        ("hidden: 32", "hidden_size: 32", "hidden"),
        ("hidden: 32", "d_model: 32", "hidden"),
        ("layers: 2", "num_hidden_layers: 2", "layers"),
        ("heads: 4", "num_attention_heads: 4", "heads"),
        ("vocab: 96", "vocab_size: 96", "vocab"),
        ("vocab: 96", "vocab: 96\nnum_key_value_heads: 4", "kv_heads"),
        ("vocab: 96", "vocab: 96\nintermediate_size: 128", "ffn.hidden"),
        ("vocab: 96", "vocab: 96\nnum_experts: 8", "blocks.NAME.experts, in a file of tpsim: model/2"),
        ("vocab: 96", "vocab: 96\nsliding_window: 8", "blocks.NAME.window, in a file of tpsim: model/2"),
    ],
)
def test_a_key_of_a_config_or_of_a_framework_is_answered_with_the_field(
    tmp_path: Path, ours: str, theirs: str, path: str
) -> None:
    """`remove it` stood there, beside a field that is missing."""
    with pytest.raises(InputError) as error:
        tiny(tmp_path, text=TINY.replace(ours, theirs))
    (problem,) = error.value.problems
    assert (problem.slug, problem.remedy) == ("foreign-name", f"tpsim calls this {path}")


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("layers: 2\n", "add layers: 32"),
        ("vocab: 96\n", "add vocab: 32000"),
        ("ffn: {kind: gelu, hidden: 128}\n", "add ffn: {kind: swiglu, hidden: 14336}"),
        ("name: tiny\n", "add name: my-model"),
    ],
)
def test_a_missing_field_of_a_model_is_answered_with_a_line_that_may_stand_there(
    tmp_path: Path, line: str, remedy: str
) -> None:
    with pytest.raises(InputError) as error:
        tiny(tmp_path, text=TINY.replace(line, ""))
    assert [problem.remedy for problem in error.value.problems] == [remedy]
    assert tiny(tmp_path, remedy.removeprefix("add "), text=TINY.replace(line, "")).hidden == 32


def test_every_foreign_name_stands_for_a_field_of_its_format() -> None:
    whole = {"model/1": ModelFile, "model/2": ModelFile2}
    inside = {field for block in (Attention, Latent, Mlp, Moe) for field in block.model_fields}
    for version, names in FOREIGN.items():
        for word, path in names.items():
            first, *rest = path.partition(",")[0].split(".")
            of = "model/2" if path.endswith("in a file of tpsim: model/2") else version
            fields = inside if rest and first == "blocks" else whole[of].model_fields
            assert (rest[-1] if rest and first == "blocks" else first) in fields, word


def test_a_model_that_extends_another_is_answered_with_where_that_is_said(tmp_path):
    """Its file was said to lack all that the other one states, and to have a field too many."""
    (tmp_path / "mine.yaml").write_text("tpsim: model/1\nname: mine\nextends: llama-3-8b\nlayers: 16\n")
    with pytest.raises(InputError) as error:
        load_model("./mine.yaml", beside=tmp_path)
    (problem,) = error.value.problems
    assert problem.message == "a scenario extends a model, a model's file does not"
    assert "model: {extends: llama-3-8b, layers: 16}" in problem.remedy
    assert problem.place.line == 3
