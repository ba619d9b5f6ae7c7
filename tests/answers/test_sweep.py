"""Sweeps: every combination is searched once, kept as it comes, and the same however many search."""

from __future__ import annotations

import errno
import os
import signal
from importlib import import_module

import pytest

from tpsim.answers.cell import CODE, COLUMNS, SERVED, Cell, cells, source
from tpsim.answers.search import search
from tpsim.answers.sweep import SweepResult, extra, sweep
from tpsim.answers.verdict import percent
from tpsim.cli.main import run
from tpsim.layouts.layout import Layout
from tpsim.pages.search import page, sweep_page
from tpsim.quantity.errors import InputError
from tpsim.question.memo import Memo
from tpsim.report.formats import write_parquet

EFFICIENCIES = ",".join(f"0.{percent}" for percent in range(40, 65))
VARY = ["zero=0,1", "microbatches=1,2", "hardware=dgx-h100,dgx-a100", f"assume.matmul_efficiency={EFFICIENCIES}"]
CELLS = 200
ASKED = {"model": "gpt-tiny", "seq": 16, "batch": 8, "chips": 2, "tp": 1, "pp": 1, "recompute": "none"}


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A sweep in this process."""
    pytest.importorskip("pyarrow")
    return sweep(folder=tmp_path_factory.mktemp("swept"), vary=VARY, top=30, **ASKED)


def test_every_combination_of_varied_values_is_a_cell():
    assert list(cells(["zero=0,1,0", "microbatches", "seq=8"])) == [
        ("zero=0", "microbatches", "seq=8"),
        ("zero=1", "microbatches", "seq=8"),
    ]
    assert list(cells(["pipeline.layers=[1,3],[2,2]"])) == [("pipeline.layers=[1,3]",), ("pipeline.layers=[2,2]",)]


def test_the_best_of_all_cells_are_those_of_one_search(swept):
    found = search(vary=VARY, top=30, **ASKED)
    assert [row["step_s"] for row in swept.rows] == [row.step_s for row in found.rows]
    assert (swept.cells, swept.considered, swept.legal) == (CELLS, found.considered, found.legal)
    assert swept.rows[0]["hardware"] == found.best.varied["hardware"] == "dgx-h100"


def test_what_is_kept_is_read_by_pandas(swept):
    import pandas as pd

    frame = pd.read_parquet(swept.paths[0].parent)
    assert len(frame) == CELLS
    assert frame["step_s"].min() == swept.rows[0]["step_s"]


def test_a_sweep_that_is_started_again_searches_only_what_is_missing(swept):
    before = {path: path.stat().st_mtime_ns for path in swept.paths}
    swept.paths[3].unlink()
    told = []
    again = sweep(folder=swept.paths[0].parent, vary=VARY, top=30, progress=lambda *of: told.append(of[:2]), **ASKED)
    assert (again.made, told, again.paths, again.rows) == (1, [(0, 1), (1, 1)], swept.paths, swept.rows)
    assert [path for path in swept.paths if path.stat().st_mtime_ns != before[path]] == [swept.paths[3]]


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")

    def full(_, file):
        file.write_bytes(b"PAR1")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(parquet, "write_table", full)
    with pytest.raises(OSError, match="No space left"):
        write_parquet(tmp_path / "cell.parquet", [], {"step_s": "double"}, {})
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_room_is_named_and_nothing_that_was_searched_is_lost(tmp_path, monkeypatch):
    """The command line said that stdout had no room."""
    pytest.importorskip("pyarrow")
    asked = {**ASKED, "hw": "dgx-h100", "folder": tmp_path, "vary": ["zero=0,1"]}

    def full(path, *told):
        if list(tmp_path.iterdir()):
            raise OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left on device")
        write_parquet(path, *told)

    with monkeypatch.context() as patch:
        patch.setattr("tpsim.answers.sweep.write_parquet", full)
        with pytest.raises(InputError) as error:
            sweep(**asked)
    (problem,) = error.value.problems
    assert (problem.slug, problem.message) == ("cannot-write", f"{tmp_path}: No space left on device")
    assert sweep(**asked).made == 1


@pytest.mark.parametrize("within", ["", "runs"])
def test_a_file_in_the_place_of_the_folder_is_said_to_be_one(tmp_path, within):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(InputError, match=r"cannot be a folder: there is a file of that name"):
        sweep(hw="dgx-h100", folder=tmp_path / "notes.txt" / within, vary=["zero=0,1"], **ASKED)


@pytest.mark.parametrize("left", [100, 0])
def test_a_cell_whose_file_broke_off_is_searched_again(left, swept):
    whole = swept.paths[3].read_bytes()
    swept.paths[3].write_bytes(whole[:left])
    again = sweep(folder=swept.paths[0].parent, vary=VARY, top=30, **ASKED)
    assert (again.made, again.rows, swept.paths[3].read_bytes()) == (1, swept.rows, whole)


def test_a_table_of_something_else_by_the_name_of_a_cell_is_none(swept):
    import pandas as pd

    whole = swept.paths[3].read_bytes()
    pd.DataFrame({"a": [1]}).to_parquet(swept.paths[3])
    again = sweep(folder=swept.paths[0].parent, vary=VARY, top=30, **ASKED)
    assert (again.made, again.rows, swept.paths[3].read_bytes()) == (1, swept.rows, whole)


def test_a_cell_has_another_name_once_any_code_is_another(monkeypatch, tmp_path):
    cell = Cell(None, (), (), {"hw": "dgx-h100", **ASKED}, "step", 1, 1)
    name = cell.key(Memo())
    assert cell.key(Memo()) == name
    monkeypatch.setattr("tpsim.answers.cell.source", lambda folder: source(folder) + " and one more line")
    assert cell.key(Memo()) != name
    for at, code in enumerate(("x = 1", "x = 2")):
        (tmp_path / str(at)).mkdir()
        (tmp_path / str(at) / "cost.py").write_text(code)
    assert len({source(CODE), source(tmp_path / "0"), source(tmp_path / "1")}) == 3


def test_a_sweep_of_the_command_line_is_not_searched_again_in_python(tmp_path, capsys):
    """There a size is text, and here a number: both asked, and kept, the same in files of two names."""
    pytest.importorskip("pyarrow")
    words = "--model gpt-tiny --hw dgx-h100 --seq 16 --batch 8 --chips 2 --tp 1 --pp 1 --recompute none --no-sp"
    assert run(["search", *words.split(), "--vary", "zero=0,1", "--sweep", str(tmp_path), "-q"]) == 0
    capsys.readouterr()
    again = sweep(folder=tmp_path, hw="dgx-h100", sp=False, vary=["zero=0,1"], **ASKED)
    assert (again.made, again.cells, len(list(tmp_path.iterdir()))) == (0, 2, 2)
    assert sweep(folder=tmp_path, hw="dgx-h100", sp=False, vary=["zero=0,1"], **{**ASKED, "batch": 16}).made == 2


def test_values_that_are_numbers_are_kept_as_numbers(tmp_path):
    pytest.importorskip("pyarrow")
    import pandas as pd

    asked = {**ASKED, "chips": None, "hw": "dgx-h100", "seq": None, "by": "tokens_per_s"}
    varied = ["chips=2,4", "assume.matmul_efficiency=0.5,1", "workload.seq=8,16", "practice=megatron,fsdp2"]
    found = sweep(folder=tmp_path, vary=varied, **asked)
    frame = pd.read_parquet(tmp_path)
    paths = ("chips", "assume.matmul_efficiency", "workload.seq", "practice")
    assert [frame[path].dtype.kind for path in paths] == ["i", "f", "i", "O"]
    assert {frame["chips"].max(), frame["practice"].min()} == {4, "fsdp2"}
    assert found.rows[0]["chips"] in (2, 4)


def test_a_map_that_is_varied_is_told_as_a_scenario_writes_it(tmp_path):
    pytest.importorskip("pyarrow")
    asked = {**ASKED, "hw": "dgx-h100", "vary": ["practice={base: megatron}", "zero=1"]}
    found, alone = sweep(folder=tmp_path, **asked), search(**asked)
    assert found.rows[0]["practice"] == "{base: megatron}"
    assert found.lines[0] == alone.lines[0]
    assert alone.lines[0].text.startswith("practice {base: megatron}, tp 1, ")
    assert alone.best.varied == {"practice": {"base": "megatron"}}
    assert page(alone, verbose=False).tables[0].rows[0]["practice"] == "{base: megatron}"


def test_what_a_sweep_is_made_of_is_told_and_asked_for_again(tmp_path):
    """Its best is the one that a search of the cell by itself finds, as its next command asks."""
    pytest.importorskip("pyarrow")
    machines = "hardware=dgx-h100,dgx-a100"
    found = sweep(folder=tmp_path, vary=[machines, "zero=0,1"], overrides=["assume.matmul_efficiency=0.6"], **ASKED)
    alone = search(vary=[machines, "zero=0,1"], overrides=["assume.matmul_efficiency=0.6"], **ASKED)
    assert found.lines[:2] == alone.lines[:2]
    zero = alone.best.zero
    assert found.to_save == (
        "tpsim search --model gpt-tiny --seq 16 --batch 8 --chips 2 --tp 1 --pp 1 --recompute none "
        f"--set assume.matmul_efficiency=0.6 --vary hardware=dgx-h100 --vary zero={zero} --top 1 --save best.yaml"
    )
    again = search(vary=["hardware=dgx-h100", f"zero={zero}"], overrides=["assume.matmul_efficiency=0.6"], **ASKED)
    assert again.best.step_s == found.rows[0]["step_s"]
    machines_read = {path for path, _ in found.files if path.startswith("hardware/")}
    assert machines_read == {"hardware/dgx-h100.yaml", "hardware/dgx-a100.yaml"}
    assert sweep_page(found, verbose=False).next_command == found.to_save


def test_the_best_that_surely_fits_is_named_where_the_best_is_too_close_to_say(tmp_path):
    pytest.importorskip("pyarrow")
    asked = {"scenario": "qwen2-7b-h100", "by": "tokens_per_s", "overrides": ["recompute=none"]}
    asked["vary"] = ["chips=16,32", "zero=1", "sp", "tp=2,4", "pp=1", "cp=1"]
    found, alone = sweep(folder=tmp_path, **asked), search(**asked)
    assert found.rows[0]["fits"] is alone.best.fits is None
    assert [line.label for line in found.lines] == ["best", "memory", "surely", "space"]
    assert found.lines[:3] == alone.lines[:3]
    assert (found.close, found.fitting) == (alone.close, alone.fitting)
    assert f"{found.fitting} fit ({found.close} of these too close to say); no other" in found.lines[3].text
    table = sweep_page(found, verbose=False).tables[0]
    assert [row["rate"] for row in table.rows] == [pytest.approx(256 * 4096 / row["step_s"]) for row in table.rows]


def test_columns_of_a_sweep_are_those_of_a_search(tmp_path):
    pytest.importorskip("pyarrow")
    asked = {"scenario": "qwen2-7b-h100", "vary": ["chips=16", "pp=2", "zero=1"], "top": 3}
    of_sweep, of_search = (
        sweep_page(sweep(folder=tmp_path, **asked), verbose=False),
        page(search(**asked), verbose=False),
    )
    heads = [[column.header for column in made.tables[0].columns] for made in (of_sweep, of_search)]
    assert "layers" in heads[0]
    assert [head for head in heads[0] if head in heads[1]] == heads[1][:-1]
    assert {*heads[0]} - {*heads[1]} == {"compute", "exposed", "bubble"}


def test_a_cell_without_a_layout_says_why(tmp_path):
    pytest.importorskip("pyarrow")
    found = sweep(folder=tmp_path, vary=["microbatches=1,3"], hw="dgx-h100", **ASKED)
    assert [one["vary"] for one in found.empty] == [["microbatches=3"]]
    assert found.empty[0]["why"].startswith("no layout is legal: ")
    assert (found.cells, len(found.rows)) == (2, 4)


def test_a_sweep_that_ends_early_says_how_near_it_came(tmp_path):
    pytest.importorskip("pyarrow")
    machines = ("dgx-h100", "dgx-a100")
    asked = {"folder": tmp_path, "vary": [f"hardware={','.join(machines)}"], **ASKED}
    whole, early = sweep(**asked), sweep(plans=1, **asked)
    assert (whole.complete, whole.gap) == (True, 0)
    assert whole.verdict.endswith(" fit; no other can be better")
    least = min(search(hw=machine, plans=1, **ASKED).ranked.open_at for machine in machines)
    assert (early.complete, early.gap) == (False, pytest.approx(1 - least / early.rows[0]["value"]))
    assert early.verdict.endswith(f" fit; within {percent(early.gap)} of the best")
    none = sweep(plans=1, overrides=["require.bubble=> 1 %"], **asked)
    assert (none.rows, none.gap, none.complete) == ([], 0, False)


def test_what_the_best_is_required_to_be_is_held_of_the_best_of_all_cells(tmp_path):
    pytest.importorskip("pyarrow")
    asked = {"folder": tmp_path, "hw": "dgx-h100", "vary": ["zero=0,1"], **ASKED}
    best = sweep(**asked).rows[0]["zero"]
    held, violated = (sweep(overrides=[f"require.best={{zero: {zero}, tp: 1}}"], **asked) for zero in (best, 1 - best))
    assert (held.ok, violated.ok) == (True, False)
    assert [(line.text, line.ok) for line in held.lines[-2:]] == [
        ("best tp 1 holds", True),
        (f"best zero {best} holds", True),
    ]
    assert (violated.lines[-1].text, violated.lines[-1].ok) == (f"best zero {1 - best} is violated: {best}", False)


def test_a_layout_of_a_sweep_that_is_too_close_to_say_is_marked():
    row = {**dict.fromkeys(COLUMNS, 1), "layers": "even"}
    rows = [{**row, "rank": rank, "fits": fits} for rank, fits in enumerate((True, None), 1)]
    for some, told in ((rows, True), (rows[:1], False)):
        found = SweepResult("step", 2, (), 0, {})
        found.__dict__["rows"], found.__dict__["by_cell"] = some, [(some, {"vary": [], "why": ""})]
        (table,) = sweep_page(found, verbose=False).tables
        assert any(column.key == "fit" for column in table.columns) == told
        assert not any(column.key == "price" for column in table.columns)
    assert [row["fit"] for row in table.rows] == ["yes"]
    dear = SweepResult("money", 2, (), 0, {})
    dear.__dict__["rows"] = [{**rows[0], "value": 2e-7}]
    dear.__dict__["by_cell"] = [(dear.rows, {"vary": [], "why": ""})]
    (table,) = sweep_page(dear, verbose=False).tables
    assert [row["price"] for row in table.rows] == [pytest.approx(0.2)]
    assert any(column.key == "price" for column in table.columns)


def test_dask_finds_the_same_though_a_worker_is_killed_on_the_way(swept, tmp_path):
    distributed = pytest.importorskip("distributed")
    pytest.importorskip("joblib")
    killed = []

    def progress(done, _cells, _seconds):
        if done == CELLS // 2:
            killed.append(next(iter(cluster.workers.values())).pid)
            os.kill(killed[0], signal.SIGKILL)

    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "silence_logs": 50}
    with distributed.LocalCluster(**options) as cluster:
        found = sweep(folder=tmp_path, vary=VARY, top=30, dask=cluster.scheduler_address, progress=progress, **ASKED)
    assert len(killed) == 1
    assert (found.made, found.rows) == (CELLS, swept.rows)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"scenario": "-"}, "a sweep reads its scenario once per cell, and stdin can be read once"),
        ({"workers": 0}, "0 workers search nothing"),
        ({"by": "beauty"}, '"beauty" is not a measure'),
        ({"top": 0}, "a search lists and plans at least one layout"),
        ({"plans": 0}, "a search lists and plans at least one layout"),
        ({"vary": ["seq=8,16"], "seq": None}, "steps are not the same work where their tokens or their models differ"),
    ],
)
def test_what_cannot_be_swept_is_refused(asked, message, tmp_path):
    with pytest.raises(InputError) as error:
        sweep(**{"folder": tmp_path, "hw": "dgx-h100", **ASKED, **asked})
    assert error.value.problems[0].message == message


def test_a_sweep_of_inference_keeps_what_is_told_of_serving(tmp_path):
    pytest.importorskip("pyarrow")
    asked = {"hw": "dgx-h100", "model": "mixtral-8x7b", "chips": 8, "batch": 64, "by": "tokens_per_s"}
    work = ["workload.kind=serve", "workload.output=64"]
    swept = sweep(folder=tmp_path, vary=["workload.prompt=256,512"], overrides=work, top=5, **asked)
    found = search(vary=["workload.prompt=256,512"], overrides=work, top=5, **asked)
    assert [{name: row[name] for name in SERVED} for row in swept.rows] == [
        {name: getattr(row, name) for name in SERVED} for row in found.rows
    ]
    (table,) = sweep_page(swept, verbose=False).tables
    keys = [column.key for column in table.columns]
    assert {"workload.prompt", "ep_over", "cache", "ttft_s", "tpot_s"} <= {*keys}
    assert not {"zero", "mfu", "batch", "microbatches"} & {*keys}


def test_an_extra_that_is_missing_is_named():
    assert extra("json", "cluster") is import_module("json")
    with pytest.raises(InputError) as error:
        extra("no_such_module", "cluster")
    assert str(error.value) == (
        "error[missing-extra]: a sweep needs no_such_module, which is not installed\n  = pip install 'tpsim[cluster]'"
    )


def test_every_field_of_a_layout_is_kept():
    assert {*Layout._fields} - {"over_tp"} | {"ep_over"} <= {*COLUMNS, *SERVED}
