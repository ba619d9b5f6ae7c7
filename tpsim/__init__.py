"""tpsim: what a sharding of a model over a machine costs, derived and shown.

The public functions load when first used, so that importing the package, and `tpsim --help`, cost nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpsim.api.breakeven import breakeven as breakeven
    from tpsim.api.check import check as check
    from tpsim.api.collective import collective as collective
    from tpsim.api.diff import diff as diff
    from tpsim.api.plan import plan as plan
    from tpsim.api.shard import shard as shard
    from tpsim.api.verify import verify as verify
    from tpsim.api.verify_expression import verify_expression as verify_expression

__version__ = "0.1.0"

__all__ = ["__version__", "breakeven", "check", "collective", "diff", "plan", "shard", "verify", "verify_expression"]


def __getattr__(name: str) -> Any:
    """The public function `name`, from ``tpsim.api.NAME``; a submodule of that name does not shadow it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"tpsim.api.{name}"), name)


def __dir__() -> list[str]:
    """The public names."""
    return __all__
