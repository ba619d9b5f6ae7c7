"""The page of a plan: the question, every collective, one layer, memory, and the verdict last."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from tpsim.answers.verdict import percent
from tpsim.cost.collectives import RECOMPUTED
from tpsim.cost.compute import PHASES
from tpsim.pages.plan_facts import (
    ASSUMPTIONS,
    NOT_MODELLED,
    PURPOSES,
    inference_notes,
    memory_lines,
    plan_facts,
    read_at,
)
from tpsim.quantity.units import show
from tpsim.question.edits import flag_words, without_layout
from tpsim.question.requirements import BOUNDS
from tpsim.report.numbers import counted
from tpsim.report.table import Column, Page, Table, present

if TYPE_CHECKING:
    from tpsim.answers.plan import PlanResult
    from tpsim.cost.step import Lost
    from tpsim.question.question import Question


COLUMNS = (
    Column("where", "where"),
    Column("purpose", "for"),
    Column("collective", "collective"),
    Column("axis", "axis"),
    Column("stage", "stage", spare=1),
    Column("ranks", "n", "integer", spare=2),
    Column("count", "calls", "integer", spare=3),
    Column("logical_bytes", "size\neach", "bytes"),
    Column("wire_bytes_per_device", "wire\neach", "bytes", spare=4),
    Column("busy_s", "time\nall", "seconds"),
    Column("share", "exposed\nstep", "share"),
    Column("star", ""),
)
"""One line per kind of call: size and wire of one call, time of all, and their exposed time as a share of the step."""

FULL = (
    Column("where", "where"),
    Column("array", "array"),
    Column("collective", "collective"),
    Column("axis", "axis"),
    Column("stage", "stage"),
    Column("dtype", "dtype"),
    Column("count", "calls", "integer"),
    Column("time_s", "time\neach", "seconds"),
    Column("exposed_s", "exposed", "seconds"),
    Column("hidden_s", "hidden", "seconds"),
    Column("algorithm", "algorithm"),
    Column("protocol", "protocol"),
    Column("formula", "wire bytes", below=True),
    Column("because", "because", below=True),
)
"""One line per array, with the formula and the reason."""

STAGES = (
    Column("ranks", "stage"),
    Column("layers", "layers", "integer"),
    Column("compute_s", "compute", "seconds"),
    Column("exposed_s", "exposed", "seconds"),
    Column("bubble_s", "bubble", "seconds"),
    Column("host_s", "host", "seconds"),
    Column("stragglers_s", "strag-\nglers", "seconds"),
    Column("in_flight", "in flight", "number", spare=1),
    Column("held_bytes", "states", "bytes"),
    Column("kept_bytes", "kept", "bytes"),
    Column("peak_bytes", "peak", "bytes"),
)
"""One line per run of stages that are alike, whose seconds are the step; in flight are microbatches between forward
and backward, at most. What no stage waits for has no column."""

LAYER = (
    Column("payload_bytes", "payload", "bytes"),
    Column("wire_bytes_per_device", "wire", "bytes"),
    Column("time_s", "time", "seconds"),
    Column("exposed_s", "exposed", "seconds"),
)

MEMORY = (
    Column("what", "held by a chip"),
    Column("bytes", "memory", "bytes"),
    Column("share", "of the chip", "share"),
)


def page(result: PlanResult, *, verbose: bool) -> Page:
    """`result` as a page; `verbose` makes it a report.

    A report adds what was read, every array, formulas, reasons, constants, assumptions and what is not modelled.
    """
    return Page(
        result,
        title=result.question.name,
        facts=(*plan_facts(result, verbose=verbose), *(read_at(result) if verbose else ())),
        tables=tuple(_tables(result, verbose=verbose)),
        notes=tuple(_notes(result, verbose=verbose)),
        next_command=_next(result),
    )


def _tables(result: PlanResult, *, verbose: bool) -> Iterator[Table]:
    step_s = result.step.time_s
    most = next(iter(result.step.lost), None)
    rows = [_line(row, step_s, most) for row in (result.collectives if verbose else result.shown())]
    # Within a phase, what every layer does comes first.
    rows.sort(key=lambda row: (PHASES.index(row["phase"]), row["layer"] is None))
    lines = _told_apart(_together(rows))
    small = [] if verbose else [line for line in lines if line["busy_s"] < SMALL * step_s and not line["share"] > SMALL]
    busy = show(float(sum(line["busy_s"] for line in small)), "seconds")
    more = [f" {len(small)} more below {percent(SMALL)} of the step, {busy} together"] if small else []
    shown = [line for line in lines if line not in small]
    if most:
        more.append(f" {STAR} {most.collective} costs most: {percent(most.share)} of the step")
    title = "Collectives" if verbose else ""
    if rows:
        yield Table(present(COLUMNS, shown), shown, title, "where", "mark", more="\n".join(more))
        yield _layer_table(result, verbose=verbose)
    if result.stages:
        yield _stage_table(result, verbose=verbose)
    yield _memory_table(result, verbose=verbose)
    if verbose:
        yield Table(present(FULL, rows), rows, "Every collective", group="where", folded=True)
        from tpsim.pages.hw import constants_table

        machine, prompts = result.question.machine, result.question.prompts
        yield constants_table(machine)
        if prompts and prompts.machine != machine:
            yield constants_table(prompts.machine)
        yield Table(ASSUMPTIONS, result.assumptions, "Assumptions")
        yield Table(NOT_MODELLED, [{"text": text} for text in result.not_modelled], "Not modelled")


SMALL = 0.002
"""The share of a step below which kinds of call are one line together, unless all is wanted."""


def _layer_table(result: PlanResult, *, verbose: bool) -> Table:
    formulas = (Column("formula", "wire, in symbols"),) if verbose else ()
    columns = (Column("phase", f"{result.layer}, one microbatch"), *LAYER, *formulas)
    rows = [
        {"phase": phase, **{column.key: total[column.key] for column in columns[1:]}}
        for phase, total in result.per_layer.items()
        if phase == "forward" or not result.question.inference
    ]
    return Table(columns, rows, "One layer" if verbose else "")


def _stage_table(result: PlanResult, *, verbose: bool) -> Table:
    """The stages; of many in a row that compute and hold alike the first and the last, unless all are wanted."""
    stages, capacity = result.stages or (), result.memory.capacity_bytes
    runs = [list(run) for _, run in groupby(stages, key=lambda stage: (stage.layers, stage.held_bytes))]
    ends = [stage for run in runs for stage in (run if verbose or len(run) <= MOST_STAGES else (run[0], run[-1]))]
    left = f"{len(stages) - len(ends)} more lie between stages of as many layers and states; -v lists them"
    waits = {name: any(end[name] for end in ends) for name in ("host_s", "stragglers_s")}
    shown = [{**end, "mark": "over" if end.peak_bytes > capacity else ""} for end in ends]
    columns = tuple(column for column in STAGES if waits.get(column.key, True))
    return Table(columns, shown, "Stages" if verbose else "", mark="mark", more=left if len(ends) < len(stages) else "")


MOST_STAGES = 8
"""Stages in a row that are all shown though they are of as many layers and states."""


def _memory_table(result: PlanResult, *, verbose: bool) -> Table:
    memory = result.memory
    lines = memory_lines(memory, inference=result.question.inference is not None)
    rows = [
        {"what": name, "bytes": size, "share": share, "mark": "over" if share > 1 else ""}
        for name, size in lines.items()
        for share in (float(size) / memory.capacity_bytes,)
    ]
    return Table(MEMORY, rows, "Memory" if verbose else "", mark="mark")


def _notes(result: PlanResult, *, verbose: bool) -> Iterator[str]:
    step = result.step
    compute, busy, exposed = (show(float(s), "seconds") for s in (step.compute_s, step.communication_s, step.exposed_s))
    whole = show(float(step.time_s), "seconds")
    name = "verification" if result.serve and result.serve.work.drafted else "step"
    yield f"{name} {whole} = compute {compute} + exposed communication {exposed} of {busy}{step.all_waits}"
    if result.pipeline:
        yield f"pipeline: {result.pipeline.formula}, on the critical path"
    rank = f" on rank {result.memory.peak_rank}" if result.pipeline else ""
    yield f"peak{rank}: {result.memory.peak_action}"
    yield from inference_notes(result)
    for demand in result.require:
        of_what = " of states" if demand.name == "memory" else ""
        value = percent(demand.value) if BOUNDS[demand.name] == "ratio" else show(demand.value, BOUNDS[demand.name])
        yield f"require {demand.name} {demand.required}: {'holds' if demand.ok else 'violated'} ({value}{of_what})"
    if best := result.question.stated.file.require.best:
        yield f"require best {best}: of all layouts, which tpsim search --chips and tpsim check look at"
    yield from _replaced(result.question)
    yield from result.question.remarks
    guesses = result.question.guesses
    if verbose:
        yield _saved(result.step.cheapest_saves_s)
        if not result.question.inference:
            yield f"{result.step.breakeven}; {result.tokens / result.chips:,.0f} now"
    if not verbose:
        named, others = result.not_modelled[:2], len(result.not_modelled[2:])
        yield f"not modelled: {'; '.join(named)}; {others} more"
    counts = f"{len(result.assumptions)} assumptions, {counted(guesses, 'guess')}"
    opened = ", ".join(result.question.left_open)
    more = [f"not stated: {opened}"] * bool(opened) + ["-v lists them"] * (not verbose)
    yield "; ".join([counts, *more])


def _saved(seconds: float | None) -> str:
    """What the planner `cheapest` would save."""
    if seconds is None:
        return "what the planner cheapest would save is not worked out over so many mesh axes"
    if not seconds:
        return "no cheaper paths are known"
    return f"planner cheapest would save {show(seconds, 'seconds')} per step"


def _replaced(question: Question) -> Iterator[str]:
    """Another efficiency than the machine's, or one without its waves: who edits those would see nothing move."""
    chip, taken = question.machine.chip, question.matmul_efficiency
    own = chip.matmul_efficiency
    if taken is not None and (taken != own.value or chip.tile or chip.attention_efficiency):
        whose = "the scenario's" if question.assume.matmul_efficiency is not None else "the cost model book's"
        attention = ", and its attention_efficiency" if chip.attention_efficiency else ""
        yield f"{whose} matmul_efficiency {taken:g} replaces {question.machine.name}'s {own.value:g}{attention}"


