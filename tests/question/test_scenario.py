"""Scenarios: what resolves to what, and the text that answers each mistake."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tpsim.answers.plan import plan
from tpsim.fabric.wires import ranks_text
from tpsim.program.frameworks import PRACTICES
from tpsim.program.model_file import ModelFile
from tpsim.program.practice import Ahead, Bucket, Overlap
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError
from tpsim.question.edits import FLAGS
from tpsim.question.foreign_names import FOREIGN, NOT_YET, foreign_name, not_yet
from tpsim.question.requirements import Limit
from tpsim.question.save import scenario_text
from tpsim.question.scenario import resolve
from tpsim.question.scenario_file import (
    Assume,
    LayoutFields,
    OffloadFields,
    PipelineFields,
    PracticeFields,
    RecomputeFields,
    ScenarioFile,
    WorkloadFields,
)
from tpsim.question.serving_file import DecodeFields, ServeFields
from tpsim.report.answer import Assumption

if TYPE_CHECKING:
    from tpsim.question.question import Question

BASE = """\
tpsim: scenario/1
model: llama-3-70b
hardware: dgx-h100
chips: 256
mesh: {data: 32, tensor: 8}
layout: {tp: tensor, dp: data, zero: 1, sequence_parallel: true}
practice: megatron
workload: {kind: train, global_batch: 512, seq: 4096, microbatches: 4, dtype: bf16, grad_dtype: f32}
"""

SHIPPED = sorted({path.stem for folder in spec.library("scenarios") for path in folder.glob("*.yaml")})


def asked(tmp_path: Path, *changes: tuple[str, str], add: str = "", **options: Any) -> Question:
    """The question of BASE with texts replaced and lines added."""
    text = BASE
    for old, new in changes:
        assert old in text, f"{old} is not in the base scenario"
        text = text.replace(old, new)
    path = tmp_path / "case.yaml"
    path.write_text(text + add)
    return resolve(path, **options)


def refusal(tmp_path: Path, *changes: tuple[str, str], add: str = "", **options: Any) -> str:
    """The text with which BASE, so changed, is refused."""
    with pytest.raises(InputError) as error:
        asked(tmp_path, *changes, add=add, **options)
    return str(error.value)


def texts(question: Question) -> list[str]:
    return [assumption.text for assumption in question.assumptions]


# What resolves


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_scenario_is_a_question(name: str) -> None:
    question = resolve(name)
    assert question.name == name
    assert question.mesh.devices == question.resolved["chips"]
    assert {assumption.kind for assumption in question.assumptions} <= {"stated", "guess", "default", "derived"}


def test_there_are_at_least_twelve_scenarios_each_saying_what_it_answers() -> None:
    assert len(SHIPPED) >= 12
    for name in SHIPPED:
        lines = spec.load(spec.find("scenarios", name)).text.splitlines()
        assert lines[0].startswith("# yaml-language-server: $schema=")
        assert lines[1].startswith("# ")


def test_a_scenario_resolves_to_values(tmp_path: Path) -> None:
    question = asked(tmp_path)
    assert dict(question.mesh.axes) == {"data": 32, "tensor": 8}
    assert question.layout.roles == {"tp": ("tensor",), "dp": ("data",)}
    assert (question.layout.zero, question.layout.sequence_parallel) == (1, True)
    assert (question.workload.sequences, question.workload.tokens) == (128, 512 * 4096)
    assert (question.dtypes.activations, question.dtypes.params, question.dtypes.gradients) == ("bf16", "bf16", "f32")
    assert question.practice.regather
    assert (question.cost_model, question.planner) == ("additive", "book")
    assert question.axis_parents == {}


def test_every_file_read_is_listed_with_its_hash(tmp_path: Path) -> None:
    inputs = asked(tmp_path).inputs
    files = ["case.yaml", "llama-3-70b.yaml", "dgx-h100.yaml", "h100.yaml", "hopper.yaml"]
    assert [Path(path).name for path, _ in inputs] == files
    assert all(len(digest) == 64 for _, digest in inputs)


def test_the_files_that_a_scenario_extends_are_listed_too(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("tpsim: scenario/1\nextends: llama3-70b-h100\n")
    own = tmp_path / "own.yaml"
    own.write_text("tpsim: scenario/1\nextends: base.yaml\nmodel: {extends: llama-3-8b, vocab_padded: 128512}\n")
    names = [Path(path).name for path, _ in resolve(own).inputs]
    assert names[:4] == ["own.yaml", "base.yaml", "llama3-70b-h100.yaml", "llama-3-8b.yaml"]


def test_minus_one_fills_the_mesh_to_the_chips(tmp_path: Path) -> None:
    assert asked(tmp_path, ("data: 32,", "data: -1,")).mesh.axes["data"] == 32


def test_chips_may_be_left_out_when_every_axis_has_a_size(tmp_path: Path) -> None:
    assert asked(tmp_path, ("chips: 256\n", "")).mesh.devices == 256


def test_single_switches_change_a_practice(tmp_path: Path) -> None:
    question = asked(tmp_path, ("practice: megatron", "practice: {base: megatron, regather: false}"))
    assert (question.practice.regather, question.practice.qkv) == (False, "fused")


def test_a_table_of_shardings_may_stand_for_the_layout(tmp_path: Path) -> None:
    table = 'shardings: {"*": {b: data, g: tensor, f: tensor, v: tensor}, residual: {s: tensor}, state: {h: data}}'
    question = asked(tmp_path, ("layout: {tp: tensor, dp: data, zero: 1, sequence_parallel: true}", table))
    assert question.layout.table["*"] == {"b": ("data",), "g": ("tensor",), "f": ("tensor",), "v": ("tensor",)}
    assert question.layout.roles == {"tp": ("tensor",), "dp": ("data",)}
    assert (question.layout.zero, question.layout.sequence_parallel) == (1, True)


def test_kv_heads_fewer_than_tp_split_the_axis_and_say_so(tmp_path: Path) -> None:
    question = asked(tmp_path, ("data: 32, tensor: 8", "data: 16, tensor: 16"))
    assert dict(question.mesh.axes) == {"data": 16, "tensor_kv": 8, "tensor_rep": 2}
    assert question.axis_parents == {"tensor_kv": "tensor", "tensor_rep": "tensor"}
    assert question.layout.roles["tp"] == ("tensor_kv", "tensor_rep")
    assert question.layout.table["*"]["g"] == ("tensor_kv",)
    assert question.layout.table["*"]["r"] == ("tensor_rep",)
    assert (
        "8 kv heads over tp 16: keys and values are split 8 ways and replicated 2 times; "
        "mesh axis tensor 16 is read as tensor_kv 8 x tensor_rep 2"
    ) in texts(question)


def test_tp_of_two_axes_that_fit_the_kv_heads_is_not_split_again(tmp_path: Path) -> None:
    question = asked(tmp_path, ("data: 32, tensor: 8", "data: 16, kv: 8, rep: 2"), ("tp: tensor", "tp: [kv, rep]"))
    assert question.axis_parents == {}
    assert question.layout.table["*"]["r"] == ("rep",)
    assert any("replicated 2 times over rep" in text for text in texts(question))


def test_a_model_field_can_be_set_from_the_scenario(tmp_path: Path) -> None:
    question = asked(tmp_path, overrides=["model.layers=2", "layout.zero=0"])
    assert (question.model.layers, question.model.hidden, question.layout.zero) == (2, 8192, 0)


def test_padding_is_an_assumption() -> None:
    assert "vocabulary 50257 is padded to 51200" in texts(resolve("gpt3-175b-a100-tp8"))


def test_an_axis_without_a_role_is_said_to_repeat_work(tmp_path: Path) -> None:
    question = asked(tmp_path, ("data: 32, tensor: 8", "data: 16, tensor: 8, spare: 2"))
    assert "mesh axis spare (2) has no role: its chips repeat the same work" in texts(question)


def test_requirements_are_read_into_seconds_and_bytes(tmp_path: Path) -> None:
    question = asked(tmp_path, add="require: {step: < 30 s, memory: <= 80 GB}\n")
    assert question.stated.file.require.stated == {"step": "< 30 s", "memory": "<= 80 GB"}
    assert question.limits == (Limit("step", "<", 30.0, "< 30 s"), Limit("memory", "<=", 80e9, "<= 80 GB"))


def test_a_stated_guess_of_efficiency_is_counted(tmp_path: Path) -> None:
    plain = asked(tmp_path)
    stated = asked(tmp_path, add="assume: {matmul_efficiency: {value: 0.5, kind: stated}}\n")
    guessed = asked(tmp_path, add="assume: {matmul_efficiency: 0.5}\n")
    assert guessed.guesses == stated.guesses + 1
    assert guessed.assume.matmul_efficiency.value == 0.5
    assert plain.assume.matmul_efficiency is None


def test_number_formats_that_are_not_stated_are_guesses(tmp_path: Path) -> None:
    question = asked(tmp_path, (", dtype: bf16, grad_dtype: f32", ""))
    kinds = {assumption.text: assumption.kind for assumption in question.assumptions}
    assert kinds["gradients in f32: workload.grad_dtype is not stated"] == "guess"
    assert kinds["products and parameters in bf16: workload.dtype is not stated"] == "guess"


OPEN = {
    "workload.microbatches": (", microbatches: 1", "one microbatch"),
    "workload.dtype": (", dtype: bf16", "products and parameters in bf16"),
    "workload.grad_dtype": (", grad_dtype: f32", "gradients in f32"),
    "practice": ("practice: megatron\n", "the switches of megatron"),
    "collectives.launch": ("collectives: {launch: threads}\n", "the launch latency of threads"),
}
"""What a run decides, with the text that states it as it would be guessed."""


@pytest.mark.parametrize("name", OPEN)
def test_what_a_run_decides_is_a_guess_unless_it_is_stated(tmp_path: Path, name: str) -> None:
    text, guessed = OPEN[name]
    whole = BASE.replace("microbatches: 4", "microbatches: 1") + OPEN["collectives.launch"][0]
    stated, silent = asked(tmp_path, (BASE, whole)), asked(tmp_path, (BASE, whole.replace(text, "")))
    assert (stated.left_open, silent.left_open) == ((), (name,))
    assert silent.guesses == stated.guesses + 1
    assert {(one.text, one.kind) for one in silent.assumptions} > {(f"{guessed}: {name} is not stated", "guess")}
    assert {**silent.resolved, "collectives": None} == {**stated.resolved, "collectives": None}


def test_a_single_switch_does_not_state_the_bundle_that_it_changes(tmp_path: Path) -> None:
    assert "practice" in asked(tmp_path, ("practice: megatron", "practice: {regather: false}")).left_open


def test_overlap_is_stated_only_if_somebody_stated_it(tmp_path: Path) -> None:
    mine = "practice: {base: megatron, overlap: {gradients: beside}}"
    stated = asked(tmp_path, ("practice: megatron", mine))
    assert Assumption("collectives beside compute: tensor, gradients", "stated") in stated.assumptions
    (default,) = [one for one in asked(tmp_path).assumptions if one.text.startswith("collectives beside compute")]
    assert default.kind == "default"
    assert default.text.startswith("collectives beside compute: tensor, as megatron has it (Megatron-LM at ")


def test_overlap_by_mesh_axes_is_refused_with_the_switch_that_replaces_it(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        asked(tmp_path, add="assume: {overlap: {data: backward}}\n")
    assert "error[overlap-is-practice]: assume.overlap is gone: what runs beside compute is a switch" in str(
        error.value
    )
    assert "^^^^^^^ write practice: {overlap: {gradients: beside, weights: beside}}; sorts: tensor," in str(error.value)


def test_overlap_that_is_not_modelled_yet_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError) as rows:
        asked(tmp_path, ("practice: megatron", "practice: {rows: {overlap: pair}}"))
    said = "error[not-supported-yet]: overlap of rows: pair (exchanges beside another microbatch) is not modelled yet"
    assert said in str(rows.value)
    assert "write none or beside" in str(rows.value)


@pytest.mark.parametrize(("zero", "beside"), [(1, "none"), (2, "none"), (3, "beside")])
def test_deepspeed_reduces_beside_compute_at_zero_3_alone(tmp_path: Path, zero: int, beside: str) -> None:
    question = asked(tmp_path, ("practice: megatron", "practice: deepspeed"), ("zero: 1", f"zero: {zero}"))
    assert question.practice.overlap == Overlap(gradients=beside, weights=beside, stages="none")
    assert (question.practice.bucket.elements, question.practice.ahead.elements) == (500_000_000, 50_000_000)


def test_a_bucket_and_a_distance_can_be_stated(tmp_path: Path) -> None:
    text = "practice: {base: fsdp2, ahead: {layers: 2}, bucket: step}"
    practice = asked(tmp_path, ("practice: megatron", text)).practice
    assert (practice.ahead, practice.bucket) == (Ahead(layers=2), Bucket(of="step"))
    assert practice.overlap == PRACTICES["fsdp2"].overlap


@pytest.mark.parametrize(
    ("ahead", "layers", "elements"),
    [("{layers: 2}", 2, None), ("{layers: 2, elements: 9}", 2, 9), ("{}", 1, 50_000_000)],
)
def test_layers_ahead_stand_instead_of_a_bundle_s_elements(
    tmp_path: Path, ahead: str, layers: int, elements: int | None
) -> None:
    text = f"practice: {{base: deepspeed, ahead: {ahead}}}"
    assert asked(tmp_path, ("practice: megatron", text)).practice.ahead == Ahead(layers=layers, elements=elements)


def test_a_batch_that_flags_leave_open_is_one_of_the_guesses() -> None:
    flags = {"model": "llama-3-8b", "hw": "tpu-v5e", "dp": 16, "seq": 4096}
    left = resolve(None, flags=flags).left_open
    assert left == ("workload.global_batch", *list(OPEN)[:-1]), "a TPU has one way to launch"
    assert resolve(None, flags={**flags, "batch": 16, "microbatches": 1}).left_open == left[2:]


def test_defaults_that_are_no_guesses_are_named_in_one_assumption(tmp_path: Path) -> None:
    said = "where nothing else is stated: loss in f32, optimizer state in f32, cost model additive, planner book"
    assert Assumption(said, "default") in asked(tmp_path).assumptions
    bare = asked(tmp_path, (", zero: 1, sequence_parallel: true", ""), add="planner: book\n")
    (usual,) = [one.text for one in bare.assumptions if one.text.startswith("where nothing else is stated")]
    assert "ZeRO 0, no sequence parallelism, " in usual
    assert "planner" not in usual


def test_the_machine_s_efficiency_is_an_assumption_counted_once(tmp_path: Path) -> None:
    efficiency = asked(tmp_path).machine.chip.matmul_efficiency
    assert (efficiency.value, efficiency.kind) == (0.655, "derived")
    said = "matrix products reach 0.655 of peak on dgx-h100, in whole waves of 132 tiles of 256 by 128"
    assert Assumption(said, "stated") in asked(tmp_path).assumptions
    question = asked(tmp_path)
    constants = [one.path for one in question.machine.constants() if one.kind == "guess"]
    assert "chip.matmul_efficiency" not in constants
    assert question.guesses == len(question.left_open) + len(constants)


# Flags and overrides


def test_flags_alone_make_a_scenario() -> None:
    question = resolve(
        None, flags={"model": "llama-3-8b", "hw": "dgx-h100", "tp": 8, "dp": 4, "sp": True, "zero": 1, "seq": 4096}
    )
    assert dict(question.mesh.axes) == {"data": 4, "tensor": 8}
    assert (question.layout.zero, question.layout.sequence_parallel) == (1, True)
    assert question.workload.global_batch == 4
    what = "global batch 4, one sequence per microbatch and data shard"
    assert f"{what}: workload.global_batch is not stated" in texts(question)


@pytest.mark.parametrize("missing", ["model", "hw", "seq"])
def test_flags_alone_must_say_model_machine_and_sequence(missing: str) -> None:
    flags = {"model": "llama-3-8b", "hw": "dgx-h100", "seq": 4096, "tp": 8}
    with pytest.raises(InputError, match=f"--{missing} is needed without a scenario"):
        resolve(None, flags={**flags, missing: None})


@pytest.mark.parametrize("named", ["", "mine"])
def test_what_no_file_holds_is_called_as_its_model_is(named: str) -> None:
    """A plan of flags was titled "flags", one of a mapping "scenario"; a name that is stated stays."""
    own = [f"name={named}"] if named else []
    flags = {"model": "llama-3-8b", "hw": "dgx-h100", "seq": 4096}
    scenario = {"tpsim": "scenario/1", "model": "llama-3-8b", "hardware": "dgx-h100", "mesh": {"data": 1}}
    work = {"workload": {"global_batch": 1, "seq": 4096}, "layout": {"dp": "data"}}
    for question in (resolve(None, flags=flags, overrides=own), resolve({**scenario, **work}, overrides=own)):
        assert question.name == question.resolved["name"] == (named or "llama-3-8b")
        assert ("name: " in scenario_text(question)) == bool(named)


def test_a_workload_that_edits_state_needs_no_flag_for_its_sequence() -> None:
    flags = {"model": "llama-3-8b", "hw": "dgx-h100", "tp": 8}
    asked = resolve(None, flags=flags, overrides=["workload={kind: decode, batch: 16, context: 4096}"])
    assert asked.inference
    assert asked.workload.global_batch == 16
    with pytest.raises(InputError, match='a workload that decodes needs "context"'):
        resolve(None, flags=flags, overrides=["workload.kind=decode", "workload.batch=16"])


def test_a_limit_from_below_needs_no_quotes_of_yaml_s_own() -> None:
    asked = resolve("llama3-70b-h100", overrides=["require.mfu=> 30 %", "require.tokens_per_s=>= 200"])
    limits = {limit.name: limit.text for limit in asked.limits}
    assert (limits["mfu"], limits["tokens_per_s"]) == ("> 30 %", ">= 200")


def test_the_largest_batch_can_be_asked_for_by_its_flag() -> None:
    flags = {"model": "llama-3-8b", "hw": "dgx-h100", "batch": "largest", "seq": 4096}
    assert plan(**flags, overrides=["workload.kind=decode"]).question.workload.global_batch == 119


def test_as_many_devices_of_an_axis_lie_inside_nodes_as_is_said() -> None:
    asked = {"model": "llama-3-8b", "hw": "dgx-h100", "mesh": "data=16,tensor=2", "seq": 2048, "batch": 16}
    assert resolve(None, flags=asked).placement.describe()[0] == "data   16 = nvlink 4 x network 4"
    fewer = resolve(None, flags={**asked, "placement": "data=nvlink:2+network"})
    assert fewer.placement.describe()[0] == "data   16 = nvlink 2 x network 8"
    with pytest.raises(InputError, match="data of 16, 3 of them on nvlink, does not fit"):
        resolve(None, flags={**asked, "placement": "data=nvlink:3+network"})


def test_stages_on_several_axes_of_a_torus_are_told_how_to_lie_on_one() -> None:
    asked = {"model": "llama-3-8b", "hw": "tpu-v5p", "pp": 4, "tp": 2, "seq": 2048, "batch": 16, "microbatches": 8}
    with pytest.raises(InputError, match=r"one physical axis, --placement pipe=ici\.2, or"):
        plan(**asked)
    assert plan(**asked, placement="pipe=ici.2").pipeline


def test_a_mesh_flag_names_its_axes() -> None:
    flags = {"model": "llama-3-8b", "hw": "dgx-h100", "seq": 4096, "batch": 16, "mesh": "data=4,tensor=8"}
    question = resolve(None, flags=flags)
    assert question.mesh.devices == 32
    assert question.layout.roles == {"tp": ("tensor",), "dp": ("data",)}


def test_one_size_flag_keeps_the_chips_and_refills_the_other_axis(tmp_path: Path) -> None:
    assert dict(asked(tmp_path, flags={"tp": 4}).mesh.axes) == {"data": 64, "tensor": 4}
    assert dict(asked(tmp_path, flags={"dp": 64}).mesh.axes) == {"data": 64, "tensor": 4}


def test_both_size_flags_make_the_chips(tmp_path: Path) -> None:
    assert asked(tmp_path, flags={"tp": 4, "dp": 8}).mesh.devices == 32


def test_an_override_says_more_of_what_a_flag_states(tmp_path: Path) -> None:
    practice = asked(tmp_path, flags={"practice": "xla"}, overrides=["practice.regather=true"]).practice
    assert (practice.regather, practice.coalesce) == (True, False)


def test_of_several_overrides_of_a_field_the_last_holds(tmp_path: Path) -> None:
    assert asked(tmp_path, overrides=["layout.zero=2", "layout.zero=3"]).layout.zero == 3


@pytest.mark.parametrize(
    ("flags", "text", "override"),
    [
        ({"zero": 2}, "--zero 2", "layout.zero=3"),
        ({"zero": 2}, "--zero 2", "layout.zero="),
        ({"zero": 2}, "--zero 2", "layout={tp: tensor, dp: data}"),
        ({"sp": False}, "--no-sp", "layout.sequence_parallel=true"),
        ({"batch": 64}, "--batch 64", "workload.global_batch=128"),
        ({"batch": 64}, "--batch 64", "workload={kind: train, global_batch: 128, seq: 4096}"),
        ({"batch": 8}, "--batch 8", "workload={kind: serve, batch: 16, prompt: 512, output: 128}"),
        ({"seq": 512}, "--seq 512", "workload={kind: decode, batch: 16, context: 1024}"),
        ({"dtype": "bf16"}, "--dtype bf16", "workload.dtype=f32"),
        ({"practice": "fsdp2"}, "--practice fsdp2", "practice=megatron"),
        ({"practice": "fsdp2"}, "--practice fsdp2", "practice.base=megatron"),
        ({"practice": "fsdp2"}, "--practice fsdp2", "practice={base: megatron, regather: true}"),
        ({"model": "llama-3-8b"}, "--model llama-3-8b", "model={extends: llama-3-70b, layers: 4}"),
        ({"chips": 64}, "--chips 64", "chips=32"),
        ({"mesh": "data=4,tensor=8"}, "--mesh data=4,tensor=8", "mesh.tensor=4"),
        ({"mesh": "data=4,tensor=8"}, "--mesh data=4,tensor=8", "mesh={data: 4, pipe: 8}"),
        ({"tp": 8}, "--tp 8", "mesh.tensor=4"),
        ({"tp": 8, "dp": 4}, "--dp 4", "mesh.data=8"),
        ({"tp": 8}, "--tp 8", "layout.tp=data"),
        ({"tp": "data"}, "--tp data", "layout.tp=tensor"),
        ({"pp": 2}, "--pp 2", "mesh.pipe=4"),
        ({"placement": ["tensor=nvlink", "data=network"]}, "--placement data=network", "placement.data=nvlink"),
        ({"launch": "15us"}, "--launch 15us", "collectives={launch: 20us}"),
    ],
)
def test_an_override_that_contradicts_a_flag_is_refused(tmp_path: Path, flags, text, override) -> None:
    said = refusal(tmp_path, flags=flags, overrides=["name=other", override])
    assert said.startswith(f"error[stated-twice]: {text} and --set {override} contradict each other\n")
    assert said.endswith(" leave one of the two out")


@pytest.mark.parametrize(
    ("flags", "overrides"),
    [
        ({"zero": 3, "sp": True}, ["layout.zero=3", "layout.sequence_parallel=true"]),
        ({"batch": 64}, ["workload={kind: train, global_batch: 64, seq: 4096}"]),
        ({"practice": "fsdp2"}, ["practice={base: fsdp2, regather: true}"]),
        ({"model": "llama-3-8b"}, ["model.layers=16"]),
        ({"mesh": "data=4,tensor=8"}, ["mesh.tensor=8", "mesh.idle=1"]),
        ({"tp": 8}, ["mesh.tensor=8", "chips=128"]),
        ({"tp": 8}, ["mesh={data: 4, a: 2, b: 4}", "layout.tp=[a, b]", "chips=32"]),
        ({"tp": "tensor"}, ["layout.tp=[tensor]", "mesh.tensor=4", "chips=128"]),
        ({"placement": "tensor=nvlink"}, ["placement.data=network"]),
        ({"recompute": "full"}, ["recompute=full"]),
    ],
)
def test_what_an_override_says_beside_a_flag_or_like_it_is_taken(tmp_path: Path, flags, overrides) -> None:
    assert asked(tmp_path, flags=flags, overrides=overrides)


@pytest.mark.parametrize(("flags", "field"), [({"tp": 8}, "mesh"), ({"zero": 2}, "layout")])
def test_an_override_that_is_no_map_is_refused_as_that_and_not_for_a_flag_of_a_field_in_it(
    tmp_path: Path, flags, field
) -> None:
    text = refusal(tmp_path, flags=flags, overrides=[f"{field}=nope"])
    assert text.startswith(f'error[bad-value]: {field} is "nope", not a map of fields')


def test_a_size_that_contradicts_the_mesh_flag_is_refused(tmp_path: Path) -> None:
    text = refusal(tmp_path, flags={"mesh": "data=4,tensor=8", "tp": 4})
    assert "--tp 4 does not agree with --mesh data=4,tensor=8" in text


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("layout.zero", '"layout.zero" sets nothing'),
        ("chips.x=3", "chips has no fields"),
        ("layout.tp=tensr", 'did you mean "tensor"?'),
        ("layout.tpp=tensor", "tpp"),
        ("workload.seq=4k", "seq"),
    ],
)
def test_a_wrong_override_is_shown(tmp_path: Path, override: str, message: str) -> None:
    text = refusal(tmp_path, overrides=[override])
    assert message in text
    assert "Traceback" not in text


def test_a_mistake_in_an_override_points_at_the_override(tmp_path: Path) -> None:
    text = refusal(tmp_path, overrides=["layout.tp=tensr"])
    assert "1 | --set layout.tp=tensr" in text
    assert "  |                 ^^^^^" in text


@pytest.mark.parametrize("flag", ["tensor_parallel_size", "tensor-parallel-size"])
def test_a_foreign_flag_gets_the_name_that_tpsim_has(tmp_path: Path, flag: str) -> None:
    text = refusal(tmp_path, flags={flag: 8})
    assert f"--{flag} is not a flag of tpsim" in text
    assert "tpsim calls this layout.tp" in text


@pytest.mark.parametrize(
    ("flag", "path", "ours"),
    [
        ("hardware", "hardware", "--hw"),
        ("global_batch", "workload.global_batch", "--batch"),
        ("sequence_parallel", "layout.sequence_parallel", "--sp"),
        ("seq_len", "workload.seq", "--seq"),
    ],
)
@pytest.mark.parametrize("alone", [True, False])
def test_a_field_as_a_flag_gets_the_flag_that_sets_it(alone: bool, flag: str, path: str, ours: str) -> None:
    """Without a scenario, too: that another flag is missing came first, as if nobody had stated it."""
    scenario = None if alone else "qwen2-7b-h100"
    with pytest.raises(InputError) as error:
        resolve(scenario, flags={"model": "qwen2-7b", flag: "dgx-h100"} if alone else {flag: "dgx-h100"})
    (problem,) = error.value.problems
    assert problem.message == f"--{flag} is not a flag of tpsim"
    assert problem.remedy == f"tpsim calls this {path}, as a flag {ours}"


@pytest.mark.parametrize(
    ("scenario", "field", "path"),
    [
        ("llama3-70b-h100", "batch_size", "workload.global_batch"),
        ("llama3-70b-h100-decode", "batch_size", "workload.batch"),
        ("llama3-70b-h100-decode", "global_batch", "workload.batch"),
        ("llama3-70b-h100-decode", "max_model_len", "workload.prompt"),
        ("deepseek-v3-h100-decode", "seq", "workload.context, as a flag --seq"),
    ],
)
def test_a_foreign_field_gets_the_name_that_its_kind_of_workload_has(scenario: str, field: str, path: str) -> None:
    """Of inference they were told fields of training, which it refuses."""
    with pytest.raises(InputError) as error:
        resolve(scenario, overrides=[f"workload.{field}=8"])
    assert error.value.problems[0].remedy == f"tpsim calls this {path}"
    assert resolve(scenario, overrides=[f"{path.partition(',')[0]}=512"])


# What is refused


def test_a_mesh_that_is_not_the_chips_shows_its_factors(tmp_path: Path) -> None:
    text = refusal(tmp_path, ("data: 32,", "data: 16,"))
    assert "the mesh is data 16 x tensor 8 = 128 chips, but chips is 256" in text
    assert "case.yaml:5:" in text


def test_a_mesh_that_cannot_be_filled_shows_its_factors(tmp_path: Path) -> None:
    text = refusal(tmp_path, ("data: 32, tensor: 8", "data: -1, tensor: 7"))
    assert "the mesh is data -1 x tensor 7 = a multiple of 7 chips, but chips is 256" in text


def test_a_tp_flag_that_the_model_cannot_take_lists_the_legal_tp_even_when_it_breaks_the_mesh() -> None:
    with pytest.raises(InputError) as error:
        resolve("llama3-70b-h100", flags={"tp": 3})
    assert "64 heads are not divisible by tp 3" in str(error.value)
    assert "= a multiple of 3 chips, but chips is 256" in str(error.value)
    assert str(error.value).count("1 | --tp 3") == 3


def test_minus_one_needs_the_number_of_chips(tmp_path: Path) -> None:
    text = refusal(tmp_path, ("data: 32,", "data: -1,"), ("chips: 256\n", ""))
    assert "axis data is -1 and the number of chips is not stated" in text


def test_only_one_axis_can_be_filled(tmp_path: Path) -> None:
    assert "more than one mesh axis is -1" in refusal(tmp_path, ("data: 32, tensor: 8", "data: -1, tensor: -1"))


def test_heads_that_do_not_divide_list_the_legal_tp(tmp_path: Path) -> None:
    text = refusal(tmp_path, ("data: 32, tensor: 8", "data: 32, tensor: 3"), ("chips: 256\n", ""))
    assert "error[heads-not-divisible]: 64 heads are not divisible by tp 3" in text
    assert "legal tp: 1, 2, 4, 8, 16, 32, 64" in text


def test_kv_heads_that_neither_divide_nor_are_divided_list_the_legal_tp(tmp_path: Path) -> None:
    changes = (("data: 32, tensor: 8", "data: 32, tensor: 4"), ("chips: 256\n", ""), ("llama-3-70b", "odd.yaml"))
    (tmp_path / "odd.yaml").write_text(
        "tpsim: model/1\nname: odd\nsource: {title: a test}\nhidden: 768\nlayers: 2\nheads: 12\nkv_heads: 6\n"
        "head_dim: 64\nffn: {kind: swiglu, hidden: 3072}\nvocab: 512\n"
    )
    text = refusal(tmp_path, *changes)
    assert "6 kv heads are neither divisible by tp 4 nor divide it" in text
    assert "legal tp: 1, 2; with other sizes beside it also 3, 6, 12\n" in text  # of the vocabulary 3 is no divisor
    assert "= kv heads that divide tp are replicated over the rest" in text


@pytest.mark.parametrize("tp", [3, 28, 1000])
@pytest.mark.parametrize(
    "name",
    ["qwen2-7b-h100", "llama3-70b-h100", "llama3-70b-h100-decode", "mixtral-8x22b-h100", "gpt2-xl-a100-dp"],
)
def test_every_tp_that_a_refusal_lists_is_one_that_the_scenario_can_have(name: str, tp: int) -> None:
    with pytest.raises(InputError) as error:
        resolve(name, flags={"tp": tp})
    texts = {problem.remedy for problem in error.value.problems if problem.remedy.startswith("legal tp: ")}
    assert len(texts) == 1
    listed = texts.pop().removeprefix("legal tp: ").partition(";")[0]
    for legal in listed.split(", "):
        question = resolve(name, flags={"tp": legal})
        assert question.mesh.size(*question.layout.roles.get("tp", ())) == int(legal)


def test_a_tp_that_the_ffn_refuses_is_not_among_those_that_the_heads_list() -> None:
    with pytest.raises(InputError) as error:
        resolve(None, flags={"model": "qwen2-7b", "hw": "dgx-h100", "seq": 4096, "tp": 28})
    assert [(problem.slug, problem.remedy) for problem in error.value.problems] == [
        ("ffn-not-divisible", "legal tp: 1, 2, 4")
    ]


def test_of_deepseek_the_shared_experts_bound_tp_too_and_are_told_once() -> None:
    with pytest.raises(InputError) as error:
        resolve("deepseek-v3-h100", flags={"tp": 48})
    slugs = [problem.slug for problem in error.value.problems]
    assert slugs.count("heads-not-divisible") == 1
    assert "hidden size of shared experts 2048 is not divisible by tp 48" in str(error.value)


def test_a_vocabulary_that_does_not_divide_names_the_next_multiple(tmp_path: Path) -> None:
    changes = (
        ("llama-3-70b", "gpt2-xl"),
        ("data: 32, tensor: 8", "data: 8, tensor: 5"),
        ("chips: 256\n", ""),
        ("seq: 4096", "seq: 1000"),
    )
    text = refusal(tmp_path, *changes)
    assert "vocabulary 50257 of gpt2-xl is not divisible by tp 5" in text
    assert "--set model.vocab_padded=50260, or vocab_padded: 50260 in the model file" in text
    assert "= 50260 is the next multiple of 5" in text
    assert asked(tmp_path, *changes, overrides=["model.vocab_padded=50260"]).model.vocab_padded == 50260


def test_an_ffn_that_does_not_divide_lists_the_tp_that_do(tmp_path: Path) -> None:
    text = refusal(tmp_path, overrides=["model.ffn={kind: swiglu, hidden: 28676}"])
    assert "ffn hidden 28676 is not divisible by tp 8" in text
    assert "legal tp: 1, 2, 4" in text


def test_a_batch_that_does_not_divide_names_its_neighbours(tmp_path: Path) -> None:
    text = refusal(tmp_path, ("global_batch: 512", "global_batch: 500"))
    assert "global_batch 500 is not divisible by dp 32 x microbatches 4 = 128" in text
    assert "write 384 or 512" in text
    assert "case.yaml:8:" in text


def test_microbatches_that_do_not_divide_a_batch_are_answered_with_those_that_do(tmp_path: Path) -> None:
    assert "write 448 or 672, or microbatches: 1, 2, 4, 8, 16" in refusal(
        tmp_path, ("microbatches: 4", "microbatches: 7")
    )
    text = refusal(tmp_path, ("microbatches: 4", "microbatches: 100000"))
    assert text.endswith(" write microbatches: 1, 2, 4, 8, 16")
    assert text.splitlines()[-1].index("^") == text.splitlines()[-2].index("100000")


def test_whole_numbers_may_be_powers_of_ten(tmp_path: Path) -> None:
    ahead = "practice.ahead={elements: 5e7}"
    question = asked(tmp_path, ("seq: 4096", "seq: 4.096e3"), overrides=[ahead])
    assert (question.workload.seq, question.practice.ahead.elements) == (4096, 50_000_000)
    assert "is 4096.5, not a whole number" in refusal(tmp_path, ("seq: 4096", "seq: 4.0965e3"))
    assert "^^^^^^ write 4096, without quotes" in refusal(tmp_path, ("seq: 4096", 'seq: "4096"'))


def test_a_sequence_that_does_not_divide_under_sequence_parallelism_is_refused(tmp_path: Path) -> None:
    text = refusal(tmp_path, ("seq: 4096", "seq: 4095"))
    assert "seq 4095 is not divisible by tp 8, which sequence_parallel splits it over" in text
    assert "write 4088 or 4096, or sequence_parallel: false" in text
    without = asked(tmp_path, ("seq: 4096", "seq: 4095"), ("sequence_parallel: true", "sequence_parallel: false"))
    assert without.workload.seq == 4095


def test_a_hidden_size_that_zero_cannot_split_lists_the_legal_dp(tmp_path: Path) -> None:
    changes = (
        ("data: 32, tensor: 8", "data: 3, tensor: 8"),
        ("chips: 256\n", ""),
        ("global_batch: 512", "global_batch: 12"),
        ("practice: megatron", "practice: {padding: none}"),
    )
    text = refusal(tmp_path, *changes)
    assert "hidden 8192 is not divisible by dp 3, which zero 1 splits it over" in text
    assert "legal dp: 1, 2, 4, 8," in text
    assert asked(tmp_path, *changes, ("zero: 1", "zero: 0")).layout.zero == 0


def test_a_sequence_longer_than_the_learned_positions_is_refused() -> None:
    with pytest.raises(InputError, match="seq 4096 is longer than the 2048 positions that gpt3-175b has learned"):
        resolve("gpt3-175b-a100-tp8", flags={"seq": 4096})


def test_several_uneven_splits_are_shown_together(tmp_path: Path) -> None:
    text = refusal(tmp_path, ("global_batch: 512", "global_batch: 500"), ("seq: 4096", "seq: 4095"))
    assert "global_batch 500" in text
    assert "seq 4095" in text


def test_a_table_entry_that_does_not_divide_is_refused_at_its_place(tmp_path: Path) -> None:
    table = 'shardings: {"*": {b: data, g: [tensor, data]}}'
    text = refusal(tmp_path, ("layout: {tp: tensor, dp: data, zero: 1, sequence_parallel: true}", table))
    assert "g = 8 (key/value heads) is not divisible by tensor 8 x data 32" in text
    assert "case.yaml:6:" in text


def test_a_table_that_splits_queries_and_keys_is_refused_for_nobody_counts_its_busiest_device(tmp_path: Path) -> None:
    table = 'shardings: {"*": {b: data}, heads: {s: tensor, t: data}}'
    text = refusal(tmp_path, ("layout: {tp: tensor, dp: data, zero: 1, sequence_parallel: true}", table))
    assert "error[not-supported-yet]: heads split tokens as queries (s) and as keys (t): which device" in text
    assert "split one of both" in text
    one = 'shardings: {"*": {b: data}, heads: {s: tensor}}'
    laid = ("layout: {tp: tensor, dp: data, zero: 1, sequence_parallel: true}", one)
    assert asked(tmp_path, laid).layout.table["heads"] == {"s": ("tensor",)}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('{"*": {b: dta}}', 'did you mean "data"?'),
        ("{resdual: {s: tensor}}", 'did you mean "residual"?'),
        ('{"*": {b: [data, data]}}', "b names a mesh axis twice"),
        ('{"*": {x: tensor}}', '"x" is not a dim of a sharding table'),
        ('{"*": {j: tensor}}', '"j" is not a dim of a sharding table'),
    ],
)
def test_unknown_words_in_a_table_are_refused(tmp_path: Path, table: str, message: str) -> None:
    layout = "layout: {tp: tensor, dp: data, zero: 1, sequence_parallel: true}"
    assert message in refusal(tmp_path, (layout, f"shardings: {table}"))


def test_a_table_that_the_algebra_forbids_is_refused_with_its_reason(tmp_path: Path) -> None:
    layout = "layout: {tp: tensor, dp: data, zero: 1, sequence_parallel: true}"
    text = refusal(tmp_path, (layout, 'shardings: {"*": {b: data, f: data}}'))
    assert "error[forbidden-sharding]: this table gives no program: " in text
    assert "case 4" in text
    assert "case.yaml:6:12" in text


def test_layout_and_shardings_together_are_refused(tmp_path: Path) -> None:
    assert "layout and shardings are given" in refusal(tmp_path, add='shardings: {"*": {b: data}}\n')


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tp: tensor", "tp: tensr", 'did you mean "tensor"?'),
        ("tp: tensor", "tp: 8", '"8" is not a mesh axis: layout names axes, the mesh sizes them'),
        ("dp: data", "dp: tensor", "mesh axis tensor is used twice, in tp and dp"),
        ("llama-3-70b", "llama-3-70", 'did you mean "llama-3-70b"?'),
        ("dgx-h100", "dgx-h10", 'did you mean "dgx-h100"?'),
        ("zero: 1", "zero: 4", "zero"),
        ("zero: 1", "zro: 1", 'did you mean "zero"?'),
        ("practice: megatron", "practice: megatrn", "megatron"),
        ("dtype: bf16,", "dtype: bf17,", "bf16"),
        ("dtype: bf16,", "dtype: f64,", "states no peak for f64"),
        ("data: 32,", "data: 0,", "axis data has size 0"),
        ("data: 32,", '"my axis": 32,', '"my axis" cannot name a mesh axis'),
        ("kind: train", "kind: chat", "known: train, prefill, decode, serve"),
        ("tpsim: scenario/1", "tpsim: scenario/2", "this tpsim reads version 1"),
        ("chips: 256", "chips: 256\nchips: 512", "chips"),
        ("practice: megatron", "practice: {overlap: {gradient: beside}}", 'did you mean "gradients"?'),
        ("chips: 256", "require: {stp: < 3 s}", 'did you mean "step"?'),
        ("chips: 256", "require: {step: soon}", "write a relation and a value: < 30 s"),
        ("chips: 256", "assume: {routing: {load: skewed}}", "= values: balanced, uniform, or a number"),
        ("chips: 256", "pipeline: {layers: odd}", "= values: even, nearly-even, balanced, or a list"),
        ("practice: megatron", "practice: {reshard_after_forward: 3}", "write true or false, or layers"),
        ("chips: 256", "require: {peak: much}", "write a relation and a value: < 70 GB"),
        ("chips: 256", "require: {step: 12 s}", "write < 12 s"),
        ("chips: 256", "require: {mfu: 40 %}", "write > 40 %"),
        ("chips: 256", 'require: {step: "< 30"}', '"< 30" is no limit on step'),
        ("chips: 256", "placement: {tensr: nvlink}", 'did you mean "tensor"?'),
        ("chips: 256", "placement: {tensor: nvlnk}", "nvlink"),
    ],
)
def test_a_mistake_is_answered_with_its_line_and_a_remedy(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = refusal(tmp_path, (old, new))
    assert message in text
    assert "case.yaml:" in text


@pytest.mark.parametrize(
    ("word", "path"),
    [
        ("tensor_model_parallel_size", "layout.tp"),
        ("tensor_parallel_degree", "layout.tp"),
        ("ici_tensor_parallelism", "layout.tp"),
        ("data_parallel_size", "layout.dp"),
        ("global_batch_size", "workload.global_batch"),
        ("seq_length", "workload.seq"),
        ("num_gpus", "chips"),
        ("gbs", "workload.global_batch"),
        ("mbs", "workload.microbatches, which is global_batch / (dp x sequences of one of them)"),
        ("micro_batch_size", "workload.microbatches, which is global_batch / (dp x sequences of one of them)"),
        ("gradient_accumulation_steps", "workload.microbatches"),
        ("nodes", "chips, which is nodes x chips of one"),
        ("num_layers", "model.layers"),
        ("precision", "workload.dtype"),
        ("overlap_grad_reduce", "practice.overlap.gradients"),
        ("tp_comm_overlap", "practice.overlap.tensor"),
        ("stage3_prefetch_bucket_size", "practice.ahead.elements"),
        ("clip_grad", "practice.clip"),
    ],
)
def test_a_foreign_field_gets_the_name_that_tpsim_has(tmp_path: Path, word: str, path: str) -> None:
    text = refusal(tmp_path, add=f"{word}: 8\n")
    assert f"tpsim calls this {path}" in text
    assert "case.yaml:9:1" in text


def test_every_foreign_name_stands_for_a_field_that_a_scenario_has() -> None:
    fields = ScenarioFile.model_fields
    nested: dict[str, Any] = {
        "layout": LayoutFields,
        "pipeline": PipelineFields,
        "practice": PracticeFields,
        "recompute": RecomputeFields,
        "offload": OffloadFields,
        "assume": Assume,
        "workload": WorkloadFields,
        "model": ModelFile,
    }
    for word, said in FOREIGN.items():
        path, _, how = said.partition(",")
        top, _, inner = path.partition(".")
        assert top in fields, word
        formats = (DecodeFields, ServeFields) if how == " of inference" else (nested[top],) if inner else ()
        field = inner.partition(".")[0]
        assert not formats or any(field in format_.model_fields for format_ in formats), word


def test_foreign_names_are_known_in_the_spelling_of_flags_too() -> None:
    assert foreign_name("--tensor-parallel-size") == "layout.tp"
    assert foreign_name("--tensor-model-parallel-size") == "layout.tp"
    assert foreign_name("--tp") is None
    assert foreign_name("--pipeline-model-parallel-size") == "layout.pp"
    assert foreign_name("--context-parallel-size") == "layout.cp"
    assert foreign_name("--offload-optimizer") == "offload.state"
    assert not_yet("--offload-param") == "offload of weights"


def test_no_foreign_name_is_a_field_of_tpsim() -> None:
    own = {"tp", "dp", "zero", "sequence_parallel", "global_batch", "seq", "microbatches", "chips", "hardware"}
    assert not own & (FOREIGN.keys() | NOT_YET.keys())
    assert not FLAGS.keys() & FOREIGN.keys()
    assert not FOREIGN.keys() & NOT_YET.keys()


@pytest.mark.parametrize(
    ("old", "new", "feature"),
    [
        ("chips: 256", "offload_param: {device: cpu}", "offload_param: offload of weights"),
    ],
)
def test_what_comes_later_is_refused_as_such(tmp_path: Path, old: str, new: str, feature: str) -> None:
    text = refusal(tmp_path, (old, new))
    assert f"{feature} is not supported yet" in text
    assert "case.yaml:" in text


def test_an_unknown_scenario_gets_the_nearest_name() -> None:
    with pytest.raises(InputError, match="llama3-70b-h100"):
        resolve("llama3-70b-h10")


def test_a_file_that_is_not_a_scenario_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    path.write_text("- a\n- b\n")
    with pytest.raises(InputError):
        resolve(path)


def answer(path: Path) -> str:
    """What resolving a file comes to: the refusal, or the resolved inputs."""
    try:
        return str(resolve(path).resolved)
    except InputError as error:
        return str(error)


@pytest.mark.parametrize("letter", ["", "x", ":", "-1", "]"])
def test_a_slip_anywhere_is_answered_at_its_place_or_is_another_question(tmp_path: Path, letter: str) -> None:
    path = tmp_path / "case.yaml"
    for at in range(0, len(BASE), 7):
        path.write_text(BASE[:at] + letter + BASE[at + 1 :])
        text = answer(path)
        assert "case.yaml" in text or text.startswith("{'name': 'case'")


def test_a_scenario_may_extend_another_and_change_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(BASE)
    path = tmp_path / "case.yaml"
    path.write_text("tpsim: scenario/1\nextends: ./base.yaml\nlayout: {zero: 3}\n")
    question = resolve(path)
    assert (question.name, question.layout.zero, question.layout.roles["tp"]) == ("case", 3, ("tensor",))


def test_a_relative_model_is_looked_for_beside_the_scenario_but_one_from_a_flag_is_not(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(
        "tpsim: model/1\nname: own\nsource: {title: a test}\nhidden: 8192\nlayers: 2\nheads: 64\nkv_heads: 8\n"
        "ffn: {kind: swiglu, hidden: 28672}\nvocab: 512\n"
    )
    assert asked(tmp_path, ("llama-3-70b", "own.yaml")).model.name == "own"
    assert "there is no file own.yaml" in refusal(tmp_path, flags={"model": "own.yaml"})


def test_what_is_sent_in_pieces_over_an_axis_that_is_split_for_kv_heads_is_split_over_its_parts() -> None:
    sends = {"pp": 2, "chips": 512, "microbatches": 2}
    found = resolve("llama3-70b-kv-replication", overrides=["layout.cut={h: tensor}"], flags=sends)
    assert found.layout.table["cut"]["h"] == ("tensor_kv", "tensor_rep")


def test_a_tp_flag_adds_an_axis_where_no_axis_has_the_role_as_pp_does() -> None:
    padded = ["model.vocab_padded=50260"]
    alone = resolve("gpt2-xl-a100-dp", flags={"tp": 5, "chips": 40}, overrides=padded)
    both = resolve("gpt2-xl-a100-dp", flags={"tp": 5, "dp": 4, "pp": 2}, overrides=padded)
    assert alone.mesh.axes == {"data": 8, "tensor": 5}
    assert both.mesh.axes == {"pipe": 2, "data": 4, "tensor": 5}
    assert both.layout.roles["tp"] == ("tensor",)
    kept = resolve("llama3-8b-b200-fsdp", flags={"tp": 2})
    assert kept.mesh.devices == resolve("llama3-8b-b200-fsdp").mesh.devices


def test_an_axis_that_is_split_for_kv_heads_is_laid_as_the_whole_is_bound() -> None:
    """By numbers it was refused: each of its parts was to have as many devices there as the whole."""
    asked = {"model": "llama-3-70b", "hw": "dgx-h100", "tp": 16, "dp": 4, "seq": 4096}
    question = resolve(None, flags={**asked, "placement": "tensor=nvlink:4+network"})
    assert ranks_text(question.placement.route(("tensor_kv", "tensor_rep"))) == "nvlink 4 x network 4"
    with pytest.raises(InputError, match="mesh axis tensor of 16, 3 of them on nvlink, does not fit"):
        resolve(None, flags={**asked, "placement": "tensor=nvlink:3+network"})


def test_a_config_of_another_framework_is_told_what_its_names_are_here(tmp_path):
    """It was told of a first line alone."""
    file = tmp_path / "ds.json"
    file.write_text('{"train_batch_size": 64, "zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}')
    with pytest.raises(InputError) as error:
        resolve(file)
    (problem,) = error.value.problems
    assert problem.slug == "missing-header"
    assert problem.note.endswith("which calls train_batch_size workload.global_batch, zero_optimization layout.zero")
