"""What the page of a plan says otherwise of a step of inference: its work, its number formats, what its chips hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.quantity.units import show
from tpsim.question.serving_file import DecodeFields, PrefillFields, ServeFields
from tpsim.report.numbers import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpsim.answers.memory import ChipMemory
    from tpsim.answers.plan import PlanResult
    from tpsim.question.question import Question
    from tpsim.report.record import Bytes

SWITCHES = ("qkv", "attention", "causal")
"""Switches of a practice that a forward alone has, beside what runs beside compute."""


def inference_facts(result: PlanResult) -> Iterator[tuple[str, str]]:
    """The facts of a plan's page that are others for inference."""
    question = result.question
    dtypes, switches = question.dtypes, question.practice.under(question.layout).switches
    yield "work", inference_text(question)
    experts = f" ({dtypes.experts} of experts)" if dtypes.experts else ""
    formats = f"activations {dtypes.activations}, parameters {dtypes.params}{experts}"
    yield "dtypes", f"{formats}, cache {dtypes.cache or dtypes.activations}"
    row = {dim: axes for dim, axes in question.layout.table.get("cache", {}).items() if axes}
    split = ", ".join(f"{dim} over {' '.join(axes)}" for dim, axes in row.items()) if row else "as attention's heads"
    roles = ", ".join(f"{role} {' '.join(axes)}" for role, axes in question.layout.roles.items() if axes)
    yield "layout", f"{roles or 'none'}; cache: {split}"
    base, beside = question.resolved["practice"]["base"], question.practice.overlap.tensor
    text = ", ".join(f"{name} {switches[name]}" for name in SWITCHES)
    yield "practice", f"{base}: {text}, overlap of tensor {beside}"


def inference_text(question: Question) -> str:
    """The work of a step, or of a prompt and its reply."""
    work = question.stated.file.workload
    batch = counted(question.workload.global_batch, "sequence")
    if isinstance(work, PrefillFields):
        cached = f", {work.cached:,} of them cached" if work.cached else ""
        return f"prompts of {batch}, {work.prompt:,} tokens each{cached}"
    if isinstance(work, DecodeFields):
        new = counted(work.tokens, "new token")
        return f"a step of decoding: {new} of {batch} with {work.context:,} tokens each"
    if not isinstance(work, ServeFields):
        raise TypeError(work)
    mean = float(question.workload.dims(question.model)["t"])
    reply = f"replies of {work.output:,}: {work.output:,} steps of decoding, at {mean:,.1f} tokens in the mean"
    return f"{batch}: prompts of {work.prompt:,} tokens, {reply}"


def inference_memory(memory: ChipMemory) -> Mapping[str, Bytes]:
    """What a chip holds of inference."""
    return {
        "parameters": memory.parameters_bytes,
        "cache": memory.cache_bytes,
        "both together": memory.static_bytes,
        **{f"at work: {part}": size for part, size in memory.working.items()},
        "peak": memory.peak_bytes,
        **({"assumed beside it": memory.overhead_bytes} if memory.overhead_bytes else {}),
    }


def inference_notes(result: PlanResult) -> Iterator[str]:
    """What a prompt takes beside the steps that follow it, and what a token adds to the cache."""
    serve, prompt = result.serve, result.prefill
    if serve is None:
        return
    if prompt:
        parts = (prompt.step.time_s, prompt.step.compute_s, prompt.step.exposed_s)
        whole, compute, exposed = (show(float(part), "seconds") for part in parts)
        yield f"prompts {whole} = compute {compute} + exposed communication {exposed}; all are read at once"
    if serve.reply_s:
        yield f"a prompt and its reply {show(serve.reply_s, 'seconds')}"
    if serve.copies > 1:
        yield f"every part of the cache is held by {serve.copies:g} chips: layout.cache=sequence, or batch, splits them"
    yield f"cache {show(float(serve.cache_bytes_per_token), 'bytes')} per token of a sequence, all chips together"
