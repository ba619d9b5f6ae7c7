"""The lock as a file: what is written is read again, and what cannot be trusted is refused with its line."""

from __future__ import annotations

import shlex
from fractions import Fraction
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.guarded import NODE, lock, with_fact
from tpsim.algebra.moves import WIRE
from tpsim.answers.plan import plan, priced
from tpsim.cli.main import run
from tpsim.guard.check import CheckResult, check
from tpsim.guard.drift import drift
from tpsim.guard.drift_result import values
from tpsim.guard.formulas import form_formulas, move_formulas, program_formulas, sizes
from tpsim.guard.lock import lock_text, read_lock
from tpsim.guard.lock_of_plans import asked_facts
from tpsim.guard.lock_of_result import recorded
from tpsim.guard.lock_parts import CallName
from tpsim.pages.drift import check_page
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError
from tpsim.quantity.size import over
from tpsim.question.memo import Memo, lowered
from tpsim.question.scenario import resolve

ROOT = Path(__file__).parents[2]


@pytest.fixture
def written(tmp_path):
    file = tmp_path / "tpsim.lock"
    file.write_text(lock_text(lock()), encoding="utf-8")
    return file


def refused(file, old, new):
    """What is said of the lock with one text replaced by another."""
    before = file.read_text(encoding="utf-8")
    assert old in before
    file.write_text(before.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_lock(file)
    return error.value.problems[0]


def line(file, text):
    """The number of the first line that has a text."""
    return next(at for at, one in enumerate(file.read_text(encoding="utf-8").splitlines(), 1) if text in one)


def test_what_is_written_is_what_is_read(written):
    read, made = read_lock(written), lock()
    assert lock_text(read) == written.read_text(encoding="utf-8")
    assert (read.facts, read.uses, read.scenarios.keys()) == (made.facts, made.uses, made.scenarios.keys())
    for name, one in made.scenarios.items():
        assert (read.scenarios[name].calls, read.scenarios[name].results) == (one.calls, one.results)
        assert (read.scenarios[name].asked, read.scenarios[name].uses) == (one.asked, one.uses)


def test_the_file_is_sorted_with_one_fact_in_a_line(written):
    text = written.read_text(encoding="utf-8")
    body = text.split("\n  hardware/node:\n")[1].split("\n  hardware/pod:\n")[0].splitlines()
    assert body == sorted(body)
    assert len(body) == len(lock().constants["hardware/node"]) > 20
    calls = sum(len(one.collectives) for one in lock().scenarios.values())
    assert sum(one.startswith("      - {phase: ") for one in text.splitlines()) == calls > 30


def test_repositories_own_lock_is_as_check_would_write_it(monkeypatch):
    monkeypatch.chdir(ROOT)
    result = check(update=True)
    assert not result.drift, f"run tpsim check --update if this is meant: {result.summary}"
    assert result.text == (ROOT / "tpsim.lock").read_text(encoding="utf-8"), "nothing moved: run tpsim check --update"


def test_every_shipped_scenario_is_held_by_the_repositories_own_lock():
    held = read_lock(ROOT / "tpsim.lock").scenarios
    assert sorted(held) == [f"scenarios/{name}" for name in spec.names("scenarios")]


def test_a_lock_of_a_newer_tpsim_is_refused_with_its_line(written):
    problem = refused(written, "version: ", 'version: "99.0.0" # ')
    assert problem.slug == "newer-version"
    assert problem.place.line == line(written, "version: ")
    assert problem.remedy.startswith("update tpsim, or delete it and write it anew: tpsim check --update ")


@pytest.mark.parametrize(("old", "new"), [("version: ", 'version: "99.0.0" # '), ("uses: [", "uses: [u0000000, ")])
def test_what_a_lock_that_cannot_be_compared_is_told_writes_it_anew(tmp_path, monkeypatch, old, new):
    """It was told `tpsim check --update`, which refuses such a lock in the same words."""
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(
        "tpsim: scenario/1\nmodel: gpt-tiny\nhardware: dgx-h100\nmesh: {data: 2}\n"
        "layout: {dp: data}\nworkload: {global_batch: 2, seq: 16}\n",
        encoding="utf-8",
    )
    assert run(["check", "--update", "mine.yaml", "--lock", "my.lock", "-q"]) == 0
    remedy = refused(Path("my.lock"), old, new).remedy
    words = shlex.split(remedy.partition("delete it and write it anew: ")[2])
    assert run(words[1:]) == 2
    Path("my.lock").unlink()
    assert run(words[1:]) == 0
    assert list(read_lock("my.lock").scenarios) == ["mine"]


def test_a_newer_format_is_refused_with_its_line(written):
    problem = refused(written, "tpsim: lock/2", "tpsim: lock/3")
    assert (problem.slug, problem.place.line) == ("newer-version", line(written, "tpsim: lock/3"))


def test_an_older_format_is_refused_with_its_line_and_the_remedy(written):
    problem = refused(written, "tpsim: lock/2", "tpsim: lock/1")
    assert (problem.slug, problem.place.line) == ("older-lock", line(written, "tpsim: lock/1"))
    assert problem.message == "this is a lock/1, which does not say what its numbers are made with as lock/2 does"
    assert problem.remedy == f"write it again: tpsim check --update --lock {written}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (", calls: ", ", cals: "),
        (", messages: ", ", messages: much, was: "),
        ("place: layers", "place: somewhere"),
        ("levels: [[inside, ", "levels: [[inside, inside, "),
        ("uses: [", "uses: [u0000000, "),
        ("uses:\n  u", "uses:\n  u0000000: [hardware/node.chip.nothing]\n  u"),
        ("tolerance: 1e-09", "tolerance: -1"),
        ("tolerance: 1e-09", "tolerance: much"),
        ("tolerance: 1e-09", "tolerance: .nan"),
        ("\nswitches:", "\n<<<<<<< ours\nswitches:"),
        ("\nswitches:", "\nswiches:"),
        (", kind: stated", ", kid: stated"),
        ("    cost_model: additive\n", "    cost_model: additive\n    cost_model: book\n"),
        ("samples: [", "samples: [1, "),
        ("step_s: {value: ", "step_s: {value: much, was: "),
    ],
)
def test_a_lock_damaged_by_hand_is_refused_with_the_line(written, old, new):
    problem = refused(written, old, new)
    assert problem.place.file == str(written)
    assert problem.place.line > 0


