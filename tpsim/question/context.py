"""How devices share the tokens of a sequence, as a scenario states it: which axes split heads, and in which order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from tpsim.program.dtypes import DTYPE_BYTES
from tpsim.program.frameworks import PRACTICES
from tpsim.program.model import Attention, Model
from tpsim.program.tokens import split
from tpsim.quantity.errors import At, InputError, Problem
from tpsim.quantity.size import over, smallest
from tpsim.question.divisibility import legal_tp, listed, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.algebra.mesh import Mesh
    from tpsim.algebra.moves import Axes
    from tpsim.program.layout import Layout
    from tpsim.program.practice import Practice
    from tpsim.question.question import Question, Workload
    from tpsim.question.scenario_file import LayoutFields, ScenarioFile


def heads_axes(fields: LayoutFields, at: At) -> Axes:
    """The axes of cp that split heads inside attention.

    Raises InputError for a context that nobody shares, and for axes that are not those of cp in their order.
    """
    context, cp = fields.context, fields.cp
    if context is None:
        return ()
    if not cp:
        message = "context says how devices share the tokens of a sequence, and no axis has the role cp"
        raise InputError.one("context-without-cp", message, at("layout", "context"), "add it: cp: AXIS")
    if context.all:
        return cp if context.all == "heads" else ()
    tokens = context.gather or context.ring
    if (*tokens, *context.heads) != cp or (context.gather and context.ring):
        message = f"context does not share out cp [{', '.join(cp)}]: first the axes of ring or gather, then of heads"
        remedy = "heads split what stands last in cp"
        raise InputError.one("context-not-cp", message, at("layout", "context"), remedy)
    return context.heads


def stated_context(file: ScenarioFile, at: At) -> Literal["gather", "ring"] | None:
    """How keys and values travel, if the scenario says so. Raises InputError if it says two things."""
    context, other = file.layout and file.layout.context, file.practice.context
    stated: Literal["gather", "ring"] | None = None
    if context:
        stated = "ring" if context.all == "ring" or context.ring else None
        stated = "gather" if context.all in ("gather", "heads") or context.gather else stated
    if stated and other and stated != other:
        message = f"layout.context is {stated} and practice.context {other}"
        raise InputError.one("context-twice", message, at("practice", "context"), "keep one of both")
    return stated or other


def check_shared(practice: Practice, laid: Layout, model: Model, at: At) -> None:
    """Refuse what is not modelled of a shared sequence. Raises InputError.

    Keys and values block after block where all scores are made at once, or where most blocks are hidden; stripes of a
    window.
    """
    if not laid.roles.get("cp"):
        return
    if model.linear:
        message = f"{model.name} has linear attention: devices that share a sequence would hand its state on"
        remedy = "leave layout.cp out: that is not planned yet"
        raise InputError.one("not-supported-yet", message, at("layout", "cp"), remedy)
    masks = {getattr(block, "mask", "causal") for block in model.attentions}
    if practice.context == "ring" and masks != {"causal"}:
        message = f"blocks of keys and values that a {max(masks)} hides travel in vain, which is not modelled"
        raise InputError.one("not-streamed", message, at("layout", "context"), "write context: gather, or heads")
    if practice.order == "striped" and masks != {"causal"}:
        message = f"how stripes share out what a {max(masks)} leaves is not modelled"
        raise InputError.one("not-striped", message, at("practice", "order"), "write zigzag, or contiguous")
    inside = laid.type_in(("b", "t", "g", "d"), "heads").axes("d")
    if practice.context == "ring" and inside:
        message = (
            f"heads are split over {', '.join(inside)}: scores owe a sum then, so that no block of them is complete"
        )
        region = "heads" if "d" in laid.table.get("heads", {}) else "*"
        remedy = "split g or r instead, or write context: gather"
        raise InputError.one("not-streamed", message, at("shardings", region, "d"), remedy)
    if practice.context == "ring" and practice.attention == "plain":
        message = "attention: plain makes all scores at once, so that keys and values cannot come block after block"
        raise InputError.one("not-streamed", message, at("practice", "attention"), "write context: gather, or heads")


def reaches(question: Question) -> set[tuple[int, Any, Any]]:
    """Each window, the bytes of keys and values before a device's own tokens that it reads, and those gathered for it.

    Of neighbouring tokens (contiguous) these are the last w - 1 of other devices', for there are no more than s(n-1)/n;
    of other orders no device needs less. None where attention has all tokens of its heads.
    """
    laid, mesh = question.layout, question.mesh
    inside = laid.type_in(("b", "s", "g", "d"), "heads")
    sharing = mesh.size(*inside.axes("s"))
    reached: set[tuple[int, Any, Any]] = set()
    for block in question.model.attentions:
        if sharing == 1 or not isinstance(block, Attention) or block.mask != "window" or block.window is None:
            continue
        others = over(question.workload.seq * (sharing - 1), sharing)
        sizes = {**question.workload.dims(question.model), **block.sizes}
        elements = inside.local_elements({**sizes, "s": 1}, mesh.axes) * sharing
        token_bytes = 2 * elements * DTYPE_BYTES[question.dtypes.activations]
        reached.add((block.window, token_bytes * smallest(block.window - 1, others), token_bytes * others))
    return reached


def context_problems(
    file: ScenarioFile, model: Model, workload: Workload, mesh: Mesh, at: At, *, cp: Axes, inside: Axes = ()
) -> Iterator[Problem]:
    """What does not divide: the sequence by cp in its order of tokens, heads by the axes that split them inside.

    inside  axes of tp and those of cp that split heads
    """
    order = file.practice.order or PRACTICES[file.practice.base].order or "contiguous"
    n, seq = mesh.size(*cp), workload.seq
    parts = split(order, n)
    if n > 1 and seq % parts:
        twice = f" in the order {order}, which gives each two pieces" if parts > n else ""
        yield Problem(
            "sequence-not-divisible",
            f"seq {seq} is not divisible by cp {n}{twice}",
            at("workload", "seq"),
            f"write {nearest(seq, parts)}" + (", or practice: {order: contiguous}" if twice else ""),
        )
    yield from _chunk_problems(model, seq, at, shared=mesh.size(*(axis for axis in cp if axis not in inside)))
    ways = mesh.size(*inside)
    if model.heads % ways or (model.kv_heads % ways and ways % model.kv_heads):
        yield Problem(
            "heads-not-divisible",
            f"{model.heads} heads of {model.kv_heads} kv heads do not divide by {ways}, tp x the axes of cp for heads",
            at("layout", "context"),
            "legal together: " + listed(legal_tp(model)),
        )


def _chunk_problems(model: Model, seq: int, at: At, *, shared: int) -> Iterator[Problem]:
    """Of chunks of attention that a sequence ends inside of: which device they leave most is not counted.

    shared  devices that share the tokens of a sequence inside attention
    """
    chunks = {block.window or 0 for block in model.attentions if isinstance(block, Attention) and block.mask == "chunk"}
    for chunk in sorted(chunks):
        if shared > 1 and 0 < chunk < seq and seq % chunk:
            message = f"seq {seq} is no multiple of the {chunk} tokens of a chunk of attention"
            message += ": which of the devices that share it has most of what is left is not counted"
            yield Problem("chunks-not-whole", message, at("workload", "seq"), f"write {nearest(seq, chunk)}")
