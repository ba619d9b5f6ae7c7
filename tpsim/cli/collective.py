"""``tpsim collective``: one collective over sizes on one machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tpsim.cli.output import output_options

if TYPE_CHECKING:
    from tpsim.cli.output import Output


@click.command(short_help="One collective over sizes.")
@click.argument("name")
@click.option("--hw", required=True, metavar="MACHINE", help="Library name or .yaml.")
@click.option("--ranks", required=True, type=int, metavar="N", help="Devices that take part.")
@click.option("--level", metavar="LEVEL", help="Where they lie: nvlink, ici.0, ici.0,ici.1. Default: innermost first.")
@click.option("--sizes", default="10kB:1GB", show_default=True, help="Bytes: a list, or FROM:TO in doublings.")
@click.option("--buffer", is_flag=True, help="Read the sizes as nccl-tests does: of one device's buffer.")
@click.option("--dtype", default="bf16", show_default=True, help="Sizes are rounded to whole elements.")
@click.option("--cost-model", default="additive", show_default=True, help="additive or book.")
@click.option("--algorithm", help="Force one: ring, tree, ... Default: the fastest on offer.")
@click.option("--protocol", help="Force one: ll, ll128, simple. Default: the fastest on offer.")
@click.option("--launch", metavar="HARNESS|TIME", help="Launch latency: a harness of the profile, or 15us.")
@output_options
def collective(
    *,
    name: str,
    hw: str,
    ranks: int,
    level: str | None,
    sizes: str,
    buffer: bool,
    dtype: str,
    cost_model: str,
    algorithm: str | None,
    protocol: str | None,
    launch: str | None,
    output: Output,
) -> None:
    r"""Seconds, bandwidths and bytes of all-gather, reduce-scatter, all-reduce, all-to-all or permute.

    \b
    tpsim collective all-gather --hw tpu-v5e --ranks 16 --level ici.0
    tpsim collective all-reduce --hw dgx-h100 --ranks 8 --sizes 8MB,64MB
    """
    from tpsim.api.collective import collective as answer
    from tpsim.api.inputs import read_launch
    from tpsim.api.pages.collective import page

    result = answer(
        name,
        hw=hw,
        ranks=ranks,
        level=level,
        sizes=sizes,
        buffer=buffer,
        dtype=dtype,
        cost_model=cost_model,  # type: ignore[arg-type]  # judged there, with a remedy
        algorithm=algorithm,
        protocol=protocol,
        launch=None if launch is None else read_launch(launch),
    )
    output.write(result, lambda verbose: page(result, verbose=verbose))
