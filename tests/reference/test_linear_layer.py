"""A layer of linear attention, as the papers' equations make it of its input, a token after another."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tpsim
from tpsim.reference.execute import execute
from tpsim.reference.functions import EPSILON
from tpsim.reference.run import leaves

KEYS, EACH, KEY, VALUE, RANK, TAPS, TOKENS = 2, 3, 4, 5, 3, 3, 6
SIZES = {"b": 2, "s": TOKENS, "t": TOKENS, "lt": TOKENS, "h": 8, "v": 16, "f": 8, "p": TOKENS, "m": 1}
RULES = {
    "gated_delta": {"rule": "gated_delta"},
    "kda": {"rule": "kda", "rank": RANK},
    "kda in one step": {"rule": "kda"},
    "mamba2": {"rule": "mamba2"},
}


def silu(x):
    return x / (1 + np.exp(-x))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def by_hand(rule, w, x):
    """What a layer adds to the stream.

    Source: Yang et al. (2024), figure 1; Kimi Linear (2025), equations 1 and 7 to 9; Dao and Gu (2024), figure 6.
    """
    mamba = rule["rule"] == "mamba2"

    def convolved(name):
        rows = np.tensordot(x, w(f"W{name}"), 1)
        before = np.concatenate([np.zeros_like(rows[:, : TAPS - 1]), rows], axis=1)
        mixed = sum(w(f"taps_{name}")[tap] * before[:, tap : tap + TOKENS] for tap in range(TAPS))
        return silu(mixed + w(f"taps_bias_{name}") if mamba else mixed)

    def in_steps(name):
        down = np.tensordot(x, w(f"W{name}_down"), 1) if "rank" in rule else x
        return np.tensordot(down, w(f"W{name}"), 1)

    q, k, v = (convolved(name) for name in "qkv")
    strength, bias, rate = np.tensordot(x, w("Wstrength"), 1), w("decay_bias"), np.exp(w("decay_rate"))
    if mamba:
        strength = np.log1p(np.exp(strength + bias))
        kept = np.exp(-rate * strength)[..., None]
    else:
        q, k, strength = unit(q) / np.sqrt(KEY), unit(k), sigmoid(strength)
        by_key = rule["rule"] == "kda"
        kept = np.exp(-(rate[..., None] if by_key else rate) * np.log1p(np.exp(in_steps("decay") + bias)))
        kept = kept if by_key else kept[..., None]
    state, read = np.zeros((2, KEYS, EACH, KEY, VALUE)), []
    for t in range(TOKENS):
        state = state * kept[:, t, ..., None]
        found = 0 if mamba else np.einsum("bgd,bgrdo->bgro", k[:, t], state)
        state = state + np.einsum("bgd,bgro->bgrdo", k[:, t], strength[:, t, ..., None] * (v[:, t] - found))
        read.append(np.einsum("bgd,bgrdo->bgro", q[:, t], state))
    made, gate = np.stack(read, axis=1), in_steps("open")
    if mamba:
        made = normed(w, silu(gate) * (made + w("skip")[..., None] * v), (-2, -1))
    else:
        made = normed(w, made, -1) * (sigmoid(gate) if by_key else silu(gate))
    return np.einsum("bsgro,hgro->bsh", made, w("Wo"))


def unit(rows):
    return rows / np.sqrt((rows**2).sum(axis=-1, keepdims=True) + EPSILON)


def normed(w, rows, over):
    return w("gain_state") * rows / np.sqrt((rows**2).mean(axis=over, keepdims=True) + EPSILON)


@pytest.mark.parametrize("kind", ["train", "prefill"])
@pytest.mark.parametrize("name", RULES)
def test_a_layer_is_what_equations_make_of_its_input(tmp_path, name, kind):
    heads = {"heads": KEYS * EACH, "key_heads": KEYS, "key_dim": KEY, "value_dim": VALUE, "taps": TAPS}
    block = {"attention": "linear", **heads, **RULES[name]}
    blocks = {"linear": block, "dense": {"ffn": "mlp", "kind": "gelu", "hidden": 8}}
    sizes = {"hidden": 8, "vocab": 16, "blocks": blocks, "layers": [{"of": [*blocks]}]}
    (tmp_path / "one.json").write_text(json.dumps({"tpsim": "model/2", "name": "one", **sizes}))
    work = {"global_batch": 2, "seq": TOKENS} if kind == "train" else {"kind": kind, "batch": 2, "prompt": TOKENS}
    plan = tpsim.plan(
        {
            "tpsim": "scenario/1",
            "model": str(tmp_path / "one.json"),
            "hardware": "dgx-h200",
            "mesh": {"data": 1},
            "layout": {"dp": "data"},
            "workload": work,
        }
    )
    program, sizes = plan.lowered.program, {**plan.sizes.dims, **SIZES}
    run = execute(program, plan.question.mesh, sizes, leaves(sizes))
    made = {op.output.name: op.output for op in reversed(program.ops) if op.where.block in {"attention", "norm"}}
    due = by_hand(RULES[name], lambda weight: run.value(made[weight]), run.value(made["attention.normed"]))
    assert np.allclose(run.value(made["attention.out"]), due, rtol=1e-9, atol=1e-12)
