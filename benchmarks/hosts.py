"""GPUs on PCIe in several hosts: what they reach together, and laws of how they share, held against all of them.

A host is known by its label, the `why` of tests/data/hosts_set.yaml; its 2, 4 and 8 GPUs tell what no datasheet does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tpsim.algebra.moves import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from accuracy_tables import Measured

    Sums = Mapping[str, Mapping[int, float]]

COUNTS = (2, 4, 8)
STEPS = ((2, 4), (4, 8))
"""From how many GPUs to how many a law is asked to tell what they reach together."""

SOCKET = 4
"""GPUs of one socket in a host of eight."""


def _passes(n: int) -> int:
    """Two GPUs write to each other, more go through memory: NCCL's rule between GPUs with no PCIe switch in common."""
    return min(2, n - 1)


def _sockets(n: int) -> int:
    return -(-n // SOCKET)


LAWS: Mapping[str, Callable[[int], float]] = {
    "one path for all, passed twice from three GPUs on (`host`)": lambda n: 1 / _passes(n),
    "one path for all, passed four times where sockets are crossed": lambda n: 1 / (_passes(n) * _sockets(n)),
    "a path per socket of four, passed twice from three GPUs on": lambda n: _sockets(n) / _passes(n),
    "a path per card, passed twice from three GPUs on": lambda n: n / _passes(n),
    "a path per card (`switch`)": lambda n: n,
}
"""What n GPUs reach together, but for a factor that is the host's."""


def together(table: Measured) -> float:
    """GB/s of all GPUs at the largest size: bus bandwidth times their number."""
    sent = float(wire(table.kind, float(table.sizes[-1]), table.ranks))
    return table.ranks * sent / float(table.seconds[-1]) / 1e9


def sums(tables: Iterable[Measured], scored: str) -> Sums:
    """What all-reduces reach per host and number of GPUs; tables that are scored are those of the host `scored`."""
    found: dict[str, dict[int, float]] = {}
    for table in tables:
        if table.kind == "all_reduce":
            found.setdefault(scored if table.scored else table.why, {}).setdefault(table.ranks, together(table))
    return found


def sums_rows(found: Sums) -> Iterator[list[str]]:
    """A row per host."""
    for host, known in found.items():
        yield [host, *(f"{known[n]:.0f}" if n in known else "" for n in COUNTS)]


def law_rows(found: Sums) -> Iterator[list[str]]:
    """A row per law and step: what it says over what was measured, less 1, in percent, per host that has both."""
    for law, share in LAWS.items():
        for few, many in STEPS:
            errors = [_error(share, known, few, many) for known in found.values()]
            yield [law, f"{few} to {many}", *("" if error is None else f"{100 * error:+.0f}" for error in errors)]


def _error(share: Callable[[int], float], known: Mapping[int, float], few: int, many: int) -> float | None:
    if few not in known or many not in known:
        return None
    return share(many) / share(few) * known[few] / known[many] - 1


REPEATED = 2**16
"""Bytes from which a time is compared with its repetition: below, single microseconds are printed."""


def repeated(first: Sequence[Measured], again: Sequence[Measured]) -> dict[int, np.ndarray]:
    """Per number of ranks how far the same collectives on the same host were off when they ran again, in percent."""
    found: dict[int, list[float]] = {}
    known = {(table.kind, table.ranks, table.launch): table for table in first}
    for table in again:
        before = known.get((table.kind, table.ranks, table.launch))
        if before is not None:
            old = dict(zip(before.sizes, before.seconds, strict=True))
            pairs = zip(table.sizes, table.seconds, strict=True)
            found.setdefault(table.ranks, []).extend(
                100 * abs(seconds / old[size] - 1) for size, seconds in pairs if size >= REPEATED and size in old
            )
    return {ranks: np.array(errors) for ranks, errors in found.items()}
