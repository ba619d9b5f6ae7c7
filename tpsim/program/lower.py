"""From a model and a layout to the program of one training step: forward, backward, update."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from tpsim.program.kinds import ALIKE, Layers, model_kind, one_each, stack
from tpsim.program.op import Array, Op, Program, Where
from tpsim.program.stretch import Stretches
from tpsim.program.text import Parameter, Text
from tpsim.program.trace import Path, Trace, book_path
from tpsim.program.transformer import end_parameters, forward, layer_parameters, mtp_parameters
from tpsim.program.transpose import Backward
from tpsim.program.update import Update

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from tpsim.program.dtypes import Dtypes
    from tpsim.program.layout import Layout
    from tpsim.program.model import Model
    from tpsim.program.practice import Practice

ROOT = Where("F", "embedding", "embedding")


StepPart = Literal["states", "forward", "backward", "gradients", "turnover", "stretches"]
"""A part of a step in the order in which they are traced, what is read off it, and stretches that are written of single
parameters behind it: layouts alike in it may share it. States are what stands before and behind it."""


def anew(_part: str, made: Callable[[], Any], *_read: Hashable) -> Any:
    """A part of a step made for one layout alone."""
    return made()


def lower(
    model: Model,
    layout: Layout,
    practice: Practice,
    dtypes: Dtypes,
    order: tuple[str, ...],
    *,
    layers: int | tuple[int | Layers, ...] | None = None,
    microbatches: int = 1,
    path: Path = book_path,
    once: Callable[..., Any] = anew,
) -> Program:
    """The typed program of a training step of `model` under `layout`, which may part what `practice` fuses.

    order         mesh axes, major first
    layers        layers to trace, one of each kind unless stated; of each chunk, where the stack is cut into several
    microbatches  microbatches to trace
    path          chooses the moves of a reshard; the book's greedy path unless stated
    once          may give what was made of a `StepPart` for another layout, which reads the same of the parts before it
    Raises ShardingError if the layout asks for what the algebra forbids, with the reason in the notation.
    """
    practice = practice.under(layout)
    stacks = stacks_of(layers, practice, model)
    known: Stretches = once("stretches", Stretches)

    def gone() -> Begun:
        return begun(model, layout, practice, dtypes, order, layers=layers, path=path)

    def turned() -> Begun:
        return _backward(once("forward", gone).under(layout, practice))

    def added() -> Begun:
        return _gradients(once("backward", turned).under(layout, practice), stacks, microbatches, known)

    whole: Begun = once("gradients", added).under(layout, practice)
    results = {"loss": whole.loss, **_end(whole, stacks, known)}
    return _program(whole.text.trace, practice, stacks, results, microbatches)


def _program(
    trace: Trace,
    practice: Practice,
    stacks: tuple[tuple[str, ...], ...],
    results: Mapping[str, Array],
    microbatches: int = 1,
) -> Program:
    kinds = [kind for stack in stacks for kind in stack]
    traced = {**Counter(kinds), ALIKE: len(kinds), "microbatches": microbatches, "chunks": max(1, len(stacks) - 1)}
    tokens, ahead, units = practice.order or "contiguous", practice.layers_ahead, practice.units
    plain, table = practice.attention == "plain", trace.layout.table
    return Program(tuple(trace.ops), trace.order, traced, table, results, tokens, ahead, units, plain)


def states(
    model: Model,
    layout: Layout,
    practice: Practice,
    dtypes: Dtypes,
    order: tuple[str, ...],
    *,
    layers: int | tuple[int | Layers, ...] | None = None,
) -> Program:
    """What stands on devices whatever a step does: weights, what an optimizer holds of them, and gradients at least.

    How far these are sharded is known once backward is traced; arguments as of `lower`.
    """
    text, stacks = _declared(Trace(layout, order, ROOT), model, practice, dtypes, layers)
    update = Update(text.trace, layout, text.practice, dtypes)
    for _, weight in _trained(model, text.practice, stacks, text.weights):
        with text.trace.at(text.trace.producer[weight].where.but(act="U"), "state"):
            update.states(weight)
            update.gradient(weight)
    return _program(text.trace, text.practice, stacks, {})


def begun(
    model: Model,
    layout: Layout,
    practice: Practice,
    dtypes: Dtypes,
    order: tuple[str, ...],
    *,
    layers: int | tuple[int | Layers, ...] | None = None,
    path: Path = book_path,
) -> Begun:
    """The forward of one microbatch, with which a step begins; arguments and errors as of `lower`."""
    return _forward(*_declared(Trace(layout, order, ROOT, path=path), model, practice, dtypes, layers))


def _declared(
    trace: Trace, model: Model, practice: Practice, dtypes: Dtypes, layers: int | tuple[int | Layers, ...] | None
) -> tuple[Text, tuple[tuple[str, ...], ...]]:
    """A step of which parameters alone are written into `trace`, and the kinds of its layers."""
    practice = practice.under(trace.layout)
    stacks = stacks_of(layers, practice, model)
    return Text(trace, model, practice, dtypes, leaves_of(trace, model, practice, dtypes, stacks)), stacks


@dataclass(frozen=True, slots=True)
class Begun:
    """A step as far as it is traced: after a microbatch forward, then backward, then after all of them.

    loss     of the microbatch, then of the step
    forward  the ops of the microbatch
    uses     parameter and chunk that uses it -> the cotangents of its uses, then what is added up of them
    """

    text: Text
    loss: Array
    forward: Sequence[Op]
    uses: Mapping[tuple[Array, int], Sequence[Array]] = field(default_factory=dict)

    def under(self, layout: Layout, practice: Practice) -> Begun:
        """The same to go on from by itself, under a layout and a practice that begin so."""
        return replace(self, text=replace(self.text, trace=self.text.trace.copied(layout), practice=practice))


def _forward(text: Text, stacks: tuple[tuple[str, ...], ...], microbatch: int = 0) -> Begun:
    trace = text.trace
    with trace.at(ROOT.inside("microbatches", microbatch)):
        start = len(trace.ops)
        loss = forward(text, stacks)
        return Begun(text, loss, trace.ops[start:])


def _backward(begun: Begun) -> Begun:
    """The microbatch backward, what is for gradients alone told from what is not."""
    trace = begun.text.trace
    start, backward = len(trace.ops), Backward(trace, begun.text.practice)
    uses = backward.run(begun.forward, begun.loss)
    trace.ops[start:] = parted(trace.ops[start:], backward.stream, [x for parts in uses.values() for x in parts])
    trace.producer.update((op.output, op) for op in trace.ops[start:])
    of_chunks = {
        (weight, chunk): own  # its uses in each chunk that holds it
        for weight, parts in uses.items()
        for chunk in trace.producer[weight].where.chunks
        if (own := [part for part in parts if trace.producer[part].where.chunks == (chunk,)])
    }
    return replace(begun, uses=of_chunks)


def _gradients(begun: Begun, stacks: tuple[tuple[str, ...], ...], microbatches: int, known: Stretches) -> Begun:
    """All microbatches one after the other, the first as it is begun, and what they add to gradients."""
    text, trace = begun.text, begun.text.trace
    update, losses = Update(trace, trace.layout, text.practice, text.dtypes, known), list[Array]()
    gradients = defaultdict[tuple[Array, int], list[Array]](list)
    for microbatch in range(microbatches):
        begun = _backward(_forward(text, stacks, microbatch)) if microbatch else begun
        losses.append(begun.loss)
        for (weight, chunk), parts in begun.uses.items():
            gradients[weight, chunk] += update.added(weight, chunk, microbatch, parts)
    with trace.at(ROOT.but(block="loss", place="head", chunks=(len(stacks) - 1,)), "vocab"):
        total = trace.settled(trace.lin("loss", *losses), "the reported loss is complete")
    return replace(begun, loss=total, uses=gradients)


def _end(begun: Begun, stacks: tuple[tuple[str, ...], ...], known: Stretches) -> dict[str, Array]:
    """Gradients settled and weights updated, once per step."""
    text, trace = begun.text, begun.text.trace
    update = Update(trace, trace.layout, text.practice, text.dtypes, known)
    trained = dict(_trained(text.model, text.practice, stacks, text.weights))
    weights = [*trained.values()]

    def write() -> list[Array]:
        gradients, new, squares = list[Array](), list[Array](), None
        for weight in weights:
            parts = {chunk: begun.uses[weight, chunk] for chunk in trace.producer[weight].where.chunks}
            gradients.append(update.received(weight, parts))
            if text.practice.clip == "none":
                new.append(update.apply(weight, gradients[-1], squares))
        if text.practice.clip != "none":
            squares = update.squares(gradients, len(stacks))
            new += [update.apply(weight, g, squares) for weight, g in zip(weights, gradients, strict=True)]
        return [*gradients, *new]

    names = [f"{kind}.{label}" for kind in ("grad", "new") for label in trained]
    table = [(region, *dims.items()) for region, dims in trace.layout.table.items()]
    read = [*weights, *(x for parts in begun.uses.values() for x in parts)]
    return dict(zip(names, known.once(trace, ("end", *names, *table), read, write), strict=True))


def _trained(
    model: Model,
    practice: Practice,
    stacks: tuple[tuple[str, ...], ...],
    weights: Mapping[tuple[str, int | None], Array],
) -> Iterator[tuple[str, Array]]:
    """The weights that have gradients, by the names that their results bear."""
    untrained = {parameter.name for parameter, *_ in _homes(model, practice, stacks) if not parameter.trained}
    for (name, layer), weight in weights.items():
        if name not in untrained:
            yield (name if layer is None else f"{layer}.{name}"), weight


def stacks_of(
    layers: int | tuple[int | Layers, ...] | None, practice: Practice, model: Model
) -> tuple[tuple[str, ...], ...]:
    """The kind of every traced layer of each chunk."""
    alone = layers if isinstance(layers, int) else one_each(practice, model.stack)
    chunks = layers if isinstance(layers, tuple) else (alone,)
    stacks = [stack(practice, chunk, model.stack) if isinstance(chunk, int) else chunk for chunk in chunks]
    return tuple(tuple(kind for kind, many in stack for _ in range(many)) for stack in stacks)


def leaves_of(
    trace: Trace, model: Model, practice: Practice, dtypes: Dtypes, stacks: tuple[tuple[str, ...], ...]
) -> dict[tuple[str, int | None], Array]:
    """A leaf per parameter where it belongs to: those of a layer once per traced layer."""
    weights: dict[tuple[str, int | None], Array] = {}
    for parameter, layer, where in _homes(model, practice, stacks):
        with trace.at(where.but(block=parameter.block, place=parameter.places[0])):
            dtype = dtypes.weights_of(parameter.block)
            leaf = trace.leaf(parameter.name, parameter.dims, "stored", dtype, "param", rows=parameter.rows)
        weights[parameter.name, layer] = leaf
    return weights


def _homes(
    model: Model, practice: Practice, stacks: tuple[tuple[str, ...], ...]
) -> Iterator[tuple[Parameter, int | None, Where]]:
    """Every parameter, its traced layer, and the chunks that use it: a tied embedding the first and the last."""
    layers = [(chunk, kind) for chunk, stack in enumerate(stacks) for kind in stack]
    chunk_of = {"embedding": 0, "head": len(stacks) - 1}
    around = [
        (parameter, None, ROOT.but(chunks=tuple(sorted({chunk_of[place] for place in parameter.places}))))
        for parameter in end_parameters(model)
    ]
    yield from (home for home in around if home[0].places[0] == "embedding")
    for layer, (chunk, kind) in enumerate(layers):
        where = ROOT.but(chunks=(chunk,), kind=kind).inside("layers", layer)
        for parameter in layer_parameters(model, model.kinds[model_kind(kind)], practice):
            yield parameter, layer, where
    yield from (home for home in around if home[0].places[0] != "embedding")
    for parameter in mtp_parameters(model, practice):
        yield parameter, None, ROOT.but(chunks=(len(stacks) - 1,))


def parted(ops: Sequence[Op], stream: Iterable[Array], gradients: Iterable[Array]) -> tuple[Op, ...]:
    """Ops of backward with W told from B; a fused kernel is one or the other as a whole.

    W are the ops that lead to a gradient and not to the cotangent of the stream where a part of the stack begins, but
    for what is recomputed; all else of backward is B. So B can run, and what it sends leave, before any W: zero-bubble
    schedules live from that. Source: Qi et al., Zero Bubble Pipeline Parallelism (2023), section 2.

    stream     cotangents that one part of the stack hands to the one before it
    gradients  of parameters
    """
    backward = [op for op in ops if op.where.act == "B"]
    replayed = {op.output for op in backward if op.where.again == "replay"}
    on_the_way = _leading_to({*stream, *replayed}, backward)
    kernels = {(op.where.kernel, op.where.loops) for op in backward if op.output in on_the_way and op.where.kernel}
    for_parameters = _leading_to(gradients, backward) - on_the_way
    return tuple(
        replace(op, where=op.where.but(act="W"))
        if op.where.act == "B" and op.output in for_parameters and (op.where.kernel, op.where.loops) not in kernels
        else op
        for op in ops
    )


def _leading_to(arrays: Iterable[Array], ops: Sequence[Op]) -> set[Array]:
    """`arrays`, and all that is made by these ops on the way to them."""
    needed = set(arrays)
    for op in reversed(ops):
        if op.output in needed:
            needed.update(op.inputs)
    return needed
