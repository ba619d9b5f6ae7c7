"""How far a plan can be trusted: what it leaves out, what it takes for granted, and how sure its step is.

A step has a band, where eight of ten published runs like it would lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import exp, hypot, inf, log
from typing import TYPE_CHECKING, Any, ClassVar

from tpsim.cost.buckets import JOINED
from tpsim.cost.compute import flops_counted
from tpsim.machine.evidence import BandFields, evidence
from tpsim.program.dtypes import IN_LAYERS
from tpsim.quantity.size import total
from tpsim.quantity.units import show
from tpsim.question.context import reaches
from tpsim.question.prices import pricer
from tpsim.report.answer import Assumption
from tpsim.report.record import Count, Record, Seconds

if TYPE_CHECKING:
    from tpsim.answers.plan import PlanResult
    from tpsim.cost.rollup import Row
    from tpsim.question.question import Question


SLOWED = "kernels that slow collectives beside them, and each other"

DISTURBED = (
    "collectives that disturb each other on shared links, but that these need no less than all of their bytes take"
)

NOT_MODELLED = (
    SLOWED,
    "jitter, stragglers but where weights and gradients of layers travel, data loading, checkpoints, failures",
    "memory that stands in no list of arrays: what a library works in",
    DISTURBED,
)
"""What a plan leaves out, so that nobody takes its seconds for a promise: every page names the first ones."""

NO_HOST = "a host that launches kernels more slowly than they run: assume.kernel_launch states its seconds"

NO_STRAGGLERS = "stragglers: no figure of the chip says how late they come, hardware.chip.interruption would"

NOT_FORWARDED = "copies of tokens that go on inside a node while others still come to it: levels take turns"

TAKEN_BACK = "updates that a norm which comes behind them takes back, and does once more: practice.clip: deferred"

CASTS = "kernels that bring what products read to {}"
NARROWED = f"{CASTS}, and stacks that gather it, and keep it for backward, so"

NO_NORM = "the norm of all gradients, a sum over all chips that stages wait for: practice.clip: norm has it"

NOT_SERVED = (
    SLOWED,
    "jitter, stragglers, failures",
    "memory that stands in no list of arrays: what a library works in, graphs",
    "queues, sequences of unlike lengths",
    DISTURBED,
)
"""The same of a plan of inference."""

UNPAGED = "blocks of a paged cache that are not full: workload.cache_block states their tokens"

SPECULATED = "drafts as trees, acceptance that falls from draft to draft, what draws and compares their probabilities"

IN_TURN = "pieces of prompts read beside decoding: workload.step_tokens states the tokens of such a step"

SENT_LAYERS = "caches sent layer by layer while their prompt is read; requests that servers of prompts wait for"

RETURNED = "tokens on their way from the last stage, which samples them, to the first"

ALONE = "kernels run one after another, each at the slower of matrix unit and memory"
ADAMW = "the optimizer is AdamW: master weights and two moments of every parameter, updated by one kernel per layer"
AT_ONCE = "prompts are read at once, with all of their batch; all sequences of a batch are as long"
BESIDE = "a sequence begins as one ends, evenly over time, and none waits for a slot; all are as long"
"""How prompts are read: all of a batch in one step, or in pieces beside decoding."""

SERVED = ("products that leave units of the chip without a tile are cut so that all of them work on what there is",)
"""What every plan of inference takes for granted, beside that."""

PLAIN = "attention is plain: scores go through memory, the whole s by s"
FUSED: Mapping[str, str] = {
    "skip": "attention is one kernel: scores stay on the chip, those that the causal mask hides are left out",
    "whole": "attention is one kernel: scores stay on the chip, the whole s by s is computed",
}
"""What the switch attention of a practice comes to, and causal where it is fused."""


def taken_for_granted(question: Question) -> tuple[str, ...]:
    """What every plan of such a question takes for granted."""
    practice, dims = question.practice, question.workload.dims(question.model)
    counted = flops_counted(question.assume.mfu, dims)
    rates = f"MFU and HFU count {counted}; HFU counts what is run again or repeated, too"
    attention = FUSED[practice.causal] if practice.attention == "fused" else PLAIN
    if not question.inference:
        return attention, ALONE, ADAMW, rates
    return attention, ALONE, BESIDE if question.inference.budget else AT_ONCE, *SERVED, rates


def not_modelled(question: Question) -> tuple[str, ...]:
    """What the plan of a question leaves out, beside `NOT_MODELLED` what it could have and does not ask for."""
    host = () if question.assume.kernel_launch_s else (NO_HOST,)
    forwarded = (NOT_FORWARDED,) if question.practice.rows.dispatch in {"node", "node_rank"} else ()
    casts = CASTS if question.inference else NARROWED
    narrow = (casts.format(question.products),) if question.products in IN_LAYERS else ()
    if question.inference:
        return (*NOT_SERVED, *host, *forwarded, *narrow, *_beside_steps(question))
    late = () if question.machine.chip.interruption else (NO_STRAGGLERS,)
    norm = {"none": (NO_NORM,), "deferred": (TAKEN_BACK,)}.get(question.practice.clip, ()) if question.schedule else ()
    return (*NOT_MODELLED, *host, *late, *norm, *forwarded, *narrow, *_reach(question))


def _beside_steps(question: Question) -> Iterator[str]:
    """Of inference what is not modelled of caches, between stages and servers, and of drafts."""
    work = question.inference
    there = {
        UNPAGED: not work or work.block <= 1,
        IN_TURN: work and work.kind == "serve" and not work.budget and not question.prompts,
        RETURNED: question.schedule,
        SPECULATED: work and work.drafted,
        SENT_LAYERS: question.prompts,
    }
    return (text for text, stands in there.items() if stands)


def _reach(question: Question) -> Iterator[str]:
    """Of a window whose keys are gathered whole what a device would need of its neighbour."""
    for tokens, needed, gathered in sorted(reaches(question)):
        needs, sent = (show(float(size), "bytes") for size in (needed, gathered))
        yield (
            f"a window of {tokens:,} tokens reads no more than {needs} of what stands before a device's own tokens; "
            f"{sent} of every layer with one are gathered, as frameworks do"
        )


def unbucketed(plan: PlanResult) -> Iterator[str]:
    """Of a stack that sends the gradients and new weights of all layers at once what calls for both its ends add."""
    priced = pricer(plan.question)
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in plan.rows:
        if row.op in JOINED and not row.call.per_microbatch:
            groups.setdefault((row.op, row.collective, row.axis), []).append(row)
    most: Any = 0
    for rows in groups.values():
        if {row.count for row in rows} == {1} and any(row.call.layers > 1 for row in rows):
            at_once = priced(rows[0].call.parts[0].move, total(row.payload_bytes for row in rows))
            exposed, less = (total(getattr(row, name) for row in rows) for name in ("exposed_s", "busy_s"))
            most += max(0, min(exposed, less - at_once.time_s))
    if most > TOLD * plan.step.time_s:
        yield (
            "buckets with the embedding and the head in them: what these send travels beside the layers' bucket; "
            f"in one call it would take {show(float(most), 'seconds')} less"
        )


TOLD = 0.01
"""The share of a step from which on it is said that fewer calls would take less."""

ABOVE_PEAK = "a share above 1 counts scores that the mask hides, which are not run (assume.mfu: causal counts none)"
"""Of MFU and HFU, where attention leaves out half of what is by convention counted whole."""


def assumed(plan: PlanResult) -> Iterator[Assumption]:
    """What a plan rests on beside its scenario's own assumptions: the measured curves used, then every plan's."""
    for curve in dict.fromkeys(curve for row in plan.rows for curve in row.timing.curves):
        from tpsim.machine.curve_file import summary

        yield Assumption(f"as measured: {summary(curve)}", "stated")
    ways = (*taken_for_granted(plan.question), *(plan.pipeline.assumed if plan.pipeline else ()))
    yield from (Assumption(text, "model") for text in ways)
    if plan.question.assume.mfu == "full" and max(plan.step.mfu, plan.step.hfu) > 1:
        yield Assumption(ABOVE_PEAK, "model")
    tied, most = plan.question.tied, evidence().waited.get(plan.question.machine.chip.generation, inf)
    if plan.step.stragglers_s and tied > most:
        yield Assumption(f"{tied:,} chips wait for the last of them as {most:,} do in published runs", "guess")


def idle_chips(question: Question) -> Iterator[str]:
    """Chips that are paid for in vain: outside the mesh, or on axes without a role, and what would give one."""
    yield from question.placement.idle
    free = [role for role in ("tp", "dp") if not question.layout.roles.get(role)]
    roles = dict(zip(reversed(question.idle_axes), free, strict=False))  # the minor axis is that of tensor parallelism
    for axis in question.idle_axes:
        size = question.mesh.axes[axis]
        remedy = f"give it one: --{roles[axis]} {axis}" if axis in roles else "add it to layout.tp or layout.dp"
        yield f"axis {axis} {size} is used by no role: its chips repeat the same work; {remedy}"


@dataclass(frozen=True, slots=True)
class Band(Record):
    """Where at least eight of ten runs of the kind lie, if they are as the published ones are.

    of     what published runs its errors are of
    runs   how many there are, of so many sets
    why    what makes it wide, where that is not these runs alone
    """

    told: ClassVar[tuple[str, ...]] = ("low_s", "high_s", "of", "runs", "sets", "why?")

    low_s: Seconds
    high_s: Seconds
    of: str
    runs: Count
    sets: Count
    why: str | None = None

    @property
    def text(self) -> str:
        """In words."""
        low, high = (show(float(seconds), "seconds") for seconds in (self.low_s, self.high_s))
        known = f"8 of 10 published runs {self.of} ({self.runs} runs of {self.sets} sets)"
        return f"{low} to {high}: so near their plans lie {known}{f'; {self.why}' if self.why else ''}"


NORMAL = 1.2816
"""The ninetieth of a hundred of a normal variable, in deviations."""


def band(question: Question, time_s: float, at_launch: Callable[[float], float]) -> Band:
    """The band of a step of so many seconds, from errors that its constants were not fitted by.

    at_launch  seconds of the step with this launch of its host: a guessed one widens the band
    """
    # what sets a run apart from all published ones that were scored
    never_seen = {"experts": bool(question.model.experts), "context parallelism": "cp" in question.layout.roles}
    unlike = "".join(f" with {sort}" for sort, there in never_seen.items() if there)
    entry = _of_kind(question, known=not unlike)
    few = f"the widest band, as too few{unlike or ' on such chips'} are known"
    ends, why = (log(entry.low), log(entry.high)), [] if entry.generation or entry.calibrated else [few]
    launch = question.assume.kernel_launch
    if launch and launch.kind == "guess":
        wide = NORMAL * evidence().shares.launch
        off = [log(at_launch(launch.value * exp(by)) / time_s) for by in (-wide, wide)]
        ends, why = (-hypot(ends[0], off[0]), hypot(ends[1], off[1])), [*why, "wider by its guessed launch"]
    low, high = (time_s * exp(end) for end in ends)
    return Band(low, high, _words(entry), entry.runs, entry.sets, "; ".join(why) or None)


def _of_kind(question: Question, *, known: bool) -> BandFields:
    """The band of its kind; of what no published run has, the last one."""
    chip = question.machine.chip
    measured = any(constant.kind == "measured" for constant in chip.constants() if constant.path.endswith(SHARE))
    return evidence().band(chip.generation if known else "", calibrated=known and measured)


SHARE = "matmul_efficiency"
"""What own runs move first of all: measured, it makes a machine calibrated."""


def _words(entry: BandFields) -> str:
    if entry.calibrated:
        return "on machines that one of their own runs had moved"
    if entry.generation is None:
        return "of other kinds"
    return f"on {entry.generation} chips"
