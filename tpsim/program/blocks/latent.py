"""Multi-head latent attention (DeepSeek-V2 2024, 2.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.program.text import Parameter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.program.layout import Practice
    from tpsim.program.model import Latent


def parameters(block: Latent, _: Practice) -> Iterator[Parameter]:
    """Queries by way of a narrow array if there is one; a latent, and from it what the heads read; one rotated key."""
    source = "h"
    if block.query_rank:
        source = "u"
        yield Parameter("Wqdown", ("h", "u"), "attention")
        yield Parameter("gain_query", ("u",), "attention")
    yield Parameter("Wq", (source, "g", "d"), "attention")
    yield Parameter("Wqrope", (source, "g", "a"), "attention")
    yield Parameter("Wdown", ("h", "x"), "attention")
    yield Parameter("gain_latent", ("x",), "attention")
    yield Parameter("Wkrope", ("h", "a"), "attention")
    yield Parameter("Wk", ("x", "g", "d"), "attention")
    yield Parameter("Wv", ("x", "g", "o"), "attention")
    yield Parameter("Wo", ("h", "g", "o"), "attention")
