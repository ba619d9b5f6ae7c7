"""What moved between two locks, who is touched, and the comment that tells it at any size."""

from __future__ import annotations

import shutil
from contextlib import ExitStack, chdir
from functools import cache
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.changes import GUARDED
from tests.guarded import INSIDE, NODE, lock, many, slower, with_constant, with_fact, with_results
from tpsim.guard.check import CheckResult, check
from tpsim.guard.diff import diff
from tpsim.guard.drift import UNKNOWN, at_least, drift
from tpsim.guard.drift_result import sizes
from tpsim.guard.moved_numbers import change, relative, same
from tpsim.machine.algorithms import FORMS
from tpsim.pages.drift import FEW, check_page
from tpsim.quantity.size import where_many
from tpsim.quantity.units import parse
from tpsim.report import markdown


def comment(found):
    """The body of a pull request's comment."""
    return markdown.text(check_page(CheckResult(found, Path("tpsim.lock"), updated=False), verbose=True))


def changed(count):
    """A drift of so many scenarios by one constant, all seconds 10 % up."""
    return drift(many(count), with_constant(many(count, 1.1), INSIDE, 0.5))


@cache
def comment_on(count):
    return comment(changed(count))


def rendered(text):
    """The tokens of GitHub's Markdown: tables, and HTML kept."""
    return MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)


# Numbers ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (0, 5, "new"),
        (0.0, 5.0, "new"),
        (None, 5, "new"),
        (5, 0, "gone"),
        (5, None, "gone"),
        (4, 5, "+25 %"),
        (5, 4, "-20 %"),
        (3, 3, ""),
        (None, 0, ""),
        ("a", "b", ""),
        (True, False, ""),
        (False, True, ""),
    ],
)
def test_a_change_has_a_sign_and_zero_is_new_or_gone(old, new, said):
    assert change(old, new) == said


@given(st.floats(1e-9, 1e9), st.floats(1e-9, 1e9))
def test_a_relative_change_leads_from_old_to_new(old, new):
    assert old + old * relative(old, new) == pytest.approx(new, rel=1e-9, abs=1e-9 * old)


def test_times_may_differ_by_the_tolerance_and_bytes_may_not():
    assert same(1.0, 1.0 + 5e-10, 1e-9)
    assert not same(1.0, 1.0 + 5e-9, 1e-9)
    assert not same(10**10, 10**10 + 1, 0)


def test_equal_locks_do_not_drift():
    assert not drift(lock(), lock())


def test_times_within_the_tolerance_of_the_old_lock_do_not_drift():
    assert not drift(many(3), many(3, 1 + 5e-10))
    assert drift(many(3), many(3, 1.001))
    assert not drift(many(3).but(tolerance=0.01), many(3, 1.001)).moved


# Causes -------------------------------------------------------------------------------------------------------------


def test_a_constant_explains_the_numbers_of_its_level_and_code_the_rest():
    found = changed(3)
    known, code = found.causes
    assert (known.name, known.change) == (f"{NODE}.{INSIDE}", "-50 %")
    assert known.scenarios == ("scenarios/s000", "scenarios/s002")
    assert known.step_relative == pytest.approx(0.1)
    assert (code.kind, code.name) == ("formula", UNKNOWN)
    assert "scenarios/s001" in code.scenarios


def test_a_figure_of_the_chip_makes_steps_and_no_collective():
    cause, _ = drift(many(3), with_constant(many(3, 1.1), "chip.peak.bf16", 2)).causes
    assert cause.scenarios == ("scenarios/s000", "scenarios/s002")
    assert cause.collectives == ()


def test_a_level_touches_the_collectives_that_run_on_it_and_no_others():
    known = next(iter(drift(many(1), with_constant(many(1, 1.1), INSIDE, 0.5)).causes))
    assert set(known.collectives) == {"all_gather over tensor", "reduce_scatter over tensor", "all_reduce over tensor"}


def test_a_model_s_field_does_not_touch_a_scenario_that_states_its_own(tmp_path):
    made = held_with(tmp_path, "pod", "model: ../models/small.yaml", STATED)
    other = with_fact(made, "models", "models/small", {"heads": 16})
    slow = {name: slower(fact, 1.1) for name, fact in made.scenarios.items()}
    found = drift(made, other.but(scenarios=slow))
    assert (found.causes[0].name, found.causes[0].old) == ("models/small.heads", 32)
    assert found.causes[0].scenarios == ("scenarios/node", "scenarios/shards")


