"""Linear attention by a gated delta rule: short convolutions over tokens, a recurrence with a state, a gated norm.

Sources: Yang et al. (2024), arXiv 2412.06464, as Qwen3-Next has it; Kimi Linear (2025), arXiv 2510.26692.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.program.blocks.norm import norm
from tpsim.program.op import Array, Scale
from tpsim.program.recurrence import HEADS, STATE, recurrence
from tpsim.program.saved import STATISTIC
from tpsim.program.text import MINUS, Parameter, Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpsim.program.linear import Linear
    from tpsim.program.practice import Practice
    from tpsim.program.serving import Served

ROWS: Mapping[str, tuple[str, ...]] = {"q": ("lg", "ld"), "k": ("lg", "ld"), "v": (*HEADS, "lo")}
"""The dims of a token's queries, keys and values."""

HELD_OF: Mapping[str, tuple[str, ...]] = {
    "S": STATE,
    **{name.upper(): ("b", "lp", *dims) for name, dims in ROWS.items()},
}
"""What inference keeps of a sequence: the state, and the last tokens that convolutions read."""


def parameters(block: Linear, _: Practice) -> Iterator[Parameter]:
    """A weight for each product; taps of convolutions; what decays are made with, by head; the gain of a norm."""
    for name, dims in ROWS.items():
        yield Parameter(f"W{name}", ("h", *dims), "attention")
        yield Parameter(f"taps_{name}", ("lw", *dims), "attention", first=dims)
    yield Parameter("Wstrength", ("h", *HEADS), "attention")
    for name, dims in (("decay", _decays(block)), ("open", ROWS["v"])):
        if block.rank:
            yield Parameter(f"W{name}_down", ("h", "lu"), "attention")
        yield Parameter(f"W{name}", ("lu" if block.rank else "h", *dims), "attention")
    yield Parameter("decay_rate", HEADS, "attention")
    yield Parameter("decay_bias", _decays(block), "attention")
    yield Parameter("gain_state", ("lo",), "attention")
    yield Parameter("Wo", ("h", *ROWS["v"]), "attention", first=("h",))


def _decays(block: Linear) -> tuple[str, ...]:
    """The dims of a token's decays."""
    return (*HEADS, "ld") if block.rule == "kda" else HEADS


def write(text: Text, block: Linear, x: Array) -> Array:
    """What tokens read of the state that those before them left; its output owes a sum wherever the heads are split."""
    with text.inside("attention", "block"):
        x = text.entered(x, "attention.in", "linear attention reads the normed stream")
        rows = projected(text, x)
    operands = headed(text, block, x, {name: convolved(text, name, row) for name, row in rows.items()})
    with text.inside("attention", "block", "recurrence"):
        read = recurrence(text.trace, "attention.read", *operands)
    return ended(text, block, x, read)


def serve(text: Served, block: Linear, x: Array) -> Array:
    """The same of inference: what tokens before have left is read, and changed, where it lies: split as heads are."""
    trace, stepped = text.trace, text.serving.phase == "decode"
    with text.inside("attention", "block"):
        x = trace.pin(x, "block", "linear attention reads the normed stream", name="attention.in")
        rows = projected(text, x)
    with text.apart():
        rows = {name: _continued(text, name, row) for name, row in rows.items()}
        operands = headed(text, block, x, rows)
        with text.inside("attention", "heads"):
            lie = [trace.pin(operand, "heads", "the state takes them where it lies") for operand in operands]
        with text.inside("attention", "heads", "recurrence"):
            before = [text.held("S")] if text.serving.cached else []
            read = recurrence(trace, "attention.read", *lie, *before, stepped=stepped)
            behind = recurrence(trace, "attention.state", *lie, *before, ends=True, stepped=stepped, dtype=STATISTIC)
            text.keep("S", behind)
        with text.inside("attention", "block"):
            read = trace.pin(read, "block", "")
    return ended(text, block, x, read)


def _continued(text: Served, name: str, x: Array) -> Array:
    """Convolved rows behind the last ones that were, which give way to those that are last now."""
    trace, dims, cached = text.trace, ROWS[name], name.upper()
    with text.inside("attention", "heads"):
        x = trace.pin(x, "heads", "its convolution keeps the last tokens where the state lies")
    made = convolved(text, name, x, text.held(cached) if text.serving.cached else None)
    with text.inside("attention", "heads", f"convolution.{name}"):
        kept = ("b", "lpe", *dims)
        rows = trace.rename(f"{name}.rows", x, "s", "lt")
        last = trace.einsum(f"{name}.last", kept, rows, trace.index("taps_held", ("lt", "lpe"), x.dtype))
        if text.serving.cached:
            still = trace.index("taps_held_before", ("lp", "lpe"), x.dtype)
            last = trace.lin(f"{name}.held", last, trace.einsum(f"{name}.still", kept, text.held(cached), still))
        text.keep(cached, trace.rename(f"{name}.held", last, "lpe", "lp"))
    return made


