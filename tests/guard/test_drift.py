"""What moved between two locks, who is touched, and the comment that tells it at any size."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.guarded import INSIDE, lock, many, slower, with_constant
from tpsim.guard.check import CheckResult
from tpsim.guard.drift import UNKNOWN, at_least, drift
from tpsim.guard.moved import change, relative, same
from tpsim.pages.drift import FEW, check_page
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
    assert not drift(replace(many(3), tolerance=0.01), many(3, 1.001)).moved


# Causes -------------------------------------------------------------------------------------------------------------


def test_a_constant_explains_the_numbers_of_its_level_and_code_the_rest():
    found = changed(3)
    known, code = found.causes
    assert (known.name, known.change) == (INSIDE, "-50 %")
    assert known.scenarios == ("scenarios/s000", "scenarios/s002")
    assert known.effect == pytest.approx(0.1)
    assert (code.kind, code.name) == ("formula", UNKNOWN)
    assert "scenarios/s001" in code.scenarios


def test_a_figure_of_the_chip_makes_steps_and_no_collective():
    cause, _ = drift(many(3), with_constant(many(3, 1.1), "hardware/node.chip.peak.bf16", 2)).causes
    assert cause.scenarios == ("scenarios/s000", "scenarios/s002")
    assert cause.collectives == ()


def test_a_level_touches_the_collectives_that_run_on_it_and_no_others():
    known = next(iter(drift(many(1), with_constant(many(1, 1.1), INSIDE, 0.5)).causes))
    assert set(known.collectives) == {"all_gather over tensor", "reduce_scatter over tensor", "all_reduce over tensor"}


def test_a_model_s_field_does_not_touch_a_scenario_that_states_its_own():
    def models(made, heads):
        return replace(made, models={**made.models, "models/small.heads": heads})

    own = {
        name: replace(fact, inputs={**fact.inputs, "model.heads": 32}) if name.endswith("0") else fact
        for name, fact in many(3).scenarios.items()
    }
    slow = {name: slower(fact, 1.1) for name, fact in own.items()}
    found = drift(replace(models(many(3), 32), scenarios=own), replace(models(many(3), 64), scenarios=slow))
    assert found.causes[0].scenarios == ("scenarios/s001", "scenarios/s002")


def test_a_figure_that_moves_does_not_hide_a_formula_that_moves_too():
    name = "seconds.additive.hardware/node.inside"
    new = with_constant(many(3, 1.1), INSIDE, 0.5)
    formula = replace(new.formulas[name], samples=("1", *new.formulas[name].samples[1:]))
    found = drift(many(3), replace(new, formulas={**new.formulas, name: formula}))
    assert [one.name for one in found.causes][:2] == [name, INSIDE]


def test_a_constant_that_no_held_scenario_uses_touches_nobody():
    unused = "hardware/pod.chip.peak.f32"
    (cause,) = drift(lock(), with_constant(lock(), unused, 2)).causes
    assert (cause.name, cause.scenarios, cause.effect) == (unused, (), None)


def renamed_machine(name, old_name="hardware/node"):
    """The folder's lock with one machine under another name, in its constants, formulas and scenarios."""

    def said(key):
        return key.replace(f"{old_name}.", f"{name}.")

    made = many(3)
    scenarios = {
        key: replace(one, inputs={**one.inputs, "hardware": name}) if one.inputs["hardware"] == old_name else one
        for key, one in made.scenarios.items()
    }
    constants = {said(key): one for key, one in made.constants.items()}
    formulas = {said(key): one for key, one in made.formulas.items()}
    return replace(made, scenarios=scenarios, constants=constants, formulas=formulas)


def test_another_machine_is_one_cause_and_brings_its_constants_with_it():
    new = renamed_machine("other")
    for name in [name for name in new.constants if name.startswith("other.")]:
        new = replace(new, constants={**new.constants, name: replace(new.constants[name], source="another")})
    (cause,) = drift(many(3), new).causes
    assert (cause.kind, cause.name, cause.old, cause.new) == ("scenario", "hardware", "hardware/node", "other")
    assert cause.scenarios == ("scenarios/s000", "scenarios/s002")


def test_a_machine_that_is_only_renamed_moves_nothing_and_is_said_to():
    (cause,) = drift(many(3), renamed_machine("other")).causes
    assert (cause.name, cause.old, cause.new) == ("hardware", "hardware/node", "other")
    assert cause.note == "another name, and nothing in it moved: no number moves"


def test_an_edit_of_a_machine_that_is_renamed_too_is_named():
    new = with_constant(renamed_machine("other"), INSIDE.replace("hardware/node", "other"), 0.5)
    slow = {name: slower(one, 1.1) if name != "scenarios/s001" else one for name, one in new.scenarios.items()}
    edited, name, code = drift(many(3), replace(new, scenarios=slow)).causes
    assert (edited.name, edited.change) == ("other.levels.inside.link.bandwidth", "-50 %")
    assert edited.scenarios == ("scenarios/s000", "scenarios/s002")
    assert code.name == UNKNOWN  # the network's collectives are slower, too, and no fact of it moved
    assert (name.name, name.scenarios) == ("hardware", ())


def test_an_edit_of_a_model_that_is_renamed_too_is_named():
    new = many(3)
    models = {key.replace("models/small.", "models/tiny."): one for key, one in new.models.items()}
    scenarios = {
        name: slower(replace(one, inputs={**one.inputs, "model": "models/tiny"}), 1.1)
        for name, one in new.scenarios.items()
    }
    new = replace(new, models={**models, "models/tiny.heads": 64}, scenarios=scenarios)
    edited, name = drift(many(3), new).causes
    assert (edited.kind, edited.name, edited.old, edited.new) == ("model", "models/tiny.heads", 32, 64)
    assert (name.name, name.old, name.new) == ("model", "models/small", "models/tiny")


