"""What ZeRO comes to: at which stage microbatches share what it shards, how parameters lie, what it leaves whole."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Literal

from tpsim.algebra.sharding import flat_dim
from tpsim.program.frameworks import PRACTICES
from tpsim.program.kinds import counted
from tpsim.program.layout import LINES
from tpsim.program.practice import ALL_SHARDED, Practice
from tpsim.program.transformer import end_parameters, layer_parameters
from tpsim.quantity.errors import At, InputError
from tpsim.report.answer import Assumption

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpsim.algebra.mesh import Mesh
    from tpsim.algebra.moves import Axes
    from tpsim.program.dtypes import Dtypes
    from tpsim.program.model import Model
    from tpsim.question.question import Question
    from tpsim.question.scenario_file import LayoutFields, PracticeFields, ScenarioFile

ONCE = "microbatches share weights that are gathered once, and gradients that are scattered once"


def staged(practice: PracticeFields) -> Literal["each", "shared"]:
    """How stages come by weights and gradients: whoever states that either travels more often has them so."""
    each = practice.reshard_after_forward or practice.gradients not in {None, "per_step"}
    return practice.staged or ("each" if each else PRACTICES[practice.base].staged)


def at_stages(zero: int, by: Literal["each", "shared"], stages: int) -> int:
    """The ZeRO stage that one comes to where microbatches of several stages share weights and gradients."""
    return min(zero, 1) if by == "shared" and stages > 1 else zero


def shared_by_microbatches(file: ScenarioFile, fields: LayoutFields, mesh: Mesh) -> LayoutFields:
    """The layout with the ZeRO stage that it comes to."""
    zero = at_stages(fields.zero, staged(file.practice), mesh.size(*fields.pp))
    return fields if zero == fields.zero else fields.model_copy(update={"zero": zero})


def sharded_over(fields: LayoutFields, at: At) -> Axes:
    """The axes that ZeRO shards over, major first. Raises InputError for axes that split no tokens, and for none."""
    data = (*fields.dp, *fields.cp)
    if fields.zero_over is None:
        return data
    problem = "names no axis" if not fields.zero_over else ""
    for axis in fields.zero_over:
        problem = problem or (f"names {axis}, which is no axis of dp or cp" if axis not in data else "")
        problem = problem or (f"names {axis} twice" if fields.zero_over.count(axis) > 1 else "")
    if problem:
        remedy = f"take some of {', '.join(data)}, or leave it out" if data else "leave it out"
        raise InputError.one("not-sharded-over", f"layout.zero_over {problem}", at("layout", "zero_over"), remedy)
    return tuple(axis for axis in data if axis in fields.zero_over)


def stated_over(question: Question) -> Axes:
    """The same, where they are stated; else none."""
    fields = question.stated.file.layout
    return (fields and fields.zero_over) or ()


def gathered_once(dtypes: Dtypes, practice: Practice, zero: int) -> Dtypes:
    """The number formats where microbatches share weights that are gathered once: whole as they are used, not at rest.

    They are cast where they lie, in the optimizer's shards, of which FSDP2 gathers one copy for all microbatches.
    """
    once = practice.staged == "shared" and 0 < zero < ALL_SHARDED
    if not once or practice.cast == "products" or not dtypes.narrows(dtypes.params):
        return dtypes
    return replace(dtypes, params=dtypes.activations, shards=dtypes.params)


def whole_notes(
    model: Model, whole: Sequence[str], shards: int, zero: tuple[int, int], *, some: bool
) -> Iterator[Assumption]:
    """What ZeRO leaves whole: all for want of shards, or for want of divisibility biases of models that have such.

    zero  its stage as stated, and what that comes to
    some  True if it is said over which data shards
    """
    stated, comes_to = zero
    if some and not stated:
        yield Assumption("zero_over says nothing at ZeRO 0: nothing is sharded over data shards", "stated")
    if stated and shards == 1:
        yield Assumption(f"ZeRO {stated} has one data shard to split over: nothing is sharded", "derived")
    elif stated != comes_to:
        yield Assumption(f"ZeRO {stated} of stages is ZeRO {comes_to}: {ONCE} (practice.staged)", "derived")
    words = {"d": f"query, key and value biases (head dim {model.head_dim})", "f": f"ffn biases ({model.ffn_hidden})"}
    if model.experts:
        words["y"] = f"biases of experts ({model.experts.hidden})"
    for dim in whole:
        if dim in _biased(model):
            yield Assumption(f"{words[dim]} do not divide over dp {shards}: ZeRO leaves them whole", "derived")


def parts_of_latents(sizes: Mapping[str, int], mesh: Mesh, data: Axes, heads: int) -> dict[str, Axes]:
    """Which axes ZeRO shards what of weights on latents over, where not all of `data` divide a rank: it, then heads.

    heads  of a device, before that
    """
    parts = {dim: _most(sizes[dim], data, mesh) for dim in LATENTS if dim in sizes}
    rest = tuple(axis for axis in data if any(axis not in axes for axes in parts.values()))
    return {**parts, "g": _most(heads, rest, mesh)} if rest else {}


def _most(size: int, axes: Axes, mesh: Mesh) -> Axes:
    """Those of some axes that divide a size and are the most devices, those of one device among them."""
    ways = (some for many in range(len(axes), -1, -1) for some in combinations(axes, many))
    return max((some for some in ways if not size % mesh.size(*some)), key=lambda some: mesh.size(*some))


def latent_notes(parts: Mapping[str, Axes], mesh: Mesh, data: Axes) -> Iterator[Assumption]:
    """Over which axes ZeRO leaves weights on latents whole."""
    ranks = {dim: axes for dim, axes in parts.items() if dim in LATENTS}
    over_heads = parts.get("g", ())
    left = [axis for axis in data if axis not in over_heads and any(axis not in axes for axes in ranks.values())]
    if left := [axis for axis in left if mesh.size(axis) > 1]:
        text = f"weights on latents do not divide over dp {mesh.size(*data)}, by their ranks and by heads: "
        yield Assumption(f"{text}ZeRO leaves them whole over {', '.join(left)}", "derived")


def state_notes(sizes: Mapping[str, int], shards: int) -> Iterator[Assumption]:
    """What of linear attention ZeRO leaves whole: what has neither the stream nor a head's numbers that divide."""
    left = [dim for dim in STATES if sizes.get(dim, 0) % shards]
    if left:
        text = (
            f"weights of linear attention that do not read the stream ({sizes[left[0]]} numbers a head) do not divide"
        )
        yield Assumption(f"{text} over dp {shards}: ZeRO leaves them whole", "derived")


