"""Machines from files: figures with sources, and mistakes answered with their place."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import pytest

from tests.machines import refusal
from tpsim.answers.hw import hw_validate
from tpsim.machine.hardware_file import HardwareFile
from tpsim.machine.parts import DTYPES
from tpsim.machine.profile import load
from tpsim.program.dtypes import FORMATS
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

MINE = """\
tpsim: hardware/1
name: mine
chip:
  peak: {bf16: 100 TFLOP/s}
  memory: {capacity: 80 GB, bandwidth: 2 TB/s}
levels:
  - name: loop
    topology: ring
    shape: [8]
    link:
      bandwidth: 45 GB/s
      hop_latency: 1 us
"""


def mine(tmp_path: Path, *changes: tuple[str, str]) -> str:
    text = MINE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize("name", spec.names("hardware"))
def test_every_figure_of_a_shipped_machine_has_unit_source_and_kind(name):
    assert hw_validate(name, strict=True).problems == []


@pytest.mark.parametrize("name", spec.names("hardware"))
def test_a_shipped_machine_bears_the_name_of_its_file_and_knows_its_sources(name):
    machine = load(name)
    assert machine.name == name
    assert {constant.source for constant in machine.constants()} - {""} <= set(machine.sources)
    assert machine.sha256


def test_the_library_holds_the_machines_that_scenarios_name():
    assert {"tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "dgx-a100", "dgx-h100", "dgx-b200", "book-h100"} <= set(
        spec.names("hardware")
    )


def test_a_figure_knows_where_it_stands_and_where_it_is_from():
    machine = load("tpu-v5e")
    constant = machine.level("ici").link.bandwidth
    assert (constant.value, constant.path, constant.kind) == (45e9, "levels.ici.link.bandwidth", "stated")
    assert machine.sources[constant.source].title.startswith("How to Scale Your Model")


def test_a_profile_of_ones_own_may_write_bare_quantities_which_count_as_guesses(tmp_path):
    path = mine(tmp_path)
    machine = load(path)
    assert machine.level("loop").link.bandwidth.value == 45e9
    assert {constant.kind for constant in machine.constants()} == {"guess"}
    assert hw_validate(path).problems == []


def test_a_shipped_profile_may_not_write_bare_quantities(tmp_path):
    path = mine(tmp_path)
    problems = hw_validate(path, strict=True).problems
    assert [problem.message for problem in problems] == [
        "chip.peak.bf16 has no kind",
        "chip.memory.capacity has no kind",
        "chip.memory.bandwidth has no kind",
        "chip.matmul_efficiency has no value",
        "chip.memory_efficiency has no value",
        "levels.loop.link.bandwidth has no kind",
        "levels.loop.link.efficiency has no value",
        "levels.loop.link.hop_latency has no kind",
        "levels.loop.launch has no value",
    ]
    assert str(problems[5]) == (
        "error[missing-provenance]: levels.loop.link.bandwidth has no kind\n"
        f"  --> {path}:11:18\n"
        "   |\n"
        "11 |       bandwidth: 45 GB/s\n"
        "   |                  ^^^^^^^ write {value: ..., source: ..., kind: ...}"
    )


def test_a_source_says_when_it_was_read_or_which_files_it_is(tmp_path):
    dated = ("name: mine\n", 'name: mine\nsources: {sheet: {title: "a sheet", read: 2026-11-20}}\n')
    hashed = (
        "name: mine\n",
        'name: mine\nsources: {logs: {title: "two logs", sha256: ["0123456789abcdef", "fedcba98"]}}\n',
    )
    assert str(load(mine(tmp_path, dated)).sources["sheet"]) == "a sheet (read 2026-11-20)"
    assert str(load(mine(tmp_path, hashed)).sources["logs"]) == "two logs (sha256 0123456789ab, fedcba98)"
    undated = refusal(mine(tmp_path, ("name: mine\n", 'name: mine\nsources: {sheet: {title: "a sheet"}}\n')))
    assert undated.startswith('error[missing-field]: a source needs "read"\n')
    assert "write read: 2026-11-20, the day" in undated


def test_a_profile_can_extend_another_one(tmp_path):
    path = tmp_path / "fast.yaml"
    path.write_text(
        "tpsim: hardware/1\nname: fast\nextends: dgx-h100\nchip: {memory: {capacity: {value: 141 GB, kind: guess}}}\n"
    )
    fast = load(path)
    assert fast.chip.memory.capacity.value == 141e9
    assert fast.levels == load("dgx-h100").levels


def test_a_profile_that_extends_another_states_only_what_differs_on_a_level(tmp_path):
    path = tmp_path / "slow.yaml"
    path.write_text(
        "tpsim: hardware/1\nname: slow\nextends: dgx-h100\n"
        "levels:\n  network: {link: {bandwidth: {value: 200 Gbit/s, kind: guess}}}\n"
    )
    slow, whole = load(path), load("dgx-h100")
    assert slow.level("nvlink") == whole.level("nvlink")
    card = slow.level("network").link.bandwidth
    assert (card.value, card.kind, card.source, card.note) == (25e9, "guess", "", "")
    assert slow.level("network").link.hop_latency == whole.level("network").link.hop_latency


def test_a_level_that_the_other_machine_has_not_is_answered_with_the_nearest_one(tmp_path):
    path = tmp_path / "slow.yaml"
    path.write_text("tpsim: hardware/1\nname: slow\nextends: dgx-h100\nlevels:\n  netwrk: {shape: [4]}\n")
    assert refusal(path) == (
        'error[unknown-item]: "netwrk" is not an item of levels of dgx-h100\n'
        f" --> {path}:5:3\n"
        "  |\n"
        "5 |   netwrk: {shape: [4]}\n"
        '  |   ^^^^^^ did you mean "network"?\n'
        "  = known: nvlink, network"
    )


def test_a_misspelt_field_is_shown_with_a_caret(tmp_path):
    path = mine(tmp_path, ("      bandwidth", "      bandwith"))
    assert refusal(path) == (
        'error[unknown-field]: "bandwith" is not a field of a link\n'
        f"  --> {path}:11:7\n"
        "   |\n"
        "11 |       bandwith: 45 GB/s\n"
        '   |       ^^^^^^^^ did you mean "bandwidth"?\n'
        "   = fields here: bandwidth, uplink, efficiency, hop_latency"
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("45 GB/s", "45", "write 45 GB/s or 360 Gbit/s"),
        ("topology: ring", "topology: rng", "topology"),
        ("shape: [8]", "shape: [8, 8]", "a ring has one axis"),
        ("    shape: [8]\n", "", "level loop has no shape"),
        ("shape: [8]", "shape: [8]\n    wrap: {axis: 8}", "a ring has no wraparound rule"),
        ("shape: [8]", "shape: [8]\n    algorithms: {rng: {}}", '"rng" is not an algorithm'),
        ("45 GB/s", "{value: 45 GB/s, source: book, kind: stated}", '"book" is not a source'),
        ("45 GB/s", "{value: 45 GB/s, kind: stted}", "kind"),
        ("hardware/1", "hardware/2", "hardware/"),
        ("name: mine", "name: mine\nname: yours", '"name" is given twice'),
        ("shape: [8]", "shape: [8]\n    slices: {multiple: 4}", "a ring has no slices"),
        ("topology: ring\n    shape: [8]", "topology: torus\n    shape: [8, 8]\n    slices: {}", "neither shapes nor"),
        (
            "topology: ring\n    shape: [8]",
            "topology: torus\n    shape: [8, 4]\n    slices: {shapes: [4x8, 8x8]}",
            "8x8 is no part of a torus of 8x4",
        ),
        (
            "topology: ring\n    shape: [8]",
            "topology: torus\n    shape: [8, 4]\n    slices: {shapes: [2x2x2]}",
            "2x2x2 is no part of a torus of 8x4",
        ),
        (
            "topology: ring\n    shape: [8]",
            "topology: torus\n    shape: [8, 8]\n    slices: {shapes: [2 by 2]}",
            "2 by 2",
        ),
        (
            "topology: ring\n    shape: [8]",
            "topology: torus\n    shape: [8, 8]\n    slices: {multiple: 4, source: book}",
            '"book" is not a source',
        ),
    ],
)
def test_a_mistake_in_a_profile_is_named_with_its_line(tmp_path, old, new, message):
    path = mine(tmp_path, (old, new))
    text = refusal(path)
    assert message in text
    assert f"{path}:" in text


def test_wraparound_by_cubes_needs_a_side_per_axis(tmp_path):
    torus = ("topology: ring\n    shape: [8]", "topology: torus\n    shape: [8, 8]\n    wrap: {cube: [4]}")
    assert "the cube has 1 sides and the torus 2 axes" in refusal(mine(tmp_path, torus))


@pytest.mark.parametrize(
    ("machine", "shapes"),
    [
        ("tpu-v2", "2x2 4x4 8x8 8x16 16x16"),
        ("tpu-v3", "2x2 4x4 8x8 8x16 16x16 16x32 32x32"),
        ("tpu-v4", "2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x8x8 8x8x8 8x8x12 8x8x16 8x16x16 16x16x16"),
        ("tpu-v5e", "1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16"),
        ("tpu-v5p", "2x2x1 2x2x2 2x4x4 4x4x4 4x4x8 4x8x8 8x8x8 8x8x16 8x16x16 16x16x16 16x16x24"),
        ("tpu-v6e", "1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16"),
        ("tpu-v7x", "1x1x1 2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x12 4x8x12 8x8x20 16x16x16 16x24x24"),
    ],
)
def test_tpus_come_in_the_slices_that_their_vendor_lists(machine, shapes):
    """Google Cloud documentation per generation, and xpk's default topologies for v4 and v7x."""
    ici = load(machine).level("ici")
    for shape in (tuple(map(int, text.split("x"))) for text in shapes.split()):
        least = min(prod(found) for found in ici.slices.around(shape, ici.shape))
        assert least == prod(shape)
    assert (1,) * (len(ici.shape) - 1) + (3,) not in ici.slices.around((1,) * len(ici.shape), ici.shape)


