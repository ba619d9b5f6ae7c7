"""``tpsim collective``: one collective over sizes on one machine."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from tpsim.cli import options
from tpsim.cli.output import Output, output_options
from tpsim.quantity.errors import InputError


@click.command
@click.argument("name", shell_complete=options.collectives)
@click.option("--hw", required=True, metavar="MACHINE", shell_complete=options.machines, help="Library name or .yaml.")
@click.option("--ranks", required=True, type=options.Whole(), metavar="N", help="Devices that take part.")
@click.option(
    "--level", metavar="LEVEL", help="Where they lie: ici.0,ici.1, or nvlink:4,network. Default: innermost first."
)
@click.option(
    "--sizes",
    default="10kB:1GB",
    show_default=True,
    help="A list of bytes and ranges: FROM:TO doubles, FROM:TO:x4, FROM:TO:+1MB; 1M is 1 MiB, as in nccl-tests.",
)
@click.option("--buffer", is_flag=True, help="Read the sizes as nccl-tests does: of one device's buffer.")
@click.option("--dtype", default="bf16", show_default=True, help="Sizes are rounded to whole elements.")
@click.option(
    "--cost-model", default="additive", shell_complete=options.cost_models, show_default=True, help="additive or book."
)
@click.option("--algorithm", help="Force one: ring, tree, ... Default: what the library takes.")
@click.option("--protocol", help="Force one: ll, ll128, simple. Default: what the library takes.")
@options.FLAGS["launch"]
@click.option(
    "--measured",
    metavar="LOG",
    shell_complete=options.files,
    help="Beside what nccl-tests, rccl-tests or OSU printed: sizes are the log's.",
)
@output_options
@click.pass_context
def collective(
    ctx: click.Context, /, output: Output, *, name: str, launch: str | None, measured: str | None, **asked: Any
) -> None:
    r"""Seconds, bandwidths and bytes of all-gather, reduce-scatter, all-reduce, all-to-all or permute.

    \b
    tpsim collective all-gather --hw tpu-v5e --ranks 16 --level ici.0
    tpsim collective all-reduce --hw dgx-h100 --ranks 16 --level nvlink:4,network --sizes 8MB,1M:1G:x4
    tpsim collective all-reduce --hw dgx-h100 --ranks 8 --measured all_reduce.txt
    """
    from tpsim.question.prices import read_launch

    asked["launch"] = None if launch is None else read_launch(launch)
    if measured is None:
        from tpsim.answers.collective import collective as answer
        from tpsim.pages.collective import page

        predicted = answer(name, **asked)
        return output.write(predicted, page)
    from tpsim.calibrate.overlay import measured_collective
    from tpsim.pages.collective import measured_page

    for option in ("sizes", "buffer"):
        del asked[option]
        if ctx.get_parameter_source(option) is not ParameterSource.DEFAULT:
            message = f"--{option} has no meaning beside --measured: the sizes are the log's"
            raise InputError.one("sizes-of-the-log", message, remedy=f"leave --{option} out")
    result = measured_collective(name, log=measured, **asked)
    return output.write(result, measured_page)
