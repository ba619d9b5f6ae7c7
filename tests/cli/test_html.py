"""``-o report.html``: what stands in a report of each verb, and when there is none."""

from __future__ import annotations

import re

import pytest

from tests.report.test_html import Read
from tpsim.answers.plan import plan
from tpsim.cli.main import run
from tpsim.cli.output import find_spec

MOST = 2_000_000
"""Bytes of a report."""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Reports by name, each written once."""
    folder = tmp_path_factory.mktemp("reports")

    def write(name, *asked):
        file = folder / f"{name}.html"
        if not file.exists():
            assert run([*asked, "-q", "-o", str(file)]) == 0
            assert file.stat().st_size < MOST
        return file.read_text(encoding="utf-8")

    return write


def heads(page):
    return re.findall(r"<h[12]>(.*?)</h[12]>", page)


def words(page):
    """The text of a page."""
    return " ".join(" ".join(Read(page).said).split())


PIPELINE = ("pipeline", "plan", "llama3-70b-h100-zb-h1")


def test_a_report_of_a_plan_has_every_part_in_the_order_of_its_questions(written):
    assert heads(written("plan", "plan", "llama3-70b-h100")) == [
        *("llama3-70b-h100", "One layer", "The step", "Memory over time", "What was asked"),
        *("Collectives", "One layer", "Memory", "Every collective", "Constants of dgx-h100", "Assumptions"),
        *("Not modelled", "Notes"),
    ]


def test_a_report_begins_with_the_verdict_and_the_bars(written):
    page, asked = words(written("plan", "plan", "llama3-70b-h100")), plan("llama3-70b-h100")
    at = 0
    for said in [line.text for line in asked.lines] + [words for bar in asked.bars for words, _ in bar.parts]:
        at = page.index(said, at)
    assert at < page.index("A layer in the middle of the stack")


def test_collectives_stand_with_their_formulas_and_reasons_and_constants_with_their_sources(written):
    page = words(written("plan", "plan", "llama3-70b-h100"))
    for said in ("wire bytes 2*b*h*s*(t - 1)/(d*t)", "because case 3: both operands are split on f", "NVIDIA H100"):
        assert said in page


def test_a_report_of_stages_shows_them_all_over_time(written):
    page = written(*PIPELINE)
    assert heads(page)[1:4] == ["One layer", "The pipeline", "Memory over time"]
    assert {f"stage {rank}" for rank in range(4)} <= set(Read(page).said)


def test_the_same_request_gives_the_same_report(tpsim, written):
    assert tpsim("plan", "llama3-70b-h100", "-f", "html").out == written("plan", "plan", "llama3-70b-h100")


@pytest.mark.parametrize("more", [["-f", "html"], ["-o", "report.html"]])
def test_without_what_draws_pictures_a_report_is_refused_with_the_command_that_brings_it(tpsim, monkeypatch, more):
    monkeypatch.setattr("tpsim.cli.output.find_spec", lambda name: None if name == "vl_convert" else find_spec(name))
    ran = tpsim("search", "llama3-70b-h100", "--chips", "256", *more)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "error[missing-library]: what draws the pictures of a report is not installed: vl-convert-python\n"
        "  = pip install 'tpsim[report]'\n"
    )