STATED = "model: {extends: ../models/small.yaml, heads: 64}"


def held_with(folder, scenario, old, new):
    """The lock of a copy of the folder in which one scenario says something else."""
    shutil.copytree(GUARDED, folder / "team")
    file = folder / "team" / "scenarios" / f"{scenario}.yaml"
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")
    with chdir(folder / "team"):
        return check(["scenarios"], update=True).drift.new


def with_seconds(made, machine, level, samples):
    """A lock with the samples of how a level's seconds are made."""
    known = made.formulas.seconds["additive"]
    fact = known[machine][level].but(samples=samples)
    seconds = {"additive": {**known, machine: {**known[machine], level: fact}}}
    return made.but(formulas=made.formulas.but(seconds=seconds))


def test_a_figure_that_moves_does_not_hide_a_formula_that_moves_too():
    new = with_constant(many(3, 1.1), INSIDE, 0.5)
    samples = new.formulas.seconds["additive"][NODE]["inside"].samples
    found = drift(many(3), with_seconds(new, NODE, "inside", ("1", *samples[1:])))
    assert [one.name for one in found.causes][:2] == [f"seconds.additive.{NODE}.inside", f"{NODE}.{INSIDE}"]


def test_a_constant_that_no_held_scenario_uses_touches_nobody():
    (cause,) = drift(lock(), with_constant(lock(), "chip.peak.f32", 2, "hardware/pod")).causes
    assert (cause.name, cause.scenarios, cause.step_relative) == ("hardware/pod.chip.peak.f32", (), None)


def renamed_machine(folder, name="other"):
    """The folder's lock with one machine in a file of another name, its scenarios called as `many` does."""
    shutil.copytree(GUARDED, folder / "renamed")
    with chdir(folder / "renamed"):
        Path("hardware/node.yaml").rename(f"hardware/{name}.yaml")
        for file in Path("scenarios").glob("*.yaml"):
            file.write_text(file.read_text().replace("hardware/node.yaml", f"hardware/{name}.yaml"))
        made = check(["scenarios"], update=True).drift.new
    scenarios = {f"scenarios/s{at:03}": fact for at, fact in enumerate(made.scenarios.values())}
    return made.but(scenarios=scenarios)


OTHER = "hardware/other"


def test_another_machine_is_one_cause_and_brings_its_constants_with_it(tmp_path):
    new = renamed_machine(tmp_path)
    facts = {path: one.but(source="another") for path, one in new.constants[OTHER].items()}
    (cause,) = drift(many(3), with_fact(slowed(new), "constants", OTHER, facts)).causes
    assert (cause.kind, cause.name, cause.old, cause.new) == ("scenario", "hardware", NODE, OTHER)
    assert cause.scenarios == ("scenarios/s000", "scenarios/s002")


def slowed(made):
    """The lock with the scenarios of the machine `other` slower."""
    own = {name: one for name, one in made.scenarios.items() if one.inputs["hardware"] == OTHER}
    return made.but(scenarios={**made.scenarios, **{name: slower(one, 1.1) for name, one in own.items()}})


def test_a_machine_that_is_only_renamed_moves_nothing_and_is_said_to(tmp_path):
    (cause,) = drift(many(3), renamed_machine(tmp_path)).causes
    assert (cause.name, cause.old, cause.new) == ("hardware", NODE, OTHER)
    assert cause.note == "another name, and nothing in it moved: no number moves"


def test_an_edit_of_a_machine_that_is_renamed_too_is_named(tmp_path):
    new = slowed(with_constant(renamed_machine(tmp_path), INSIDE, 0.5, OTHER))
    edited, name, code = drift(many(3), new).causes
    assert (edited.name, edited.change) == (f"{OTHER}.{INSIDE}", "-50 %")
    assert edited.scenarios == ("scenarios/s000", "scenarios/s002")
    assert code.name == UNKNOWN  # the network's collectives are slower, too, and no fact of it moved
    assert (name.name, name.scenarios) == ("hardware", ())


