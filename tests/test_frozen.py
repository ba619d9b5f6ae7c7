"""Frozen dataclasses of tpsim's own making are those of `dataclasses`, and cost less to make."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
from math import nan
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from tpsim import frozen

HOUSE = Path(frozen.__file__).parent


def declared(dataclass):
    """A class with every kind of field, one below it with words of its own, and one without fields."""

    @dataclass(frozen=True, slots=True)
    class Whole:
        told: ClassVar[tuple[str, ...]] = ("a",)
        a: object
        b: int = 2
        c: list[int] = dataclasses.field(default_factory=lambda: [3])
        d: int = dataclasses.field(default=4, kw_only=True)
        hidden: int = dataclasses.field(default=5, repr=False, compare=False)
        follows: int = dataclasses.field(init=False)
        empty: dict[str, int] = dataclasses.field(init=False, default_factory=dict)

        def __post_init__(self):
            object.__setattr__(self, "follows", self.b + self.d)

    @dataclass(frozen=True)
    class Below(Whole):
        e: int = 6

        def __repr__(self):
            return f"below {self.e}"

        def __hash__(self):
            return 7

    @dataclass(frozen=True, eq=False)
    class Nothing:
        pass

    return Whole, Below, Nothing


@pytest.fixture(params=[dataclasses.dataclass, frozen.dataclass], ids=["standard", "own"])
def classes(request):
    return declared(request.param)


def test_fields_are_taken_kept_and_compared_as_by_dataclasses(classes):
    whole, below, nothing = classes
    one = whole(1)
    assert (one.a, one.b, one.c, one.d, one.hidden, one.follows, one.empty) == (1, 2, [3], 4, 5, 6, {})
    assert one.c is not whole(1).c
    assert one == whole(1, 2, [3], d=4, hidden=9) != whole(1, 2, [3], d=5)
    assert one.__eq__(below(1)) is NotImplemented
    assert whole(x := nan) == whole(x)
    assert hash(below(1)) == 7
    assert nothing() != nothing()
    assert hash(nothing())
    assert dataclasses.replace(one, d=9).follows == 11
    with pytest.raises(TypeError, match="unhashable type"):
        hash(one)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'a'"):
        whole()
    with pytest.raises(TypeError, match="takes from 2 to 5 positional arguments but 6 were given"):
        whole(1, 2, [3], 4, 5)
    assert not hasattr(one, "__dict__")
    assert [*inspect.signature(whole).parameters] == ["a", "b", "c", "hidden", "d"]


def test_a_single_field_that_is_an_array_is_compared_as_by_dataclasses():
    for dataclass in (dataclasses.dataclass, frozen.dataclass):
        held = dataclass(frozen=True)(type("Held", (), {"__annotations__": {"x": "object"}}))
        array = np.arange(3)
        assert held(array) == held(array)


def test_values_show_themselves_and_refuse_to_change_as_by_dataclasses(classes):
    whole, below, _ = classes
    one = whole(1)
    assert repr(one).endswith("Whole(a=1, b=2, c=[3], d=4, follows=6, empty={})")
    assert repr(below(1)) == "below 6"
    one.c.append(one)
    assert repr(one).endswith("Whole(a=1, b=2, c=[3, ...], d=4, follows=6, empty={})")
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'a'"):
        one.a = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'a'"):
        del one.a


@frozen.dataclass(frozen=True, slots=True)
class Sent:
    """What a process hands to another."""

    a: int
    b: tuple[int, ...] = ()


def test_values_travel_between_processes():
    assert pickle.loads(pickle.dumps(Sent(1, (2,)))) == Sent(1, (2,))  # noqa: S301 - it was pickled here


def test_one_method_of_a_class_is_compiled(monkeypatch):
    compiled = []
    run = exec

    def counted(*args):
        compiled.append(args[0].split("(")[0])
        run(*args)

    for module in (dataclasses, frozen):
        monkeypatch.setattr(module, "exec", counted, raising=False)
    frozen.dataclass(frozen=True, slots=True)(type("Pair", (), {"__annotations__": {"x": "int", "y": "int"}}))
    assert compiled == ["def __init__"]


def test_every_frozen_class_of_the_house_is_made_so():
    texts = {path: path.read_text(encoding="utf-8") for path in HOUSE.rglob("*.py") if path.name != "frozen.py"}
    slow = [
        str(path)
        for path, text in texts.items()
        if "@dataclass(frozen=True" in text and "from tpsim.frozen import dataclass" not in text
    ]
    assert slow == []
