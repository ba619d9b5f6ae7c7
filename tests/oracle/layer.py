"""One transformer layer in jax, cut over one axis by hand (shard_map) or left to XLA's partitioner, with its gradients.

Dims as in tpsim.program.transformer: b sequences, s tokens, h hidden, g key/value heads, r queries per key/value head,
d head dim, f ffn hidden.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from tests.oracle.questions import AXIS, MODEL, WORK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jax.sharding import Mesh

    from tests.oracle.questions import Layer

    Params = Mapping[str, jax.Array]

DIMS = {
    "gain_attention": "h",
    "Wq": "hgrd",
    "Wk": "hgd",
    "Wv": "hgd",
    "Wo": "grdh",
    "gain_mlp": "h",
    "Wgate": "hf",
    "W1": "hf",
    "W2": "fh",
}
"""Each parameter's dims; g and f are split."""

SPLIT = PartitionSpec(None, AXIS)
WHOLE = PartitionSpec()


@dataclass(frozen=True, slots=True)
class Doors:
    """How the residual stream comes into a block and how what a block owes goes back."""

    enter: Callable[[jax.Array], jax.Array]
    leave: Callable[[jax.Array], jax.Array]


def by_hand(layer: Layer) -> Doors:
    """Collectives written out, as Megatron writes them; jax transposes them."""
    if layer.sequence:
        return Doors(
            partial(lax.all_gather, axis_name=AXIS, axis=1, tiled=True),
            partial(lax.psum_scatter, axis_name=AXIS, scatter_dimension=1, tiled=True),
        )
    enter = partial(lax.pvary, axis_name=AXIS) if layer.once else (lambda x: x)
    return Doors(enter, partial(lax.psum, axis_name=AXIS))


def by_partitioner(layer: Layer, mesh: Mesh) -> Doors:
    """Nothing but where arrays are to lie; XLA finds the collectives."""
    put = lax.with_sharding_constraint
    return Doors(
        partial(put, shardings=NamedSharding(mesh, WHOLE)),
        partial(put, shardings=NamedSharding(mesh, SPLIT if layer.sequence else WHOLE)),
    )


def forward(doors: Doors, params: Params, x: jax.Array) -> jax.Array:
    """Attention, then MLP, each on the normed stream and added to it."""
    x = x + doors.leave(attention(params, doors.enter(norm(x, params["gain_attention"]))))
    return x + doors.leave(mlp(params, doors.enter(norm(x, params["gain_mlp"]))))


def norm(x: jax.Array, gain: jax.Array) -> jax.Array:
    """RMSNorm."""
    return x * lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True)) * gain


def attention(params: Params, x: jax.Array) -> jax.Array:
    """Grouped-query attention; what it returns owes a sum over the heads."""
    q = jnp.einsum("bsh,hgrd->bsgrd", x, params["Wq"])
    k, v = (jnp.einsum("bth,hgd->btgd", x, params[name]) for name in ("Wk", "Wv"))
    weights = jax.nn.softmax(jnp.einsum("bsgrd,btgd->bgrst", q, k), axis=-1)
    mixed = jnp.einsum("bgrst,btgd->bsgrd", weights, v)
    return jnp.einsum("bsgrd,grdh->bsh", mixed, params["Wo"])


def mlp(params: Params, x: jax.Array) -> jax.Array:
    """Column-split, pointwise, row-split."""
    up = x @ params["W1"]
    act = jax.nn.silu(x @ params["Wgate"]) * up if "Wgate" in params else jax.nn.gelu(up)
    return act @ params["W2"]


def gradients(layer: Layer, mesh: Mesh) -> jax.stages.Lowered:
    """Forward and backward: the gradients of every parameter and of the stream that comes in."""
    stream = SPLIT if layer.sequence else WHOLE
    specs = {name: _spec(dims) for name, dims in DIMS.items() if name != "Wgate" or layer.ffn == "swiglu"}
    if layer.partitioned:
        run = partial(forward, by_partitioner(layer, mesh))
    else:
        run = jax.shard_map(partial(forward, by_hand(layer)), mesh=mesh, in_specs=(specs, stream), out_specs=stream)
    placed = {name: NamedSharding(mesh, spec) for name, spec in specs.items()}
    flow = NamedSharding(mesh, stream)

    def loss(params: Params, x: jax.Array, target: jax.Array) -> tuple[jax.Array, jax.Array]:
        y = run(params, x)
        return jnp.sum(y * target), y

    step = jax.jit(
        jax.grad(loss, argnums=(0, 1), has_aux=True),
        in_shardings=(placed, flow, flow),
        out_shardings=((placed, flow), flow),
    )
    shapes = {name: _array(dims) for name, dims in DIMS.items() if name in specs}
    return step.lower(shapes, _array("bsh"), _array("bsh"))


def _spec(dims: str) -> PartitionSpec:
    return PartitionSpec(*(AXIS if dim in "gf" else None for dim in dims))


def _array(dims: str) -> jax.ShapeDtypeStruct:
    sizes = {**WORK, "g": MODEL.kv_heads, "r": MODEL.heads // MODEL.kv_heads, "d": MODEL.head_dim}
    sizes |= {"h": MODEL.hidden, "f": MODEL.ffn_hidden}
    return jax.ShapeDtypeStruct(tuple(sizes[dim] for dim in dims), jnp.float32)