LATENTS = ("u", "x")
"""The dims of latents, which weights may have in the place of h."""

STATES = ("ld", "lo")
"""The dims of a head of linear attention, by which ZeRO shards its weights that read no stream."""


@lru_cache(maxsize=64)
def led(model: Model) -> frozenset[str]:
    """Which of d and f a weight has behind h or a latent alone, which ZeRO splits: layouts say nothing of these."""
    parameters = [*end_parameters(model), *(p for kind in model.kinds.values() for p in layer_parameters(model, kind))]
    alone = (parameter.dims for parameter in parameters if {"h", *LATENTS}.isdisjoint(parameter.dims))
    return frozenset("df").difference(*alone)


@lru_cache(maxsize=64)
def _biased(model: Model) -> frozenset[str]:
    """The dims of biases in layers: a search asks for every cut of a model."""
    parameters = (parameter for kind in model.kinds.values() for parameter in layer_parameters(model, kind))
    return frozenset(dim for parameter in parameters if parameter.name.startswith("b") for dim in parameter.dims)


LAID: Mapping[str, str] = {
    "flat": "each lies in a line that is filled up to a multiple of that (DeepSpeed's ZeRO-3; Megatron-LM fills up one "
    "line per bucket, to a multiple of lcm(dp, 128), in which parameters begin at multiples of 64)",
    "rows": "its first dim is filled up to a multiple of that, so that the last devices hold less, or nothing but zeros"
    " (PyTorch FSDP2: chunks of the first one's size)",
}
"""How parameters are laid out, and who does so."""


OF_EXPERTS: Mapping[str, str] = {
    "rows": ", of experts not of these but of what each makes (torchtitan, where experts are fewer than shards)"
}
"""What is said beside that of a model with experts."""


FIRST: Mapping[str, str] = {"h": "hidden", "u": "query latent", "x": "latent of keys and values"}
"""The dims that ZeRO shards of weights, in words: hidden, or that of a latent in its place."""


def undivided(sizes: Mapping[str, int], shards: int) -> list[str]:
    """Those that so many shards do not divide."""
    return [dim for dim in FIRST if sizes.get(dim, 0) % shards]


def line_of(file: ScenarioFile, sizes: Mapping[str, int], shards: int) -> Literal["flat", "rows", "none"]:
    """How parameters are laid out that ZeRO shards: as practice does where so many shards do not divide them."""
    if not undivided(sizes, shards):
        return "none"
    return file.practice.padding or PRACTICES[file.practice.base].padding


def line_notes(question: Question) -> Iterator[Assumption]:
    """How parameters are laid out, and how much fills them up."""
    lines = ((dim, axes) for row in question.layout.table.values() for dim, axes in row.items() if dim in LINES)
    line, over = next(lines, (None, ()))
    if line:
        shards, more, sizes = question.mesh.size(*over), _filled(question), question.workload.dims(question.model)
        named = [f"{FIRST[dim]} {sizes[dim]}" for dim in undivided(sizes, shards)]
        some = f"the {shards} shards of zero_over" if stated_over(question) else f"dp {shards}"
        text = f"{' and '.join(named)} {'are' if len(named) > 1 else 'is'} not divisible by {some}, which ZeRO splits "
        text += f"parameters over: {LAID[line]}" + OF_EXPERTS.get(line, "") * bool(question.model.experts)
        yield Assumption(f"{text}; {100 * more:.2g} % of what a device holds fills them up", "derived")


def _filled(question: Question) -> float:
    """The share of what a device holds of all parameters that only fills lines up."""
    model, axes, padded, own = question.model, question.mesh.axes, 0.0, 0.0
    practice, dims = question.practice.under(question.layout), question.workload.dims(question.model)
    parameters = [(parameter, 1) for parameter in end_parameters(model)]
    for name, many in counted(model.stack).items():
        parameters += [(parameter, many) for parameter in layer_parameters(model, model.kinds[name], practice)]
    for parameter, many in parameters:
        type_ = question.layout.home(parameter.dims, "state", parameter.rows)
        if line := flat_dim(type_):
            padded += many * type_.local_elements(dims, axes)
            own += many * line.of.local_elements(dims, axes) / question.mesh.size(*line.ways)
    return 1 - own / padded
