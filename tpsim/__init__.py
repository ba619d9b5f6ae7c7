"""tpsim: what a sharding of a model over a machine costs, derived and shown.

The verbs of the command line are functions of their names (`scenario`, `hw` and `model` modules of several); what each
returns has ``to_json()``, the document, ``to_frame()``, its rows as a pandas DataFrame, and, where there is one,
``verdict``. A request that is wrong raises ``InputError``. All of it loads when first used, so that importing the
package, and `tpsim --help`, cost nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from tpsim import hw as hw
    from tpsim import model as model
    from tpsim import scenario as scenario
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
    from tpsim.quantity.errors import InputError as InputError
    from tpsim.quantity.errors import TpsimError as TpsimError

__version__ = "0.1.0"


class Verb(NamedTuple):
    """One verb. Its command is ``tpsim.cli.NAME:NAME``, its function ``tpsim.ROOM.NAME:NAME``.

    section  of the help
    room     "" for one of several words: its functions stand in ``tpsim.NAME``
    """

    name: str
    section: Literal["Estimate", "Understand", "Guard", "Data"]
    answers: str
    room: str


VERBS: tuple[Verb, ...] = (
    Verb("plan", "Estimate", "One step of training or inference: what is sent, computed and held.", "answers"),
    Verb("search", "Estimate", "The best layout of N chips, and why the next ones are worse.", "answers"),
    Verb("diff", "Estimate", "Two scenarios, results or locks: what moves, and why.", "guard"),
    Verb("shard", "Understand", "The algebra on one product, reshard or array.", "answers"),
    Verb("collective", "Understand", "One collective over sizes on one machine.", "answers"),
    Verb("explain", "Understand", "Where a printed number comes from: formula, values, sources.", "answers"),
    Verb("verify", "Understand", "A step or an expression run on simulated devices, held to every claim.", "claims"),
    Verb("check", "Guard", "Every scenario against tpsim.lock: what moved, and why.", "guard"),
    Verb("scenario", "Data", "The scenarios: questions that come with tpsim, by name.", ""),
    Verb("hw", "Data", "The machines: their constants with sources.", ""),
    Verb("model", "Data", "The models: their sizes and parameters as read.", ""),
    Verb("schema", "Data", "The JSON Schema of a file format or of an output.", "answers"),
)
"""The verbs in the order of the help, known without loading any of them."""

ROOMS = {verb.name: verb.room for verb in VERBS if verb.room} | {
    "grid": "answers",
    "sweep": "answers",
    "verify_expression": "claims",
}
"""The public functions, and the room in which each stands in a file of its name."""

MODULES = tuple(verb.name for verb in VERBS if not verb.room)
"""The public modules: verbs of several words."""

ERRORS = ("InputError", "TpsimError")
"""What is raised on purpose: a request that is wrong, with its `problems`, and that or anything else."""

__all__ = ["__version__", *ROOMS, *MODULES, *ERRORS]  # noqa: PLE0604 - names all


def __getattr__(name: str) -> Any:
    """The public function `name`, from the room that answers it, the public module, or the error of that name."""
    if name in MODULES:
        return import_module(f"tpsim.{name}")
    if name in ERRORS:
        return getattr(import_module("tpsim.quantity.errors"), name)
    if name not in ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"tpsim.{ROOMS[name]}.{name}"), name)


def __dir__() -> list[str]:
    return __all__