def test_an_edit_of_a_model_that_is_renamed_too_is_named():
    new = many(3)
    scenarios = {
        name: slower(one.but(inputs={**one.inputs, "model": "models/tiny"}), 1.1) for name, one in new.scenarios.items()
    }
    models = {"models/tiny": {**new.models["models/small"], "heads": 64}}
    edited, name = drift(many(3), new.but(models=models, scenarios=scenarios)).causes
    assert (edited.kind, edited.name, edited.old, edited.new) == ("model", "models/tiny.heads", 32, 64)
    assert (name.name, name.old, name.new) == ("model", "models/small", "models/tiny")


def test_a_tolerance_that_moved_is_a_cause_of_its_own():
    (cause,) = drift(lock(), lock().but(tolerance=0.5)).causes
    assert (cause.kind, cause.old, cause.new) == ("tolerance", 1e-9, 0.5)


def test_small_changes_are_left_out_and_their_causes_with_them():
    found = changed(3)
    assert not at_least(found, 0.2)
    assert at_least(found, 0.05).moved == found.moved


def test_new_and_gone_scenarios_are_named():
    found = drift(many(3), many(4))
    assert (found.added, found.dropped) == (("scenarios/s003",), ())
    assert drift(many(4), many(3)).dropped == ("scenarios/s003",)


# The comment --------------------------------------------------------------------------------------------------------


def test_nothing_is_said_when_nothing_moved():
    assert comment(drift(lock(), lock())) == ""


TABLES = {1: 5, 12: 7, 500: 8}
"""Causes, scenarios, axes, collectives, numbers; what is long stands twice: its first rows, and all of it folded."""


@pytest.mark.parametrize("count", TABLES)
def test_the_comment_renders_as_tables_and_folds_at_any_size(count):
    text = comment_on(count)
    tokens = rendered(text)
    kinds = [one.type for one in tokens]
    html = [one.content for one in tokens if one.type == "html_block"]
    assert len(text) <= 60_000
    assert kinds[:3] == ["heading_open", "inline", "heading_close"]
    assert kinds.count("table_open") == kinds.count("table_close") == TABLES[count]
    assert sum("<details>" in one for one in html) == sum("</details>" in one for one in html) >= 1
    assert not any("|" in one.content for one in tokens if one.type == "paragraph")


@pytest.mark.parametrize("count", [1, 12, 500])
def test_the_first_table_names_the_cause_and_the_second_the_scenarios(count):
    text = comment_on(count)
    first = text.split("\n\n")
    assert f"{NODE}.{INSIDE}" in first[1]
    assert "+ is more bytes or more seconds" in first[2]
    tables = [part for part in first if part.startswith("| ")]
    assert INSIDE in tables[0].splitlines()[2]
    assert "| +10 % |" in tables[1].splitlines()[2]
    assert len(tables[1].splitlines()) == min(count, FEW) + 2


def test_rows_that_do_not_fit_are_counted_and_none_is_cut():
    text = comment_on(500)
    assert "more rows: left out" in text
    widths = {line.count("|") - line.count("\\|") for line in text.splitlines() if line.startswith("| scenarios/s")}
    assert len(widths) <= 4
    assert all(line.endswith("|") for line in text.splitlines() if line.startswith("|"))


def test_markup_in_a_name_stays_text():
    fact = lock().scenarios["scenarios/node"]
    name = "a|b <details> *c* `d`"
    old, new = (lock().but(scenarios={name: with_results(fact, step_s=step)}) for step in (1.0, 2.0))
    tokens = rendered(comment(drift(old, new)))
    cells = [child.content for one in tokens if one.type == "inline" for child in one.children or ()]
    assert any("a|b <details> *c* `d`" in "".join(cells[at:]) for at in range(len(cells)))
    assert not any(one.type == "em_open" for token in tokens for one in token.children or ())


def all_with(made, **values):
    return made.but(scenarios={name: with_results(one, **values) for name, one in made.scenarios.items()})


def test_an_outcome_that_turns_is_a_number_that_moved():
    full = all_with(many(3), states_fit=False)
    assert not drift(full, full)
    assert len(drift(many(3), full).moved) == 3


def test_a_demand_that_is_new_moves_nothing_while_it_holds():
    held, violated = (all_with(many(1), **{"require.step": holds}) for holds in (True, False))
    assert not drift(many(1), held)
    assert not drift(held, many(1))
    assert [(one.quantity, one.old, one.new) for one in drift(many(1), violated).moved] == [
        ("require.step", True, False)
    ]


