"""Checks hundreds of scenarios against their lock in a process of one core: seconds, and the most memory held.

    python benchmarks/check.py [SCENARIOS]

The scenarios are the shipped ones, again and again with other batches, so that structures repeat and numbers do not.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tpsim.quantity import spec

WANTED = 500
FACTORS = (1, 2, 3, 4, 5, 6, 8)
"""Multiples of the shipped scenarios' batches."""

SECONDS, MEGABYTES = 5.0, 300.0
"""What a check of 500 scenarios may take."""


def write(folder: Path, count: int) -> None:
    """So many scenario files, each a shipped one with a multiple of its batch."""
    names = spec.names("scenarios")
    for at in range(count):
        name = names[at % len(names)]
        batch = spec.load(spec.find("scenarios", name)).data["workload"]["global_batch"]
        factor = FACTORS[at // len(names) % len(FACTORS)]
        text = f"tpsim: scenario/1\nextends: {name}\nworkload: {{global_batch: {batch * factor}}}\n"
        (folder / f"{name}-{at}.yaml").write_text(text, encoding="utf-8")


def run(*args: str) -> tuple[float, float, float]:
    """Seconds by the clock and of the processor, and the megabytes held at most, of one command in its own process."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "tpsim", *args], env=environment())  # noqa: S603
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"tpsim {' '.join(args)} failed")
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def environment() -> dict[str, str]:
    """One thread, whatever numerics are loaded."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def main() -> None:
    """Write the scenarios and their lock, then check."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else WANTED
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with TemporaryDirectory() as work:
        folder, lock = Path(work) / "scenarios", Path(work) / "tpsim.lock"
        folder.mkdir()
        write(folder, count)
        first = run("check", "--update", str(folder), "--lock", str(lock), "-q")
        again = run("check", "--lock", str(lock), "-q")
        sys.stdout.write(
            f"{count} scenarios, {lock.stat().st_size / 1e6:.1f} MB of lock, one core\n"
            f"at most         {SECONDS:5.2f} s                           {MEGABYTES:4.0f} MB\n"
            f"check           {again[1]:5.2f} s of processor, {again[0]:5.2f} s in all, {again[2]:4.0f} MB\n"
            f"check --update  {first[1]:5.2f} s of processor, {first[0]:5.2f} s in all, {first[2]:4.0f} MB\n"
        )


if __name__ == "__main__":
    main()
