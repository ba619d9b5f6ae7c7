"""A question of inference: what its step computes, what of a scenario does not apply to it, what does not divide."""

from __future__ import annotations

from dataclasses import replace
from math import lcm
from typing import TYPE_CHECKING, Any

from tpsim.program.dims import HELD
from tpsim.program.practice import Overlap, Practice, Rows
from tpsim.quantity.errors import At, InputError, Place, Problem
from tpsim.question.divisibility import nearest
from tpsim.question.question import Inference, Question, Speculation, Workload, unit_of_part, without_graph
from tpsim.question.serving_file import DecodeFields, DecodingFields, PrefillFields, ServeFields

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpsim.algebra.mesh import Mesh
    from tpsim.machine.parts import Machine
    from tpsim.program.model import Model
    from tpsim.question.stated import Stated

SERVED = ("base", "qkv", "attention", "causal", "overlap", "rows")
"""Switches of a practice that say something of a forward alone."""


def inference_of(read: Stated, mesh: Mesh) -> Inference | None:
    """The workload of a scenario of inference; None for one of training.

    One that fills memory has, until it is known how many do, as many sequences as any layout of the mesh can split.

    Raises InputError for more tokens than there are, and for what a step without backward does not have.
    """
    fields = read.file.workload
    if not isinstance(fields, PrefillFields | DecodeFields | ServeFields):
        return None
    _refuse_training(read)
    fills = fields.batch == "largest"
    common: dict[str, Any] = {"kind": fields.kind, "fills": fills, "global_batch": fields.batch}
    parts = fields.microbatches or 1
    common |= {"global_batch": mesh.devices * parts} if fills else {}
    common |= {"block": fields.cache_block or 1, "microbatches": parts}
    from tpsim.program.serving import Serving

    decoding = Serving(phase="decode", sampling=fields.sampling)
    if isinstance(fields, PrefillFields):
        prompt, cached = fields.prompt, fields.cached
        _check_fewer(cached, prompt - 1, "cached", f"a prompt of {prompt} tokens", read.at)
        reading = replace(decoding, phase="prefill", cached=cached > 0)
        return Inference(**common, seq=prompt - cached, attended=prompt, longest=prompt, serving=reading)
    common |= {"speculation": (ahead := _speculation(fields, read)), "serving": decoding}
    drafted = ahead.tokens if ahead else 0
    if isinstance(fields, DecodeFields):
        context, tokens = fields.context, fields.tokens
        _check_fewer(tokens, context, "tokens", f"a context of {context} tokens", read.at)
        return Inference(**common, seq=tokens + drafted, attended=context + drafted, longest=context + drafted)
    prompt, steps = fields.prompt, max(fields.steps, 1)
    _check_fewer(fields.behind, prompt - 1, "cached", f"a prompt of {prompt} tokens", read.at)
    mean, room = prompt + (steps + 1) / 2, prompt + fields.output  # the mean of prompt + 1 .. prompt + steps
    if fields.step_tokens:
        from tpsim.question.mixed import refuse_unmixed

        refuse_unmixed(fields, read)
    common |= {"budget": fields.step_tokens}
    return Inference(**common, seq=1 + drafted, attended=mean + drafted, longest=room + drafted, steps=steps)


def _speculation(fields: DecodingFields, read: Stated) -> Speculation | None:
    """What is drafted ahead, if anything is. Raises InputError where tokens are stated, too."""
    stated = fields.speculation
    if stated is None or not stated.tokens:
        return None
    if getattr(fields, "tokens", 1) > 1:
        message = (
            f"a step that verifies {stated.tokens} drafts has {stated.tokens + 1} new tokens, whatever tokens says"
        )
        raise InputError.one("stated-twice", message, read.at("workload", "tokens"), "leave workload.tokens out")
    if (fields.microbatches or 1) > 1:
        message = "drafts beside several parts of a batch on their way through stages are not supported yet"
        remedy = "leave one of both out: workload.speculation, or workload.microbatches"
        raise InputError.one("not-supported-yet", message, read.at("workload", "microbatches"), remedy)
    return Speculation(stated.tokens, stated.acceptance)


