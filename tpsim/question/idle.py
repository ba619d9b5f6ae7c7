"""What a scenario states and what can change nothing of its layout: said, not refused, as a practice may be shared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tpsim.program.practice import ALL_SHARDED, FULL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.question.question import Question

Needs = Mapping[str, tuple[str, bool]]
"""By their path what switches have a use for, in words, and whether it is there."""


def idle(question: Question) -> Iterator[str]:
    """The switches that the scenario states and that can change nothing of its layout; a group as one."""
    file, why = question.stated.file, idle_switches(question)
    sections = ("layout", "practice", "recompute")
    stated = [path for name in sections if getattr(file, name) for path in _stated(name, getattr(file, name))]
    for path in stated:
        if path in why and path.rpartition(".")[0] not in why:
            yield f"{path} changes nothing here, without {why[path]}"


def _stated(path: str, fields: Any) -> Iterator[str]:
    """The paths of what is stated of a section, groups before their parts."""
    for name in fields.model_fields_set - {"base"}:
        value = getattr(fields, name)
        if value not in (None, (), False) or (value is False and path.startswith("practice")):
            yield f"{path}.{name}"
            yield from _stated(f"{path}.{name}", value) if hasattr(value, "model_fields_set") else ()


def idle_switches(question: Question) -> Mapping[str, str]:
    """By their path the switches, and groups of them, that can change nothing, with what the layout is without."""
    roles = roles_of(question)
    needs: Needs = {
        **dict.fromkeys(("layout.sequence_parallel", "layout.cache"), ("tensor parallelism", "tp" in roles)),
        "layout.cut": ("stages", "pp" in roles),
        "practice.rows": ("experts", bool(question.model.experts)),
        **(_of_forward() if question.inference else {**_of_layout(question), **_of_switches(question)}),
    }
    return {path: lacking for path, (lacking, has) in needs.items() if not has}


def roles_of(question: Question) -> set[str]:
    """The roles that several devices share."""
    return {role for role, axes in question.layout.roles.items() if question.mesh.size(*axes) > 1}


def _of_forward() -> Needs:
    """What a forward alone has no use for."""
    names = ("overlap.gradients", "overlap.weights", "overlap.stages", "rows.gates", "rows.overlap")
    return {f"practice.{name}": ("backward", False) for name in names}


def _of_layout(question: Question) -> Needs:
    """What follows from the axes that roles have."""
    laid, model, dtypes = question.layout, question.model, question.dtypes
    roles = roles_of(question)
    fields, staged = question.stated.file.layout, laid.zero
    if fields:
        staged = fields.zero  # the others act on what this switch makes of it
    tensor, summed = "tp" in roles, bool(roles & {"dp", "cp"})
    summed |= tensor and (laid.sequence_parallel or laid.copies_heads or bool(model.experts))
    fetched = question.practice.overlap.weights != "none"
    needs = {
        **dict.fromkeys(("context", "home", "order"), ("context parallelism", "cp" in roles)),
        **dict.fromkeys(("cotangents", "cross_entropy"), ("tensor parallelism", tensor)),
        **dict.fromkeys(("coalesce", "bucket", "units"), ("gradients that devices add up", summed)),
        "overlap.gradients": ("gradients that devices add up", summed or "pp" in roles),  # tied weights
        **dict.fromkeys(("zero1", "padding", "overlap.weights"), ("ZeRO", laid.zero > 0)),
        "ahead": ("weights that ZeRO gathers beside compute", laid.zero > 0 and fetched),
        **dict.fromkeys(("overlap.stages", "ahead.since"), ("stages", "pp" in roles)),
        **dict.fromkeys(
            ("rows.overlap", "rows.dispatch", "rows.counts"), ("experts on several devices", "ep" in roles)
        ),
        "reshard_after_forward": (f"ZeRO {ALL_SHARDED}", laid.zero == ALL_SHARDED),
        "regather": ("sequence parallelism", laid.sequence_parallel),
        "staged": ("ZeRO 2 or 3 of stages", staged > 1 and "pp" in roles),
        "cast": ("parameters wider than activations", dtypes.narrows(dtypes.at_rest)),
        "settled": ("gradients that are sent as no parameter is stored", dtypes.at_rest != dtypes.gradients),
        "latents": ("latents that tensor parallelism splits", tensor and model.has_latents),
        "handed": ("latent attention", model.has_latents),
    }
    return {f"practice.{name}": need for name, need in needs.items()}


def _of_switches(question: Question) -> Needs:
    """What follows from other switches."""
    practice, bucket = question.practice, question.practice.bucket
    beside = practice.overlap.gradients != "none" or not bucket.first_chunk
    whole = "buckets of less than a step" if bucket.of == "step" else "gradients beside compute, which first_chunk cuts"
    least = (whole, bucket.of == "layer" and beside)
    return {
        "practice.bucket.elements": least,
        "practice.bucket.per_rank": ("practice.bucket.elements", bucket.elements is not None) if least[1] else least,
        "practice.bucket.first_chunk": (
            "stages",
            "pp" in question.layout.roles or practice.overlap.gradients == "none",
        ),
        "practice.causal": ("fused attention", practice.attention == "fused"),
        "recompute.drop": ("anything that full recompute keeps", FULL not in practice.recompute),
        "recompute.replay": ("recompute", bool(practice.recompute)),
    }
