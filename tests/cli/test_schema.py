"""`tpsim schema`: JSON for editors, a table for people."""

from __future__ import annotations

import csv
import json
from io import StringIO

import pytest

from tpsim.answers.schema import DESCRIBED, SchemaListResult, schema
from tpsim.cli.main import run
from tpsim.pages.schema import list_page, page

NAMES = [one.name for one in DESCRIBED]


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_printed_as_json(name, capsys):
    assert run(["schema", name]) == 0
    printed_schema = json.loads(capsys.readouterr().out)
    assert printed_schema == schema(name).to_json()


def test_a_schema_is_written_where_an_editor_finds_it(tmp_path, capsys):
    file = tmp_path / "hardware.json"
    assert run(["schema", "hardware", "-o", str(file), "-f", "table", "-q"]) == 0
    assert capsys.readouterr().out.endswith("of them required\n")
    assert json.loads(file.read_text(encoding="utf-8"))["$id"] == "hardware.json"


def test_a_table_shows_the_fields_and_what_may_stand_there(capsys):
    assert run(["schema", "hardware", "-f", "table"]) == 0
    lines = capsys.readouterr().out.splitlines()
    link = next(line for line in lines if line.startswith("levels[].link.bandwidth.value"))
    assert link.split(maxsplit=1)[1].split("  ")[0] == 'text as "45 GB/s"'
    assert link.endswith("yes")
    assert lines[-1] == "next: tpsim schema hardware -o hardware.json"


def test_a_verbose_table_says_what_fields_mean(capsys):
    assert run(["schema", "hardware", "-f", "table", "-v"]) == 0
    assert "ONE link, ONE direction" in capsys.readouterr().out


def test_csv_and_markdown_have_a_row_per_field(capsys):
    assert run(["schema", "plan", "-f", "csv"]) == 0
    rows = list(csv.DictReader(StringIO(capsys.readouterr().out)))
    assert "result.collectives[].payload_bytes" in [row["field"] for row in rows]
    assert run(["schema", "plan", "-f", "md"]) == 0
    assert "| result.step.mfu | number | yes |" in capsys.readouterr().out


def test_without_a_name_the_schemas_are_listed_as_a_table(capsys):
    assert run(["schema"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1 : 1 + len(NAMES)]] == NAMES
    assert lines[-1] == "next: tpsim schema hardware -f table"


def test_the_list_is_json_when_asked(capsys):
    assert run(["schema", "-f", "json"]) == 0
    assert [row["schema"] for row in json.loads(capsys.readouterr().out)["result"]["schemas"]] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_table_of_a_schema_fits_in_80_columns(printed, name):
    assert max(map(len, printed(page(schema(name), verbose=False)))) <= 80


def test_the_list_fits_in_80_columns(printed):
    assert max(map(len, printed(list_page(SchemaListResult(), verbose=False)))) <= 80


def test_a_mistyped_schema_is_answered_with_the_nearest(capsys):
    assert run(["schema", "scenaro"]) == 2
    assert capsys.readouterr().err.splitlines()[:2] == [
        'error[unknown-schema]: "scenaro" is not a schema',
        '  = did you mean "scenario"?',
    ]
