"""Machines for tests: a user's own, written without sources (every constant counts as a guess), and those shipped."""

from __future__ import annotations

from functools import cache

import pytest

from tpsim.fabric.wires import Segment
from tpsim.machine.profile import load
from tpsim.quantity.errors import InputError

OWN = """\
tpsim: hardware/1
name: mine
chip:
  peak: {bf16: 100 TFLOP/s}
  memory: {capacity: 16 GB, bandwidth: 820 GB/s}
levels:
  - name: loop
    topology: ring
    shape: [8]
    link:
      bandwidth: 45 GB/s
"""

TORUS = """\
tpsim: hardware/1
name: torus
chip:
  peak: {bf16: 100 TFLOP/s}
  memory: {capacity: 16 GB, bandwidth: 820 GB/s}
levels:
  - name: ici
    topology: torus
    shape: [4, 4, 4]
    wrap: {always: true}
    launch: 0 us
    link:
      bandwidth: 45 GB/s
      efficiency: 1
      hop_latency: 1 us
"""
"""Closed rings of three or four; two chips are a line."""

SWITCHED = """\
tpsim: hardware/1
name: switched
chip:
  peak: {bf16: 100 TFLOP/s}
  memory: {capacity: 16 GB, bandwidth: 820 GB/s}
levels:
  - name: nvlink
    topology: switch
    link:
      bandwidth: 450 GB/s
      hop_latency: 1 us
"""
"""One switch for everyone."""

ISLAND = """\
tpsim: hardware/1
name: island
chip:
  peak: {bf16: 100 TFLOP/s}
  memory: {capacity: 16 GB, bandwidth: 820 GB/s}
levels:
  - name: port
    topology: switch
    shape: [8]
    launch: {threads: {value: 3 us, kind: stated}, graph: {value: 1 us, kind: stated}}
    protocols:
      ll:
        latency: {value: 4 us, kind: stated}
        hop_latency: {value: 0.6 us, kind: stated}
        efficiency: {value: 0.3, kind: stated}
      simple: {latency: {value: 6 us, kind: stated}, hop_latency: {value: 3 us, kind: stated}}
    link: {bandwidth: {value: 400 GB/s, kind: stated}, efficiency: {value: 0.8, kind: stated}}
  - name: card
    topology: switch
    launch: {threads: {value: 3 us, kind: stated}, graph: {value: 1 us, kind: stated}}
    link: {bandwidth: 50 GB/s, hop_latency: 5 us}
"""
"""Nodes of eight on a switch with two protocols, a card of its own for each device; figures stated without a source."""

machine = cache(load)
"""A shipped machine, read once."""


def node(n, name="dgx-h100"):
    """The way among n ranks of one node."""
    level = machine(name).levels[0]
    return (Segment(level.name, level.name, level.topology, n),)


def two_levels(g, count, name="dgx-h100"):
    """The way among g ranks of each of several nodes."""
    return (*node(g, name), Segment("network", "network", "switch", count))


def refusal(path):
    """What is said of a profile that is refused."""
    with pytest.raises(InputError) as error:
        load(path)
    return str(error.value)
