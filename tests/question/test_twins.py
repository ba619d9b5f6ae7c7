"""Where a file's map and the value that it becomes are two classes, both have the same fields, and take the same."""

from __future__ import annotations

from types import UnionType
from typing import Literal, Union, get_args, get_origin, get_type_hints

import pytest

from tpsim.program import copies, keeps, schedules, tokens
from tpsim.program.practice import Ahead, Bucket, Overlap, Practice, Rows
from tpsim.question.scenario_file import AheadFields, BucketFields, OverlapFields, PracticeFields, RowsFields

NAMES = {**vars(copies), **vars(keeps), **vars(schedules), **vars(tokens)}
"""Where the values' modules have names from that they need for types alone."""

BUNDLED = {"base", "recompute", "recompute_layers", "replay"}
"""Which bundle is changed, and what a section of its own says."""

READ = {"keeps", "buffers", "overlap", "ahead", "bucket", "rows", "levels"}
"""What is looked up or has fields of its own, and what a placement says."""


def taken(type_):
    """What a field takes, with nothing beside: single values, and types."""
    if hasattr(type_, "__metadata__"):
        return taken(get_args(type_)[0])
    if get_origin(type_) in (Union, UnionType):
        return {one for part in get_args(type_) for one in taken(part)} - {type(None)}
    return set(get_args(type_)) if get_origin(type_) is Literal else {type_}


@pytest.mark.parametrize(
    ("file", "value"),
    [
        (PracticeFields, Practice),
        (OverlapFields, Overlap),
        (AheadFields, Ahead),
        (BucketFields, Bucket),
        (RowsFields, Rows),
    ],
)
def test_a_scenario_states_the_switches_that_a_program_has_and_what_these_can_be(file, value):
    stated, had = get_type_hints(file), get_type_hints(value, localns=NAMES)
    assert set(file.model_fields) - BUNDLED == set(had) - BUNDLED - {"levels"}
    for name in set(file.model_fields) - BUNDLED - READ:
        assert taken(stated[name]) == taken(had[name]), name
