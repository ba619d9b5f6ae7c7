"""Values of a program's leaves that depend on their names alone, so that two runs of one model start alike."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpsim.reference.blocks import Block
    from tpsim.reference.execute import Inputs

WEIGHT_SCALE = 0.3
"""The spread of a weight: small enough that softmax and the pointwise functions stay where they are curved."""


def leaves(sizes: Mapping[str, int], replaced: Mapping[str, Block] | None = None) -> Inputs:
    """Random values by label; an optimizer's master copy equals its parameter, gains lie about one.

    sizes     elements of every dim; token ids and labels are below ``v``
    replaced  values to take instead, by label
    """

    def value(label: str, shape: tuple[int, ...]) -> Block:
        name = label.replace("master.", "")
        if replaced and name in replaced:
            return replaced[name]
        rng = np.random.default_rng(crc32(name.encode()))
        if "tokens" in name or "labels" in name:
            return rng.integers(0, sizes["v"], shape).astype(np.float64)
        if "variance" in name:
            return rng.random(shape) + 0.5
        return rng.normal(size=shape) * WEIGHT_SCALE + (1.0 if "gain" in name else 0.0)

    return value
