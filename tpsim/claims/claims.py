"""The claim checker: a ledger held against a counted ledger. Calls, bytes, formulas, and what chips hold."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tpsim.claims.checks import Check, judged
from tpsim.claims.counted import BOOK, RanCall, by_sort, exact_bytes, injected, planned, sent
from tpsim.cost import formula
from tpsim.machine.algorithms import EVERY
from tpsim.program.op import Leaf
from tpsim.report.numbers import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tpsim.answers.memory import ChipMemory
    from tpsim.claims.counted import Sort
    from tpsim.claims.trial import Trial
    from tpsim.cost.rollup import Row
    from tpsim.fabric.wires import Route
    from tpsim.machine.profile import Machine
    from tpsim.reference.calls import Call
    from tpsim.reference.run import Run

OWN_WIRE = frozenset(check.name for check in EVERY if check.copies)
"""Algorithms that inject other bytes than the least, which is what `wire` is; they are held by what they carry."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A row of a ledger: what is claimed of one of its calls, and the calls that devices made for it.

    due      how often all devices together make it
    machine  whose wires it crosses; without one only its bytes are claimed
    """

    row: Row
    due: int = 1
    machine: Machine | None = None
    route: Route = ()

    @property
    def sorts(self) -> list[Sort]:
        """Of every array that travels in it."""
        return planned(self.row.call)

    @property
    def least_injected(self) -> bool:
        """True if the algorithm injects the least bytes that any could, which is what `wire` says."""
        timing = self.row.timing
        return not OWN_WIRE & {timing.algorithm, *(stage.algorithm for stage in timing.stages)}

    @property
    def measures(self) -> Iterator[tuple[str, Any, Callable[[Call], Fraction]]]:
        """What is claimed of one call, and how it is counted in a run: what devices inject, and what they send."""
        if self.least_injected:
            yield "wire", self.row.wire_bytes_per_device, injected
        if self.machine and self.row.timing.algorithm != BOOK and self.row.collective != "send":
            yield "carried", self.row.timing.carried, sent


@dataclass(frozen=True, slots=True)
class Ledger:
    """The claims of one program beside what devices did when they ran it.

    known  what the symbols in its formulas stand for
    way    in front of what is found: which of several programs it is of
    """

    claims: Sequence[Claim]
    made: Sequence[RanCall]
    known: Mapping[str, int]
    way: str = ""
    calls: Mapping[Sort, Sequence[Call]] = field(init=False)

    def __post_init__(self) -> None:
        """Sort the calls once."""
        object.__setattr__(self, "calls", by_sort(self.made))

    def of(self, claim: Claim) -> list[Sequence[Call]]:
        """The calls of each array that travels in a claimed one; none if those of any are missing."""
        counted_calls = [self.calls.get(sort, ()) for sort in claim.sorts]
        return counted_calls if all(counted_calls) else []


def collectives_check(ledgers: Sequence[Ledger], seen: str) -> Check:
    """Nothing missing, nothing extra, and every call as many bytes as its row says."""
    wrong = [text for ledger in ledgers for text in (*_wrong_counts(ledger), *_wrong_bytes(ledger))]
    return judged("collectives", seen, wrong, tried=max(ran(ledgers), sum(len(way.claims) for way in ledgers)))


def ran(ledgers: Sequence[Ledger]) -> int:
    """The calls that devices made."""
    return sum(len(ledger.made) for ledger in ledgers)


def _wrong_counts(ledger: Ledger) -> Iterator[str]:
    due: Counter[Sort] = Counter()
    for claim in ledger.claims:
        for sort in claim.sorts:
            due[sort] += claim.due
    for sort in {**due, **ledger.calls}:
        calls = len(ledger.calls.get(sort, ()))
        if calls != due[sort]:
            yield f"{ledger.way}{sort}: planned {due[sort]} times, ran {calls} times"


def _wrong_bytes(ledger: Ledger) -> Iterator[str]:
    """What a row says of its wire and what it carries, where the devices of its calls sent something else."""
    for claim in ledger.claims:
        calls = ledger.of(claim)
        for noun, claimed, measure in claim.measures if calls else ():
            ran = {sum(measure(call) for call in together) for together in zip(*calls, strict=False)}
            if ran != {Fraction(claimed)}:
                seen = " or ".join(map(exact_bytes, sorted(ran)))
                yield f"{ledger.way}{claim.sorts[0]}: {noun} planned {exact_bytes(claimed)}, counted {seen}"


def formulas(ledger: Ledger) -> Iterator[str]:
    """Per claim whose calls ran: "" where its formula comes to the bytes that were counted, else what does not."""
    for claim in ledger.claims:
        calls = ledger.of(claim)
        if calls and claim.least_injected:
            text = claim.row.formula
            claimed, seen = formula.evaluated(text, ledger.known), sum(injected(calls[0]) for calls in calls)
            yield "" if claimed == seen else f"{ledger.way}{claim.sorts[0]}: {text} is {claimed}, counted {seen}"


def formulas_check(tried: Sequence[str], seen: str) -> Check:
    """What was tried of formulas, each "" where it holds."""
    return judged("formulas", seen, [text for text in tried if text], tried=len(tried))


def memory_check(seen: Trial) -> Check:
    """Highest point and end of every action on every device, and what is held from step to step, byte for byte.

    Interiors of fused kernels run and are not counted; buffers of buckets do not run, and are left out of both sides.
    """
    chips, run = seen.plan.each, seen.sharded
    actions = sum(len(levels) for levels in run.live.levels.values())
    wrong = [text for rank in chips for text in (*_states(rank, run), *_course(rank, run))]
    text = f"{counted(actions, 'action')} of {counted(len(chips), 'rank')}, each with the bytes that its devices held"
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