def test_a_tolerance_that_moved_is_a_cause_of_its_own():
    (cause,) = drift(lock(), replace(lock(), tolerance=0.5)).causes
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
    assert INSIDE in first[1]
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
    old, new = (
        replace(lock(), scenarios={name: replace(fact, results={**fact.results, "step_s": step})})
        for step in (1.0, 2.0)
    )
    tokens = rendered(comment(drift(old, new)))
    cells = [child.content for one in tokens if one.type == "inline" for child in one.children or ()]
    assert any("a|b <details> *c* `d`" in "".join(cells[at:]) for at in range(len(cells)))
    assert not any(one.type == "em_open" for token in tokens for one in token.children or ())


def without_outcome(made):
    """The lock as a tpsim wrote it that did not hold what fits."""
    scenarios = {
        name: replace(one, results={key: value for key, value in one.results.items() if key != "states_fit"})
        for name, one in made.scenarios.items()
    }
    return replace(made, scenarios=scenarios)


def with_results(made, **results):
    scenarios = {name: replace(one, results={**one.results, **results}) for name, one in made.scenarios.items()}
    return replace(made, scenarios=scenarios)


def test_what_fits_moves_nothing_against_a_lock_that_does_not_say_it():
    full = with_results(many(3), states_fit=False)
    assert not drift(without_outcome(full), full)
    assert len(drift(many(3), full).moved) == 3


def test_a_demand_that_is_new_moves_nothing_while_it_holds():
    held, violated = (with_results(many(1), **{"require.step": holds}) for holds in (True, False))
    assert not drift(many(1), held)
    assert not drift(held, many(1))
    assert [(one.quantity, one.old, one.new) for one in drift(many(1), violated).moved] == [
        ("require.step", True, False)
    ]


# What a cause is credited with --------------------------------------------------------------------------------------


def cause_rows(found):
    return check_page(CheckResult(found, Path("tpsim.lock"), updated=False), verbose=False).tables[0]


def test_a_single_cause_says_its_effect_on_a_step_and_one_of_several_does_not():
    own = with_constant(many(1, 1.1), INSIDE, 0.5)
    two = with_constant(own, "hardware/node.chip.memory.bandwidth", 0.5)
    found = drift(many(1), own)
    alone = drift(many(1), replace(own, scenarios={name: inside_alone(one) for name, one in own.scenarios.items()}))
    assert [row["step"] for row in cause_rows(alone).rows] == ["+10 %"]
    assert len(found.causes) == len(cause_rows(found).rows) == 2
    for several in (found, drift(many(1), two)):
        assert "step" not in [column.key for column in cause_rows(several).columns]


def inside_alone(fact):
    """The scenario with the seconds of collectives on any other level as they were."""
    before = many(1).scenarios["scenarios/s000"].collectives
    calls = {name: one if one.by.startswith("inside") else before[name] for name, one in fact.collectives.items()}
    return replace(fact, collectives=calls)


def test_a_chip_s_room_and_its_speed_are_credited_with_what_they_make_alone():
    made = with_constant(many(1, 1.1), "hardware/node.chip.memory.capacity", 0.5)
    made = with_constant(made, "hardware/node.chip.memory.bandwidth", 0.5)
    speed, room, _ = drift(many(1), made).causes
    assert (room.scenarios, room.effect) == ((), None)
    assert (speed.collectives, speed.effect) == ((), pytest.approx(0.1))


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
    part = next(name for name in fact.collectives if " data " in name)
    calls = {**fact.collectives, part: replace(fact.collectives[part], messages=5)}
    new = replace(new, scenarios={"scenarios/s000": replace(fact, collectives=calls)})
    page = check_page(CheckResult(drift(old, new), Path("tpsim.lock"), updated=False), verbose=False)
    assert "Axes" not in [table.title for table in page.tables]


# Formulas that came or went -----------------------------------------------------------------------------------------


def with_formulas(made, *names, version="99.0.0"):
    """A lock of another tpsim, which samples more formulas."""
    sample = next(iter(made.formulas.values()))
    return replace(made, version=version, formulas={**made.formulas, **dict.fromkeys(names, sample)})


NEW = ("form.moon.all_gather.ring", "form.moon.reduce_scatter.ring")


def test_new_formulas_are_one_cause_that_explains_no_number_and_comes_after_what_does():
    new = with_formulas(with_constant(many(3, 1.1), INSIDE, 0.5), *NEW)
    found = drift(many(3), new)
    assert [one.name for one in found.causes] == [INSIDE, f"{NEW[0]} and 1 more", UNKNOWN]
    assert (found.causes[1].note, found.causes[1].scenarios) == ("new: no number moves", ())
    verdict = CheckResult(found, Path("tpsim.lock"), updated=False).verdict
    assert verdict.startswith(f"tpsim changed since: 0.1.0 -> 99.0.0; constant {INSIDE} ")


def test_formulas_that_are_gone_are_one_cause():
    old = with_formulas(many(3), *NEW, version="0.1.0")
    (cause,) = drift(old, many(3)).causes
    assert (cause.name, cause.note) == (f"{NEW[0]} and 1 more", "gone")


def test_a_verdict_holds_no_formula_s_text():
    name = "wire.all_gather"
    made = many(3)
    moved = replace(made.formulas[name], text="7*V", samples=("7",))
    found = drift(made, replace(made, formulas={**made.formulas, name: moved}))
    assert CheckResult(found, Path("tpsim.lock"), updated=False).verdict == f"formula {name}"
