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