@pytest.mark.parametrize(("zero", "said"), [(2, "stragglers 0 s -> "), (1, "-> 0 s (gone)")])
def test_what_ranks_wait_for_is_told_where_one_side_waits_for_nothing(zero, said):
    """It was left out, and what was told of the step did not add up."""
    one = {
        "tpsim": "scenario/1",
        "model": "llama-3-8b",
        "hardware": "dgx-h100",
        "mesh": {"data": 16},
        "layout": {"dp": "data", "zero": 3 - zero},
        "workload": {"global_batch": 64, "seq": 4096, "microbatches": 4},
    }
    found = diff(one, zero=zero)
    assert said in found.verdict
    told = sizes(*found.drift.changed, found.drift)
    texts = {name: text.partition(" (")[0].split(" -> ") for name, text in told.items()}
    for side in (0, 1):
        some = (texts[name][side] for name in ("step", "compute", "exposed", "stragglers"))
        step, *parts = (0 if text == "0 s" else parse(text, "seconds") for text in some)
        assert sum(parts) == pytest.approx(step, rel=1e-3)


# What a cause is credited with --------------------------------------------------------------------------------------


def cause_rows(found):
    return check_page(CheckResult(found, Path("tpsim.lock"), updated=False), verbose=False).tables[0]


def test_a_single_cause_says_its_effect_on_a_step_and_one_of_several_does_not():
    own = with_constant(many(1, 1.1), INSIDE, 0.5)
    two = with_constant(own, "chip.memory.bandwidth", 0.5)
    found = drift(many(1), own)
    alone = drift(many(1), own.but(scenarios={name: inside_alone(one) for name, one in own.scenarios.items()}))
    assert [row["step"] for row in cause_rows(alone).rows] == ["+10 %"]
    assert len(found.causes) == len(cause_rows(found).rows) == 2
    for several in (found, drift(many(1), two)):
        assert "step" not in [column.key for column in cause_rows(several).columns]


def test_of_figures_with_a_part_in_the_same_change_those_that_moved_most_come_first():
    for small, large in ((INSIDE, "chip.memory.bandwidth"), ("chip.memory.bandwidth", INSIDE)):
        made = with_constant(with_constant(many(1, 1.1), small, 0.99), large, 0.5)
        figures = [row["name"] for row in cause_rows(drift(many(1), made)).rows if row["kind"] == "constant"]
        assert [name.partition(".")[2] for name in figures] == [large, small]


def inside_alone(fact):
    """The scenario with the seconds of collectives on any other level as they were."""
    before = many(1).scenarios["scenarios/s000"].calls
    calls = tuple(one if one.levels[0][0] == "inside" else before[one.call] for one in fact.collectives)
    return fact.but(collectives=calls)


def test_a_chip_s_room_and_its_speed_are_credited_with_what_they_make_alone():
    made = with_constant(many(1, 1.1), "chip.memory.capacity", 0.5)
    made = with_constant(made, "chip.memory.bandwidth", 0.5)
    speed, room, _ = drift(many(1), made).causes
    assert (room.scenarios, room.step_relative) == ((), None)
    assert (speed.collectives, speed.step_relative) == ((), pytest.approx(0.1))


def test_names_that_the_row_above_shows_are_not_shown_again():
    figures = (INSIDE, INSIDE.replace("bandwidth", "hop_latency"))
    made = many(1, 1.1)
    for name in figures:
        made = with_constant(made, name, 0.5)
    first, second = cause_rows(drift(many(1), made)).rows[:2]
    assert "all_gather over tensor" in first["collectives"]
    assert (second["collectives"], second["touched"]) == ("as above", "as above")


def test_a_small_change_is_said_to_be_small():
    assert change(1.0, 1.00001) == change(1.0, 0.99999) == "<0.01 %"
    assert change(1.0, 1.001) == "+0.1 %"


