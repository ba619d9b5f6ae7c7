"""A search that finds no layout names a change by which one fits, or does: what is said is what is found then."""

from __future__ import annotations

import re
import shlex

import pytest

import tpsim
from tpsim.answers.easing import Again
from tpsim.cli.main import run
from tpsim.quantity.errors import InputError

EASED = {
    "more chips": ("llama3-8b-v5e --chips 4 --microbatches 64", "--chips 16"),
    "microbatches of the scenario": ("llama3-405b-h100 --chips 256 --tp 2 --pp 1 --zero 3", "--vary microbatches"),
    "microbatches of a flag": ("gemma-7b-v5e --microbatches 1 --recompute none", "without --microbatches"),
    "states on the host": ("--model qwen2-7b --hw dgx-a100 --chips 1 --batch 4 --seq 1024", "--offload state"),
    "recompute of a flag": ("llama3-8b-v5e --recompute none", "without --recompute"),
    "a smaller batch": (
        "llama3-70b-h100-decode --chips 8 --batch 4096",
        "--batch largest --by tokens_per_s_chip",
    ),
    "a smaller batch than an override's": (
        "llama3-70b-h100-decode --chips 8 --set 'workload={kind: decode, batch: 4096, context: 8192}'",
        "--set workload.batch=largest --by tokens_per_s_chip",
    ),
    "a smaller batch than a field's": (
        "llama3-70b-h100-decode --chips 8 --set workload.batch=4096",
        "--set workload.batch=largest --by tokens_per_s_chip",
    ),
    "chips of inference": ("llama3-70b-h100-decode --chips 1", "--chips 4"),
    "three times as many chips doubled": (
        "--model gemma-2-27b --hw tpu-v5p --seq 32768 --chips 1 --batch 256 --recompute full --tp 1",
        "--chips 32",
    ),
    "chips that help as soon as stages are many": (
        "--model llama-3-405b --hw tpu-v5p --seq 2048 --chips 16 --batch 64 --microbatches 16 --zero 0 --tp 2",
        "--chips 16384",
    ),
}
"""What is asked of which nothing fits, and what makes it fit."""


def asked_so(asked, words):
    """The command line with the change made: flags behind others hold instead of them, one is left out."""
    given, changed = shlex.split(asked), shlex.split(words)
    if changed[0] == "without":
        at = given.index(changed[1])
        return [*given[:at], *given[at + 2 :]]
    return [*given, *changed]


@pytest.mark.parametrize(("asked", "words"), EASED.values(), ids=EASED)
def test_what_a_change_is_said_to_come_to_is_what_the_search_finds_with_it(asked, words, capsys):
    assert run(["search", *shlex.split(asked), "-q"]) == 1
    verdict = capsys.readouterr().out.splitlines()
    assert verdict[0].startswith("best    no layout fits: least peak ")
    change, layout, took, peak = re.fullmatch(r"change  (.*?): (tp .*?): (.*?), peak (.*?) of .*", verdict[1]).groups()
    assert change == words
    assert run(["search", *asked_so(asked, words), "-q"]) == 0
    best = capsys.readouterr().out
    assert re.match(r"best +" + re.escape(layout) + ": ", best)
    assert took in best
    assert f"peak {peak} of " in best


def test_what_fits_then_and_takes_longer_than_is_required_is_said_to():
    found = tpsim.search("llama3-70b-h100", chips=8)
    assert found.lines[1].text.startswith("--chips 32: none of those that fit meets require step < 30 s, each takes ")


LATE = ("llama3-70b-h100-decode", "--chips", "8", "--set", "require.ttft=< 1 s")