def test_the_line_of_a_damaged_collective_is_the_one_that_is_shown(written):
    problem = refused(written, ", messages: ", ", mesages: ")
    assert problem.place.line == line(written, "mesages")
    assert problem.message == '"mesages" is not a field of a collective of a lock'


def test_a_number_that_names_what_the_lock_does_not_hold_is_refused_at_the_name(written):
    problem = refused(written, "uses: [", "uses: [u0000000, ")
    assert (problem.slug, problem.place.line) == ("unknown-fact", line(written, "u0000000"))
    assert problem.message == "u0000000 is made with here, and this lock does not hold it"


def test_the_name_of_a_collective_says_what_tells_it_from_others():
    one = CallName("forward", "layers", "all_gather", "data,tensor", "W1")
    assert (str(one), one.over) == ("forward layers all_gather data,tensor W1", "all_gather over data,tensor")
    assert str(one._replace(again=2)) == "forward layers all_gather data,tensor W1 #2"


# Formulas -----------------------------------------------------------------------------------------------------------


def samples(formulas):
    return {name: one.samples() for name, one in formulas}


def named(family, formulas):
    return {f"{family}.{name}": one for name, one in formulas}.items()


def test_samples_are_exact_numbers():
    found = samples([*named("wire", move_formulas()), *named("form", form_formulas())])
    assert all(Fraction(one) >= 0 for values in found.values() for one in values)
    assert len(found) > 30


