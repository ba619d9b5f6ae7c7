"""One document in every format; nothing lost, nothing cut."""

from __future__ import annotations

import io
import json as standard_json

import pandas as pd
import pytest

from tpsim.report import markdown, terminal
from tpsim.report.formats import NoNumber, csv_text, json_text
from tpsim.report.table import Bar, Column, Line, Page, Table, Verdict, as_text
from tpsim.report.terminal import lines

ROWS = [
    {"phase": "forward", "op": "all_gather", "bytes": 134217728, "why": "case 3: " + "owes a sum over X; " * 5},
    {"phase": "forward", "op": "all_reduce", "bytes": 4, "why": "a|b *c*"},
    {"phase": "backward", "op": "all_reduce", "bytes": None, "why": ""},
]
COLUMNS = (Column("phase", "phase"), Column("op", "op"), Column("bytes", "wire", "bytes"), Column("why", "because"))
YES = Verdict((Line("yes"),))

PAGE = Page(
    Verdict((Line("compute-bound"),)),
    title="a page",
    facts=(("model", "llama"), ("machine", "a very long machine " * 6)),
    tables=(Table(COLUMNS, ROWS, group="phase"),),
    notes=("a note",),
    next_command="tpsim hw list",
)


def shown(document, width=None):
    page = io.StringIO()
    terminal.write(document, page, "never", width)
    return page.getvalue()


def test_the_page_without_a_terminal():
    assert shown(PAGE) == (
        "a page\n"
        "\n"
        "model    llama\n"
        f"machine  {('a very long machine ' * 6).strip()}\n"
        "\n"
        "                 wire\n"
        "op                 MB  because\n"
        "forward\n"
        f" all_gather     134.2  {ROWS[0]['why'].strip()}\n"
        " all_reduce  0.000004  a|b *c*\n"
        "backward\n"
        " all_reduce\n"
        "\n"
        "a note\n"
        "\n"
        "compute-bound\n"
        "next: tpsim hw list\n"
    )


def test_a_narrow_terminal_wraps_long_texts_and_loses_no_word():
    page = shown(PAGE, width=60)
    assert max(map(len, page.splitlines())) <= 60
    assert sorted(page.split()) == sorted(shown(PAGE).split())


@pytest.mark.parametrize("width", [1, 20, 40])
def test_however_narrow_a_terminal_is_no_number_is_cut(width):
    assert {"134.2", "0.000004", "all_gather"} <= set(shown(PAGE, width).split())


def test_text_of_the_user_is_not_taken_for_markup_of_the_terminal():
    page = shown(Page(Verdict((Line("[red]no[/red] :smile:"),)), title="A[bold]x[/bold]"))
    assert page == "A[bold]x[/bold]\n\n[red]no[/red] :smile:\n"


def test_a_refused_answer_is_red_where_there_are_colours():
    page = io.StringIO()
    terminal.write(Page(Verdict((Line("no", ok=False),))), page, "always")
    assert page.getvalue() == "\x1b[1;31mno\x1b[0m\n"


def texts(table, width):
    return ["".join(text for text, _ in line) for line in lines(table, width)]


def laid(columns, width, *rows):
    return texts(Table(tuple(columns), rows), width)


def test_texts_at_the_right_end_go_under_their_rows_before_columns_go_on_below():
    columns = (Column("name", "name"), Column("calls", "calls", "integer"), Column("by", "by"), Column("why", "why"))
    rows = ({"name": "all_gather", "calls": 320, "by": "ring", "why": "a wish of the block"}, {"name": "y", "calls": 1})
    assert laid(columns, 30, *rows) == [
        "name        calls  by",
        "all_gather    320  ring",
        "    why: a wish of the block",
        "y               1",
    ]


def test_a_mark_without_a_header_stays_in_its_row_and_spare_columns_give_way_instead():
    columns = (Column("name", "name"), Column("n", "n", "integer", spare=1), Column("star", ""))
    row = {"name": "all_gather", "n": 8, "star": "*"}
    assert laid(columns, 13, row) == ["name", "all_gather  *", " no room here", " for: n"]


def test_the_heading_of_a_group_is_wrapped_as_any_text():
    columns = (Column("what", "number"), Column("text", ""))
    row = {"what": "wire bytes of one all_gather", "text": "8"}
    table = Table(columns, [row], group="what")
    assert texts(table, 20) == ["wire bytes of one", "all_gather", " 8"]


def test_numbers_that_are_too_many_go_on_in_a_table_below_in_the_same_units():
    columns = (Column("name", "name"), *(Column(key, key, "seconds") for key in ("first", "second", "third")))
    row = {"name": "all_gather", "first": 0.5, "second": 0.25, "third": 0.001}
    assert laid(columns, 24, row) == [
        "           first second",
        "name          ms     ms",
        "all_gather 500.0  250.0",
        "            third",
        "name           ms",
        "all_gather  1.000",
    ]


