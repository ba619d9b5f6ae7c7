"""The flags that ask a question, declared once for every verb that takes a scenario, and what a shell completes."""

from __future__ import annotations

import functools
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, get_args

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tpsim.quantity.spec import LibraryKind
    from tpsim.question.question import Question


def _library(_ctx: click.Context, _param: click.Parameter, begun: str, *, kind: LibraryKind) -> list[CompletionItem]:
    from tpsim.quantity import spec

    return begins(begun, spec.names(kind)) or [CompletionItem(begun, type="file")]


scenarios, machines, models = (partial(_library, kind=kind) for kind in ("scenarios", "hardware", "models"))
"""Completions of a parameter that takes a name of the library, or a file."""


def collectives(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """The collectives, as the command line spells them."""
    from tpsim.algebra.moves import MOVES

    return begins(begun, [name.replace("_", "-") for name in MOVES])


def _words(_ctx: click.Context, _param: click.Parameter, begun: str, *, of: str) -> list[CompletionItem]:
    module, name = of.split(":")
    known = getattr(import_module(module), name)
    return begins(begun, get_args(known) or known)


practices, schedules, recomputes, cost_models, planners, measures = (
    partial(_words, of=of)
    for of in (
        "tpsim.program.frameworks:PRACTICES",
        "tpsim.program.schedules:SCHEDULES",
        "tpsim.question.recompute:DROPS",
        "tpsim.machine.timing:CostModel",
        "tpsim.algebra.planner:Planner",
        "tpsim.answers.planned:By",
    )
)
"""Completions of a parameter that takes one of the words of a table, or of a type, which is loaded only then."""


def files(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Files, which the shell lists; without this it lists none."""
    return [CompletionItem(begun, type="file")]


def folders(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Folders, which the shell lists."""
    return [CompletionItem(begun, type="dir")]


def schemas(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """The formats and outputs that have a schema."""
    from tpsim.answers.schema import DESCRIBED

    return begins(begun, [schema.name for schema in DESCRIBED])


def begins(begun: str, known: Iterable[str]) -> list[CompletionItem]:
    """Those of the known names that go on from what was typed."""
    return [CompletionItem(name) for name in sorted(known) if name.startswith(begun)]


class Whole(click.types.IntParamType):
    """A whole number, written as files have it: ``4096``, ``5e7``; or one of some words."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or the word. Refuses what is none."""
        if value in self.words:
            return value
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter:
            from tpsim.quantity.spec.text import scalar

            if type(number := scalar(value.strip())) is int:
                return number
            raise


class Sized(Whole):
    """A size, or names of mesh axes."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The digits of a number; names as they are."""
        try:
            return str(super().convert(value, param, ctx))
        except click.BadParameter:
            return value


FLAGS: dict[str, Callable[[Callable[..., None]], Callable[..., None]]] = {
    "model": click.option(
        "--model",
        metavar="MODEL",
        shell_complete=models,
        help="Library name, .yaml, or a Hugging Face config.json.",
    ),
    "hw": click.option("--hw", metavar="MACHINE", shell_complete=machines, help="Library name or .yaml."),
    "chips": click.option(
        "--chips", type=Whole(), metavar="N", help="Chips of the machine; an axis of -1 fills up to it."
    ),
    "mesh": click.option("--mesh", metavar="AXIS=N,..", help="Mesh axes, major first: data=32,tensor=8."),
    **{
        role: click.option(f"--{role}", type=Sized(), metavar="N|AXIS", help=f"{parallelism}.")
        for role, parallelism in {
            "tp": "Tensor parallelism: its size, or the mesh axes that it takes",
            "dp": "Data parallelism: its size, or the mesh axes that it takes",
            "cp": "Context parallelism: its size, or the mesh axes that it takes",
            "ep": "Expert parallelism: its size, a part of dp, or its mesh axes",
            "pp": "Pipeline parallelism: its stages, or the mesh axis of them",
        }.items()
    },
    "schedule": click.option(
        "--schedule", metavar="NAME", shell_complete=schedules, help="How the stages of a pipeline take turns."
    ),
    "chunks": click.option("--chunks", type=Whole(), metavar="N", help="Chunks of layers on each stage."),
    "sp": click.option("--sp/--no-sp", default=None, help="Sequence parallelism: the residual stream split over tp."),
    "zero": click.option("--zero", type=Whole(), metavar="0..3", help="ZeRO stage."),
    "batch": click.option(
        "--batch", type=Whole("largest"), metavar="N", help="Global batch, in sequences; of inference also: largest."
    ),
    "microbatches": click.option(
        "--microbatches", type=Whole(), metavar="N", help="Parts that the batch is computed in."
    ),
    "seq": click.option(
        "--seq",
        type=Whole(),
        metavar="N",
        help="Tokens per sequence: of decoding its context, of other inference the prompt.",
    ),
    "dtype": click.option("--dtype", metavar="DTYPE", help="Of activations and parameters: bf16, f32, fp8, ..."),
    "placement": click.option(
        "--placement", multiple=True, metavar="AXIS=LEVEL", help="What carries a mesh axis: tensor=nvlink."
    ),
    "practice": click.option(
        "--practice",
        metavar="NAME",
        shell_complete=practices,
        help="Switches of a framework: megatron, fsdp2, deepspeed, xla, ideal.",
    ),
    "recompute": click.option(
        "--recompute",
        metavar="NAME",
        shell_complete=recomputes,
        help="What is not kept for backward: none, selective, full.",
    ),
    "offload": click.option(
        "--offload", metavar="NAME", help="What lives on the host of its device: none, state (the optimizer's)."
    ),
    "cost_model": click.option("--cost-model", metavar="NAME", shell_complete=cost_models, help="additive or book."),
    "planner": click.option("--planner", metavar="NAME", shell_complete=planners, help="book or cheapest."),
    "algorithm": click.option(
        "--algorithm", metavar="NAME", help="Force one on collectives that know it: ring, tree, in-switch."
    ),
    "protocol": click.option("--protocol", metavar="NAME", help="Force one of the machine's: ll, ll128, simple."),
    "launch": click.option(
        "--launch", metavar="HARNESS|TIME", help="Launch latency: a harness of the profile, or 15us."
    ),
}
"""An option per flag, in the order in which help lists them; `tpsim.question.edits.Flags` types the same names."""


def saved(question: Question, save: Path | None, scenario: str | None) -> dict[Path, str]:
    """The file that ``--save`` asks for: a scenario that asks the question again; none where it does not.

    It may take the place of the scenario that was asked, not of what that one names. Raises InputError.
    """
    if save is None:
        return {}
    from tpsim.cli.output import refuse_inputs
    from tpsim.question.save import scenario_text

    refuse_inputs([save], (path for path, _ in question.inputs if path != scenario))
    return {save: scenario_text(question, save.parent)}


def question_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command` the flags; it gets ``--set`` as `overrides` and the others, if given, as one map `flags`."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        flags = {name: kwargs.pop(name) for name in FLAGS}
        options = {name: value for name, value in flags.items() if value not in (None, ())}
        command(*args, flags=options, **kwargs)

    asked: Callable[..., None] = wrapped
    for option in reversed(FLAGS.values()):
        asked = option(asked)
    change = "Change one field: layout.zero=3."
    return click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help=change)(asked)
