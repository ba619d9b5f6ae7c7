"""What a shell completes: names of the library, then files."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from collections.abc import Iterable

    import click

    from tpsim.quantity.spec import Kind


def _library(_ctx: click.Context, _param: click.Parameter, begun: str, *, kind: Kind) -> list[CompletionItem]:
    from tpsim.quantity import spec

    return begins(begun, spec.names(kind)) or [CompletionItem(begun, type="file")]


scenarios, machines, models = (partial(_library, kind=kind) for kind in ("scenarios", "hardware", "models"))
"""Completions of a parameter that takes a name of the library, or a file."""


def collectives(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """The collectives, as the command line spells them."""
    from tpsim.algebra.moves import MOVES

    return begins(begun, [name.replace("_", "-") for name in MOVES])


def practices(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """The bundles of switches."""
    from tpsim.program.frameworks import PRACTICES

    return begins(begun, PRACTICES)


def schemas(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """The formats and outputs that have a schema."""
    from tpsim.answers.schema import DESCRIBED

    return begins(begun, [schema.name for schema in DESCRIBED])


def begins(begun: str, known: Iterable[str]) -> list[CompletionItem]:
    """Those of the known names that go on from what was typed."""
    return [CompletionItem(name) for name in sorted(known) if name.startswith(begun)]