def _next(result: PlanResult) -> str:
    """Look for a layout where this one does not fit and no change mends it; else explain what costs most."""
    lost, question = result.step.lost, result.question
    worst = lost[0].collective.partition(" ")[0] if lost else next((row.collective for row in result.rows), "")
    searchable = question.inference or question.planner == "book"
    if question.asked and searchable and result.memory.fits is False and result.change is None:
        guessed = {"workload.global_batch", "workload.batch"} & {*question.left_open}
        batch = question.workload.global_batch if guessed else None
        flags = flag_words({"chips": question.mesh.devices, "batch": batch})
        return shlex.join(["tpsim", "search", *without_layout(shlex.split(question.asked)), *flags])
    if asked := question.asked:
        return f"tpsim explain {worst or 'step.compute_s'} {asked}"
    return f"tpsim explain {worst or 'all_reduce'}"


PREFIXES = {"gradient": "grad.", "state": "new."}
"""What the names of their arrays begin with."""

SAME = ("where", "purpose", "collective", "axis", "ranks", "dtype", "logical_bytes", "stage")
"""Rows that agree in these are one line of the short table; the first five are its label."""

STAR = "*"
"""What marks the collective that costs most."""


def _line(row: Mapping[str, Any], step_s: float, most: Lost | None) -> dict[str, Any]:
    """A collective's record with what a page adds: where it stands and what it is for, its share of the step.

    most  what costs most, which is marked
    """
    layer = row["layer"]
    around = "around the layers" if layer is None else f"layer{'s' if '-' in str(layer) else ''} {layer}"
    return {
        **row,
        "where": f"{row['phase']}, {around}",
        "purpose": f"{row['block']} {RECOMPUTED}" if row["op"] == RECOMPUTED else PURPOSES.get(row["op"], row["block"]),
        "share": row["exposed_s"] / step_s,
        **(MOST if most and f"{row['collective']} over {row['axis']}" == most.collective else {}),
    }


