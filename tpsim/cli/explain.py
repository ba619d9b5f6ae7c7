"""``tpsim explain``: where a printed number comes from."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tpsim.cli import options
from tpsim.cli.output import Output, output_options

if TYPE_CHECKING:
    from tpsim.question.edits import Flags


@click.command
@click.argument("name", required=False)
@click.argument("scenario", required=False, shell_complete=options.scenarios)
@options.question_options
@click.option("--ranks", type=options.Whole(), metavar="N", help="Of a collective on --hw: devices that take part.")
@click.option("--level", metavar="LEVEL", help="Of a collective: where they lie. Default: innermost first.")
@click.option("--latex", is_flag=True, help="Formulas in LaTeX.")
@output_options
def explain(*, name: str | None, scenario: str | None, flags: Flags, latex: bool, output: Output, **asked: Any) -> None:
    r"""The derivation and provenance of NAME: formula, values, reasons, sources, and what checks it.

    NAME is a collective, an array or a block of a plan; per_layer.wire, memory.parameters, step.time_s and the like;
    a machine's constant, the machine a library name or a file, before it or as --hw; or a topology. Numbers of a plan
    need a SCENARIO, or the flags that ask without one. Without a NAME: what can be explained, in general or of a
    scenario.

    \b
    tpsim explain
    tpsim explain all-to-all --hw tpu-v5e --ranks 16
    tpsim explain host
    tpsim explain per_layer.wire gpt3-175b-a100-tp8
    tpsim explain tpu-v5e.levels.ici.link.bandwidth
    """
    from tpsim.answers import explain as verb
    from tpsim.pages.explain import list_page, page

    if name is not None and scenario is None and verb.is_scenario(name):
        name, scenario = None, name
    if name is None and (scenario or asked["overrides"] or flags.keys() != {"hw"}):
        listed = verb.explain_list(scenario, overrides=asked["overrides"], **flags)
        return output.write(listed, list_page)
    result = verb.explain(name or "", scenario, **asked, **flags)
    return output.write(result, partial(page, latex=latex))
