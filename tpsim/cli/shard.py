"""``tpsim shard``: the algebra on one expression."""

from __future__ import annotations

from typing import Any

import click

from tpsim.cli import options
from tpsim.cli.output import Output, output_options


@click.command
@click.argument("expression")
@click.option("--mesh", default="X=4,Y=2", show_default=True, metavar="AXIS=N,..", help="Mesh axes, major first.")
@click.option("--dims", metavar="DIM=N,..", help="Sizes of the dims; without them, formulas only.")
@click.option(
    "--hw", metavar="MACHINE", shell_complete=options.machines, help="Machine; without it volumes only, no seconds."
)
@click.option("--placement", metavar="AXIS=LEVEL,..", help="What carries a mesh axis: X=ici.0.")
@click.option("--dtype", default="bf16", show_default=True, help="Of every array.")
@click.option(
    "--planner",
    default="cheapest",
    shell_complete=options.planners,
    show_default=True,
    help="Whose steps: cheapest or book.",
)
@click.option(
    "--cost-model", default="additive", shell_complete=options.cost_models, show_default=True, help="additive or book."
)
@output_options
def shard(expression: str, output: Output, **asked: Any) -> None:
    r"""What one product, one reshard or one array costs on a mesh, and why.

    \b
    tpsim shard "A[I,J_X] . B[J_X,K] -> C[I,K]"
    tpsim shard "A[I_X,J] -> A[I,J_X]" --dims I=8192,J=4096 --hw tpu-v5e
    tpsim shard "A[I_XY,J]" --mesh X=4,Y=2 --dims I=128,J=2048
    """
    from tpsim.answers.shard import shard as answer
    from tpsim.pages.shard import page

    result = answer(expression, **asked)
    output.write(result, page)
