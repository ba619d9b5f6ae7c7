"""``tpsim search``: the best layout of what a scenario leaves open."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpsim.cli import options
from tpsim.cli.output import Output, counting, output_options, refuse_inputs, tell
from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpsim.question.edits import Flags


@click.command(short_help="The best layout of N chips.")
@click.argument("scenario", required=False, shell_complete=options.scenarios)
@options.question_options
@click.option(
    "--vary",
    multiple=True,
    metavar="PATH=VALUES",
    help="Only these values, of any field: zero=1,3; workload.seq=4096,8192; pipeline.layers=[3,5],[4,4].",
)
@click.option(
    "--by",
    metavar="NAME",
    default="step",
    show_default=True,
    shell_complete=options.measures,
    help="step, tokens_per_s, tokens_per_s_chip, served_tokens_per_s_chip (with prompts), money or memory.",
)
@click.option(
    "--top", type=options.Whole(), metavar="K", default=10, show_default=True, help="Layouts that are listed."
)
@click.option(
    "--plans",
    type=options.Whole(),
    metavar="N",
    default=200,
    show_default=True,
    help="Layouts planned at most; of inference as many as it takes.",
)
@click.option("--pareto", metavar="A,memory", default="", help="Also what no other surpasses in both: step,memory.")
@click.option("--sensitivity", is_flag=True, help="Also what a better part of the machine would bring.")
@click.option("--save", metavar="FILE", type=click.Path(path_type=Path), help="Write the best layout as a scenario.")
@click.option(
    "--sweep",
    metavar="DIR",
    default="",
    shell_complete=options.folders,
    help="Search every combination of --vary for itself, kept in DIR.",
)
@click.option("--workers", type=options.Whole(), metavar="N", help="Processes: of a sweep 1, else all cores.")
@click.option("--dask", metavar="ADDRESS", default="", help="The Dask scheduler of a sweep instead.")
@output_options
def search(
    *,
    scenario: str | None,
    overrides: tuple[str, ...],
    flags: Flags,
    save: Path | None,
    sweep: str,
    output: Output,
    **asked: Any,
) -> None:
    r"""The best of all layouts that a scenario leaves open, and why the next ones are worse.

    What neither the scenario nor a flag states is searched; --chips frees mesh, placement, layout and pipeline, and
    --vary PATH frees a field. SCENARIO is a library name (tpsim scenario list), a .yaml, or - for stdin.

    \b
    tpsim search llama3-70b-h100 --chips 256
    tpsim search llama3-70b-h100 --chips 256 --vary microbatches --tp 8
    tpsim search --model llama-3-8b --hw dgx-h100 --chips 64 --seq 8192 --batch 512 --save best.yaml
    tpsim search llama3-70b-h100-decode --chips 16 --vary batch=32,128 --by tokens_per_s_chip
    tpsim search llama3-70b-h100 --vary chips=64,128,256 --vary zero=1,3 --sweep runs --workers 4
    """
    refuse_inputs([save] if save else [], ())
    workers = asked.pop("workers")
    if sweep:
        asked["workers"] = 1 if workers is None else workers
        _sweep(scenario, {"overrides": overrides, "folder": sweep, **asked, **flags}, output, save=save)
        return
    if asked.pop("dask"):
        message = "--dask is for a sweep, which is kept in a folder"
        raise InputError.one("no-sweep", message, remedy="add it: --sweep DIR")
    from tpsim.answers.search import search as answer
    from tpsim.layouts.copies import processors
    from tpsim.pages.search import page

    asked["workers"] = processors() if workers is None else workers
    with output.watched() as show:
        result = answer(scenario, overrides=overrides, progress=counting(show), **asked, **flags)
        result.lines  # noqa: B018 - where no layout does what makes one do is searched for, too
    saved = options.saved(result.best.question, save, scenario) if result.best else {}
    output.write(result, partial(page, saved=str(save) if saved else ""), saved)


def _sweep(scenario: str | None, asked: dict[str, Any], output: Output, *, save: Path | None) -> None:
    """A search for every combination of the values that are varied."""
    from tpsim.answers.sweep import sweep as answer
    from tpsim.pages.search import sweep_page

    if save or asked.pop("pareto") or asked.pop("sensitivity"):
        message = "a sweep keeps the best layouts of every cell, and no more of any"
        raise InputError.one("no-sweep", message, remedy="leave out --save, --pareto, --sensitivity; or --sweep")
    with output.watched(elsewhere=tell) as show:
        result = answer(scenario, progress=_progress(show), **asked)
    output.write(result, sweep_page)


def _progress(show: Callable[[str], None]) -> Callable[[int, int, float], None]:
    """What shows how far a sweep is, about once a second."""
    last = 0.0

    def progress(done: int, cells: int, seconds: float) -> None:
        nonlocal last
        if seconds - last >= 1 or done in (0, cells):
            last = seconds
            rate = f", {done / seconds:.3g} a second, {(cells - done) * seconds / done:,.0f} s left" if done else ""
            show(f"{done:,} of {cells:,} cells{rate}")

    return progress
