"""`tpsim plan`: flags, and saving what they came to."""

from __future__ import annotations

import json
import re
from functools import cache
from io import StringIO
from pathlib import Path

import pytest

from tests.plans import planned
from tpsim.answers.plan import plan
from tpsim.answers.verdict import percent
from tpsim.pages.plan import page
from tpsim.quantity.units import show
from tpsim.question.save import scenario_text
from tpsim.question.scenario import resolve
from tpsim.report import terminal
from tpsim.report.table import as_text

BASE = "llama3-70b-h100"

SCENARIOS = sorted(path.stem for path in (Path(__file__).parents[2] / "scenarios").glob("*.yaml"))


paged = cache(lambda name: page(planned(name), verbose=False))
"""Its page."""


def shown(document, width=None):
    screen = StringIO()
    terminal.write(document, screen, "never", width)
    return screen.getvalue()


def result(ran):
    assert ran.code == 0, ran.err
    return json.loads(ran.out)["result"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_saved_scenario_asks_the_same_question(tmp_path, name):
    file, asked = tmp_path / "saved.yaml", planned(name).question
    file.write_text(scenario_text(asked, tmp_path), encoding="utf-8")
    assert resolve(file) == asked


@pytest.mark.parametrize("name", [BASE, "gpt3-175b-a100-pipeline"])
def test_a_saved_scenario_is_answered_alike(tpsim, tmp_path, name):
    file = tmp_path / "saved.yaml"
    first = result(tpsim("plan", name, "-f", "json", "--save", str(file)))
    assert result(tpsim("plan", str(file), "-f", "json")) == first


def test_flags_alone_can_be_saved_as_a_commented_file(tpsim, tmp_path):
    file = tmp_path / "saved.yaml"
    flags = ["--model", "llama-3-8b", "--hw", "tpu-v5e", "--tp", "4", "--dp", "16", "--seq", "4096", "--batch", "64"]
    first = result(tpsim("plan", *flags, "-f", "json", "--save", str(file)))
    text = file.read_text()
    assert "\n# named axes, major first\nmesh: {data: 16, tensor: 4}\n" in text
    assert result(tpsim("plan", str(file), "-f", "json")) == first


def test_what_set_changes_is_saved(tpsim, tmp_path):
    file = tmp_path / "saved.yaml"
    tpsim("plan", "llama3-70b-h100", "--set", "practice.regather=false", "--zero", "3", "-q", "--save", str(file))
    assert "practice: {base: megatron, overlap: {gradients: beside}, regather: false}\n" in file.read_text()
    assert "zero: 3" in file.read_text()


def test_set_and_flag_say_the_same(tpsim):
    flag, override = (("--zero", "3"), ("--set", "layout.zero=3"))
    said, same = (tpsim("plan", "llama3-70b-h100", *words, "-q").out for words in (flag, override))
    assert "\nchange  --zero 2: " in said  # as it was asked
    assert said.replace("change  --zero 2: ", "change  --set layout.zero=2: ") == same


def test_a_flag_takes_the_numbers_that_files_take(tpsim):
    plain, power = (tpsim("plan", "llama3-70b-h100", "--seq", seq, "-q") for seq in ("8192", "8.192e3"))
    assert (power.code, power.out) == (0, plain.out)
    wrong = tpsim("plan", "llama3-70b-h100", "--seq", "1.5", "-q")
    assert (wrong.code, wrong.err.splitlines()[0]) == (
        2,
        "error[bad-value]: invalid value for '--seq': '1.5' is not a valid integer",
    )


@pytest.mark.parametrize(
    ("flag", "plain", "power"), [("--tp", "4", "4e0"), ("--mesh", "data=64,tensor=4", "data=6.4e1,tensor=4")]
)
def test_a_size_of_a_mesh_may_have_an_exponent_as_any_number(tpsim, flag, plain, power):
    asked = "plan", "llama3-70b-h100", "--format", "json", "--chips", "256"
    asked = asked if flag == "--tp" else asked[:-2]
    ran = [tpsim(*asked, flag, size) for size in (plain, power)]
    assert [answer.code for answer in ran] == [0, 0], ran[1].err
    assert ran[0].out == ran[1].out


@pytest.mark.parametrize(("model", "has"), [("llama-3-70b", False), ("deepseek-v3", True)])
def test_a_switch_of_latents_is_told_where_attention_has_any(tpsim, model, has):
    asked = ("--model", model, "--hw", "dgx-h100", "--tp", "8", "--seq", "4096", "--practice", "megatron")
    assert ("latents stream" in " ".join(tpsim("plan", *asked, "-v").out.split())) is has


@pytest.mark.parametrize("asked", [("--tp", "{}"), ("--mesh", "data=32,tensor={}"), ("--chips", "256", "--tp", "{}")])
def test_sizes_of_axes_are_numbers_as_everywhere(tpsim, asked):
    plain, power = (
        tpsim("plan", "llama3-70b-h100", *(word.format(size) for word in asked), "-q") for size in ("8", "8e0")
    )
    assert (power.code, power.out) == (0, plain.out)


# What a page points out ---------------------------------------------------------------------------------------------

IDLE = "axis tensor 16 is used by no role: its chips repeat the same work; give it one: --tp tensor"


def test_an_axis_without_a_role_is_pointed_out(tpsim):
    ran = tpsim("plan", "llama3-8b-v5e", "--set", "mesh={data: 16, tensor: 16}", "-q")
    assert ran.out.splitlines()[0].endswith(f"; {IDLE}")


def test_each_axis_without_a_role_is_told_another_flag_and_these_give_them_roles(tpsim):
    asked = ("plan", "--model", "llama-3-8b", "--hw", "dgx-h100", "--mesh", "X=8,Y=2", "--batch", "16", "--seq", "4096")
    out = tpsim(*asked, "-q").out
    assert "; axis X 8 is used by no role: its chips repeat the same work; give it one: --dp X; axis Y 2 " in out
    assert "give it one: --tp Y" in out
    assert "is used by no role" not in tpsim(*asked, "--dp", "X", "--tp", "Y", "-q").out


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_axis_of_a_shipped_scenario_has_a_role(name):
    assert planned(name).question.idle_axes == ()


def test_an_axis_of_one_device_needs_no_role(tpsim):
    ran = tpsim("plan", "llama3-8b-v5e", "--set", "mesh={data: 256, tensor: 1}", "-q")
    assert (ran.code, "is used by no role" in ran.out) == (0, False)


@pytest.mark.parametrize(
    ("machine", "own", "stated"),
    [("dgx-b200", 0.55, 0.45), ("dgx-b200", 0.55, 0.55), ("dgx-h100", 0.655, 0.655)],
    ids=["another", "the same", "the same without waves"],
)
def test_a_scenario_that_replaces_the_machine_s_efficiency_says_so(tpsim, tmp_path, machine, own, stated):
    text = (Path(__file__).parents[2] / "hardware" / f"{machine}.yaml").read_text(encoding="utf-8")
    mine = tmp_path / "mine.yaml"
    mine.write_text(text.replace(f"name: {machine}", "name: mine"), encoding="utf-8")
    asked = ("--set", f"hardware={mine}", "--set", f"assume.matmul_efficiency={stated}")
    out = tpsim("plan", "llama3-70b-h100", *asked).out
    also = ", and its attention_efficiency" if machine == "dgx-h100" else ""
    assert (f"\nthe scenario's matmul_efficiency {stated:g} replaces mine's {own:g}{also}\n" in out) == (
        stated != own or machine == "dgx-h100"  # with waves of its own
    )


def test_the_table_of_a_layer_says_where_it_is_the_mean_of_several_kinds(tpsim):
    assert "a mean layer of rank 0, one microbatch " in tpsim("plan", "deepseek-v3-h100").out


def test_the_table_says_what_is_of_one_call_and_what_of_all(tpsim):
    above, below = tpsim("plan", "llama3-8b-v5e").out.split("\n\n")[2].splitlines()[:2]
    assert above.split() == ["size", "wire", "time", "exposed"]
    assert below.split() == [
        *("for", "collective", "axis", "n", "calls"),
        *("each", "MB", "each", "MB", "all", "ms", "step", "%"),
    ]


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_two_lines_of_a_part_have_the_same_label(name):
    rows = paged(name).tables[0].rows
    labels = [tuple(row[key] for key in ("where", "purpose", "collective", "axis", "ranks", "dtype")) for row in rows]
    assert len(set(labels)) == len(labels)


BINDING = ("compute", "communication", "the pipeline", "the host", "reading weights", "matrix products", "stages")


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_first_screen_of_80_columns_and_24_lines_holds_step_bound_and_fit_and_so_does_the_last(name):
    answer, lines = planned(name), shown(paged(name), 80).splitlines()
    assert [line for line in lines if len(line) > 80 and not line.startswith("next: ")] == []
    step, fit = show(answer.step.time_s, "seconds"), answer.memory.verdict.partition(":")[0]
    for part in (lines[:24], lines[-24:]):
        text = " ".join(" ".join(part).split())
        assert f"{step} a step" in text
        assert re.search(f"bound by ({'|'.join(BINDING)})", text)
        assert f"{fit}: peak " in text


def test_the_rows_of_the_collective_that_costs_most_are_marked():
    table, (most, *_) = paged(BASE).tables[0], planned(BASE).step.lost
    marked = {f"{row['collective']} over {row['axis']}" for row in table.rows if row.get(table.mark)}
    assert marked == {most.collective} == {"all_gather over tensor"}
    assert all((row.get("star") == "*") == bool(row.get(table.mark)) for row in table.rows)


def test_lines_that_differ_in_size_alone_name_their_arrays(tpsim):
    out = tpsim("plan", "llama3-8b-v5e", "-v").out
    for label in ("weights Wq, Wo", "weights Wk, Wv", "gradients W2, Wgate, W1", "loss"):
        assert any(line.startswith(f" {label}  ") for line in out.splitlines()), label


# Memory and number formats -------------------------------------------------------------------------------------------


def test_memory_shows_states_what_is_kept_what_is_at_work_and_the_peak(tpsim):
    table = tpsim("plan", "llama3-70b-h100").out.split("\n\n")[4].splitlines()
    names = [line.strip().split("  ")[0] for line in table[2:]]
    assert names[:5] == ["parameters", "gradients", "optimizer state", "states together", "kept for backward"]
    assert names[-1] == "peak"
    assert all(name.startswith("at work: ") for name in names[5:-1])
    held = result(tpsim("plan", "llama3-70b-h100", "-f", "json"))["memory"]
    assert table[-1].split()[-2:] == [
        f"{held['peak_bytes'] / 1e9:.1f}",
        f"{100 * held['peak_bytes'] / held['capacity_bytes']:.1f}",
    ]


def test_the_peak_stands_with_its_action_and_in_a_pipeline_with_its_rank_and_that_of_every_stage(tpsim):
    assert "\npeak: forward (F) of microbatch 0\n" in tpsim("plan", "llama3-70b-h100").out
    out = tpsim("plan", "gpt3-175b-a100-pipeline").out
    assert "\npeak on rank 0: backward (B, W) of microbatch 0 in chunk 0\n" in out
    assert re.search(r"states +kept +peak\n", out)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ((), "activations bf16, parameters bf16, gradients f32, optimizer f32; on the wire"),
        (("--dtype", "fp8"), "activations fp8, parameters fp8, gradients f32, optimizer f32; on the wire"),
        ((), "on the wire bf16 (activations, new weights), f32 (loss, gradients, norm of gradients)\n"),
        (
            ("--set", "workload.grad_dtype=bf16"),
            "on the wire bf16 (activations, gradients, norm of gradients, new weights), f32 (loss)\n",
        ),
    ],
)
def test_a_plan_says_what_is_stored_and_sent_in_which_number_format(tpsim, asked, said):
    assert said in tpsim("plan", "llama3-70b-h100", *asked).out


