"""A document to an instance of the pydantic model of its format, or every mistake in it at once.

pydantic's findings become problems that a user can act on: place, caret, did-you-mean, the fields that there are.
"""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from json import dumps
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from tpsim.quantity.errors import COMMAND_LINE, InputError, Place, Problem, did_you_mean, suggest, whole_meant
from tpsim.quantity.spec.document import NO_PARTS, Document, Keys, Load, LoadPart, extended
from tpsim.quantity.spec.fields import choices_at, deeper, example, meanings, model_at, noun, sorts_at
from tpsim.quantity.spec.text import load
from tpsim.quantity.units import UnitError

if TYPE_CHECKING:
    from pathlib import Path


M = TypeVar("M", bound=BaseModel)


def read(
    source: Path | str | Document,
    model: type[M],
    *,
    foreign: Mapping[str, str] | None = None,
    extends: Load | None = None,
    parts: Mapping[str, LoadPart] = NO_PARTS,
) -> tuple[M, Document]:
    """The file as an instance of `model`, and the document it came from.

    foreign  what others call a field -> the path that tpsim has for it, and after a comma how it follows
    extends  reads the document that the file's ``extends`` names, a relative path from a folder; None if the format
             knows no ``extends``
    parts    maps that the file may take from a file of their own, as `extended` has them

    Raises InputError with every mistake in the file.
    """
    document = source if isinstance(source, Document) else load(source)
    if wrong := header_problem(document, model):
        raise InputError([wrong])
    if extends is not None:
        document = extended(document, extends, parts)
    try:
        # Strict as JSON is strict: a quoted number is no number, true is no 1, but a list may fill a tuple.
        return model.model_validate_json(dumps(document.data, default=_plain), strict=True), document
    except ValidationError as error:
        mistakes = problems(error.errors(include_url=False), document, model, foreign or {})
        raise InputError(mistakes) from None


def _plain(value: object) -> object:
    """What a caller's own value (a path, a numpy number) says in JSON."""
    return value.item() if hasattr(value, "item") else str(value)


Finding = Mapping[str, Any]
"""One entry of pydantic's ``ValidationError.errors()``."""

_DUE = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "list": "a list",
    "tuple": "a list",
    "set": "a list",
    "dict": "a map of fields",
    "model": "a map of fields",
    "none": "nothing",
    "finite": "a finite number",
}
"""First word of pydantic's error type -> what it wanted."""

LONGEST = 60
"""Characters of a value that a message repeats; the source line below it shows the rest."""

MISMATCH = "string_pattern_mismatch"
"""pydantic's error type of text that is not of the wanted form."""

_OTHERS = {
    MISMATCH: ("", "it must match {pattern}"),
    "too_short": (" of too few entries", "write {min_length} or more"),
    "too_long": (" of too many entries", "write {max_length} at most"),
    "greater_than": ("", "it must be more than {gt:.15g}"),
    "greater_than_equal": ("", "it must be at least {ge:.15g}"),
    "less_than": ("", "it must be less than {lt:.15g}"),
    "less_than_equal": ("", "it must be at most {le:.15g}"),
}
"""pydantic's error type -> the end of the message, and the remedy."""


def header_problem(document: Document, model: type[BaseModel]) -> Problem | None:
    """What is wrong with the line ``tpsim: hardware/1``, if the model asks for one: kind and version come first."""
    header = model.model_fields.get("tpsim")
    due = str(next(iter(get_args(header.annotation)), "")) if header else ""
    declared = document.data.get("tpsim")
    if not due or declared == due:
        return None
    kind, _, version = due.partition("/")
    place = document.place("tpsim") if "tpsim" in document.data else document.place()
    write = f"write tpsim: {due}"
    if declared is None:
        what, remedy = ("file", f"its first line is tpsim: {due}") if place else ("mapping", f'add "tpsim": "{due}"')
        return Problem("missing-header", f"the {what} does not say what it is", place, remedy)
    its_kind, slash, its_version = str(declared).partition("/")
    if its_kind == kind and slash and its_version.isdecimal():
        newer = int(its_version) > int(version)
        message = f"this is version {its_version} of the {kind} format; this tpsim reads version {version}"
        return Problem("newer-version", message, place, "update tpsim" if newer else write)
    if slash and its_version.isdecimal() and not suggest(its_kind, [kind]):
        message = f"this is a {its_kind} file where a {kind} file is due"
        return Problem("wrong-kind", message, place, f"name a {kind} file")
    return Problem("bad-header", f'"{declared}" is not a kind of file', place, write)


def problems(
    findings: Sequence[Any], document: Document, model: type[BaseModel], foreign: Mapping[str, str]
) -> list[Problem]:
    """One problem per mistake, in the order of the file.

    foreign  what others call a field -> the path that tpsim has for it
    """
    located = _one_branch([_located(finding, document.data) for finding in findings])
    missing = [wrong for wrong in located if wrong.type == "missing"]
    extra = [wrong for wrong in located if wrong.type == "extra_forbidden"]
    rest = [wrong for wrong in located if wrong not in missing and wrong not in extra]
    refused = []
    for wrong in extra:
        problem, meant = _unknown(wrong, document, model, foreign, missing)
        missing = [other for other in missing if other is not meant]
        refused.append(problem)
    refused += [_missing(wrong, document, model) for wrong in missing]
    refused += [_wrong(wrong, document, model) for wrong in rest]
    return list(dict.fromkeys(refused))


