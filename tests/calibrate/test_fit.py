"""`tpsim hw fit`: logs to a profile that names them, predicts them, and owns what it could not tell."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

import tpsim
from tests.machines import ISLAND
from tpsim.answers.hw import hw_validate
from tpsim.calibrate.calibrate import calibrate
from tpsim.calibrate.fit import hw_fit, laid
from tpsim.calibrate.run import MeasuredRun
from tpsim.cli.main import run
from tpsim.machine.profile import load
from tpsim.quantity.errors import InputError

LOGS = Path(__file__).parents[1] / "data" / "logs"
TABLE, FOUR, JSON, OSU = (
    LOGS / name for name in ("all-reduce-8-debug.txt", "four-collectives-8.txt", "reduce-scatter-4.json", "osu.txt")
)


LAUNCHES = next(line.strip() for line in ISLAND.splitlines() if "threads" in line)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A fit of all the tables and the JSON."""
    base = tmp_path_factory.mktemp("base") / "island.yaml"
    base.write_text(ISLAND, encoding="utf-8")
    return hw_fit([TABLE, FOUR, JSON], base=str(base))


def two_points(tmp_path, seconds):
    """A log of an all-gather over eight ranks: 8 KiB and 1 GiB."""
    head, _, _ = FOUR.read_text(encoding="utf-8").partition("        4096 ")
    rows = [
        f"{size:12d}  {size // 32:12d}     float    none      -1"
        + 2 * f"  {us:7.2f}  {rate:6.2f}  {rate * 7 / 8:6.2f}       0"
        for size, us in zip((8192, 2**30), (1e6 * one for one in seconds), strict=True)
        for rate in [size / us / 1e3]
    ]
    path = tmp_path / "two.txt"
    path.write_text(head + "\n".join(rows) + "\n# Out of bounds values : 0 OK\n", encoding="utf-8")
    return path


def test_a_fit_comes_nearer_to_what_was_measured(fitted):
    every = fitted.bands[-1]
    assert every["points"] == 36
    assert every["fitted_median"] < 0.05 < every["base_median"]
    assert fitted.verdict.startswith(f"{len(fitted.parameters)} figures fitted to 36 points: median error ")


def test_a_fit_says_how_far_it_is_off_at_sizes_that_are_left_out_of_it(fitted):
    """Every third size in turn, held by fits of what is left, made by hand."""
    runs = fitted.calibrated.runs
    sizes = sorted({V for one in runs for V in one.V})
    told = {(row["log"], row["line"], row["logical_bytes"]): row for row in fitted.points}
    for fold in range(3):
        out = set(sizes[fold::3])
        machine = calibrate(fitted.calibrated.base, [_without(one, out) for one in runs]).machine
        for one in runs:
            by_hand = _without(one, {*sizes} - out)
            rows = [told[one.log, line, V] for line, V in zip(by_hand.lines, by_hand.V, strict=True)]
            assert [row["left_out_s"] for row in rows] == pytest.approx(list(by_hand.predicted(machine)))
    every = fitted.bands[-1]
    off = [abs(row["left_out_s"] / row["measured_s"] - 1) for row in fitted.points]
    assert (every["left_out_median"], every["left_out_p90"]) == (np.median(off), pytest.approx(np.percentile(off, 90)))
    assert every["left_out_median"] > 5 * every["fitted_median"]


def _without(one, sizes):
    rows = [row for row in zip(one.V, one.seconds, one.lines, strict=True) if row[0] not in sizes]
    return replace(one, **{name: tuple(row[at] for row in rows) for at, name in enumerate(("V", "seconds", "lines"))})


def test_of_two_sizes_none_can_be_left_out(island, tmp_path, capsys):
    path = two_points(tmp_path, (40e-6, 3e-3))
    result = hw_fit(path, base=island)
    assert {row["left_out_s"] for row in result.points} == {result.bands[-1]["left_out_median"]} == {None}
    assert "left out" not in result.verdict
    assert run(["hw", "fit", str(path), "--base", island]) == 0
    assert "left out" not in capsys.readouterr().out
    assert run(["hw", "fit", str(TABLE), "--base", island]) == 0
    assert "left out: by fits to the other two thirds of the sizes, each third in turn" in capsys.readouterr().out


