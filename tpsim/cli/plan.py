"""``tpsim plan``: one training step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpsim.cli.output import output_options, refuse_inputs

if TYPE_CHECKING:
    from tpsim.cli.output import Output
    from tpsim.question.question import Question

NO = 1
"""The exit code of a plan that violates what its scenario requires."""


@click.command(short_help="One training step.")
@click.argument("scenario", required=False)
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change one field: layout.zero=3.")
@click.option("--model", metavar="MODEL", help="Library name, .yaml, or a Hugging Face config.json.")
@click.option("--hw", metavar="MACHINE", help="Library name or .yaml.")
@click.option("--chips", type=int, metavar="N", help="Chips of the machine; an axis of -1 fills up to it.")
@click.option("--mesh", metavar="AXIS=N,..", help="Mesh axes, major first: data=32,tensor=8.")
@click.option("--tp", metavar="N|AXIS", help="Tensor parallelism: its size, or the mesh axes that it takes.")
@click.option("--dp", metavar="N|AXIS", help="Data parallelism: its size, or the mesh axes that it takes.")
@click.option("--sp/--no-sp", default=None, help="Sequence parallelism: the residual stream split over tp.")
@click.option("--zero", type=int, metavar="0..3", help="ZeRO stage.")
@click.option("--batch", type=int, metavar="N", help="Global batch, in sequences.")
@click.option("--microbatches", type=int, metavar="N", help="Parts that the batch is computed in.")
@click.option("--seq", type=int, metavar="N", help="Tokens per sequence.")
@click.option("--dtype", metavar="DTYPE", help="Of activations and parameters: bf16, f32, fp8, ...")
@click.option("--placement", multiple=True, metavar="AXIS=LEVEL", help="What carries a mesh axis: tensor=nvlink.")
@click.option("--practice", metavar="NAME", help="Switches of a framework: megatron, fsdp2, xla, ideal.")
@click.option("--cost-model", metavar="NAME", help="additive or book.")
@click.option("--planner", metavar="NAME", help="book or cheapest.")
@click.option("--algorithm", metavar="NAME", help="Force one on collectives that know it: ring, tree, in-switch.")
@click.option("--protocol", metavar="NAME", help="Force one of the machine's: ll, ll128, simple.")
@click.option("--launch", metavar="HARNESS|TIME", help="Launch latency: a harness of the profile, or 15us.")
@click.option("--save", metavar="FILE", type=click.Path(path_type=Path), help="Write the resolved scenario.")
@output_options
@click.pass_context
def plan(
    ctx: click.Context,
    /,
    scenario: str | None,
    overrides: tuple[str, ...],
    save: Path | None,
    output: Output,
    **flags: Any,
) -> None:
    r"""What a training step sends, computes and holds, and what bounds it.

    SCENARIO is a library name, a .yaml, or - for stdin; without it, --model, --hw and --seq ask the question.

    \b
    tpsim plan llama3-70b-h100
    tpsim plan llama3-70b-h100 --set layout.zero=3
    tpsim plan --model llama-3-8b --hw tpu-v5e --tp 4 --dp 16 --seq 4096
    """
    from tpsim.answers.plan import plan as answer
    from tpsim.pages.plan import page

    given = {name: value for name, value in flags.items() if value not in (None, ())}
    result = answer(scenario, overrides=overrides, **given)
    saved = {} if save is None else _saved(result.question, save, scenario)
    output.write(result, lambda verbose: page(result, verbose=verbose), saved)
    if not result.ok:
        ctx.exit(NO)


def _saved(question: Question, save: Path, scenario: str | None) -> dict[Path, str]:
    """The resolved scenario as a file. It may take the place of the one that was asked, not of what that one names."""
    from tpsim.question.save import scenario_text

    refuse_inputs([save], (path for path, _ in question.inputs if path != scenario))
    return {save: scenario_text(question, save.parent)}
