"""`tpsim collective --measured LOG`: what was measured beside what is predicted, at the sizes of the log."""

from __future__ import annotations

import csv
import json
import shlex
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import pytest

from tpsim.answers.collective import collective
from tpsim.answers.hw import hw_validate
from tpsim.calibrate.fit import hw_fit
from tpsim.calibrate.logs import read
from tpsim.calibrate.overlay import measured_collective
from tpsim.cli.main import run
from tpsim.pages.collective import measured_page
from tpsim.quantity.errors import InputError
from tpsim.report.table import as_text

LOGS = Path(__file__).parents[1] / "data" / "logs"
TABLE, FOUR, JSON, OSU, HOSTS = (
    LOGS / name
    for name in (
        "all-reduce-8-debug.txt",
        "four-collectives-8.txt",
        "reduce-scatter-4.json",
        "osu.txt",
        "all-gather-4-mpi-2.11.txt",
    )
)


def refusal(name, **asked):
    with pytest.raises(InputError) as error:
        measured_collective(name, **asked)
    return error.value.problems[0]


def test_every_point_of_the_log_is_a_row_with_its_ratio(island):
    result = measured_collective("all-reduce", hw=island, ranks=8, log=TABLE)
    (measured,) = read(TABLE)
    assert tuple(row["logical_bytes"] for row in result.rows) == measured.V
    assert tuple(row["measured_s"] for row in result.rows) == measured.seconds
    last = result.rows[-1]
    assert last["predicted_over_measured"] == pytest.approx(last["time_s"] / 5216.45e-6)
    assert last["measured_busbw_bytes_per_s"] == pytest.approx(360.22e9, rel=1e-3)


def test_predictions_are_those_of_the_collective_at_these_sizes(island):
    result = measured_collective("all-gather", hw=island, ranks=8, log=FOUR)
    sizes = [row["logical_bytes"] for row in result.rows]
    plain = collective("all-gather", hw=island, ranks=8, sizes=sizes, launch="threads")
    assert [row["time_s"] for row in result.rows] == [row["time_s"] for row in plain.rows]


def test_an_all_to_all_is_taken_by_the_whole_array(island):
    first = measured_collective("all_to_all", hw=island, ranks=8, log=FOUR).rows[0]
    assert (first["buffer_bytes"], first["logical_bytes"]) == (4096, 8 * 4096)


def test_the_launch_of_the_log_is_taken_and_said(island):
    graph = LOGS / "all-reduce-8-rccl.txt"
    result = measured_collective("all-reduce", hw=island, ranks=8, log=graph)
    assert {row["launch_s"] for row in result.rows} != {
        row["launch_s"] for row in measured_collective("all-reduce", hw=island, ranks=8, log=TABLE).rows
    }
    notes = [one.text for one in result.assumptions]
    assert "predicted with the launch of the log: graph" in notes
    assert any("measured in place only" in text for text in notes)


def test_a_launch_that_the_machine_does_not_know_is_said(island):
    notes = measured_collective("all-reduce", hw=island, ranks=8, log=OSU).run.warnings
    assert notes == ("island knows no launch of osu: predicted with its default one",)


def test_a_launch_can_be_given_instead(island):
    result = measured_collective("all-reduce", hw=island, ranks=8, log=OSU, launch=20e-6)
    assert result.run.warnings == ("predicted with the launch 20 us",)
    assert result.rows[0]["launch_s"] >= 20e-6


def test_a_launch_of_no_time_is_one_that_was_given(island):
    result = measured_collective("all-reduce", hw=island, ranks=8, log=TABLE, launch=0.0)
    assert result.run.warnings == ("predicted with the launch 0 s",)
    plain = collective("all-reduce", hw=island, ranks=8, sizes=list(result.run.V), launch=0.0)
    assert [row["time_s"] for row in result.rows] == [row["time_s"] for row in plain.rows]


def test_a_forced_algorithm_is_that_of_the_prediction(island):
    result = measured_collective("reduce-scatter", hw=island, ranks=4, log=JSON)
    assert {row["algorithm"] for row in result.rows} == {"ring"}


def test_the_book_predicts_without_a_choice(island):
    result = measured_collective("reduce-scatter", hw=island, ranks=4, log=JSON, cost_model="book")
    assert {row["launch_s"] for row in result.rows} == {0}


