"""Every public answer prints as its verdict, and shows its rows in a notebook."""

from __future__ import annotations

import json
import pickle
import pkgutil
import subprocess
import sys
from functools import partial
from importlib import import_module
from io import BytesIO
from pathlib import Path

import pytest

import tpsim
from tests.answers.test_schema import OUTPUTS, output
from tpsim.answers.explain import explain, explain_list
from tpsim.answers.grid import grid
from tpsim.answers.hw import hw_list, hw_show, hw_validate
from tpsim.answers.model import model_list, model_show
from tpsim.answers.ranking import Ranking
from tpsim.answers.scenario import scenario_list
from tpsim.answers.schema import SchemaListResult, schema
from tpsim.calibrate.fit import hw_fit
from tpsim.calibrate.step_fit import hw_fit_runs
from tpsim.cost.clock import Clock
from tpsim.quantity.once import Once
from tpsim.question.memo import Lowered
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


SENT = {
    **ANSWERS,
    "a plan of stages": partial(tpsim.plan, "llama3-70b-h100-zb-h1"),
    "a plan of replies": partial(tpsim.plan, "llama3-70b-h100-decode"),
    "a plan of experts": partial(tpsim.plan, "deepseek-v3-h100"),
    "a search": partial(tpsim.search, "qwen2-7b-h100", chips=32, vary=["zero=1"], recompute="none", top=2),
    "a search of several": partial(
        tpsim.search, "qwen2-7b-h100", chips=32, vary=["zero=1"], recompute="none", top=2, workers=2
    ),
    "a search in vain": partial(tpsim.search, "llama3-8b-v5e", chips=4, tp=1, zero=0),
}


@pytest.mark.parametrize("asked", SENT)
def test_an_answer_can_be_sent_from_another_process(asked):
    """A plan held functions that can be called here alone, which pickle refuses, and so did searches and curves."""
    answer, shown = SENT[asked](), SENT[asked]()
    repr(shown)
    _ = shown.pictures  # what is worked out by now is sent as well
    for sent in (answer, shown):
        came = pickle.loads(pickle.dumps(sent))  # noqa: S301  # our own
        assert came.lines == answer.lines
        assert json_text(came.to_json()) == json_text(answer.to_json())
        assert plain(came.pictures) == plain(answer.pictures)


class Seen(pickle.Pickler):
    """Collects what is sent of some classes."""

    def __init__(self, *classes):
        super().__init__(BytesIO())
        self.classes, self.found = classes, []

    def persistent_id(self, sent):
        self.found += [sent] if isinstance(sent, self.classes) else []


def test_what_is_known_by_where_it_lies_in_memory_is_not_sent():
    """Something else lies there where it is sent to."""
    plan, found = SENT["a plan of stages"](), SENT["a search"]()
    repr(plan), repr(found)
    seen = Seen(Once, Clock, Lowered, Ranking)
    seen.dump((plan, found))
    for kind, known in {Once: "_known", Clock: "_timed", Lowered: "known", Ranking: "known"}.items():
        several = [one for one in seen.found if isinstance(one, kind)]
        assert any(getattr(one, known) for one in several)
        assert not any(one.__getstate__()[known] for one in several)
    came = pickle.loads(pickle.dumps(plan.memo))  # noqa: S301
    assert (plan.memo.programs != {}, came.programs, came.machines) == (True, {}, plan.memo.machines)
    assert not any({"_calls", "_firsts"} & {*one.__getstate__()} for one in seen.found if isinstance(one, Clock))


SENDER = "import pickle, sys; from tests.report.test_answer import SENT; asked = SENT[sys.argv[1]](); "
SENDER += "repr(asked) if sys.argv[2:] else None; pickle.dump(asked, sys.stdout.buffer)"


@pytest.mark.parametrize("shown", [(), ("shown",)])
@pytest.mark.parametrize("asked", ["a plan of stages", "a search in vain", "a search of several"])
def test_an_answer_that_another_process_sent_says_what_one_of_this_process_says(asked, shown):
    """Nothing is known by where it lies in memory: what lies there here is something else."""
    sender = [sys.executable, "-c", SENDER, asked, *shown]
    sent = subprocess.run(sender, capture_output=True, check=True, cwd=DATA.parents[1]).stdout
    came, answer = pickle.loads(sent), SENT[asked]()  # noqa: S301
    assert json_text(came.to_json()) == json_text(answer.to_json())
    assert plain(came.pictures) == plain(answer.pictures)


def test_workers_of_joblib_and_dask_send_answers_too():
    cloudpickle = pytest.importorskip("cloudpickle")
    answer = SENT["a plan of stages"]()
    assert json_text(cloudpickle.loads(cloudpickle.dumps(answer)).to_json()) == json_text(answer.to_json())


def test_one_base_writes_every_document(shown):
    own = {kind.__name__ for kind in kinds() if "to_json" in vars(kind)}
    assert own == {"SchemaResult"}, "a JSON Schema is printed as it is, for editors"
    for answer in shown:
        if type(answer).__name__ not in own:
            document = answer.to_json()
            assert tuple(document) == DOCUMENT
            assert document["result"] == plain(answer.result)
            assert [tuple(one.values()) for one in document["inputs"]] == list(answer.files)
