"""Figures far outside of what any machine of the library has are doubted, with the slip that would explain them."""

from __future__ import annotations

import json

import pytest

from tpsim.answers.hw import hw_show
from tpsim.answers.plan import plan
from tpsim.cli.main import run
from tpsim.machine.profile import load
from tpsim.pages.hw import page
from tpsim.quantity import spec

SHEET = """\
tpsim: hardware/1
name: sheet
chip:
  peak: {bf16: 989 TFLOP/s, fp6: 3 PFLOP/s}
  memory: {capacity: 80 GB, bandwidth: 3.35 TB/s}
  host: {bandwidth: 63 GB/s}
levels:
  - {name: port, topology: switch, shape: [8], launch: 2 us, link: {bandwidth: 450 GB/s, hop_latency: 2 us}}
  - {name: card, topology: switch, launch: {graph: 4 us}, link: {bandwidth: 25 GB/s, hop_latency: 15 us}}
"""


def doubts(tmp_path, *changes):
    text = SHEET
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "sheet.yaml"
    path.write_text(text, encoding="utf-8")
    return load(path).doubts


@pytest.mark.parametrize("name", spec.names("hardware"))
def test_no_machine_of_the_library_is_doubted(name):
    assert load(name).doubts == ()


def test_a_sound_sheet_is_not_doubted(tmp_path):
    assert doubts(tmp_path) == ()


SLIPS = [
    ("450 GB/s", "450 TB/s", "levels.port.link.bandwidth", "450 GB/s"),
    ("450 GB/s", "450 MB/s", "levels.port.link.bandwidth", "450 GB/s"),
    ("450 GB/s", "45 Gbit/s", "levels.port.link.bandwidth", "45 GB/s"),
    ("25 GB/s", "400 GB/s", "levels.card.link.bandwidth", "400 Gbit/s"),
    ("25 GB/s", "50 Mbit/s", "levels.card.link.bandwidth", "50 Gbit/s"),
    ("989 TFLOP/s", "989 MFLOP/s", "chip.peak.bf16", "989 TFLOP/s"),
    ("989 TFLOP/s", "989 PFLOP/s", "chip.peak.bf16", "989 TFLOP/s"),
    ("3 PFLOP/s", "3 TFLOP/s", "chip.peak.fp6", "3 PFLOP/s"),
    ("80 GB", "80 MB", "chip.memory.capacity", "80 GB"),
    ("80 GB", "80 TB", "chip.memory.capacity", "80 GB"),
    ("3.35 TB/s", "3350 TB/s", "chip.memory.bandwidth", "3350 GB/s"),
    ("3.35 TB/s", "3.35 GB/s", "chip.memory.bandwidth", "3.35 TB/s"),
    ("63 GB/s", "63 MB/s", "chip.host.bandwidth", "63 GB/s"),
    ("hop_latency: 2 us", "hop_latency: 2 ms", "levels.port.link.hop_latency", "2 us"),
    ("hop_latency: 15 us", "hop_latency: 15 ns", "levels.card.link.hop_latency", "15 us"),
    ("launch: 2 us", "launch: 2 s", "levels.port.launch", "2 us"),
    ("graph: 4 us", "graph: 4 ms", "levels.card.launch.graph", "4 us"),
]


@pytest.mark.parametrize(("old", "new", "path", "meant"), SLIPS)
def test_a_slip_of_the_unit_is_named(tmp_path, old, new, path, meant):
    found = [one for one in doubts(tmp_path, (old, new)) if one.message.startswith(f"{path} ")]
    assert [one.remedy for one in found] == [f"was {meant} meant?"]
    assert found[0].place.text.count(new)


def test_a_doubt_says_by_how_much_and_of_what(tmp_path):
    (doubt,) = doubts(tmp_path, ("450 GB/s", "450 TB/s"))
    assert doubt.message == "levels.port.link.bandwidth 450 TB/s is 500 times the library's most, 900 GB/s"
    (doubt,) = doubts(tmp_path, ("80 GB", "80 MB"))
    assert doubt.message == "chip.memory.capacity 80 MB is 1/200 of the library's least, 16 GB"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("450 GB/s", "1.8 TB/s"),
        ("25 GB/s", "200 GB/s"),
        ("989 TFLOP/s", "7 PFLOP/s"),
        ("80 GB", "1 TB"),
        ("3.35 TB/s", "20 TB/s"),
        ("hop_latency: 2 us", "hop_latency: 0.5 us"),
        ("hop_latency: 2 us", "hop_latency: 0 us"),
        ("launch: 2 us", "launch: 40 us"),
    ],
)
def test_what_the_next_machine_may_well_have_is_not_doubted(tmp_path, old, new):
    assert doubts(tmp_path, (old, new)) == ()


def test_what_a_profile_inherits_from_the_library_is_not_doubted(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "tpsim: hardware/1\nname: mine\nextends: book-h100\nchip: {memory: {capacity: 16 MB}}\n", encoding="utf-8"
    )
    assert [one.message.split()[0] for one in load(path).doubts] == ["chip.memory.capacity"]


def test_a_doubtful_profile_is_sound_and_validation_and_plans_say_what_is_doubtful(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (doubt,) = doubts(tmp_path, ("450 GB/s", "450 TB/s"))
    said = f"{doubt.message}: was 450 GB/s meant?"
    assert run(["hw", "validate", "sheet.yaml", "-f", "json"]) == 0
    warnings = json.loads(capsys.readouterr().out)["result"]["profiles"][0]["warnings"]
    (found,) = [one for one in warnings if one["slug"] == "far-off"]
    assert found == {"place": "sheet.yaml:8:80", "problem": doubt.message, "remedy": doubt.remedy, "slug": "far-off"}
    assert said in page(hw_show("./sheet.yaml"), verbose=False).notes
    result = plan(None, model="llama-3-8b", hw="./sheet.yaml", tp=8, seq=1024)
    assert said in [one["text"] for one in result.assumptions]
    assert run(["plan", "--model", "llama-3-8b", "--hw", "./sheet.yaml", "--tp", "8", "--seq", "1024"]) == 0
    assert f"\n{said}\n" in capsys.readouterr().out
