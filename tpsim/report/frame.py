"""Records as a pandas DataFrame. The only module that knows pandas, which it loads when called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd


def frame(records: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """`records` as a frame: a row each, columns in the order of their keys."""
    import pandas as pd

    return pd.DataFrame([dict(record) for record in records])