def test_what_is_not_stated_is_named_on_the_page(tpsim):
    out = tpsim("plan", "--model", "llama-3-8b", "--hw", "dgx-h100", "--dp", "8", "--seq", "4096", "--batch", "8").out
    assert (
        "7 guesses; not stated: workload.microbatches, workload.dtype, workload.grad_dtype, practice, "
        "collectives.launch; -v lists them\n"
    ) in out


def test_seconds_that_compute_hides_stand_beside_those_that_it_does_not(tpsim):
    page = tpsim("plan", "gpt3-175b-a100-tp8-sp", "-v", "--set", "practice.clip=none").out
    table = page.partition("\nEvery collective\n")[2].partition("\nbackward, around")[0]
    assert table.splitlines()[1].split()[5:8] == ["each", "us", "us"]
    assert table.splitlines()[0].split()[1:] == ["exposed", "hidden"]
    (bare,) = (line.split() for line in table.splitlines() if line.startswith(" attention.out"))
    (hidden,) = (line.split() for line in table.splitlines() if line.startswith(" d.mlp.in"))
    assert (bare[7], hidden[6], hidden[7]) == ("0", "0", bare[6])


@pytest.mark.parametrize("name", ["gpt3-175b-a100-tp8", "gpt3-175b-a100-pipeline", "llama3-70b-h100-decode"])
def test_what_is_not_modelled_stands_on_the_page(tpsim, name):
    said = "not modelled: kernels that slow collectives beside them, and each other; jitter, stragglers"
    page = tpsim("plan", name).out
    assert f"\n{said}" in page
    assert "\nNot modelled\n" in tpsim("plan", name, "-v").out


