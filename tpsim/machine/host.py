"""Seconds of what a chip's host does: copies to and from the chip, and work on arrays that live in its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpsim.machine.cost import Cost
from tpsim.quantity.errors import InputError
from tpsim.quantity.size import Size, over, smallest

if TYPE_CHECKING:
    from tpsim.machine.parts import Host, Machine, Node

COPY = "copy"
"""The only way in which a chip and its host exchange an array."""

LINK = "chip: {host: {bandwidth: 31 GB/s}}"
MEMORY = "host: {chips: 8, capacity: 1 TB, bandwidth: 400 GB/s}"
"""What a profile says of a host on which arrays live, as an example."""


def hosted(machine: Machine) -> tuple[Host, Node]:
    """The way to a machine's host, and its memory. Raises InputError with the lines that its profile lacks."""
    link, node = machine.chip.host, machine.host
    if link and node:
        return link, node
    lacking = {"way to its host": None if link else LINK, "host's memory": None if node else MEMORY}
    message = f"{machine.name} does not state its {' and its '.join(name for name, line in lacking.items() if line)}"
    lines = ", ".join(filter(None, lacking.values()))
    remedy = f"write what it has, such as hardware: {{extends: {machine.name}, {lines}}}"
    raise InputError.one("no-host", f"{message}: nothing can be offloaded", remedy=remedy)


def copied(machine: Machine, volume: Size) -> Cost:
    """Seconds of `volume` bytes from a chip to its host, or back: the other direction is a link of its own."""
    link, _ = hosted(machine)
    bandwidth_s = over(volume, link.bandwidth.value * (1 if link.efficiency is None else link.efficiency.value))
    latency_s = 0 if link.latency is None else link.latency.value
    work_s = latency_s + bandwidth_s
    return Cost(COPY, 0, latency_s, bandwidth_s, work_s, work_s, 1, volume, volume, volume)


def memory_s(machine: Machine, volume: Size, chips: Size) -> Any:
    """Seconds to read or write `volume` bytes of a host's memory for each of `chips`, as far as these share it."""
    _, node = hosted(machine)
    return over(volume * smallest(chips, node.chips.value), node.bandwidth.value)


def share_bytes(machine: Machine, chips: int) -> float:
    """Bytes of a host's memory for each of `chips`, as far as these share it."""
    _, node = hosted(machine)
    return float(node.capacity.value / min(chips, node.chips.value))
