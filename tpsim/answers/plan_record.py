"""A plan's numbers under the names that the interface gives them."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tpsim import __version__
from tpsim.cost.rollup import Total

if TYPE_CHECKING:
    from tpsim.cost.rollup import Collective, Row, Sizes
    from tpsim.question.question import Question


def row_record(row: Row, sizes: Sizes) -> dict[str, Any]:
    """A collective without its formula: bytes and time_s of one call; payload, busy and exposed of all `count` calls.

    layer  ``0-95`` for what runs in each of 96 layers, None outside the layers
    op     the role of its arrays: activation, gradient, param, state
    axis   mesh axes joined by commas, major first
    """
    one, timing = row.collective, row.timing
    return {
        "phase": one.where.phase,
        "layer": layer_label(one, sizes),
        "block": one.block,
        "op": one.op,
        "array": one.array,
        "collective": one.kind,
        "axis": ",".join(one.axes),
        "ranks": number(row.ranks),
        "dtype": one.dtype,
        "count": number(row.count),
        "logical_bytes": number(row.logical_bytes),
        "wire_bytes_per_device": number(row.wire_bytes),
        "payload_bytes": number(row.logical_bytes * row.count),
        "time_s": float(timing.time_s),
        "latency_s": float(timing.launch_s + timing.latency_s),
        "bandwidth_s": float(timing.bandwidth_s),
        "busy_s": float(row.busy_s),
        "exposed_s": float(row.exposed_s),
        "algorithm": timing.algorithm,
        "protocol": timing.protocol,
    }


def asked_record(question: Question) -> dict[str, Any]:
    """What was asked, in columns that are the same for every row of a plan."""
    layout = question.layout
    return {
        "scenario": question.name,
        "model": question.model.name,
        "hardware": question.machine.name,
        "chips": question.mesh.devices,
        "mesh": ",".join(f"{axis}={size}" for axis, size in question.mesh.axes.items()),
        "placement": "; ".join(" ".join(line.split()) for line in question.placement.describe()),
        "zero": layout.zero,
        "sequence_parallel": layout.sequence_parallel,
        "global_batch": question.workload.global_batch,
        "seq": question.workload.seq,
        "microbatches": question.workload.microbatches,
        "cost_model": question.cost_model,
        "planner": question.planner,
        "guesses": question.guesses,
        "tpsim": __version__,
    }


def layer_label(one: Collective, sizes: Sizes) -> str | int | None:
    """``0-95`` for a traced layer that stands for 96, its index if it stands for itself, None outside the layers."""
    layer, layers = one.where.index("layers"), sizes.loops["layers"]
    if layer is None:
        return None
    if one.program.traced["layers"] == layers:
        return layer
    return f"0-{layers - 1}"


def total_record(total: Total, formula_text: str) -> dict[str, Any]:
    """A sum as the interface names its columns."""
    return {
        "payload_bytes": number(total.payload),
        "wire_bytes_per_device": number(total.wire),
        "carried_bytes_per_device": number(total.carried),
        "link_serial_bytes": number(total.link),
        "time_s": float(total.busy_s),
        "latency_s": float(total.latency_s),
        "bandwidth_s": float(total.bandwidth_s),
        "exposed_s": float(total.exposed_s),
        "formula": formula_text,
    }


def each(total: Total, repeats: int) -> Total:
    """A sum over `repeats` equal parts, as one of them."""
    return Total(*(share(getattr(total, name), repeats) for name in Total.__dataclass_fields__))


def share(value: Any, parts: int) -> Any:
    """One of `parts` equal shares, exact for exact numbers."""
    return number(Fraction(value) / parts) if isinstance(value, int | Fraction) else value / parts


def number(value: Any) -> int | float:
    """A JSON number: an int where the value is whole and exact."""
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else float(value)
    return value if isinstance(value, int) else float(value)