def test_a_log_that_is_given_again_counts_once_and_is_named(tmp_path):
    copy = tmp_path / "copy.txt"
    copy.write_bytes(Path(FOUR).read_bytes())
    result, single = hw_fit([FOUR, copy], base="dgx-h100"), hw_fit([FOUR], base="dgx-h100")
    assert result.verdict == single.verdict
    assert f"{copy}: the same as {FOUR}: its points count once" in result.warnings


def test_the_profile_is_sound_by_the_rules_of_the_shipped_ones(tmp_path):
    result = hw_fit([FOUR], base="dgx-h100")
    path = tmp_path / "mine.yaml"
    path.write_text(result.to_yaml(), encoding="utf-8")
    assert hw_validate([path], strict=True).problems == []
    machine = load(path)
    fitted = [one for one in machine.constants() if one.source == "fit"]
    assert [one.path for one in fitted] == [row["constant"] for row in result.parameters]
    assert {one.kind for one in fitted} == {"measured"}
    assert [level.name for level in machine.levels] == [level.name for level in load("dgx-h100").levels]


def test_the_profile_predicts_what_the_fit_predicts(fitted, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(fitted.to_yaml(), encoding="utf-8")
    machine = load(path)
    for one in fitted.calibrated.runs:
        assert one.predicted(machine) == pytest.approx(one.predicted(fitted.machine), rel=1e-4)


def test_the_profile_names_its_logs_with_their_hashes(fitted):
    source = load_text(fitted).sources["fit"]
    assert source.sha256 == tuple(dict.fromkeys(one.sha256 for one in fitted.calibrated.runs))
    assert all(str(path) in source.title for path in (TABLE, FOUR, JSON))
    assert "sha256" in str(source)


def load_text(result):
    path = Path(result.base).with_name("fitted.yaml")
    path.write_text(result.to_yaml(), encoding="utf-8")
    return load(path)


def test_the_profile_says_how_far_off_it_is_in_each_band_and_what_to_doubt(fitted):
    comments = [line for line in fitted.to_yaml().splitlines() if line.startswith("#")]
    assert comments[0] == f"# {fitted.verdict}"
    assert [line.split()[1] for line in comments[3:8]] == ["floor", "middle", "knee", "plateau", "all"]
    assert [line for line in comments if line.startswith("# warning: ")] == [
        f"# warning: {one}" for one in fitted.warnings
    ]


def test_writing_the_profile_leaves_the_base_as_it_is(island):
    result = hw_fit([FOUR], base=island)
    before = repr(result.document.data)
    assert result.to_yaml() == result.to_yaml()
    assert repr(result.document.data) == before


BARE = """\
tpsim: hardware/1
name: bare
chip: {peak: {bf16: 100 TFLOP/s}, memory: {capacity: 16 GB, bandwidth: 820 GB/s}}
levels:
  - {name: port, topology: switch, shape: [8], link: {bandwidth: 400 GB/s}}
  - {name: card, topology: switch, link: {bandwidth: 50 GB/s}}
"""
"""What a datasheet says: no launch, no latency, no share of the bandwidth."""


def test_a_base_that_states_bandwidths_alone_is_fitted_and_what_was_guessed_and_not_measured_stays_unsaid(tmp_path):
    base = tmp_path / "bare.yaml"
    base.write_text(BARE, encoding="utf-8")
    result = hw_fit([FOUR], base=str(base))
    assert result.bands[-1]["figures_median"] < result.bands[-1]["base_median"]
    path = tmp_path / "mine.yaml"
    path.write_text(result.to_yaml(tmp_path), encoding="utf-8")
    machine = load(path)
    for one in result.calibrated.runs:
        assert one.predicted(machine) == pytest.approx(one.predicted(result.machine), rel=1e-4)
    left = {one.path for one in machine.constants() if not one.stated}
    moved = {row["constant"] for row in result.parameters}
    assert moved & {"levels.port.link.efficiency", "levels.port.link.hop_latency", "levels.port.launch.threads"}
    assert "chip.matmul_efficiency" in left
    assert not left & moved


def test_figures_that_the_logs_only_bound_are_named(fitted):
    loose = [row["constant"] for row in fitted.parameters if row["relative_error"] > 0.5]
    said = [text for text in fitted.warnings if text.startswith("the logs bound these more than they measure them: ")]
    assert len(said) == bool(loose)
    assert all(path in said[0] for path in loose)


def test_fitting_the_same_logs_again_gives_the_same_profile(fitted):
    assert hw_fit([TABLE, FOUR, JSON], base=fitted.base).to_yaml() == fitted.to_yaml()


def test_fitting_the_fitted_profile_to_its_logs_moves_it_hardly(fitted):
    load_text(fitted)
    again = hw_fit([TABLE, FOUR, JSON], base=str(Path(fitted.base).with_name("fitted.yaml")))
    assert again.bands[-1]["fitted_median"] == pytest.approx(fitted.bands[-1]["fitted_median"], abs=0.015)


def test_two_points_move_what_they_determine_and_the_rest_stays(island, tmp_path):
    machine = load(island)
    blank, _ = laid(machine, MeasuredRun("all_gather", 8, (8192, 2**30)))
    small, large = blank.predicted(machine)
    result = hw_fit([two_points(tmp_path, (2.0 * small, 1.25 * large))], base=island)
    moved = {row["constant"]: row["value"] / row["base"] for row in result.parameters}
    assert moved.pop("levels.port.link.efficiency") < 1
    assert len({round(factor, 9) for path, factor in moved.items() if "latency" in path}) == 1  # all by one factor
    assert result.bands[-1]["base_median"] > 0.2
    assert result.bands[-1]["fitted_median"] < 0.02


def test_a_bound_that_stopped_the_fit_is_named(island, tmp_path):
    Path(island).write_text(ISLAND.replace("value: 0.8,", "value: 0.94,"), encoding="utf-8")
    machine = load(island)
    blank, _ = laid(machine, MeasuredRun("all_gather", 8, (8192, 2**30)))
    small, large = blank.predicted(machine)
    result = hw_fit([two_points(tmp_path, (small, large / 3))], base=island)
    assert any(
        text.startswith("levels.port.link.efficiency would have to be more than all of it") for text in result.warnings
    )
    assert any("by figures alone" in text and "plateau" in text for text in result.warnings)


def test_a_curve_faster_than_the_wires_is_kept_and_named(island, tmp_path):
    least = 2**30 * 7 / 8 / 400e9
    kept = hw_fit([two_points(tmp_path, (20e-6, 1.05 * least))], base=island)
    assert not any("links alone need" in text for text in kept.warnings)
    result = hw_fit([two_points(tmp_path, (20e-6, 0.8 * least))], base=island)
    (text,) = [one for one in result.warnings if "links alone need" in one]
    assert text.startswith("all_gather over port 8, launched by threads took 1.8")
    assert "for 1 GiB, where the links alone need 2.349 ms at their full rate (ring)" in text
    assert result.machine.measured[0].knots[-1].fitted < least


def test_warnings_of_the_logs_are_passed_on(island):
    result = hw_fit([LOGS / "all-reduce-8-rccl.txt"], base=island)
    assert "measured in place only" in result.warnings[0]


def test_a_harness_that_the_base_lacks_gets_a_launch_of_its_own(island):
    result = hw_fit([OSU], base=island)
    machine = load_text_at(result)
    assert machine.level("port").launch["osu"].value > 2 * machine.level("port").launch["threads"].value
    assert machine.level("port").launch["threads"].value == load(island).level("port").launch["threads"].value


def load_text_at(result):
    Path("fitted.yaml").write_text(result.to_yaml(), encoding="utf-8")
    return load("fitted.yaml")


def test_a_single_launch_becomes_the_default_beside_that_of_the_harness(island):
    text = ISLAND.replace(LAUNCHES, "launch: 3 us")
    Path(island).write_text(text, encoding="utf-8")
    launches = load_text_at(hw_fit([OSU], base=island)).level("port").launch
    assert list(launches) == ["default", "osu"]
    assert launches["default"].value == 3e-6


def test_a_single_launch_that_moves_stands_beside_that_of_a_harness_that_does_not(island, tmp_path):
    Path(island).write_text(ISLAND.replace(LAUNCHES, "launch: 3 us"), encoding="utf-8")
    bare, large = tmp_path / "bare.txt", tmp_path / "large.txt"
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    bare.write_text("\n".join(line for line in lines if "nThread" not in line), encoding="utf-8")
    head = "# OSU NCCL-CUDA Allreduce Latency Test v7.4\n# Size       Avg Latency(us)\n"
    large.write_text(head + "268435456  1351.43\n1073741824  5216.45\n", encoding="utf-8")
    result = hw_fit([bare, large], base=island, ranks=8)
    moved = {row["constant"] for row in result.parameters}
    assert ("levels.port.launch" in moved, "levels.port.launch.osu" in moved) == (True, False)
    assert list(load_text_at(result).level("port").launch) == ["default", "osu"]


def test_collectives_without_a_price_are_left_out_with_a_word(island, tmp_path):
    path = tmp_path / "log.txt"
    path.write_text(FOUR.read_text(encoding="utf-8").replace("all_gather_perf", "gather_perf"), encoding="utf-8")
    result = hw_fit([path], base=island)
    assert [one.kind for one in result.calibrated.runs] == ["reduce_scatter", "all_to_all", "permute"]
    assert any("gather over 8 ranks is left out: tpsim has no price for it" in text for text in result.warnings)


def test_a_forced_algorithm_that_the_machine_has_not_is_taken_as_free_with_a_word(island, tmp_path):
    path = tmp_path / "log.json"
    path.write_text(JSON.read_text(encoding="utf-8").replace("NCCL_ALGO=Ring", "NCCL_ALGO=^NVLS"), encoding="utf-8")
    result = hw_fit([path], base=island)
    assert result.calibrated.runs[0].algorithm is None
    assert any("was forced to ^nvls, which island has not" in text for text in result.warnings)
    assert hw_fit([JSON], base=island).calibrated.runs[0].algorithm == "ring"


@pytest.mark.parametrize("kind", ["all_to_all", "permute"])
def test_a_protocol_that_the_environment_forced_does_not_reach_sends(kind):
    """NCCL chooses it for sends by their size alone."""
    forced = MeasuredRun(kind, 8, (2**10, 2**28), log="log.txt", protocol="simple")
    taken, (word,) = laid(load("dgx-h100"), forced)
    assert taken.protocol is None
    assert (
        word == f"log.txt: {kind} over 8 ranks consists of sends, which simple does not reach: taken as chosen freely"
    )
    assert laid(load("dgx-h100"), replace(forced, kind="all_gather"))[0].protocol == "simple"


def refusal(*logs, **asked):
    with pytest.raises(InputError) as error:
        hw_fit(logs, **asked)
    return error.value.problems[0]


def test_logs_of_nothing_that_has_a_price_are_refused(island, tmp_path):
    path = tmp_path / "log.json"
    path.write_text(JSON.read_text(encoding="utf-8").replace("reduce_scatter_perf", "broadcast_perf"), encoding="utf-8")
    assert refusal(path, base=island).slug == "nothing-to-fit"


def test_ranks_that_do_not_fit_on_the_level_are_refused(island):
    Path(island).write_text(ISLAND.replace("shape: [8]", "shape: [4]"), encoding="utf-8")
    assert "ranks do not fit on port 4" in refusal(TABLE, base=island, level="port").message
    assert refusal(TABLE, base=island, level="prot").remedy == 'did you mean "port"?'


# Hosts and levels ------------------------------------------------------------------------------------------------


def routed(machine, ranks, hosts, level=None):
    found, _ = laid(machine, MeasuredRun("all_reduce", ranks, (2**20,), nodes=hosts, log="log.txt"), level)
    return [(segment.level, segment.n) for segment in found.route]


def test_full_nodes_lie_as_tpsim_places_them(island):
    machine = load(island)
    assert routed(machine, 16, 2) == [("port", 8), ("card", 2)]
    assert routed(machine, 8, 1) == [("port", 8)]
    assert routed(machine, 4, None) == [("port", 4)]


def test_hosts_that_may_be_nodes_or_parts_of_one_are_not_guessed(island):
    machine = load(island)
    with pytest.raises(InputError) as error:
        routed(machine, 4, 2)
    assert str(error.value) == (
        "error[unknown-placement]: log.txt: all_reduce over 4 ranks ran on 2 hosts; island would put them on port 4\n"
        "  = give --level port if that joins the hosts; --level port,card if each host is a node"
    )
    assert routed(machine, 4, 2, "port") == [("port", 4)]
    assert routed(machine, 4, 2, "port,card") == [("port", 2), ("card", 2)]
    assert routed(machine, 2, 2, "port,card") == [("card", 2)]


@pytest.mark.parametrize(
    ("machine", "nodes", "forced", "taken"),
    [
        ("dgx-h100", 8, "ring", "flat-ring"),
        ("dgx-h100", 1, "ring", "ring"),
        ("superpod-h100", 8, "in-switch", "in-switch-network"),
        ("superpod-h100", 1, "in-switch", "in-switch"),
    ],
)
def test_what_nccl_calls_ring_and_nvls_goes_over_all_levels_that_a_run_lies_on(machine, nodes, forced, taken):
    found, said = laid(load(machine), MeasuredRun("all_reduce", 8 * nodes, (2**20,), nodes=nodes, algorithm=forced))
    assert (found.algorithm, said) == (taken, [])


# Command line ----------------------------------------------------------------------------------------------------


def test_the_command_writes_the_profile(island, capsys):
    assert run(["hw", "fit", str(TABLE), "--base", island, "-o", "mine.yaml", "--name", "mine"]) == 0
    said = capsys.readouterr()
    assert said.err == "wrote mine.yaml\n"
    assert "|predicted/measured - 1|" in said.out
    assert load("mine.yaml").name == "mine"
    assert [path.name for path in Path().iterdir() if path.name.startswith(".tpsim")] == []


def test_the_profile_can_be_piped(island, capsys):
    assert run(["hw", "fit", str(TABLE), "--base", island, "-f", "yaml"]) == 0
    assert capsys.readouterr().out == hw_fit([TABLE], base=island).to_yaml()


def test_other_commands_write_no_yaml(capsys):
    assert run(["hw", "list", "-o", "machines.yaml"]) == 2
    assert "suffixes: .txt, .json, .csv, .md, .html" in capsys.readouterr().err


def test_points_are_rows_of_the_csv(island, capsys):
    assert run(["hw", "fit", str(TABLE), "--base", island, "-f", "csv"]) == 0
    rows = list(csv.DictReader(StringIO(capsys.readouterr().out)))
    assert len(rows) == 11
    first = rows[0]
    assert (first["line"], first["collective"], first["ranks"], first["band"]) == ("20", "all_reduce", "8", "floor")
    assert float(first["measured_s"]) == pytest.approx(26.59e-6)


def test_the_json_holds_parameters_bands_and_inputs(island, capsys):
    assert run(["hw", "fit", str(TABLE), "--base", island, "-f", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "tpsim.hw-fit/1"
    assert [one["path"] for one in document["inputs"]] == [island, str(TABLE)]
    first = document["result"]["parameters"][0]
    assert set(first) == {"constant", "dimension", "base", "base_kind", "value", "relative_error"}
    off = np.median([abs(one["fitted_s"] / one["measured_s"] - 1) for one in document["result"]["points"]])
    assert document["result"]["bands"][-1]["fitted_median"] == pytest.approx(off)


def test_a_bad_log_is_an_error_with_its_line(island, tmp_path, capsys):
    path = tmp_path / "bad.txt"
    path.write_text(TABLE.read_text(encoding="utf-8").replace("5216.45", "5.21645"), encoding="utf-8")
    assert run(["hw", "fit", str(path), "--base", island]) == 2
    assert f"{path}:33:" in capsys.readouterr().err


def test_ranks_and_collective_can_be_given(island, tmp_path, capsys):
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    path = tmp_path / "bare.txt"
    path.write_text("\n".join(line for line in lines if "Rank" not in line and "_perf" not in line), encoding="utf-8")
    assert run(["hw", "fit", str(path), "--base", island]) == 2
    assert "--ranks" in capsys.readouterr().err
    assert run(["hw", "fit", str(path), "--base", island, "--ranks", "8", "--collective", "all-reduce"]) == 0


# Curves ----------------------------------------------------------------------------------------------------------


SCENARIO = """\
tpsim: scenario/1
model: gpt-tiny
hardware: mine.yaml
mesh: {data: 8}
layout: {dp: data, zero: 3}
workload: {global_batch: 8, seq: 16, dtype: bf16}
"""


def test_the_loaded_profile_predicts_sizes_between_those_measured_as_the_fit_does(fitted):
    loaded_again = load_text(fitted)
    assert len(loaded_again.measured) == len(fitted.machine.measured) == 5
    for one in fitted.calibrated.runs:
        between = replace(one, V=tuple(3 * V for V in one.V))
        assert between.predicted(loaded_again) == pytest.approx(between.predicted(fitted.machine), rel=1e-4)


def test_each_run_is_said_by_base_by_figures_and_by_curves(fitted):
    every = fitted.bands[-1]
    assert every["fitted_median"] < 0.02 < every["figures_median"] < every["base_median"]
    assert fitted.verdict.endswith(
        f"{every['base_median']:.1%} before, {every['figures_median']:.1%} after, "
        f"{every['fitted_median']:.1%} with 5 curves; {every['left_out_median']:.1%} at sizes that are left out"
    )
    plain = replace(fitted.machine, measured=())
    for one in fitted.calibrated.runs:
        rows = [row for row in fitted.records() if (row["log"], row["collective"]) == (one.log, one.kind)]
        assert [row["figures_s"] for row in rows] == pytest.approx(list(one.predicted(plain)))
        assert [row["fitted_s"] for row in rows] == pytest.approx(list(one.predicted(fitted.machine)))


def test_a_fit_of_a_fitted_profile_has_a_source_of_its_own_and_keeps_the_other_curves(fitted, tmp_path):
    load_text(fitted)
    first = Path(fitted.base).with_name("fitted.yaml")
    again = hw_fit([TABLE], base=str(first))
    path = tmp_path / "again.yaml"
    path.write_text(again.to_yaml(), encoding="utf-8")
    machine = load(path)
    sources = {(one.kind, one.source) for one in machine.measured}
    assert ("all_reduce", "fit-2") in sources
    assert ("all_gather", "fit") in sources
    assert str(TABLE) in machine.sources["fit-2"].title
    assert str(FOUR) in machine.sources["fit"].title
    assert hw_validate([path], strict=False).ok


def test_a_harness_whose_launch_was_not_told_is_in_the_profile_beside_its_curve(island):
    result = hw_fit([OSU], base=island)
    assert "levels.card.launch.osu" not in result.calibrated.fit.moved
    launch = load_text_at(result).level("card").launch["osu"]
    assert (launch.value, launch.kind) == (3e-6, "guess")
    assert {one.launch for one in result.machine.measured} == {"osu"}


def test_a_collective_says_that_a_curve_was_used_and_what_it_adds(island, capsys):
    Path("mine.yaml").write_text(hw_fit([FOUR], base=island).to_yaml(), encoding="utf-8")
    asked = ["collective", "all-gather", "--hw", "mine.yaml", "--ranks", "8", "--sizes", "64KiB,3MiB"]
    assert run([*asked, "-f", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    parts = ("launch_s", "latency_s", "bandwidth_s", "ramp_s", "curve_s")
    for row in document["result"]["rows"]:
        assert abs(row["curve_s"]) > 1e-8
        assert row["time_s"] == pytest.approx(sum(row[part] for part in parts))
    said = [one for one in document["assumptions"] if one["text"].startswith("as measured: all_gather over port 8")]
    assert [one["kind"] for one in said] == ["stated"]
    assert run([*asked, "-v"]) == 0
    out = capsys.readouterr().out
    assert "curve" in next(line for line in out.splitlines() if "ramp" in line).split()
    assert "as measured: all_gather over port 8, launched by threads: 5 sizes from 4 KiB to 256 MiB" in " ".join(
        out.split()
    )
    assert run(["collective", "all-gather", "--hw", island, "--ranks", "8", "-v"]) == 0
    assert "curve" not in capsys.readouterr().out.split()


def test_an_explained_time_names_the_curve_and_its_parts_sum_up(island, capsys):
    Path("mine.yaml").write_text(hw_fit([FOUR], base=island).to_yaml(), encoding="utf-8")
    Path("s.yaml").write_text(SCENARIO, encoding="utf-8")
    assert run(["explain", "all_gather", "s.yaml"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert re.search(r"launch \S+ us \+ latency \S+ us \+ bandwidth \S+ [nu]s \+ measured curve \S+ [nu]s", out)
    assert "as measured: all_gather over port 8, launched by threads" in out


def test_a_plan_that_uses_a_curve_rests_on_it(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(hw_fit([FOUR], base="dgx-h100").to_yaml(), encoding="utf-8")
    told = [one["text"] for one in tpsim.plan("llama3-70b-h100", hw=str(path)).assumptions]
    used = [text for text in told if text.startswith("as measured: ")]
    assert [text.split(",")[0] for text in used] == [
        "as measured: reduce_scatter over nvlink 8",
        "as measured: all_gather over nvlink 8",
    ]
    none = tpsim.plan("llama3-70b-h100").assumptions
    assert not [one for one in none if one["text"].startswith("as measured: ")]


def test_a_shown_machine_lists_its_curves(island, capsys):
    Path("mine.yaml").write_text(hw_fit([FOUR], base=island).to_yaml(), encoding="utf-8")
    assert run(["hw", "show", "mine.yaml"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("measured")]
    assert [line.split()[1] for line in lines] == ["all_gather", "reduce_scatter", "all_to_all", "permute"]
    assert "5 sizes from 4 KiB to 256 MiB" in lines[0]
    assert run(["hw", "show", "mine.yaml", "-f", "json"]) == 0
    first = json.loads(capsys.readouterr().out)["result"]["measured"][0]
    assert first["route"] == [{"level": "port", "axis": "port", "topology": "switch", "ranks": 8}]
    assert set(first["knots"][0]) == {"logical_bytes", "predicted_s", "fitted_s"}


def test_a_curve_that_moved_is_the_cause_of_what_moved_with_it(island, capsys):
    text = hw_fit([FOUR], base=island).to_yaml()
    Path("mine.yaml").write_text(text, encoding="utf-8")
    Path("s.yaml").write_text(SCENARIO, encoding="utf-8")
    assert run(["check", "--update", "s.yaml"]) == 0
    knot = re.search(r"all_gather\n.*?64 KiB.*?fitted: \"(\S+) us", text, re.DOTALL)
    slower = text[: knot.start(1)] + str(1.01 * float(knot[1])) + text[knot.end(1) :]
    Path("mine.yaml").write_text(slower, encoding="utf-8")
    capsys.readouterr()
    assert run(["check"]) == 1
    out = capsys.readouterr().out
    assert "mine.levels.port.measured.all_gather over port 8, launched by threads" in out
    assert "no cause" not in out
    assert "collectives: all_gather over data" in out
    assert "numbers of 1 of 1 scenarios moved" in out
