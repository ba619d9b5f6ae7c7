"""Layouts of transformer models: any table of axes, any switches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from tpsim.program.dtypes import Dtypes
from tpsim.program.keeps import KEEPS
from tpsim.program.layout import layout
from tpsim.program.practice import Ahead, Overlap, Practice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpsim.algebra.mesh import Mesh
    from tpsim.program.layout import Axes, Layout, Table

REGIONS: Mapping[str, str] = {
    "*": "bgrfv",
    "residual": "bs",
    "block": "bsgf",
    "heads": "bgr",
    "vocab": "bv",
    "stored": "hgrdfv",
    "grad": "hgrdfv",
    "state": "hgrdfv",
}
"""The dims (one letter each) that a table may state per region; ``*`` stands for every region."""


@st.composite
def tables(draw: st.DrawFn, mesh: Mesh, sizes: Mapping[str, int], *, most: int = 2) -> Table:
    """Region -> dim -> axes that divide the dim, up to `most` of them in any order; a region states half its dims.

    Optimizer states, gradients and parameters have regions of their own up to a ZeRO stage of 0 to 3.

    sizes  elements of every dim of the model, as `Model.dims` gives them

    >>> from hypothesis import given, settings
    >>> from tpsim.algebra.mesh import Mesh
    >>> from tpsim.program.layout import Layout
    >>> mesh, sizes = Mesh({"X": 2, "Y": 3}), dict.fromkeys("bsghrdfv", 12)
    >>> @settings(max_examples=5)
    ... @given(tables(mesh, sizes))
    ... def law(table):
    ...     type_ = Layout(table=table).type_in(("h", "f"), "stored")
    ...     assert 12 % type_.local("f", sizes, mesh.axes) == 0
    >>> law()
    """
    own = ("state", "grad", "stored")[: draw(st.integers(0, 3))]
    stated = [region for region in REGIONS if region in own or region not in {"state", "grad", "stored"}]
    return {region: draw(_region(mesh, sizes, REGIONS[region], most)) for region in stated}


@st.composite
def _region(draw: st.DrawFn, mesh: Mesh, sizes: Mapping[str, int], dims: str, most: int) -> dict[str, Axes]:
    stated = draw(st.lists(st.sampled_from(dims), unique=True, max_size=len(dims) // 2))
    return {dim: _dividing(mesh, sizes[dim], draw(st.permutations(mesh.order))[:most], draw) for dim in stated}


def _dividing(mesh: Mesh, size: int, axes: list[str], draw: st.DrawFn) -> Axes:
    """The first few of the axes: as many as are drawn of those that together divide the dim."""
    fitting = [count for count in range(len(axes) + 1) if size % mesh.size(*axes[:count]) == 0]
    return tuple(axes[: draw(st.sampled_from(fitting))])


@st.composite
def schemes(draw: st.DrawFn, mesh: Mesh, sizes: Mapping[str, int]) -> Layout:
    """Tensor and data parallelism over one or more axes of `mesh` and the others, with ZeRO, SP and dims left whole.

    sizes  elements of the model's dims; kv heads and the queries of one take as many tensor axes as divide them

    >>> from hypothesis import find
    >>> from tpsim.algebra.mesh import Mesh
    >>> mesh, sizes = Mesh({"X": 2, "Y": 2}), {"g": 2, "r": 2}
    >>> find(schemes(mesh, sizes), lambda found: bool(found.table["*"]["g"] and found.table["*"]["r"])).roles["dp"]
    ()
    """
    axes = tuple(draw(st.permutations(mesh.order)))
    splits = [
        (tensor, heads)
        for tensor in range(1, len(axes) + 1)
        for heads in range(tensor + 1)
        if not sizes["g"] % mesh.size(*axes[:heads]) and not sizes["r"] % mesh.size(*axes[heads:tensor])
    ]
    tensor, heads = draw(st.sampled_from(splits))
    return layout(
        tp=axes[:tensor],
        dp=axes[tensor:],
        kv_split=heads,
        zero=draw(st.integers(0, 3)),
        sequence_parallel=draw(st.booleans()),
        whole=draw(st.sets(st.sampled_from("df"))),
    )


def practices() -> st.SearchStrategy[Practice]:
    """Any combination of the stated switches.

    >>> from hypothesis import given, settings
    >>> @settings(max_examples=5)
    ... @given(practices())
    ... def law(practice):
    ...     assert practice.qkv in {"separate", "fused", "fused_kv"}
    >>> law()
    """
    return st.builds(
        Practice,
        cotangents=st.sampled_from(["once", "per_use"]),
        regather=st.booleans(),
        reshard_after_forward=st.booleans(),
        gradients=st.sampled_from(["auto", "per_step", "per_microbatch"]),
        zero1=st.sampled_from(["scatter", "all_reduce"]),
        units=st.sampled_from(["arrays", "root", "ends"]),
        cross_entropy=st.sampled_from(["parallel", "gathered"]),
        qkv=st.sampled_from(["separate", "fused", "fused_kv"]),
        attention=st.sampled_from(["fused", "plain"]),
        recompute=st.sampled_from([(), ("attention",), ("full",), ("norm", "mlp.act")]),
        recompute_layers=st.sampled_from([None, 1, 2]),
        replay=st.sampled_from(["whole", "needed"]),
        keeps=st.sampled_from([KEEPS["none"], KEEPS["nanotron"], KEEPS["megatron"]]),
        overlap=st.builds(Overlap, weights=st.sampled_from(["none", "beside"])),
        ahead=st.builds(Ahead, layers=st.integers(0, 3)),
    )


@st.composite
def formats(draw: st.DrawFn, practice: Practice) -> tuple[Practice, Dtypes]:
    """Weights as activations are, with masters beside them, or wider: then products cast them, or who holds them does.

    Or they are gathered of shards that are wider, which the optimizer holds. Gradients are sent as weights are stored
    or otherwise, and held as they were sent or as weights are.

    >>> from hypothesis import find
    >>> practice, dtypes = find(formats(Practice()), lambda found: found[0].cast == "shards")
    >>> dtypes.narrows(dtypes.params)
    True
    """
    wider, cast = draw(st.sampled_from([(False, "products"), (True, "products"), (True, "shards")]))
    settled, sent = draw(st.sampled_from([("sent", "f32"), ("parameters", "f32"), ("parameters", "bf16")]))
    shards = None if wider else draw(st.sampled_from([None, "f32"]))
    dtypes = Dtypes(params="f32" if wider else "bf16", gradients=sent, shards=shards)
    return replace(practice, cast=cast, settled=settled), dtypes
