"""Every default of a bundle has a source, or is a guess that a plan names."""

from __future__ import annotations

import pytest

from tpsim.program.frameworks import PRACTICES, READ, SWITCH_SOURCES, unread
from tpsim.program.practice import SWITCHES as NAMES
from tpsim.program.practice import Practice
from tpsim.question.scenario import resolve

SWITCHES = {*NAMES}


@pytest.mark.parametrize("base", PRACTICES)
def test_every_switch_of_a_bundle_has_a_source_or_is_a_guess(base):
    assert SWITCH_SOURCES[base].keys() == SWITCHES
    assert all(one.source for one in SWITCH_SOURCES[base].values())
    assert READ.get(base, {}).keys() <= SWITCHES
    assert SWITCHES - READ.get(base, SWITCH_SOURCES[base]).keys() == {*unread(base)}


@pytest.mark.parametrize("base", READ)
def test_what_a_bundle_changes_of_what_is_usual_was_read_but_for_what_is_named_here(base):
    """Of switches that nobody changed there is nothing to read; these are changed all the same.

    Of xla's `ahead` it was read since when weights are gathered, and not how far ahead.
    """
    usual = Practice()
    changed = {name for name in SWITCHES if getattr(PRACTICES[base], name) != getattr(usual, name)}
    named = {"megatron": {"reshard_after_forward"}, "xla": {"causal", "ahead"}}
    assert changed & {*unread(base)} == named.get(base, set())


def guesses(scenario, *overrides):
    texts = [one.text for one in resolve(scenario, overrides=overrides).assumptions if one.kind == "guess"]
    return next((text for text in texts if text.startswith("switches of")), None)


def test_a_plan_names_the_defaults_that_nothing_was_read_of_where_they_matter_and_are_not_stated():
    asked = "switches of fsdp2 as is usual: nothing was read of them: cotangents, regather"
    assert guesses("llama3-405b-h100") == asked
    assert guesses("llama3-405b-h100", "practice.cotangents=once") == asked.replace("cotangents, ", "")
    assert guesses("llama3-405b-h100", "practice.cotangents=once", "practice.regather=false") is None
    assert guesses("llama3-405b-h100-pipeline") is None
    assert guesses("llama3-405b-h100-cp") is None
