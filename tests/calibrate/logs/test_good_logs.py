"""Logs that can be trusted are read as they stand: whose run, which sizes, which times, on which lines."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tpsim.calibrate.logs import read
from tpsim.calibrate.logs.log import load, logical
from tpsim.calibrate.run import MeasuredRun

LOGS = Path(__file__).parents[2] / "data" / "logs"


def one(name, **given):
    (measured,) = read(LOGS / name, **given)
    return measured


def written(tmp_path, text, name="log.txt"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def microseconds(measured):
    return [round(seconds * 1e6, 2) for seconds in measured.seconds]


def header(measured):
    """What a run says of itself, without its points and its file."""
    return replace(measured, V=(), seconds=(), lines=(), log="", sha256="", warnings=())


def test_rows_torn_by_debug_lines_are_put_together_again():
    measured = one("all-reduce-8-debug.txt")
    assert header(measured) == MeasuredRun("all_reduce", 8, nodes=1, library="nccl 2.27.3", launch="threads")
    assert tuple(1024 * 4**k for k in range(11)) == measured.V
    assert microseconds(measured)[:7] == [26.59, 26.74, 26.53, 27.46, 28.3, 31.93, 46.73]
    assert measured.warnings == ()


def test_every_point_knows_its_line():
    measured = one("all-reduce-8-debug.txt")
    lines = load(LOGS / "all-reduce-8-debug.txt").lines
    assert tuple(int(lines[line - 1].split()[0]) for line in measured.lines) == measured.V


def test_every_run_of_a_log_is_read():
    found = read(LOGS / "four-collectives-8.txt")
    assert [measured.kind for measured in found] == ["all_gather", "reduce_scatter", "all_to_all", "permute"]
    assert {len(measured.V) for measured in found} == {5}


@pytest.mark.parametrize(
    ("tool", "collective", "V"),
    [
        ("nccl-tests", "all_reduce", 1024),
        ("nccl-tests", "all_gather", 1024),
        ("nccl-tests", "reduce_scatter", 1024),
        ("nccl-tests", "all_to_all", 8 * 1024),
        ("nccl-tests", "permute", 8 * 1024),
        ("osu", "all_reduce", 1024),
        ("osu", "reduce_scatter", 1024),
        ("osu", "all_gather", 8 * 1024),
        ("osu", "all_to_all", 64 * 1024),
    ],
)
def test_a_printed_size_becomes_the_whole_array(tool, collective, V):
    assert logical(tool, collective, 1024, 8) == V


def test_an_all_to_all_counts_the_whole_array():
    all_to_all = read(LOGS / "four-collectives-8.txt")[2]
    assert all_to_all.V[:2] == (8 * 4096, 8 * 65536)


def test_the_layout_of_old_releases_and_the_prefixes_of_mpirun_are_read():
    measured = one("all-gather-4-mpi-2.11.txt")
    assert header(measured) == MeasuredRun("all_gather", 4, nodes=2, library="", launch="threads")
    assert microseconds(measured) == [11.87, 16.43, 151.56]


def test_results_measured_in_place_only_are_read_with_a_warning():
    measured = one("all-reduce-8-rccl.txt")
    assert header(measured) == MeasuredRun("all_reduce", 8, nodes=1, library="rccl", launch="graph")
    assert measured.warnings == (f"{measured.log}:16: measured in place only: taken as if out of place",)


def test_one_process_with_several_devices_is_a_harness_of_its_own(tmp_path):
    text = (LOGS / "all-reduce-8-rccl.txt").read_text(encoding="utf-8").replace("graph: 1", "graph: 0")
    (measured,) = read(written(tmp_path, text))
    assert measured.launch == "process"


def test_the_json_says_the_same_as_the_table():
    measured = one("reduce-scatter-4.json")
    assert header(measured) == MeasuredRun(
        "reduce_scatter", 4, nodes=1, library="nccl 2.27.3", launch="threads", algorithm="ring"
    )
    assert measured.V == (16384, 262144, 4194304, 67108864, 268435456)
    times = [row["out_of_place"]["time"] for row in json.loads(Path(measured.log).read_text())["results"]]
    assert list(measured.seconds) == [time * 1e-6 for time in times]


def test_a_process_of_several_devices_stands_once_in_the_json(tmp_path):
    data = json.loads((LOGS / "reduce-scatter-4.json").read_text(encoding="utf-8"))
    data["config"] |= {"nthreads": 2, "ngpus": 4, "devices": data["config"]["devices"][:2]}
    (measured,) = read(written(tmp_path, json.dumps(data), "two-by-eight.json"))
    assert (measured.ranks, measured.launch) == (16, "process")


def test_osu_tests_are_read_with_the_ranks_of_their_command_lines():
    found = read(LOGS / "osu.txt")
    assert [(one.kind, one.ranks, one.library, len(one.V)) for one in found] == [
        ("all_reduce", 8, "nccl", 7),
        ("all_to_all", 4, "mpi", 3),
        ("all_gather", 4, "mpi", 3),
        ("reduce_scatter", 4, "mpi", 3),
    ]
    assert found[1].V == (16 * 1024, 16 * 65536, 16 * 2**20)
    assert found[2].V == (4 * 1024, 4 * 65536, 4 * 2**20)
    assert microseconds(found[0])[0] == 39.19


def test_osu_on_buffers_of_the_host_is_read_with_a_warning(tmp_path):
    (measured,) = read(
        written(tmp_path, "# OSU MPI Allreduce Latency Test v7.5\n# Size  Avg Latency(us)\n8  2.5\n"), ranks=4
    )
    assert measured.ranks == 4
    assert "buffers in the hosts' memory" in measured.warnings[0]


def test_a_forced_algorithm_is_read_from_debug_lines(tmp_path):
    text = (LOGS / "all-reduce-8-debug.txt").read_text(encoding="utf-8")
    forced = text.replace("NCCL INFO Bootstrap :", "NCCL INFO NCCL_ALGO set by environment to NVLS.", 1)
    forced = forced.replace("NCCL_DEBUG=INFO", "NCCL_DEBUG=INFO NCCL_PROTO=Simple")
    (measured,) = read(written(tmp_path, forced))
    assert (measured.algorithm, measured.protocol) == ("in-switch", "simple")


@pytest.mark.parametrize(
    ("said", "algorithm", "inside"),
    [
        ("NVLSTree", "in-switch-tree", ""),
        ("CollNet", "in-network", ""),
        ("CollnetDirect", "in-network", "straight from each to each"),
        ("CollNetChain", "in-network", "along chains"),
    ],
)
def test_sums_in_a_network_are_called_by_their_names_and_what_is_only_near_is_said(tmp_path, said, algorithm, inside):
    text = (LOGS / "all-reduce-8-debug.txt").read_text(encoding="utf-8").replace("NCCL_DEBUG", f"NCCL_ALGO={said} A", 1)
    data = json.loads((LOGS / "reduce-scatter-4.json").read_text(encoding="utf-8")) | {"env": [f"NCCL_ALGO={said}"]}
    for log, name in ((text, "log.txt"), (json.dumps(data), "log.json")):
        (measured,) = read(written(tmp_path, log, name))
        assert measured.algorithm == algorithm
        remarks = [one.partition(": ")[2] for one in measured.warnings]
        wanted = f"{said} is taken for {algorithm}, but inside nodes NCCL then goes {inside}"
        assert remarks == ([wanted] if inside else [])


def test_the_collective_of_a_nameless_table_is_the_only_one_that_prints_such_columns(tmp_path):
    lines = (LOGS / "all-reduce-8-debug.txt").read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if "_perf" not in line)
    (measured,) = read(written(tmp_path, text))
    assert measured.kind == "all_reduce"


def test_a_collective_that_tpsim_does_not_price_is_read_as_such(tmp_path):
    text = (LOGS / "four-collectives-8.txt").read_text(encoding="utf-8").split("# Collective test concluded")[0]
    (measured,) = read(written(tmp_path, text.replace("all_gather_perf", "gather_perf")))
    assert (measured.kind, measured.priced) == ("gather", False)


def test_a_list_of_devices_that_was_too_long_to_print_is_counted_by_processes(tmp_path):
    text = (LOGS / "all-reduce-8-debug.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if "Rank  7" not in line]
    at = next(at for at, line in enumerate(lines) if "Rank  6" in line)
    lines[at] = lines[at][:40] + "..."
    (measured,) = read(written(tmp_path, "\n".join(lines)))
    assert measured.ranks == 8


def test_a_table_that_is_printed_several_times_is_one_run_with_a_remark(tmp_path):
    lines = (LOGS / "all-reduce-8-rccl.txt").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.lstrip()[:1].isdigit()]
    at = lines.index(rows[-1]) + 1
    text = "\n".join([*lines[:at], "# Testing 2 cycle.", *rows, *lines[at:]])
    (measured,) = read(written(tmp_path, text))
    assert len(measured.V) == 2 * len(rows)
    assert measured.warnings[-1].endswith(f"{len(rows)} sizes were measured again; every row counts")


def test_rows_of_no_bytes_are_left_out_with_a_remark(tmp_path):
    text = (LOGS / "all-gather-4-mpi-2.11.txt").read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if " 65536 " in line and "float" in line)
    empty = row.replace("       65536", "           0").replace(row.split()[5], "0.00").replace(row.split()[6], "0.00")
    (measured,) = read(written(tmp_path, text.replace(row, f"{empty}\n{row}")))
    assert measured.V == (65536, 2097152, 67108864)
    assert measured.warnings == (
        f"{measured.log}:13: 1 rows of 0 bytes left out: their sizes were below one element per rank",
    )


@pytest.mark.parametrize(
    "prefix",
    [
        *("[prterun-node-a-4100@1,0]<stdout>: ", "[1,0]<stdout>:", " 0: ", "12: ", "[0] ", "[rank0]: ", "[default0]:"),
        *("[pod/nccl-test-launcher-x7k2p/nccl] ", "[pod/nccl-0/main] 2026-05-01T12:34:56.000000001Z "),
        *("2026-05-01T12:34:56.123456789Z ", "2026-05-01T12:34:56.123456+02:00 ", "2026-05-01 12:34:56 "),
        *("[2026-05-01 12:34:56,123] ", "2026-05-01T12:34:56.123456789+00:00 stdout F ", "1777639000.123456 "),
        *("12:34:56 ", "[12:34:56.123] ", "May 01 12:34:56 ", "May  1 12:34:56 node-17 all_reduce_perf[4100]: "),
        *("Fri May  1 12:34:56 2026<stdout>:", "Fri May  1 12:34:56 2026[1,0]<stdout>:"),
        *("2026-05-01T12:34:56.123456789Z [1,0]<stdout>:", "2026-05-01T12:34:56Z  0: "),
    ],
)
@pytest.mark.parametrize(
    "name", ["all-reduce-8-debug.txt", "four-collectives-8.txt", "osu.txt", "reduce-scatter-4.json"]
)
def test_what_launchers_and_collectors_of_logs_put_before_a_line_does_not_matter(tmp_path, name, prefix):
    text = (LOGS / name).read_text(encoding="utf-8")
    tagged = read(written(tmp_path, "".join(f"{prefix}{line}".rstrip() + "\n" for line in text.splitlines())))
    plain = read(LOGS / name)
    assert [(header(run), run.V, run.seconds) for run in tagged] == [(header(run), run.V, run.seconds) for run in plain]


@pytest.mark.parametrize("name", ["four-collectives-8.txt", "all-reduce-8-rccl.txt"])
def test_the_host_that_pdsh_puts_before_a_line_does_not_matter(tmp_path, name):
    text = (LOGS / name).read_text(encoding="utf-8")
    tagged = read(written(tmp_path, "".join(f"node-17: {line}\n" for line in text.splitlines())))
    assert [(run.kind, run.library, run.V, run.seconds) for run in tagged] == [
        (run.kind, run.library, run.V, run.seconds) for run in read(LOGS / name)
    ]


@pytest.mark.parametrize("size", [2**20, 2**30, 2**34, 2**37])
def test_a_row_behind_a_host_is_seen_however_long_its_size_is(tmp_path, size):
    """nccl-tests pads sizes to 12 digits: from 1 GB on fewer than three spaces are left, and rows were left out."""
    row = f"{size:12d}  {size // 4:12d}     float     sum      -1  100.00  1.00  1.75       0"
    (line, _) = load(written(tmp_path, f"node-17: {row}\n")).lines
    assert line == row


def test_a_program_with_the_suffix_of_mpi_names_its_collective(tmp_path):
    text = (LOGS / "all-gather-4-mpi-2.11.txt").read_text(encoding="utf-8")
    assert read(written(tmp_path, text.replace("all_gather_perf", "all_gather_perf_mpi")))[0].kind == "all_gather"


@pytest.mark.parametrize("word", ["Ring", '"Ring"', "'Ring'"])
def test_a_forced_algorithm_may_stand_in_quotes(tmp_path, word):
    text = (LOGS / "all-reduce-8-debug.txt").read_text(encoding="utf-8")
    assert read(written(tmp_path, f"export NCCL_ALGO={word}\n{text}"))[0].algorithm == "ring"


def test_windows_line_ends_and_colours_do_not_matter(tmp_path):
    text = (LOGS / "all-reduce-8-rccl.txt").read_text(encoding="utf-8")
    path = tmp_path / "log.txt"
    path.write_bytes(text.replace("# Using", "\x1b[32m# Using\x1b[0m").replace("\n", "\r\n").encode())
    assert replace(read(path)[0], log="", sha256="", warnings=()) == replace(
        one("all-reduce-8-rccl.txt"), log="", sha256="", warnings=()
    )


# What is found around logs in reports and pipelines ---------------------------------------------------------------


def test_a_log_that_is_indented_is_read_as_well(tmp_path):
    text = (LOGS / "all-reduce-8-debug.txt").read_text(encoding="utf-8")
    (measured,) = read(written(tmp_path, "\n".join(f"    {line}" for line in text.splitlines())))
    assert (header(measured), microseconds(measured)) == (
        header(one("all-reduce-8-debug.txt")),
        microseconds(one("all-reduce-8-debug.txt")),
    )


def test_columns_after_the_figures_are_left_aside(tmp_path):
    text = (LOGS / "all-reduce-8-rccl.txt").read_text(encoding="utf-8")
    lines = [
        f"{line}     algo     proto   nchannels"
        if "#wrong" in line
        else f"{line}  Direct  SIMPLE  32"
        if "sum" in line
        else line
        for line in text.splitlines()
    ]
    assert microseconds(read(written(tmp_path, "\n".join(lines)))[0]) == microseconds(one("all-reduce-8-rccl.txt"))


def test_a_table_trimmed_to_results_out_of_place_is_not_taken_for_one_in_place(tmp_path):
    text = (LOGS / "all-reduce-8-rccl.txt").read_text(encoding="utf-8")
    (measured,) = read(written(tmp_path, text.replace("   in-place   ", "              ")))
    assert measured.warnings == ()


def test_devices_without_a_host_are_counted_and_hosts_are_not_known(tmp_path):
    text = (LOGS / "all-reduce-8-debug.txt").read_text(encoding="utf-8")
    (measured,) = read(written(tmp_path, text.replace("on     node-a device", "device")))
    assert (measured.ranks, measured.nodes) == (8, None)


def test_a_host_whose_name_starts_with_digits_may_tear_a_row(tmp_path):
    text = (LOGS / "all-reduce-8-debug.txt").read_text(encoding="utf-8")
    (measured,) = read(written(tmp_path, text.replace("node-a:", "3767c65d25c4:")))
    assert microseconds(measured) == microseconds(one("all-reduce-8-debug.txt"))


def test_debug_lines_of_a_torn_row_are_no_figures(tmp_path):
    text = (LOGS / "all-reduce-8-debug.txt").read_text(encoding="utf-8")
    torn = text.replace(
        "node-a:4100:4131 [1] NCCL INFO Connected all rings", "10.0.0.7 12 34 56\n2026-11-21 10:00:00 7 8"
    )
    (measured,) = read(written(tmp_path, torn))
    assert microseconds(measured) == microseconds(one("all-reduce-8-debug.txt"))


def test_what_the_next_command_forces_is_not_taken_for_this_run(tmp_path):
    text = (LOGS / "all-reduce-8-debug.txt").read_text(encoding="utf-8")
    second = text.replace("NCCL_DEBUG=INFO", "NCCL_DEBUG=INFO NCCL_ALGO=Ring")
    assert [found.algorithm for found in read(written(tmp_path, text + second))] == [None, "ring"]


def test_a_nameless_broadcast_is_not_taken_for_a_send_to_the_next_rank(tmp_path):
    whole = (LOGS / "four-collectives-8.txt").read_text(encoding="utf-8")
    sendrecv = "\n".join(line for line in whole.splitlines()[77:] if "_perf" not in line)
    (measured,) = read(written(tmp_path, sendrecv))
    assert measured.kind == "permute"
    (measured,) = read(written(tmp_path, sendrecv.replace("none      -1", "none       0")))
    assert not measured.priced


def test_the_version_of_rccl_is_read(tmp_path):
    text = (LOGS / "all-reduce-8-rccl.txt").read_text(encoding="utf-8")
    said = text.replace("# Using devices", "RCCL version : 2.27.7-develop:29e1567\n# Using devices")
    assert read(written(tmp_path, said))[0].library == "rccl 2.27.7"