@dataclass(frozen=True)
class _Located:
    """A finding, with the way to it through the data.

    keys    the data's keys; for a missing field its name comes last although the data has it not
    branch  how many keys deep a union chose between branches, and the branch's name; None if there was no choice
    due     what the value should have been, in words; "" if it is not of a wrong type
    """

    type: str
    finding: Finding
    keys: Keys
    branch: tuple[int, str] | None
    due: str = ""


def _located(finding: Finding, data: Any) -> _Located:
    """A finding's way mixes keys with names of union branches and validators: what the data has not, is no key."""
    loc: tuple[str | int, ...] = finding["loc"]
    names_absent = finding["type"] == "missing"
    keys: list[str | int] = []
    branch = None
    for at, piece in enumerate(loc):
        if names_absent and at == len(loc) - 1:
            keys.append(piece)
        elif _holds(data, piece):
            keys.append(piece)
            data = data[piece]
        elif piece != "[key]" and branch is None:
            branch = (len(keys), str(piece))
    due = "" if finding["type"] == MISMATCH else _DUE.get(finding["type"].partition("_")[0], "")
    return _Located(finding["type"], finding, tuple(keys), branch, due)


def _holds(data: Any, key: str | int) -> bool:
    """True if `data` is a map or list with an entry at `key`."""
    if isinstance(data, list):
        return isinstance(key, int) and key < len(data)
    return isinstance(data, dict) and key in data


def _one_branch(located: Iterable[_Located]) -> list[_Located]:
    """Of a union's branches, the findings of the one that the user most likely meant: the one that got furthest."""
    result: list[_Located] = []
    unions: dict[Keys, dict[str, list[_Located]]] = defaultdict(lambda: defaultdict(list))
    for wrong in located:
        if wrong.branch is None:
            result.append(wrong)
        else:
            depth, name = wrong.branch
            unions[wrong.keys[:depth]][name].append(wrong)
    for branches in unions.values():
        furthest = max(branches.values(), key=lambda branch: max(len(wrong.keys) for wrong in branch))
        dues = [wrong.due for branch in branches.values() for wrong in branch]
        # Branches that all refuse the value as a whole are one mistake: it is none of them.
        whole = all(dues) and len({wrong.keys for branch in branches.values() for wrong in branch}) == 1
        result += [replace(furthest[0], due=" or ".join(dict.fromkeys(dues)))] if whole else furthest
    return result


def _unknown(
    wrong: _Located,
    document: Document,
    model: type[BaseModel],
    foreign: Mapping[str, str],
    missing: Sequence[_Located],
) -> tuple[Problem, _Located | None]:
    """The problem of an unknown field, and the missing field that it is a misspelling of."""
    *around, last = wrong.keys
    here, name = tuple(around), str(last)
    data = document.value(*here)
    owner = model_at(model, here, data)
    place = document.key_place(*wrong.keys)
    message = f'"{name}" is not a field of {noun(owner)}'
    fields = list(owner.model_fields) if owner else []
    note = f"fields here: {', '.join(fields)}" if fields else ""
    known = {**foreign, **getattr(owner, "foreign", {})}
    if path := known.get(name) or known.get(name.replace("-", "_").lower()):
        field = path.partition(",")[0]
        inside = (*here, field.rpartition(".")[2])
        same = next((other for other in missing if _path(other.keys) == field or other.keys == inside), None)
        return Problem("foreign-name", message, place, f"tpsim calls this {path}", note), same
    absent = {str(other.keys[-1]): other for other in missing if other.keys[:-1] == here}
    free = [field for field in fields if field not in data or not _beside(document, place, (*here, field))]
    near = suggest(name, [*absent, *free]) or suggest(name, fields)
    remedy = f'did you mean "{near}"?' if near else _elsewhere(name, model, owner, here) or "remove it"
    return Problem("unknown-field", message, place, remedy, note), absent.get(near or "")


ELSEWHERE = 3
"""Paths that a remedy names; a field that stands at more places is none that could be meant."""


def _elsewhere(name: str, model: type[BaseModel], owner: type[BaseModel] | None, here: Keys) -> str:
    """Where fields of that name stand: in what is here, else in another section; "" if nowhere, or all over it."""
    inside = [_path((*here, path)) for path in deeper(owner, name)] if owner else []
    sections = (path for path in deeper(model, name) if path.count(".") == 1)
    paths = list(dict.fromkeys(inside or sections))
    return f"did you mean {' or '.join(paths)}?" if len(paths) in range(1, ELSEWHERE + 1) else ""