MOST = {"mark": "most", "star": STAR}
"""What a row of the collective has that costs most."""


def _together(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows whose calls are alike as one line each, in the order in which they are met: calls and seconds add up.

    A line has the ``arrays`` of its rows.
    """
    lines: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        same = tuple(row.get(key) for key in SAME)
        if same not in lines:
            lines[same] = {**row, "arrays": [row["array"]]}
            continue
        line = lines[same]
        line["arrays"].append(row["array"])
        for key in ("count", "busy_s", "exposed_s", "share"):
            line[key] += row[key]
    return list(lines.values())


def _told_apart(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Lines that differ in size alone say of which arrays they are: ``weights Wq, Wo``."""
    labels = Counter(_label(line) for line in lines)
    return [
        {**line, "purpose": f"{line['purpose']} {_arrays(line)}"} if labels[_label(line)] > 1 else dict(line)
        for line in lines
    ]


def _label(line: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(line[key] for key in SAME[:5])


def _arrays(line: Mapping[str, Any]) -> str:
    """The arrays of a line, without the prefix that its purpose says already."""
    prefix = PREFIXES.get(line["op"], "")
    return ", ".join(
        dict.fromkeys(" ".join(part.removeprefix(prefix) for part in array.split()) for array in line["arrays"])
    )
