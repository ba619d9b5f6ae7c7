"""A scenario states the switches that a program has: two classes, since a file may leave any to its bundle."""

from __future__ import annotations

from types import UnionType
from typing import Literal, Union, get_args, get_origin, get_type_hints

from tpsim.program import copies, keeps, schedules, tokens
from tpsim.program.practice import SWITCHES, Practice
from tpsim.question.scenario_file import PracticeFields

NAMES = {**vars(copies), **vars(keeps), **vars(schedules), **vars(tokens)}
"""Where the values' modules have names from that they need for types alone."""

BUNDLED = {"base", "offload", "recompute", "recompute_layers", "replay"}
"""Which bundle is changed, and what a section of its own says."""


def taken(type_):
    """What a field takes, with nothing beside: single values, and types."""
    if hasattr(type_, "__metadata__"):
        return taken(get_args(type_)[0])
    if get_origin(type_) in (Union, UnionType):
        return {one for part in get_args(type_) for one in taken(part)} - {type(None)}
    return set(get_args(type_)) if get_origin(type_) is Literal else {type_}


def test_a_scenario_states_the_switches_that_a_program_has_and_what_these_can_be():
    stated, had = get_type_hints(PracticeFields), get_type_hints(Practice, localns=NAMES)
    assert {*PracticeFields.model_fields} - BUNDLED == {*SWITCHES} - BUNDLED
    for name in {*SWITCHES} - BUNDLED - {"keeps"}:  # lists of what is kept have names
        assert taken(stated[name]) == taken(had[name]), name
