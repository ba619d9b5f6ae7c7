"""``tpsim collective``: one collective over sizes on one machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tpsim.cli.output import output_options

if TYPE_CHECKING:
    from tpsim.cli.output import Output


@click.command(short_help="One collective over sizes.")
@click.argument("name")
@click.option("--hw", required=True, metavar="MACHINE", help="Library name or .yaml.")
@click.option("--ranks", required=True, type=int, metavar="N", help="Devices that take part.")
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
@click.option("--cost-model", default="additive", show_default=True, help="additive or book.")
@click.option("--algorithm", help="Force one: ring, tree, ... Default: what the library takes.")
@click.option("--protocol", help="Force one: ll, ll128, simple. Default: what the library takes.")
@click.option("--launch", metavar="HARNESS|TIME", help="Launch latency: a harness of the profile, or 15us.")
@click.option(
    "--measured", metavar="LOG", help="Beside what nccl-tests, rccl-tests or OSU printed: sizes are the log's."
)
@output_options
@click.pass_context
def collective(
    ctx: click.Context,
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
    measured: str | None,
    output: Output,
) -> None:
    r"""Seconds, bandwidths and bytes of all-gather, reduce-scatter, all-reduce, all-to-all or permute.

    \b
    tpsim collective all-gather --hw tpu-v5e --ranks 16 --level ici.0
    tpsim collective all-reduce --hw dgx-h100 --ranks 16 --level nvlink:4,network --sizes 8MB,1M:1G:x4
    tpsim collective all-reduce --hw dgx-h100 --ranks 8 --measured all_reduce.txt
    """
    from tpsim.question.inputs import read_launch

    asked: dict[str, Any] = {
        "hw": hw,
        "ranks": ranks,
        "level": level,
        "dtype": dtype,
        "cost_model": cost_model,
        "algorithm": algorithm,
        "protocol": protocol,
        "launch": None if launch is None else read_launch(launch),
    }
    if measured is None:
        _predicted(output, name, sizes=sizes, buffer=buffer, **asked)
    else:
        _refuse_sizes(ctx)
        _beside_measured(output, name, log=measured, **asked)


def _predicted(output: Output, name: str, **asked: Any) -> None:
    """The collective at the sizes asked for."""
    from tpsim.answers.collective import collective as answer
    from tpsim.pages.collective import page

    result = answer(name, **asked)
    output.write(result, lambda verbose: page(result, verbose=verbose))


def _beside_measured(output: Output, name: str, **asked: Any) -> None:
    """The same at the sizes of a log, beside what it measured."""
    from tpsim.calibrate.overlay import measured_collective
    from tpsim.pages.overlay import page

    result = measured_collective(name, **asked)
    output.write(result, lambda verbose: page(result, verbose=verbose))


def _refuse_sizes(ctx: click.Context) -> None:
    """Sizes cannot be asked for where they are those of a log."""
    from click.core import ParameterSource

    from tpsim.quantity.errors import InputError

    given = [name for name in ("sizes", "buffer") if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT]
    if given:
        message = f"--{given[0]} has no meaning beside --measured: the sizes are the log's"
        raise InputError.one("sizes-of-the-log", message, remedy=f"leave --{given[0]} out")
