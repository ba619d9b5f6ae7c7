"""`tpsim explain`: the formula, the values, the reasons and the sources of printed numbers."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest
import sympy

from tpsim.answers.derivation import CHECKS
from tpsim.answers.explain import explain, explain_list
from tpsim.answers.plan import plan

ROOT = Path(__file__).parents[2]


@cache
def result(scenario):
    """What the plan of a scenario says as plain data."""
    return plan(scenario).to_json()["result"]


def test_a_collective_is_explained_without_a_scenario(tpsim):
    assert tpsim("explain", "all-gather").out == (
        "all-gather\n"
        "\n"
        "wire bytes of one all_gather: what one device must inject, whatever algorithm runs\n"
        " formula     V*(n - 1)/n\n"
        " source      How to Scale Your Model, chapter 3, with the finite factor\n"
        " checked by  tests/algebra/test_moves.py, tests/machine/test_algorithms.py\n"
        "\n"
        "symbol  value  meaning\n"
        "V              bytes of the whole array taking part\n"
        "n              devices on the axis\n"
        "\n"
        "wire bytes of one all_gather: what one device must inject, whatever algorithm runs = V*(n - 1)/n\n"
        "next: tpsim collective all-gather --hw dgx-h100 --ranks 8\n"
    )


@pytest.mark.parametrize(
    ("forced", "because"),
    [
        ((), ["chosen: of what is on offer the library counts least for this way"] * 2),
        (("--algorithm", "direct"), ["forced: direct; of what is then on offer this way takes least"] * 2),
        (
            ("--protocol", "ll128"),
            ["forced: ll128; of what is then on offer the library counts least for this way"] * 2,
        ),
        (("--algorithm", "ring", "--protocol", "ll"), ["forced: ring with ll"] * 2),
        (("--set", "cost_model=book"), []),
    ],
)
def test_a_time_says_why_its_algorithm_and_protocol_were_taken(forced, because, tpsim):
    forced = ("--set", "practice.clip=none", *forced)  # no sums but those of activations
    out = json.loads(tpsim("explain", "all_reduce", "gpt3-175b-a100-tp8", "-f", "json", *forced).out)
    times = [
        one for one in out["result"]["derivations"] if one["what"].startswith("time of one all_reduce over tensor")
    ]
    assert [line for one in times for line in one["because"] if "calls per step" not in line] == because


def test_without_a_count_of_the_library_a_time_is_said_to_be_the_least(tpsim):
    out = tpsim("explain", "all_gather", "llama3-8b-v5e").out
    assert "calls per step\n             chosen: of what is on offer this way takes least\n" in out


def test_latex_is_printed_when_asked(tpsim):
    assert r"\frac{V \left(n - 1\right)}{n}" in tpsim("explain", "all-gather", "--latex").out


def test_the_formula_of_tensor_parallelism_is_the_quoted_one(tpsim):
    out = tpsim("explain", "per_layer.payload", "gpt3-175b-a100-tp8").out
    assert " formula     8*b*h*s\n" in out
    assert "4 calls: all_reduce of " in out


def test_a_constant_is_explained_by_its_source(tpsim):
    out = tpsim("explain", "tpu-v5e.levels.ici.link.bandwidth").out
    assert " value       45 GB/s\n" in out
    assert "stated: How to Scale Your Model" in out


def test_a_name_that_is_not_known_is_answered_with_the_nearest(tpsim):
    ran = tpsim("explain", "per_layer.wires", "llama3-70b-h100")
    assert ran.code == 2
    assert 'error[unknown-name]: "per_layer.wires" is not a number of llama3-70b-h100\n' in ran.err
    assert '  = did you mean "per_layer.wire"?\n' in ran.err


@pytest.mark.parametrize(
    ("line", "number"),
    [("time", "step.time_s"), ("memory", "memory.peak"), ("band", "step.band"), ("change", "step.time_s")],
)
def test_a_line_of_a_plan_is_told_from_a_number_and_points_at_one(tpsim, line, number):
    ran = tpsim("explain", line, "llama3-70b-h100")
    assert ran.code == 2
    assert f'error[unknown-name]: "{line}" is a line of a plan and not a number of llama3-70b-h100: ' in ran.err
    assert ran.err.endswith(f"  = ask for the number behind it: tpsim explain {number} llama3-70b-h100\n")
    assert tpsim("explain", number, "llama3-70b-h100").code == 0
    assert f"\n{line} " in tpsim("plan", "llama3-70b-h100").out


def test_a_line_that_a_plan_has_not_is_not_pointed_at(tpsim):
    ran = tpsim("explain", "band", "llama3-70b-h100-decode")
    assert ran.code == 2
    assert ran.err.endswith(": where 8 of 10 published runs like it lie\n  = this plan has no such line\n")


@pytest.mark.parametrize(
    ("word", "number", "scenario"),
    [
        ("states", "memory.static", "llama3-70b-h100"),
        ("working", "memory.peak", "llama3-70b-h100"),
        ("weights", "memory.parameters", "llama3-70b-h100-decode"),
    ],
)
def test_a_word_of_the_verdict_points_at_the_number_behind_it(tpsim, word, number, scenario):
    ran = tpsim("explain", word, scenario)
    assert (ran.code, f"; {word} " in tpsim("plan", scenario).out.replace("(", "; ").replace(", ", "; ")) == (2, True)
    assert ran.err.endswith(f"  = ask for the number behind it: tpsim explain {number} {scenario}\n")
    assert tpsim("explain", number, scenario).code == 0
    assert f"tpsim explain {number} llama3-70b-h100\n" in tpsim("explain", word).err


@pytest.mark.parametrize("scenario", ["llama3-405b-h100-pipeline", "llama3-70b-h100-decode"])
def test_what_a_plan_prints_of_memory_and_of_the_step_is_explained_by_its_value(scenario):
    """An overhead, what is at work, what is kept in all, the update and the host were unknown, or were of one layer."""
    overrides = ["assume.memory={workspace: 2 GB, fragmentation: 0.1}"]
    planned = plan(scenario, overrides=overrides)
    parts = ["static", "working", "overhead", "peak", *([] if planned.serve else ["kept"])]
    told = {f"memory.{part}_bytes": getattr(planned.memory, f"{part}_bytes") for part in parts}
    told |= {f"step.{name}": getattr(planned.step, name) for name in ("update_s", "host_s", "bubble_s")}
    for name, value in told.items():
        first = explain(name, scenario, overrides=overrides).derivations[0]
        assert first.value == pytest.approx(float(value), rel=1e-9), name


@pytest.mark.parametrize("part", ["parameters", "gradients", "optimizer"])
def test_explained_memory_is_the_memory_of_the_plan(tpsim, part):
    explained = json.loads(tpsim("explain", f"memory.{part}", "llama3-70b-h100", "-f", "json").out)
    planned = result("llama3-70b-h100")["memory"][f"{part}_bytes"]
    assert explained["result"]["derivations"][0]["value"] == planned


@pytest.mark.parametrize("phase", ["forward", "backward", "total"])
@pytest.mark.parametrize("scenario", ["llama3-70b-h100", "llama3-70b-kv-replication", "llama3-8b-v5e"])
def test_every_formula_of_a_layer_comes_to_its_value(phase, scenario):
    for one in explain(f"per_layer.{phase}.wire", scenario).derivations:
        assert evaluated(one) == one.value
        assert result(scenario)["per_layer"][phase]["wire_bytes_per_device"] == one.value


def test_every_row_of_a_plan_can_be_explained_by_its_formula():
    for kind in ("all_gather", "reduce_scatter", "all_reduce"):
        for one in explain(kind, "llama3-70b-kv-replication").derivations:
            if one.expression is not None:
                assert float(evaluated(one)) == one.value


def evaluated(derivation):
    """The expression at the values of its symbols, exactly."""
    expression = sympy.sympify(derivation.expression)
    return expression.subs({free: derivation.symbols[str(free)] for free in expression.free_symbols})


def test_every_check_that_is_named_exists():
    files = [check for checks in CHECKS.values() for check in checks if check.startswith("tests/")]
    assert [file for file in files if not (ROOT / file).is_file()] == []
    assert files


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("mfu", "mfu"),
        ("step.mfu", "mfu"),
        ("tokens_per_s", "tokens_per_s"),
        ("breakeven", "breakeven_tokens_per_chip"),
        ("result.step.breakeven_tokens_per_chip", "breakeven_tokens_per_chip"),
    ],
)
@pytest.mark.parametrize("scenario", ["llama3-70b-h100", "llama3-8b-v5e"])
def test_what_the_verdict_says_beside_seconds_is_explained(scenario, name, key):
    (found,) = explain(name, scenario).derivations
    assert found.value == result(scenario)["step"][key]
    assert found.text


def names(ran):
    assert ran.code == 0, ran.err
    return [one["name"] for one in json.loads(ran.out)["result"]["names"]]


def one_of_a_kind(listed):
    """Of constants, which one function explains, those that are first to bear their last word."""
    return {name if name.count(".") < 2 else name.rpartition(".")[2]: name for name in reversed(listed)}.values()


def test_without_a_name_everything_that_can_be_explained_is_listed(tpsim):
    ran = tpsim("explain")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[:3] == [
        "name                         what",
        "collectives",
        " all_gather                  wire bytes of one all_gather",
    ]
    assert lines[-1] == "next: tpsim explain step.time_s llama3-70b-h100"
    listed = names(tpsim("explain", "-f", "json"))
    assert {"permute", "per_layer.forward.wire", "memory.static", "step.mfu", "mfu", "tpu-v5e"} - {*listed} == {
        "step.mfu"
    }


def test_every_name_that_is_listed_without_a_scenario_is_explained(tpsim, monkeypatch):
    listed = json.loads(tpsim("explain", "-f", "json").out)["result"]["names"]
    assert {one["of"] for one in listed} == {"collectives", "every scenario", "machines"}
    monkeypatch.setattr("tpsim.answers.plan.plan", cache(plan))
    for one in listed:
        assert explain(one["name"], "gpt2-xl-a100-dp" if one["of"] == "every scenario" else None).derivations


@pytest.mark.parametrize(
    "asked",
    [("gpt2-xl-a100-dp",), ("--model", "gpt-tiny", "--hw", "tpu-v5e", "--tp", "2", "--seq", "16")],
    ids=" ".join,
)
def test_a_scenario_alone_lists_its_own_names_each_of_which_is_explained(tpsim, asked, monkeypatch):
    listed = names(tpsim("explain", *asked, "-f", "json"))
    assert {"all_reduce", "step.time_s", "per_layer.wire", "chip.memory.capacity"} <= {*listed}
    following = tpsim("explain", *asked).out.splitlines()[-1]
    assert following == f"next: tpsim explain step.time_s {' '.join(asked)}"
    scenario, flags = (asked[0], {}) if len(asked) == 1 else (None, {"model": "gpt-tiny", "hw": "tpu-v5e", "tp": 2})
    monkeypatch.setattr("tpsim.answers.plan.plan", cache(plan))
    for name in one_of_a_kind(listed):
        assert explain(name, scenario, **flags, **({} if scenario else {"seq": 16})).derivations


def test_a_wrong_name_is_answered_with_what_names_of_a_scenario_begin_with_unless_one_is_near(tpsim):
    said = tpsim("explain", "zzzzzzzzzz", "llama3-70b-h100", "--tp", "4").err
    for head in ("all_gather", "mlp.*", "mlp", "memory.*", "mfu", "breakeven"):
        assert f" {head}, " in said
    assert said.endswith("; tpsim explain llama3-70b-h100 --tp 4 lists all\n")
    assert "known: " not in tpsim("explain", "per_layer.wires", "llama3-70b-h100").err


def test_a_wrong_name_without_a_scenario_is_answered_in_a_few_words_and_the_machine_that_others_vary(tpsim):
    said = tpsim("explain", "foo").err.splitlines()
    assert said[1].startswith("  = known: all_gather, reduce_scatter, ")
    assert said[1].endswith(" machines and their constants, with a scenario its numbers; tpsim explain lists all")
    assert len(said[1]) < 250
    near = tpsim("explain", "h100").err
    assert 'did you mean "dgx-h100"?\n  = also near: a3high-h100, ' in near
    assert tpsim("explain", "llama-3-8b").err.endswith("= write: tpsim model show llama-3-8b\n")
    assert "known: chip.*, levels.*, host.*; tpsim hw show dgx-h100 lists all\n" in tpsim("explain", "dgx-h100.foo").err


def test_a_scenario_before_the_name_is_answered_with_their_order(tpsim):
    said = tpsim("explain", "qwen2-7b-h100", "mfu").err
    assert said.endswith("= write: tpsim explain mfu qwen2-7b-h100\n")
    assert tpsim("explain", "mfu", "qwen2-7b-h100").code == 0


MINE = """\
tpsim: hardware/1
name: my-cluster
extends: dgx-h100
chip: {memory: {capacity: 141 GB}}
"""


@pytest.mark.parametrize(
    "asked",
    [
        ("mine.yaml.chip.memory.capacity",),
        ("./mine.yaml.chip.memory.capacity",),
        ("chip.memory.capacity", "--hw", "mine.yaml"),
        ("my-cluster.chip.memory.capacity", "--hw", "./mine.yaml"),
    ],
    ids=" ".join,
)
def test_a_constant_of_a_machine_in_a_file_is_explained(tpsim, tmp_path, monkeypatch, asked):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(MINE)
    ran = tpsim("explain", *asked)
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[-2:] == ["my-cluster.chip.memory.capacity = 141 GB", "next: tpsim hw show mine.yaml"]


def test_a_machine_in_a_file_is_explained_as_a_whole(tpsim, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(MINE)
    whole = tpsim("explain", "mine.yaml", "-f", "json")
    shown = json.loads(tpsim("hw", "show", "mine.yaml", "-f", "json").out)["result"]["constants"]
    explained = json.loads(whole.out)["result"]["derivations"]
    assert [one["what"] for one in explained] == [f"my-cluster.{one['constant']}" for one in shown]
    assert tpsim("explain", "--hw", "mine.yaml", "-f", "json").out == whole.out
    wrong = tpsim("explain", "mine.yaml.chip.memry.capacity")
    assert wrong.err == (
        'error[unknown-name]: "chip.memry.capacity" is not a constant of mine.yaml\n'
        '  = did you mean "chip.memory.capacity"?\n'
    )
    assert "error[no-such-file]: there is no file none.yaml\n" in tpsim("explain", "none.yaml").err


def test_an_edit_without_a_scenario_is_not_ignored(tpsim):
    ran = tpsim("explain", "all-gather", "--set", "layout.zero=3")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error[missing-flag]: --model is needed without a scenario\n")


def test_a_number_of_a_plan_without_a_scenario_asks_for_one(tpsim):
    assert 'error[missing-scenario]: "mfu" is a number of a plan' in tpsim("explain", "mfu").err


def test_the_peak_is_explained_with_its_action_and_its_parts(tpsim):
    (one,) = json.loads(tpsim("explain", "memory.peak", "llama3-70b-h100", "-f", "json").out)["result"]["derivations"]
    assert one["what"] == "bytes on one chip where they are most, in forward (F) of microbatch 0"
    assert one["formula"].startswith("states 56.23 GB + kept ")
    held = json.loads(tpsim("plan", "llama3-70b-h100", "-f", "json").out)["result"]["memory"]
    assert one["value"] == held["peak_bytes"]


def test_what_is_kept_is_explained_array_by_array_in_symbols(tpsim):
    explained = json.loads(tpsim("explain", "memory.kept", "megatron-22b-a100", "-f", "json").out)["result"]
    whole, forward, backward, around = explained["derivations"]
    assert whole["value"] == result("megatron-22b-a100")["memory"]["kept_bytes"]
    assert forward["what"] == "bytes that one microbatch keeps of one layer from forward to backward"
    assert any(
        one == "mlp.act[b_{data}, s, f_{tensor}] bf16: F of mlp to W, d.W2, 50.33 MB" for one in forward["because"]
    )
    assert any(one.startswith("d.mlp.up") for one in backward["because"])
    assert any(one.startswith("tokens") for one in around["because"])
    assert {"b", "h", "s", "t"} <= set(forward["symbols"])


@pytest.mark.parametrize("scenario", ["gpt3-175b-a100-pipeline", "llama3-70b-h100"])
def test_the_step_its_bubble_and_its_memory_are_explained_by_their_short_names(tpsim, scenario):
    step, listed = result(scenario)["step"], tpsim("explain", scenario).out
    values = {"pipeline.bubble": step["bubble_s"], "step": step["time_s"]}
    for name in ("pipeline.bubble", "memory.peak", "memory.kept", "step"):
        found = explain(name, scenario).derivations[0]
        assert found.value == values.get(name, found.value) >= 0
        assert name in listed


def test_the_bubble_is_explained_with_its_schedule_and_what_every_stage_waits(tpsim):
    out = tpsim("explain", "pipeline.bubble", "gpt3-175b-a100-pipeline").out
    assert " 1f1b; the step hangs on " in out
    assert " stages wait: 0 3.333" in out
    assert ", 1-10 3.128 s" in out


PARTS_OF_SECONDS = re.compile(r"(?:^|([+-]) )(?:[a-z ]*?)([0-9][0-9.,]*) ([mun]?s)\b")
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


@pytest.mark.parametrize(
    ("kind", "scenario", "hidden"),
    [
        ("all_gather", "gemma-7b-v5e", True),
        ("all_to_all", "deepseek-v3-h100-decode", True),
        ("all_reduce", "gpt2-xl-a100-dp", False),
    ],
)
def test_the_parts_of_a_calls_seconds_add_up_to_them(kind, scenario, hidden):
    told = [derived for derived in explain(kind, scenario).derivations if derived.dimension == "seconds"]
    assert told
    assert any(" - " in derived.text for derived in told) == hidden
    for derived in told:
        parts = PARTS_OF_SECONDS.findall(derived.text)
        added = sum((-1 if sign == "-" else 1) * float(n.replace(",", "")) * UNITS[unit] for sign, n, unit in parts)
        assert added == pytest.approx(derived.value, rel=2e-3)


@pytest.mark.parametrize("name", ["communication_s", "exposed_s"])
@pytest.mark.parametrize("scenario", ["gpt3-175b-a100-pipeline", "llama3-70b-h100", "llama3-70b-h100-decode"])
def test_what_communication_takes_is_the_sum_of_its_kinds(scenario, name):
    (told,) = explain(f"step.{name}", scenario).derivations
    kinds = [part.rpartition(" over ") for part in told.text.split(" + ")]
    seconds = [float(last.split()[-2]) * UNITS[last.split()[-1]] for _, _, last in kinds]
    assert seconds == sorted(seconds, reverse=True)
    assert sum(seconds) == pytest.approx(told.value, rel=2e-3)
    assert told.value == result(scenario)["step"][name]


def test_pauses_between_kernels_have_their_source_beside_an_assumed_efficiency():
    (told, _) = explain("step.compute_s", "llama3-405b-h100-pipeline").derivations
    assert "assume.matmul_efficiency 0.5 (the scenario)" in told.sources
    assert "chip.kernel_pause 2 us (guess)" in told.sources


def test_by_the_book_a_calls_seconds_are_the_longer_of_two():
    told = [derived.text for derived in explain("all_gather", "gemma-7b-v5e", cost_model="book").derivations]
    assert "the longer of latency 8 us and bandwidth 1.092 ms" in told


def test_a_scenario_of_inference_lists_no_numbers_of_training():
    trained = {"per_layer.backward.wire", "memory.gradients", "memory.optimizer", "memory.kept", "breakeven"}
    assert not trained & {name.name for name in explain_list("llama3-70b-h100-decode").names}
    assert trained <= {name.name for name in explain_list("llama3-70b-h100").names}