def test_a_demand_on_memory_says_what_it_counts(tpsim):
    out = tpsim("plan", "llama3-70b-h100", "--set", "require={memory: < 60 GB}").out
    assert "\nrequire memory < 60 GB: holds (56.23 GB of states)\n" in out


def test_the_break_even_stands_in_the_report(tpsim):
    said = "compute outlasts exposed communication above 2,018 tokens per chip and step; 8,192 now\n"
    assert said in tpsim("plan", "llama3-70b-h100", "-v").out
    assert "2,018" not in tpsim("plan", "llama3-70b-h100").out


@pytest.mark.parametrize(("most", "said", "code"), [("50 %", "holds", 0), ("0.01 %", "violated", 1)])
def test_a_bubble_and_a_peak_can_be_required(tpsim, most, said, code):
    ran = tpsim("plan", "gpt3-175b-a100-pipeline", "--set", f"require={{bubble: < {most}, peak: < 60 GB}}")
    pipeline = planned("gpt3-175b-a100-pipeline").pipeline
    assert ran.code == code
    assert f"\nrequire bubble < {most}: {said} ({percent(pipeline.bubble_share)})\n" in ran.out
    assert "\nrequire peak < 60 GB: holds (" in ran.out


def test_without_stages_there_is_no_bubble_to_violate(tpsim):
    assert "require bubble < 1 %: holds (0 %)" in tpsim("plan", BASE, "--set", "require={bubble: < 1 %}").out


