"""What a long answer tells whoever waits for it."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int, str], None]
"""Is told things done, of how many, and what they are, or which of them comes now."""


def unwatched(_done: int, _of: int, _what: str) -> None:
    """Where nobody waits."""


def told_with(progress: Progress, more: str, done: int, of: int, what: str) -> None:
    """Tell what is done, and something more of it."""
    progress(done, of, f"{what}, {more}")