def test_a_rewritten_formula_has_the_samples_of_the_old_one():
    before = samples(move_formulas())
    with patch.dict(WIRE, all_gather=lambda V, n: over(V * n - V, n)):
        assert samples(move_formulas()) == before
    with patch.dict(WIRE, all_gather=lambda V, n: over(V * n - V, n) + 1):
        assert samples(move_formulas()) != before


def test_a_text_says_the_formula_in_symbols():
    texts = {name: one.text() for name, one in [*move_formulas(), *form_formulas()] if "all_reduce" in name}
    assert texts["all_reduce"] == "2*V*(n - 1)/n"
    assert texts["switch.all_reduce.in-switch"].startswith("2; V*(n + 1)/n;")


def test_a_program_is_sampled_at_sizes_that_its_axes_divide():
    program = lowered(resolve("llama3-70b-h100"))
    found = sizes(program.program, 0)
    dims = {dim for op in program.program.ops for dim in op.output.dims}
    assert all(found.dims[dim] % (found.axes["data"] * found.axes["tensor"]) == 0 for dim in dims)
    texts = {name: one.text() for name, one in program_formulas(program) if "forward.all_gather" in name}
    assert texts == {"forward.all_gather.tensor": "2*b*h*m*s*(2*L + 1)/data"}


# What scenarios share -------------------------------------------------------------------------------------------------


ALIKE = (
    "gpt3-175b-a100-tp8-sp",
    "megatron-22b-a100",
    "llama3-405b-h100-pipeline",
    "llama3-70b-h100-zb-h1",
    "gemma-7b-v5e",
)
"""Two and two are of one structure."""


@pytest.mark.usefixtures("anew")
def test_plans_from_one_shelf_are_the_plans_of_each_alone():
    memo = Memo()
    for name in ALIKE:
        shared = priced(resolve(name, memo=memo), memo)
        alone = plan(name)
        assert shared.shown() == alone.shown()
        assert shared.step.time_s == alone.step.time_s
        assert (shared.memory, shared.compute) == (alone.memory, alone.compute)
    assert (len(memo.programs), len(memo.machines)) == (3, 3)


def test_a_structure_that_differs_is_lowered_on_its_own():
    memo = Memo()
    one, other = (resolve("llama3-70b-h100", overrides=[text]) for text in ("layout.zero=1", "layout.zero=2"))
    larger = resolve("llama3-70b-h100", overrides=["workload.seq=8192"])
    assert memo.lowered(one) is not memo.lowered(other)
    assert memo.lowered(one) is memo.lowered(larger)


def test_facts_of_a_plan_are_those_of_its_rows():
    result = plan("llama3-70b-h100")
    (fact,) = asked_facts({"x": result}, Path()).scenarios.values()
    assert len(fact.collectives) == len(result.rows)
    assert fact.result("step_s") == result.step.time_s
    assert sum(one.wire_in_all for one in fact.collectives) == sum(
        row.wire_bytes_per_device * row.count for row in result.rows
    )
    assert sum(one.busy_s for one in fact.collectives) == pytest.approx(result.step.communication_s)


@pytest.mark.parametrize("facts", [lambda result: asked_facts({"x": result}, Path()), recorded], ids=["asked", "saved"])
def test_what_a_device_sends_is_that_of_the_stage_the_step_hangs_on(facts):
    result = plan("deepseek-v3-h100")
    (fact,) = facts(result).scenarios.values()
    assert len(fact.collectives) == len(result.collectives) > len(fact.paced) == len(result.rows)
    for axis, summed in result.totals["by_axis"].items():
        sent = sum(one.wire_in_all for one in fact.paced if one.axis == axis)
        assert sent == pytest.approx(summed.wire_bytes_per_device, rel=1e-12)


