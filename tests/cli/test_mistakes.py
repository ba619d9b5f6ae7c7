"""A wrong command line is answered in the one shape, with a remedy, on stderr, with exit code 2."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tpsim import VERBS
from tpsim.answers.schema import DESCRIBED

SCENARIOS = Path(__file__).parents[2] / "scenarios"

ANSWERS = {
    ("plna",): (
        'error[unknown-command]: "plna" is not a command of tpsim\n'
        "  = did you mean tpsim plan?\n"
        f"  = commands: {', '.join(verb.name for verb in VERBS)}\n"
    ),
    ("hw", "lst"): (
        'error[unknown-command]: "lst" is not a command of tpsim hw\n'
        "  = did you mean tpsim hw list?\n"
        "  = commands: fit, list, show, validate\n"
    ),
    ("plan", "llama3-70b-h100", "--microbatch", "3"): (
        "error[unknown-option]: --microbatch is not an option of tpsim plan\n  = did you mean --microbatches?\n"
    ),
    ("plan", "--tensor-parallel-size", "8"): (
        "error[foreign-option]: --tensor-parallel-size is not an option of tpsim plan\n  = tpsim calls this --tp\n"
    ),
    ("plan", "--global-batch-size", "8"): (
        "error[foreign-option]: --global-batch-size is not an option of tpsim plan\n  = tpsim calls this --batch\n"
    ),
    ("plan", "--tensor-model-parallel-size", "8"): (
        "error[foreign-option]: --tensor-model-parallel-size is not an option of tpsim plan\n"
        "  = tpsim calls this --tp\n"
    ),
    ("plan", "--gbs", "8"): (
        "error[foreign-option]: --gbs is not an option of tpsim plan\n  = tpsim calls this --batch\n"
    ),
    ("plan", "--mbs", "8"): (
        "error[foreign-option]: --mbs is not an option of tpsim plan\n"
        "  = tpsim calls this --microbatches, which is global_batch / (dp x sequences of one of them)\n"
    ),
    ("plan", "--per_device_batch_size", "8"): (
        "error[foreign-option]: --per_device_batch_size is not an option of tpsim plan\n"
        "  = tpsim calls this --batch, which is chips x it\n"
    ),
    ("plan", "--ici_fsdp_parallelism", "8"): (
        "error[foreign-option]: --ici_fsdp_parallelism is not an option of tpsim plan\n"
        "  = tpsim calls this --dp, with layout.zero: 3, which shards over it\n"
    ),
    ("plan", "--kv-cache-dtype", "fp8"): (
        "error[foreign-option]: --kv-cache-dtype is not an option of tpsim plan\n"
        "  = tpsim calls this workload.cache_dtype, of inference: --set workload.cache_dtype=...\n"
    ),
    ("plan", "--nodes", "8"): (
        "error[foreign-option]: --nodes is not an option of tpsim plan\n"
        "  = tpsim calls this --chips, which is nodes x chips of one\n"
    ),
    ("plan", "--num-layers", "8"): (
        "error[foreign-option]: --num-layers is not an option of tpsim plan\n"
        "  = tpsim calls this model.layers: --set model.layers=...\n"
    ),
    ("plan", "--sequence-parallel"): (
        "error[foreign-option]: --sequence-parallel is not an option of tpsim plan\n  = tpsim calls this --sp\n"
    ),
    ("plan", "--pipeline-model-parallel-size", "2"): (
        "error[foreign-option]: --pipeline-model-parallel-size is not an option of tpsim plan\n"
        "  = tpsim calls this --pp\n"
    ),
    ("plan", "--context-parallel-size", "2"): (
        "error[foreign-option]: --context-parallel-size is not an option of tpsim plan\n  = tpsim calls this --cp\n"
    ),
    ("plan", "llama3-70b-h100", "-f", "jsn"): (
        'error[bad-value]: "jsn" is not a value of --format\n  = did you mean json?\n'
        "  = values: table, json, csv, md, html, trace\n"
    ),
    ("plan", "llama3-70b-h100", "--batch", "many"): (
        "error[bad-value]: invalid value for '--batch': 'many' is not a valid integer\n"
        "  = write a whole number or largest\n"
    ),
    ("collective", "all-gather"): ("error[missing-argument]: tpsim collective needs --hw\n  = add it: --hw dgx-h100\n"),
    ("shard",): (
        "error[missing-argument]: tpsim shard needs EXPRESSION\n"
        '  = for example: tpsim shard "A[I,J_X] . B[J_X,K] -> C[I,K]"\n'
    ),
    ("schema", "xyz"): (
        'error[unknown-schema]: "xyz" is not a schema\n  = known: ' + ", ".join(one.name for one in DESCRIBED) + "\n"
    ),
    ("schema", "scenaro"): (
        'error[unknown-schema]: "scenaro" is not a schema\n'
        f'  = did you mean "scenario"?\n  = {len(DESCRIBED)} are known: tpsim schema\n'
    ),
    ("shard", "A[I_X,J_X]"): (
        "error[notation]: mesh axis X is used twice in A\n"
        " --> command line:1:9\n"
        "  |\n"
        "1 | A[I_X,J_X]\n"
        "  |         ^ an axis may shard one dimension or carry one sum; drop one X\n"
    ),
    ("plan", "llama3-70b-h100", "-o", "plan.jsn"): (
        "error[unknown-format]: plan.jsn: the suffix says no format\n  = did you mean plan.json?\n"
    ),
    ("plan", "llama3-70b-h100", "-o", "plan.svg"): (
        "error[unknown-format]: plan.svg: the suffix says no format\n  = pictures stand in a report: plan.html\n"
    ),
    ("plan", "llama3-70b-h100", "-o", "plan"): (
        "error[unknown-format]: plan: the suffix says no format\n"
        "  = suffixes: .trace.json, .txt, .json, .csv, .md, .html\n"
    ),
}


PRODUCT = "A[I_X,J] . B[J,K]"


@pytest.mark.parametrize("verb", ["shard", "verify"])
@pytest.mark.parametrize(
    ("slug", "args"),
    [
        ("bad-mesh", (PRODUCT, "--mesh", "X=4,Y")),
        ("bad-mesh", (PRODUCT, "--mesh", "X=4,X=2")),
        ("unknown-axis", (PRODUCT, "--mesh", "Y=4")),
        ("unknown-dtype", (PRODUCT, "--dtype", "bf17")),
        ("bad-dims", (PRODUCT, "--dims", "I=8,J=x,K=8")),
        ("missing-size", (PRODUCT, "--dims", "I=8,J=8")),
        ("unknown-dim", (PRODUCT, "--dims", "I=8,J=8,K=8,Q=8")),
        ("not-divisible", (PRODUCT, "--dims", "I=5,J=8,K=8")),
        ("bad-placement", (PRODUCT, "--dims", "I=8,J=8,K=8", "--hw", "tpu-v5e", "--placement", "X")),
        ("notation", ("A[I_X,J", "--mesh", "X=4")),
    ],
)
def test_a_mistake_beside_an_expression_has_the_slug_that_it_has_in_a_file(tpsim, verb, slug, args):
    ran = tpsim(verb, *args)
    assert (ran.code, ran.err.partition(":")[0]) == (2, f"error[{slug}]")
    assert "^" in ran.err


@pytest.mark.parametrize(
    ("args", "slug"),
    [(("--mesh", "data=1.5"), "bad-mesh"), (("--tp", "8.5"), "bad-size"), (("--dp", "-3"), "bad-size")],
)
def test_what_is_no_size_is_not_taken_for_a_name(tpsim, args, slug):
    ran = tpsim("plan", "llama3-70b-h100", *args)
    assert (ran.code, ran.err.partition(":")[0]) == (2, f"error[{slug}]")
    assert f"\n  | {' ' * (len(args[0]) + 1)}{'^' * 3}"[:-1] in ran.err


@pytest.mark.parametrize("args", ANSWERS, ids=" ".join)
def test_a_mistake_is_answered_with_its_remedy(tpsim, args):
    ran = tpsim(*args)
    assert (ran.code, ran.out, ran.err) == (2, "", ANSWERS[args])


def test_a_scenario_with_an_impossible_layout_shows_the_flag_that_asked_for_it(tpsim):
    ran = tpsim("plan", "llama3-70b-h100", "--tp", "3")
    assert ran.code == 2
    assert "error[heads-not-divisible]: 64 heads are not divisible by tp 3\n --> command line:1:1\n" in ran.err
    assert "1 | --tp 3\n  | ^^^^^^ legal tp: 2, 4, 8; with other sizes beside it also 1, 16, 32, 64\n" in ran.err


def test_an_unwritable_file_is_a_mistake_of_the_request(tpsim, tmp_path):
    ran = tpsim("plan", "llama3-70b-h100", "-q", "-o", str(tmp_path / "no" / "plan.json"))
    assert ran.code == 2
    assert ran.err == (
        f"error[cannot-write]: {tmp_path}/no/plan.json: No such file or directory\n"
        "  = name a file in a folder that you may write to\n"
    )


def test_a_file_of_the_library_is_named_as_the_library_names_it(tpsim):
    ran = tpsim("plan", "llama3-70b-h100", "--microbatches", "7")
    assert ran.code == 2
    assert " --> scenarios/llama3-70b-h100.yaml:" in ran.err


BARE = {
    "collectives.launch=15": ("collectives.launch is 15, a bare number", "15", "write 15 us"),
    "require.step=700": ("require.step is 700, a bare number", "700", "write < 30 s"),
    "require.mfu=0.4": ("require.mfu is 0.4, a bare number", "0.4", 'write "> 40 %"'),
}


@pytest.mark.parametrize(("edit", "said"), BARE.items(), ids=BARE)
def test_a_bare_number_where_a_text_with_a_unit_is_due_is_answered_with_a_text_that_is_read(tpsim, edit, said):
    message, marked, remedy = said
    ran = tpsim("plan", "qwen2-7b-h100", "--set", edit, "-q")
    line = f"--set {edit}"
    at = " " * line.index(marked) + "^" * len(marked)
    assert ran.code == 2
    assert ran.err.splitlines()[0] == f"error[missing-unit]: {message}"
    assert ran.err.splitlines()[-2:] == [f"1 | {line}", f"  | {at} {remedy}"]
    path, text = edit.partition("=")[0], remedy.removeprefix("write ")
    assert tpsim("plan", "qwen2-7b-h100", "--set", f"{path}={text}", "-q").code in {0, 1}


def test_chips_without_a_mesh_are_answered_with_a_flag_that_sizes_it(tpsim):
    ran = tpsim("plan", "--model", "llama-3-8b", "--hw", "dgx-h100", "--chips", "8", "--seq", "4096")
    assert ran.err == (
        "error[mesh-product]: the mesh is data 1 x tensor 1 = 1 chip, but chips is 8\n"
        "  = size the mesh: --dp 8, or --mesh data=-1\n"
    )


def test_the_size_of_a_level_is_answered_with_what_a_profile_calls_it(tpsim, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "tpsim: hardware/1\nname: mine\nchip:\n  peak: {bf16: 1 PFLOP/s}\n"
        "  memory: {capacity: 80 GB, bandwidth: 3 TB/s}\n"
        "levels:\n  - {name: nodes, topology: switch, size: 8, link: {bandwidth: 50 GB/s, latency: 1 us}}\n",
        encoding="utf-8",
    )
    said = tpsim("hw", "show", str(file)).err
    assert "tpsim calls this shape, a list: [8]" in said
    assert "tpsim calls this link.hop_latency" in said


@pytest.mark.parametrize("verb", [("plan",), ("search", "--chips", "64")], ids=" ".join)
def test_no_scenario_is_saved_in_a_file_called_as_stdout_is(tpsim, tmp_path, monkeypatch, verb):
    monkeypatch.chdir(tmp_path)
    ran = tpsim(verb[0], "qwen2-7b-h100", *verb[1:], "--save", "-")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "error[cannot-write]: --save writes a file, and - names none\n"
        "  = name one: --save scenario.yaml; what stdout gets is -f\n"
    )
    assert not list(tmp_path.iterdir())


def test_an_output_called_as_stdout_is_answered_with_the_flag_that_stdout_obeys(tpsim):
    said = tpsim("plan", "qwen2-7b-h100", "-o", "-").err
    assert "  = stdout gets what -f says: -f json; suffixes: .trace.json, " in said


def test_several_sizes_of_a_role_are_answered_so_too(tpsim):
    ran = tpsim("search", "qwen2-7b-h100", "--chips", "8", "--tp", "1,2")
    assert ran.err.endswith("  = search several: --vary tp=1,2\n")


@pytest.mark.parametrize("flag", ["chips", "zero", "microbatches", "seq", "batch"])
def test_several_values_for_a_flag_of_a_search_are_answered_with_how_to_vary_it(tpsim, flag):
    ran = tpsim("search", "qwen2-7b-h100", f"--{flag}", "1,2")
    remedy = f"--vary {flag}=1,2"
    assert ran.err == (
        f"error[bad-value]: invalid value for '--{flag}': '1,2' is not a valid integer\n  = search several: {remedy}\n"
    )
    again = tpsim("search", "qwen2-7b-h100", *remedy.split(), "--by", "tokens_per_s", "--top", "1", "-q")
    assert "is not a field" not in again.err


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder with a scenario, a machine and a config.json of a user's own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text((SCENARIOS / "qwen2-7b-h100.yaml").read_text())
    (tmp_path / "lab.yaml").write_text("tpsim: hardware/1\nname: lab\nextends: dgx-h100\n")
    config = {"model_type": "mistral", "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8}
    config |= {"num_hidden_layers": 2, "num_key_value_heads": 8, "vocab_size": 512, "hidden_act": "silu"}
    (tmp_path / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False, "sliding_window": None}))
    return tmp_path


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("typed", "remedy"),
    [
        ("plan mine", "there is a file of that name, named with its suffix: mine.yaml"),
        ("plan mine.yml", 'did you mean "mine.yaml"?'),
        ("plan mine.yaml --hw lab", "there is a file of that name, named with its suffix: lab.yaml"),
        ("plan qwen2-7b", "= near: qwen2-7b-h100; "),
        ("plan h100", 'did you mean "deepseek-v3-h100"?'),
    ],
)
def test_a_file_or_a_scenario_that_is_near_is_named(tpsim, typed, remedy):
    ran = tpsim(*typed.split())
    assert (ran.code, remedy in ran.err) == (2, True)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("typed", ["config.json", "lab.yaml", "llama-3-8b", "dgx-h100"])
def test_a_model_or_a_machine_in_the_place_of_a_scenario_is_asked_of_by_flags_that_work(tpsim, typed):
    ran = tpsim("plan", typed)
    assert ran.code == 2
    flags = ran.err.partition("ask of it by flags: ")[2].splitlines()[0]
    assert typed in flags
    assert tpsim("plan", *flags.split()).code == 0


def test_a_schedule_without_stages_is_answered_with_a_flag_that_works(tpsim):
    ran = tpsim("plan", "qwen2-7b-h100", "--schedule", "1f1b")
    assert "add --pp 4, in a file layout.pp: AXIS; or remove it\n" in ran.err
    assert tpsim("plan", "qwen2-7b-h100", "--schedule", "1f1b", "--pp", "4").code == 0


@pytest.mark.parametrize(
    ("typed", "remedy"),
    [
        ("plan qwen2-7b-h100 --top 3", "it is one of tpsim search"),
        ("verify qwen2-7b-h100 --vary tp=1", "it is one of tpsim search"),
        ("plan qwen2-7b-h100 --json", "write -f json"),
        ("plan qwen2-7b-h100 --fp8", "write --dtype fp8"),
        ("plan qwen2-7b-h100 --fp16", "write --dtype f16"),
        ("plan qwen2-7b-h100 --zero3", "write --zero 3"),
        ("plan qwen2-7b-h100 --fsdp", "tpsim calls this --zero, of which 3 shards parameters, too"),
        (
            "plan qwen2-7b-h100 --recompute",
            "write --recompute NAME: what is not kept for backward: none, selective, full",
        ),
        ("plan qwen2-7b-h100 -f", "write -f table|json|csv|md|html|trace: what stdout gets"),
        ("plan qwen2-7b-h100 --seq 4k", "write 4096, or 4000"),
        ("plan qwen2-7b-h100 llama3-70b-h100", "compare two: tpsim diff qwen2-7b-h100 llama3-70b-h100"),
        ("plan qwen2-7b-h100 --set layout.zero 3", "write --set layout.zero=3"),
        ("plan qwen2-7b-h100 layout.zero=3", "write --set layout.zero=3"),
        ("plan qwen2-7b-h100 zero=3", "write --zero 3"),
        ("search qwen2-7b-h100 --vary zero 1,3", "write --vary zero=1,3"),
        ("plan qwen2-7b-h100 --foo", "see tpsim plan --help"),
        ("collective all-reduce --hw dgx-h100", "add it: --ranks 8"),
        ("collective all-reduce --gpus 8", "tpsim calls this --ranks"),
        ("hw fit log.txt", "add it: --base dgx-h100"),
    ],
)
def test_a_command_line_that_click_refuses_is_answered_with_what_can_be_typed(tpsim, typed, remedy):
    ran = tpsim(*typed.split())
    assert (ran.code, ran.err.splitlines()[1:]) == (2, [f"  = {remedy}"])


@pytest.mark.parametrize("typed", ["--json", "--fp8", "--fp16", "--zero3"])
def test_what_a_flag_of_another_tool_is_answered_with_works(tpsim, typed):
    told = tpsim("plan", "qwen2-7b-h100", typed).err.partition("= write ")[2].split()
    assert tpsim("plan", "qwen2-7b-h100", *told).code == 0


def test_a_part_of_the_mesh_that_is_varied_where_it_is_stated_is_answered_with_the_flag_that_searches_it(tpsim):
    told = tpsim("search", "qwen2-7b-h100", "--vary", "tp").err
    assert "search the mesh, too: --chips 64\n" in told
    asked = ("--vary", "tp", "--chips", "64", "--recompute", "none", "--zero", "1", "--pp", "1", "--cp", "1", "-q")
    assert tpsim("search", "qwen2-7b-h100", *asked).code == 0
    assert tpsim("search", "qwen2-7b-h100", "--workers", "0").err.endswith("= write --workers 2\n")
    listed = tpsim("search", "qwen2-7b-h100", "--vary", "tensor").err.partition("known: ")[2].strip().split(", ")
    assert len(listed) == len({*listed})


@pytest.mark.parametrize(
    ("typed", "remedy"),
    [
        ("verify qwen2-7b-h100 --set zero=1", "tpsim calls this layout.zero, as a flag --zero"),
        ("plan qwen2-7b-h100 --set batch=8", "tpsim calls this workload.global_batch, as a flag --batch"),
        ("plan llama3-70b-h100-decode --set batch=8", "tpsim calls this workload.batch, as a flag --batch"),
        (
            "plan qwen2-7b-h100 --set layers=8",
            "tpsim calls this model.layers, which pipeline.layers splits over stages",
        ),
        ("plan qwen2-7b-h100 --set attention=plain", "did you mean practice.attention?"),
        ("plan qwen2-7b-h100 --set overlap=none", "did you mean practice.overlap or practice.rows.overlap?"),
        ("plan qwen2-7b-h100 --set hardware.capacity=1GB", "did you mean chip.memory.capacity or host.capacity?"),
        ("plan qwen2-7b-h100 --set hardware.link.bandwidth=1GB/s", "did you mean levels.NAME.link?"),
        ("plan qwen2-7b-h100 --set layout.matmul_efficiency=0.5", "did you mean assume.matmul_efficiency?"),
        ("plan qwen2-7b-h100 --set layout.tensor=tp", "remove it"),
        ("plan qwen2-7b-h100 --set nothing_like_it=1", "remove it"),
    ],
)
def test_a_field_at_a_wrong_place_is_answered_with_where_it_stands(tpsim, typed, remedy):
    """It was to be removed, though a flag or a deeper field is called that."""
    ran = tpsim(*typed.split())
    assert (ran.code, f"^ {remedy}" in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("field", "write"),
    [
        ("mesh=8", "{data: 8, tensor: 8}"),
        ("layout=tensor", "{tp: tensor, dp: data}"),
        ("recompute=true", "full"),
        ("practice=3", "megatron"),
        ("workload=64", "{global_batch: 64, seq: 4096}"),
        ("hardware.levels.nvlink.shape=4", "[4]"),
    ],
)
def test_a_value_of_another_sort_is_answered_with_one_that_is_taken(tpsim, field, write):
    asked = ("plan", "--model", "llama-3-8b", "--hw", "dgx-h100", "--seq", "4096", "--batch", "64", "--set")
    ran = tpsim(*asked, field)
    assert (ran.code, f"^ write {write}\n" in ran.err) == (2, True)
    assert tpsim(*asked, f"{field.partition('=')[0]}={write}", "-q").code == 0


@pytest.mark.parametrize("verb", ["plan", "search", "verify"])
@pytest.mark.parametrize("scenario", ["qwen2-7b-h100", "llama3-70b-h100-decode"])
@pytest.mark.parametrize("role", ["tp", "dp", "pp"])
def test_a_role_of_an_axis_that_the_mesh_has_not_is_answered_with_those_that_it_has(tpsim, verb, scenario, role):
    """Of pp it was a bug of tpsim: it was asked how many stages there are before whether there are such axes."""
    ran = tpsim(verb, scenario, f"--{role}", "elsewhere")
    assert ran.code == 2
    assert ran.err.startswith('error[unknown-axis]: "elsewhere" is not a mesh axis\n')
    assert "\n  = axes of this mesh: " in ran.err


def test_a_scenario_that_says_nothing_is_answered_with_lines_that_make_one(tpsim, tmp_path):
    path, lines = tmp_path / "mine.yaml", ["tpsim: scenario/1"]
    path.write_text("\n".join(lines), encoding="utf-8")
    lines += re.findall(r"\^ add (.*)", tpsim("plan", str(path)).err)
    path.write_text("\n".join(lines), encoding="utf-8")
    assert len(lines) == 5
    assert tpsim("plan", str(path), "--tp", "tensor", "--dp", "data", "-q").code == 0


@pytest.mark.parametrize("verb", ["hw show", "model show", "collective", "shard", "verify", "diff"])
def test_a_verb_without_what_it_is_about_is_answered_with_an_example_that_answers(tpsim, verb):
    example = re.search(r"for example: (tpsim .*)\n", tpsim(*verb.split()).err)[1]
    assert tpsim(*shlex.split(example)[1:], "-q").code == 0


WIDE = ("--set", "mesh={data: 16, tensor: 16}")
PLACED = {
    "a flag of a plan": (("plan", "llama3-70b-h100", *WIDE), ("--placement", "tensor={}")),
    "a field": (("plan", "llama3-70b-h100", *WIDE), ("--set", "placement.tensor={}")),
    "a map in one line": (("plan", "llama3-70b-h100", *WIDE), ("--set", "placement={{data: network, tensor: {}}}")),
    "of an expression": (("shard", "A[I_X, J]", "--mesh", "X=16", "--hw", "dgx-h100"), ("--placement", "X={}")),
    "of a collective": (("collective", "all-gather", "--hw", "dgx-h100", "--ranks", "16"), ("--level", "{}")),
}
"""Where an axis is laid on levels: what asks for one of 16, and what lays it."""


@pytest.mark.parametrize(("asked", "laid"), PLACED.values(), ids=PLACED)
def test_an_axis_is_laid_on_several_levels_by_what_the_remedy_says_wherever_that_is_written(tpsim, asked, laid):
    """A file refused what its remedy told it to write, and of an expression a comma parts axes."""
    *rest, form = laid
    refused = tpsim(*asked, *rest, form.format("nvlink"))
    assert refused.code == 2
    levels = re.search(r"(?:bind it to|write --level) (\S+), or (?:make it smaller|ask for fewer ranks)", refused.err)[
        1
    ]
    mended = tpsim(*asked, *rest, form.format(levels), "-q")
    assert (mended.code, mended.err) == (0, "")
    joined = [] if form.startswith("placement={{") else [levels.replace("+", ",")]
    for text in (*joined, f"[{levels.replace('+', ', ')}]" if rest == ["--set"] else levels):
        assert tpsim(*asked, *rest, form.format(text), "-q").out == mended.out
