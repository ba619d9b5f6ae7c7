"""The command ``tpsim``, and ``python -m tpsim``: the command line, which ends quietly if it is interrupted."""

import gc
import sys

INTERRUPTED = 130
RARELY = 3_000_000, 50, 100
"""How much is made before what is left over is looked for: a command is over before there is much of that."""


def main() -> None:
    """Run the command line and exit; an interrupt counts from the first import on, which takes longest."""
    gc.set_threshold(*RARELY)
    try:
        from tpsim.cli.main import run

        code = run(sys.argv[1:])
        gc.freeze()  # when Python ends it would look through all that is there, several times over
        sys.exit(code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
