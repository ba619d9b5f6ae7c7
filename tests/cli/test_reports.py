"""``plan -o report.md`` and ``-o report.csv``: finished documents, written together, whole or not at all."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest
from markdown_it import MarkdownIt

from tpsim.answers.plan import plan
from tpsim.answers.trust import NO_HOST, NOT_MODELLED
from tpsim.cli.output import write_files
from tpsim.quantity.errors import InputError

NAME = "llama3-70b-h100"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A plan as Markdown and as CSV, of one run."""
    from tpsim.cli.main import run

    folder = tmp_path_factory.mktemp("report")
    files = [folder / "report.md", folder / "report.csv"]
    assert run(["plan", NAME, "--set", "layout.zero=3", "-q", *(f"-o{file}" for file in files)]) == 0
    return files


def tables(text):
    """Every table of a Markdown text as rows of cells, under the title that stands before it."""
    found, title, row = {}, "", []
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    for before, token in pairwise(tokens):
        if token.type == "inline" and before.type == "paragraph_open":
            title = token.content.strip("*")
        if token.type == "html_block" and "<summary>" in token.content:
            title = token.content.split("<summary>")[1].split(" (")[0]
        if token.type == "inline" and before.type in {"th_open", "td_open"}:
            row.append("".join(child.content for child in token.children))
        if token.type == "tr_close":
            found.setdefault(title, []).append(row)
            row = []
    return found


def test_the_report_has_every_part(written):
    found = tables(written[0].read_text())
    assert list(found) == [
        "Collectives",
        "One layer",
        "Memory",
        "Every collective",
        "Constants of dgx-h100",
        "Assumptions",
        "Not modelled",
    ]


def test_the_report_says_what_was_asked_so_that_it_can_be_asked_again(written):
    text = written[0].read_text()
    for part in (
        f"- asked: tpsim plan {NAME} --set layout.zero=3\n",
        "- machine: dgx-h100, 256 chips: data 32 x tensor 8\n",
        "- placement: data 32 = network 32; tensor 8 = nvlink 8\n",
        "- read: scenarios/llama3-70b-h100.yaml (sha256 ",
        "- by: tpsim 0.",
    ):
        assert part in text


def test_the_report_begins_with_the_verdict(written):
    lines = [f"**{line.label}**: {line.text}" for line in plan(NAME, overrides=["layout.zero=3"]).lines]
    assert written[0].read_text().split("\n\n")[1].replace("\\_", "_").split("<br>\n") == lines


def test_one_layer_has_its_formulas(written):
    rows = tables(written[0].read_text())["One layer"]
    assert rows[0][-1] == "wire, in symbols"
    assert [row[0] for row in rows[1:]] == ["forward", "backward", "total"]
    assert "8*b*h*s*(t - 1)/(d*t)" in rows[1][-1].split(" + ")


def test_assumptions_stand_with_their_kinds_and_nothing_left_out_is_forgotten(written):
    found = tables(written[0].read_text())
    assert ["guess", "matrix products reach 0.5 of peak, whatever their shape"] in found["Assumptions"]
    assert {row[0] for row in found["Assumptions"][1:]} == {"guess", "stated", "default", "model"}
    assert [row[0] for row in found["Not modelled"][1:]] == [*NOT_MODELLED, NO_HOST]


def test_the_constants_are_those_of_the_machine_with_kinds_and_sources(written):
    rows = tables(written[0].read_text())["Constants of dgx-h100"]
    assert rows[0] == ["of", "constant", "value", "kind", "source"]
    assert all(row[3] == "guess" or row[4] for row in rows[1:])


def test_csv_loads_into_pandas_with_the_types_of_the_frame(written):
    read, made = pd.read_csv(written[1]), plan(NAME, overrides=["layout.zero=3"]).to_frame()
    pd.testing.assert_frame_equal(read.drop(columns="layer"), made.drop(columns="layer"))
    assert list(read["layer"].fillna("")) == list(made["layer"].fillna(""))
    kinds = {"count": "i", "ranks": "i", "logical_bytes": "i", "time_s": "f", "sequence_parallel": "b", "chips": "i"}
    assert {name: read[name].dtype.kind for name in kinds} == kinds


def test_csv_of_several_plans_can_be_put_together(written, tpsim, tmp_path):
    other = tmp_path / "other.csv"
    assert tpsim("plan", "gemma-7b-v5e", "-q", "-o", str(other)).code == 0
    both = pd.concat([pd.read_csv(written[1]), pd.read_csv(other)])
    assert dict(both.groupby("scenario")["hardware"].first()) == {NAME: "dgx-h100", "gemma-7b-v5e": "tpu-v5e"}


# Writing ------------------------------------------------------------------------------------------------------------


def test_several_files_of_one_run_are_written_together_or_not_at_all(tpsim, tmp_path):
    good = tmp_path / "plan.json"
    good.write_text("old")
    ran = tpsim("plan", NAME, "-o", str(good), "-o", str(tmp_path / "missing" / "plan.csv"))
    assert ran.code == 2
    assert "error[cannot-write]" in ran.err
    assert good.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


@pytest.mark.parametrize("at", ["replace", "chmod"])
def test_an_interrupted_run_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, at):
    file = tmp_path / "plan.md"
    file.write_text("old")

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, at, stop)
    with pytest.raises(KeyboardInterrupt):
        write_files([(file, "new")])
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["plan.md"]


def test_a_link_is_written_through(tmp_path):
    real, link = tmp_path / "real.md", tmp_path / "link.md"
    real.write_text("old")
    link.symlink_to(real)
    write_files([(link, "new")])
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(InputError) as error:
        write_files([(tmp_path / "no" / "plan.md", "new")])
    assert f"{tmp_path / 'no' / 'plan.md'}: " in str(error.value)


def test_a_report_as_json_has_the_same_collectives_without_the_question_in_every_row(tpsim):
    document = json.loads(tpsim("plan", NAME, "-f", "json").out)
    assert not {"scenario", "chips"} & set(document["result"]["collectives"][0])
