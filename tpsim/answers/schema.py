"""The verb `schema`: the JSON Schema of a file format, or of an output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from tpsim.quantity.arguments import checked
from tpsim.quantity.errors import unknown
from tpsim.quantity.spec.document import EXTENDS
from tpsim.report.answer import Answer


@dataclass(frozen=True, slots=True)
class Described:
    """Something that has a JSON Schema, and where the type is that it is made from: a file's, or an answer's.

    part  True for a file that others are laid on, so that it need say nothing but its name
    """

    name: str
    describes: Literal["file", "output"]
    module: str
    type: str
    what: str
    part: bool = False

    def schema(self) -> dict[str, Any]:
        """Its JSON Schema."""
        kind = getattr(import_module(self.module), self.type)
        if self.describes == "output":
            from tpsim.report.answer import document_schema

            return document_schema(kind, self.name)
        from tpsim.quantity import spec

        document = spec.schema_of(kind, f"{self.name}.json")
        if self.part:
            return {**document, **_partial(document, document["$defs"]), "required": ["tpsim", "name"]}
        return _or_extending(document, self.type) if "extends" in document.get("properties", {}) else document


DESCRIBED: tuple[Described, ...] = (
    Described("hardware", "file", "tpsim.machine.hardware_file", "HardwareFile", "a machine"),
    Described("model", "file", "tpsim.question.formats", "ModelFiles", "a model"),
    Described("scenario", "file", "tpsim.question.formats", "AnyScenario", "a scenario"),
    Described("chip", "file", "tpsim.machine.chips", "ChipFile", "a chip that machines are made of", part=True),
    Described("lock", "file", "tpsim.guard.lock", "Lock", "what tpsim check holds scenarios to"),
    Described("plan", "output", "tpsim.answers.plan", "PlanResult", "what tpsim plan -f json prints"),
    Described("search", "output", "tpsim.answers.search", "SearchResult", "what tpsim search -f json prints"),
    Described("sweep", "output", "tpsim.answers.sweep", "SweepResult", "what tpsim search --sweep -f json prints"),
    Described("shard", "output", "tpsim.answers.shard", "ShardResult", "what tpsim shard -f json prints"),
    Described(
        "collective", "output", "tpsim.answers.collective", "CollectiveResult", "what tpsim collective -f json prints"
    ),
    Described("verify", "output", "tpsim.claims.checks", "VerifyResult", "what tpsim verify -f json prints"),
    Described("check", "output", "tpsim.guard.check", "CheckResult", "what tpsim check -f json prints"),
    Described("diff", "output", "tpsim.guard.diff", "DiffResult", "what tpsim diff -f json prints"),
)


@dataclass(frozen=True)
class SchemaResult(Answer):
    """One JSON Schema: `to_json` is the schema itself, so that an editor can use what is printed."""

    described: Described
    made: Mapping[str, Any]

    @property
    def verdict(self) -> str:
        """How many fields it has, and how many of them must be there."""
        rows = self.records()
        return f"{len(rows)} fields, {sum(row['required'] for row in rows)} of them required"

    def records(self) -> list[dict[str, Any]]:
        """One row per field: its path, what may stand there, whether it must."""
        named = self.made.get("$defs", {})
        return [{"schema": self.described.name, **row} for row in _fields(self.made, named, "")]

    def to_json(self) -> dict[str, Any]:
        """The JSON Schema."""
        return dict(self.made)


@dataclass(frozen=True)
class SchemaListResult(Answer):
    """Everything that has a JSON Schema."""

    schema = "tpsim.schema-list/1"
    told = ("schemas",)
    table = "schemas"

    @property
    def verdict(self) -> str:
        """How many there are, and what they are for."""
        return f"{len(DESCRIBED)} schemas; the files of tpsim name theirs in their first line, for editors"

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """One row per schema."""
        return [
            {"schema": described.name, "describes": described.describes, "what": described.what}
            for described in DESCRIBED
        ]


@checked
def schema(name: str) -> SchemaResult:
    """The JSON Schema of that name; raises InputError with the nearest name."""
    known = {described.name: described for described in DESCRIBED}
    if name not in known:
        raise unknown(name, "schema", known, lister="tpsim schema")
    return SchemaResult(known[name], known[name].schema())


HEAD = ("$schema", "$id", "$defs")


def _or_extending(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The schema of a format that knows ``extends``: a file that has it need not repeat what it takes over."""
    whole, named = {key: value for key, value in document.items() if key not in HEAD}, document["$defs"]
    parts = [key for key, extended in named.items() if EXTENDS in extended.get("properties", ())]
    either = {key: _either(named[key], named[key], named) for key in parts}
    full: dict[str, Any] = {"$ref": f"#/$defs/{name}"}
    for field, inside in whole["properties"].items() if parts else ():
        if any(branch.get("$ref", "").rpartition("/")[2] in parts for branch in inside.get("anyOf", ())):
            by_name = {"anyOf": [{"type": "string"}, {"required": [EXTENDS]}]}
            unextended = {"required": [field], "properties": {field: by_name}}
            full = {"if": unextended, "then": _named_items(whole, named), "else": full}
    return {
        **{key: document[key] for key in HEAD},
        "$defs": {**named, **either, name: whole},
        **_either(whole, full, named),
    }


