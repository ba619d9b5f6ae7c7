"""Linear attention: short convolutions over tokens, a recurrence with a state, a gated norm.

Sources: Yang et al. (2024), arXiv 2412.06464, as Qwen3-Next has it; Kimi Linear (2025), arXiv 2510.26692; Dao and Gu
(2024), arXiv 2405.21060, as state-spaces/mamba's Mamba2 has it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tpsim.program.blocks.norm import norm
from tpsim.program.op import Array, Scale
from tpsim.program.recurrence import HEADS, STATE, recurrence
from tpsim.program.saved import STATISTIC
from tpsim.program.text import MINUS, Parameter, Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpsim.program.linear import Linear, Rule
    from tpsim.program.practice import Practice
    from tpsim.program.recurrence import Makes
    from tpsim.program.serving import Served

ROWS: Mapping[str, tuple[str, ...]] = {"q": ("lg", "ld"), "k": ("lg", "ld"), "v": (*HEADS, "lo")}
"""The dims of a token's queries, keys and values."""

HELD_OF: Mapping[str, tuple[str, ...]] = {
    "S": STATE,
    **{name.upper(): ("b", "lp", *dims) for name, dims in ROWS.items()},
}
"""What inference keeps of a sequence: the state, and the last tokens that convolutions read."""

KEPT: Mapping[Rule, tuple[Makes, ...]] = {"gated_delta": ("inverse",), "kda": ("inverse", "products"), "mamba2": ()}
"""What a recurrence keeps for backward of each chunk."""


def parameters(block: Linear, _: Practice) -> Iterator[Parameter]:
    """A weight for each product; taps of convolutions; what decays are made with, by head; the gain of a norm."""
    for name, dims in ROWS.items():
        yield Parameter(f"W{name}", ("h", *dims), "attention")
        yield Parameter(f"taps_{name}", ("lw", *dims), "attention", first=dims)
        if block.rule == "mamba2":
            yield Parameter(f"taps_bias_{name}", dims, "attention")
    yield Parameter("Wstrength", ("h", *HEADS), "attention")
    for name, dims in (*((("decay", _decays(block)),) if block.rule != "mamba2" else ()), ("open", ROWS["v"])):
        if block.rank:
            yield Parameter(f"W{name}_down", ("h", "lu"), "attention")
        yield Parameter(f"W{name}", ("lu" if block.rank else "h", *dims), "attention")
    yield Parameter("decay_rate", HEADS, "attention")
    yield Parameter("decay_bias", _decays(block), "attention")
    if block.rule == "mamba2":
        yield Parameter("skip", HEADS, "attention")
    yield Parameter("gain_state", ROWS["v"] if block.rule == "mamba2" else ("lo",), "attention")
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
        state = partial(recurrence, text.trace, delta=block.delta)
        kept = [state(f"attention.{makes}", *operands, makes=makes) for makes in KEPT[block.rule]]
        read = state("attention.read", *operands, beside=kept)
        read = _skipped(text, read, operands[2])
    return ended(text, block, x, read)


def serve(text: Served, block: Linear, x: Array) -> Array:
    """The same of inference: what tokens before have left is read, and changed, where it lies: split as heads are."""
    trace = text.trace
    stepped = text.serving.phase == "decode"
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
            state = partial(recurrence, trace, delta=block.delta, stepped=stepped)
            read = _skipped(text, state("attention.read", *lie, *before), lie[2])
            behind = state("attention.state", *lie, *before, makes="state", dtype=STATISTIC)
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
    with text.inside("attention", "heads", "convolution"):
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
    return {name: text.linear(f"linear.{name}", ("b", "s", *dims), x, f"W{name}") for name, dims in ROWS.items()}


def convolved(text: Text, name: str, x: Array, before: Array | None = None) -> Array:
    """What each channel makes of a token and the few before it.

    before  the last tokens before the first one, where there are any
    """
    trace, dims = text.trace, ROWS[name]
    with text.inside("attention", x.region, "convolution"):
        rows = trace.rename(f"{name}.rows", x, "s", "lt")
        reached = trace.einsum(
            f"{name}.reached", ("b", "lw", "s", *dims), rows, trace.index("taps", ("lw", "s", "lt"), x.dtype)
        )
        if before:
            earlier = trace.index("taps_before", ("lw", "s", "lp"), x.dtype)
            reached = trace.lin(f"{name}.all", reached, trace.einsum(f"{name}.earlier", reached.dims, before, earlier))
        mixed = text.linear(f"{name}.mixed", ("b", "s", *dims), reached, f"taps_{name}", f"taps_bias_{name}")
        return trace.map(f"{name}.convolved", "silu", mixed)


def headed(text: Text, block: Linear, x: Array, rows: Mapping[str, Array]) -> tuple[Array, ...]:
    """What the recurrence reads: queries and keys, of a delta rule of length one; values, decays, strengths."""
    if block.rule == "mamba2":
        return (rows["q"], rows["k"], rows["v"], *_stepped(text, x))
    with text.inside("attention", "block"):
        decay = _in_steps(text, block, x, "decay", _decays(block))
        strength = text.linear("attention.strength", ("b", "s", *HEADS), x, "Wstrength")
    q, k = (_unit(text, name, rows[name]) for name in "qk")
    return (q, k, rows["v"], *_gates(text, decay, strength, "recurrence" if block.rule == "kda" else "gates"))


