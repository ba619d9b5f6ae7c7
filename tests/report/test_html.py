"""Documents as HTML: one file, nothing of the user's taken for markup, small whatever is drawn."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from tpsim.report import html, vega
from tpsim.report.picture import Curve, Curves, Measure, Pictures, Span, Spans
from tpsim.report.table import Bar, Column, Line, Page, Table, Verdict
from tpsim.report.vega import IN_TURN, MOST_SPANS

HOSTILE = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "</style></svg></title><script>alert(1)</script>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "&lt;b&gt; &amp; <b>",
    "a\x00b\x1b[31m\u202ec\ud800",
    "]]>--><!--",
)
"""Names that would be markup, script, templates or control characters to whoever believes them."""

COLUMNS = (Column("name", "name"), Column("s", "time\nall", "seconds"), Column("why", "because", below=True))
LINES = (Line("10.28 s & more words", "time"), Line("DOES NOT FIT", "memory", ok=False))
STEP = Bar("step", (("compute 75 %", 7.5), ("exposed 25 %", 2.5)), ("capacity 8 s", 8.0))


def document(name="a layer", pictures=None, **more):
    spans = Spans(name, name, {name: [Span(0, 1, name, name), Span(1, 4, "other", name)]}, [name, "other"], [(name, 1)])
    axes = Measure(name, "seconds"), Measure(name, "bytes")
    curves = Curves(name, name, *axes, [Curve(name, [(0, 1), (1, 2)])], [(name, 2)])
    rows = [{"name": name, "s": 0.25, "why": name}, {"name": "zz", "s": 1.5}]
    asked = {"title": name, "facts": ((name, name),), "tables": (Table(COLUMNS, rows, title=name, more=name),)}
    drawn = (spans, curves) if pictures is None else pictures
    verdict = Verdict((Line(name, name),), (Bar(name, ((name, 1),), (name, 2)),), drawn)
    return Page(verdict, **{**asked, "notes": (name,), "next_command": name, **more})


class Read(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.said = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.said.append(data)


@pytest.fixture(scope="module")
def plain():
    return html.text(document(), "0")


def is_harmless(page, plain):
    """A page has no tag, no attribute and no character that one with plain names has not."""
    page.encode()  # a lone surrogate would be none
    hostile, harmless = Read(page), Read(plain)
    assert {tag for tag, _ in hostile.tags} <= {tag for tag, _ in harmless.tags}
    assert {name for _, attrs in hostile.tags for name in attrs} <= {
        name for _, attrs in harmless.tags for name in attrs
    }
    assert [tag for tag, _ in hostile.tags].count("script") == 1
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202a-\u202e]", page)
    return "".join(hostile.said)


def visible(name):
    return "".join(char if char.isprintable() else "\ufffd" for char in name)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_stands_everywhere_and_is_text_everywhere(name, plain):
    said = is_harmless(html.text(document(name, pictures=()), "0"), plain)
    assert said.count(visible(name)) >= 12


def test_hostile_names_in_pictures_are_text(plain):
    lanes = {name: [Span(0, 1, name, name)] for name in HOSTILE}
    picture = Spans("p", "p", lanes, HOSTILE, [(HOSTILE[0], 0)])
    said = is_harmless(html.text(document(pictures=[picture]), "0"), plain)
    for name in HOSTILE:
        assert said.count(visible(name)[:10]) >= 3


def test_a_page_loads_nothing_and_runs_its_own_script_alone(plain):
    read = Read(plain)
    assert not {"src", "href", "xlink:href", "action"} & {name for _, attrs in read.tags for name in attrs}
    assert [tag for tag, _ in read.tags].count("script") == 1
    (policy,) = [attrs["content"] for _, attrs in read.tags if attrs.get("http-equiv")]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-")
    assert "url(" not in plain
    assert "@import" not in plain


def test_a_notebook_shows_the_verdict_its_weights_and_the_rows_and_takes_nothing_for_markup():
    cell = html.cell(
        LINES, (STEP,), [{"array": "A<b>", "wire_bytes": 2e9, "calls": 3, "old": None, "axes": ["X", "Y"]}]
    )
    assert '<div class="no"><dt>memory</dt><dd>DOES NOT FIT</dd></div>' in cell
    assert "<dd>10.28 s &amp; more words</dd>" in cell
    assert [float(share) for share in re.findall(r'<span [^>]*style="width: ([\d.]+)%"', cell)] == [75, 25]
    assert '<i style="left: 80.0%" title="capacity 8 s"></i>' in cell
    assert re.findall(r"<td[^>]*>(.*?)</td>", cell) == ["A&lt;b&gt;", "2.000", "3", "", "X, Y"]
    assert "<small>GB</small>" in cell


def test_a_notebook_counts_the_rows_that_it_leaves_out():
    cell = html.cell((Line("yes"),), (), [{"n": n} for n in range(html.MOST + 5)])
    assert cell.count("<tr>") == html.MOST + 1
    assert "5 more rows: to_frame() has them" in cell


def test_cells_are_sorted_by_their_values_and_long_texts_stand_below_their_rows(plain):
    assert 'data-value="0.25"' in plain
    assert 'data-value="1.5"' in plain
    assert '<tr class="below"><td colspan="2"><small>because</small> a layer</td></tr>' in plain


def test_a_folded_table_is_opened_by_its_title_and_groups_have_heads_of_their_own():
    table = Table(COLUMNS, [{"name": "x", "s": 1.0}] * 3, "All", group="name", folded=True)
    page = html.text(document(tables=(table,), pictures=()), "0")
    assert "<summary><h2>All</h2> <small>3 rows</small></summary>" in page
    one = Table(COLUMNS, [{"name": "x", "s": 1.0}], "All", folded=True)
    assert "<small>1 row</small>" in html.text(document(tables=(one,), pictures=()), "0")
    assert page.count('<tr class="group">') == 1
    assert 'class="sorts"' not in page


# Pictures made thin ---------------------------------------------------------------------------------------------------


def lane(spans):
    return [Span(at, at + 1, ("forward", "backward")[at % 2]) for at in range(spans)]


def test_of_many_spans_a_picture_draws_what_can_be_seen_and_says_so():
    many = Spans("p", "p", {f"stage {at}": lane(500) for at in range(32)}, ["forward", "backward"])
    thin = vega.thin(many, vega.Look())
    drawn = vega.alone(thin, vega.Look())["data"]["values"]
    assert len(drawn) <= MOST_SPANS
    assert len(dict.fromkeys(one["lane"] for one in drawn)) == 32
    assert vega.sorts(thin) == [IN_TURN]
    assert vega.left_out(many, thin).startswith("what is shorter than a pixel or two is drawn together")


def test_a_report_with_as_much_as_pictures_can_hold_stays_small():
    lanes = {
        f"stage {at}": [Span(n, n + 0.7, ("F", "B")[n % 2], f"F {n}") for n in range(MOST_SPANS // 32)]
        for at in range(32)
    }
    curves = [Curve(f"stage {at}", [(n * 1.234567, n % 97 + at) for n in range(800)], "steps") for at in range(8)]
    course = Curves("m", "m", Measure("time", "seconds"), Measure("held", "bytes"), curves)
    page = html.text(document(pictures=(Spans("p", "p", lanes, ["F", "B"]), course)), "0")
    assert 5e5 < len(page.encode()) < 1.5e6


def test_a_picture_of_few_spans_has_them_all_and_says_nothing():
    few = Spans("p", "p", {"a": lane(20), "b": lane(20)}, ["forward", "backward"])
    thin = vega.thin(few, vega.Look())
    values = vega.alone(thin, vega.Look())["data"]["values"]
    assert [(one["from"], one["to"]) for one in values if one["lane"] == "b"] == [(at, at + 1) for at in range(20)]
    assert vega.left_out(few, thin) == ""


def test_gaps_of_a_thin_lane_stay_gaps():
    spans = [*lane(1000), *(Span(3000 + at, 3001 + at, "forward") for at in range(1000))]
    thin = vega.thin(Spans("p", "p", {"a": spans}, ["forward", "backward"]), vega.Look(width=400))
    assert [span[:3] for span in thin.lanes["a"]] == [(0, 1000, IN_TURN), (3000, 4000, "forward")]


def test_a_name_of_a_mark_that_would_run_into_the_one_before_stands_above_it():
    rows = vega._rows([("backward", 40.0), ("forward", 0.0), ("update", 60.0)], pixels=1.0)
    assert rows == [[("forward", 0.0), ("update", 60.0)], [("backward", 40.0)]]
    assert vega._rows([("forward", 0.0), ("backward", 40.0)], pixels=2.0) == [[("forward", 0.0), ("backward", 40.0)]]
    assert vega._rows([], pixels=0) == []


def test_ticks_of_a_log_axis_have_a_unit_each():
    sizes = Measure("size", "bytes", log=True)
    picture = Curves("c", "c", sizes, Measure("bandwidth", "bytes_per_s"), [Curve("a", [(1e3, 1e9), (1e9, 4e11)])])
    x = vega.alone(picture, vega.Look())["encoding"]["x"]
    assert '"1e+3": "1 kB"' in x["axis"]["labelExpr"]
    assert '"1e+9": "1 GB"' in x["axis"]["labelExpr"]
    assert vega.alone(picture, vega.Look())["encoding"]["y"]["title"] == "bandwidth, GB/s"


def test_pictures_in_a_notebook_are_a_document_of_vega_lite_with_colours_and_legends_of_its_own():
    shown = Pictures(document().answer.pictures)
    spec = shown._repr_mimebundle_()["application/vnd.vegalite.v5+json"]
    assert [one["title"] for one in spec["vconcat"]] == ["a layer", "a layer"]
    assert "var(--" not in str(spec)
    assert "'legend': None" not in str(spec)
    assert repr(shown) == "a layer: a layer\na layer: a layer"
