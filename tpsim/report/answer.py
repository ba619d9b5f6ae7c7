"""What every public function answers with: a value that prints as its verdict, a document with its schema, rows."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from inspect import get_annotations, getattr_static, getdoc
from operator import attrgetter
from types import SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from tpsim import __version__
from tpsim.report.record import Of, Record, names, plain
from tpsim.report.table import Bar, Line, labelled

if TYPE_CHECKING:
    import pandas as pd

    from tpsim.report.picture import Picture, Pictures


@dataclass(frozen=True, slots=True)
class Input(Record):
    """A file that the answer was computed from."""

    path: str
    sha256: Annotated[str, ("pattern", "^[0-9a-f]{64}$")]


@dataclass(frozen=True, slots=True)
class Assumption(Record):
    """Something that the answer takes for granted.

    kind  stated by the user or a source, guessed about the run, tpsim's default, derived from what is stated, or model
          for what every answer of its sort assumes
    """

    text: str
    kind: Literal["stated", "guess", "default", "derived", "model"]


def noted(texts: str | Callable[[Any], Iterable[str]], meaning: str) -> Of[list[Assumption]]:
    """The attribute `assumptions` of an answer that has what it takes for granted in words, at a path or as made."""
    words = attrgetter(texts) if isinstance(texts, str) else texts
    return Of[list[Assumption]](lambda answer: [Assumption(text, "derived") for text in words(answer)], meaning)


DOCUMENT = ("schema", "tpsim", "inputs", "resolved", "result", "assumptions", "not_modelled")
"""The parts of every document, in order."""


class Answer(Record):
    """An answer. As a record it is the `result` of its document.

    schema         the name and version of its document
    tpsim          the version of tpsim
    not_modelled   what the answer leaves out
    table          the part of the result that has the answer's rows
    """

    schema: ClassVar[str]
    tpsim: ClassVar[str] = __version__
    not_modelled: ClassVar[Sequence[str]] = ()
    table: ClassVar[str] = ""

    def __repr__(self) -> str:
        return self.verdict

    def _repr_html_(self) -> str:
        """What a notebook shows: the verdict, what it weighs, and the rows."""
        from tpsim.report import html

        return html.cell(self.lines, self.bars, self.shown())

    def plot(self) -> Pictures:
        """The answer's pictures, as a notebook shows them; none where nothing is drawn of it."""
        from tpsim.report.picture import Pictures

        return Pictures(self.pictures)

    @property
    def verdict(self) -> str:
        """The lines as text."""
        return "\n".join(map("".join, labelled(self.lines)))

    @property
    def ok(self) -> bool:
        """False if the answer is "no"."""
        return True

    @property
    def lines(self) -> tuple[Line, ...]:
        """The answer in lines: its words as one, of an answer that has no lines of its own."""
        return (Line(self.verdict, ok=self.ok),)

    @property
    def bars(self) -> Sequence[Bar]:
        """What the verdict weighs."""
        return ()

    @property
    def pictures(self) -> Sequence[Picture]:
        """What is drawn of it; made when it is asked for."""
        return ()

    @property
    def files(self) -> Sequence[tuple[str, str]]:
        """Path and sha256 of every file that was read."""
        return ()

    @property
    def inputs(self) -> Sequence[Input]:
        """The files that the answer was computed from."""
        return [Input(*file) for file in self.files]

    @property
    def resolved(self) -> Mapping[str, Any]:
        """What files, flags and defaults came to."""
        return {}

    @property
    def result(self) -> Mapping[str, Any]:
        """What is answered."""
        return self

    @property
    def assumptions(self) -> Sequence[Assumption]:
        """What the answer takes for granted."""
        return ()

    def records(self) -> Sequence[Mapping[str, Any]]:
        """Tidy rows: what is known of each first, then what it comes to."""
        rows: Sequence[Mapping[str, Any]] = getattr(self, self.table)
        return rows

    def shown(self) -> Sequence[Mapping[str, Any]]:
        """The rows that a notebook shows: those that cost nothing to make."""
        return self.records()

    @property
    def columns(self) -> Sequence[str]:
        """What a frame and CSV have above no rows."""
        return ()

    def to_frame(self) -> pd.DataFrame:
        """The records as a pandas DataFrame, with texts where a record has a map or a list, as CSV has them."""
        import pandas as pd

        from tpsim.report.formats import flat

        rows = [{name: flat(value) for name, value in record.items()} for record in self.records()]
        return pd.DataFrame(rows) if rows else pd.DataFrame(columns=list(self.columns))

    def to_json(self) -> dict[str, Any]:
        """The whole document as plain data."""
        return {part: plain(getattr(self, part)) for part in DOCUMENT}


Schema = dict[str, Any]

PLAIN: Mapping[Any, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    type(None): {"type": "null"},
    Any: {},
}


