"""Mistakes that users make most, in files and flags: each is answered with the place, the carets and the remedy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tpsim.program.families import FAMILIES

SCENARIO = """\
tpsim: scenario/1
model: llama-3-8b
hardware: tpu-v5e
chips: 64
mesh: {data: 16, tensor: 4}
layout: {tp: tensor, dp: data}
workload: {global_batch: 64, seq: 4096}
"""

MACHINE = """\
tpsim: hardware/1
name: mine
extends: tpu-v5e
chip:
  memory: {capacity: 16 GB, bandwidth: 820 GB/s}
"""

MODEL = """\
tpsim: model/1
name: mine
source: {title: a test, read: 2026-11-20}
hidden: 4096
layers: 2
heads: 48
kv_heads: 12
head_dim: 128
ffn: {kind: swiglu, hidden: 14592}
vocab: 32000
norm: rmsnorm
"""


@pytest.fixture
def refused(tpsim, tmp_path, monkeypatch):
    """What `plan` says of the scenario after a replacement in its text."""
    monkeypatch.chdir(tmp_path)

    def ask(old="", new="", *args):
        assert old in SCENARIO
        (tmp_path / "mine.yaml").write_text(SCENARIO.replace(old, new))
        ran = tpsim("plan", "mine.yaml", *args)
        assert (ran.code, ran.out) == (2, "")
        return ran.err

    return ask


@pytest.fixture
def model(tmp_path):
    (tmp_path / "model.yaml").write_text(MODEL)


def test_a_bare_number_where_a_unit_is_due(tpsim, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(MACHINE.replace("820 GB/s", "820"))
    ran = tpsim("hw", "show", "./mine.yaml")
    assert ran.code == 2
    assert ran.err == (
        "error[missing-unit]: memory.bandwidth: 820 has no unit\n"
        " --> mine.yaml:5:40\n"
        "  |\n"
        "5 |   memory: {capacity: 16 GB, bandwidth: 820}\n"
        "  |                                        ^^^ write 820 GB/s or 6560 Gbit/s\n"
    )


def test_a_mesh_whose_product_is_not_the_chips(refused):
    assert refused("chips: 64", "chips: 60") == (
        "error[mesh-product]: the mesh is data 16 x tensor 4 = 64 chips, but chips is 60\n"
        " --> mine.yaml:5:7\n"
        "  |\n"
        "5 | mesh: {data: 16, tensor: 4}\n"
        "  |       ^^^^^^^^^^^^^^^^^^^^^ make the product 60: --dp 15\n"
    )


def test_a_mesh_made_wrong_by_an_override_shows_the_override(refused):
    assert refused("", "", "--set", "mesh.tensor=8") == (
        "error[mesh-product]: the mesh is data 16 x tensor 8 = 128 chips, but chips is 64\n"
        " --> command line:1:19\n"
        "  |\n"
        "1 | --set mesh.tensor=8\n"
        "  |                   ^ make the product 64: --dp 8\n"
    )


def test_a_mesh_of_other_chips_is_answered_with_a_dp_that_works(tpsim, refused):
    assert tpsim("plan", "qwen2-7b-h100", "--chips", "128").err.endswith(" make the product 128: --dp 32\n")
    assert tpsim("plan", "qwen2-7b-h100", "--chips", "128", "--dp", "32").code == 0
    assert tpsim("plan", "qwen2-7b-h100", "--set", "mesh.tensor=2", "--dp", "32").code == 0
    assert refused("chips: 64", "chips: 66").endswith(" make chips a multiple of 4, or change an axis\n")


def test_heads_that_tp_does_not_divide(refused):
    said = refused("{data: 16, tensor: 4}", "{data: 4, tensor: 16}", "--model", "qwen2-7b")
    assert "error[heads-not-divisible]: 28 heads are not divisible by tp 16\n" in said
    assert "legal tp: 1, 2, 4\n" in said


@pytest.mark.usefixtures("model")
def test_kv_heads_that_neither_divide_tp_nor_are_divided_by_it(refused):
    said = refused("{data: 16, tensor: 4}", "{data: 4, tensor: 16}", "--model", "./model.yaml")
    assert said == (
        "error[kv-heads-not-divisible]: 12 kv heads are neither divisible by tp 16 nor divide it\n"
        " --> mine.yaml:5:25\n"
        "  |\n"
        "5 | mesh: {data: 4, tensor: 16}\n"
        "  |                         ^^ legal tp: 1, 2, 3, 4, 6, 12, 24, 48\n"
        "  = kv heads that divide tp are replicated over the rest\n"
    )


def test_kv_heads_that_divide_tp_are_replicated_and_the_plan_says_so(tpsim):
    ran = tpsim("plan", "llama3-70b-kv-replication", "-v")
    assert ran.code == 0
    assert "kv heads" in ran.out
    assert "replicated" in ran.out
    assert "qkv fused_kv" in tpsim("plan", "llama3-70b-kv-replication", "--practice", "megatron").out


def test_a_vocabulary_that_tp_does_not_divide(refused):
    said = refused("model: llama-3-8b", "model: gpt2-xl", "--set", "mesh={data: 16, tensor: 5}", "--set", "chips=80")
    assert "error[vocabulary-not-divisible]: vocabulary 50257 of gpt2-xl is not divisible by tp 5\n" in said
    assert "pad it: --set model.vocab_padded=50260, or vocab_padded: 50260 in the model file\n" in said


@pytest.mark.parametrize("name", ["tensor_model_parallel_size", "tensor_parallel_degree", "ici_tensor_parallelism"])
def test_a_field_as_another_framework_calls_it(refused, name):
    said = refused("{tp: tensor,", f"{{{name}: 4,")
    assert said.startswith(
        f'error[foreign-name]: "{name}" is not a field of a layout\n'
        " --> mine.yaml:6:10\n"
        "  |\n"
        f"6 | layout: {{{name}: 4, dp: data}}\n"
        f"  |          {'^' * len(name)} tpsim calls this layout.tp\n"
    )


def test_a_flag_as_another_framework_calls_it(refused):
    assert refused("", "", "--tensor-parallel-size", "4") == (
        "error[foreign-option]: --tensor-parallel-size is not an option of tpsim plan\n  = tpsim calls this --tp\n"
    )


def test_wraparound_where_there_is_none(tpsim):
    ran = tpsim("collective", "all-gather", "--hw", "tpu-v5e", "--ranks", "4", "--level", "ici.0:ring")
    assert ran.code == 2
    assert ran.err == (
        "error[no-wraparound]: ici.0:ring: the ends of this axis are not joined in a slice of 4x1\n"
        "  = leave :ring out, or fill an axis that closes\n"
        "  = ici: closes only on an axis of 16\n"
    )


def test_a_model_type_that_is_not_known(tpsim, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "lama", "hidden_size": 8}))
    ran = tpsim("model", "show", "./config.json")
    assert ran.code == 2
    assert ran.err == (
        'error[unknown-model-type]: model_type "lama" is not known to tpsim\n'
        " --> config.json:1:16\n"
        "  |\n"
        '1 | {"model_type": "lama", "hidden_size": 8}\n'
        "  |                ^^^^^^ write a tpsim: model/2 file if its blocks are known: tpsim schema model\n"
        f"  = known: {', '.join(sorted(FAMILIES))}\n"
    )


def test_a_key_given_twice(refused):
    assert refused("hardware: tpu-v5e", "model: gpt2-xl") == (
        'error[duplicate-key]: "model" is given twice\n'
        " --> mine.yaml:3:1\n"
        "  |\n"
        "3 | model: gpt2-xl\n"
        "  | ^^^^^ keep one\n"
        "  = the first one is in line 2\n"
    )


def test_one_typo_is_said_once(refused):
    said = refused("model: llama", "modl: llama")
    assert said.count("error[") == 1
    assert '"modl" is not a field of a scenario' in said
    assert '^^^^ did you mean "model"?' in said


@pytest.mark.parametrize(
    ("line", "wrong", "carets"),
    [
        ("placement: {tensr: ici.0}", "tensr", '^^^^^ did you mean "tensor"?'),
        ("require: {stp: < 30 s}", "stp", '^^^ did you mean "step"?'),
    ],
)
def test_a_name_that_is_wrong_itself_bears_the_carets(refused, line, wrong, carets):
    said = refused("workload:", f"{line}\nworkload:")
    column = line.index(wrong)
    assert f" --> mine.yaml:7:{column + 1}\n" in said
    assert f"  | {' ' * column}{carets}\n" in said


def test_an_override_of_a_field_that_there_is_not_shows_the_override(refused):
    assert refused("", "", "--set", "layot.zero=3").startswith(
        'error[unknown-field]: "layot" is not a field of a scenario\n'
        " --> command line:1:7\n"
        "  |\n"
        "1 | --set layot.zero=3\n"
        '  |       ^^^^^^^^^^ did you mean "layout"?\n'
    )


INSIDE = {
    "unknown field of a model": ("model={extends: llama-3-8b, layerz: 16}", "layerz", "unknown-field"),
    "unknown field of a workload": ("workload={kind: serve,  promt: 16, output: 2}", "promt", "unknown-field"),
    "requirement without a relation": ("require={step: < 1 s, peak: 1 GB}", "1 GB", "bad-requirement"),
    "value of a field of a field": ("practice={overlap: {tensor: sideways}}", "sideways", "unknown-value"),
}


@pytest.mark.parametrize(("text", "wrong", "slug"), INSIDE.values(), ids=INSIDE)
def test_what_is_wrong_inside_an_override_bears_the_carets(refused, text, wrong, slug):
    said = refused("", "", "--set", text)
    column = f"--set {text}".index(wrong)
    assert said.startswith(f"error[{slug}]")
    assert f" --> command line:1:{column + 1}\n" in said
    carets = next(line for line in said.splitlines() if "^" in line)
    assert (carets.index("^"), carets.count("^")) == (len("  | ") + column, len(wrong))


def test_a_field_that_a_model_has_not_bears_the_carets(refused):
    """Its name, and not the value of it, in a file and on the command line."""
    line = "model: {extends: llama-3-8b, layerz: 16}"
    said = refused("model: llama-3-8b", line)
    assert f" --> mine.yaml:2:{line.index('layerz') + 1}\n" in said
    assert f'  | {" " * line.index("layerz")}^^^^^^ did you mean "layers"?\n' in said
    assert '  |       ^^^^^^^^^^^^ did you mean "layers"?\n' in refused("", "", "--set", "model.layerz=16")


def test_a_field_that_flags_leave_out_is_added_by_a_flag(tpsim, refused):
    """No file has the map that wants it: what a remedy says can be typed behind the command line as it is."""
    asked = ["--model", "llama-3-8b", "--hw", "dgx-h100", "--seq", "4096", "--set", "workload.kind=serve"]
    ran = tpsim("plan", *asked)
    assert "add --set workload.output=256\n" in ran.err
    assert tpsim("plan", *asked, "--set", "workload.output=256").code == 0
    level = "hardware={extends: tpu-v5e, levels: [{name: ici, topology: switch}]}"
    assert "^^ add --set hardware.levels.0.link=...\n" in refused("", "", "--set", level)


def test_a_field_of_another_kind_of_workload_is_answered_with_the_kinds_that_have_it(tpsim):
    asked = ["--model", "llama-3-8b", "--hw", "dgx-h100", "--seq", "4096", "--set"]
    ran = tpsim("plan", *asked, "workload.prompt=64")
    assert 'error[foreign-name]: "prompt" is not a field of a workload of training\n' in ran.err
    assert "^ tpsim calls this workload.prompt, where workload.kind is prefill or serve\n" in ran.err
    ran = tpsim("plan", *asked, "workload={kind: serve, prompt: 4096, output: 2, tokens: 2}")
    assert '"tokens" is not a field of a workload of prompts and replies\n' in ran.err
    assert "^ tpsim calls this workload.tokens, where workload.kind is decode\n" in ran.err
    ran = tpsim("plan", "llama3-70b-h100-decode", "--set", "workload.grad_dtype=f32")
    assert "^ tpsim calls this workload.grad_dtype, where workload.kind is train\n" in ran.err


def test_tokens_beyond_learned_positions_are_shown_where_they_are_stated(tpsim):
    asked = ["--model", "gpt2-xl", "--hw", "dgx-h100", "--set", "workload.kind=decode", "--batch", "4", "--seq", "4096"]
    ran = tpsim("plan", *asked)
    assert "1 | --seq 4096\n  | ^^^^^^^^^^ write at most 1024 tokens together\n" in ran.err


def test_a_list_of_levels_where_one_is_to_be_changed_is_answered_with_the_map(tpsim, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "mine.yaml"
    mine.write_text("tpsim: hardware/1\nname: mine\nextends: dgx-h100\nlevels:\n  - {name: nvlink, shape: [4]}\n")
    ran = tpsim("hw", "show", "./mine.yaml")
    due = "  = a list replaces levels of what is extended: to change nvlink alone, write levels: {nvlink: {...}}\n"
    assert (ran.code, ran.err.count(due)) == (2, 2)
    mine.write_text("tpsim: hardware/1\nname: mine\nextends: dgx-h100\nlevels: {nvlink: {shape: [4]}}\n")
    assert tpsim("hw", "show", "./mine.yaml").code == 0
    mine.write_text("tpsim: hardware/1\nname: mine\nchip: h100\nlevels:\n  - {name: nvlink, shape: [4]}\n")
    assert "a list replaces" not in tpsim("hw", "show", "./mine.yaml").err


def test_a_share_above_the_whole_is_refused(tpsim, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(MACHINE + "  matmul_efficiency: 1.5\n")
    ran = tpsim("hw", "show", "./mine.yaml")
    assert ran.code == 2
    assert 'error[bad-number]: chip.matmul_efficiency: "1.5" is more than the whole, and this is a share' in ran.err
    assert "write 1.5 % if percent are meant\n" in ran.err


@pytest.mark.parametrize("content", [b"", b"\x89PNG\r\n\x00", b"- a\n", b"{}", b"a: [1,\nb: 2\n", b"\tx: 1\n", b"[1"])
def test_what_is_no_scenario_is_a_wrong_request_with_the_files_name(tpsim, tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_bytes(content)
    ran = tpsim("plan", "mine.yaml")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error[")
    assert "--> mine.yaml" in ran.err


def test_a_folder_and_a_file_that_is_not_there_are_wrong_requests(tpsim, tmp_path):
    folder, absent = tpsim("plan", str(tmp_path)).err, tpsim("plan", str(tmp_path / "no.yaml")).err
    assert folder == f"error[no-such-file]: {tmp_path} is a folder, not a file\n  = name a file in it\n"
    assert absent == f"error[no-such-file]: there is no file {tmp_path}/no.yaml\n  = check the folder and the name\n"


@pytest.mark.parametrize(
    ("named", "remedy"),
    [
        ("~/m.yaml", "write the whole path: no ~ and no variable is read"),
        ("$HOME/m.yaml", "write the whole path: no ~ and no variable is read"),
        (
            "https://a.org/m.yaml",
            "nothing is read from a network: give a file, of a model of Hugging Face its config.json",
        ),
    ],
)
def test_a_path_that_a_shell_or_a_browser_would_follow_is_told_what_is_read(
    tpsim, tmp_path, monkeypatch, named, remedy
):
    monkeypatch.chdir(tmp_path)
    text = f"tpsim: scenario/1\nmodel: {named}\nhardware: dgx-h100\nmesh: {{data: 2}}\nworkload: {{seq: 16}}\n"
    Path("asked.yaml").write_text(text, encoding="utf-8")
    assert remedy in tpsim("plan", "asked.yaml").err


def test_a_scenario_asked_of_another_machine_is_told_how_to_leave_its_placement(tpsim):
    ran = tpsim("plan", "llama3-70b-h100", "--hw", "tpu-v5p")
    assert ran.code == 2
    assert 'error[unknown-level]: "network" is not a level of the machine\n' in ran.err
    remedy = "name one of these, or leave it to tpsim: "
    assert remedy in ran.err
    words = ran.err.partition(remedy)[2].splitlines()[0].split()
    assert tpsim("plan", "llama3-70b-h100", "--hw", "tpu-v5p", *words).code == 0


@pytest.mark.parametrize("planner", ["book", "cheapest"])
@pytest.mark.parametrize(
    ("forced", "slug"),
    [
        ("algorithm=treee", "unknown-algorithm"),
        ("algorithm=NVLS", "foreign-name"),
        ("protocol=ll12", "unknown-protocol"),
        ("launch=grpah", "unknown-launch"),
        ("launch=15 kB", "bad-unit"),
    ],
)
def test_what_is_forced_wrongly_is_shown_where_it_stands(refused, forced, slug, planner):
    shown = refused("", "", "--set", f"collectives.{forced}", "--planner", planner)
    text, word = f"--set collectives.{forced}", forced.partition("=")[2]
    assert shown.startswith(f"error[{slug}]: ")
    assert f"\n1 | {text}\n  | {' ' * text.index(word)}{'^' * len(word)}" in shown


def test_a_placement_without_a_machine_is_not_ignored(tpsim):
    ran = tpsim("shard", "A[I_X,J] -> A[I,J]", "--placement", "X=ici.0")
    assert (ran.code, ran.err) == (
        2,
        "error[missing-machine]: a placement needs a machine\n  = add it: --hw tpu-v5p\n",
    )


def test_a_number_of_a_plan_asked_for_without_a_scenario(tpsim):
    ran = tpsim("explain", "step.time_s")
    assert ran.code == 2
    assert ran.err == (
        'error[missing-scenario]: "step.time_s" is a number of a plan and needs a scenario\n'
        "  = name one: tpsim explain step.time_s llama3-70b-h100\n"
    )


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            ("plan", "llama3-70b-h100", "--tp", "16"),
            "error[does-not-fit]: mesh axis tensor of 16 does not fit on nvlink 8 beside the other axes\n",
        ),
        (("verify", "{model}"), "error[wrong-kind]: this is a model file where a scenario file is due\n"),
        (("plan", "{own}"), "error[wrong-kind]: this is a hardware file where a scenario file is due\n"),
        (
            ("plan", "llama3-70b-h100", "--set", "mesh={data:32,tensor:8}"),
            'error[bad-override]: "data:32" is one word: YAML wants a space after the colon\n',
        ),
        (("plan", "llama3-70b-h10"), 'error[unknown-scenario]: "llama3-70b-h10" is not a scenario\n'),
    ],
)
def test_a_mistake_is_named_where_the_user_made_it(tpsim, tmp_path, args, said):
    own = tmp_path / "own.yaml"
    own.write_text("tpsim: hardware/1\nextends: dgx-h100\n", encoding="utf-8")
    model = Path(__file__).parents[2] / "scenarios" / "models" / "llama-3-8b.yaml"
    ran = tpsim(*(arg.format(own=own, model=model) if arg in ("{own}", "{model}") else arg for arg in args))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(said)
    assert "write tpsim: " not in ran.err
    assert "= known: " not in ran.err
