"""The command ``tpsim``, and ``python -m tpsim``: the command line, which ends quietly if it is interrupted."""

import gc
import os
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
        if "joblib" in sys.modules:  # workers are told that there is no more to do
            sys.exit(code)
        if "multiprocessing.process" in sys.modules:
            _end_copies()
        os._exit(code)  # all is written: to take apart what is in memory takes longer than many an answer
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _end_copies() -> None:
    """Have processes that share an answer end with it, whatever they are at when it is interrupted."""
    from multiprocessing import active_children

    for copy in active_children():
        copy.kill()


if __name__ == "__main__":
    main()