def prefill_of(question: Question) -> Question:
    """The question of the prompt, of one whose workload is a prompt and its reply.

    Where steps read pieces of prompts beside decoding that of such a step, as if all of its tokens were of prompts.
    """
    if question.prompts:
        return replace(question.prompts, planner=question.planner)
    fields, work = question.stated.file.workload, question.workload
    if not isinstance(fields, ServeFields) or not isinstance(work, Inference):
        raise TypeError(work)
    if work.budget:
        from tpsim.question.mixed import fullest_step

        return fullest_step(question)
    serving = replace(work.serving, phase="prefill", cached=fields.behind > 0)
    reading: dict[str, Any] = {"kind": "prefill", "steps": 1, "serving": serving, "speculation": None}
    prompt = replace(work, seq=fields.prompt - fields.behind, attended=fields.prompt, **reading)
    return replace(without_graph(question), workload=prompt)


def draft_of(question: Question) -> Question | None:
    """The question of a mean step of its draft, of one whose step verifies what a model drafts; else None.

    It takes a token of every sequence at a time, as many times as tokens are drafted: also behind a step of which all
    were accepted, though the draft has not seen the last of them then. Its cache has as much room as the model's.
    """
    work, draft = question.workload, question.draft
    if not isinstance(work, Inference) or draft is None or draft.inference is None or not work.drafted:
        return None
    steps = work.drafted if work.kind == "decode" else work.steps
    attended = work.attended - (work.drafted + 1) / 2  # the mean of those of its first step, then one more each
    alone = replace(work, seq=1, attended=attended, steps=steps, speculation=None, serving=draft.inference.serving)
    return replace(draft, workload=alone, machine=question.machine, planner=question.planner)


def unit_of(question: Question) -> int:
    """What its layout, that of its draft, and its parts split sequences into: a batch is a multiple of that."""
    own = unit_of_part(question) * question.workload.microbatches
    return lcm(own, unit_of(question.draft)) if question.draft else own


def no_room(question: Question) -> InputError:
    """The refusal of a batch as large as memory has room for, where that is of no sequence."""
    message = f"memory of {question.machine.name} has no room for a sequence beside what each chip holds"
    at, remedy = question.stated.at("workload", "batch"), "take more chips, or fewer bytes: workload.param_dtype"
    return InputError.one("no-room", message, at, remedy)


def _check_fewer(number: int, most: int, name: str, of: str, at: At) -> None:
    if number > most:
        message = f"{name} {number} is more than {of} can have"
        raise InputError.one("too-many-tokens", message, at("workload", name), f"write at most {most}")


NOT_SERVED = {
    ("layout", "zero"): "ZeRO shards gradients and what an optimizer holds",
    ("layout", "zero_over"): "ZeRO shards gradients and what an optimizer holds",
    ("layout", "cp"): "context parallelism of inference is not planned yet, but for what layout.cache: sequence splits",
    ("pipeline", "schedule"): "batches go forward through the stages, one after the other",
    ("pipeline", "chunks"): "batches go forward through the stages, one after the other",
    ("recompute",): "nothing is kept for a backward",
    ("offload",): "there is no optimizer, and nothing is kept for a backward",
}
"""Fields that a step of inference has no use for, and why."""


def _refuse_training(read: Stated) -> None:
    """Refuse what steers gradients, states and stages: a forward alone has none."""
    data = read.document.data
    stated = [(keys, why) for keys, why in NOT_SERVED.items() if _stated(data, keys)]
    practice = data.get("practice")
    switches = [name for name in practice if name not in SERVED] if isinstance(practice, dict) else []
    stated += [(("practice", name), "it steers what backward or the update does") for name in switches]
    for keys, why in stated:
        path = ".".join(keys)
        message = f"{path} says nothing of inference: {why}"
        raise InputError.one("not-for-inference", message, read.at_key(*keys), f"remove {path}")


def _stated(data: Any, keys: tuple[str, ...]) -> bool:
    """True if a field is stated, and not as nothing."""
    for key in keys:
        if not isinstance(data, dict) or key not in data:
            return False
        data = data[key]
    return data not in (0, None, "none", [], ())


