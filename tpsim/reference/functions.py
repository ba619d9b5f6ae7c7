"""What the program's named functions compute, in numpy: pointwise functions with their partials, and index arrays.

Nothing here knows a sharding: pointwise functions see blocks, index functions see GLOBAL indices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tpsim.program.dims import HELD
from tpsim.program.tokens import SELECTED
from tpsim.reference.blocks import Block

Pointwise = Callable[..., Block]

EPSILON = 1e-5
MASKED = -1e9
LEARNING_RATE, BETA_MOMENT, BETA_VARIANCE, DECAY, ADAM_EPSILON = 0.1, 0.9, 0.95, 0.01, 1e-8
ROPE_BASE = 100.0
CLIP = 0.01
BOUND, SHARP = 0.7, 1.702
"""Test-sized constants: any values prove the same equalities."""


@dataclass(frozen=True, slots=True)
class Function:
    """A pointwise function and, per operand, its partial derivative as a function of all operands.

    The derivative of those in `program.transpose.BY_OUTPUT` is a function of what they made.
    """

    value: Pointwise
    partials: tuple[Pointwise, ...] = ()


def _sigmoid(x: Block) -> Block:
    return 1.0 / (1.0 + np.exp(-x))


def _silu(x: Block) -> Block:
    return x * _sigmoid(x)


def _silu_slope(x: Block) -> Block:
    return _sigmoid(x) * (1.0 + x * (1.0 - _sigmoid(x)))


def _clamped(x: Block) -> Block:
    bound = np.minimum(x, BOUND)
    return np.asarray(bound * _sigmoid(SHARP * bound))


def _clamped_slope(x: Block) -> Block:
    gate = _sigmoid(SHARP * x)
    return np.asarray((x < BOUND) * gate * (1.0 + SHARP * x * (1.0 - gate)))


TANH_SCALE, TANH_CUBE = np.sqrt(2.0 / np.pi), 0.044715


def _inner(x: Block) -> Block:
    return np.asarray(TANH_SCALE * (x + TANH_CUBE * x**3))


def _gelu(x: Block) -> Block:
    """The tanh approximation of GELU (Hendrycks and Gimpel 2016)."""
    return np.asarray(0.5 * x * (1.0 + np.tanh(_inner(x))))


def _gelu_slope(x: Block) -> Block:
    tanh = np.tanh(_inner(x))
    return np.asarray(0.5 * (1 + tanh) + 0.5 * x * (1 - tanh**2) * TANH_SCALE * (1 + 3 * TANH_CUBE * x**2))


def _unit(x: Block, variance: Block) -> Block:
    return np.asarray(x / np.sqrt(variance + EPSILON))


def _adam(master: Block, gradient: Block, moment: Block, variance: Block) -> Block:
    """One AdamW step from the states before it (Loshchilov and Hutter 2019), without bias correction."""
    step = _moment(moment, gradient) / (np.sqrt(_variance(variance, gradient)) + ADAM_EPSILON)
    return np.asarray(master - LEARNING_RATE * (step + DECAY * master))


def _moment(moment: Block, gradient: Block) -> Block:
    return np.asarray(BETA_MOMENT * moment + (1 - BETA_MOMENT) * gradient)


def _variance(variance: Block, gradient: Block) -> Block:
    return np.asarray(BETA_VARIANCE * variance + (1 - BETA_VARIANCE) * gradient**2)


POINTWISE: Mapping[str, Function] = {
    "square": Function(lambda x: x * x, (lambda x: 2 * x,)),
    "mul": Function(lambda x, y: x * y, (lambda x, y: y + 0 * x, lambda x, y: x + 0 * y)),
    "div": Function(lambda x, y: x / y, (lambda x, y: 1 / y + 0 * x, lambda x, y: -x / y**2)),
    "exp": Function(np.exp, (lambda y: y,)),
    "sigmoid": Function(_sigmoid, (lambda x: _sigmoid(x) * (1.0 - _sigmoid(x)),)),
    "silu": Function(_silu, (_silu_slope,)),
    "softplus": Function(lambda x: np.logaddexp(0.0, x), (_sigmoid,)),
    "log": Function(np.log, (lambda x: 1 / x,)),
    "tanh": Function(np.tanh, (lambda y: 1 - y**2,)),
    "unit": Function(
        _unit,
        (lambda x, v: (v + EPSILON) ** -0.5 + 0 * x, lambda x, v: -0.5 * x * (v + EPSILON) ** -1.5),
    ),
    "gelu": Function(_gelu, (_gelu_slope,)),
    "relu": Function(lambda x: np.maximum(x, 0), (lambda x: (x > 0) * 1.0,)),
    "relu2": Function(lambda x: np.maximum(x, 0) ** 2, (lambda x: 2 * np.maximum(x, 0),)),
    "restored": Function(lambda y, variance: y * np.sqrt(variance + EPSILON)),
    "swiglu": Function(lambda g, u: _silu(g) * u, (lambda g, u: _silu_slope(g) * u, lambda g, u: _silu(g) + 0 * u)),
    "geglu": Function(lambda g, u: _gelu(g) * u, (lambda g, u: _gelu_slope(g) * u, lambda g, u: _gelu(g) + 0 * u)),
    "swiglu_clamped": Function(
        lambda g, u: _clamped(g) * (np.clip(u, -BOUND, BOUND) + 1),
        (
            lambda g, u: _clamped_slope(g) * (np.clip(u, -BOUND, BOUND) + 1),
            lambda g, u: _clamped(g) * (np.abs(u) < BOUND),
        ),
    ),
    "adam": Function(_adam),
    "clipped": Function(lambda g, squares: g / np.maximum(1.0, np.sqrt(squares) / CLIP)),
    "adam_moment": Function(_moment),
    "adam_variance": Function(_variance),
}
"""Pointwise functions by the name that `program.op.Map` uses."""


def past(sizes: Mapping[str, int]) -> int:
    """Tokens that stand before the first one of a step: as many as keys have more, unless it is said."""
    return sizes.get("past", sizes.get("t", 0) - sizes.get("s", 0))


def _rotation(sizes: Mapping[str, int], s: Any, d: Any, e: Any, of: str = "d") -> Any:
    """Rotary embedding as a matrix over the head dim: dims d and e of one pair mix by the angle of token s."""
    half = np.maximum(sizes[of] // 2, 1)
    angle = (s + past(sizes)) * ROPE_BASE ** -((d % half) / half)
    side = np.where(d < half, 1.0, -1.0)
    return np.where(d == e, np.cos(angle), 0.0) + np.where((d % half == e % half) & (d != e), side * np.sin(angle), 0.0)


def _alibi(sizes: Mapping[str, int], g: Any, r: Any, s: Any, t: Any) -> Any:
    """What scores fall by with the distance of a key, by head: slopes of a geometric series (Press et al. 2022)."""
    slope = 2.0 ** (-8.0 * (g * sizes["r"] + r + 1) / (sizes["g"] * sizes["r"]))
    return slope * (t - s - past(sizes))


def _window_mask(sizes: Mapping[str, int], s: Any, t: Any) -> Any:
    """Of the tokens before one only the last `w`, itself included."""
    behind = s + past(sizes) - t
    return np.where((behind < 0) | (behind >= sizes["w"]), MASKED, 0.0)


def _of_last_tokens(mask: Callable[..., Any]) -> Callable[..., Any]:
    """A mask over places of a cache that holds no more than it must: each has the last token that came to it."""

    def is_kept(sizes: Mapping[str, int], s: Any, place: Any) -> Any:
        last = past(sizes) + sizes["s"] - 1
        token = last - (last - place) % sizes[HELD]
        return np.where(token < 0, MASKED, mask(sizes, s, token))

    return is_kept


def _chunk_mask(sizes: Mapping[str, int], s: Any, t: Any) -> Any:
    """Of the tokens before one those of its own chunk of `w`."""
    here = s + past(sizes)
    return np.where((t > here) | (here // sizes["w"] != t // sizes["w"]), MASKED, 0.0)


def _selected_mask(sizes: Mapping[str, int], _b: Any, _s: Any, _t: Any, scores: Any) -> Any:
    """Of the tokens that scores do not hide the best `w`, of as good ones the first."""
    best = np.argsort(-scores, axis=-1, kind="stable")[..., : sizes["w"]]
    mask = np.full(scores.shape, MASKED)
    np.put_along_axis(mask, best, 0.0, axis=-1)
    return np.where(scores <= MASKED / 2, MASKED, mask)


def _dropout(sizes: Mapping[str, Any], *indices: Any) -> Any:
    """One where an element is kept, by a hash of its global indices (the finalizer of MurmurHash3 for each)."""
    key = np.array([sizes["seed"]], np.uint64)
    for index in indices:
        key = (key ^ np.asarray(index).astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
            key = (key ^ (key >> np.uint64(33))) * np.uint64(factor)
    return (key / 2.0**64 >= sizes["rate"]) * 1.0


INDEX: Mapping[str, Callable[..., Any]] = {
    "one": lambda *_: np.float64(1.0),
    "one_hot": lambda _sizes, _b, _s, v, ids: (v == ids) * 1.0,
    "position_one_hot": lambda sizes, s, p: (s + past(sizes) == p) * 1.0,
    "first_slot": lambda _, y: (y == 0) * 1.0,
    "last": lambda sizes, s: (s == sizes["s"] - 1) * 1.0,
    "dropout": _dropout,
    "causal_mask": lambda sizes, s, t: np.where(t > s + past(sizes), MASKED, 0.0),
    "window_mask": _window_mask,
    "chunk_mask": _chunk_mask,
    SELECTED: _selected_mask,
    "alibi": _alibi,
    "held_window_mask": _of_last_tokens(_window_mask),
    "held_chunk_mask": _of_last_tokens(_chunk_mask),
    "rotation": _rotation,
    "part_rotation": partial(_rotation, of="a"),
    "index_rotation": partial(_rotation, of="di"),
    "taps": lambda sizes, w, s, token: (token == s + w - (sizes["lw"] - 1)) * 1.0,
    "taps_before": lambda _, w, s, place: (place == s + w) * 1.0,
    "taps_held": lambda sizes, token, place: (token == sizes["s"] + place - (sizes["lw"] - 1)) * 1.0,
    "taps_held_before": lambda sizes, before, place: (before == sizes["s"] + place) * 1.0,
    "k_slot": lambda _, j: (j == 0) * 1.0,
    "v_slot": lambda _, j: (j == 1) * 1.0,
    "q_slot": lambda _, j, r: (j == r + 2) * 1.0,
}
"""Index arrays by the name that `program.op.Index` uses: sizes, global indices per dim, then integer inputs.

Beside the sizes stand the `rate` of a dropout and the `seed` of the array.
"""
