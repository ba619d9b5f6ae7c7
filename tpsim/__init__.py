"""tpsim: what a sharding of a model over a machine costs, derived and shown.

The verbs of the command line are functions of their names (`hw` and `model` modules of several); what each returns has
``to_json()``, the document, ``to_frame()``, its rows as a pandas DataFrame, and, where there is one, ``verdict``. They
load when first used, so that importing the package, and `tpsim --help`, cost nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpsim import hw as hw
    from tpsim import model as model
    from tpsim.answers.breakeven import breakeven as breakeven
    from tpsim.answers.collective import collective as collective
    from tpsim.answers.explain import explain as explain
    from tpsim.answers.grid import grid as grid
    from tpsim.answers.plan import plan as plan
    from tpsim.answers.schema import schema as schema
    from tpsim.answers.search import search as search
    from tpsim.answers.shard import shard as shard
    from tpsim.answers.sweep import sweep as sweep
    from tpsim.claims.verify import verify as verify
    from tpsim.claims.verify_expression import verify_expression as verify_expression
    from tpsim.guard.check import check as check
    from tpsim.guard.diff import diff as diff

__version__ = "0.1.0"

ROOMS = {
    "breakeven": "answers",
    "check": "guard",
    "collective": "answers",
    "diff": "guard",
    "explain": "answers",
    "grid": "answers",
    "plan": "answers",
    "schema": "answers",
    "search": "answers",
    "shard": "answers",
    "sweep": "answers",
    "verify": "claims",
    "verify_expression": "claims",
}
"""The public functions, and the room in which each stands in a file of its name."""

MODULES = ("hw", "model")
"""The public modules: verbs of several words."""

__all__ = ["__version__", *ROOMS, *MODULES]  # noqa: PLE0604 - names all


def __getattr__(name: str) -> Any:
    """The public function `name`, from the room that answers it, or the public module; nothing else shadows it."""
    if name in MODULES:
        return import_module(f"tpsim.{name}")
    if name not in ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"tpsim.{ROOMS[name]}.{name}"), name)


def __dir__() -> list[str]:
    """The public names."""
    return __all__