def document_schema(kind: type[Answer], name: str) -> Schema:
    """The JSON Schema of what `kind` writes, named `name`. Unknown fields are no error to a reader."""
    named: dict[str, Schema] = {}
    fields = {part: _field(kind, part, named) for part in DOCUMENT if part not in ("schema", "result")}
    fields["schema"] = {"const": kind.schema, "title": "Schema", "type": "string"}
    fields["result"] = _shape(kind, named)
    whole = _map({part: fields[part] for part in DOCUMENT}, DOCUMENT)
    titles = {"description": f"What `tpsim {name}` says.", "title": f"{name.title()}Output"}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"{name}.json", "$defs": _sorted(named)}
    return {**head, **_sorted({**whole, **titles})}


def _shape(type_: Any, named: dict[str, Schema]) -> Schema:
    """The schema of a type; a record's is put among the named ones, and referred to."""
    outer, inner = get_origin(type_), get_args(type_)
    if outer is Annotated:
        return {**_shape(inner[0], named), **plain(dict(inner[1:]))}
    if outer is Literal:
        return {"type": "string", **({"enum": list(inner)} if len(inner) > 1 else {"const": inner[0]})}
    if outer in (Union, UnionType):
        return {"anyOf": [_shape(member, named) for member in inner]}
    if outer is not None:
        return _container(outer, inner, named)
    if isinstance(type_, type) and issubclass(type_, Record):
        if type_.__name__ not in named:
            named[type_.__name__] = {}
            named[type_.__name__] = _record(type_, named)
        return {"$ref": f"#/$defs/{type_.__name__}"}
    return dict(PLAIN[type_])


def _container(outer: Any, inner: Sequence[Any], named: dict[str, Schema]) -> Schema:
    """A list, or a map: with all of the keys where its type names them, else with any."""
    if outer in (list, tuple, Sequence):
        return {"type": "array", "items": _shape(inner[0], named)}
    key, value = inner
    if get_origin(key) is Literal:
        return _map({name: _shape(value, named) for name in get_args(key)}, get_args(key))
    return {"type": "object", "additionalProperties": _shape(value, named) or True}


def _record(kind: type[Record], named: dict[str, Schema]) -> Schema:
    fields = {name: _field(kind, name, named) for name in names(kind)}
    titles = {"description": _paragraph(getdoc(kind) or ""), "title": kind.__name__}
    return _sorted({**_map(fields, [name for name, always in names(kind).items() if always]), **titles})


def _map(fields: Mapping[str, Schema], required: Sequence[str]) -> Schema:
    return {"type": "object", "properties": dict(fields), "required": list(required)}


def _field(kind: type[Record], name: str, named: dict[str, Schema]) -> Schema:
    """The schema of one attribute, with its title and its meaning."""
    type_, meaning = _declared(kind, name)
    shape = _shape(type_, named)
    title = {} if "$ref" in shape else {"title": name.title().replace("_", " ")}
    description = {"description": f"{meaning[0].upper()}{meaning[1:].rstrip('.')}."} if meaning else {}
    return _sorted({**shape, **title, **description})


def _declared(kind: type[Record], name: str) -> tuple[Any, str]:
    """The type of an attribute and its meaning: a docstring, or the class's line."""
    attribute = getattr_static(kind, name, None)
    if isinstance(attribute, Of):
        return get_args(attribute.__orig_class__)[0], attribute.meaning  # type: ignore[attr-defined]  # of what is subscripted
    function = {property: "fget", cached_property: "func"}.get(type(attribute))
    if function:
        declared = getattr(attribute, function)
        late = {name: getattr(import_module(module), name) for name, module in kind.late.items()}
        return get_type_hints(declared, None, late, include_extras=True)["return"], _paragraph(getdoc(declared) or "")
    owner = next(base for base in kind.__mro__ if name in get_annotations(base))
    alone = SimpleNamespace(__annotations__={name: re.sub(r"^ClassVar\[(.*)\]$", r"\1", get_annotations(owner)[name])})
    types = get_type_hints(alone, vars(sys.modules[owner.__module__]), include_extras=True)
    return types[name], _line(getdoc(owner) or "", name)


def _paragraph(doc: str) -> str:
    """The first paragraph of a docstring in one line."""
    return " ".join(doc.partition("\n\n")[0].split())


def _line(doc: str, name: str) -> str:
    """What a class's docstring says of a field: ``name, name  the meaning``, with the indented lines below it."""
    for match in re.finditer(r"^(\w+(?:, \w+)*)  +(\S.*(?:\n +\S.*)*)", doc, re.MULTILINE):
        if name in match[1].split(", "):
            return " ".join(match[2].split())
    return ""


def _sorted(schema: Schema) -> Schema:
    return dict(sorted(schema.items()))
