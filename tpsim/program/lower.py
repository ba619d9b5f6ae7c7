"""From a model and a layout to the program of one training step: forward, backward, update."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tpsim.program.kinds import ALIKE, model_kind, one_each, stack
from tpsim.program.op import Array, Program, Where, acting
from tpsim.program.text import Text
from tpsim.program.trace import Path, Trace, book_path
from tpsim.program.transformer import end_parameters, forward, layer_parameters, mtp_parameters
from tpsim.program.transpose import Backward
from tpsim.program.update import Update

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from tpsim.program.dtypes import Dtypes
    from tpsim.program.kinds import Layers
    from tpsim.program.layout import Layout
    from tpsim.program.model import Model
    from tpsim.program.op import Op
    from tpsim.program.practice import Practice
    from tpsim.program.text import Parameter

ROOT = Where("F", "embedding", "embedding")


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
    once: Callable[[Callable[[], Begun]], Begun] = lambda begun: begun(),
) -> Program:
    """The typed program of a training step of `model` under `layout`, which may part what `practice` fuses.

    order         mesh axes, major first
    layers        layers to trace, one of each kind unless stated; of each chunk, where the stack is cut into several
    microbatches  microbatches to trace
    path          chooses the moves of a reshard; the book's greedy path unless stated
    once          may give what layouts have begun alike that differ in where gradients and optimizer states lie alone
    Raises ShardingError if the layout asks for what the algebra forbids, with the reason in the notation.
    """
    practice = practice.under(layout)
    stacks = stacks_of(layers, practice, model)
    begun = once(lambda: _begun(Trace(layout, order, ROOT, path=path), model, practice, dtypes, stacks)).under(layout)
    trace, weights, backward = begun.text.trace, begun.text.weights, begun.backward
    update = Update(trace, layout, practice, dtypes)
    losses, gradients = _run(begun, update, stacks, microbatches)
    with trace.at(replace(ROOT, block="loss", place="head", chunks=(len(stacks) - 1,)), "vocab"):
        total = trace.settled(trace.lin("loss", *losses), "the reported loss is complete")
    results = {"loss": total}
    squares: Array | None = None

    def updated(label: str, weight: Array) -> None:
        with trace.at(trace.producer[weight].where):
            results[f"new.{label}"] = update.apply(weight, results[f"grad.{label}"], squares)

    labels = dict(_trained(model, practice, stacks, weights))
    for label, weight in labels.items():
        where = trace.producer[weight].where
        with trace.at(where):
            gradient = update.gradient(weight, {chunk: gradients[weight, chunk] for chunk in where.chunks})
            results[f"grad.{label}"] = update.received(weight, gradient)
        if practice.clip == "none":
            updated(label, weight)
    if practice.clip != "none":
        squares = update.squares([results[f"grad.{label}"] for label in labels], len(stacks))
        for label, weight in labels.items():
            updated(label, weight)
    kinds = [kind for stack in stacks for kind in stack]
    traced = {**Counter(kinds), ALIKE: len(kinds), "microbatches": microbatches, "chunks": max(1, len(stacks) - 1)}
    ops = parted(trace.ops, backward.stream, [array for name, array in results.items() if name.startswith("grad.")])
    return Program(ops, order, traced, layout.table, results, practice.order or "contiguous", practice.layers_ahead)


@dataclass(frozen=True, slots=True)
class Begun:
    """A step after its first microbatch, forward and backward, before anything is made of gradients.

    loss  of the microbatch
    uses  parameter -> the cotangents of its uses
    """

    text: Text
    backward: Backward
    loss: Array
    uses: Mapping[Array, list[Array]]

    def under(self, layout: Layout) -> Begun:
        """The same to go on from by itself, under a layout that begins so."""
        trace = self.text.trace.copied(layout)
        backward = replace(self.backward, trace=trace, stream=[*self.backward.stream])
        return replace(self, text=replace(self.text, trace=trace), backward=backward)


def _begun(
    trace: Trace, model: Model, practice: Practice, dtypes: Dtypes, stacks: tuple[tuple[str, ...], ...]
) -> Begun:
    weights = leaves_of(trace, model, practice, dtypes, stacks)
    text, backward = Text(trace, model, practice, dtypes, weights), Backward(trace, practice)
    return Begun(text, backward, *_microbatch(text, backward, stacks, 0))


def _microbatch(
    text: Text, backward: Backward, stacks: tuple[tuple[str, ...], ...], microbatch: int
) -> tuple[Array, Mapping[Array, list[Array]]]:
    """A microbatch forward and backward: its loss, and the cotangents of each parameter's uses."""
    trace = text.trace
    with trace.at(ROOT.inside("microbatches", microbatch)):
        start = len(trace.ops)
        loss = forward(text, stacks)
        return loss, backward.run(trace.ops[start:], loss)


