"""Text that steers nothing that shows it: names come from files, and files from anywhere."""

from __future__ import annotations

STAND_IN = "\ufffd"


def printable(text: str) -> str:
    r"""`text` with a mark for each control, formatting or unknown character: no escape, no line, no turned direction.

    >>> printable("a\x1b[31m\nb")
    'a�[31m�b'
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\t " else STAND_IN for char in text)
