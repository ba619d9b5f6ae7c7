"""The unsharded transformer, written once, forward only: named-axis products between named regions; its parameters.

Dims are those of `program.dims`. Regions: residual, block, heads, vocab; parameters are stored. No op here names an
axis.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from itertools import count
from math import prod
from typing import TYPE_CHECKING, Any

from tpsim.program.blocks import norm, vocabulary
from tpsim.program.dims import DIMS
from tpsim.program.kinds import counted, further, model_kind
from tpsim.program.model import Attention, Latent, LayerKind, Mlp, Model, Moe, NoFeedForward
from tpsim.program.practice import Practice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import ModuleType

    from tpsim.program.linear import Linear
    from tpsim.program.op import Array, Where
    from tpsim.program.text import Parameter, Text

    Block = Attention | Latent | Linear | Mlp | Moe | NoFeedForward

WRITTEN: Mapping[str, str] = {"gqa": "attention", "mla": "latent", "linear": "linear", "mlp": "mlp", "moe": "moe"}
"""What a block says that it is -> the module of `blocks` that has its parameters and its text: loaded for models that
have it."""

SIDES: Mapping[str, tuple[str, ...]] = {"pre": ("",), "post": ("_out",), "both": ("", "_out")}
"""`Model.norms` -> the norms of a block, by what follows its name: of its input, and of its output."""


def layer_parameters(model: Model, kind: LayerKind, practice: Practice = Practice()) -> Iterator[Parameter]:  # noqa: B008 - frozen
    """The parameters of one layer."""
    alone = isinstance(kind.ffn, NoFeedForward)
    for block in (kind.attention,) if alone else (kind.attention, kind.ffn):
        yield from _module(block).parameters(block, practice)
    for name in ("attention",) if model.shared_norm or alone else ("attention", "mlp"):
        for side in SIDES[model.norms]:
            yield from norm.parameters(model, f"{name}{side}", "layer")


def end_parameters(model: Model) -> Iterator[Parameter]:
    """The parameters around the layers."""
    yield from vocabulary.embedding_parameters(model)
    yield from norm.parameters(model, "final", "head")
    yield from vocabulary.head_parameters(model)


def mtp_parameters(model: Model, practice: Practice = Practice()) -> Iterator[Parameter]:  # noqa: B008 - frozen
    """The parameters of a module that predicts a token further on; none without one."""
    if model.mtp:
        for parameter in layer_parameters(model, model.kinds[model.mtp[0]], practice):
            yield replace(parameter, places=("head",))
        yield from vocabulary.further_parameters(model)


def unwritten(model: Model) -> Iterator[str]:
    """What of a model can be counted but has no text yet, in words."""
    if model.mtp and model.mtp[1] > 1:
        yield "several modules that predict tokens further on"
    if model.parallel_residual and model.norms != "pre":
        yield "a parallel residual with norms of what blocks make"
    if model.parallel_residual and any(isinstance(kind.ffn, NoFeedForward) for kind in model.kinds.values()):
        yield "a parallel residual with no feed-forward in it"
    if model.shared_norm and not model.parallel_residual:
        yield "a norm that blocks share that follow each other"
    if model.positions == "alibi" and any(
        isinstance(kind, Latent) or getattr(kind, "window", None) for kind in model.attentions
    ):
        yield "ALiBi beside a window or a latent"
    sizes: dict[str, int] = {}
    for kind in model.kinds.values():
        for dim, size in kind.sizes.items():
            if sizes.setdefault(dim, size) != size:
                yield f"blocks that differ in {DIMS[dim].meaning}"


def forward(
    text: Text,
    stacks: Sequence[Sequence[str]],
    end: Callable[[Any, Array], Array] | None = None,
    begin: Callable[[Any], Array] = vocabulary.embedded,
) -> Array:
    """One microbatch from token ids to its loss, a scalar that may still owe a sum over the data axes.

    stacks  the kind of every layer of each chunk; the stream is sent from one chunk to the next
    end     what is made of the stream behind the last layer, instead of the loss
    begin   what the stream is made of in front of the first one
    """
    trace, start = text.trace, text.trace.where
    with trace.at(replace(start, place="embedding", block="embedding")):
        x = begin(text)
    numbers = count()
    for chunk, stack in enumerate(stacks):
        here = replace(start, chunks=(chunk,))
        x = _cut(text, x, here) if chunk else x
        for kind in stack:
            with trace.at(here.but(place="layer", kind=kind).inside("layers", next(numbers))):
                x = layer(text, text.model.kinds[model_kind(kind)], text.edge(x, "layer.in"))
    with trace.at(replace(start, place="head", chunks=(len(stacks) - 1,))):
        return (end or _loss)(text, text.edge(x, "head.edge"))


def _loss(text: Text, x: Array) -> Array:
    """The loss of the stream behind the last layer, and of a module that predicts a token further on."""
    loss = vocabulary.loss(text, vocabulary.head(text, norm.norm(text, x, "final")))
    return text.trace.lin("losses", loss, _further(text, x)) if text.model.mtp else loss


def _further(text: Text, x: Array) -> Array:
    """The loss of the tokens behind the next ones."""
    kind, _ = text.model.mtp or ("", 0)
    vectors = vocabulary.looked_up(text, "labels", "mtp.embedding")
    with text.trace.at(text.trace.where.but(kind=further(text.practice))):
        x = layer(text, text.model.kinds[kind], vocabulary.further(text, x, vectors))
        x = norm.norm(text, x, "mtp_final")
    x = text.edge(x, "mtp.edge")
    return vocabulary.loss(text, vocabulary.head(text, x), "loss.mtp", "further_labels")


def layer(text: Text, kind: LayerKind, x: Array) -> Array:
    """One layer: attention and feed-forward, one after the other or side by side (parallel residual)."""
    reads = _read(text, x, "attention")
    if text.model.shared_norm:
        with text.inside("attention", "block"):
            reads = text.entered(reads, "block.in", "attention and the MLP read the normed stream")
    attended = _written(text, kind.attention, reads)
    if text.model.parallel_residual:
        fed = _written(text, kind.ffn, reads if text.model.shared_norm else _read(text, x, "mlp"))
        if isinstance(kind.ffn, Moe):  # what experts make is split as their tokens are, over tensor, too
            return text.added(text.added(x, attended, "attention", "bo"), fed, "mlp", "b2")
        with text.inside("residual", "block"):
            both = text.trace.lin("block.out", attended, fed)
        return text.added(x, both, "residual", "bo", "b2")
    x = _joined(text, x, attended, "attention", "bo")
    if isinstance(kind.ffn, NoFeedForward):
        return x
    return _joined(text, x, _written(text, kind.ffn, _read(text, x, "mlp")), "mlp", "b2")


def _read(text: Text, x: Array, name: str) -> Array:
    """What a block reads: the stream, normed unless the model norms what blocks make alone."""
    return x if text.model.norms == "post" else norm.norm(text, x, name)


def _which(block: Block) -> str:
    """What a block says that it is."""
    return str(getattr(block, "attention", None) or getattr(block, "ffn", None))


def _module(block: Block) -> ModuleType:
    """The parameters and the text of a block."""
    return import_module(f"tpsim.program.blocks.{WRITTEN[_which(block)]}")


def _written(text: Text, block: Block, reads: Array) -> Array:
    write = text.others.get(_which(block)) or _module(block).write
    output: Array = write(text, block, reads)
    return output


def _joined(text: Text, x: Array, output: Array, name: str, bias: str) -> Array:
    """The stream with what a block made, normed before it joins if the model does so."""
    if text.model.norms == "pre":
        return text.added(x, output, name, bias)
    with text.inside(name, "residual"):
        output = text.trace.pin(output, "residual", "")
        output = text.trace.lin(f"{name}.biased", output, text.use(bias)) if text.has(bias) else output
    return text.added(x, norm.norm(text, output, f"{name}_out"), name)


def _cut(text: Text, x: Array, here: Where) -> Array:
    """The stream where the stack is cut: sent, as the table has it there, to the chunk that is `here`."""
    (chunk,) = here.chunks
    where = here.but(place="cut", block="cut").inside("chunks", chunk - 1)
    x = _beside(text, x, "cut", where.but(chunks=(chunk - 1,)), "cut.in")
    with text.trace.at(where, x.region):
        x = text.trace.send(x, "cut.out", "the layers behind the cut lie on another stage")
    return _beside(text, x, "residual", where, "cut.out")


def _beside(text: Text, x: Array, region: str, where: Where, name: str) -> Array:
    """The stream as `region` has it, on one side of a cut."""
    if text.trace.layout.type_in(x.dims, region) == x.type:
        return x
    with text.trace.at(where.but(place="side"), region):
        return text.trace.pin(x, region, "", name=name)


GROUPS: Mapping[str, str] = {
    "embedding": "embedding",
    "attention": "attention",
    "mlp": "mlp",
    "router": "router",
    "experts": "experts",
    "shared": "shared experts",
    "norm": "norms",
    "head": "output",
}
"""Block -> what counts call its parameters."""


def parameter_counts(model: Model, *, padded: bool = False, active: bool = False) -> Mapping[str, int]:
    """Parameters by group over all layers, for groups that the model has; a tied output has none of its own.

    padded  the vocabulary is the padded one that is sharded; the published counts are of the unpadded one
    active  of experts those that work for a token

    Modules that predict tokens further on are not among them: see `mtp_count`.
    """
    sizes = _sizes(model, padded=padded)
    counts = dict.fromkeys(GROUPS.values(), 0)
    for name, many in counted(model.stack).items():
        kind = model.kinds[name]
        for parameter, size in _each(layer_parameters(model, kind), kind, sizes, active=active):
            counts[GROUPS[parameter.block]] += many * size
    for parameter, size in _each(end_parameters(model), None, sizes):
        counts[GROUPS[parameter.block]] += size
    return {group: count for group, count in counts.items() if count or group == GROUPS["head"]}


def parameter_count(model: Model, *, padded: bool = False, active: bool = False) -> int:
    """All parameters together; see `parameter_counts`."""
    return sum(parameter_counts(model, padded=padded, active=active).values())


def mtp_count(model: Model, *, active: bool = False) -> int:
    """Parameters of the modules that predict tokens further on, without the tables that they share; 0 without any."""
    if not model.mtp:
        return 0
    name, many = model.mtp
    counts = _each(mtp_parameters(model), model.kinds[name], _sizes(model, padded=False), active=active)
    return many * sum(size for _, size in counts)


def _sizes(model: Model, *, padded: bool) -> Mapping[str, int]:
    return {**model.dims(sequences=1, seq=1), **({} if padded else {"v": model.vocab})}


def _each(
    parameters: Iterable[Parameter], kind: LayerKind | None, sizes: Mapping[str, int], *, active: bool = False
) -> Iterable[tuple[Parameter, int]]:
    """Every parameter, and how many numbers it has, or has for a token."""
    own = {**sizes, **(kind.sizes if kind else {})}
    if active and kind and isinstance(kind.ffn, Moe):
        own["n"] = kind.ffn.top
    return ((parameter, prod(own[dim] for dim in parameter.dims)) for parameter in parameters)