def test_a_log_without_that_run_says_what_it_holds(island):
    problem = refusal("all-reduce", hw=island, ranks=4, log=FOUR)
    assert problem.message == f"{FOUR} holds no all_reduce over 4 ranks"
    assert problem.note.startswith("it holds all_gather over 8 ranks, reduce_scatter over 8 ranks")


def test_runs_made_in_several_ways_are_not_mixed(island, tmp_path):
    table = TABLE.read_text(encoding="utf-8")
    both = tmp_path / "both.txt"
    both.write_text(table + table.replace("graph: 0", "graph: 1"), encoding="utf-8")
    problem = refusal("all-reduce", hw=island, ranks=8, log=both)
    assert (problem.slug, problem.remedy) == ("several-ways", "give --launch threads")
    assert len(measured_collective("all-reduce", hw=island, ranks=8, log=both, launch="graph").rows) == 11


def test_a_run_on_hosts_is_laid_where_its_fit_lays_it(island):
    assert refusal("all-gather", hw=island, ranks=4, log=HOSTS).slug == "unknown-placement"
    apart = measured_collective("all-gather", hw=island, ranks=4, log=HOSTS, level="port,card")
    assert apart.predicted.route == "port 2 x card 2"
    assert [run.route for run in hw_fit([HOSTS], base=island, level="port,card").calibrated.runs] == [
        apart.predicted.placement.route(["ranks"])
    ]
    assert measured_collective("all-gather", hw=island, ranks=4, log=HOSTS, level="port").predicted.route == "port 4"


def test_whatever_a_fit_was_asked_of_the_command_after_it_lays_beside_the_machine(island, capsys):
    assert run(["hw", "fit", str(HOSTS), "--base", island, "--level", "port,card", "-o", "mine.yaml"]) == 0
    after = capsys.readouterr().out.splitlines()[-1].removeprefix("next: tpsim ").split()
    assert run(after) == 0
    assert "ranks on  port 2 x card 2" in capsys.readouterr().out


def test_the_command_after_a_fit_that_wrote_nothing_writes_it(island, capsys):
    """It held the log against the base, which knew nothing of the fit."""
    asked = ["hw", "fit", str(HOSTS), "--base", island, "--level", "port,card", "--name", "mine"]
    assert run(asked) == 0
    after = capsys.readouterr().out.splitlines()[-1].removeprefix("next: tpsim ").split()
    assert (sorted(after), after[-2:]) == (sorted([*asked, "-o", "mine.yaml"]), ["-o", "mine.yaml"])
    assert run(after) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1].startswith("next: tpsim collective all-gather --hw mine.yaml --ranks 4 ")
    assert hw_validate(["mine.yaml"]).ok


def test_the_command_after_a_fit_to_standard_input_does_not_wait_for_it_again(island, capsys, monkeypatch):
    text = BytesIO(Path(HOSTS).read_bytes())
    monkeypatch.setattr("sys.stdin", TextIOWrapper(text))
    assert run(["hw", "fit", "-", "--base", island, "--level", "port,card", "-o", "mine.yaml"]) == 0
    after = capsys.readouterr().out.splitlines()[-1]
    assert after == "next: tpsim collective all-gather --hw mine.yaml --ranks 4 --level port,card"


def after(island, log, capsys):
    """The command that follows a log laid over a prediction, as words."""
    assert run(["collective", "all-reduce", "--hw", island, "--ranks", "8", "--measured", str(log)]) == 0
    return shlex.split(capsys.readouterr().out.splitlines()[-1])[2:]


@pytest.mark.parametrize("kept", ["# Rank", "OSU"])
def test_the_command_after_a_log_that_does_not_say_its_ranks_says_them(island, tmp_path, capsys, kept):
    """It was refused: nothing said how many ranks took part."""
    log = tmp_path / "log.txt"
    rows = "".join(f"{size:12}  {20 + size / 1e5:.2f}\n" for size in (4, 1024, 2**20, 2**24))
    text = f"# OSU MPI Allreduce Latency Test v7.0\n# Size  Avg Latency(us)\n{rows}"
    plain = "".join(line for line in TABLE.read_text("utf-8").splitlines(keepends=True) if "Rank" not in line)
    log.write_text(text if kept == "OSU" else plain, encoding="utf-8")
    words = after(island, log, capsys)
    assert words[-4:] == ["--collective", "all-reduce", "--ranks", "8"]
    assert run(words) == 0


def test_the_command_after_a_log_that_a_machine_was_fitted_to_does_not_fit_it_again(island, capsys):
    assert run(["hw", "fit", str(TABLE), "--base", island, "-o", "mine.yaml", "-q"]) == 0
    capsys.readouterr()
    assert after("mine.yaml", TABLE, capsys)[:2] == ["explain", "all_reduce"]


