"""The page of a search, or of a sweep of searches: the best layouts, what the others lose by, what was looked at."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tpsim.answers.cell import COLUMNS, SERVED
from tpsim.answers.layout_row import Row, as_written, in_texts
from tpsim.answers.sensitivity import FACTOR
from tpsim.pages.plan_facts import drafts_text, inference_practice, model_text, practice_text, telling, work_text
from tpsim.report.numbers import counted
from tpsim.report.table import Column, Page, Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tpsim.answers.search import SearchResult
    from tpsim.answers.sweep import SweepResult
    from tpsim.question.question import Question

LAYOUT = (
    Column("rank", "rank", "integer"),
    Column("tp", "tp", "integer"),
    Column("dp", "dp", "integer"),
    Column("cp", "cp", "integer"),
    Column("ep", "ep", "integer"),
    Column("ep_over", "over"),
    Column("pp", "pp", "integer"),
    Column("schedule", "schedule"),
    Column("chunks", "chunks", "integer"),
    Column("cut", "layers"),
    Column("microbatches", "micro-\nbatches", "integer"),
    Column("microbatch_size", "of\nseqs", "integer"),
    Column("zero", "ZeRO", "integer"),
    Column("shards", "over", "integer"),
    Column("sp", "sp"),
    Column("recompute", "recompute"),
    Column("cache", "cache by"),
    Column("placement", "placement"),
    Column("batch", "batch", "integer"),
)
COSTS = (
    Column("ttft_s", "TTFT", "seconds", alone=True),
    Column("tpot_s", "TPOT", "seconds"),
    Column("rate", "tokens/s", "number"),
    Column("tokens_per_s_chip", "tokens/s\nper chip", "number"),
    Column("served_tokens_per_s_chip", "tokens/s per\nchip of all", "number"),
    Column("step_s", "step", "seconds"),
    Column("peak_bytes", "peak", "bytes"),
    Column("fit", "fits"),
    Column("mfu", "MFU", "share"),
    Column("price", "money, of a\nmillion tokens", "number"),
    Column("loses", "against the best"),
)
MORE = (
    Column("compute_s", "compute", "seconds"),
    Column("exposed_s", "exposed", "seconds"),
    Column("bubble_s", "bubble", "seconds"),
    Column("at_least_s", "at least", "seconds"),
)
"""What the seconds are made of, and what was known of them before the layout was planned."""

OF_TRAINING = ("microbatch_size", "zero", "step_s", "mfu")
"""Columns that say nothing of inference, whose step is that to the first token, or to the next."""

REFUSED = (
    Column("reason", "refused"),
    Column("layouts", "layouts", "integer"),
    Column("example", "the first of them"),
)


RANKED: Mapping[str, str] = {
    "money": "money of a token",
    "tokens_per_s": "time of a token",
    "tokens_per_s_chip": "chip time of a token",
    "served_tokens_per_s_chip": "chip time of a token with its prompt",
}
"""What a better part of the machine makes less of, by what is ranked; else the step."""


def _sensitivity(by: str) -> tuple[Column, ...]:
    """What to buy."""
    return (
        Column("part", "part"),
        Column("factor", "better", "number"),
        Column("elasticity", f"{RANKED.get(by, 'step')} % per %\nlayout held", "number"),
        Column("best_elasticity", "\nsearched again", "number"),
        Column("best_s", "best step", "seconds"),
        Column("relative", f"change of\n{RANKED[by]}" if by in RANKED else "change", "share"),
        Column("layout", "in another layout"),
    )


def _moves(by: str) -> tuple[Column, ...]:
    """What the best step rests on."""
    return (
        Column("constant", "figure"),
        Column("kind", "kind"),
        Column("elasticity", f"{RANKED.get(by, 'step')} % per %\nlayout held", "number"),
        Column("held_s", "step", "seconds"),
    )


def page(result: SearchResult, *, verbose: bool, saved: str = "") -> Page:
    """`result` as a page; `verbose` adds what the seconds are made of, and why layouts were refused.

    saved  the file that holds the best layout now
    """
    rows, front = _flat(result.rows), _flat(result.pareto or ())
    varied = [Column(path, path.replace(".", ".\n")) for path in result.spaces[0].varied]
    columns = (
        *LAYOUT[:1],
        *varied,
        *LAYOUT[1:],
        *COSTS[:-1],
        *(MORE if verbose else ()),
        replace(COSTS[-1], below=verbose),
    )
    tables = [
        Table(tuple(column for column in columns if _tells(column.key, some)), some, title, mark="mark")
        for some, title in ((rows, ""), (front, f"not surpassed in {_weighed(result)} and memory together"))
        if some
    ]
    if result.sensitivity:
        tables.append(Table(_sensitivity(result.by), result.sensitivity, title="a better part of the machine"))
    if result.constants:
        tables.append(
            Table(_moves(result.by), result.constants, title=f"a figure {FACTOR - 1:.0%} better".replace("%", " %"))
        )
    if verbose:
        tables.append(Table(REFUSED, result.refused, folded=True, title="why layouts are refused"))
    return Page(
        result,
        title=f"layouts of {result.name}",
        facts=tuple(_facts(result)),
        tables=tuple(tables),
        next_command=f"tpsim plan {saved}" if saved else _next(result),
    )


def _next(result: SearchResult) -> str:
    """Write the best layout; where there is none ask so that there is one, if it is known how."""
    return result.to_save if result.ok else result.to_pad or result.to_ease


YES, FIT = {True: "yes", False: ""}, {True: "yes", None: "close", False: "no"}
"""Words of a column for what is true, and for a fit that is too close to say."""

OVER = {True: "", None: "", False: "over"}
"""How a row is marked by whether it fits."""


def _weighed(result: SearchResult) -> str:
    """What is weighed against memory."""
    return "money" if result.front and result.front.by == "money" else "speed"


OWN = ("cut", "sp", "fit", "price", "rate")
"""What a page adds to a layout."""


def _cells(row: Mapping[str, Any], by: str, value: float) -> dict[str, Any]:
    """A layout with what a page says of it in words, and what it is ranked by where that is money or tokens.

    value  what it is ranked by, less is better
    """
    cut = "" if row["layers"] == "even" else row["layers"]
    told = {"cut": cut, "sp": YES[row["sequence_parallel"]], "fit": FIT[row["fits"]], "price": None, "rate": None}
    told |= {"price": value * 1e6} if by == "money" else {}
    told |= {"rate": 1 / value} if by == "tokens_per_s" else {}
    told |= {"tokens_per_s_chip": 1 / value} if by == "tokens_per_s_chip" else {}
    told |= {"served_tokens_per_s_chip": 1 / value if by == "served_tokens_per_s_chip" else None}
    return {**row, **told}


def _flat(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [
        {
            **_cells({**row, **in_texts(row)}, row.by, row.planned.value(row.by)),
            **as_written(row),
            "mark": OVER[row["fits"]],
        }
        for row in rows
    ]


def _tells(key: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    """False for a column that says nothing of any layout."""
    idle = {
        "cp": 1,
        "ep": 1,
        "schedule": None,
        "chunks": 1,
        "cut": "",
        "placement": "",
        "sp": "",
        "recompute": "none",
        "fit": "yes",
    }
    idle |= dict.fromkeys(("shards", "ep_over", "cache", "batch", "ttft_s", "tpot_s", "price", "rate"))
    idle |= dict.fromkeys(("tokens_per_s_chip", "served_tokens_per_s_chip"))
    if rows and "batch" in rows[0]:
        idle["microbatches"] = 1
        if key in OF_TRAINING or (key == "batch" and _alike(rows)):
            return False
    return key not in idle or any(row.get(key) != idle[key] for row in rows)


def _alike(rows: Sequence[Mapping[str, Any]]) -> bool:
    """True if all have the same batch, or a column of their own for it."""
    return "workload.batch" in rows[0].get("varied", rows[0]) or len({row["batch"] for row in rows}) == 1


def _facts(result: SearchResult) -> Iterator[tuple[str, str]]:
    questions = result.questions
    yield "model", _either(model_text(question) for question in questions)
    sizes = dict.fromkeys(question.workload.global_batch for question in questions)
    batch = " or ".join(f"{size:,}" for size in sizes) if len(sizes) > 1 else ""
    plain = (replace(one, workload=one.inference.plain) if one.inference else one for one in questions)
    yield "work", _either(work_text(question, batch) for question in plain)
    if drafts := drafts_text(questions):
        yield "drafts", drafts
    chips = (space.chips or question.mesh.devices for space, question in zip(result.spaces, questions, strict=True))
    machines = zip((question.machine.name for question in questions), chips, strict=True)
    yield "machine", _either(f"{name}, {counted(count, 'chip')}" for name, count in machines)
    yield "practice", _either(_practice(question, result.searched) for question in questions)
    yield "searched", ", ".join(result.searched) or "nothing: all is stated"
    if result.held:
        from tpsim.question.save import flow

        yield "held", ", ".join(f"{path} {flow(value)}" for path, value in result.held.items())
    if result.covered:
        yield "covered", f"{result.covered:,} with cp: more data shards do the same, and exchange no keys and values"
    if result.refused:
        listed = (f"{refusal.reason} {refusal.layouts:,}" for refusal in result.refused)
        yield "refused", ", ".join(listed)
    if result.padding:
        yield "padding", f"--set {result.padding} makes the vocabulary divisible"


def _either(texts: Iterable[str]) -> str:
    """What all questions of a search have, or each of them."""
    return " or ".join(dict.fromkeys(texts))


def _practice(question: Question, searched: Sequence[str]) -> str:
    """The switches that no layout of the search has otherwise."""
    if question.inference:
        return inference_practice(question)
    base, layout = question.resolved["practice"]["base"], question.layout
    switches = telling(base, question.practice.under(layout).switches)
    return practice_text(base, {name: switch for name, switch in switches.items() if name not in searched})


EMPTY = (Column("vary", "cell"), Column("why", "no layout"))


def sweep_page(result: SweepResult, *, verbose: bool) -> Page:  # noqa: ARG001  # as every page
    """`result` as a page."""
    rows = [_cells(row, result.by, row["value"]) for row in result.rows]
    known = (*COLUMNS, *SERVED, *OWN)
    varied = [Column(name, name.replace(".", ".\n")) for name in (rows[0] if rows else ()) if name not in known]
    columns = (*LAYOUT[:1], *varied, *LAYOUT[1:], *COSTS[:-1], *MORE[:-1])
    told = tuple(column for column in columns if _tells(column.key, rows))
    empty = [{**cell, "vary": ", ".join(cell["vary"])} for cell in result.empty]
    tables = [Table(told, rows)] if rows else []
    tables += [Table(EMPTY, empty, folded=True, title="cells without a layout")] if empty else []
    facts = (("cells", f"{result.cells:,}, {result.made:,} of them searched now"),)
    title = f"sweep of {result.name}" if result.name else "sweep"
    return Page(result, title=title, facts=facts, tables=tuple(tables), next_command=result.to_save)
