"""``tpsim verify``: claims held against a run on simulated devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tpsim.cli import options
from tpsim.cli.output import Output, output_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpsim.claims.checks import VerifyResult
    from tpsim.quantity.progress import Progress

OF_EXPRESSIONS = ("mesh", "dims", "hw", "placement", "dtype")
"""The options that say what an expression is run with."""


@click.command
@click.argument("targets", nargs=-1, metavar="[SCENARIO...|EXPRESSION]", shell_complete=options.scenarios)
@options.question_options
@click.option("--dims", metavar="DIM=N,..", help="Of an expression: sizes of the dims.  [default: the least]")
@output_options
@click.pass_context
def verify(
    ctx: click.Context, /, *, targets: tuple[str, ...], flags: dict[str, Any], output: Output, **asked: Any
) -> None:
    r"""Run a step, or an expression, on simulated devices and hold every claim to what they hold and send.

    A scenario runs at reduced size, its structure kept: values, gradients, update, blocks, bytes, links, formulas.
    An expression takes --mesh (X=4,Y=2 unless stated), --dims, --hw, --placement and --dtype.

    \b
    tpsim verify llama3-70b-h100
    tpsim verify scenarios/*.yaml --zero 3
    tpsim verify "A[I,J_X] . B[J_X,K] -> C[I,K]" --mesh X=8
    """
    from tpsim.pages.verify import page

    options = {**flags, **{name: value for name, value in asked.items() if value not in (None, ())}}
    if not (targets or options):
        raise click.MissingParameter(ctx=ctx, param_hint="SCENARIO...|EXPRESSION", param_type="argument")
    with output.watched() as show:

        def progress(done: int, of: int, name: str) -> None:
            show(f"{done} of {of} verified, running {name}")

        result = _answer(targets, options, progress)
    output.write(result, page)


def _answer(targets: tuple[str, ...], options: Mapping[str, Any], progress: Progress | None) -> VerifyResult:
    """Scenarios, or one expression: an expression has brackets, and no file's name does."""
    from tpsim.quantity.errors import InputError

    expressions = [target for target in targets if "[" in target]
    if not expressions:
        from tpsim.claims.verify import verify as answer

        if "dims" in options:
            raise InputError.one("bad-usage", "--dims belongs to an expression", remedy="use --set for scenarios")
        return answer(*targets, progress=progress, **options)
    others = [name for name in options if name not in OF_EXPRESSIONS]
    if len(targets) > 1 or others:
        option = "--set" if others == ["overrides"] else f"--{others[0].replace('_', '-')}" if others else ""
        problem = "an expression is verified alone" if len(targets) > 1 else f"{option} belongs to scenarios"
        raise InputError.one("bad-usage", problem, remedy='write: tpsim verify "A[I_X,J] -> A[I,J]" --mesh X=4')
    from tpsim.claims.verify_expression import verify_expression

    placed = {"placement": ",".join(options["placement"])} if "placement" in options else {}
    return verify_expression(expressions[0], **{**options, **placed}, progress=progress)