def test_spare_columns_give_way_before_a_table_goes_on_below_and_it_says_so():
    columns = (Column("name", "name"), Column("calls", "calls", "integer", spare=1), Column("s", "time", "seconds"))
    row = {"name": "all_gather", "calls": 320, "s": 0.5}
    assert laid(columns, 17, row) == [
        "             time",
        "name           ms",
        "all_gather  500.0",
        " no room here",
        " for: calls",
    ]
    assert len(laid(columns, None, row)) == len(laid(columns, 40, row)) == 3


def test_what_costs_most_is_yellow_and_what_does_not_fit_is_red_where_there_are_colours():
    rows = [{"name": "a", "is": "most"}, {"name": "b", "is": "over"}, {"name": "c"}]
    page = io.StringIO()
    terminal.write(Page(Verdict((Line(""),)), tables=(Table((Column("name", ""),), rows, mark="is"),)), page, "always")
    assert page.getvalue().split() == ["\x1b[1;33ma\x1b[0m", "\x1b[1;31mb\x1b[0m", "c"]


def test_the_gist_of_the_verdict_stands_under_the_title():
    several = (Line("10.28 s a step and more", "time", brief="10.28 s"), Line("yes", "memory", brief="it fits"))
    assert shown(Page(Verdict(several), title="a page")).splitlines()[:3] == ["a page", "10.28 s", "it fits"]


SEVERAL = Page(Verdict((Line("10.28 s & more words", "time"), Line("DOES NOT FIT", "memory", ok=False))))


def test_lines_of_a_verdict_stand_behind_their_labels_at_any_width():
    assert shown(SEVERAL) == "time    10.28 s & more words\nmemory  DOES NOT FIT\n"
    assert shown(SEVERAL, width=20) == "time    10.28 s &\n        more words\nmemory  DOES NOT FIT\n"


def test_of_several_lines_only_the_refusal_is_red():
    page = io.StringIO()
    terminal.write(SEVERAL, page, "always")
    assert page.getvalue() == ("\x1b[1mtime    10.28 s & more words\x1b[0m\n\x1b[1;31mmemory  DOES NOT FIT\x1b[0m\n")


def test_lines_of_a_verdict_are_one_paragraph_of_markdown():
    assert markdown.text(SEVERAL) == "**time**: 10.28 s & more words<br>\n**memory: DOES NOT FIT**\n"


def test_markdown_is_a_table_with_units_in_its_header():
    text = markdown.text(PAGE)
    assert text.startswith("### a page\n\n**compute-bound**\n")
    assert "| phase | op | wire (MB) | because |\n| :-- | :-- | --: | :-- |\n| forward | all\\_gather | 134.2 |" in text
    assert "| a\\|b \\*c\\* |" in text


def test_markdown_folds_the_full_breakdown():
    text = markdown.text(Page(YES, tables=(Table(COLUMNS, ROWS, "All", folded=True),)))
    assert "<details><summary>All (3)</summary>\n\n| phase |" in text
    assert text.rstrip().endswith("</details>")


def test_markdown_stays_short_enough_for_a_comment_and_counts_what_it_leaves_out():
    table = Table(COLUMNS, ROWS * 2000, "All", folded=True)
    text = markdown.text(Page(YES, tables=(table,), next_command="tpsim hw list"))
    assert len(text) < 60_000
    assert "more rows: left out" in text
    assert text.endswith("Next: `tpsim hw list`\n")


def test_csv_loads_into_pandas_as_it_is():
    read = pd.read_csv(io.StringIO(csv_text([{"op": "a", "axes": ["X", "Y"], "time_s": 1 / 3, "none": None}])))
    assert read.to_dict("records") == [
        {"op": "a", "axes": "X,Y", "time_s": 1 / 3, "none": pytest.approx(float("nan"), nan_ok=True)}
    ]


def test_csv_takes_the_keys_of_all_records():
    assert csv_text([{"a": 1}, {"a": 2, "b": True}]) == "a,b\n1,\n2,True\n"


def test_a_mapping_is_one_cell_as_a_flag_says_it():
    assert csv_text([{"mesh": {"data": 4, "tensor": 2}, "varied": {}}]) == 'mesh,varied\n"data=4,tensor=2",\n'


def test_json_keeps_every_digit_and_ends_with_a_line_break():
    text = json_text({"time_s": 1 / 3, "bytes": 2**60, "name": "µ"})
    assert text.endswith("}\n")
    assert standard_json.loads(text) == {"time_s": 1 / 3, "bytes": 2**60, "name": "µ"}


