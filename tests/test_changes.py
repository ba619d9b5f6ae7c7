"""Twelve scripted changes of a folder: the cause that `check` names for each, and their table in the docs."""

from __future__ import annotations

import pytest

from tests.changes import CHANGES, DOCS, END, START, answers, table

BUNDLE = "practice.megatron.regather"
ALL = ("scenarios/node", "scenarios/pod", "scenarios/shards")
NODE, POD = ALL[:1], ALL[1:2]

CAUSES = {
    "a formula's factor": [("formula", "wire.all_gather", "V*(n - 1)/n", "2*V*(n - 1)/n", ALL)],
    "an equal rewriting of a formula": [],
    "a bandwidth": [("constant", "hardware/pod.levels.ici.link.bandwidth", 45e9, 40e9, POD)],
    "a source only": [
        (
            "constant",
            "hardware/pod.chip.memory.bandwidth and 6 more",
            "figures made for tests (read 2026-11-21)",
            "figures of a second edition (read 2026-11-21)",
            (),
        )
    ],
    "a wrap rule": [
        (
            "constant",
            "hardware/pod.levels.ici.wrap",
            "closes only on an axis of 16",
            "closes only on an axis of 8",
            POD,
        )
    ],
    "a model's heads": [("model", "models/small.heads", 32, 64, ALL)],
    "a layout's tp": [("scenario", "layout.tp", "tensor", "spare, tensor", NODE)],
    "a new scenario": [],
    "a removed scenario": [],
    "a switch's default": [("switch", BUNDLE, True, False, NODE)],
    "a dtype": [("scenario", "dtypes.activations", "bf16", "f32", NODE)],
    "a tolerance": [],
}
ACCEPTED = ("an equal rewriting of a formula", "a tolerance")


@pytest.fixture(scope="module")
def found():
    return answers()


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_a_change_is_attributed_to_what_was_changed_and_to_nothing_else(found, change):
    causes = found[change.name].drift.causes
    assert [(one.kind, one.name, one.old, one.new, one.scenarios) for one in causes] == CAUSES[change.name]


def test_every_change_fails_the_check_but_an_equal_rewriting_and_a_tolerance(found):
    assert [name for name, result in found.items() if result.ok] == list(ACCEPTED)


def test_a_new_and_a_removed_scenario_are_named(found):
    assert found["a new scenario"].drift.added == ("scenarios/second-pod",)
    assert found["a removed scenario"].drift.dropped == ("scenarios/shards",)


def test_a_widened_tolerance_is_said_though_nothing_moved(found):
    assert found["a tolerance"].notices[0].startswith("tolerance 1e-09 -> 0.05")
    assert found["an equal rewriting of a formula"].notices == ()


def test_a_bandwidth_touches_the_collectives_that_run_on_it(found):
    (cause,) = found["a bandwidth"].drift.causes
    assert set(cause.collectives) == {
        "all_gather over tensor",
        "reduce_scatter over tensor",
        "all_reduce over tensor",
        "all_reduce over data",
        "all_reduce over data,tensor",
    }
    assert cause.step_relative > 0


def test_the_table_in_the_docs_is_what_check_says(found):
    shown = DOCS.read_text(encoding="utf-8").split(START)[1].split(END)[0]
    assert shown == table(found), "run: python tests/changes.py --update"
