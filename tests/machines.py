"""A user's own machine for tests, written without sources: every constant counts as a guess."""

from __future__ import annotations

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
    link:
      bandwidth: 45 GB/s
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
