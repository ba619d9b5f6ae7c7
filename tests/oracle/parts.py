"""Which part of an array each device keeps: the starts of a dynamic slice, worked out from the device's number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.oracle.hlo import Body, Line


def starts(line: Line, main: Body, device: int) -> tuple[int, ...]:
    """Where the slice that `device` takes begins, per dim."""
    return tuple(int(_value(main[name], main, device)) for name in line.operands[1:])


def _value(line: Line, main: Body, device: int) -> Any:
    """The value of a whole number, or of a table of them, on one device."""
    if line.op == "partition-id":
        return np.int64(device)
    if line.op == "constant":
        listed = line.inside.strip("{}").split(",")
        return np.array([int(number) for number in listed], dtype=np.int64).reshape(line.shapes[0])
    values = [_value(main[name], main, device) for name in line.operands]
    if line.op == "dynamic-slice":
        (table, at), (size,) = values, line.numbers("dynamic_slice_sizes")
        return table[int(at) : int(at) + size]
    return np.reshape(_ARITHMETIC[line.op](*values), line.shapes[0])


_ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    "bitcast": lambda x: x,
    "reshape": lambda x: x,
    "convert": lambda x: x,
    "copy": lambda x: x,
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.floor_divide,
    "remainder": np.remainder,
    "clamp": lambda low, x, high: np.clip(x, low, high),
}
"""What XLA works out a start with; another operation raises KeyError, so that nothing is guessed."""
