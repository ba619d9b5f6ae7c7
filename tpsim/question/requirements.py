"""Requirements: what a scenario demands of its own answer, e.g. ``step: < 30 s``, read into SI units."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tpsim.quantity.errors import InputError, Place
from tpsim.quantity.units import UnitError, parse
from tpsim.question.question import Limit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpsim.quantity.units import Dimension
    from tpsim.question.divisibility import At


LIMITS: Mapping[str, Dimension] = {
    "step": "seconds",
    "exposed": "seconds",
    "bubble": "ratio",
    "memory": "bytes",
    "peak": "bytes",
    "mfu": "ratio",
    "tokens_per_s": "count",
}
"""What `require` may demand, and the dimension of its bound."""

BANDED: Mapping[str, Dimension] = {"step_low": "seconds", "step_high": "seconds"}
"""Ends of the band of a step: how published runs lie about what is planned decides of them, so that no lock does."""

OF_KIND: Mapping[str, Mapping[str, Dimension]] = {
    "train": BANDED,
    "prefill": {"ttft": "seconds"},
    "decode": {"tpot": "seconds", "tokens_per_s_user": "count"},
    "serve": {"ttft": "seconds", "tpot": "seconds", "tokens_per_s_user": "count"},
}
"""What it may demand, too, by the kind of its workload."""

BOUNDS = {**LIMITS, **BANDED, **OF_KIND["serve"]}


def limits(require: Mapping[str, str], at: At, *, kind: str) -> Iterator[Limit]:
    """The limits of a scenario, read: ``{step: < 30 s}``; `at` says where one stands.

    kind  of workload

    Raises InputError for a bound that cannot be read, and for what only another kind of workload has.
    """
    known = {**LIMITS, **OF_KIND.get(kind, {})}
    for name, text in require.items():
        if name not in known:
            message = f'"{name}" cannot be required of a workload {kind}'
            remedy = "can be required: " + ", ".join(known)
            raise InputError.one("unknown-requirement", message, at("require", name), remedy)
        yield _limit(name, text, at("require", name))


def _limit(name: str, text: str, place: Place | None) -> Limit:
    match = re.fullmatch(r"(<=|>=|<|>)\s*(\S.*)", text.strip())
    if match is None:
        raise InputError.one(
            "bad-requirement", f'"{text}" is no limit on {name}', place, "write a relation and a value: < 30 s"
        )
    try:
        bound = parse(match[2], BOUNDS[name], share=BOUNDS[name] == "ratio")
        return Limit(name, match[1], bound, text.strip())  # type: ignore[arg-type]  # one of the four relations
    except UnitError as error:
        raise InputError.one("bad-requirement", f'"{text}" is no limit on {name}', place, str(error)) from error
