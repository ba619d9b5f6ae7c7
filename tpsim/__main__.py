"""The command ``tpsim``, and ``python -m tpsim``: the command line, which ends quietly if it is interrupted."""

import sys

INTERRUPTED = 130


def main() -> None:
    """Run the command line and exit; an interrupt counts from the first import on, which takes longest."""
    try:
        from tpsim.cli.main import run

        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
