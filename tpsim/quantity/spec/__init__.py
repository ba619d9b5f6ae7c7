"""Files: YAML to checked values, each value with its place in the user's text; and where files are found by name."""

from tpsim.quantity.spec.catalogue import Kind, find, is_path, is_shipped, library, named, names, path_from, shipped
from tpsim.quantity.spec.checked import read
from tpsim.quantity.spec.document import Document, Keys, extended, merge, part, with_data, with_value
from tpsim.quantity.spec.fields import (
    Bytes,
    BytesPerSecond,
    FlopsPerSecond,
    Quantity,
    Seconds,
    Share,
    Strict,
    schema_of,
)
from tpsim.quantity.spec.overrides import overridden
from tpsim.quantity.spec.text import LARGE, content, load

__all__ = [
    "LARGE",
    "Bytes",
    "BytesPerSecond",
    "Document",
    "FlopsPerSecond",
    "Keys",
    "Kind",
    "Quantity",
    "Seconds",
    "Share",
    "Strict",
    "content",
    "extended",
    "find",
    "is_path",
    "is_shipped",
    "library",
    "load",
    "merge",
    "named",
    "names",
    "overridden",
    "part",
    "path_from",
    "read",
    "schema_of",
    "shipped",
    "with_data",
    "with_value",
]
