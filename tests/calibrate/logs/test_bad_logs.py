"""Logs that cannot be trusted are refused with the line and the reason, or read with a warning; never half-read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tpsim.calibrate.logs import read
from tpsim.quantity.errors import InputError

LOGS = Path(__file__).parents[2] / "data" / "logs"
TABLE = (LOGS / "all-reduce-8-debug.txt").read_text(encoding="utf-8")
OSU = (LOGS / "osu.txt").read_text(encoding="utf-8")
JSON = (LOGS / "reduce-scatter-4.json").read_text(encoding="utf-8")


def written(tmp_path, text, name="log.txt"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def refused(path, **given):
    with pytest.raises(InputError) as error:
        read(path, **given)
    (problem,) = error.value.problems
    return problem


ROW = next(line for line in TABLE.splitlines() if line.startswith("        4096 "))


@pytest.mark.parametrize(
    ("old", "new", "slug", "line"),
    [
        (ROW, ROW[: ROW.rindex("0.15")], "torn-row", 21),
        (ROW, ROW.replace("       0", "       3", 1), "wrong-values", 21),
        (ROW, ROW[: ROW.rindex("0")] + "7", "wrong-values", 21),
        ("values : 0 OK", "values : 12 FAILED", "wrong-values", 34),
        (ROW, ROW.replace("26.74", " 0.00"), "no-time", 21),
        (ROW, ROW.replace("26.74", "  nan"), "no-time", 21),
        ("5216.45", "5.21645", "contradiction", 33),
        ("(us)  (GB/s)", "(ms)  (GB/s)", "unknown-unit", 19),
        ("root     time", "root  cputime", "cpu-times", 18),
        ("   algbw   busbw", "", "no-bandwidth", 18),
        ("time   algbw", "time-x algbw", "no-times", 18),
        ("       16384 ", "        2048 ", "sizes-fall", 22),
        ("#  Rank  3 Group  0 Pid   4100 on     node-a device  3", "#", "devices-missing", 15),
        ("#  Rank  3 Group  0", "#  Rank  3 Group  1", "several-groups", 15),
        ("all_reduce_perf", "reduce_scatter_perf", "contradiction", 20),
        (
            "node-a:4100:4131 [1] NCCL INFO Connected",
            "node-a: Test NCCL failure all_reduce.cu:53 Connected",
            "failed-run",
            24,
        ),
    ],
)
def test_a_bad_table_is_refused_at_its_line(tmp_path, old, new, slug, line):
    text = TABLE.replace(old, new)
    assert text != TABLE
    if slug == "sizes-fall":
        text = re.sub(r" 0\.62(    ?1\.08)", r" 0.08\1", text)
    problem = refused(written(tmp_path, text))
    assert (problem.slug, problem.place.line) == (slug, line)


def test_the_refusal_shows_the_line(tmp_path):
    path = written(tmp_path, TABLE.replace("5216.45", "5.21645"))
    problem = refused(path)
    assert problem.message == "1073741824 bytes in 5.21645 us are 2.058e+05 GB/s, not 205.84"
    assert problem.remedy == "are the units of this log mixed?"
    assert problem.place.text.split()[0] == "1073741824"


def test_hosts_with_unequal_shares_are_told_one_by_one(tmp_path):
    """They were taken for as many on each: 8 and 4 ranks of nodes of eight for 6 x 2."""
    problem = refused(written(tmp_path, re.sub(r"(Rank  [67] .* on     )node-a", r"\1node-b", TABLE)))
    assert problem.message == "hosts have unequal shares: 6 on node-a, 2 on node-b"
    assert (problem.slug, problem.place.line) == ("uneven-hosts", 15)


def test_a_log_cut_in_a_row_is_refused(tmp_path):
    cut = TABLE[: TABLE.index("188.36")]
    assert refused(written(tmp_path, cut)).slug == "torn-row"


def test_a_log_cut_between_rows_is_read_with_a_warning(tmp_path):
    path = written(tmp_path, TABLE[: TABLE.index("   268435456")])
    (measured,) = read(path)
    assert measured.V[-1] == 67108864
    assert measured.warnings == (
        f"{path}:31: the run ends at 67108864 of 1073741824 bytes: cut, or stopped; the rows there are count",
    )


def test_a_run_without_a_table_is_refused(tmp_path):
    problem = refused(written(tmp_path, TABLE[: TABLE.index("#       size")]))
    assert (problem.slug, problem.place.line) == ("no-table", 4)


def test_a_table_without_rows_is_refused(tmp_path):
    assert refused(written(tmp_path, TABLE[: TABLE.index("        1024 ")])).slug == "no-rows"


def test_processes_that_ran_alone_are_refused_with_the_remedy(tmp_path):
    alone = re.sub(r"#  Rank  [1-7].*\n", "", TABLE).replace("nThread 8", "nThread 1")
    problem = refused(written(tmp_path, alone))
    assert (problem.slug, problem.remedy) == ("one-rank", "under mpirun, build nccl-tests with MPI=1")


def test_a_table_without_devices_needs_to_be_told_its_ranks(tmp_path):
    path = written(tmp_path, re.sub(r"#  Rank .*\n", "", TABLE))
    assert refused(path).remedy == "keep the lines '#  Rank ...', or give --ranks"
    assert read(path, ranks=8)[0].ranks == 8
    assert refused(path, ranks=2).slug == "contradiction"


def test_a_table_that_may_be_of_several_collectives_needs_to_be_told_which(tmp_path):
    gather = (LOGS / "four-collectives-8.txt").read_text(encoding="utf-8").split("# Collective test concluded")[0]
    path = written(tmp_path, "\n".join(line for line in gather.splitlines() if "_perf" not in line))
    problem = refused(path)
    assert (problem.slug, problem.note) == (
        "unknown-collective",
        "by its columns it may be all_gather or all_to_all",
    )
    assert read(path, collective="all_to_all")[0].V[0] == 8 * 4096


def test_values_that_nobody_checked_are_read_with_a_warning(tmp_path):
    path = written(
        tmp_path, re.sub(r"(GB/s|\d)       0\b", r"\1     N/A", TABLE).replace("       0node", "     N/Anode")
    )
    assert read(path)[0].warnings == (f"{path}:18: values were not checked",)


@pytest.mark.parametrize(
    ("old", "new", "remark"),
    [
        ("agg iters: 1", "agg iters: 20", "20 calls were launched together: launch is paid by all of them at once"),
        (" iters: 20", " iters: 1", "each size was timed by a single call (-n 1)"),
        ("warmup iters: 5", "warmup iters: 0", "no call came before those timed (-w 0)"),
        ("# Using devices", "# Blocking Enabled: wait and barrier\n# Using devices", "each call was waited for (-z): "),
    ],
)
def test_options_that_change_what_a_time_means_are_remarked_upon(tmp_path, old, new, remark):
    (text,) = read(written(tmp_path, TABLE.replace(old, new)))[0].warnings
    assert remark in text


def test_a_text_that_is_no_log_is_refused(tmp_path):
    assert refused(written(tmp_path, "hello\n")).slug == "no-measurements"
    assert refused(tmp_path / "none.txt").slug == "no-such-file"
    assert refused(tmp_path).slug == "no-such-file"
    (tmp_path / "binary").write_bytes(b"\0\1")
    assert refused(tmp_path / "binary").slug == "not-text"


def test_a_log_whose_name_is_mistyped_is_answered_with_the_file_beside_it(tmp_path):
    written(tmp_path, TABLE, "all-reduce.txt")
    assert refused(tmp_path / "all-redcue.txt").remedy == f'did you mean "{tmp_path / "all-reduce.txt"}"?'


def changed(path, *keys, value):
    data = json.loads(JSON)
    inner = data
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("keys", "value", "slug"),
    [
        (("results", 1, "out_of_place", "nwrong"), 4.0, "wrong-values"),
        (("results", 1, "in_place", "nwrong"), 4.0, "wrong-values"),
        (("out_of_bounds", "count"), 2, "wrong-values"),
        (("results", 1, "out_of_place", "time"), 0.0, "no-time"),
        (("results", 1, "out_of_place", "time"), "nan", "bad-number"),
        (("results", 1, "size"), None, "bad-number"),
        (("results", 1, "size"), 1024, "sizes-fall"),
        (("results", 1, "out_of_place"), {"cpu_time": 3.0}, "cpu-times"),
        (("results",), [], "no-rows"),
        (("results",), None, "not-nccl-json"),
        (("results", 1), [1], "not-nccl-json"),
        (("results", 1, "in_place"), "fast", "not-nccl-json"),
        (("results", 1, "size"), float("nan"), "bad-number"),
        (("config", "nthreads"), None, "not-nccl-json"),
        (("config", "devices"), 8, "not-nccl-json"),
        (("config", "devices", 0), "n0", "not-nccl-json"),
        (("config", "devices", 0, "hostname"), ["n0"], "not-nccl-json"),
        (("out_of_bounds",), 0, "not-nccl-json"),
        (("nccl_version",), "latest", "not-nccl-json"),
        (("env",), "NCCL_ALGO=Ring", "not-nccl-json"),
        (("config", "devices"), [], "one-rank"),
        (("config", "devices", 0, "group"), 1, "several-groups"),
        (("args", 0), "python", "unknown-collective"),
    ],
)
def test_bad_json_is_refused(tmp_path, keys, value, slug):
    assert refused(changed(tmp_path / "bad.json", *keys, value=value)).slug == slug


def test_json_that_breaks_off_is_refused_where_it_does(tmp_path):
    problem = refused(written(tmp_path, JSON[:900], "cut.json"))
    assert (problem.slug, problem.place.line) == ("bad-json", 1)


@pytest.mark.parametrize(
    ("keys", "value", "remark"),
    [
        (("version",), 4, "the file is of format 4; tpsim knows 3"),
        (("config", "aggregated_iterations"), 8, "8 calls were launched together"),
        (("config", "iterations"), 1, "each size was timed by a single call (-n 1)"),
        (("config", "warmup_iters"), 0, "no call came before those timed (-w 0)"),
        (("config", "blocking_collectives"), "true", "each call was waited for"),
        (("errors",), ["out of memory"], "the library reported: out of memory"),
    ],
)
def test_odd_json_is_read_with_a_warning(tmp_path, keys, value, remark):
    (text,) = read(changed(tmp_path / "odd.json", *keys, value=value))[0].warnings
    assert remark in text


@pytest.mark.parametrize(
    ("old", "new", "slug", "line"),
    [
        ("$ mpirun -np 4 osu_alltoall -d cuda -c", "", "unknown-ranks", 20),
        ("CUDA Allgather Latency Test", "CUDA Non-blocking Allgather Latency Test", "unknown-test", 29),
        ("CUDA Allgather Latency Test v5.9", "CUDA Bandwidth Test v5.9", "unknown-test", 29),
        ("# Size       Avg Latency(us)\n", "# Size      Bandwidth (MB/s)\n", "unknown-unit", 30),
        ("Pass", "Fail", "wrong-values", 23),
        ("# Size       Avg Latency(us)        Validation", "DATA VALIDATION ERROR", "no-table", 20),
    ],
)
def test_a_bad_osu_test_is_refused_at_its_line(tmp_path, old, new, slug, line):
    assert old in OSU
    problem = refused(written(tmp_path, OSU.replace(old, new)))
    assert (problem.slug, problem.place.line) == (slug, line)


def test_an_osu_row_that_is_torn_is_refused(tmp_path):
    assert refused(written(tmp_path, OSU[: OSU.rindex("  ")].rstrip() + "\n")).slug == "torn-row"