@pytest.mark.parametrize("batch", [[], ["--batch", "largest", "--by", "tokens_per_s_chip"]])
def test_a_smaller_batch_is_named_where_none_that_fits_meets_what_is_required_of_inference(batch, capsys):
    asked = ["search", *LATE, *batch]
    assert run(asked) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[-3].startswith("best    none of those that fit meets require ttft < 1 s: ")
    smaller, layout, took = re.fullmatch(r"change  --batch (\d+): (tp .*?): (.*?), peak .*", printed[-2]).groups()
    assert run(["search", *LATE, *batch, "--batch", smaller, "-q"]) == 0
    assert re.match(r"best +" + re.escape(f"{layout}: {took}; "), capsys.readouterr().out)
    assert run(["search", *LATE, *batch, "--batch", str(2 * int(smaller) + 1), "-q"]) == 1
    assert shlex.split(printed[-1])[3:] == [*LATE[:3], "--batch", smaller, *LATE[3:], *batch[2:], *TO_SAVE]


@pytest.mark.parametrize(("limit", "batch"), [("12.9 ms", 32), ("12.3 ms", 32), ("12.25 ms", 32), ("11.4 ms", 2)])
def test_the_batch_that_is_named_is_the_first_half_by_which_any_mesh_does(limit, batch):
    """At 512 tp 8 x dp 2 is the fastest mesh, from 32 on tp 16: 12.24 ms a step."""
    asked = {"chips": 16, "overrides": [f"require.tpot=< {limit}"]}
    found = tpsim.search("llama3-70b-h100-decode", batch=512, **asked)
    assert found.lines[1].text.startswith(f"--batch {batch}: tp 16, dp 1, ")
    assert tpsim.search("llama3-70b-h100-decode", batch=2 * batch, **asked).best is None


def test_batches_that_are_varied_are_not_asked_for_otherwise():
    asked = {"chips": 8, "by": "tokens_per_s_chip", "overrides": ["require.ttft=< 900 ms"]}
    found = tpsim.search("llama3-70b-h100-decode", vary=["batch=largest,32"], **asked)
    assert (found.fitting > 0, found.best) == (True, None)
    assert found.lines[1].text.startswith("--chips 16: workload.batch 32, ")


TO_SAVE = ["--top", "1", "--save", "best.yaml"]


def test_the_next_command_is_the_one_by_which_a_layout_fits(capsys):
    assert run(["search", "llama3-70b-h100-decode", "--chips", "1"]) == 1
    told = capsys.readouterr().out.splitlines()[-1]
    assert shlex.split(told) == ["next:", "tpsim", "search", "llama3-70b-h100-decode", "--chips", "4", *TO_SAVE]


def test_where_no_layout_is_legal_or_none_meets_what_is_required_nothing_is_searched_again():
    assert len(tpsim.search("llama3-70b-h100", chips=7, vary=["layers=even"]).lines) == 1
    slow = tpsim.search("gpt2-xl-a100-dp", chips=8, overrides=["require.step=< 1 ms"], zero=1)
    assert (slow.fitting > 0, len(slow.lines)) == (True, 1)


def test_where_nothing_that_is_tried_helps_nothing_is_said():
    """The mesh is one chip by a flag, and weights alone are more than it holds."""
    found = tpsim.search("llama3-8b-v5e", mesh="data=1", dp="data", zero=0)
    assert (found.fitting, len(found.lines)) == (0, 1)


def test_chips_are_not_doubled_on_where_no_layout_is_legal_any_more(monkeypatch):
    """On 64 the batch has too few sequences for 16 microbatches on 32 data shards; ZeRO 1 leaves weights whole."""
    asked, found = [], Again._found
    monkeypatch.setattr(
        Again, "_found", lambda self, vary, changed: asked.append(changed) or found(self, vary, changed)
    )
    held = {"zero": 1, "tp": 1, "pp": 2, "microbatches": 16}
    search = tpsim.search(model="gemma-2-27b", hw="dgx-a100", seq=2048, chips=2, batch=256, **held)
    assert (search.fitting, len(search.lines)) == (0, 1)
    assert [changed["chips"] for changed in asked if "chips" in changed] == [16, 32, 64]


