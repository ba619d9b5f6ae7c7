"""``-o report.html``: what stands in a report of each verb, how a browser shows it, and when there is none."""

from __future__ import annotations

import re

import pytest

from tests.browser import browser, looking
from tests.report.test_html import HOSTILE, Read, document, visible
from tpsim.answers.plan import plan
from tpsim.cli.main import run
from tpsim.cli.output import find_spec
from tpsim.report import html

__all__ = ["browser"]  # a fixture is known by its name

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
        return file

    return write


def heads(file):
    return re.findall(r"<h[12]>(.*?)</h[12]>", file.read_text(encoding="utf-8"))


def said(file):
    return Read(file.read_text(encoding="utf-8")).said


def words(file):
    """The text of a page."""
    return " ".join(" ".join(said(file)).split())


COLLECTIVE = ("collective", "collective", "all-reduce", "--hw", "dgx-h100", "--ranks", "8", "--sizes", "8kB,1MB,64MB")
TINY = "plan --model gpt-tiny --hw dgx-h100 --pp 2 --tp 2 --seq 16 --batch 8 --microbatches 4"
PIPELINE = ("pipeline", *TINY.split())
STAGES = "plan llama3-405b-h100-pipeline --dp 1 --tp 8 --pp 16 --batch 128 --microbatches 128"


def test_a_report_of_a_plan_has_every_part_in_the_order_of_its_questions(written):
    assert heads(written("plan", "plan", "llama3-70b-h100")) == [
        *("llama3-70b-h100", "One layer", "The step", "Memory over time", "About"),
        *("Collectives", "One layer", "Memory", "Every collective", "Constants of dgx-h100", "Assumptions"),
        *("Not modelled", "Notes"),
    ]


def test_a_report_begins_with_the_verdict_and_the_bars(written):
    page, asked = words(written("plan", "plan", "llama3-70b-h100")), plan("llama3-70b-h100")
    at = 0
    for text in [line.text for line in asked.lines] + [part for bar in asked.bars for part, _ in bar.parts]:
        at = page.index(text, at)
    assert at < page.index("A layer in the middle of the stack")


def test_collectives_stand_with_their_formulas_and_reasons_and_constants_with_their_sources(written):
    page = words(written("plan", "plan", "llama3-70b-h100"))
    for text in ("wire bytes 2*b*h*s*(t - 1)/(d*t)", "because case 3: both operands are split on f", "NVIDIA H100"):
        assert text in page


def test_a_report_of_stages_shows_them_all_over_time(written):
    page = written(*PIPELINE)
    assert heads(page)[1:4] == ["One layer", "The pipeline", "Memory over time"]
    assert {f"stage {rank}" for rank in range(2)} <= set(said(page))


def test_the_same_request_gives_the_same_report(tpsim, written):
    assert tpsim(*COLLECTIVE[1:], "-f", "html").out == written(*COLLECTIVE).read_text()


@pytest.mark.parametrize("more", [["-f", "html"], ["-o", "report.html"]])
def test_without_what_draws_pictures_a_report_is_refused_with_the_command_that_brings_it(tpsim, monkeypatch, more):
    monkeypatch.setattr("tpsim.cli.output.find_spec", lambda name: None if name == "vl_convert" else find_spec(name))
    ran = tpsim("search", "llama3-70b-h100", "--chips", "256", *more)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "error[missing-library]: what draws the pictures of a report is not installed: vl-convert-python\n"
        "  = pip install 'tpsim[report]'\n"
    )


# In a browser ---------------------------------------------------------------------------------------------------------


def test_a_browser_shows_the_verdict_and_the_pictures_and_asks_for_nothing_else(browser, written, tmp_path):
    file = written("plan", "plan", "llama3-70b-h100")
    with looking(browser, file) as seen:
        text = seen.page.inner_text("main")
        assert "DOES NOT FIT: peak 106.4 GB of 80 GB" in text
        assert {"forward", "backward", "mlp.up", "F 0", "capacity"} <= set(text.split("\n"))
        assert seen.page.screenshot(path=tmp_path / "seen.png", full_page=True).startswith(b"\x89PNG")
        assert seen.style(".wide path[fill='var(--c0)']", "fill") == "rgb(59, 118, 175)"
        assert (seen.asked, seen.said) == ([file.as_uri()], [])


def test_a_dark_reader_gets_a_dark_page(browser, written):
    with looking(browser, written("plan", "plan", "llama3-70b-h100"), scheme="dark") as seen:
        assert seen.style("body", "backgroundColor") == "rgb(20, 24, 31)"
        assert seen.style("body", "color") == "rgb(228, 232, 238)"


