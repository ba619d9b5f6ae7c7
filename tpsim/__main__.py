"""``python -m tpsim``: the same as the command ``tpsim``."""

from tpsim.cli.main import main

main()
