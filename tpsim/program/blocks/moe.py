"""A mixture of experts: a router, experts of which a few work for each token, and what works beside them for all."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from tpsim.program.blocks.mlp import activated, projections
from tpsim.program.dispatch import (
    choice,
    combine,
    copied,
    counted,
    dispatch,
    from_experts,
    gone,
    narrowed,
    returned,
    to_experts,
)
from tpsim.program.text import MINUS, Parameter, Text
from tpsim.program.trace import ONE, Trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.program.model import Moe
    from tpsim.program.op import Array
    from tpsim.program.practice import Practice

SCORES = ("b", "s", "i")
INNER = ("n", "c", "y")


def parameters(block: Moe, _: Practice) -> Iterator[Parameter]:
    """The router scores experts as i; experts are n; what they share works for every token."""
    yield Parameter("Wr", ("h", "i"), "router")
    if block.bias:
        yield Parameter("br", ("i",), "router")
    if block.choice_bias:
        yield Parameter("choice_bias", ("i",), "router", trained=False)
    yield from projections(block.kind, "experts", ("n",), "y", bias=block.bias)
    if block.shared:
        yield from projections(block.kind, "shared", (), "z")
    if block.shared_gate:
        yield Parameter("Wgate_of_shared", ("h",), "shared")


def write(text: Text, block: Moe, x: Array) -> Array:
    """What the experts that its tokens choose make of the normed stream, and what all tokens share."""
    trace, early, levels = text.trace, text.practice.rows.gates == "experts", text.practice.levels
    with text.inside("router", "routed"):
        x = trace.pin(x, "routed", "the router reads the normed stream", name="router.in")
        gates, chosen = _gates(text, block, x)
    if text.practice.rows.counts == "exchange":
        _announced(text, chosen)
    with text.inside("experts", "routed"):
        tokens = narrowed(trace, x, text.practice.rows)
        copying = copied(trace, tokens, chosen, levels)
        copies = [*islice(copying, 1)]
    # What all tokens share is made while the first of what is sent to experts is on its way.
    shared = _shared(text, block, x) if block.shared and copies else None
    with text.inside("experts", "routed"):
        copies += copying
        rows = dispatch(trace, "dispatch.rows", copies[-1][1] if copies else tokens, chosen)
        picked = dispatch(trace, "dispatch.gates", gates, chosen, levels=levels)
        for level in levels:
            picked = gone(trace, picked, level, picked.name)
    with text.inside("experts", "experts"):
        there = to_experts(trace, rows, "dispatch.rows")
        weights = to_experts(trace, picked, "dispatch.gates") if early else None
    if block.shared and not copies:
        shared = _shared(text, block, x)
    with text.inside("experts", "experts"):
        out = _made(text, block, there, weights)
    with text.inside("experts", "routed"):
        back = from_experts(trace, out, rows.type, "combine.rows")
        back = back if early else trace.einsum("combine.weighed", back.dims, back, picked)
        for level, sent in reversed([*zip(levels, copies, strict=True)]):
            back = returned(trace, back, level, chosen, sent)
        combined = combine(trace, "combine.out", back, chosen, x)
    return combined if shared is None else _joined(text, combined, shared)


def _announced(text: Text, chosen: Array) -> None:
    """How many rows are to come goes ahead of them, the way that weights go."""
    trace, levels = text.trace, text.practice.levels
    with text.inside("experts", "routed"):
        ahead = [*counted(trace, chosen, levels)]
        for level in levels:
            ahead = [gone(trace, counts, level, "dispatch.counts") for counts in ahead]
    with text.inside("experts", "experts"):
        for counts in ahead:
            to_experts(trace, counts, "dispatch.counts")


def _gates(text: Text, block: Moe, x: Array) -> tuple[Array, Array]:
    """What each expert's output is multiplied by per token, 0 for those that it does not choose; and the choice."""
    trace, softmax = text.trace, block.score == "softmax"
    logits = text.linear("router.logits", SCORES, x, "Wr", "br")
    biases = [text.use("choice_bias")] if block.choice_bias else []
    chosen = choice(trace, logits, *biases)
    with text.inside("router", "routed", "router"):
        if softmax:
            top = trace.max("router.max", logits, "i")
            score = trace.map("router.exp", "exp", trace.lin("router.shifted", logits, top, scales=(ONE, MINUS)))
        else:
            score = trace.map("router.score", "sigmoid", logits)
        kept = trace.einsum("router.kept", SCORES, score, chosen)
        if not (block.normalise or softmax):
            return kept, chosen
        total = trace.einsum("router.total", ("b", "s"), kept if block.normalise else score)
        return trace.map("router.gates", "div", kept, total), chosen


def _made(text: Text, block: Moe, rows: Array, gates: Array | None) -> Array:
    """What every expert makes of its rows, one product for all experts of a device; weighed by gates if they are here.

    Rows are weighed where they are narrow: what follows is linear but for a bias, which is weighed by itself.
    """
    trace = text.trace
    act = activated(text, block.kind, INNER, rows, gates)
    out = text.linear("experts.out", ("n", "c", "h"), act, "W2_experts")
    if not block.bias:
        return out
    bias = _once(trace, text.use("b2_experts"))
    rows = trace.einsum("experts.b2", out.dims, gates, bias) if gates else trace.bcast("experts.b2", bias, out.type)
    return trace.lin("experts.out", out, rows)


def _once(trace: Trace, bias: Array) -> Array:
    """A bias that every device with a part of an expert has, as a sum that these owe: one of them adds it, no other.

    So is what their products make of their parts, and rows need not be complete for it (vLLM, gpt_oss.py; torchtitan
    adds an equal share of each).
    """
    return trace.einsum("experts.b2.once", bias.dims, bias, trace.index("first_slot", ("y",), bias.dtype))


def _shared(text: Text, block: Moe, x: Array) -> Array:
    """The feed-forward that works for every token, split as a dense one is."""
    with text.inside("shared", "block"):
        x = text.trace.pin(x, "block", "what all tokens share reads the normed stream", name="shared.in")
        act = activated(text, block.kind, ("b", "s", "z"), x)
        out = text.linear("shared.out", ("b", "s", "h"), act, "W2_shared")
        if not block.shared_gate:
            return out
        gate = text.linear("shared.gate", ("b", "s"), x, "Wgate_of_shared")
    with text.inside("shared", "block", "activation.shared_gate"):
        opened = text.trace.map("shared.open", "sigmoid", gate)
        return text.trace.einsum("shared.opened", out.dims, out, opened)


def _joined(text: Text, routed: Array, shared: Array) -> Array:
    """Both outputs together: added up as they owe where they do alike, else each in the stream's sharding."""
    with text.inside("experts", "residual"):
        if routed.type != shared.type:
            routed, shared = (text.trace.pin(y, "residual", "") for y in (routed, shared))
        return text.trace.lin("experts.sum", routed, shared)
