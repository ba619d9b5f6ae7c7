"""Deliberate faults in what lives on hosts: `verify`, or the worked example to the byte, sees each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import tpsim
from tests.test_offload import N, asked, copied
from tpsim.algebra import moves
from tpsim.cost import collectives, compute, kernels, memory
from tpsim.machine import host
from tpsim.program.op import Leaf
from tpsim.program.trace import Trace
from tpsim.program.update import Update
from tpsim.reference import execute

if TYPE_CHECKING:
    from tpsim.answers.plan import PlanResult

Fault = Callable[[pytest.MonkeyPatch], None]


def _right(plan: PlanResult) -> bool:
    """The worked example: four bytes each way together, 28 read and written, 14 on the host and none on the chip."""
    moved = copied(plan, "store"), copied(plan, "load")
    seconds = sum(row.busy_s for row in plan.rows if row.axis == "host"), plan.compute.seconds["update"]
    held = plan.memory.host_bytes, plan.memory.optimizer_bytes, plan.memory.host_capacity_bytes
    return (
        moved == (2 * N, 2 * N)
        and seconds == (pytest.approx(4 * N / 16e9), pytest.approx(28 * N / 100e9))
        and held == (14 * N, 0, 2e12)
    )


def _holds() -> bool:
    """Whether verify and the worked example both find nothing."""
    try:
        return tpsim.verify(asked(mesh={"data": 2}, layout={"dp": "data", "zero": 1})).ok and _right(
            tpsim.plan(asked())
        )
    except Exception:  # noqa: BLE001 - a fault that is refused where it arises is seen, too
        return False


def _wire(kind: str, factor: int) -> Fault:
    return lambda patch: patch.setitem(moves.WIRE, kind, lambda V, n: factor * V * n)


def _states_stay(patch: pytest.MonkeyPatch) -> None:
    """The update runs where its states are not."""
    own = Trace.state
    patch.setattr(Trace, "state", lambda self, name, param, dtype, _home: own(self, name, param, dtype, "device"))


def _never_loaded(patch: pytest.MonkeyPatch) -> None:
    own = Trace.brought
    patch.setattr(Trace, "brought", lambda self, x, home, why: x if home == "device" else own(self, x, home, why))


def _loaded_wrong(patch: pytest.MonkeyPatch) -> None:
    """What arrives is another number."""
    own = execute._copied
    patch.setattr(execute, "_copied", lambda blocks: ({at: 2 * x for at, x in own(blocks)[0].items()}, own(blocks)[1]))


def _held_by_the_chip(patch: pytest.MonkeyPatch) -> None:
    own = memory.standing

    def standing(*args: Any) -> memory.Standing:
        right = own(*args)
        return replace(right, optimizer={**right.optimizer, **right.hosted}, hosted={})

    patch.setattr("tpsim.question.memo.standing", standing)


def _gradients_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The host holds states alone."""
    own = memory.standing

    def standing(*args: Any) -> memory.Standing:
        right = own(*args)
        leaves = {op.output for op in right.program.ops if isinstance(op, Leaf)}
        return replace(right, hosted={x: where for x, where in right.hosted.items() if x in leaves})

    patch.setattr("tpsim.question.memo.standing", standing)


def _masters_shared(patch: pytest.MonkeyPatch) -> None:
    """The host updates the chip's own weights."""
    own = Update.states
    patch.setattr(Update, "states", lambda self, param: [param, *own(self, param)[1:]])


def _on_the_chip(patch: pytest.MonkeyPatch) -> None:
    """The update takes as long as on the chip."""
    patch.setattr(host, "memory_s", lambda machine, volume, _chips: compute.memory_s(machine, volume))


def _halves(patch: pytest.MonkeyPatch) -> None:
    """Both directions share one link."""
    own = host.copied
    patch.setattr("tpsim.machine.host.copied", lambda machine, volume: own(machine, 2 * volume))


def _left_out(patch: pytest.MonkeyPatch) -> None:
    """A copy has nobody to talk to."""
    own = collectives.travelling
    patch.setattr("tpsim.answers.plan.travelling", lambda calls, axes: own((c for c in calls if c.axes), axes))


def _written_twice(patch: pytest.MonkeyPatch) -> None:
    """New masters and moments are not written in place."""
    own = kernels.Kernel.memory_bytes
    times = {"host": 2, "device": 1}
    patch.setattr(kernels.Kernel, "memory_bytes", lambda self, sizes: own(self, sizes) * times[self.home])


FAULTS: dict[str, Fault] = {
    "a load injects twice": _wire("load", 2),
    "a store injects nothing": _wire("store", 0),
    "states on the device": _states_stay,
    "weights never loaded": _never_loaded,
    "what arrives is wrong": _loaded_wrong,
    "the chip holds states": _held_by_the_chip,
    "the host forgets gradients": _gradients_forgotten,
    "the host updates the chip's weights": _masters_shared,
    "an update on the chip": _on_the_chip,
    "one link for both ways": _halves,
    "copies are left out": _left_out,
    "an update writes twice": _written_twice,
}


@pytest.mark.usefixtures("anew")
def test_without_a_fault_all_holds():
    assert _holds()


@pytest.mark.usefixtures("anew")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(fault: str, monkeypatch: pytest.MonkeyPatch):
    FAULTS[fault](monkeypatch)
    assert not _holds()
