"""Passes over gradients and gathered weights: kernels of a framework's own, beside its products and collectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tpsim.program.op import Array, Op

MADE, SENT = "made", "sent"
"""As backward makes a gradient, in the format of activations; as it is added up and sent."""

PASSES: Mapping[str, Sequence[Sequence[str]]] = {
    "fused": (),
    "added": ((MADE, SENT, SENT),),
    "cast": ((MADE, SENT), (SENT, SENT, SENT)),
    "flat": ((MADE, MADE), (MADE, SENT), (SENT, SENT)),
    "each": ((MADE, SENT),),
}
"""`Practice.copies` -> the kernels behind what makes a parameter's gradient, each with the arrays that it moves.

added  a gradient is added to those of other microbatches (Megatron-LM, model/distributed.py: param.main_grad.add_)
cast   it is cast to what is sent, and that is added (DeepSpeed, bf16_optimizer.py: update_hp_grads)
flat   it is laid into the line of its module's, cast to what is sent, and divided by a part of the ranks (PyTorch FSDP:
       SplitBackward, _runtime_utils.py: _reduce_grad, _div_if_needed)
each   it is copied into the buffer that is sent (FSDP2, _fsdp_collectives.py: foreach_reduce_scatter_copy_in)
"""


def behind(
    copies: str, op: Op, reads: Iterable[Array], writes: Iterable[Array], gathered: set[Array]
) -> Iterator[tuple[Array, ...]]:
    """What each kernel behind one moves that makes gradients, or is the first to read weights that FSDP2 gathered.

    op        the first of its ops
    gathered  weights that no kernel has read yet; those that this one reads are taken out
    """
    if copies == "fused" or op.where.index("microbatches") is None:
        return
    for x in [x for x in reads if x in gathered]:
        gathered.remove(x)
        if copies == "each":
            yield (x, x)  # out of the buffer of its module (foreach_all_gather_copy_out)
    for x in (x for x in writes if x.role == "gradient"):
        dtypes = {MADE: _made(op), SENT: x.dtype}
        for names in PASSES[copies]:
            if names != (MADE, SENT) or copies == "each" or dtypes[MADE] != x.dtype:  # else there is nothing to cast
                yield tuple(replace(x, dtype=dtypes[name]) for name in names)


def as_made(copies: str, op: Op, writes: tuple[Array, ...]) -> tuple[Array, ...]:
    """What a kernel writes: gradients as it makes them, where it does not add them up."""
    if copies == "fused" or op.where.index("microbatches") is None:
        return writes
    return tuple(replace(x, dtype=_made(op)) if x.role == "gradient" else x for x in writes)


def _made(op: Op) -> str:
    """The format in which an op makes a gradient: that of the cotangent that it reads."""
    return next((x.dtype for x in op.inputs if x.role != "index"), op.output.dtype)
