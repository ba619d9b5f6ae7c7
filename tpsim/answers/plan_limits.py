"""What a plan leaves out and what it takes for granted, so that nobody takes its seconds for a promise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tpsim.cost.compute import FLOPS_COUNTED

if TYPE_CHECKING:
    from tpsim.program.layout import Practice

NOT_MODELLED = (
    "kernels that slow collectives beside them, and each other; a host that launches them more slowly than they run",
    "memory that stands in no list of arrays: buckets of gradients, what a library works in",
    "collectives that disturb each other on shared links, but that these need no less than all of their bytes take",
    "jitter, stragglers, data loading, checkpoints, failures",
)
"""What a plan leaves out, so that nobody takes its seconds for a promise."""

NOT_OF_STAGES = (
    "the norm of all gradients, which adds a sum over the stages; that all of them end the step together is in it",
)
"""What a plan in stages leaves out beside that."""

ASSUMED = (
    "kernels run one after another, each at the slower of matrix unit and memory",
    "the optimizer is AdamW: master weights and two moments of every parameter, updated by one kernel per layer",
    f"MFU and HFU count {FLOPS_COUNTED}; HFU counts what is run again or repeated, too",
)
"""What every plan takes for granted."""

ATTENTION: Mapping[tuple[str, str], str] = {
    (
        "fused",
        "skip",
    ): "attention is one kernel: scores stay on the chip, those that the causal mask hides are left out",
    ("fused", "whole"): "attention is one kernel: scores stay on the chip, the whole s by s is computed",
    ("plain", "skip"): "attention is plain: scores go through memory, the whole s by s",
    ("plain", "whole"): "attention is plain: scores go through memory, the whole s by s",
}
"""What the switches attention and causal of a practice come to."""


def taken_for_granted(practice: Practice) -> tuple[str, ...]:
    """What every plan of that practice takes for granted."""
    return ATTENTION[practice.attention, practice.causal], *ASSUMED