def _either(whole: Mapping[str, Any], full: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    return {"if": {"required": [EXTENDS]}, "then": _partial(whole, named), "else": full}


def _named_items(whole: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """`whole` for a file of which a part's own file tells some: maps in named items may be told there."""
    fields = dict(whole["properties"])
    for key, field in fields.items():
        item = _resolved(field.get("items", {}), named)
        if "name" in item.get("required", ()):
            due = [name for name in item["required"] if "$ref" not in item["properties"][name]]
            fields[key] = {**field, "items": {**_partial(item, named), "required": due}}
    return {**whole, "properties": fields}


def _partial(schema: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """`schema` with nothing required in maps, which merge.

    Lists replace, so their items stay whole; a map in the place of a list of named items changes these.
    """
    partial = {key: value for key, value in _resolved(schema, named).items() if key not in ("required", "$ref")}
    if "properties" in partial:
        partial["properties"] = {key: _partial(field, named) for key, field in partial["properties"].items()}
    if isinstance(partial.get("additionalProperties"), dict):
        partial["additionalProperties"] = _partial(partial["additionalProperties"], named)
    if "name" in (item := _resolved(partial.get("items", {}), named)).get("required", ()):
        changes = {"type": "object", "additionalProperties": _partial(item, named)}
        return {"if": {"type": "array"}, "then": partial, "else": changes}
    if "anyOf" in partial:
        partial["anyOf"] = [_partial(choice, named) for choice in partial["anyOf"]]
    return partial


def _fields(schema: Mapping[str, Any], named: Mapping[str, Any], above: str) -> Iterator[dict[str, Any]]:
    """The fields of a map, each followed by those inside it; ``[]`` is any item of a list, ``*`` any key of a map."""
    inner = schema
    while "else" in inner:
        inner = inner["else"]
    inner = _resolved(inner, named)
    for version in inner.get("oneOf", ()):
        yield from _fields(version, named, above)
    for key, field in inner.get("properties", {}).items():
        yield {
            "field": f"{above}{key}",
            "type": _type(field, named),
            "required": key in inner.get("required", ()),
            "description": field.get("description") or _resolved(field, named).get("description"),
        }
        for branch, mark in _branches(field, named):
            yield from _fields(branch, named, f"{above}{key}{mark}.")


def _branches(field: Mapping[str, Any], named: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The maps that may stand in a field, and what their fields' paths say about the way there."""
    branch = _resolved(field, named)
    branch = branch.get("else", branch)
    yield from (inner for choice in branch.get("anyOf", branch.get("oneOf", ())) for inner in _branches(choice, named))
    if "properties" in branch:
        yield branch, ""
    for inside, mark in ((branch.get("items"), "[]"), (branch.get("additionalProperties"), ".*")):
        if isinstance(inside, dict):
            yield from ((inner, mark + deeper) for inner, deeper in _branches(inside, named))


def _resolved(schema: Mapping[str, Any], named: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema that a reference stands for; any other as it is."""
    reference = schema.get("$ref")
    return schema if reference is None else {**named[reference.rpartition("/")[2]], **schema}


def _type(field: Mapping[str, Any], named: Mapping[str, Any]) -> str:
    """What may stand in a field, in a few words: ``integer``, ``45 GB/s or map``, ``list of string``."""
    resolved = _resolved(field, named)
    if choices := resolved.get("anyOf", resolved.get("oneOf")):
        return " or ".join(dict.fromkeys(_type(choice, named) for choice in choices))
    if "const" in resolved or "enum" in resolved:
        return ", ".join(map(str, resolved.get("enum", [resolved.get("const")])))
    if resolved.get("type") == "array":
        return f"list of {_type(resolved.get('items') or resolved['prefixItems'][0], named)}"
    if resolved.get("type") == "object":
        return "map"
    kind = str(resolved.get("type", "any"))
    return f'text as "{resolved["examples"][0]}"' if "examples" in resolved and kind == "string" else kind