def test_sums_that_differ_by_rounding_are_not_told():
    old, slow = many(1), many(1, 1 + 1e-14)
    new = with_constant(slow, INSIDE, 0.5)
    fact = new.scenarios["scenarios/s000"]
    first = next(one for one in fact.collectives if one.axis == "data")
    calls = tuple(one.but(messages=5) if one == first else one for one in fact.collectives)
    new = new.but(scenarios={"scenarios/s000": fact.but(collectives=calls)})
    page = check_page(CheckResult(drift(old, new), Path("tpsim.lock"), updated=False), verbose=False)
    assert "Axes" not in [table.title for table in page.tables]


def test_bytes_are_the_same_in_whatever_order_a_lock_holds_them():
    """A lock sorts its collectives, a plan has them in the order of the step; a share of bytes adds up otherwise."""
    fact = many(1).scenarios["scenarios/s000"]
    calls = tuple(one.but(calls=1, wire=wire) for one, wire in zip(fact.collectives, (0.1, 0.2, 0.3), strict=False))
    assert len(calls) == 3
    old, new = (
        many(1, times).but(scenarios={"scenarios/s000": slower(fact.but(collectives=these), times)})
        for times, these in ((1, calls), (1.1, calls[::-1]))
    )
    page = check_page(CheckResult(drift(old, new), Path("tpsim.lock"), updated=False), verbose=True)
    told = {
        table.title: [row["wire"] for row in table.rows]
        for table in page.tables
        if table.title in {"Scenarios", "Axes"}
    }
    assert told == {"Scenarios": [""], "Axes": [""]}


# Formulas that came or went -----------------------------------------------------------------------------------------


def with_forms(made, *names, version="99.0.0"):
    """A lock of another tpsim, which samples more closed forms."""
    forms = made.formulas.form
    more = {**forms, **dict.fromkeys(names, next(iter(forms.values())))}
    return made.but(version=version, formulas=made.formulas.but(form=more))


NEW = ("moon.all_gather.ring", "moon.reduce_scatter.ring")


def test_new_formulas_are_one_cause_that_explains_no_number_and_comes_after_what_does():
    new = with_forms(with_constant(many(3, 1.1), INSIDE, 0.5), *NEW)
    found = drift(many(3), new)
    assert [one.name for one in found.causes] == [f"{NODE}.{INSIDE}", f"form.{NEW[0]} and 1 more", UNKNOWN]
    assert (found.causes[1].note, found.causes[1].scenarios) == ("new: no number moves", ())
    verdict = CheckResult(found, Path("tpsim.lock"), updated=False).verdict
    assert verdict.startswith(f"tpsim changed since: 0.1.0 -> 99.0.0; constant {NODE}.{INSIDE} ")


def test_formulas_that_are_gone_are_one_cause():
    old = with_forms(many(3), *NEW, version="0.1.0")
    (cause,) = drift(old, many(3)).causes
    assert (cause.name, cause.note) == (f"form.{NEW[0]} and 1 more", "gone")


def test_a_verdict_holds_no_formula_s_text():
    made = many(3)
    moved = made.formulas.wire["all_gather"].but(text="7*V", samples=("7",))
    other = made.formulas.but(wire={**made.formulas.wire, "all_gather": moved})
    found = drift(made, made.but(formulas=other))
    assert CheckResult(found, Path("tpsim.lock"), updated=False).verdict == "formula wire.all_gather"


def slower_by_a_step(form):
    """A gather that has one step more than it had."""
    return lambda V, n: (traffic := form(V, n))._replace(steps=traffic.steps + where_many(n, 1))


def test_a_form_explains_what_runs_it_and_one_of_other_wires_that_moves_too_explains_nothing(tmp_path):
    shutil.copytree(GUARDED, tmp_path / "guarded")
    with chdir(tmp_path / "guarded"), ExitStack() as moved:
        Path("tpsim.lock").write_text(check(["scenarios"], update=True).text, encoding="utf-8")
        for wires in ("host", "switch"):
            gathers = FORMS[wires]["all_gather"]
            moved.enter_context(patch.dict(gathers, ring=slower_by_a_step(gathers["ring"])))
        causes = check().causes
    assert [(cause.name, bool(cause.scenarios), cause.note) for cause in causes] == [
        ("form.switch.all_gather.ring", True, "2 formulas made of it follow"),
        ("form.host.all_gather.ring", False, None),
    ]
    assert set(causes[0].scenarios) == {"scenarios/node", "scenarios/shards"}  # and not those of the pod, a torus
