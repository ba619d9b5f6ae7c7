"""Times whole pipelines, action by action: seconds of one core for each schedule, whose orders are made and checked.

python benchmarks/pipeline.py [RANKS] [MICROBATCHES]
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from tpsim.cost.turns import run
from tpsim.program.schedules import pipeline_schedule

if TYPE_CHECKING:
    from tpsim.program.schedules import Action

SECONDS = {"F": 18.5, "B": 18.1, "W": 9.3}
SEND = 0.6
SCHEDULES = {"1f1b": 1, "zb-h1": 1, "interleaved": 2}
"""Each with its chunks per rank."""


def main(ranks: str = "128", microbatches: str = "512") -> None:
    """Print actions per second of every schedule; nothing of it is known beforehand."""
    for name, chunks in SCHEDULES.items():
        started = time.process_time()
        made = pipeline_schedule(name, int(ranks), chunks, int(microbatches))
        ran = run(made, _seconds, lambda _: SEND)
        spent = time.process_time() - started
        count = sum(map(len, made.orders))
        rate = f"{count:>8,} actions in {spent:5.2f} s of one core: {count / spent:>9,.0f} per second"
        sys.stdout.write(f"{name:>12}: {rate}, step {ran.end:,.1f}\n")


def _seconds(action: Action) -> float:
    return sum([SECONDS[part.act] for part in action])


if __name__ == "__main__":
    main(*sys.argv[1:])
