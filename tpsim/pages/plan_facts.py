"""What stands around the tables of a plan: its model, its work, its layout and its practice, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from tpsim import __version__
from tpsim.algebra.mesh import sized
from tpsim.answers.verdict import percent
from tpsim.fabric.placement import in_one_line
from tpsim.program.frameworks import PRACTICES
from tpsim.program.update import CLIP
from tpsim.quantity.units import show
from tpsim.question.prices import in_words
from tpsim.question.serving_file import DecodeFields, PrefillFields, ServeFields
from tpsim.report.numbers import counted
from tpsim.report.table import Column

if TYPE_CHECKING:
    from tpsim.answers.memory import ChipMemory
    from tpsim.answers.mixed import MixedSteps
    from tpsim.answers.plan import PlanResult
    from tpsim.answers.speculation import Speculated
    from tpsim.program.layout import Layout
    from tpsim.program.schedules import PipelineSchedule
    from tpsim.question.question import Question, Speculation
    from tpsim.report.record import Bytes

ASSUMPTIONS = (Column("kind", "kind"), Column("text", "assumed"))


NOT_MODELLED = (Column("text", "left out"),)


PURPOSES = {"gradient": "gradients", "param": "weights", "state": "new weights"}
"""What a call is for, if it is not for an activation of some block."""


def plan_facts(result: PlanResult, *, verbose: bool) -> Iterator[tuple[str, str]]:
    """The facts of the question."""
    question, layout, served = result.question, result.question.layout, result.question.inference
    yield "model", model_text(question)
    many = question.workload.microbatches
    parts = "" if served and many == 1 else f" in {counted(many, 'microbatch')}"
    yield "work", f"{work_text(question)}{parts}"
    if drafts := drafts_text([question]):
        yield "drafts", drafts
    yield "dtypes", _served_dtypes(question) if served else _dtypes(result)
    yield "machine", f"{question.machine.name}, {counted(result.chips, 'chip')}: {sized(question.mesh.axes)}"
    yield "placement", in_one_line(question.placement.describe()) or "one chip"
    if question.schedule:
        yield "pipeline", _turns(question.schedule, question.split)
    yield "layout", _roles(layout) + (f"; cache: {_cache(layout)}" if served else f", {_sharded(question)}")
    switches, base = question.practice.under(layout).switches, question.resolved["practice"]["base"]
    shown = switches if verbose else telling(base, switches)
    yield "practice", inference_practice(question) if served else practice_text(base, shown)
    if question.prompts:
        yield "prompts", _prompts_text(question.prompts)
    yield "pricing", f"cost model {question.cost_model}, planner {question.planner}{in_words(question.force)}"


def _prompts_text(prompts: Question) -> str:
    """The servers that read prompts alone: their machine, their mesh and its wires, their layout, and how many."""
    machine = f"{prompts.machine.name}, {counted(prompts.mesh.devices, 'chip')}: {sized(prompts.mesh.axes)}"
    placed, batch = in_one_line(prompts.placement.describe()) or "one chip", prompts.resolved["workload"]["batch"]
    split = ", sequence parallel" if prompts.layout.sequence_parallel else ""
    return f"{machine}; {placed}; {_roles(prompts.layout)}{split}; {batch} at once"


def _roles(layout: Layout) -> str:
    """Which axes each role takes: ``dp data, tp tensor``."""
    return ", ".join(f"{role} {' '.join(axes)}" for role, axes in layout.roles.items() if axes) or "none"


def _sharded(question: Question) -> str:
    """``ZeRO 3 over shard, sequence parallel``; of ZeRO the axes where these are some of the data axes."""
    layout, over = question.layout, question.resolved["layout"].get("zero_over", ())
    some = f" over {' '.join(over)}" if layout.zero and over else ""
    return f"ZeRO {layout.zero}{some}" + (", sequence parallel" if layout.sequence_parallel else "")


def model_text(question: Question) -> str:
    """The model and its size."""
    parameters = question.resolved["model"]["parameters"]
    return f"{question.model.name}, {show(float(parameters), 'count')} parameters"


def work_text(question: Question, batch: str = "") -> str:
    """The work of a step; batch: of inference, all that it may be."""
    if question.inference:
        return inference_text(question, batch)
    return f"{counted(question.workload.global_batch, 'sequence')} of {question.workload.seq:,} tokens"


def telling(base: str, switches: Mapping[str, Any]) -> dict[str, Any]:
    """The switches that decide most of a step, and those that are not as the bundle has them."""
    usual = PRACTICES[base].switches
    return {name: switch for name, switch in switches.items() if name in ALWAYS_TOLD or switch != usual.get(name)}


def _turns(schedule: PipelineSchedule, split: Sequence[int]) -> str:
    """``1f1b, 8 stages of 12 layers``; of chunks that are not alike all are listed, equal neighbours as ``12 x 6``."""
    chunks = "" if schedule.chunks == 1 else f"{schedule.chunks} chunks of "
    runs = [(layers, len(list(run))) for layers, run in groupby(split)]
    layers = ", ".join(f"{count} x {n}" if n > 1 and len(runs) > 1 else f"{count}" for count, n in runs)
    return f"{schedule.name}, {schedule.ranks} stages of {chunks}{layers} layers"


def _dtypes(result: PlanResult) -> str:
    """What is stored and sent in which number format: ``activations bf16, ...; on the wire bf16 (activations)``."""
    dtypes = result.question.dtypes
    shards = f" of shards in {dtypes.shards}" if dtypes.shards else ""
    stored = f"activations {dtypes.activations}, parameters {dtypes.params}{shards}, gradients {dtypes.gradients}"
    sent: dict[str, dict[str, None]] = {}
    for row in result.rows:
        plain = row.block if row.block == "loss" else "activations"
        purpose = "norm of gradients" if row.block == CLIP else PURPOSES.get(row.op, plain)
        sent.setdefault(row.dtype, {})[purpose] = None
    wire = ", ".join(f"{dtype} ({', '.join(senders)})" for dtype, senders in sent.items())
    stored += f", optimizer {dtypes.optimizer}" + (f" with moments {dtypes.moments}" if dtypes.moments else "")
    return stored + (f"; on the wire {wire}" if wire else "")


def read_at(result: PlanResult) -> Iterator[tuple[str, str]]:
    """What a report says beside the question, so that it can be asked again: the command, the files, the version."""
    if asked := result.question.asked:
        yield "asked", f"tpsim plan {asked}"
    yield "read", "; ".join(f"{path} (sha256 {digest[:HASH]})" for path, digest in result.question.inputs)
    yield "by", f"tpsim {__version__}"


HASH = 12
"""Letters of a hash that a page shows; JSON has all."""


ALWAYS_TOLD = ("recompute", "context", "order", "overlap")
"""Switches that decide most of a step; of the others a page tells those that are not as the bundle has them."""


def practice_text(base: str, switches: Mapping[str, Any]) -> str:
    """The bundle's name and switches: the name alone would say nothing.

    >>> practice_text("xla", {"cotangents": "per_use", "regather": False, "coalesce": True})
    'xla: cotangents per_use, no regather, coalesce'
    >>> practice_text("fsdp2", {"recompute": ("full", "logits"), "recompute_layers": 4, "replay": "needed"})
    'fsdp2: recompute full logits in 4 layers of each chunk, replay needed'
    """
    stated = {name: value for name, value in switches.items() if value is not None}
    if layers := stated.pop("recompute_layers", None):
        stated["recompute"] = (*stated["recompute"], f"in {layers} layers of each chunk")
    texts = (_switch(name.replace("_", " "), value) for name, value in stated.items())
    return f"{base}: {', '.join(texts)}"


def _switch(name: str, value: Any) -> str:
    """One switch; of several together those that say something."""
    if value and isinstance(value, Mapping):
        inside = {
            key: _switch(key, setting) if isinstance(setting, Mapping | list) else f"{key} {setting}"
            for key, setting in value.items()
        }
        return f"{name} ({', '.join(text for key, text in inside.items() if value[key])})"
    if value and not isinstance(value, bool):
        return f"{name} {' '.join(map(str, value)) if isinstance(value, tuple | list) else value}"
    return f"{'' if value else 'no '}{name}"


SWITCHES = ("qkv", "attention", "causal")
"""Switches of a practice that a forward alone has, beside what runs beside compute."""


def _served_dtypes(question: Question) -> str:
    """What inference stores in which number format."""
    dtypes = question.dtypes
    own = {"experts": dtypes.experts, "embedding and output": dtypes.vocab}
    others = ", ".join(f"{dtype} of {of}" for of, dtype in own.items() if dtype)
    formats = f"activations {dtypes.activations}, parameters {dtypes.params}" + (f" ({others})" if others else "")
    return f"{formats}, cache {dtypes.cache or dtypes.activations}"


def _cache(layout: Layout) -> str:
    """What splits a cache: ``t over tensor``."""
    row = {dim: axes for dim, axes in layout.table.get("cache", {}).items() if axes}
    return ", ".join(f"{dim} over {' '.join(axes)}" for dim, axes in row.items()) or "as attention's heads"


def inference_practice(question: Question) -> str:
    """The bundle's name, and its switches that say something of a forward alone."""
    switches = question.practice.under(question.layout).switches
    text = ", ".join(f"{name} {switches[name]}" for name in SWITCHES)
    return f"{question.resolved['practice']['base']}: {text}, overlap of tensor {question.practice.overlap.tensor}"


