"""``tpsim diff``: what moves from one side to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tpsim.cli import options
from tpsim.cli.output import Output, output_options, refuse_inputs

if TYPE_CHECKING:
    from tpsim.question.edits import Flags


@click.command(short_help="Two scenarios, saved results or locks: what moves, and why.")
@click.argument("base", shell_complete=options.scenarios)
@click.argument("new", required=False, shell_complete=options.scenarios)
@options.question_options
@click.option("--min-change", metavar="SHARE", default="0", help="Leave out what moves by less: 1%.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 if anything moves.")
@output_options
def diff(
    *,
    base: str,
    new: str | None,
    overrides: tuple[str, ...],
    flags: Flags,
    min_change: str,
    exit_code: bool,
    output: Output,
) -> None:
    r"""What moves from BASE to NEW, per collective and per axis, and why. Changes are new - old: + is more.

    Each is a scenario, a plan saved with -o plan.json, or a lock; without NEW, BASE with what the flags change of it.
    As Markdown (-f md) the answer is the body of a pull request's comment, and nothing at all when nothing moves.

    \b
    tpsim diff llama3-70b-h100 --zero 3
    tpsim diff base.lock tpsim.lock -f md
    """
    from tpsim.guard.diff import diff as answer
    from tpsim.pages.drift import diff_page

    refuse_inputs(output.files, [base, new or base])
    result = answer(base, new, overrides=overrides, min_change=min_change, **flags)
    output.write(result, diff_page, fails=exit_code)
