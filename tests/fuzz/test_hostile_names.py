"""Names that would steer a terminal, a page, a spreadsheet or a shell: refused, or shown so that they do nothing."""

from __future__ import annotations

import csv
import json
import shlex
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tpsim.answers.collective import collective
from tpsim.answers.hw import HwResult
from tpsim.answers.plan import plan
from tpsim.cli.main import in_one_shape
from tpsim.pages.hw import page as hw_page
from tpsim.pages.plan import page
from tpsim.printable import printable
from tpsim.program.model_file import load_model
from tpsim.quantity.errors import TpsimError
from tpsim.question.scenario import resolve
from tpsim.report import html, markdown, terminal
from tpsim.report.formats import csv_text, json_text
from tpsim.report.table import Verdict

NAMES = (
    # markup and scripts
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</td></tr></table><h1>yes",
    "<!-- gone",
    "<details><summary>folded",
    "&lt;b&gt;",
    '"><svg/onload=alert(1)>',
    "javascript:alert(1)",
    "[link](https://example.org)",
    "![picture](https://example.org/x.png)",
    "# title",
    "- item",
    "**bold** _slanted_ ~~gone~~",
    "`code` ``more``",
    "```\nfence",
    "| a | b |",
    "\\| a",
    "$$x^2$$",
    "[bold red]x[/bold red]",
    ":smile: [@click=app.bell]x[/]",
    "{{7*7}} ${7*7} #{7*7} <%= 7 %>",
    # control characters
    "\x1b[31mred\x1b[0m",
    "\x1b]8;;https://example.org\x1b\\link",
    "\x1b[2J\x1b[H",
    "\x9b31mred",
    "bell\x07",
    "back\b\b\b\bover",
    "over\rwritten",
    "two\nlines",
    "next: rm -rf ~\n\nnext: tpsim",
    "form\x0cfeed\x0b",
    "delete\x7f",
    "two\u2028lines\u2029apart",
    "\u0085next",
    # direction, width, invisible
    "right\u202eto left\u202c",
    "\u2066isolated\u2069",
    "zero\u200bwidth\u200d",
    "\ufeffmark",
    "\u00adsoft",
    "e" + "\u0301" * 60,
    "\U0001f600\U0001f469\u200d\U0001f4bb",
    "\ud800",
    "\ue000private",
    # long, blank
    "x" * 5000,
    "word " * 500,
    "   ",
    # spreadsheets, shells, paths
    "=cmd|' /C calc'!A0",
    "@SUM(1+1)*cmd|' /C calc'!A0",
    "-2+3+cmd|' /C calc'!A0",
    "$(touch owned); `touch owned`",
    "; touch owned #",
    "--help",
    "../../../../etc/passwd",
    "C:\\nul",
    "nul\0byte",
    # YAML
    "!!python/object/apply:os.system [touch owned]",
    "*alias",
    "&anchor x",
    "<<: {a: 1}",
    "no",
    "010",
    "~",
    "{a: 1, a: 2}",
)

MODEL = """\
tpsim: model/1
name: {name}
source: {{title: {name}, read: 2026-11-20}}
hidden: 32
layers: 2
heads: 2
ffn: {{kind: gelu, hidden: 64}}
vocab: 64
norm: layernorm
"""
MACHINE = """\
tpsim: hardware/1
name: {name}
extends: tpu-v5e
sources: {{odd: {{title: {name}, read: 2026-11-20}}}}
chip: {{memory: {{capacity: {{value: 16 GB, source: odd, kind: stated, note: {name}}}}}}}
"""
SCENARIO = """\
tpsim: scenario/1
model: ./model.yaml
hardware: ./machine.yaml
mesh: {{{axis}: 1}}
layout: {{dp: {axis}}}
workload: {{global_batch: 1, seq: 8}}
"""

GITHUB = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(name, *, file="scenario.yaml", axis="data"):
    """The three files, with a name in every place that takes one; the file of the scenario names it."""
    Path("model.yaml").write_text(MODEL.format(name=name))
    Path("machine.yaml").write_text(MACHINE.format(name=name))
    Path(file).write_text(SCENARIO.format(axis=axis))