@pytest.mark.parametrize("asked", [("plan", "plan", "llama3-70b-h100"), PIPELINE], ids=lambda asked: asked[0])
def test_on_a_phone_nothing_but_tables_is_wider_than_the_screen_and_letters_can_be_read(browser, written, asked):
    with looking(browser, written(*asked), width=390) as seen:
        assert seen.page.evaluate("document.documentElement.scrollWidth") == 390
        assert (seen.style(".wide", "display"), seen.style(".narrow", "display")) == ("none", "block")
        letters = "all => Math.min(...all.map(one => one.getBoundingClientRect().height))"
        assert seen.page.eval_on_selector_all(".narrow svg text", letters) > 9


COLLISIONS = """svgs => svgs.flatMap(svg => {
  const around = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll('text')].map(text => [text.textContent, text.getBoundingClientRect()]);
  const seen = texts.filter(([_, box]) => box.width);
  const outside = seen.filter(([_, box]) => box.left < around.left - 1 || box.right > around.right + 1);
  const meet = (one, other) => Math.min(one.right, other.right) - Math.max(one.left, other.left) > 2
    && Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 3;
  const pairs = seen.flatMap(([name, box], at) => seen.slice(at + 1).filter(([_, other]) => meet(box, other))
    .map(([other, _]) => `${name} runs into ${other}`));
  return [...outside.map(([name, _]) => `${name} is cut off`), ...pairs];
})"""


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize(
    "asked",
    [
        ("experts", "plan", "deepseek-v3-h100"),
        ("stages", *STAGES.split()),
        ("collective of 64", "collective", "all-reduce", "--hw", "dgx-h100", "--ranks", "64"),
        PIPELINE,
    ],
    ids=lambda asked: asked[0],
)
def test_no_text_of_a_picture_runs_into_another_or_out_of_it(browser, written, asked, width):
    """On a phone "forward (dense)" ran into "backward (dense)"."""
    with looking(browser, written(*asked), width=width) as seen:
        assert seen.page.eval_on_selector_all("svg", "all => all.filter(one => one.clientWidth).length") > 1
        assert seen.page.eval_on_selector_all("svg", COLLISIONS) == []


def test_on_paper_all_is_shown_dark_on_white(browser, written):
    with looking(browser, written("plan", "plan", "llama3-70b-h100"), width=390, scheme="dark") as seen:
        assert seen.page.pdf().startswith(b"%PDF")
        assert seen.page.eval_on_selector_all("details:not([open])", "all => all.length") == 0
        seen.page.emulate_media(media="print")
        assert (seen.style(".wide", "display"), seen.style(".narrow", "display")) == ("block", "none")
        assert (seen.style("body", "backgroundColor"), seen.style("body", "color")) == (
            "rgb(255, 255, 255)",
            "rgb(0, 0, 0)",
        )


def test_a_table_is_sorted_by_a_click_and_by_a_key(browser, written):
    with looking(browser, written(*COLLECTIVE)) as seen:
        column = "all => all.map(one => one.textContent)"
        head = seen.page.locator("table.sorts th", has_text="busbw GB/s")
        head.click()
        assert head.get_attribute("aria-sort") == "ascending"
        slowest = seen.page.eval_on_selector_all("table.sorts tbody td:first-child", column)
        head.press("Enter")
        fastest = seen.page.eval_on_selector_all("table.sorts tbody td:first-child", column)
        assert slowest == fastest[::-1] == ["0.008000", "1.000", "64.00"]


def test_hostile_names_are_read_and_do_nothing(browser, tmp_path):
    file = tmp_path / "hostile.html"
    file.write_text(html.text(document(" ".join(HOSTILE), pictures=()), "0"), encoding="utf-8")
    with looking(browser, file) as seen:
        text = seen.page.inner_text("main")
        assert all(" ".join(visible(name).split()) in text for name in HOSTILE)
        assert (seen.asked, seen.said) == ([file.as_uri()], [])


def test_a_script_or_a_picture_that_got_in_all_the_same_is_not_run_and_not_loaded(browser, written, tmp_path):
    file, inside = (
        tmp_path / "spoiled.html",
        "<script>alert(1)</script><img src='https://example.org/x.png' onerror='alert(2)'>",
    )
    file.write_text(written(*COLLECTIVE).read_text().replace("<footer>", f"{inside}<footer>"))
    with looking(browser, file) as seen:
        assert [one for one in seen.said if one.startswith("dialog")] == []
        assert sum("violates the following Content Security Policy" in one for one in seen.said) >= 3
