"""Times and weighs reports: of every shipped scenario, and of a pipeline of 128 stages, each in a process of its own.

    python benchmarks/reports.py [--check] [SCENARIO ...]

It writes no page, and ends with 1 in any case where a report takes or weighs more than it may: --check adds nothing.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
SECONDS, BYTES = 3.0, 2_000_000
"""What a report may take and weigh."""

MODEL = "--model megatron-1t --hw dgx-a100 --chips 1024 --tp 8 --pp 128 --seq 2048"
LONG = f"{MODEL} --batch 512 --microbatches 512"
"""As many stages as a trillion parameters have layers, with 512 microbatches: 131,072 passes."""


def main(*asked: str) -> int:
    """Print wall-clock seconds, seconds of a core and kilobytes of each; 1 if one is slower or heavier than it may."""
    asked = tuple(one for one in asked if one != "--check")
    shipped = sorted(path.stem for path in (ROOT / "scenarios").glob("*.yaml"))
    missed = sum(_is_missed(one.split(), SECONDS) for one in asked or shipped)
    if not asked:
        missed += _is_missed(LONG.split(), 5 * SECONDS)
    sys.stdout.write(f"{missed} above {SECONDS:g} s of a core (128 stages: {5 * SECONDS:g} s) or {BYTES / 1e6:g} MB\n")
    return int(missed > 0)


def _is_missed(words: list[str], most: float) -> bool:
    """Writes one report and says what it took; seconds of a core count, which other work hardly moves."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        before, started = _core_s(), time.perf_counter()
        command = [sys.executable, "-m", "tpsim", "plan", *words, "-q", "-o", str(file)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - tpsim itself
        if not file.exists():
            sys.exit(done.stderr)
        wall, core, size = time.perf_counter() - started, _core_s() - before, file.stat().st_size
    sys.stdout.write(f"{wall:6.2f} s wall {core:6.2f} s core {size / 1e3:7.0f} kB  {' '.join(words)}\n")
    return core > most or size > BYTES


def _core_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
