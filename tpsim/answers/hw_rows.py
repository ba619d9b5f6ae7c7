"""What a machine is made of and what is wrong with a profile, in rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpsim.question.inputs import shown

if TYPE_CHECKING:
    from tpsim.machine.curve import MeasuredCurve
    from tpsim.machine.profile import Constant, Machine
    from tpsim.quantity.errors import Problem


def curve_record(curve: MeasuredCurve) -> dict[str, Any]:
    """A measured curve with its knots; seconds, and bytes of the whole array."""
    return {
        "collective": curve.kind,
        "route": [
            {"level": segment.level, "axis": segment.axis, "topology": segment.topology, "ranks": segment.n}
            for segment in curve.route
        ],
        "launch": curve.launch,
        "source": curve.source or None,
        "knots": [
            {"logical_bytes": knot.V, "predicted_s": knot.predicted, "fitted_s": knot.fitted} for knot in curve.knots
        ],
    }


def constant_record(machine: Machine, constant: Constant) -> dict[str, Any]:
    """A constant in a row; `value` is in SI units."""
    source = machine.sources.get(constant.source)
    return {
        "hardware": machine.name,
        "constant": constant.path,
        "value": constant.value,
        "dimension": constant.dimension,
        "kind": constant.kind,
        "source": constant.source or None,
        "title": source.title if source else None,
        "note": constant.note or None,
        "file": shown(constant.file) or None,
    }


def problem_record(problem: Problem) -> dict[str, Any]:
    """A problem in a row; `place` is ``my-cluster.yaml:14:7``."""
    place = problem.place
    return {
        "place": f"{place.file}:{place.line}:{place.column}" if place and place.line else place and place.file,
        "problem": problem.message,
        "remedy": problem.remedy or problem.note or None,
        "slug": problem.slug,
    }
