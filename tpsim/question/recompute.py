"""What a scenario keeps for backward and what not: names of kernels and arrays, as switches of its practice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tpsim.program.dtypes import DTYPE_BYTES, Dtypes
from tpsim.program.keeps import AT, BUFFERS, GRADIENTS, KEEPS, STANDING, Buffer, Buffers, Extra, at_stage
from tpsim.program.kinds import one_each
from tpsim.program.lifetimes import Lifetimes, lifetimes
from tpsim.program.lower import lower
from tpsim.program.op import Op, Program, Reshard
from tpsim.program.practice import FULL, Practice
from tpsim.program.saved import kind
from tpsim.quantity.errors import At, InputError, unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tpsim.program.layout import Layout
    from tpsim.program.model import Model
    from tpsim.question.stated import Stated

SELECTIVE = "attention"
"""The kernel whose inside is worth the least FLOPs per byte (Korthikanti et al. 2022, section 5)."""

DROPS: Mapping[str, tuple[str, ...]] = {"none": (), "selective": (SELECTIVE,), "full": (FULL,)}
"""`RecomputeFields.base` -> what it drops."""


def recomputing(read: Stated, practice: Practice) -> Practice:
    """The practice with what the scenario drops, and how that is run once more.

    Some layers alone are recomputed whole unless it says what they drop.

    Raises InputError for layers of which nothing is dropped.
    """
    fields = read.file.recompute
    base = fields.base or ("full" if fields.layers and not fields.drop else "none")
    dropped = tuple(dict.fromkeys((*DROPS[base], *fields.drop)))
    if fields.layers and not dropped:
        message = f"{fields.layers} layers of each chunk are recomputed, and nothing of them is dropped"
        raise InputError.one("nothing-dropped", message, read.at("recompute"), "write base: full, or leave layers out")
    replay = fields.replay or practice.replay
    return replace(practice, recompute=dropped, recompute_layers=fields.layers, replay=replay)


def keeping(read: Stated, practice: Practice, model: Model, laid: Layout, dtypes: Dtypes) -> Practice:
    """The practice with what its stack is stated to keep beside what kernels need.

    Raises InputError for a list that nobody has, for arrays that take no bytes, for less than nothing of others, and
    for the stream.
    """
    asked = read.file.practice.keeps
    if asked is None:
        return practice
    if isinstance(asked, str):
        if asked not in KEEPS:
            raise unknown(asked, "list of what a stack keeps", KEEPS, read.at("practice", "keeps"))
        return replace(practice, keeps=KEEPS[asked])
    kept = lifetimes(_traced(practice, model, laid, dtypes))
    own = sorted((array.name, -DTYPE_BYTES[array.dtype]) for array in kept.makers)  # of one name the narrowest
    gradients = {GRADIENTS: max(-DTYPE_BYTES[array.dtype] for array in kept.added)} if kept.added else {}
    _check_kept(asked, {**dict.fromkeys(STANDING, 0), **gradients, **dict(own)}, read)
    _check_stream(asked, lifetimes(_traced(practice, model, laid, dtypes, runs=2)), read)
    return replace(practice, keeps=tuple(Extra(*field) for field in asked.items()))


def buffered(read: Stated, practice: Practice, zero: int, *, beside: bool) -> Buffers:
    """The buffers that the buckets of a ZeRO stage lie in; beside: reductions run beside compute.

    Raises InputError for a list that nobody has, and for buffers of which there is nothing.
    """
    fields = read.file.practice.bucket
    asked, buffers = None if fields is None else fields.buffers, practice.buffers
    if isinstance(asked, str):
        if asked not in BUFFERS:
            raise unknown(asked, "list of buffers", BUFFERS, read.at("practice", "bucket", "buffers"))
        buffers = BUFFERS[asked]
    elif asked is not None:
        for of in asked:
            if zero not in AT[of]:
                stages = " and ".join(map(str, AT[of]))
                message = f"a buffer of what is {of} holds nothing at ZeRO-{zero}"
                place = read.at_key("practice", "bucket", "buffers", of)
                raise InputError.one("empty-buffer", message, place, f"leave it out, or write zero: {stages}")
        buffers = tuple(Buffer(of, count) for of, count in asked.items())
    there = at_stage(buffers, zero, beside=beside)
    if practice.bucket.elements is None and {"bucket", "standing"} & {buffer.of for buffer in there}:
        message = "a buffer of a bucket has no size: practice.bucket states no elements"
        place = read.at("practice", "bucket", "buffers")
        raise InputError.one("bucket-without-size", message, place, "write practice.bucket.elements")
    return there


def _check_kept(asked: Mapping[str, int], least: Mapping[str, int], read: Stated) -> None:
    """Refuse names of nothing that has bytes, and bytes per element that leave an array less than nothing.

    least  the fewest that each may be stated with: what stands beside all arrays is no part of them
    """
    for name, per_element in asked.items():
        if name == GRADIENTS and name not in least:
            message = "products make no gradients beside those that are added up: microbatches scatter what they make"
            remedy = "leave it out, or write gradients: per_step"
            raise InputError.one("no-spare-gradients", message, read.at_key("practice", "keeps", name), remedy)
        if name not in least:
            raise unknown(name, "array of the program with bytes", least, read.at_key("practice", "keeps", name))
        if per_element < least[name]:
            has = f"has {-least[name]} itself" if least[name] else "stands beside all arrays and frees none of them"
            message = f"{name} with {per_element} bytes per element takes less than nothing: it {has}"
            place = read.at("practice", "keeps", name)
            raise InputError.one("less-than-nothing", message, place, f"write at least {least[name]}")


def _check_stream(asked: Iterable[str], kept: Lifetimes, read: Stated) -> None:
    """Refuse the stream and its cotangent: what a part of the stack is handed counts as large as what it hands on.

    A gradient of weights that two parts share is no stream, and weights that both read are none.

    kept  of a stack that has two layers of each kind, so that a layer hands on to one like it
    """
    activations = [(x, op) for x, op in kept.makers.items() if x.role == "activation" and op.where.act != "W"]
    stream = {x.name for x, _ in activations if kept.handed_on(x)}
    for name in asked:
        if name in stream:
            message = f"{name} is handed on between parts of the stack, and counts as large as all that is"
            remedy = "state the bytes of an array that one layer both makes and reads"
            raise InputError.one("handed-on", message, read.at_key("practice", "keeps", name), remedy)


def check_layers(practice: Practice, split: Sequence[int], at: At) -> None:
    """Refuse to recompute more layers than a chunk has; one without layers has none to recompute."""
    asked, least = practice.recompute_layers, min(layers for layers in split if layers)
    if asked is not None and asked > least:
        message = f"{asked} layers of each chunk are recomputed, and a chunk has {least}"
        remedy = f"write at most {least}, or leave layers out: every layer is recomputed"
        raise InputError.one("too-many-layers", message, at("recompute", "layers"), remedy)


def check_dropped(names: Sequence[str], forward: Sequence[Op], at: At) -> None:
    """Refuse names of nothing that a layer makes; forward: the ops of a microbatch."""
    ops = [op for op in forward if op.where.place == "layer"]
    kernels = {op.where.kernel for op in ops if op.where.kernel}
    here = {op.output for op in ops}
    edges = {op.output for op in ops if isinstance(op, Reshard) and not here & {*op.inputs}}
    arrays = {x.name for x in here - edges if x.role == "activation"}
    for name in names:
        if name not in {*kernels, *map(kind, kernels), *arrays}:
            place = at("recompute", "drop") or at("recompute")
            raise unknown(name, "kernel or array of a layer", sorted({*kernels, *arrays}), place)


def _traced(practice: Practice, model: Model, laid: Layout, dtypes: Dtypes, *, runs: int = 1) -> Program:
    """The program of a model with so many layers of each kind, and a cut behind them if it has stages."""
    axes = tuple({axis: None for dims in laid.table.values() for used in dims.values() for axis in used})
    layers = tuple((kind, runs * many) for kind, many in one_each(practice, model.stack))
    return lower(model, laid, practice, dtypes, axes, layers=(layers, ()) if laid.stages else (layers,))