def _run(
    begun: Begun, update: Update, stacks: tuple[tuple[str, ...], ...], microbatches: int
) -> tuple[list[Array], Mapping[tuple[Array, int], list[Array]]]:
    """Microbatches one after the other, the first as it is begun: losses, and parts of the gradients by chunk."""
    trace, losses, gradients = update.trace, list[Array](), defaultdict[tuple[Array, int], list[Array]](list)
    for microbatch in range(microbatches):
        loss, uses = begun.loss, begun.uses
        if microbatch:
            loss, uses = _microbatch(begun.text, begun.backward, stacks, microbatch)
        losses.append(loss)
        for weight, parts in uses.items():
            for chunk, gradients_of in _by_chunk(trace, weight, parts):
                where = replace(trace.producer[weight].where, chunks=(chunk,))
                with trace.at(where.inside("microbatches", microbatch)):
                    gradients[weight, chunk] += update.added(weight, gradients_of)
    return losses, gradients


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


def _by_chunk(trace: Trace, weight: Array, parts: list[Array]) -> Iterator[tuple[int, list[Array]]]:
    """The cotangents of a weight's uses, those of each chunk that holds it."""
    for chunk in trace.producer[weight].where.chunks:
        if own := [part for part in parts if trace.producer[part].where.chunks == (chunk,)]:
            yield chunk, own


def leaves_of(
    trace: Trace, model: Model, practice: Practice, dtypes: Dtypes, stacks: tuple[tuple[str, ...], ...]
) -> dict[tuple[str, int | None], Array]:
    """A leaf per parameter where it belongs to: those of a layer once per traced layer."""
    weights: dict[tuple[str, int | None], Array] = {}
    for parameter, layer, where in _homes(model, practice, stacks):
        with trace.at(replace(where, block=parameter.block, place=parameter.places[0])):
            dtype = (dtypes.experts if parameter.block == "experts" else None) or dtypes.params
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
        (parameter, None, replace(ROOT, chunks=tuple(sorted({chunk_of[place] for place in parameter.places}))))
        for parameter in end_parameters(model)
    ]
    yield from (home for home in around if home[0].places[0] == "embedding")
    for layer, (chunk, kind) in enumerate(layers):
        for parameter in layer_parameters(model, model.kinds[model_kind(kind)], practice):
            yield parameter, layer, replace(ROOT, chunks=(chunk,), kind=kind).inside("layers", layer)
    yield from (home for home in around if home[0].places[0] != "embedding")
    for parameter in mtp_parameters(model, practice):
        yield parameter, None, replace(ROOT, chunks=(len(stacks) - 1,))


def parted(ops: Sequence[Op], stream: Iterable[Array], gradients: Collection[Array]) -> tuple[Op, ...]:
    """The ops with W told from B; a fused kernel is one or the other as a whole.

    W are the ops that lead to a gradient and not to the cotangent of the stream where a part of the stack begins, but
    for what is recomputed; all else of backward is B. So B can run, and what it sends leave, before any W: zero-bubble
    schedules live from that. Source: Qi et al., Zero Bubble Pipeline Parallelism (2023), section 2.

    stream     cotangents that one part of the stack hands to the one before it
    gradients  of parameters, settled
    """
    backward = [op for op in ops if op.where.act == "B"]
    replayed = {op.output for op in backward if op.where.again == "replay"}
    on_the_way = _leading_to({*stream, *replayed}, backward)
    kernels = {(op.where.kernel, op.where.loops) for op in backward if op.output in on_the_way and op.where.kernel}
    read_by_update = {x for op in ops if op.where.act == "U" for x in op.inputs}
    for_parameters = _leading_to({*gradients, *read_by_update}, backward) - on_the_way
    return tuple(
        replace(op, where=acting(op.where, "W", op.where.again))
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