def _in_steps(text: Text, block: Linear, x: Array, name: str, dims: tuple[str, ...]) -> Array:
    """The product that makes decays, or gates: in two steps if it has a rank."""
    if block.rank:
        x = text.linear(f"attention.{name}_down", ("b", "s", "lu"), x, f"W{name}_down")
    return text.linear(f"attention.{name}", ("b", "s", *dims), x, f"W{name}")


def _kernel(text: Text, name: str) -> str:
    """The kernel in which what is made ahead of the recurrence is: that of the recurrence itself in decoding.

    Source: vLLM, fla/ops/fused_recurrent.py and fused_sigmoid_gating.py; state-spaces/mamba, selective_state_update.py.
    """
    serving = getattr(text, "serving", None)
    return "recurrence" if serving and serving.phase == "decode" else name


def _unit(text: Text, name: str, x: Array) -> Array:
    """Queries or keys brought to length one; queries to the root of a key dim's share.

    Backward has them by what they were brought to, and by how far: nothing else of them is kept
    (flash-linear-attention, modules/l2norm.py: save_for_backward of y and rstd).
    """
    trace, power = text.trace, -0.5 if name == "q" else 0.0
    with text.inside("norm", x.region, _kernel(text, "norm.heads")):
        squares = trace.einsum(f"{name}.squares", x.dims[:-1], trace.map(f"{name}.square", "square", x))
        squares = trace.settled(squares, "a norm divides by the whole sum")
        variance = trace.lin(f"{name}.variance", squares, dtype=STATISTIC)
        unit = trace.map(f"{name}.unit", "unit", x, variance)
        unit = trace.lin(f"{name}.scaled", unit, scales=(Scale(1.0, (("ld", power),)),)) if power else unit
        if not hasattr(text, "serving"):
            whole = trace.lin(f"{name}.whole", unit, scales=(Scale(1.0, (("ld", -power),)),))
            trace.instead[x] = trace.map(f"{name}.restored", "restored", whole, variance)
        return unit


def _gates(text: Text, decay: Array, strength: Array, kernel: str) -> tuple[Array, Array]:
    """Logarithms of decays, never above none: -exp(rate) * softplus(decay + bias); and strengths between 0 and 1.

    kernel  of Kimi that of the recurrence, which keeps no decays by key dim (flash-linear-attention, layers/kda.py:
            use_gate_in_kernel)
    """
    trace = text.trace
    with text.inside("attention", "block", _kernel(text, kernel)):
        soft = trace.map("decay.soft", "softplus", trace.lin("decay.biased", decay, text.use("decay_bias")))
        return _fallen(text, soft), trace.map("attention.strengths", "sigmoid", strength)


def _stepped(text: Text, x: Array) -> tuple[Array, Array]:
    """Logarithms of decays, -exp(rate) * step, and strengths, which are steps of time: softplus(step + bias)."""
    trace = text.trace
    with text.inside("attention", "block"):
        step = text.linear("attention.strength", ("b", "s", *HEADS), x, "Wstrength")
    with text.inside("attention", "block", _kernel(text, "gates")):
        step = trace.map("decay.step", "softplus", trace.lin("decay.biased", step, text.use("decay_bias")))
        step = trace.lin("attention.strengths", step, dtype=STATISTIC)
        return _fallen(text, step), step


def _fallen(text: Text, by: Array) -> Array:
    """Logarithms of decays: -exp(rate) times what each token makes them fall by."""
    fallen = text.trace.map("decay.fallen", "mul", by, text.trace.map("decay.rate", "exp", text.use("decay_rate")))
    return text.trace.lin("attention.log_decay", fallen, scales=(MINUS,), dtype=STATISTIC)


def _skipped(text: Text, read: Array, v: Array) -> Array:
    """What is read with a share of the token's own value, by head, where there is one: by the same kernel."""
    if not text.has("skip"):
        return read
    own = text.trace.map("attention.own", "mul", v, text.use("skip"))
    return text.trace.lin("attention.skipped", read, own)


def ended(text: Text, block: Linear, x: Array, read: Array) -> Array:
    """What tokens have read, normed and gated by what the stream says, and brought to the stream.

    Mamba's norm is of all heads of a key head together, behind the gate.
    """
    with text.inside("attention", "block"):
        read = text.trace.pin(read, "block", "") if read.region != "block" else read
        gate = _in_steps(text, block, x, "open", ROWS["v"])
    if block.rule == "mamba2":
        made = norm(text, _opened(text, block, gate, read), "state", dims=("lr", "lo"), region="block", kind="rmsnorm")
    else:
        made = _opened(text, block, gate, norm(text, read, "state", dims=("lo",), region="block", kind="rmsnorm"))
    with text.inside("attention", "block"):
        return text.linear("attention.out", ("b", "s", "h"), made, "Wo")


def _opened(text: Text, block: Linear, gate: Array, x: Array) -> Array:
    """What a gate leaves of it, by the kernel of the norm: its SiLU times that, of Kimi its sigmoid."""
    with text.inside("norm", "block", "norm.state"):
        if block.rule == "kda":
            return text.trace.map("state.gated", "mul", text.trace.map("state.open", "sigmoid", gate), x)
        return text.trace.map("state.gated", "swiglu", gate, x)
