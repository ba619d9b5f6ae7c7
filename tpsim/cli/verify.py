"""``tpsim verify``: claims held against a run on simulated devices."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from tpsim.cli.output import output_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.claims.verified import VerifyResult
    from tpsim.claims.verify import Progress
    from tpsim.cli.output import Output

NO = 1
"""The exit code when a claim is not what the devices did."""


@click.command(short_help="Claims held against a run on simulated devices.")
@click.argument("targets", nargs=-1, required=True, metavar="SCENARIO...|EXPRESSION")
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change one field of the scenarios.")
@click.option("--mesh", metavar="AXIS=N,..", help="Of an expression: mesh axes, major first.  [default: X=4,Y=2]")
@click.option("--dims", metavar="DIM=N,..", help="Of an expression: sizes of the dims.  [default: the least]")
@click.option("--hw", metavar="MACHINE", help="Of an expression: the machine whose wires carry it.")
@click.option("--placement", metavar="AXIS=LEVEL,..", help="Of an expression: what carries a mesh axis: X=ici.0.")
@click.option("--dtype", metavar="DTYPE", help="Of an expression: of every array.  [default: bf16]")
@output_options
@click.pass_context
def verify(
    ctx: click.Context, /, targets: tuple[str, ...], overrides: tuple[str, ...], output: Output, **flags: Any
) -> None:
    r"""Run a step, or an expression, on simulated devices and hold every claim to what they hold and send.

    A scenario runs at reduced size, its structure kept: values, gradients, update, blocks, bytes, links, formulas.

    \b
    tpsim verify llama3-70b-h100
    tpsim verify scenarios/*.yaml
    tpsim verify "A[I,J_X] . B[J_X,K] -> C[I,K]" --mesh X=8
    """
    from tpsim.pages.verify import page

    given = {name: value for name, value in flags.items() if value is not None}
    result = _answer(targets, overrides, given, output)
    output.write(result, lambda verbose: page(result, verbose=verbose))
    if not result.ok:
        ctx.exit(NO)


def _answer(
    targets: tuple[str, ...], overrides: tuple[str, ...], given: dict[str, Any], output: Output
) -> VerifyResult:
    """Scenarios, or one expression: an expression has brackets, and no file's name does."""
    from tpsim.quantity.errors import InputError

    expressions = [target for target in targets if "[" in target]
    if not expressions:
        if given:
            name = next(iter(given))
            raise InputError.one("bad-usage", f"--{name} belongs to an expression", remedy="use --set for scenarios")
        from tpsim.claims.verify import verify as answer

        with _progress(output) as progress:
            return answer(*targets, overrides=overrides, progress=progress)
    if len(targets) > 1 or overrides:
        what = "an expression is verified alone" if len(targets) > 1 else "--set belongs to scenarios"
        raise InputError.one("bad-usage", what, remedy='write: tpsim verify "A[I_X,J] -> A[I,J]" --mesh X=4')
    from tpsim.claims.verify_expression import verify_expression

    return verify_expression(expressions[0], **given)


@contextmanager
def _progress(output: Output) -> Iterator[Progress | None]:
    """A line on stderr that says which run is going on; only for who watches a terminal."""
    if output.quiet or not sys.stderr.isatty():
        yield None
        return

    def show(done: int, of: int, name: str) -> None:
        click.echo(f"\r\033[K{done} of {of} verified, running {name}", err=True, nl=False)

    yield show
    click.echo("\r\033[K", err=True, nl=False)
