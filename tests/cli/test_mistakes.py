"""A wrong command line is answered in the one shape, with a remedy, on stderr, with exit code 2."""

from __future__ import annotations

import pytest

from tpsim import VERBS

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
        "error[bad-value]: invalid value for '--batch': 'many' is not a valid integer\n  = see tpsim plan --help\n"
    ),
    ("collective", "all-gather"): (
        "error[missing-argument]: tpsim collective needs --hw\n  = see tpsim collective --help\n"
    ),
    ("shard",): "error[missing-argument]: tpsim shard needs EXPRESSION\n  = see tpsim shard --help\n",
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


def test_where_no_scenario_is_near_all_are_named_for_no_command_lists_them(tpsim):
    assert ", qwen2-7b-h100, " in tpsim("plan", "nosuch").err


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
