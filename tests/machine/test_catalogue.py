"""The catalogue holds the machines that people train on: their headline figures, and collectives priced on each."""

from __future__ import annotations

from functools import cache
from itertools import pairwise, product
from math import prod
from pathlib import Path

import pytest
import yaml

from tpsim.algebra.mesh import Mesh
from tpsim.answers.hw import hw_validate
from tpsim.fabric.placement import place
from tpsim.machine import profile, timing

EXPECTED = yaml.safe_load((Path(__file__).parents[1] / "data" / "catalogue.yaml").read_text())
MOVES = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
SIZES = [2**power for power in range(10, 34, 4)]
load = cache(profile.load)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_headline_figures_of_a_machine_are_those_read_elsewhere(name):
    expected, machine = EXPECTED[name], load(name)
    inner, outer, chip = machine.levels[0], machine.levels[-1], machine.chip
    assert inner.link.bandwidth.value == pytest.approx(expected["link"] * 1e9)
    assert prod(inner.shape) == expected["members"]
    if expected["network"] is None:
        assert outer is inner
    else:
        part = outer.link.uplink.value / expected["members"] if outer.link.uplink else outer.link.bandwidth.value
        assert min(part, outer.link.bandwidth.value) == pytest.approx(expected["network"] * 1e9)
    memory = [chip.memory.capacity.value / 1e9, chip.memory.bandwidth.value / 1e9]
    assert memory == pytest.approx(expected["memory"], rel=1e-4)
    assert chip.peak["bf16"].value == expected["bf16"] * 1e12


@pytest.mark.parametrize("name", EXPECTED)
def test_no_figure_of_the_catalogue_lacks_unit_source_or_kind_and_no_guess_its_reason(name):
    assert hw_validate(name, strict=True).problems == []
    constants = list(load(name).constants())
    assert all(one.value >= 0 for one in constants)
    assert [one.path for one in constants if one.source and one.kind == "guess"] == []
    assert [one.path for one in constants if not (one.source or (one.kind == "guess" and one.note))] == []


def inside(machine):
    """Four chips, as they are placed: on the innermost level."""
    return place(machine.levels, Mesh({"x": 4})).route(["x"])


def between(machine):
    """Every chip of the levels that have a bound, times two of the one that has none."""
    bound = prod(prod(level.shape) for level in machine.levels if level.shape)
    outer = 1 if machine.levels[-1].shape else 2
    return place(machine.levels, Mesh({"y": outer, "x": bound})).route(["y", "x"])


@pytest.mark.parametrize("name", EXPECTED)
def test_more_bytes_never_take_less_time_on_any_machine(name):
    machine = load(name)
    for kind, route in product(MOVES, (inside(machine), between(machine))):
        seconds = [timing.time(machine, route, kind, size).time_s for size in SIZES]
        assert all(after >= before * (1 - 1e-12) for before, after in pairwise(seconds)), (kind, route)
        assert 0 < seconds[0] < seconds[-1], (kind, route)


@pytest.mark.parametrize("name", EXPECTED)
def test_large_arrays_take_no_less_than_the_links_that_a_chip_has(name):
    machine = load(name)
    level, volume = machine.levels[0], SIZES[-1]
    links = 2 * len(level.shape) if level.topology == "torus" else 3 if level.topology == "mesh" else 1
    fastest = volume * 3 / 4 / (links * level.link.bandwidth.value)
    assert timing.time(machine, inside(machine), "all_gather", volume).time_s > fastest
