"""Prices a million layouts of a whole model in arrays, and some of them one by one beside it.

    python benchmarks/layouts.py [MODEL] [MACHINE]

A layout is (tensor parallel size, data parallel size, ZeRO stage, sequence parallelism, global batch). Each takes what
its plan does (`tests/cost/test_grid.py`); where sizes do not divide, a model or machine is refused.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from study import Study
from tpsim.__main__ import RARELY
from tpsim.machine import profile
from tpsim.program.dtypes import Dtypes
from tpsim.program.frameworks import PRACTICES
from tpsim.program.model_file import load_model

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

WANTED = 1_000_000
SCALARS = 200
STRUCTURES = tuple(
    {"zero": zero, "tensor": tensor, "sequence_parallel": split}
    for zero, (tensor, split) in product((0, 1, 2, 3), ((False, False), (True, False), (True, True)))
)
TENSOR_SIZES = {False: (1,), True: (2, 4, 8)}
DATA_SIZES = tuple(2**power for power in range(1, 10))
MESHES = sum(len(TENSOR_SIZES[structure["tensor"]]) for structure in STRUCTURES) * len(DATA_SIZES)
BATCHES = range(1, 1 + WANTED // MESHES + 1)
"""Sequences per data shard."""


def sizes(tensor: bool) -> tuple[Array, ...]:
    """The tp, dp and sequences per data shard of every layout of one structure, each along an axis of its own.

    What does not depend on one of them is evaluated once for all of it: numpy stretches it where it meets what does.
    """
    return np.ix_(*(np.asarray(each, float) for each in (TENSOR_SIZES[tensor], DATA_SIZES, BATCHES)))


def in_arrays(study: Study) -> int:
    """Layouts priced as arrays."""
    count = 0
    for structure in STRUCTURES:
        tp, dp, each = sizes(structure["tensor"])
        found = study.traced(**structure)
        count += study.priced(found, tp=tp, dp=dp, batch=dp * each).time_s.size
    return count


def samples(*several: Sequence[int]) -> list[tuple[int, ...]]:
    """Layouts of one structure, evenly among all."""
    shape = [*map(len, several)]
    places = range(0, prod(shape), prod(shape) // (SCALARS // len(STRUCTURES)) + 1)
    return [tuple(sizes[i] for sizes, i in zip(several, np.unravel_index(at, shape), strict=True)) for at in places]


def one_by_one(study: Study) -> int:
    """Layouts priced as plain numbers."""
    count = 0
    for structure in STRUCTURES:
        found = study.traced(**structure)
        for tp, dp, each in (some := samples(TENSOR_SIZES[structure["tensor"]], DATA_SIZES, BATCHES)):
            study.priced(found, tp=tp, dp=dp, batch=dp * each)
        count += len(some)
    return count


def main(model: str = "llama-3-70b", machine: str = "dgx-h100") -> None:
    """Print layouts per second of both ways."""
    gc.set_threshold(*RARELY)  # as the command does
    study = Study(
        model=load_model(model).model,
        machine=profile.load(machine),
        practice=PRACTICES["megatron"],
        dtypes=Dtypes(),
        seq=4096,
    )
    for name, run in (("arrays", in_arrays), ("one by one", one_by_one)):
        started = time.process_time()
        count = run(study)
        spent = time.process_time() - started
        rate = f"{count:>9,} layouts in {spent:6.2f} s of one core: {count / spent:>12,.0f} per second"
        sys.stdout.write(f"{name:>10}: {rate}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
