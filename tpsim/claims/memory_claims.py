"""What chips hold: the plan's fold over the orders of ranks against the bytes that devices of the run held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.claims.checks import Check, judged
from tpsim.program.op import Leaf
from tpsim.report.numbers import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.answers.memory import ChipMemory
    from tpsim.claims.trial import Trial
    from tpsim.reference.execute import Run


def memory_check(seen: Trial) -> Check:
    """Highest point and end of every action on every device, and what is held from step to step, byte for byte.

    Interiors of fused kernels run and are not counted; buckets of gradients do not run.
    """
    each, run = seen.plan.each, seen.sharded
    actions = sum(len(levels) for levels in run.live.levels.values())
    wrong = [text for rank in each for text in (*_states(rank, run), *_course(rank, run))]
    text = f"{counted(actions, 'action')} of {counted(len(each), 'rank')}, each with the bytes that its devices held"
    return judged("memory", text, wrong, tried=actions)


def _course(rank: ChipMemory, run: Run) -> Iterator[str]:
    levels = run.live.levels[rank.peak_rank]
    if len(levels) != len(rank.peak.course):
        yield f"rank {rank.peak_rank} ran {len(levels)} actions, claimed were {len(rank.peak.course)}"
    for (action, most, left), devices in zip(rank.peak.course, levels, strict=False):
        for counts in sorted(set(devices) - {(most, left)}):
            yield (
                f"action {action} of rank {rank.peak_rank} held {counts[0]:,} bytes at most and {counts[1]:,} at its "
                f"end, claimed were {most:,} and {left:,}"
            )


def _states(rank: ChipMemory, run: Run) -> Iterator[str]:
    """Weights and the optimizer's states as they come in, and what is held of them by a device of the rank."""
    for role, claimed in (("param", rank.parameters_bytes), ("state", rank.optimizer_bytes)):
        leaves = [op.output for op in run.program.ops if isinstance(op, Leaf) and op.output.role == role]
        for device in run.of_rank(rank.peak_rank):
            size = sum(run.bytes_on(device, array) for array in leaves)
            if size != claimed:
                yield f"device {device} holds {size:,} bytes of role {role}, claimed were {claimed:,}"