def inference_text(question: Question, batch: str = "") -> str:
    """The work of a step, or of a prompt and its reply; batch: all that it may be."""
    work = question.stated.file.workload
    batch = f"{batch} sequences" if batch else counted(question.workload.global_batch, "sequence")
    if question.inference and question.inference.fills:
        batch = "as many sequences as memory has room for"
    behind = getattr(work, "cached", 0)
    cached = f", {behind:,} of them cached" if behind else ""
    if isinstance(work, PrefillFields):
        return f"prompts of {batch}, {work.prompt:,} tokens each{cached}"
    if isinstance(work, DecodeFields):
        new = counted(work.tokens, "new token")
        return f"a step of decoding: {new} of {batch} with {work.context:,} tokens each"
    if not isinstance(work, ServeFields) or not question.inference:
        raise TypeError(work)
    mean = float(question.inference.plain.dims(question.model)["t"])
    steps = f"{counted(work.steps, 'step')} of decoding behind the first token"
    steps = f"{counted(work.steps, 'token')} behind the first" if ahead_of(question) else steps
    reply = f"replies of {work.output:,}: {steps}, at {mean:,.1f} tokens in the mean"
    return f"{batch}: prompts of {work.prompt:,} tokens{cached}, {reply}"


def drafts_text(questions: Sequence[Question]) -> str:
    """``3 tokens of every sequence by llama-3-8b, each accepted with probability 0.8``; "" where nothing is drafted."""
    drafted = [(ahead, question.draft) for question in questions if (ahead := ahead_of(question))]
    if not drafted:
        return ""
    counts = _or(ahead.tokens if (ahead := ahead_of(question)) else 0 for question in questions)
    by = _or(draft.model.name if draft else "lookup" for _, draft in drafted)
    tokens = f"{counts} token{'' if counts == '1' else 's'}"
    alike = _or(one.acceptance for one, _ in drafted)
    return f"{tokens} of every sequence by {by}, each accepted with probability {alike}"