def test_a_sweep_searches_no_cell_again(tmp_path, monkeypatch):
    def never(*_):
        raise AssertionError

    monkeypatch.setattr("tpsim.answers.easing.Again.eased", never)
    swept = tpsim.sweep("llama3-8b-v5e", folder=tmp_path, chips=4, vary=["microbatches=64"])
    assert "no layout fits" in str(swept.to_json())
    with pytest.raises(AssertionError):
        assert tpsim.search("llama3-8b-v5e", chips=4, vary=["microbatches=64"]).verdict


@pytest.mark.parametrize(
    ("work", "kept"),
    [
        (["workload={kind: decode, batch: 128, context: 8192}"], 1),
        (["workload={kind: decode, batch: 128, context: 8192}", "workload.batch=64"], 1),
        (["workload.kind=decode", "workload.context=8192", "workload.batch=128"], 2),
    ],
)
def test_a_batch_that_an_override_states_is_made_smaller_by_an_override(work, kept):
    """A flag says nothing beside it: only more chips were found, four times as many where a smaller batch would do."""
    asked = {"model": "llama-3-70b", "hw": "dgx-h100", "chips": 8}
    found = tpsim.search(**asked, overrides=[*work, "require.tpot=< 20 ms"])
    words, eased = found.eased
    assert words == "--set workload.batch=32"
    assert eased.best.batch == 32
    sets = [word for word in shlex.split(found.to_ease) if word.startswith("workload")]
    assert sets == [*work[:kept], "workload.batch=32"]


def test_a_change_that_cannot_be_asked_is_passed_over():
    with pytest.raises(InputError):
        tpsim.search("llama3-8b-v5e", vary=["recompute"], recompute="none")
    assert tpsim.search("llama3-8b-v5e", recompute="none").lines[1].text.startswith("without --recompute: ")


def test_a_demand_that_nothing_meets_is_asked_of_the_fastest_mesh_and_of_one_sequence_on_all():
    found = tpsim.search("llama3-70b-h100-decode", chips=8, overrides=["require.tpot=< 1 us"])
    asked = []

    def again(*, vary, **flags):
        asked.append((vary, flags))
        return found

    assert Again(again, [], {"chips": 8}).eased(found) is None
    assert [flags for _, flags in asked] == [
        *({"chips": 8, "batch": batch} for batch in (16, 8, 4, 2, 1)),
        *({"chips": chips} for chips in (16, 32)),
    ]
    assert {tuple(vary) for vary, flags in asked if flags.get("batch") != 1} == {("tp=8", "pp=1")}
    assert [vary for vary, flags in asked if flags.get("batch") == 1] == [[]]


def test_what_helps_nothing_on_the_mesh_that_holds_least_is_not_searched_on_all():
    found = tpsim.search("llama3-70b-h100", chips=16, vary=["recompute=none"], zero=1)
    asked = []

    def again(*, vary, **_):
        asked.append(list(vary))
        return found

    assert Again(again, ["recompute=none"], {"zero": 1}).eased(found) is None
    one_mesh, *more = asked
    assert {text.partition("=")[0] for text in one_mesh} == {"recompute", "microbatches", "tp", "cp", "pp"}
    assert more  # without --zero, and more chips
    assert ["recompute=none", "microbatches"] not in asked


def test_what_changes_no_states_is_not_freed_where_these_alone_are_too_much():
    found, asked = tpsim.search("llama3-70b-h100", chips=8), []

    def again(*, vary, **flags):
        asked.append((list(vary), flags))
        return found

    assert Again(again, [], {}).eased(found) is None
    assert not found.smallest.plan.memory.states_fit
    assert {(*vary, *flags) for vary, flags in asked} == {("chips",)}
    assert tpsim.search("llama3-70b-h100", chips=8, vary=["microbatches", "recompute"]).fitting == 0
    assert tpsim.search("llama3-70b-h100", chips=8, offload="state").fitting == 0
