"""The changes that a plan weighs: one field each, priced as the plan itself is, and the best of them."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from tpsim.cost.collectives import GRADIENTS, WEIGHTS
from tpsim.program.layout import CacheLayout
from tpsim.program.practice import ALL_SHARDED, FULL
from tpsim.quantity.errors import InputError
from tpsim.quantity.size import total
from tpsim.question.edits import FLAGS, flag_words
from tpsim.question.scenario import resolve
from tpsim.report.record import Bytes, Of, Record, Seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tpsim.answers.plan import PlanResult
    from tpsim.question.memo import Memo
    from tpsim.question.question import Question

    Fitting = Callable[[Question, Memo], PlanResult | None]

LEAST = 0.01
"""The share of a step that a change must save to be worth a word."""


@dataclass(frozen=True)
class FieldChange(Record):
    """One field changed: the best of a few that were priced.

    set  as --set takes it
    old, new  the plan as it is, and with the change
    """

    told: ClassVar[tuple[str, ...]] = ("set", "time_s", "relative", "static_bytes", "peak_bytes")

    set: str
    old: PlanResult
    new: PlanResult

    time_s = Of[Seconds]("new.step.pace_s", "seconds of the step with it, of one with drafts by the token")

    @property
    def words(self) -> str:
        """As the command line asks for it, by the flag where that states the field: --set would contradict it."""
        path, _, value = self.set.partition("=")
        name = FLAGS.get(path, "").removeprefix("--").replace("-", "_")
        if self.old.question.stated.flags.get(name) is None:
            return f"--set {self.set}"
        return " ".join(flag_words({name: True if value == "true" else value}))

    @property
    def relative(self) -> float:
        """The change of the step as a share of it, below 0 is faster; by the token where the largest batch grows."""
        return float(self.new.step.pace_s / self.old.step.pace_s) * self.old.tokens / self.new.tokens - 1

    @property
    def static_bytes(self) -> Bytes:
        """What a chip then holds from step to step."""
        return float(self.new.memory.static_bytes)

    @property
    def peak_bytes(self) -> Bytes:
        """What it then holds where that is most."""
        return float(self.new.memory.peak_bytes)


def best_change(plan: PlanResult, fitting: Fitting) -> FieldChange | None:
    """The fastest of what a plan could be with one field changed; None if none is better.

    fitting  prices a question with the programs of a memo if its step fits the chip

    Where the peak outgrows the chip, a change is better that makes it fit. Elsewhere it must save `LEAST` of the step,
    and fit, too. None may violate a demand that the plan meets, nor make a prompt and its reply longer.
    """
    asked = (_changed(plan, setting, fitting) for setting in _settings(plan))
    better = [change for change in asked if change and (change.new.ok or not plan.ok) and not _later(plan, change.new)]
    best = min(better, key=lambda change: change.relative, default=None)
    return best if best and (plan.memory.room_bytes < 0 or best.relative <= -LEAST) else None


def _later(plan: PlanResult, new: PlanResult) -> bool:
    """True where replies would come later, though steps may be shorter: their prompts take longer."""
    reply_s, new_s = (serve.reply_s if serve else None for serve in (plan.serve, new.serve))
    if reply_s is None or new_s is None or plan.memory.room_bytes < 0:
        return False
    return bool(new_s / new.tokens > reply_s / plan.tokens)


def _changed(plan: PlanResult, setting: str, fitting: Fitting) -> FieldChange | None:
    """The plan with one field changed; None where it outgrows the chip, or where that is no legal question."""
    try:
        question = resolve(plan.question.stated.document, overrides=(setting,), memo=plan.memo)
        new = fitting(question, plan.memo)
    except InputError:
        return None
    return FieldChange(setting, plan, new) if new else None


def _settings(plan: PlanResult) -> Iterator[str]:
    """What could help: other stages of ZeRO, sequence parallelism, half the microbatches; for room more, and recompute.

    Of inference it is the cache split otherwise, where several chips hold the same parts of it, and as many parts of
    the batch on their way as there are stages.

    Leaving sequence parallelism is not among them, nor are microbatches where they decide the batch.
    """
    layout, mesh, parts = plan.question.layout, plan.question.mesh, plan.question.workload.microbatches
    full, least_s = plan.memory.room_bytes < 0, LEAST * plan.step.time_s
    exposed = plan.step.exposed_s >= least_s
    if plan.serve and plan.serve.copies > 1:
        yield from (f"layout.cache={word}" for word in get_args(CacheLayout))
    if plan.serve and (stages := plan.question.stages.ranks) > parts:
        yield f"workload.microbatches={stages}"
    if (full or _states_s(plan) >= least_s) and mesh.size(*layout.data) > 1:
        above, below = range(layout.zero + 1, ALL_SHARDED + 1), range(layout.zero)
        yield from (f"layout.zero={stage}" for stage in (above if full else (*below, *above[:1])))
    if full and FULL not in plan.question.practice.recompute:
        yield "recompute=full"
    if exposed and not layout.sequence_parallel and mesh.size(*layout.roles.get("tp", ())) > 1:
        yield "layout.sequence_parallel=true"
    if "workload.global_batch" in plan.question.left_open:
        return
    wanted, beside_states = float(plan.memory.peak.total), float(plan.memory.room_bytes + plan.memory.peak.total)
    if full and beside_states > 0:
        yield f"workload.microbatches={parts * 2 ** ceil(log2(wanted / beside_states))}"
    if not full and not parts % 2:
        yield f"workload.microbatches={parts // 2}"


def _states_s(plan: PlanResult) -> Any:
    """Seconds of the step that hang on parameters and gradients: the most that another stage of ZeRO could save.

    They are those of calls on its critical path, of the update, of the host and of stragglers; all else stays.
    """
    stages = plan.pipeline.step.told.stages if plan.pipeline else ()
    rows = {id(row.call): row for rows in (plan.rows, *(stage.rows for stage in stages)) for row in rows}
    moved = (row for row in rows.values() if not row.call.per_microbatch or row.call.sort in (GRADIENTS, WEIGHTS))
    calls_s = total(row.time_s * row.pulls for row in moved)
    return calls_s + plan.compute.seconds["update"] + plan.pacing.host_s + plan.pacing.stragglers_s