@pytest.mark.parametrize("name", ["gpt3-175b-a100-pipeline", "gpt3-175b-a100-interleaved", "megatron-1t-a100"])
def test_the_table_of_stages_has_one_unit_per_column(name):
    stages = next(one for one in paged(name).tables if one.columns[0].key == "ranks")
    headers = [column.header for column in stages.columns]
    assert headers == ["stage", "layers", "compute", "exposed", "bubble", "in flight", "states", "kept", "peak"]
    for row in as_text(stages).rows:
        assert [cell for cell in row[1:] if not re.fullmatch(r"[0-9.,]+", cell)] == []


@pytest.mark.parametrize(
    ("stated", "waits"),
    [
        ("", set()),
        ("assume.kernel_launch=100us", {"host_s"}),
        ("practice.overlap.gradients=beside", {"stragglers_s"}),
        ("practice.overlap.gradients=beside assume.kernel_launch=100us", {"host_s", "stragglers_s"}),
    ],
)
def test_seconds_of_every_row_of_stages_are_the_step(stated, waits):
    result = plan("gpt3-175b-a100-pipeline", overrides=stated.split())
    stages = next(table for table in page(result, verbose=True).tables if table.columns[0].key == "ranks")
    seconds = [column.key for column in stages.columns if column.kind == "seconds"]
    assert {*seconds} == {"compute_s", "exposed_s", "bubble_s", *waits}
    assert [sum(row[key] for key in seconds) for row in stages.rows] == pytest.approx(
        [result.step.time_s] * len(stages.rows), rel=1e-9
    )


# Bars and what is folded ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt3-175b-a100-pipeline", BASE, "llama3-8b-v5e"])
def test_under_the_verdict_stand_a_bar_of_the_step_and_one_of_memory(name):
    result = planned(name)
    step, memory = page(result, verbose=False).answer.bars
    assert sum(size for _, size in step.parts) == pytest.approx(result.step.time_s, rel=1e-3)  # but what nobody sees
    assert sum(size for _, size in memory.parts) == result.memory.peak_bytes + result.memory.overhead_bytes
    words = " ".join(part for part, _ in step.parts)
    assert words.startswith("compute ")
    assert all(f"exposed over {row.axis} " in words for row in result.rows if row.exposed_s > 1e-3 * result.step.time_s)
    assert (" bubble " in words) == bool(result.pipeline)


