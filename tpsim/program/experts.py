"""The block of experts, written once, unsharded: a router, rows for the experts that tokens choose, their sum.

Dims beside those of `transformer`: i experts as the router scores them, n the same where they lie, c rows per expert,
y an expert's hidden size, z that of the experts that all tokens share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tpsim.program.dispatch import combine, dispatch, from_experts, to_experts
from tpsim.program.op import Array, Scale
from tpsim.program.trace import ONE

if TYPE_CHECKING:
    from tpsim.program.transformer import Transformer

SCORES = ("b", "s", "i")

CHOICE = "top_k"
"""The index function that says which experts a token goes to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Experts in place of an MLP: every token goes to `top` of them.

    experts       how many
    top           those that a token chooses
    hidden        y, of each
    shared        z, of an MLP beside them that every token goes through; 0 without
    score         what the router makes of its logits
    normalise     the scores of the chosen add up to one
    choice_bias   a bias per expert that counts in the choice alone
    groups        of experts, of which a token chooses from `top_groups`
    """

    experts: int
    top: int
    hidden: int
    shared: int = 0
    score: Literal["softmax", "sigmoid"] = "softmax"
    normalise: bool = True
    choice_bias: bool = False
    groups: int = 1
    top_groups: int = 1


def fed(t: Transformer, x: Array, experts: Experts) -> Array:
    """What the experts that its tokens choose make of the normed stream, and those that all share."""
    trace = t.trace
    with t.inside("experts", "routed"):
        x = trace.pin(x, "routed", "the router reads the normed stream", name="router.in")
        gates, chosen = _gates(t, x, experts)
        rows = dispatch(trace, "dispatch.rows", x, chosen)
        picked = dispatch(trace, "dispatch.gates", gates, chosen)
        early = t.practice.rows.gates == "experts"
    with t.inside("experts", "experts"):
        at_experts = to_experts(trace, rows, "dispatch.rows")
        out = _mlp(t, at_experts, to_experts(trace, picked, "dispatch.gates") if early else None)
    with t.inside("experts", "routed"):
        back = from_experts(trace, out, rows.type, "combine.rows")
        if not early:
            back = trace.einsum("combine.weighed", back.dims, back, picked)
        made = combine(trace, "combine.out", back, chosen, x.type)
    return _joined(t, made, _shared(t, x)) if experts.shared else made


def _gates(t: Transformer, x: Array, experts: Experts) -> tuple[Array, Array]:
    """What each expert's output is multiplied by per token, 0 for those that it did not choose; and the choice."""
    trace = t.trace
    logits = t.linear("router.logits", SCORES, x, "Wr")
    chosen = trace.index(CHOICE, SCORES, x.dtype, logits, born=logits.type)
    with t.inside("experts", "routed", "router"):
        if experts.score == "softmax":
            top = trace.max("router.max", logits, "i")
            score = trace.map("router.exp", "exp", trace.lin("router.shifted", logits, top, scales=(ONE, Scale(-1.0))))
        else:
            score = trace.map("router.score", "sigmoid", logits)
        kept = trace.einsum("router.kept", SCORES, score, chosen)
        if experts.normalise:
            return trace.map("router.gates", "div", kept, trace.einsum("router.total", ("b", "s"), kept)), chosen
        if experts.score == "softmax":
            return trace.map("router.gates", "div", kept, trace.einsum("router.total", ("b", "s"), score)), chosen
    return kept, chosen


def _mlp(t: Transformer, rows: Array, gates: Array | None) -> Array:
    """The MLP of every expert over its rows, one product for all experts of a device."""
    trace, inner = t.trace, ("n", "c", "y")
    up = t.linear("experts.up", inner, rows, "W1_experts")
    both = [t.linear("experts.gate", inner, rows, "Wgate_experts"), up] if t.model.gated else [up]
    with t.inside("experts", "experts", "activation.experts"):
        act = trace.map("experts.act", t.model.ffn, *both)
        if gates is not None:
            act = trace.einsum("experts.weighed", inner, act, gates)
    return t.linear("experts.out", ("n", "c", "h"), act, "W2_experts")


def _shared(t: Transformer, x: Array) -> Array:
    """The MLP that every token goes through, split as a dense one is."""
    trace, inner = t.trace, ("b", "s", "z")
    with t.inside("shared", "block"):
        x = trace.pin(x, "block", "the shared experts read the normed stream", name="shared.in")
        up = t.linear("shared.up", inner, x, "W1_shared")
        both = [t.linear("shared.gate", inner, x, "Wgate_shared"), up] if t.model.gated else [up]
        with t.inside("shared", "block", "activation.shared"):
            act = trace.map("shared.act", t.model.ffn, *both)
        return t.linear("shared.out", ("b", "s", "h"), act, "W2_shared")


def _joined(t: Transformer, routed: Array, shared: Array) -> Array:
    """Both outputs together: added up as they owe where they do alike, else each in the stream's sharding."""
    with t.inside("experts", "residual"):
        if routed.type != shared.type:
            routed, shared = (t.trace.pin(y, "residual", "") for y in (routed, shared))
        return t.trace.lin("experts.sum", routed, shared)