def projected(text: Text, x: Array) -> Mapping[str, Array]:
    """Queries, keys and values as they are before convolutions."""
    return {name: text.linear(f"attention.{name}", ("b", "s", *dims), x, f"W{name}") for name, dims in ROWS.items()}


def convolved(text: Text, name: str, x: Array, before: Array | None = None) -> Array:
    """What each channel makes of a token and the few before it.

    before  the last tokens before the first one, where there are any
    """
    trace, dims = text.trace, ROWS[name]
    with text.inside("attention", x.region, f"convolution.{name}"):
        rows = trace.rename(f"{name}.rows", x, "s", "lt")
        reached = trace.einsum(
            f"{name}.reached", ("b", "lw", "s", *dims), rows, trace.index("taps", ("lw", "s", "lt"), x.dtype)
        )
        if before:
            earlier = trace.index("taps_before", ("lw", "s", "lp"), x.dtype)
            reached = trace.lin(f"{name}.all", reached, trace.einsum(f"{name}.earlier", reached.dims, before, earlier))
        mixed = trace.einsum(f"{name}.mixed", ("b", "s", *dims), reached, text.use(f"taps_{name}"))
        return trace.map(f"attention.{name}", "silu", mixed)


def headed(text: Text, block: Linear, x: Array, rows: Mapping[str, Array]) -> tuple[Array, ...]:
    """What the recurrence reads: queries and keys of length one, values, decays, strengths."""
    with text.inside("attention", "block"):
        decay = _in_steps(text, block, x, "decay", _decays(block))
        strength = text.linear("attention.strength", ("b", "s", *HEADS), x, "Wstrength")
    q, k = (_unit(text, name, rows[name]) for name in "qk")
    return (q, k, rows["v"], *_gates(text, decay, strength))


def _in_steps(text: Text, block: Linear, x: Array, name: str, dims: tuple[str, ...]) -> Array:
    """The product that makes decays, or gates: in two steps if it has a rank."""
    if block.rank:
        x = text.linear(f"attention.{name}_down", ("b", "s", "lu"), x, f"W{name}_down")
    return text.linear(f"attention.{name}", ("b", "s", *dims), x, f"W{name}")


def _unit(text: Text, name: str, x: Array) -> Array:
    """Queries or keys brought to length one; queries to the root of a key dim's share."""
    trace = text.trace
    with text.inside("norm", x.region, f"norm.{name}"):
        squares = trace.einsum(f"{name}.squares", x.dims[:-1], trace.map(f"{name}.square", "square", x))
        squares = trace.settled(squares, "a norm divides by the whole sum")
        unit = trace.map(f"{name}.unit", "unit", x, trace.lin(f"{name}.variance", squares, dtype=STATISTIC))
        return trace.lin(f"{name}.scaled", unit, scales=(Scale(1.0, (("ld", -0.5),)),)) if name == "q" else unit


def _gates(text: Text, decay: Array, strength: Array) -> tuple[Array, Array]:
    """Logarithms of decays, never above none: -exp(rate) * softplus(decay + bias); and strengths between 0 and 1."""
    trace = text.trace
    with text.inside("attention", "block", "gates"):
        soft = trace.map("decay.soft", "softplus", trace.lin("decay.biased", decay, text.use("decay_bias")))
        fallen = trace.map("decay.fallen", "mul", soft, trace.map("decay.rate", "exp", text.use("decay_rate")))
        log = trace.lin("attention.log_decay", fallen, scales=(MINUS,), dtype=STATISTIC)
        return log, trace.map("attention.strengths", "sigmoid", strength)


def ended(text: Text, block: Linear, x: Array, read: Array) -> Array:
    """What tokens have read, normed by head, gated by what the stream says, and brought to the stream."""
    trace = text.trace
    with text.inside("attention", "block"):
        read = trace.pin(read, "block", "") if read.region != "block" else read
        gate = _in_steps(text, block, x, "open", ROWS["v"])
    normed = norm(text, read, "state", dims=("lo",), region="block", kind="rmsnorm")
    with text.inside("norm", "block", "norm.state"):
        if block.rule == "gated_delta":
            made = trace.map("state.gated", "swiglu", gate, normed)
        else:
            made = trace.map("state.gated", "mul", trace.map("state.open", "sigmoid", gate), normed)
    with text.inside("attention", "block"):
        return text.linear("attention.out", ("b", "s", "h"), made, "Wo")
