"""What a saved scenario says: what was chosen, not what followed from it; so it asks the same, whatever is added."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tpsim.answers.plan import plan
from tpsim.cli.main import run
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError
from tpsim.question.save import scenario_text
from tpsim.question.scenario import resolve

MACHINES = ("dgx-h100", "dgx-b200", "tpu-v6e")
SIZES = st.sampled_from([1, 2, 4])
CHOICES: dict[str, st.SearchStrategy[Any]] = {
    "hw": st.sampled_from(MACHINES),
    "sp": st.booleans(),
    "zero": st.sampled_from([0, 1, 2, 3]),
    "batch": st.sampled_from([16, 32, 64]),
    "microbatches": SIZES,
    "seq": st.sampled_from([1024, 2048]),
    "dtype": st.sampled_from(["bf16", "fp8", "int8", "tf32", "f32"]),
    "practice": st.sampled_from(["megatron", "fsdp2", "xla", "ideal"]),
    "cost_model": st.sampled_from(["additive", "book"]),
    "planner": st.just("book"),
    "placement": st.sampled_from([("tensor=nvlink",), ("data=network", "tensor=nvlink")]),
    "launch": st.sampled_from(["graph", "15 us"]),
    "algorithm": st.just("ring"),
    "protocol": st.just("simple"),
}
"""Flags of which each says one thing."""

BASE = {"model": "llama-3-8b", "seq": 1024}
MESHES = st.one_of(
    st.fixed_dictionaries({"tp": SIZES, "dp": SIZES}),
    st.sampled_from([{"mesh": "data=-1,tensor=4", "chips": 16}, {"mesh": "data=2,tensor=4"}, {}]),
)
ASKED = st.builds(
    lambda one, mesh: {**BASE, "hw": "dgx-h100", **mesh, **one}, st.fixed_dictionaries({}, optional=CHOICES), MESHES
)
ADDED = st.builds(
    lambda one, mesh: {**one, **mesh},
    st.fixed_dictionaries({}, optional=CHOICES),
    st.sampled_from([{}, {"tp": 2, "dp": 4}, {"tp": 4, "dp": 1}]),
)


def outcome(scenario: Any, flags: Any) -> Any:
    """What resolving comes to: everything that a question is made of, or what it is refused for."""
    try:
        question = resolve(scenario, flags=flags)
    except InputError as error:
        return sorted(problem.message for problem in error.problems)
    return question.resolved, question.assumptions, question.guesses, question.layout, question.placement.describe()


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=ASKED, added=ADDED)
def test_a_saved_question_with_more_flags_is_the_question_of_all_flags(asked, added):
    if "mesh" in asked and "tp" in added:
        asked = {key: value for key, value in asked.items() if key not in ("mesh", "chips")}
    try:
        text = scenario_text(resolve(None, flags=asked))
    except InputError:
        return
    saved = spec.load(text, name="llama-3-8b.yaml")  # its file's name is the question's, as its model's is
    both = {**asked, **added}
    if "placement" in both:  # each one places an axis more
        both["placement"] = (*asked.get("placement", ()), *added.get("placement", ()))
    assert outcome(saved, added) == outcome(None, both)


def test_a_plan_of_a_saved_question_is_that_of_its_flags_to_the_last_digit():
    asked, added = {**BASE, "hw": "dgx-h100", "tp": 4, "dp": 2}, {"dtype": "fp8", "zero": 3, "microbatches": 2}
    saved = spec.load(scenario_text(resolve(None, flags=asked)), name="saved.yaml")
    direct, again = plan(None, **asked, **added), plan(saved, **added)
    assert again.to_json()["result"] == direct.to_json()["result"]
    assert again.assumptions == direct.assumptions


FLAGS = ["--model", "llama-3-8b", "--hw", "dgx-h100", "--tp", "8", "--dp", "2", "--seq", "1024"]


def test_what_followed_from_what_was_chosen_is_saved_as_a_comment_only(tmp_path, capsys):
    file = tmp_path / "saved.yaml"
    assert run(["plan", *FLAGS, "--save", str(file), "-q"]) == 0
    text = file.read_text(encoding="utf-8")
    stated = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert stated == [
        "tpsim: scenario/1",
        "model: llama-3-8b",
        "hardware: dgx-h100",
        "mesh: {data: 2, tensor: 8}",
        "layout: {dp: data, tp: tensor}",
        "workload: {seq: 1024}",
    ]
    assert "# placement: {data: [network], tensor: [nvlink]}" in text.splitlines()
    assert "param_dtype: bf16" in text
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("dtype", ["fp8", "tf32", "f32"])
def test_another_dtype_on_a_saved_plan_is_the_dtype_of_its_parameters_too(tmp_path, dtype):
    file = tmp_path / "saved.yaml"
    assert run(["plan", *FLAGS, "--save", str(file), "-q"]) == 0
    saved = resolve(file, flags={"dtype": dtype})
    direct = resolve(None, flags={**BASE, "hw": "dgx-h100", "tp": 8, "dp": 2, "dtype": dtype})
    assert (saved.dtypes, saved.products) == (direct.dtypes, direct.products)
    assert saved.dtypes.params == saved.dtypes.activations == {"tf32": "f32"}.get(dtype, dtype)


def test_how_sure_the_user_is_of_an_efficiency_is_saved(tmp_path):
    path = tmp_path / "case.yaml"
    path.write_text(
        "tpsim: scenario/1\nmodel: llama-3-8b\nhardware: dgx-h100\nmesh: {data: 2}\nlayout: {dp: data}\n"
        "workload: {global_batch: 2, seq: 1024}\n"
        "assume: {matmul_efficiency: {value: 40 %, kind: stated, source: a log}}\n",
        encoding="utf-8",
    )
    question = resolve(path)
    saved = resolve(spec.load(scenario_text(question), name="saved.yaml"))
    assert (saved.guesses, saved.assume) == (question.guesses, question.assume)
    assert saved.matmul_efficiency == 0.4


def test_a_scenario_without_a_batch_has_a_sequence_per_microbatch_and_data_shard_and_says_so():
    scenario = {
        "tpsim": "scenario/1",
        "model": "llama-3-8b",
        "hardware": "dgx-h100",
        "mesh": {"data": 4, "pod": 2},
        "layout": {"dp": ["data", "pod"]},
        "workload": {"seq": 1024, "microbatches": 3},
    }
    question = resolve(scenario)
    assert question.workload.global_batch == 24
    kinds = {one.text: one.kind for one in question.assumptions}
    what = "global batch 24, one sequence per microbatch and data shard"
    assert kinds[f"{what}: workload.global_batch is not stated"] == "guess"
    table = {**scenario, "shardings": {"*": {"b": ["data"]}}}
    del table["layout"]
    assert resolve(table).workload.global_batch == 12


def test_a_name_that_yaml_would_read_as_a_number_is_quoted():
    for name in (".5", "./x", "1e5", "null", "a: b", "naïve 🙂"):
        scenario = {
            "tpsim": "scenario/1",
            "name": name,
            "model": "llama-3-8b",
            "hardware": "dgx-h100",
            "mesh": {"data": 1},
            "workload": {"global_batch": 1, "seq": 128},
        }
        assert resolve(spec.load(scenario_text(resolve(scenario)), name="saved.yaml")).name == name


@pytest.mark.parametrize("kind", ["train", "decode"])
def test_a_saved_scenario_says_what_the_fields_are_that_its_workload_has(kind):
    text = scenario_text(resolve(None, flags={**BASE, "hw": "dgx-h100", "tp": 8}, overrides=[f"workload.kind={kind}"]))
    told = {"train": "global_batch in sequences", "decode": "batch in sequences, or largest"}
    above = dict(zip([line.partition(":")[0] for line in text.splitlines()][1:], text.splitlines(), strict=False))
    assert told[kind] in above["workload"]
    assert ("zero: 0 nothing" in above["layout"]) == (kind == "train")