def served(practice: Practice) -> Practice:
    """Of a practice the switches that say something of a forward alone.

    Forward waits for every sum at once, unless products are cut: only backward has something to do beside it.
    """
    return Practice(
        qkv=practice.qkv,
        attention=practice.attention,
        causal=practice.causal,
        overlap=Overlap(tensor="split" if practice.overlap.tensor == "split" else "none"),
        rows=Rows(dispatch=practice.rows.dispatch, counts=practice.rows.counts, dtype=practice.rows.dtype),
    )


def serving_problems(
    model: Model, work: Inference, at: At, *, ways: tuple[int, int, int], split: bool
) -> Iterator[Problem]:
    """What of the workload does not divide, or is longer than the model can be.

    ways   of tp, dp and cp
    split  True for sequence parallelism
    """
    tp, dp, _ = ways
    if model.linear and work.drafted:
        message = f"{model.name} has linear attention, whose state of each draft would be kept until one is accepted"
        remedy = "leave workload.speculation out: drafts beside states are not planned yet"
        yield Problem("not-supported-yet", message, at("workload", "speculation"), remedy)
    if split and work.seq % tp:
        message = f"{work.seq} new tokens are not divisible by tp {tp}, which sequence_parallel splits them over"
        yield Problem("sequence-not-divisible", message, at("layout", "sequence_parallel"), "sequence_parallel: false")
    if work.global_batch % (parts := dp * work.microbatches):
        product = f" x microbatches {work.microbatches} = {parts}" if work.microbatches > 1 else ""
        message = f"batch {work.global_batch} is not divisible by dp {dp}{product}"
        yield Problem("batch-not-divisible", message, at("workload", "batch"), f"write a multiple of {parts}")
    if model.positions == "learned" and model.max_positions and work.longest > model.max_positions:
        yield Problem(
            "sequence-too-long",
            f"{work.longest} tokens are more than the {model.max_positions} positions that {model.name} has learned",
            at("workload", "context" if work.kind == "decode" else "prompt"),
            f"write at most {model.max_positions} tokens together",
        )


def cache_problems(row: Mapping[str, Sequence[str]], mesh: Mesh, sizes: Mapping[str, Any], at: At) -> Iterator[Problem]:
    """What of a cache does not divide that a word splits: its sequences, or its tokens."""
    tokens = ("tokens", "the tokens of a sequence together")
    words = {"b": ("sequences", "workload.batch"), "t": tokens, HELD: ("tokens of a window", "")}
    for dim, (noun, field) in words.items():
        axes = row.get("t" if dim == HELD else dim, ())
        ways = mesh.size(*axes)
        if sizes.get(dim, 0) % ways:
            message = f"a cache of {sizes[dim]:g} {noun} is not divisible by {' x '.join(axes)} = {ways}"
            remedy = f"let {field} be {nearest(sizes[dim], ways)}" if field else "layout.cache: heads"
            yield Problem(
                "not-divisible", f"{message}, over which layout.cache splits it", at("layout", "cache"), remedy
            )


def choice_problems(
    model: Model, row: Mapping[str, Sequence[str]], mesh: Mesh, place: Place | None
) -> Iterator[Problem]:
    """Where a cache is split by tokens of which an indexer chooses: it needs the scores of all of them."""
    axes = row.get("t", ())
    if model.chooses and mesh.size(*axes) > 1:
        message = f"a cache is split by tokens over {' x '.join(axes)}, of all of which an indexer chooses the best"
        yield Problem("split-choice", message, place, "layout.cache: heads, or batch")


GRAPH = "graph"
"""The harness that launches a whole step at once."""


def usual_launch(read: Stated, work: Workload, machine: Machine) -> str | None:
    """How collectives are launched where nothing is stated: of decoding from a graph, where a machine knows that.

    The book's cost model has no launch.
    """
    decoding = isinstance(work, Inference) and work.serving.phase == "decode" and read.file.cost_model != "book"
    offered = all(level.launched(GRAPH) is not None for level in machine.levels)
    several = any(len(level.launch) > 1 for level in machine.levels)
    return GRAPH if decoding and offered and several else None
