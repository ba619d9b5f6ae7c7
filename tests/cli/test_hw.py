"""`tpsim hw`: the machines, one machine, and whether a profile is sound."""

from __future__ import annotations

import csv
import json
import sys
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from shutil import copytree

import pytest

from tests.machines import OWN
from tpsim.answers.hw import hw_list, hw_show, hw_validate
from tpsim.cli.main import run
from tpsim.machine.profile import load
from tpsim.pages.hw import list_page, page, validate_page
from tpsim.quantity import spec

SHIPPED = Path(__file__).parents[2] / "hardware"


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A user's own profile, in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.yaml"
    path.write_text(OWN, encoding="utf-8")
    return path


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A shipped library of no machine yet: its folder."""
    folder = tmp_path / "hardware"
    folder.mkdir()
    (tmp_path / "scenarios" / "models").mkdir(parents=True)
    monkeypatch.setattr("tpsim.quantity.spec.catalogue._PACKAGE", tmp_path / "tpsim")
    return folder


def broken(path, old, new):
    path.write_text(OWN.replace(old, new), encoding="utf-8")


def test_the_list_shows_every_machine_and_what_it_has(capsys):
    assert run(["hw", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2 : 2 + len(spec.names("hardware"))]] == spec.names("hardware")
    assert next(line for line in lines if line.startswith("tpu-v5e ")).split() == [
        "tpu-v5e", "197.0", "16.91", "0.8200", "ici", "16x16,", "dcn", "4",
    ]  # fmt: skip
    assert lines[-2:] == [
        f"{len(spec.names('hardware'))} machines, made of 26 chips; your own: a .yaml file, or a folder in TPSIM_PATH",
        "next: tpsim hw show dgx-h100",
    ]


def test_a_machine_is_shown_constant_by_constant_with_sources(capsys):
    assert run(["hw", "show", "tpu-v5e"]) == 0
    out = capsys.readouterr().out
    assert "\nchip\n peak.bf16                      197 TFLOP/s  stated   book\n" in out
    assert "level ici\n link.bandwidth" in out
    assert "(read 2026-11-20)" in out
    assert "4 of them guesses; bandwidths are of one link in one direction" in out


@pytest.mark.parametrize("name", spec.names("hardware"))
def test_every_machine_fits_in_80_columns(printed, name):
    lines = printed(page(hw_show(name), verbose=False))
    assert [line for line in lines if len(line) > 80 and not line.startswith("next: ")] == []


@pytest.mark.parametrize(
    ("name", "said"), [("book-tpu-v5e-ring", "1 of them a guess"), ("tpu-v5e", "4 of them guesses")]
)
def test_one_guess_is_one_and_two_are_several(name, said, capsys):
    run(["hw", "show", name, "-q"])
    assert said in capsys.readouterr().out


def test_the_list_fits_in_80_columns(printed):
    assert max(map(len, printed(list_page(hw_list(), verbose=False)))) <= 80


def test_the_next_command_of_every_sort_of_machine_answers(capsys):
    wired = {tuple(one.topology for one in load(name).levels): name for name in spec.names("hardware")}
    assert len(wired) > 5
    for name in wired.values():
        words = page(hw_show(name), verbose=False).next_command.split()
        assert words[0] == "tpsim"
        assert run(words[1:]) == 0, name
        assert capsys.readouterr().err == ""


def test_what_comes_next_names_the_users_own_file(own):
    assert f"--hw {own} " in page(hw_show(own), verbose=False).next_command


def test_a_constant_is_a_row_of_the_csv_with_its_source(capsys):
    assert run(["hw", "show", "tpu-v5e", "-f", "csv"]) == 0
    rows = list(csv.DictReader(StringIO(capsys.readouterr().out)))
    link = next(row for row in rows if row["constant"] == "levels.ici.link.bandwidth")
    assert (float(link["value"]), link["dimension"]) == (45e9, "bytes_per_s")
    assert link["kind"] in {"stated", "datasheet"}
    assert link["title"]


def test_json_and_markdown_say_the_same_machine(capsys):
    assert run(["hw", "show", "tpu-v5e", "-f", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["inputs"][0]["path"] == "hardware/tpu-v5e.yaml"
    assert [level["name"] for level in document["result"]["levels"]] == ["ici", "dcn"]
    assert run(["hw", "show", "tpu-v5e", "-f", "md"]) == 0
    assert "| chip | peak.bf16 | 197 TFLOP/s | stated |" in capsys.readouterr().out


def test_the_library_is_sound(capsys):
    assert run(["hw", "validate"]) == 0
    assert (
        f"{len(spec.names('hardware'))} of {len(spec.names('hardware'))} profiles are sound" in capsys.readouterr().out
    )


def test_the_users_own_profile_may_write_bare_quantities_which_count_as_guesses(own, capsys):
    assert run(["hw", "validate", own.name]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["mine.yaml", "yes", "0", "5", "9", "9"]


@pytest.mark.parametrize("field", ["name", "chip", "levels"])
def test_a_machine_without_a_field_is_answered_with_a_line_that_makes_it_sound(own, capsys, field):
    lines = OWN.splitlines(keepends=True)
    first = next(at for at, line in enumerate(lines) if line.startswith(f"{field}:"))
    last = next((at for at, line in enumerate(lines) if at > first and not line.startswith(" ")), len(lines))
    own.write_text("".join(lines[:first] + lines[last:]), encoding="utf-8")
    assert run(["hw", "validate", own.name, "-f", "json"]) == 1
    (problem,) = json.loads(capsys.readouterr().out)["result"]["profiles"][0]["problems"]
    own.write_text(own.read_text("utf-8") + problem["remedy"].removeprefix("add ") + "\n", encoding="utf-8")
    assert run(["hw", "validate", own.name]) == 0


def piped(monkeypatch, text):
    """Standard input holds `text`, which can be read once."""
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(text.encode())))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (OWN, ["-", "yes", "0", "5", "9", "9"]),
        ((SHIPPED / "chips" / "h100.yaml").read_text("utf-8"), ["-", "yes", "0", "0"]),
    ],
)
def test_a_profile_from_stdin_is_read_once(monkeypatch, capsys, text, told):
    """It was read for its header, and then said to be empty."""
    piped(monkeypatch, text)
    assert run(["hw", "validate", "-"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == told


def test_the_next_command_reads_stdin_again_not_a_file_of_that_name(monkeypatch, capsys):
    piped(monkeypatch, OWN)
    assert run(["hw", "show", "-"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "next: tpsim collective all-reduce --hw - --ranks 8"


def test_stdin_that_two_files_are_asked_of_is_said_to_be_read_once(monkeypatch, capsys):
    piped(monkeypatch, OWN)
    assert run(["hw", "validate", "-", "-"]) == 1
    assert "standard input is empty  it can be read once: one - for all of a command" in capsys.readouterr().out


def test_a_profile_held_to_the_rule_of_the_shipped_ones_must_state_kinds(own, capsys):
    assert run(["hw", "validate", own.name, "--strict"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0].rpartition(":")[0] for line in lines if "has no kind" in line] == [
        "mine.yaml:4",
        "mine.yaml:5",
        "mine.yaml:5",
        "mine.yaml:11",
    ]
    assert lines[-2] == "0 of 1 profiles are sound"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (", kind: datasheet}", "}", "chip.peak.bf16 has no kind"),
        ("source: datasheet, kind", "kind", "chip.peak.bf16 has no source"),
        ("989 TFLOP/s", "989", "989 has no unit"),
    ],
)
def test_a_shipped_profile_fails_without_unit_source_or_kind(library, capsys, old, new, problem):
    copytree(SHIPPED, library, dirs_exist_ok=True)
    text = (SHIPPED / "chips" / "h100.yaml").read_text(encoding="utf-8")
    (library / "chips" / "h100.yaml").write_text(text.replace(old, new, 1), encoding="utf-8")
    assert run(["hw", "validate", "dgx-h100"]) == 1
    line = next(line for line in capsys.readouterr().out.splitlines() if problem in line)
    number = 1 + text.splitlines().index("    bf16: {value: 989 TFLOP/s, source: datasheet, kind: datasheet}")
    assert f"h100.yaml:{number}:" in line


def test_every_mistake_of_a_file_is_a_line_in_the_order_of_the_file(own, capsys):
    broken(own, "820 GB/s", "820")
    own.write_text(own.read_text(encoding="utf-8").replace("      bandwidth", "      bandwith"), encoding="utf-8")
    assert run(["hw", "validate", own.name, "-f", "json"]) == 1
    found = json.loads(capsys.readouterr().out)["result"]["profiles"][0]
    assert (found["ok"], found["guesses"]) == (False, None)
    assert found["problems"] == [
        {
            "place": "mine.yaml:5:40",
            "problem": "memory.bandwidth: 820 has no unit",
            "remedy": "write 820 GB/s or 6560 Gbit/s",
            "slug": "missing-unit",
        },
        {
            "place": "mine.yaml:11:7",
            "problem": '"bandwith" is not a field of a link',
            "remedy": 'did you mean "bandwidth"?',
            "slug": "unknown-field",
        },
    ]


def test_text_that_is_no_yaml_is_an_unsound_profile_not_a_wrong_request(own, capsys):
    broken(own, "chip:", "chip: [")
    assert run(["hw", "validate", own.name]) == 1
    assert "mine.yaml:" in capsys.readouterr().out


def test_problems_fit_in_80_columns(printed, own):
    broken(own, "820 GB/s", "820")
    assert max(map(len, printed(validate_page(hw_validate([own.name]), verbose=False)))) <= 80


def test_a_file_that_is_not_there_is_a_wrong_request(own, capsys):
    assert run(["hw", "validate", "mien.yaml"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error[no-such-file]: there is no file mien.yaml",
        f'  = did you mean "{own.name}"?',
    ]


def test_a_mistyped_machine_is_answered_with_the_nearest(capsys):
    assert run(["hw", "show", "tpu-v5x"]) == 2
    assert capsys.readouterr().err.splitlines()[:2] == [
        'error[unknown-machine]: "tpu-v5x" is not a machine',
        '  = did you mean "tpu-v5e"?',
    ]


def test_hw_alone_shows_what_it_can_do(capsys):
    assert run(["hw"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[-3:]] == ["list", "show", "validate"]


@pytest.mark.parametrize("suffix", [".json", ".csv", ".md", ".txt"])
def test_every_format_can_be_written_to_a_file(own, suffix, capsys):
    file = own.with_name(f"machines{suffix}")
    assert run(["hw", "list", "-o", str(file), "-q"]) == 0
    assert "tpu-v5e" in file.read_text(encoding="utf-8")
    assert capsys.readouterr().err == ""


def test_a_fit_to_steps_shows_on_a_terminal_how_far_it_is(tpsim, watch):
    watched = watch()
    runs = Path(__file__).parents[1] / "data" / "runs.csv"
    assert tpsim("hw", "fit", "--runs", str(runs), "--base", "dgx-a100").code == 0
    shown = [f"{done} of 10 rounds of 1 plan" for done in range(10)]
    assert watched.text.split("\r\x1b[K") == ["", *shown, ""]