def ahead_of(question: Question) -> Speculation | None:
    """What a question drafts ahead."""
    return question.inference.speculation if question.inference else None


def _or(values: Iterable[float | str]) -> str:
    return " or ".join(dict.fromkeys(value if isinstance(value, str) else f"{value:g}" for value in values))


def memory_lines(memory: ChipMemory, *, inference: bool) -> Mapping[str, Bytes]:
    """What a chip holds, of what it is held for."""
    if inference:
        states = {"cache": memory.cache_bytes, "both together": memory.static_bytes}
    else:
        states = {
            "gradients": memory.gradients_bytes,
            "optimizer state": memory.optimizer_bytes,
            "states together": memory.static_bytes,
            "kept for backward": memory.kept_bytes,
        }
    return {
        "parameters": memory.parameters_bytes,
        **states,
        **{f"at work: {part}": size for part, size in memory.working.items()},
        "peak": memory.peak_bytes,
        **({"assumed beside it": memory.overhead_bytes} if memory.overhead_bytes else {}),
    }


def inference_notes(result: PlanResult) -> Iterator[str]:
    """What a prompt takes beside the steps that follow it, and what a token adds to the cache."""
    serve, prompt = result.serve, result.prefill
    if serve is None:
        return
    if serve.mixed:
        yield _mixed(serve.mixed)
    elif prompt:
        parts = (prompt.step.time_s, prompt.step.compute_s, prompt.step.exposed_s)
        whole, compute, exposed = (show(float(part), "seconds") for part in parts)
        made_of = f"compute {compute} + exposed communication {exposed}{prompt.step.all_waits}"
        several = prompt.question.workload.microbatches
        ended = show(float(prompt.step.ended_s), "seconds")
        read = (
            f"of {several} microbatches in turn the last is read after {ended}"
            if several > 1
            else "all are read at once"
        )
        yield f"prompts {whole} = {made_of}; {read}"
    yield from _speculated(serve.speculation) if serve.speculation else ()
    if serve.reply_s:
        yield f"a prompt and its reply {show(serve.reply_s, 'seconds')}"
    if serve.copies > 1:
        yield f"every part of the cache is held by {serve.copies:g} chips: layout.cache=sequence, or batch, splits them"
    states = serve.state_bytes_per_sequence
    state = f" and {show(float(states), 'bytes')} of states per sequence" if states else ""
    each = show(float(serve.cache_bytes_per_token), "bytes")
    yield f"cache {each} per token of a sequence{state}, all chips together"