@pytest.mark.parametrize("turned", [False, True], ids=["older first", "older last"])
def test_a_lock_that_does_not_say_which_calls_are_of_other_stages_moves_no_bytes(turned):
    now = asked_facts({"x": plan("deepseek-v3-h100")}, Path())
    (fact,) = now.scenarios.values()
    calls = tuple(one.but(elsewhere=False) for one in fact.collectives)
    results = {**fact.results, "peak_bytes": fact.results["peak_bytes"].but(value=1)}
    older = now.but(scenarios={"x": fact.but(collectives=calls, results=results)})
    moved = drift(*((now, older) if turned else (older, now)))
    old, new = moved.old.scenarios["x"], moved.new.scenarios["x"]
    assert moved.changed == ("x",)
    assert old.paced == new.paced == fact.paced
    page = check_page(CheckResult(moved, Path("tpsim.lock"), updated=False), verbose=False)
    assert [lines.title for lines in page.tables if lines.title] == ["Causes", "Scenarios"]  # nothing of an axis


def test_the_only_launch_of_a_level_is_held_as_the_figure_that_it_is():
    launch = asked_facts({"x": plan("llama3-8b-v5e")}, Path()).constants["tpu-v5e"]["levels.ici.launch"]
    assert (launch.value, launch.dimension, launch.kind) == (4.27e-6, "seconds", "derived")
    several = asked_facts({"x": plan("llama3-70b-h100")}, Path()).constants["dgx-h100"]["levels.nvlink.launch"]
    assert (several.value, several.kind) == ("threads, graph, process, framework", "profile")


def test_a_figure_that_was_a_word_in_an_older_lock_is_told_as_both():
    now = lock()
    path, fact = next(one for one in now.constants[NODE].items() if one[1].dimension == "seconds")
    words = {path: fact.but(value="default", dimension="", kind="profile")}
    found = drift(with_fact(now, "constants", NODE, words), now)
    (cause,) = found.causes
    assert (cause.name, values(cause)[0]) == (f"{NODE}.{path}", "default")
    assert values(cause)[1].endswith("us")


def test_a_lock_with_a_wider_tolerance_keeps_it_when_it_is_updated(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT / "tests" / "data" / "guarded")
    file = tmp_path / "wide.lock"
    file.write_text(lock_text(lock().but(tolerance=0.01, paths=(str(Path.cwd() / "scenarios"),))))
    assert "tolerance: 0.01" in check(lock=file, update=True).text


def test_a_merge_conflict_is_said_to_be_one_at_its_own_line(written):
    text = written.read_text()
    at = text.index("switches:")
    mine, theirs = "switches: {}\n", "switches: {default: {planner: cheapest}}\n"
    written.write_text(f"{text[:at]}<<<<<<< HEAD\n{mine}=======\n{theirs}>>>>>>> other\n{text[at:]}")
    with pytest.raises(InputError) as caught:
        read_lock(written)
    (problem,) = caught.value.problems
    assert (problem.slug, problem.place.line) == ("conflict", line(written, "<<<<<<< HEAD"))
    named = f" --lock {written}" if str(written) != "tpsim.lock" else ""
    assert problem.remedy == f"take either side (git checkout --ours {written}), then tpsim check --update{named}"


def test_a_lock_holds_whether_the_best_layout_is_as_a_scenario_requires():
    one = {
        "tpsim": "scenario/1",
        "name": "best",
        "model": "gpt-tiny",
        "hardware": "dgx-h100",
        "mesh": {"data": 1, "tensor": 1},
        "layout": {"dp": "data", "tp": "tensor", "zero": 0, "sequence_parallel": False},
        "recompute": "none",
        "workload": {"global_batch": 4, "seq": 16, "microbatches": 1},
    }
    plans = [plan({**one, "require": {"best": {"tp": tp}}}) for tp in (1, 2)]
    found = drift(*(asked_facts({"best": each}, Path()) for each in plans))
    assert [fact.result("require.best") for fact in (found.old.scenarios["best"], found.new.scenarios["best"])] == [
        True,
        False,
    ]
    assert "best: require.best is violated" in CheckResult(found, Path("tpsim.lock"), updated=False).verdict
    assert [(cause.kind, cause.name) for cause in found.causes] == [("scenario", "require.best.tp")]
    new = drift(*(asked_facts({"best": each}, Path()) for each in (plan(one), plans[1])))
    assert [(cause.kind, cause.name) for cause in new.causes] == [("scenario", "require.best.tp")]