def test_a_launch_latency_may_be_stated_per_harness(tmp_path):
    level = ("shape: [8]", "shape: [8]\n    launch: {graph: 1 us, framework: {value: 20 us, kind: guess}}")
    launch = load(mine(tmp_path, level)).level("loop").launch
    assert {name: constant.value for name, constant in launch.items()} == {"graph": 1e-6, "framework": 20e-6}
    assert launch["framework"].path == "levels.loop.launch.framework"


@pytest.mark.parametrize(("wrong", "meant"), [("thread", "threads"), ("grpah", "graph"), ("defaults", "default")])
def test_a_harness_that_is_a_known_one_misspelled_is_refused(tmp_path, wrong, meant):
    said = refusal(mine(tmp_path, ("shape: [8]", f"shape: [8]\n    launch: {{{wrong}: 1 us}}")))
    assert f'error[unknown-harness]: "{wrong}" is not a harness\n' in said
    assert f"mine.yaml:10:{len('    launch: {') + 1}\n" in said
    assert f'did you mean "{meant}"? a harness of your own needs a name that is less like it\n' in said


@pytest.mark.parametrize("own", ["osu", "eager", "jax", "threadpool", "cuda-graphs", "one-process"])
def test_a_harness_of_the_users_own_is_let_through(tmp_path, own):
    path = mine(tmp_path, ("shape: [8]", f"shape: [8]\n    launch: {{threads: 1 us, {own}: 2 us}}"))
    assert load(path).level("loop").launch[own].value == 2e-6


