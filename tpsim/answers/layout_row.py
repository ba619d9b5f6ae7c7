"""One layout of a search: its fields, what its plan comes to, and what it loses by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tpsim.answers.plan_step import TrainingRun
from tpsim.answers.planned import WITH_PROMPTS, By, Planned
from tpsim.layouts.space import SHORT
from tpsim.program.stages import CutBy  # noqa: TC001 - JSON Schemas read types
from tpsim.quantity.units import show
from tpsim.question.recompute import DROPS
from tpsim.question.save import flow, scenario_text
from tpsim.question.zero import stated_over
from tpsim.report.numbers import counted
from tpsim.report.record import Bytes, Count, Number, Of, Record, Seconds

if TYPE_CHECKING:
    from tpsim.answers.plan import PlanResult
    from tpsim.question.question import Question


@dataclass(frozen=True)
class Row(Record):
    """One layout, planned.

    rank    1 for the best
    """

    told: ClassVar[tuple[str, ...]] = (
        *("rank", "tp", "dp", "cp", "ep", "pp", "schedule", "chunks", "layers", "microbatches", "microbatch_size"),
        *("zero", "shards?", "sequence_parallel", "recompute", "mesh", "placement", "varied"),
        *("step_s", "tokens_per_s", "compute_s", "exposed_s", "bubble_s", "mfu", "peak_bytes", "fits"),
        *("ep_over?", "cache?", "batch?", "ttft_s?", "tpot_s?", "reply_s?", "tokens_per_s_user?", "tokens_per_s_chip?"),
        *("served_tokens_per_s_chip?", "at_least_s", "behind", "tied", "loses", "run?"),
    )

    rank: Count
    planned: Planned
    best: Planned
    by: By

    @property
    def plan(self) -> PlanResult:
        """Its plan."""
        return self.planned.plan

    @property
    def question(self) -> Question:
        """What it is of."""
        return self.planned.question

    tp = Of[Count]("planned.candidate.layout.tp", "ways of tensor parallelism")
    dp = Of[Count]("planned.candidate.layout.dp", "ways of data parallelism")
    cp = Of[Count]("planned.candidate.layout.cp", "ways of context parallelism")
    ep = Of[Count]("planned.candidate.layout.experts", "devices that experts lie on")
    pp = Of[Count]("planned.candidate.layout.pp", "stages")
    chunks = Of[Count]("planned.candidate.layout.chunks", "of layers on each stage")
    microbatches = Of[Count]("question.workload.microbatches", "parts of the batch")
    zero = Of[Count]("question.layout.zero", "ZeRO stage")
    sequence_parallel = Of[bool]("question.layout.sequence_parallel", "the residual stream split over tp")
    mesh = Of[Mapping[str, int]]("question.mesh.axes", "axes, major first")
    placement = Of[Mapping[str, Sequence[str]]](
        lambda row: dict(row.planned.candidate.layout.placement), "axes that do not lie as the rule has it, with levels"
    )
    varied = Of[Mapping[str, Any]]("planned.candidate.space.varied", "fields that are varied beside the layout")
    step_s = Of[Seconds]("planned.outcome.step_s", "of the step; with drafts all are of a token")
    tokens_per_s = Of[Number]("planned.outcome.tokens_per_s", "of the whole machine")
    compute_s = Of[Seconds]("planned.outcome.compute_s", "of kernels")
    exposed_s = Of[Seconds]("planned.outcome.exposed_s", "of communication that no compute hides")
    bubble_s = Of[Seconds]("planned.outcome.bubble_s", "of waiting for other stages")
    mfu = Of[Number]("planned.outcome.mfu", "useful FLOPs over the peak")
    peak_bytes = Of[Bytes]("planned.outcome.peak_bytes", "of the fullest chip")
    cache = Of[str | None](
        lambda row: row.planned.candidate.layout.cache or None, "of inference: what of the cache the axes of tp split"
    )
    batch = Of[Count | None](lambda row: _served(row, "work.global_batch"), "of inference: sequences")
    ttft_s = Of[Seconds | None](lambda row: _served(row, "ttft_s"), "until the first token, where prompts are read")
    tpot_s = Of[Seconds | None](lambda row: _served(row, "tpot_s"), "of a step of decoding")
    reply_s = Of[Seconds | None](lambda row: _served(row, "reply_s"), "of a prompt and its reply")
    tokens_per_s_user = Of[Number | None](lambda row: _served(row, "tokens_per_s_user"), "new ones of a sequence")
    tokens_per_s_chip = Of[Number | None](
        lambda row: _served(row, "tokens_per_s_chip"), "of inference: of all sequences"
    )
    served_tokens_per_s_chip = Of[Number | None](
        "planned.outcome.served", "of replies: new tokens per second and chip, prompts and all chips counted"
    )
    run = Of[TrainingRun | None]("planned.outcome.run", "the whole run, where its tokens or a price are stated")
    fits = Of[bool | None]("planned.outcome.fits", "true, or null where it is too close to say")
    at_least_s = Of[Seconds](
        "planned.candidate.step_s", "what its step was known not to take less than, before it was planned"
    )

    def scenario(self, folder: Path = Path()) -> str:
        """The scenario file, to be written in `folder`, that asks for this layout."""
        return scenario_text(self.question, folder)

    @property
    def ep_over(self) -> str | None:
        """The roles whose axes experts lie over; left out where these are on every device, and of training dp alone."""
        roles = self.question.layout.roles
        over = [role for role in ("dp", "tp") if {*roles.get(role, ())} & {*roles.get("ep", ())}]
        return " and ".join(over) or None if self.question.inference or "tp" in over else None

    @property
    def shards(self) -> Count | None:
        """The devices that ZeRO shards over, where the other data shards hold copies of what these do."""
        over = stated_over(self.question) if self.zero else ()
        return self.question.mesh.size(*over) if over else None

    @property
    def schedule(self) -> str | None:
        """How stages take turns; null without stages."""
        return self.planned.candidate.layout.schedule or None

    @property
    def layers(self) -> CutBy | Sequence[int] | None:
        """How the stack is cut into stages: by a rule, or the layers of each chunk; null without stages."""
        if self.pp == 1:
            return None
        stated = self.question.stated.file.pipeline
        return stated.layers if stated else "even"

    @property
    def recompute(self) -> str:
        """What is run again, by its name; of what is held and has none the kernels."""
        dropped = self.question.practice.recompute
        names = {kernels: name for name, kernels in DROPS.items()}
        return self.planned.candidate.layout.recompute or names.get(dropped) or ",".join(dropped)

    @property
    def microbatch_size(self) -> Count:
        """Sequences of a microbatch on one data shard."""
        return self.question.workload.sequences // self.dp

    @property
    def behind(self) -> Number:
        """How much more than the best it takes, as a share of it."""
        return self.planned.value(self.by) / self.best.value(self.by) - 1

    @property
    def tied(self) -> bool:
        """True if what it is ranked by is that of the best, which is another layout."""
        return bool(self.rank > 1 and abs(self.behind) <= TIED)

    @property
    def loses(self) -> str:
        """Where it loses against the best, and where it wins, of as many tokens: the greatest parts, then all else.

        In seconds, or by money in that of a million tokens.
        """
        if self.rank == 1 or self.tied:
            return "tied with the best" if self.tied else ""
        then = self.best.outcome
        own, best = self.planned.spent(self.by, then), self.best.spent(self.by, then)
        apart = {name: own.get(name, 0) - best.get(name, 0) for name in (*own, *best)}
        least = LEAST * (sum(best.values()) if self.by in WITH_PROMPTS else then.step_s)
        parts = sorted((part for part in apart.items() if abs(part[1]) >= least), key=lambda part: -abs(part[1]))
        others = sum(s for _, s in parts[MOST:])
        told = parts if len(parts) <= MOST + 1 else [*parts[:MOST], ("others", others)]
        return (
            ", ".join(f"{'+' if s > 0 else '-'}{self._spent(abs(s))} {name}" for name, s in told if abs(s) >= least)
            or f"the same {'money' if self.by == 'money' else 'step'}"
        )

    def _spent(self, amount: float) -> str:
        return f"{amount:.4g}" if self.by == "money" else show(amount, "seconds")


def _served(row: Row, name: str) -> Any:
    """What the plan says of serving; None of training."""
    return attrgetter(name)(row.plan.serve) if row.question.inference else None


@dataclass(frozen=True, slots=True)
class Refused(Record):
    """Why layouts are none that can be planned.

    reason   the slug of the refusal
    layouts  how many
    example  what it says of the first of them
    """

    reason: str
    layouts: Count
    example: str


@dataclass(frozen=True, slots=True)
class Demanded(Record):
    """What the best layout is required to be.

    name      of the field
    required  its value
    found     the one that it has
    """

    told: ClassVar[tuple[str, ...]] = ("name", "required", "found", "ok")

    name: str
    required: int | bool | str
    found: int | bool | str | None

    @property
    def ok(self) -> bool:
        """True if it is so."""
        return self.required == self.found

    @property
    def text(self) -> str:
        """In words: ``best tp 8 holds``."""
        found = "there is none" if self.found is None else self.found
        return f"best {self.name} {self.required} " + ("holds" if self.ok else f"is violated: {found}")


TIED = 1e-9
"""The share by which layouts may differ that are said to be as good."""

LEAST, MOST = 1e-4, 3
"""The share of a step that a difference must make to be told, and how many are named where there are two more."""


def in_words(row: Row) -> str:
    """A layout: ``tp 8, dp 4, pp 2 (1f1b), 16 microbatches of 1, ZeRO 1, sequence parallel, recompute none``."""
    parts = [row.schedule] if row.schedule else []
    parts += [f"{row.chunks} chunks"] if row.chunks > 1 else []
    told = in_texts(row)
    parts += [] if told["layers"] in ("", "even") else [f"layers {told['layers']}"]
    turns = f" ({', '.join(parts)})" if parts else ""
    over = f" over {row.ep_over}" if row.ep_over else ""
    shared = [f"cp {row.cp}"] if row.cp > 1 else []
    shared += [f"ep {row.ep}{over}"] if row.ep > 1 else []
    parts = [f"tp {row.tp}", f"dp {row.dp}", *shared, f"pp {row.pp}{turns}"]
    if row.batch is None:
        over = f" over {row.shards}" if row.shards else ""
        parts += [f"{counted(row.microbatches, 'microbatch')} of {row.microbatch_size}", f"ZeRO {row.zero}{over}"]
    else:
        fills = getattr(row.question.stated.file.workload, "batch", None) == "largest"
        parts += [f"batch {row.batch}"] if fills else []
        parts += [f"{row.microbatches} microbatches"] if row.microbatches > 1 else []
    parts += [f"cache by {row.cache}"] if row.cache and row.tp > 1 else []
    parts += ["sequence parallel"] if row.sequence_parallel else []
    parts += [] if row.recompute == "none" else [f"recompute {row.recompute}"]
    parts += [told["placement"]] if told["placement"] else []
    return ", ".join([*(f"{SHORT.get(path, path)} {value}" for path, value in as_written(row).items()), *parts])


def as_written(row: Row) -> dict[str, Any]:
    """What is varied beside the layout, maps and lists as a scenario writes them: ``{base: fsdp2}``."""
    return {path: flow(value) if isinstance(value, Mapping | list) else value for path, value in row.varied.items()}


def in_texts(row: Row) -> dict[str, str]:
    """How the stack is cut, ``nearly-even``, and axes that do not lie as the rule has it, ``context on network``."""
    layers, placement = row.layers or "", row.placement.items()
    return {
        "layers": layers if isinstance(layers, str) else str([*layers]),
        "placement": ", ".join(f"{axis} on {' and '.join(levels)}" for axis, levels in placement),
    }


def otherwise(row: Row, than: Row) -> str:
    """What a layout has otherwise than another one, but for the data shards, which follow: ``pp 1, ZeRO 3``."""
    layout, other, told = row.planned.candidate.layout, than.planned.candidate.layout, in_texts(row)
    texts = {
        **{role: f"{role} {getattr(layout, role)}" for role in ("tp", "cp", "pp")},
        "experts": f"ep {row.ep}",
        "schedule": layout.schedule,
        "chunks": f"{layout.chunks} chunks" if layout.schedule else "",
        "layers": f"layers {told['layers']}" if told["layers"] else "",
        "microbatches": f"{layout.microbatches} microbatches",
        "zero": f"ZeRO {layout.zero}",
        "shards": f"over {row.shards or 'all data shards'}" if layout.zero else "",
        "sequence_parallel": "sequence parallel" if layout.sequence_parallel else "no sequence parallel",
        "recompute": f"recompute {row.recompute}",
        "cache": f"cache by {layout.cache}",
        "placement": told["placement"] or "placed by the rule",
    }
    others = [text for name, text in texts.items() if text and getattr(layout, name) != getattr(other, name)]
    return ", ".join([*others, *([f"batch {row.batch}"] if row.batch != than.batch else [])])