def _beside(document: Document, place: Place | None, keys: tuple[str | int, ...]) -> bool:
    """True if a field stands in the same file as `place`, not in one that it extends."""
    other = document.key_place(*keys)
    return place is None or other is None or other.file == place.file


def _missing(wrong: _Located, document: Document, model: type[BaseModel]) -> Problem:
    *around, last = wrong.keys
    owner = model_at(model, tuple(around), document.value(*around))
    value = (example(owner, str(last)) if owner and last in owner.model_fields else "") or "..."
    place = document.key_place(*around)
    note = "\n".join([*_replaced(document, around), *meanings(owner, str(last))])
    typed = place and place.file == COMMAND_LINE
    add = f"--set {shlex.quote(f'{_path((*document.within, *wrong.keys))}={value}')}" if typed else f"{last}: {value}"
    return Problem("missing-field", f'{noun(owner)} needs "{last}"', place, f"add {add}", note)


def _replaced(document: Document, around: Sequence[str | int]) -> Iterator[str]:
    """How to change an item of a list in what a document extends, where a list of its own replaces that one."""
    key = str(around[0]) if around else ""
    name = document.value(*around[:2])["name"] if len(around) > 1 and key in document.replaced else ""
    if name and name in document.replaced[key]:
        yield f"a list replaces {key} of what is extended: to change {name} alone, write {key}: {{{name}: {{...}}}}"


def _path(keys: Keys) -> str:
    """The keys as ``--set`` has them: ``workload.output``."""
    return ".".join(map(str, keys))


def _wrong(wrong: _Located, document: Document, model: type[BaseModel]) -> Problem:
    """The problem of a value that its field cannot take."""
    place = document.place(*wrong.keys)
    name = _name(wrong.keys)
    context = wrong.finding.get("ctx", {})
    value = wrong.finding["input"]
    cause = context.get("error")
    if wrong.finding["loc"] and wrong.finding["loc"][-1] == "[key]":
        place = document.key_place(*wrong.keys)
    if isinstance(cause, UnitError):
        return Problem(cause.slug, f"{name}: {cause.message}", place, cause.remedy)
    if cause is not None:
        return Problem("bad-value", f"{name}: {cause}", place, "write it in that form")
    if wrong.type in {"literal_error", "enum"}:
        notes = meanings(model_at(model, wrong.keys[:-1]), str(wrong.keys[-1]))
        known = choices_at(model, wrong.keys) or re.findall(r"'([^']*)'", str(context.get("expected", "")))
        values = f"values: {', '.join(known)}{sorts_at(model, wrong.keys)}"
        remedy, note = did_you_mean(str(value), known), "\n".join([values, *notes])
        return Problem("unknown-value", f"{name} cannot be {_shown(value)}", place, remedy, note)
    if wrong.type == "union_tag_invalid":
        tag, known = context["tag"], re.findall(r"'([^']*)'", context["expected_tags"])
        return Problem(
            "unknown-value", f'{name} cannot be "{tag}"', place, did_you_mean(tag, known), f"values: {', '.join(known)}"
        )
    if wrong.due:
        return _of_another_type(wrong, name, place, model)
    message, remedy = _OTHERS.get(wrong.type, (str(wrong.finding["msg"]), "correct it"))
    return Problem("bad-value", f"{name} is {_shown(value)}{message}", place, remedy.format(**context))


def _of_another_type(wrong: _Located, name: str, place: Place | None, model: type[BaseModel]) -> Problem:
    """The problem of a value of another type than is due, such as a bare number for a text with a unit."""
    owner = model_at(model, wrong.keys[:-1])
    value, quote = wrong.finding["input"], wrong.due == "text" and isinstance(wrong.finding["input"], int | float)
    typical = example(owner, str(wrong.keys[-1])) if owner and str(wrong.keys[-1]) in owner.model_fields else ""
    if quote and re.match(r"[<>]? *\d", typical):
        write = f'"{typical}"' if typical.startswith(">") else typical  # a YAML text is quoted behind >
        return Problem("missing-unit", f"{name} is {_shown(value)}, a bare number", place, f"write {write}")
    digits = value if isinstance(value, str) and "number" in wrong.due else ""
    write = (
        f'"{_shown(value)}"' if quote else f"{digits}, without quotes" if digits.isdecimal() else whole_meant(digits)
    )
    if wrong.due == "a list" and isinstance(value, int | float) and not isinstance(value, bool):
        write = typical or f"[{value}]"
    elif "a map of fields" in wrong.due:
        write = typical
    words = ", or ".join([write or wrong.due, *([] if write else choices_at(model, wrong.keys))])
    return Problem("bad-value", f"{name} is {_shown(value)}, not {wrong.due}", place, f"write {words}")


def _name(keys: Keys) -> str:
    """The value in words: its field and the map around it, ``link.bandwidth``; ``shape[1]`` in a list."""
    names: list[str] = []
    for key in keys:
        if isinstance(key, int) and names:
            names[-1] += f"[{key}]"
        else:
            names.append(str(key))
    return ".".join(names[-2:]) or "the file"


def _shown(value: object) -> str:
    """A value in a message: as the file would write it, short."""
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