def test_json_has_no_infinity():
    with pytest.raises(NoNumber, match=r"rows\.1\.time_s is inf"):
        json_text({"rows": [{"time_s": 1.0}, {"time_s": float("inf")}]})


def test_a_long_text_stands_under_its_row_on_a_terminal_and_in_its_column_elsewhere():
    columns = (Column("name", "name"), Column("why", "because", below=True))
    table = Table(columns, [{"name": "y", "why": "case 3: both operands are split on J over X"}, {"name": "z"}])
    assert texts(table, 30) == [
        "name",
        "y",
        "    because: case 3: both",
        "    operands are split on J",
        "    over X",
        "z",
    ]
    assert as_text(table).headers == ["name", "because"]


def test_columns_of_one_kind_have_one_unit():
    columns = (Column("time", "time", "seconds"), Column("exposed", "exposed", "seconds"), Column("wire", "", "bytes"))
    rows = [{"time": 0.0049, "exposed": 0.0, "wire": 4}, {"time": 0.0074, "exposed": 0.0, "wire": 8}]
    text = as_text(Table(columns, rows))
    assert text.units == ["ms", "ms", "B"]
    assert text.rows == [["4.900", "0", "4.000"], ["7.400", "0", "8.000"]]


# Bars -----------------------------------------------------------------------------------------------------------------

STEP = Bar("step", (("compute 75 %", 7.5), ("exposed 15 %", 1.5), ("bubble 10 %", 1.0)))
BARRED = Verdict(YES.lines, (STEP,))


def test_a_bar_shares_its_cells_among_its_parts_and_says_what_they_are():
    assert list(STEP.drawn(26)) == [
        "step  [██████████████▓▓▒▒]",
        "      █ compute 75 %,",
        "      ▓ exposed 15 %,",
        "      ▒ bubble 10 %",
    ]
    assert list(STEP.drawn())[1] == "      █ compute 75 %, ▓ exposed 15 %, ▒ bubble 10 %"


def test_what_outgrows_a_bar_stands_behind_its_limit_and_what_does_not_leaves_room():
    full = Bar("memory", (("states 60 GB", 60.0), ("kept 60 GB", 60.0)), ("capacity 80 GB", 80.0))
    assert next(full.drawn(28)) == "memory  [█████████▓▓▓|▓▓▓▓▓]"
    assert list(full.drawn())[1].endswith("█ states 60 GB, ▓ kept 60 GB, | capacity 80 GB")
    small = Bar("memory", (("states 40 GB", 40.0),), ("capacity 80 GB", 80.0))
    assert list(small.drawn(28)) == ["memory  [█████████         ]", "        █ states 40 GB"]


@pytest.mark.parametrize(("encoding", "fill"), [("ascii", "#"), ("latin-1", "#"), ("utf-8", "█")])
def test_a_bar_is_in_ascii_where_the_stream_has_no_more(monkeypatch, encoding, fill):
    monkeypatch.setenv("LC_ALL", "en_US.UTF-8")
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    terminal.write(Page(BARRED), stream, "never")
    stream.flush()
    assert f"step  [{fill * 45}" in raw.getvalue().decode(encoding)


@pytest.mark.parametrize(("said", "fill"), [("C", "#"), ("POSIX", "#"), ("C.UTF-8", "█"), ("", "█")])
def test_a_bar_is_in_ascii_where_the_locale_says_so(monkeypatch, said, fill):
    monkeypatch.setenv("LC_ALL", said)
    monkeypatch.setenv("LANG", "en_US.UTF-8")
    assert f"step  [{fill * 45}" in shown(Page(BARRED))


def test_markdown_has_bars_in_letters_of_one_width_and_says_what_rows_are_left_out():
    text = markdown.text(Page(BARRED, tables=(Table(COLUMNS, ROWS, more="3 more"),)))
    assert "\n```text\nstep  [█" in text
    assert text.endswith("\n\n3 more\n")


def test_a_column_that_is_not_read_against_others_has_a_unit_of_its_own():
    """Seconds until the first token lie three orders above those of a step of decoding, which compute is part of."""
    rows = [
        {"first": 11.38, "step": 0.02342, "compute": 0.01612},
        {"first": 9.586, "step": 0.02602, "compute": 0.02189},
    ]
    beside = (Column("step", "TPOT", "seconds"), Column("compute", "compute", "seconds"))
    alone = as_text(Table((Column("first", "TTFT", "seconds", alone=True), *beside), rows))
    assert (alone.units, alone.rows[0]) == (["s", "ms", "ms"], ["11.38", "23.42", "16.12"])
    shared = as_text(Table((Column("first", "TTFT", "seconds"), *beside), rows))
    assert shared.units == ["ms", "ms", "ms"]
