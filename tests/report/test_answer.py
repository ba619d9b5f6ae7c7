"""Every public answer prints as its verdict, and shows its rows in a notebook."""

from __future__ import annotations

import json
import pkgutil
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

import tpsim
from tests.answers.test_schema import OUTPUTS, output
from tpsim.answers.explain import explain, explain_list
from tpsim.answers.grid import grid
from tpsim.answers.hw import hw_list, hw_show, hw_validate
from tpsim.answers.model import model_list, model_show
from tpsim.answers.scenario import scenario_list
from tpsim.answers.schema import SchemaListResult, schema
from tpsim.calibrate.fit import hw_fit
from tpsim.calibrate.step_fit import hw_fit_runs
from tpsim.report.answer import DOCUMENT, Answer
from tpsim.report.formats import csv_text, json_text
from tpsim.report.record import plain

DATA = Path(__file__).parents[1] / "data"
LOG = DATA / "logs" / "all-reduce-8-debug.txt"
RUNS = DATA / "runs.csv"
"""A step of Korthikanti 2022, table 5."""
ANSWERS = {
    **{name: partial(output, name) for name in OUTPUTS},
    "an explanation": lambda: explain("per_layer.wire", "gpt3-175b-a100-tp8"),
    "names to explain": explain_list,
    "a machine": lambda: hw_show("dgx-h100"),
    "the machines": hw_list,
    "sound machines": hw_validate,
    "a model": lambda: model_show("llama-3-8b"),
    "the models": model_list,
    "the scenarios": scenario_list,
    "a schema": lambda: schema("plan"),
    "the schemas": SchemaListResult,
    "a grid": lambda: grid("deepseek-v3-h100-decode", batches=[16384], contexts=[4096]),
    "a fit": lambda: hw_fit([str(LOG)], base="dgx-h100"),
    "a fit to steps": lambda: hw_fit_runs(RUNS, base="dgx-a100"),
}
PICTURES = {
    "PlanResult": ["Spans", "Spans", "Curves"],
    "CollectiveResult": ["Curves", "Curves"],
    "OverlayResult": ["Curves", "Curves"],
    "SearchResult": ["Curves"],
    "DiffResult": ["Spans", "Spans"],
}
"""What is drawn of each answer; of the others nothing."""


def kinds(parent=Answer):
    for kind in parent.__subclasses__():
        yield kind
        yield from kinds(kind)


@pytest.fixture(scope="module")
def shown():
    return [ask() for ask in ANSWERS.values()]


def test_no_public_answer_is_left_out(shown):
    for module in pkgutil.walk_packages(tpsim.__path__, "tpsim."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    named = {kind for kind in kinds() if kind.__name__.endswith("Result")}
    sweeps = {kind for kind in named if kind.__name__ == "SweepResult"}  # needs an extra: tests/answers/test_sweep.py
    results = {
        value
        for name, module in sys.modules.items()
        if name.startswith("tpsim.")
        for word, value in vars(module).items()
        if word.endswith("Result") and isinstance(value, type)
    }
    assert results == named == {*map(type, shown), *sweeps}
    assert len(sweeps) == 1


def test_an_answer_prints_its_verdict_and_no_more(shown):
    for answer in shown:
        assert str(answer) == repr(answer) == answer.verdict
        assert len(str(answer)) < 1000


def test_a_notebook_shows_the_verdict_over_a_row_per_record(shown):
    for answer in shown:
        page = answer._repr_html_()
        assert page.count("<dd>") == len(answer.lines)
        assert page.count("<tr>") == (min(len(answer.records()), 200) + 1 if answer.records() else 0)


def test_a_notebook_shows_the_bars_of_the_verdict_and_plots_what_has_pictures(shown):
    drawn = {type(answer).__name__: [type(one).__name__ for one in answer.plot()] for answer in shown if answer.plot()}
    assert drawn == PICTURES
    for answer in shown:
        assert answer._repr_html_().count('class="bar"') == len(answer.bars)
        bundle = answer.plot()._repr_mimebundle_()
        assert len(bundle["application/vnd.vegalite.v5+json"]["vconcat"]) == len(answer.pictures)


def test_a_frame_has_the_records_and_a_document_is_plain_json(shown):
    for answer in shown:
        frame, records = answer.to_frame(), answer.records()
        assert len(frame) == len(records)
        assert not records or list(frame.columns) == list(records[0])
        document = answer.to_json()
        assert json.loads(json_text(document)) == json.loads(json.dumps(document)) == document


def test_a_frame_and_a_csv_of_no_rows_have_the_columns_of_rows():
    """One chip sends nothing: its CSV was an empty line, which pandas refuses; its frame had nothing to group by."""
    one, two = (tpsim.plan(model="gpt-tiny", hw="dgx-h100", seq=16, batch=2, dp=dp) for dp in (1, 2))
    none = tpsim.search(model="gpt-tiny", hw="dgx-h100", seq=16, batch=2, chips=2, overrides=["require.step=< 1 ns"])
    some = tpsim.search(model="gpt-tiny", hw="dgx-h100", seq=16, batch=2, chips=2)
    same = tpsim.diff("qwen2-7b-h100", "qwen2-7b-h100")
    for empty, full in ((one, two), (none, some), (same, tpsim.diff("qwen2-7b-h100", zero=3))):
        assert (len(empty.to_frame()), list(empty.to_frame())) == (0, list(full.to_frame()))
        assert csv_text(empty.records(), empty.columns).splitlines() == [",".join(full.to_frame())]
    assert one.to_frame().groupby("axis")["exposed_s"].sum().sum() == 0


@pytest.mark.parametrize(
    "ask",
    [
        partial(tpsim.plan, "llama3-70b-h100-zb-h1"),
        partial(tpsim.plan, "llama3-70b-h100-decode"),
        partial(tpsim.search, "qwen2-7b-h100", chips=32, vary=["zero=1"], recompute="none", top=2),
    ],
)
def test_an_answer_can_be_sent_from_a_worker_of_joblib_or_dask(ask):
    """They send by cloudpickle: a plan of stages could not be sent, a search broke where its best is close."""
    cloudpickle = pytest.importorskip("cloudpickle")
    answer, shown = ask(), ask()
    repr(shown)  # what is worked out by now is sent as well
    for sent in (answer, shown):
        came = cloudpickle.loads(cloudpickle.dumps(sent))
        assert came.verdict == answer.verdict
        assert json_text(came.to_json()) == json_text(answer.to_json())
    if hasattr(answer, "lowered"):
        assert answer.lowered.known
        assert not cloudpickle.loads(cloudpickle.dumps(answer.lowered)).known


def test_one_base_writes_every_document(shown):
    own = {kind.__name__ for kind in kinds() if "to_json" in vars(kind)}
    assert own == {"SchemaResult"}, "a JSON Schema is printed as it is, for editors"
    for answer in shown:
        if type(answer).__name__ not in own:
            document = answer.to_json()
            assert tuple(document) == DOCUMENT
            assert document["result"] == plain(answer.result)
            assert [tuple(one.values()) for one in document["inputs"]] == list(answer.files)
