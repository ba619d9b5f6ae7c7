"""What is written of a parameter under one layout stands for others under which it lies, and is summed, alike."""

from __future__ import annotations

import pytest

from tests.models import GPT, LLAMA
from tests.programs import lies, told
from tpsim.program import stretch, update
from tpsim.program.dtypes import Dtypes
from tpsim.program.frameworks import PRACTICES
from tpsim.program.layout import Layout, layout
from tpsim.program.lower import lower
from tpsim.program.stretch import Stretches

ORDER = ("P", "D", "E", "T")
MIXED = Dtypes(params="bf16", gradients="f32", optimizer="f32")
LAID = [
    {"tp": ("T",), "dp": data, "zero": zero, **line, **more}
    for more in ({"sequence_parallel": True}, {"pp": ("P",)}, {"pp": ("E",)})
    for data in (("D",), ("D", "E"))
    if {*data}.isdisjoint(more.get("pp", ()))
    for line in ({}, {"line": "flat"}, {"line": "rows"}, {"whole": ("h", "d")})
    for zero in range(4)
]


def shared(known):
    """What gives stretches, and nothing else that was made before."""
    return lambda part, made, *_: known if part == "stretches" else made()


@pytest.mark.parametrize(("name", "model"), [("megatron", GPT), ("fsdp2", LLAMA), ("deepspeed", LLAMA)])
def test_a_parameter_is_written_as_it_is_for_one_layout_alone(name, model):
    known, practice = Stretches(), PRACTICES[name]
    for laid in LAID:
        asked = (model, layout(**laid), practice, MIXED, ORDER)
        layers = (1, 0) if "pp" in laid else None
        both = (lower(*asked, layers=layers, once=once) for once in (shared(known), shared(Stretches())))
        one, other = map(told, both)
        assert one == other


def test_lines_of_one_name_that_are_split_otherwise_are_told_apart(monkeypatch):
    """T splits what lies in a line and D the line, or both split the line: its name and axes are the same."""
    tables = [
        {"*": {"b": ("D",), "f": ("T",)}, "state": {"flat": ("D",)}},
        {"*": {"b": ("T", "D")}, "state": {"flat": ("T", "D")}},
    ]

    def lines(*known):
        """What lies in the lines of each, given what is known before it."""
        programs = [
            lower(LLAMA, Layout(table), PRACTICES["fsdp2"], MIXED, ORDER, once=shared(one))
            for table, one in zip(tables, known, strict=True)
        ]
        return [[lies(op.output.type) for op in program.ops] for program in programs]

    one = Stretches()
    alone = lines(Stretches(), Stretches())
    assert lines(one, one) == alone
    for place in (update, stretch):
        monkeypatch.setattr(place, "all_of", lambda type_: type_)
    blind = Stretches()
    assert lines(blind, blind) != alone