def test_the_command_after_a_log_on_standard_input_does_not_name_it(island, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(TABLE.read_bytes())))
    assert run(["collective", "all-reduce", "--hw", island, "--ranks", "8", "--measured", "-"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("predicted/measured: ")


def test_the_sizes_that_a_curve_was_measured_at_can_be_asked_for(island, tmp_path):
    tiny = tmp_path / "tiny.txt"
    rows = "".join(f"{size:12} {30 + size:12} {30 + size:12} {30 + size:12} {100:12}\n" for size in (1, 2, 64))
    head = (
        "# OSU MPI Allgather Latency Test v7.0\n# Size  Avg Latency(us)  Min Latency(us)  Max Latency(us)  Iterations\n"
    )
    tiny.write_text(head + rows, encoding="utf-8")
    fitted = hw_fit([tiny], base=island, ranks=8, collective="all-gather")
    (tmp_path / "mine.yaml").write_text(fitted.to_yaml(), encoding="utf-8")
    mine = collective("all-gather", hw=str(tmp_path / "mine.yaml"), ranks=8, sizes=[8, 16])
    assert [row["logical_bytes"] for row in mine.rows] == [8, 16]
    with pytest.raises(InputError, match="less than one element for each of 8 ranks"):
        collective("all-gather", hw=island, ranks=8, sizes=[8, 16])


# Command line ----------------------------------------------------------------------------------------------------


def test_the_table_shows_both_and_the_verdict_how_near_they_are(island, capsys):
    assert run(["collective", "all-reduce", "--hw", island, "--ranks", "8", "--measured", str(TABLE)]) == 0
    lines = capsys.readouterr().out.splitlines()
    header = next(at for at, line in enumerate(lines) if "predicted /" in line)
    assert lines[header + 1].split()[:4] == ["MB", "us", "us", "measured"]
    assert lines[header + 2].split()[:2] == ["0.001024", "26.59"]
    assert lines[-2].startswith("predicted/measured: median ")
    assert lines[-1] == f"next: tpsim hw fit {TABLE} --base island.yaml"


def test_verbose_shows_what_the_predictions_are_made_of(island, capsys):
    assert run(["collective", "all-reduce", "--hw", island, "--ranks", "8", "--measured", str(TABLE), "-v"]) == 0
    assert "what the predictions are made of" in capsys.readouterr().out


def test_json_and_csv_hold_the_ratio(island, capsys):
    words = ["collective", "all-reduce", "--hw", island, "--ranks", "8", "--measured", str(TABLE), "-f"]
    assert run([*words, "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["inputs"][-1]["path"] == str(TABLE)
    assert document["resolved"]["measured"] == str(TABLE)
    assert document["resolved"]["launch"] == "threads"
    assert run([*words, "csv"]) == 0
    rows = list(csv.DictReader(StringIO(capsys.readouterr().out)))
    ratios = [row["predicted_over_measured"] for row in document["result"]["rows"]]
    assert [float(row["predicted_over_measured"]) for row in rows] == ratios


@pytest.mark.parametrize("flag", [["--sizes", "1MB"], ["--buffer"]])
def test_sizes_cannot_be_asked_for_beside_a_log(island, capsys, flag):
    assert run(["collective", "all-reduce", "--hw", island, "--ranks", "8", "--measured", str(TABLE), *flag]) == 2
    assert f"{flag[0]} has no meaning beside --measured: the sizes are the log's" in capsys.readouterr().err


def test_what_was_measured_and_what_is_predicted_have_one_unit(tmp_path):
    """4 bytes took 0.57 MB/s beside a prediction in kB/s."""
    rows = ["4 12.34", "8 12.35", "1048576 512.35"]
    log = tmp_path / "osu.txt"
    title = "$ mpirun -np 8 osu_allreduce\n# OSU MPI-CUDA Allreduce Latency Test v7.3\n# Size       Avg Latency(us)\n"
    log.write_text(title + "\n".join(rows) + "\n", encoding="utf-8")
    result = measured_collective("all-reduce", hw="dgx-h100", ranks=8, log=log)
    (table, *_) = measured_page(result, verbose=False).tables
    text = as_text(table)
    assert [unit for header, unit in zip(text.headers, text.units, strict=True) if "busbw" in header] == ["MB/s"] * 2
