"""What is asked for the same things again and again."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(eq=False)
class Once:
    """Works out each thing once, by a key."""

    _known: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Without what is known by the identity of others, which have another one where it is copied to."""
        return {**self.__dict__, "_known": {}}

    def _once(self, key: Hashable, compute: Callable[[], T]) -> T:
        if key not in self._known:
            self._known[key] = compute()
        return self._known[key]  # type: ignore[no-any-return]  # put there above