def test_a_peak_of_a_dtype_that_nobody_has_is_refused_with_the_nearest(tmp_path):
    said = refusal(mine(tmp_path, ("{bf16: 100 TFLOP/s}", "{bf16: 100 TFLOP/s, fp88: 200 TFLOP/s}")))
    assert 'error[unknown-dtype]: "fp88" is not a dtype\n' in said
    assert "mine.yaml:4:29\n" in said
    assert 'did you mean "fp8"?\n' in said


def test_a_slice_that_is_no_shape_is_told_the_form_not_that_it_is_no_text(tmp_path):
    path = mine(tmp_path, ("topology: ring", "topology: torus\n    slices: {shapes: [4*4]}"))
    assert 'error[bad-value]: slices.shapes[0] is "4*4"\n' in refusal(path)
    assert "^^^ it must match ^[1-9]" in refusal(path)


def test_a_peak_may_be_stated_for_every_dtype_that_a_workload_may_name():
    assert {name for name, one in FORMATS.items() if one.block == 1} < set(DTYPES)
    schema = HardwareFile.model_json_schema()["$defs"]["Chip"]["properties"]["peak"]
    assert schema["propertyNames"] == {"enum": list(DTYPES)}


def test_a_rendezvous_needs_both_its_figures(tmp_path):
    both = "hop_latency: 1 us\n    protocols:\n      ll: {rendezvous: {above: 2 KiB, latency: 3 us}}"
    rendezvous = load(mine(tmp_path, ("hop_latency: 1 us", both))).levels[0].protocols["ll"].rendezvous
    assert (rendezvous.above.value, rendezvous.latency.value) == (2048, 3e-6)
    assert rendezvous.latency.path == "levels.loop.protocols.ll.rendezvous.latency"
    assert 'a rendezvous needs "latency"' in refusal(
        mine(tmp_path, ("hop_latency: 1 us", both.replace(", latency: 3 us", "")))
    )


def test_a_dtype_without_a_peak_is_answered_with_those_that_have_one():
    with pytest.raises(InputError) as error:
        load("tpu-v5e").peak("fp8")
    assert "tpu-v5e states no peak for fp8" in str(error.value)
    assert "known: bf16, int8" in str(error.value)


@pytest.mark.parametrize("machine", ["mi325x", "mi355x"])
def test_a_newer_chip_of_which_no_latency_is_known_has_those_of_the_one_it_changes_whatever_its_clock(machine):
    older, own = (load(name).levels[0] for name in ("mi300x", machine))
    latencies = [{one.path: one.value for one in level.constants() if "latency" in one.path} for level in (older, own)]
    assert len(latencies[0]) > 5
    assert latencies[0] == latencies[1]
