"""``tpsim plan``: one step of training or of inference."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpsim.cli import options
from tpsim.cli.output import FORMATS, Output, output_options

if TYPE_CHECKING:
    from tpsim.question.edits import Flags


@click.command(short_help="One step of training or inference.")
@click.argument("scenario", required=False, shell_complete=options.scenarios)
@options.question_options
@click.option("--save", metavar="FILE", type=click.Path(path_type=Path), help="Write the resolved scenario.")
@partial(output_options, formats=(*FORMATS, "trace"))
def plan(
    *,
    scenario: str | None,
    overrides: tuple[str, ...],
    flags: Flags,
    save: Path | None,
    output: Output,
) -> None:
    r"""What a step of training or inference sends, computes and holds, and what bounds it.

    SCENARIO is a library name (tpsim scenario list), a .yaml, or - for stdin; without it, --model, --hw and --seq ask
    the question.

    \b
    tpsim plan llama3-70b-h100
    tpsim plan llama3-70b-h100 --set layout.zero=3
    tpsim plan --model llama-3-8b --hw tpu-v5e --tp 4 --dp 16 --seq 4096
    tpsim plan llama3-405b-h100-pipeline -o step.trace.json
    tpsim plan llama3-70b-h100-decode --set layout.cache=sequence
    tpsim plan --model llama-3-8b --hw dgx-h100 --tp 8 --set workload.kind=decode --batch 16 --seq 4096
    """
    from tpsim.answers.plan import plan as answer
    from tpsim.pages.plan import page

    result = answer(scenario, overrides=overrides, **flags)
    output.write(result, page, options.saved(result.question, save, scenario))