def test_kinds_of_call_below_a_five_hundredth_of_the_step_are_one_line_unless_all_is_wanted(tpsim):
    result = planned(BASE)
    small = re.search(r"\n (\d+) more below 0.2 % of the step, (\S+) ms together\n", tpsim("plan", BASE).out)
    (short, *_), (whole, *_) = (page(result, verbose=all_).tables for all_ in (False, True))
    assert len(whole.rows) - len(short.rows) == int(small[1]) == 12
    assert whole.more == " * all_gather over tensor costs most: 10 % of the step"
    left = sum(row["busy_s"] for row in whole.rows) - sum(row["busy_s"] for row in short.rows)
    assert left * 1e3 == pytest.approx(float(small[2]), rel=1e-3)
    assert all(row["busy_s"] >= 0.002 * result.step.time_s for row in short.rows)


def test_of_many_stages_alike_the_first_and_the_last_are_shown_unless_all_are_wanted():
    out, every = (shown(page(planned("megatron-1t-a100"), verbose=verbose)) for verbose in (False, True))
    assert [line.split()[0] for line in stages_of(out)] == ["0", "1", "62", "63"]
    assert "\n60 more lie between stages of as many layers and states; -v lists them\n" in out
    assert len(stages_of(every)) == 64


def test_stages_and_parts_of_memory_that_a_chip_has_no_room_for_are_marked():
    result, page = planned("llama3-405b-h100-pipeline"), paged("llama3-405b-h100-pipeline")
    stages, memory = page.tables[-2:]
    fits = {row["ranks"]: row["peak_bytes"] <= result.memory.capacity_bytes for row in stages.rows}
    assert {row["ranks"]: row[stages.mark] != "over" for row in stages.rows} == fits
    assert [row["what"] for row in memory.rows if row[memory.mark] == "over"] == ["peak"]


def stages_of(out):
    table = next(block for block in out.split("\n\n") if "in flight" in block).splitlines()
    return [line for line in table if re.match(r"\d+ +2 ", line)]


def test_a_plan_of_one_chip_has_no_tables_of_collectives_without_rows(tpsim):
    out = tpsim("plan", "--model", "gpt-tiny", "--hw", "tpu-v5e", "--seq", "16").out
    assert "1 chip: data 1 x tensor 1" in out
    assert "placement  one chip" in out
    assert "payload" not in out
    assert "wire" not in out


def test_an_efficiency_that_replaces_that_of_attention_too_says_so(tpsim):
    """A lower share than the machine's made a step faster, and nothing said why."""
    out = tpsim("plan", "qwen2-7b-h100", "--set", "assume.matmul_efficiency=0.5").out
    assert "\nthe scenario's matmul_efficiency 0.5 replaces dgx-h100's " in out
    assert re.search(r"dgx-h100's [0-9.]+, and its attention_efficiency\n", out)


@pytest.mark.parametrize("scenario", ["llama3-70b-h100", "llama3-8b-v5e", "gpt2-xl-a100-dp", "llama3-70b-h100-decode"])
def test_the_command_that_follows_explains_the_collective_that_the_verdict_blames(tpsim, scenario):
    out = tpsim("plan", scenario).out
    blamed = re.search(r"lost to exposed (?:communication, mostly )?([a-z_]+) over ", out)
    assert out.splitlines()[-1] == f"next: tpsim explain {blamed[1]} {scenario}"


def test_the_command_that_follows_a_plan_whose_costliest_row_is_of_another_collective_does_so_too(tpsim):
    """Its reduce-scatter of gradients is the costliest row, but its all-gathers cost most together."""
    asked = ["llama3-70b-h100", "--tp", "8", "--batch", "256", "--microbatches", "8", "--zero", "1", "--chips", "64"]
    out = tpsim("plan", *asked).out
    assert "mostly all_gather over tensor" in out
    assert out.splitlines()[-1].startswith("next: tpsim explain all_gather ")