def _mixed(mixed: MixedSteps) -> str:
    """How prompts are read beside decoding, and what that makes of a token."""
    step, first, token, decode = (
        show(seconds, "seconds") for seconds in (mixed.step_s, mixed.ttft_s, mixed.tpot_s, mixed.decode_s)
    )
    read = f"a prompt in {mixed.pieces:.4g} steps of {step}, beside {mixed.decoding:,.4g} that decode: {first}"
    others = "" if mixed.share == 1 else f", others decode alone in {decode}"
    return f"{read}; {percent(mixed.share)} of steps read prompts{others}: {token} a token"


def _speculated(ahead: Speculated) -> Iterator[str]:
    """What drafts cost and bring, and what their model holds and reads beside the other one."""
    each_s = ahead.step_s / ahead.expected_tokens
    step, plain, each = (show(seconds, "seconds") for seconds in (ahead.step_s, ahead.plain_s, each_s))
    made_of = f"{ahead.formula} = {step} for {ahead.expected_tokens:.4g} tokens, {each} each"
    least = ahead.breakeven_acceptance
    even = "no acceptance makes up for it" if least is None else f"as fast at an acceptance of {least:.3g}"
    times = ahead.speedup if ahead.speedup >= 1 else 1 / ahead.speedup
    yield f"{made_of}: {times:.3g} times {'faster' if ahead.speedup >= 1 else 'SLOWER'} than {plain} without; {even}"
    if ahead.draft:
        weights, cache = (
            show(float(size or 0), "bytes") for size in (ahead.draft_parameters_bytes, ahead.draft_cache_bytes)
        )
        read = ahead.draft_prompt_s
        behind = f"; it reads prompts in {show(read, 'seconds')}, behind the first token" if read else ""
        yield f"of the draft a chip holds weights of {weights} and a cache of {cache}{behind}"
