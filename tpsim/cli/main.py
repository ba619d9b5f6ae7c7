"""The entry point: runs the verb and turns whatever happens into an exit code.

0 answered, 1 ran fine and the answer is "no", 2 the request is wrong, 3 a bug in tpsim, 130 interrupted.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from tpsim import __version__
from tpsim.cli.group import Verbs

if TYPE_CHECKING:
    from collections.abc import Sequence

ANSWERED, BUG, INTERRUPTED = 0, 3, 130


@click.group(
    cls=Verbs,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with: tpsim plan llama3-70b-h100",
)
@click.version_option(__version__, message="tpsim %(version)s")
@click.pass_context
def tpsim(ctx: click.Context) -> None:
    """What a sharding of a model over a machine costs, derived and shown."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main() -> None:
    """Run the command line of this process and exit."""
    sys.exit(run(sys.argv[1:]))


def run(args: Sequence[str]) -> int:
    """Run one command line; its exit code."""
    from tpsim.quantity.errors import TpsimError

    try:
        return tpsim.main(args=list(args), prog_name="tpsim", standalone_mode=False) or ANSWERED
    except click.ClickException as error:
        from tpsim.cli.mistakes import as_input_error

        return _say(as_input_error(error))
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except TpsimError as error:
        return _say(error)
    except (OSError, MemoryError) as error:
        from tpsim.cli.mistakes import of_the_system

        known = of_the_system(error)
        return _say(known) if known else _bug(error, show="--traceback" in args)
    except Exception as error:  # noqa: BLE001  # the last stop: whatever gets here is a bug of ours
        return _bug(error, show="--traceback" in args)


def _say(error: Exception) -> int:
    """The error in the one shape, what the algebra says of an expression too."""
    if not str(error).startswith("error["):
        from tpsim.cli.mistakes import of_the_notation

        error = of_the_notation(error)
    from tpsim.cli.mistakes import named_by_library
    from tpsim.cli.output import tell

    tell(str(named_by_library(error)))
    return int(getattr(error, "exit_code", BUG))


def _bug(error: Exception, *, show: bool) -> int:
    """A bug in a few lines; all of it if asked."""
    from tpsim.cli.output import tell

    if show:
        import traceback

        traceback.print_exception(error)
    text = " ".join(str(error).split())
    tell(f"error[bug]: {type(error).__name__}{': ' if text else ''}{text}")
    tell("  = this is a mistake in tpsim, not in your request; --traceback shows where")
    return BUG


if __name__ == "__main__":
    main()
