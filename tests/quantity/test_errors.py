"""What a user is told: the shape of an error, and the nearest name."""

from __future__ import annotations

import pytest

from tpsim.quantity import spec
from tpsim.quantity.errors import MANY, NEAR, InputError, Place, Problem, TpsimError, listed, near, suggest, unknown

TYPO = Problem(
    "unknown-field",
    '"bandwith" is not a field of a link',
    Place("my-cluster.yaml", 14, 7, "      bandwith: 45 GB/s", 8),
    'did you mean "bandwidth"?',
    "fields here: bandwidth, hop_latency",
)


def test_a_problem_shows_the_text_a_caret_and_the_remedy():
    assert str(TYPO) == (
        'error[unknown-field]: "bandwith" is not a field of a link\n'
        "  --> my-cluster.yaml:14:7\n"
        "   |\n"
        "14 |       bandwith: 45 GB/s\n"
        '   |       ^^^^^^^^ did you mean "bandwidth"?\n'
        "   = fields here: bandwidth, hop_latency"
    )


def test_a_problem_without_a_place_puts_the_remedy_on_its_own_line():
    assert str(InputError.one("unknown-machine", '"tpu" is not a machine', remedy="name one", note="known: a, b")) == (
        'error[unknown-machine]: "tpu" is not a machine\n  = name one\n  = known: a, b'
    )


def test_a_problem_of_a_whole_file_names_the_file_only():
    whole = Place("a.yaml", 0, 0, "")
    assert str(Problem("empty-file", "the file is empty", whole, "fill it")) == (
        "error[empty-file]: the file is empty\n --> a.yaml\n  = fill it"
    )


def problem(file, line):
    return Problem("bad", f"{file} {line}", Place(file, line, 1, "text"))


def test_problems_are_grouped_by_file_and_sorted_by_line():
    found = [problem("b", 9), problem("a", 2), problem("b", 3), problem("a", 1)]
    shown = [text.splitlines()[0] for text in str(InputError(found)).split("\n\n")]
    assert shown == ["error[bad]: b 3", "error[bad]: b 9", "error[bad]: a 1", "error[bad]: a 2"]


def test_five_problems_are_shown_and_the_rest_is_counted():
    text = str(InputError([problem("a", line) for line in range(1, 9)]))
    assert text.count("error[bad]") == 5
    assert text.endswith("\n\n... and 3 more")


def test_a_caret_stays_under_its_text_after_tabs_and_wide_characters():
    lines = str(Problem("bad", "x", Place("a", 1, 4, "\t深b: c", 1))).splitlines()
    assert lines[-2:] == ["1 | \t深b: c", "  | \t   ^"]


def test_a_long_line_is_cut_around_the_caret():
    text = "x" * 500 + "HERE" + "y" * 500
    lines = str(Problem("bad", "x", Place("a", 1, 501, text, 4))).splitlines()
    start = lines[-1].index("^")
    assert lines[-2][start : start + 4] == "HERE"
    assert lines[-2].startswith("1 | ... xxx")
    assert lines[-2].endswith("yyy ...")
    assert len(lines[-2]) < 140


def test_an_input_cannot_steer_the_terminal_that_shows_it():
    shown = str(Problem("bad", "a \x1b[31m", Place("f\x07", 1, 1, "b \x1b[2J", 1), "c \x00", "d \u202e"))
    assert not set(shown) & {"\x1b", "\x07", "\x00", "\u202e"}


def test_a_wrong_request_exits_with_2_and_a_bug_with_3():
    assert (InputError.exit_code, TpsimError.exit_code) == (2, 3)


