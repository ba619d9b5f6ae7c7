"""A document to an instance of the pydantic model of its format, or every mistake in it at once."""

from __future__ import annotations

from json import dumps
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ValidationError

from tpsim.quantity.errors import InputError
from tpsim.quantity.spec.document import NO_PARTS, Document, extended
from tpsim.quantity.spec.refusals import header_problem, problems
from tpsim.quantity.spec.text import load

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tpsim.quantity.spec.document import Load, LoadPart

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