def file_of(name):
    """A file of that name where there can be one, else of another."""
    try:
        write('"a name"', file=f"{name}.yaml" if "/" not in name else "scenario.yaml")
    except (OSError, ValueError):
        return "scenario.yaml"
    return "scenario.yaml" if "/" in name else f"./{name}.yaml"


def answers(result):
    """What a plan and its machine say in every format, and what is suggested."""
    machine = HwResult(result.question.machine)
    pages = page(result, verbose=False), hw_page(machine, verbose=True)
    return pages[0].next_command, {
        "table": "".join(map(shown, pages)),
        "md": "".join(map(markdown.text, pages)),
        "html": "".join(
            html.text(replace(one, answer=Verdict(one.answer.lines, one.answer.bars)), "0") for one in pages
        ),
        "csv": csv_text(result.records()),
        "csv of the machine": csv_text(machine.records()),
        "json": json_text(result.to_json()),
        "trace": json_text(result.to_trace()),
    }


def shown(document, width=None):
    out = StringIO()
    terminal.write(document, out, "never", width)
    return out.getvalue()


def structure(form, text):
    """What a reader makes of a text beside its words: lines, marks, cells, keys."""
    if form == "table":
        return [line.split("  ")[0][:1] == " " for line in text.splitlines()]
    if form == "md":
        tokens = GITHUB.parse(text)
        return [one.type for token in tokens for one in (token, *(token.children or ())) if one.type != "text"]
    if form == "html":
        return tags(text)
    if form.startswith("csv"):
        rows = list(csv.reader(StringIO(text)))
        assert not [cell for row in rows for cell in row if cell[:1] in tuple("=@\t\r")]
        assert not [cell for row in rows for cell in row if cell[:1] in ("-", "+") and "|" in cell]
        return [len(row) for row in rows]
    return [*keys(json.loads(text))]


def tags(page):
    """Every tag of a page with the names of its attributes, in order, but the class of what is long."""
    found, reader = [], HTMLParser()
    reader.handle_starttag = lambda tag, attributes: found.append(
        (tag, [one for one, _ in attributes if one != "class"])
    )
    reader.handle_comment = reader.handle_pi = found.append
    reader.feed(page)
    return found


def keys(value, at=""):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, held in items:
        yield f"{at}.{key}"
        yield from keys(held, f"{at}.{key}")


@cache
def innocent():
    write('"a name"')
    return {form: structure(form, text) for form, text in answers(plan("scenario.yaml"))[1].items()}


def refusal(ask):
    """The text of a refusal: short, of the one shape, and harmless itself. None if nothing is refused."""
    try:
        ask()
    except TpsimError as error:
        text = str(in_one_shape(error))
        assert text.startswith("error[")
        assert all(line.replace("\t", " ").isprintable() for line in text.split("\n"))
        assert len(text) < 4000
        return text
    return None


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_hostile_name_of_a_model_a_machine_or_a_file_is_refused_or_does_nothing(name):
    expected, file = innocent(), file_of(name)
    write(json.dumps(name), file=file)
    plans = []
    if refusal(lambda: plans.append(plan(file))) is not None:
        return
    following, texts = answers(*plans)
    for form, text in texts.items():
        assert all(line.isprintable() for line in text.split("\n")), form
        assert structure(form, text) == expected[form], form
    assert printable(name).strip() in texts["table"]
    assert json.loads(texts["json"])["resolved"]["model"]["name"] == name
    assert shlex.split(following)[-1] == (file if name.startswith("-") else file.removeprefix("./"))
    assert not Path("owned").exists()


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_hostile_name_unquoted_in_a_file_is_refused_or_is_that_text(name):
    Path("model.yaml").write_text(MODEL.format(name=name), encoding="utf-8", errors="surrogatepass")
    if refusal(lambda: load_model("model.yaml")) is None:
        assert load_model("model.yaml").model.name in name
    assert not Path("owned").exists()


@pytest.mark.parametrize("name", [name for name in NAMES if not name.isidentifier()], ids=ascii)
def test_a_hostile_name_of_an_axis_a_level_or_a_collective_is_refused(name):
    write('"a name"', axis=json.dumps(name))
    assert refusal(lambda: resolve("scenario.yaml"))
    assert refusal(lambda: collective("all-gather", hw="tpu-v5e", ranks=4, level=name))
    assert refusal(lambda: collective(name, hw="tpu-v5e", ranks=4))
