"""The model that drafts tokens ahead of another one: on the same chips, laid out alike unless it is said otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tpsim.quantity import spec
from tpsim.quantity.errors import COMMAND_LINE, InputError, Place, Problem, did_you_mean
from tpsim.question.serving_file import NO_DRAFT, SpeculationFields

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpsim.quantity.spec import Document
    from tpsim.question.question import Question

DRAFT = ("workload", "speculation", "draft")
"""The field that names it."""

LAID = (*DRAFT[:-1], "layout")
"""The field that says which axes split it."""

MTP = "mtp"
"""Instead of a model's name: the model's own module that predicts a token further on (DeepSeek-V3 2024, 2.2)."""

PADDED = 0.01
"""The share by which vocabularies of one tokenizer differ at most, padded for one model and not for another."""


def with_draft(question: Question, resolved: Callable[[Document], Question]) -> Question:
    """The question with that of its draft, where a model drafts.

    resolved  reads a scenario as this one was read
    Raises InputError for a draft that it cannot have.
    """
    fields: Any = question.stated.file.workload  # of decoding
    ahead, place = fields.speculation, question.stated.at(*DRAFT)
    if ahead.draft == NO_DRAFT and ahead.layout:
        message = f"nothing drafts: {'.'.join(DRAFT)} is {NO_DRAFT}"
        remedy = f"name a model there, or leave {'.'.join(LAID)} out"
        raise InputError.one("not-a-draft", message, question.stated.at(*LAID), remedy)
    if ahead.draft == NO_DRAFT:
        return question
    if ahead.draft == MTP:
        return replace(question, draft=_module(question, stated_layout=ahead.layout is not None))
    try:
        draft = _resolved(_alone(question.stated.document, ahead), resolved)
    except InputError as error:
        raise InputError([_of_draft(problem, ahead.draft, place, question) for problem in error.problems]) from None
    own, other = question.model.vocab, draft.model.vocab
    if abs(own - other) > PADDED * own:
        message = f"{draft.model.name} has a vocabulary of {other:,}, {question.model.name} one of {own:,}"
        remedy = "a draft has its model's tokenizer: take one of the same family"
        raise InputError.one("another-vocabulary", message, place, remedy)
    return replace(question, draft=draft)


def _resolved(alone: Document, resolved: Callable[[Document], Question]) -> Question:
    """The question of a draft; of one without experts, whatever is stated of those of its model."""
    try:
        return resolved(alone)
    except InputError as error:
        if {problem.slug for problem in error.problems} != {"no-experts"}:
            raise
    for keys in OF_EXPERTS:
        if isinstance(section := alone.data.get(keys[0]), dict) and keys[1] in section:
            alone = spec.with_value(alone, keys, None, None)
    return resolved(alone)


OF_EXPERTS = (("layout", "ep"), ("layout", "etp"), ("workload", "expert_dtype"), ("assume", "routing"))
"""What says nothing of a model without experts, and is refused of it."""


def _module(question: Question, *, stated_layout: bool) -> Question:
    """The question of the model's module that predicts a token further on: a layer, laid out as those of the model.

    Raises InputError for a model without one, and where it has no place of its own.
    """
    model, work = question.model, question.inference
    message, remedy = "", "take a model as a draft, or draft: none"
    if model.mtp is None or work is None:
        message = f"{model.name} has no module that predicts tokens further on"
    elif question.schedule:
        message = "a module that predicts tokens further on is not planned on stages yet"
    elif stated_layout:
        message, remedy = "a module of the model lies as its layers do", f"leave {'.'.join(LAID)} out"
    if message or model.mtp is None or work is None:
        raise InputError.one("not-a-draft", message, question.stated.at(*DRAFT), remedy)
    kind = model.mtp[0]
    alone = replace(model, name=f"{model.name}'s {MTP}", kinds={kind: model.kinds[kind]}, stack=((kind, 1),))
    serving = replace(work.serving, further=True)
    return replace(question, model=alone, split=(), workload=replace(work, serving=serving, speculation=None))


def _of_draft(problem: Problem, draft: str, place: Place | None, question: Question) -> Problem:
    """What is wrong with a draft, where that is named unless it is in its layout, or in a file of its own."""
    document = question.stated.document
    asking = {document.path, *(path for path, _ in document.below), *([place.file] if place else [])}
    laid = {document.place(*LAID, name) for name in document.value(*DRAFT[:-1]).get(LAID[-1]) or ()}
    within = problem.place and (problem.place in laid or problem.place.file not in {*asking, COMMAND_LINE})
    there = replace(problem, message=f"the draft {draft}: {problem.message}", place=problem.place if within else place)
    if problem.slug == "unknown-model":
        remedy = did_you_mean(draft.lower(), (MTP, NO_DRAFT), problem.remedy)
        return replace(there, remedy=remedy, note=f"{problem.note}; {WORDS}")
    if not problem.slug.endswith(NOT_DIVISIBLE):
        return there
    remedy = f"take one that divides, or say what splits it: {'.'.join(LAID)}"
    return replace(there, remedy=remedy, note=problem.remedy)


WORDS = f"{MTP}: a module of the model drafts; {NO_DRAFT}: tokens are looked up, as n-grams are"
"""What may stand instead of a model's name."""


NOT_DIVISIBLE = "not-divisible"
"""What all refusals of sizes are called that a layout does not split evenly."""


def _alone(document: Document, ahead: SpeculationFields) -> Document:
    """The scenario of a draft that decodes by itself: one token of a sequence, which no sequence parallelism splits."""
    data = {name: value for name, value in document.data.items() if name not in ("require", "pipeline")}
    data["workload"] = {name: value for name, value in data["workload"].items() if name != DRAFT[1]}
    own = document.value(*DRAFT[:-1]).get(LAID[-1])
    if (laid := own) is not None:
        data = {**{name: value for name, value in data.items() if name != "shardings"}, "layout": {}}
    elif laid := data.get("layout"):
        data["layout"] = {name: value for name, value in laid.items() if name != "sequence_parallel"}
    if (cut := document.data.get("pipeline")) and "pp" in (laid or {}):
        data["pipeline"] = {name: value for name, value in cut.items() if name != "layers"}
    alone = spec.with_value(spec.with_data(document, data), ("model",), ahead.draft, document.place(*DRAFT))
    for name, axes in (own or {}).items():
        alone = spec.with_value(alone, ("layout", name), axes, document.place(*LAID, name))
    return alone
