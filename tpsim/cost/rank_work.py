"""A rank of a pipeline by itself: what it does, when it has ended, and what it waits for behind its order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.cost.rollup import Row, wires_s
from tpsim.quantity.size import total

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpsim.cost.compute import Compute
    from tpsim.cost.timed import Timed


@dataclass(frozen=True)
class RankWork:
    """What a rank does whoever its neighbours are.

    rows    the collectives that it takes part in, with its calls
    once_s  seconds that it computes once per step, before what several ranks have together
    late_s  seconds that it computes once it has that
    single  those that run once per step, and hold it up
    shared  those of them that several ranks have together; single, and behind, are before and after these
    """

    rows: tuple[Row, ...]
    compute: Compute
    once_s: Any
    late_s: Any
    single: list[Row]
    shared: list[Row]
    behind: list[Row]

    @cached_property
    def shared_s(self) -> Any:
        """Seconds of what it has together with others."""
        return total(row.busy_s for row in self.shared)

    @cached_property
    def behind_s(self) -> Any:
        """Seconds of what it does alone once it has that."""
        return total(row.busy_s for row in self.behind) + self.late_s

    @cached_property
    def wires_s(self) -> dict[str, Any]:
        """Seconds in which it fills the links of each level, but for what several ranks do together behind all else."""
        return wires_s(row for row in self.rows if not row.call.shared)


class Lead(NamedTuple):
    """How long before its first action a rank begins to gather, if none of its first forwards is to wait for weights.

    seconds  0 where they are there whenever messages come
    place    the number of the action that would wait longest
    calls    how often each call stands on the way to its end
    spent    seconds of all gathers until then, by call
    """

    seconds: Any = 0
    place: int = 0
    calls: Mapping[int, int] = {}
    spent: Mapping[int, Any] = {}

    def exposed(self, seconds: Any) -> dict[int, Any]:
        """What a rank waits for weights, by call."""
        whole = total(self.spent.values())
        return {call: seconds * s / whole for call, s in self.spent.items()} if seconds else {}


class RankSpan(NamedTuple):
    """A rank from the start of its first action until it has ended, in seconds from the first start of all.

    lead_s  before that it waits so long for weights
    """

    rank: int
    start: Any
    end: Any
    lead_s: Any = 0

    @property
    def seconds(self) -> Any:
        """How long that is."""
        return self.end - self.start + self.lead_s


@dataclass(frozen=True, slots=True)
class FullLinks:
    """The links that a rank fills longest, and whether it must wait for them.

    tasks_s  when its tasks have ended, as if every sort of collective had links of its own
    lead     what it gathers before them
    late_s   seconds that the links need beyond that
    """

    rank: int
    tail: Tail
    wire: str
    tasks_s: Any
    lead: Lead
    late_s: Any

    @property
    def end(self) -> Any:
        """When both have ended."""
        return self.tasks_s + self.late_s

    def spread(self, rows: list[Row]) -> list[Row]:
        """The rows with these seconds exposed, shared by what was hidden of those on the links."""
        hidden = [row.hidden_s if self.wire in row.wires_s and not row.call.shared else 0 for row in rows]
        if not (self.late_s and any(hidden)):
            return rows
        part = self.late_s / total(hidden)
        return [replace(row, exposed_s=row.exposed_s + s * part) for row, s in zip(rows, hidden, strict=True)]


@dataclass(frozen=True, slots=True)
class Tail:
    """Reductions of gradients beside compute that a rank waits for at its end.

    path    the actions whose reductions follow each other without a pause until then, by place in the order
    late_s  seconds from the end of the rank's order until then
    """

    path: tuple[tuple[int, Timed], ...]
    late_s: Any

    @property
    def exposed(self) -> dict[int, Any]:
        """These seconds by call: walked back from the last."""
        left, shares = self.late_s, Counter[int]()
        for _, timed in reversed(self.path):
            for call, seconds in reversed(timed.settled):
                part = min(left, seconds)
                shares[call] += part
                left -= part
        return dict(shares)


@dataclass(frozen=True, slots=True)
class Stage:
    """One rank of the pipeline in a step.

    rows       the collectives that it takes part in, its own calls counted; what it waits for a message that is on its
               way is exposed, sent or received
    compute    its kernels
    bubble_s   seconds in which it waits for other ranks, from the step's start to its end; for messages on their way,
               too, where it sends none itself
    host_s     seconds by which its actions take longer since a host launches them
    stragglers_s  and since gathers of weights wait for the last rank
    in_flight  microbatches of all its chunks between forward and backward, at most
    own_s      when it has done what it does alone: what several stages have together comes behind that
    behind_s   seconds of what it does alone once it has that
    """

    rank: int
    layers: int
    rows: tuple[Row, ...]
    compute: Compute
    bubble_s: Any
    in_flight: float
    own_s: Any
    host_s: Any = 0
    stragglers_s: Any = 0
    behind_s: Any = 0

    @property
    def exposed_s(self) -> Any:
        """Seconds of its communication that no compute hides."""
        return total(row.exposed_s for row in self.rows)
