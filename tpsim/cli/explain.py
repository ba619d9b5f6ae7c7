"""``tpsim explain``: where a printed number comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tpsim.cli.output import output_options

if TYPE_CHECKING:
    from tpsim.cli.output import Output


@click.command(short_help="Where a printed number comes from.")
@click.argument("name")
@click.argument("scenario", required=False)
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change one field of the scenario.")
@click.option("--algorithm", metavar="NAME", help="Force one on collectives that know it.")
@click.option("--protocol", metavar="NAME", help="Force one of the machine's.")
@click.option("--launch", metavar="HARNESS|TIME", help="Launch latency: a harness of the profile, or 15us.")
@click.option("--hw", metavar="MACHINE", help="Of a collective: on whose wires. Library name or .yaml.")
@click.option("--ranks", type=int, metavar="N", help="Of a collective: devices that take part.")
@click.option("--level", metavar="LEVEL", help="Of a collective: where they lie. Default: innermost first.")
@click.option("--latex", is_flag=True, help="Formulas in LaTeX.")
@output_options
def explain(
    *,
    name: str,
    scenario: str | None,
    overrides: tuple[str, ...],
    hw: str | None,
    ranks: int | None,
    level: str | None,
    latex: bool,
    output: Output,
    **forced: str | None,
) -> None:
    r"""The derivation and provenance of NAME: formula, values, reasons, sources, and what checks it.

    NAME is a collective, an array or a block of a plan; per_layer.wire, memory.parameters, step.time_s and the like;
    a machine's constant; or a topology. Numbers of a plan need a SCENARIO.

    \b
    tpsim explain all-to-all --hw tpu-v5e --ranks 16
    tpsim explain host
    tpsim explain per_layer.wire gpt3-175b-a100-tp8
    tpsim explain tpu-v5e.levels.ici.link.bandwidth
    """
    from tpsim.answers.explain import explain as answer
    from tpsim.pages.explain import page

    chosen = [f"collectives.{what}={value}" for what, value in forced.items() if value is not None]
    machine = {} if hw is None else {"hw": hw}
    result = answer(name, scenario, overrides=[*overrides, *chosen], ranks=ranks, level=level, **machine)
    output.write(result, lambda verbose: page(result, verbose=verbose, latex=latex))
