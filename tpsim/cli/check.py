"""``tpsim check``: every scenario held against the lock."""

from __future__ import annotations

import click

from tpsim.cli import options
from tpsim.cli.output import Output, output_options


@click.command(short_help="Hold scenarios against tpsim.lock.")
@click.argument("paths", metavar="[PATH]...", nargs=-1, shell_complete=options.scenarios)
@click.option("--update", is_flag=True, help="Write the lock as it should be now, and print what moved.")
@click.option(
    "--lock",
    metavar="FILE",
    default="tpsim.lock",
    shell_complete=options.files,
    help="The lock; tpsim.lock unless stated.",
)
@output_options
def check(paths: tuple[str, ...], update: bool, lock: str, output: Output) -> None:
    r"""Hold every scenario against the lock and name the cause of each drift; exit code 1 if anything moved.

    PATH is a file or a folder of scenarios; without any, those that the lock names. As Markdown (-f md) the answer is
    the body of a comment, and nothing at all when nothing moved.

    \b
    tpsim check --update scenarios
    tpsim check
    tpsim check -f md
    """
    from tpsim.guard.check import check as answer
    from tpsim.pages.drift import check_page

    result = answer(paths, lock=lock, update=update)
    locked = {result.path: result.text} if update else {}
    output.write(result, check_page, locked)
