"""Fused kernels: what each keeps of its inside for backward, which makes the rest again inside its own kernel.

Inputs of a kernel and what others read of it stand outside: they are kept wherever backward reads them. Nothing else of
a kernel is stored, or moves through memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpsim.program.op import Array
    from tpsim.program.practice import Practice

STATISTIC = "f32"
"""The dtype of sums and statistics that a kernel keeps, whatever its arrays are."""

KEEPS: Mapping[str, tuple[str, ...]] = {
    "norm": ("mean", "variance"),
    "rotary": (),
    "activation": (),
    "add": ("mask",),
    "router": ("exp", "score", "total"),
    "loss": ("exp", "sum_exp"),
}
"""Kind of kernel -> the last words of the names of what it keeps.

Norms keep two numbers per token (PyTorch's and Apex's mean and inverse deviation; RMSNorm one), cross entropy the
softmax of its logits as it is summed (Korthikanti et al. 2022, 4.3), an add with dropout its mask, a router its scores
and their sum.
"""

ATTENTION: Mapping[str, tuple[str, ...]] = {"fused": ("logsum",), "plain": ("exp", "sum_exp", "mask", "dropped")}
"""What attention keeps: one number per head and token (Dao 2023), or its weights as they are summed.

Of dropout plain attention keeps the mask and what multiplies the values (Korthikanti et al. 2022, 4.1); a fused kernel
draws the mask again.
"""


def kind(kernel: str) -> str:
    """``norm`` of ``norm.attention``."""
    return kernel.partition(".")[0]


def keeps(kernel: str, x: Array, practice: Practice) -> bool:
    """True if `kernel` keeps `x`, which it makes."""
    of = kind(kernel)
    return x.name.rpartition(".")[2] in (ATTENTION[practice.attention] if of == "attention" else KEEPS[of])