FIELDS = [
    "bandwidth",
    "hop_latency",
    "launch",
    "topology",
    "shape",
    "wrap",
    "link",
    "levels",
    "steps",
    "chip",
    "peak",
    "memory",
    "capacity",
    "matmul_efficiency",
    "sources",
    "source",
    "kind",
    "value",
    "name",
    "title",
    "read",
    "hidden",
    "layers",
    "heads",
    "kv_heads",
    "head_dim",
    "ffn",
    "vocab",
    "vocab_padded",
    "norm",
    "bias",
    "qkv_bias",
    "positions",
    "parallel_residual",
    "tie_embeddings",
    "params",
    "model",
    "hardware",
    "chips",
    "mesh",
    "placement",
    "layout",
    "zero",
    "sequence_parallel",
    "practice",
    "workload",
    "global_batch",
    "seq",
    "microbatches",
    "dtype",
    "grad_dtype",
    "assume",
    "overlap",
    "require",
    "shardings",
    "cost_model",
    "planner",
]
MACHINES = ["tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "dgx-h100", "dgx-a100", "dgx-b200", "mi300x", "gb200-nvl72"]
MODELS = [
    "llama-3-8b",
    "llama-3-70b",
    "llama-3-405b",
    "llama-2-7b",
    "llama-2-13b",
    "gpt2-xl",
    "gpt3-175b",
    "gpt-neox-20b",
    "megatron-1t",
    "megatron-22b",
    "megatron-530b",
    "mistral-7b",
    "qwen2-7b",
    "gemma-7b",
]


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("Bandwidth", "bandwidth"),
        ("hop-latency", "hop_latency"),
        ("microbatch", "microbatches"),
        ("seqence_parralel", "sequence_parallel"),
        ("xyzzy", None),
        ("", None),
    ],
)
def test_a_suggestion_forgives_case_and_several_slips_but_does_not_invent(word, meant):
    assert suggest(word, FIELDS) == meant


LIBRARY = spec.names("hardware")


@pytest.mark.parametrize(
    ("word", "first", "others"),
    [
        ("h100", "dgx-h100", {"ndv5-h100", "book-h100"}),
        ("A100", "dgx-a100", {"ndv4-a100", "oci-a100", "p4d-a100"}),
        ("H200", "dgx-h200", {"ndv5-h200", "p5en-h200"}),
        ("B200", "dgx-b200", {"p6-b200"}),
        ("gb200", "gb200-nvl72", {"p6e-gb200"}),
        ("mi300", "mi300x", {"ndv5-mi300x"}),
        ("v5", "tpu-v5e", {"tpu-v5p"}),
        ("TPU", "tpu-v5e", {"tpu-v4"}),
        ("trn", "trn2", {"trn2-ultra"}),
        ("dgx_h100", "dgx-h100", set()),
        ("tpu-v5", "tpu-v5e", {"tpu-v5p"}),
    ],
)
def test_a_part_of_a_name_finds_machines_first_the_one_that_the_others_vary(word, first, others):
    with pytest.raises(InputError) as error:
        spec.find("hardware", word)
    (problem,) = error.value.problems
    assert problem.remedy == f'did you mean "{first}"?'
    shown = set(problem.note.removeprefix("also near: ").partition(";")[0].split(", "))
    assert others <= shown
    assert len(shown) < NEAR
    assert problem.note.endswith(f"{len(LIBRARY)} are known: tpsim hw list")


@pytest.mark.parametrize("kind", ["hardware", "models", "scenarios"])
def test_at_most_five_names_are_near_whatever_is_asked(kind):
    known = spec.names(kind)
    for name in known:
        for word in {name[:at] for at in range(len(name))} | {part for part in name.split("-") if part}:
            found = near(word, known)
            assert len(found) <= NEAR
            assert set(found) <= set(known)


def test_one_slip_is_nearer_than_a_part_and_a_part_nearer_than_three_slips():
    assert near("head", ["head_dim", "heads", "hidden"]) == ["heads", "head_dim"]
    assert near("h100", ["dgx-h200", "my-h100", "gh100"]) == ["gh100", "my-h100"]
    assert near("v4", ["tpu-v4", "v42", "xv4x"])[:2] == ["v42", "tpu-v4"]


def test_a_letter_or_two_inside_a_name_tell_nothing():
    assert near("e", FIELDS) == []


@pytest.mark.parametrize(("word", "name"), [("float16", "f16"), ("float32", "f32"), ("bfloat16", "bf16")])
def test_a_word_is_near_to_what_it_is_shortened_to(word, name):
    assert suggest(word, ["f64", "f32", "bf16", "f16", "fp8", "int8", "tf32"]) == name
    assert "bandwidth" not in near("an", FIELDS)


def test_a_long_list_of_names_is_never_printed_whole():
    many = [f"name-{at}" for at in range(99)]
    text = str(unknown("nothing-like-it", "machine", many, lister="tpsim hw list"))
    assert text == 'error[unknown-machine]: "nothing-like-it" is not a machine\n  = 99 are known: tpsim hw list'
    assert listed("zzz", many[:MANY]) == f"known: {', '.join(many[:MANY])}"


def test_a_name_with_its_family_left_out_is_found():
    assert suggest("h100", MACHINES) == "dgx-h100"
    assert suggest("llama3-70b", MODELS) == "llama-3-70b"
