"""The entry point: runs the verb and turns whatever happens into an exit code.

0 answered, 1 ran fine and the answer is "no", 2 the request is wrong, 3 a bug in tpsim, 130 interrupted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tpsim import __version__
from tpsim.cli.group import Verbs

if TYPE_CHECKING:
    from collections.abc import Sequence

ANSWERED, BUG, INTERRUPTED = 0, 3, 130


tpsim = click.version_option(__version__, message="tpsim %(version)s")(
    Verbs(
        "tpsim",
        help="What a sharding of a model over a machine costs, derived and shown.",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        epilog="Start with: tpsim plan qwen2-7b-h100",
    )
)


def run(args: Sequence[str]) -> int:
    """Run one command line; its exit code."""
    try:
        return tpsim.main(args=list(args), prog_name="tpsim", standalone_mode=False) or ANSWERED
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  # the last stop: what is no mistake of a request is a bug of ours
        from tpsim.cli.mistakes import in_one_shape
        from tpsim.cli.output import tell

        known = in_one_shape(error)
        if known is None and "--traceback" in args:
            import traceback

            traceback.print_exception(error)
        tell(str(known or _bug(error)))
        return known.exit_code if known else BUG


def _bug(error: Exception) -> str:
    text = " ".join(str(error).split())
    return (
        f"error[bug]: {type(error).__name__}{': ' if text else ''}{text}\n"
        "  = this is a mistake in tpsim, not in your request; --traceback shows where"
    )
