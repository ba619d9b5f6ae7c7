"""Documents as JSON: one value, stable order, a final line break."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def text(document: Mapping[str, Any]) -> str:
    """`document` as JSON. Raises ValueError for an infinity or nan, which JSON does not have."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
