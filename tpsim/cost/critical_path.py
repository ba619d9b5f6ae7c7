"""What the length of a step hangs on: the path of actions and messages to its end, counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpsim.cost.ran import Channel, Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tpsim.cost.own import Own, Tail
    from tpsim.cost.ran import Place, Ran
    from tpsim.cost.timed import Timed
    from tpsim.program.schedules import Action
    from tpsim.program.stages import Chunk


@dataclass(frozen=True, slots=True)
class Path:
    """From the first action of one rank to the end of another.

    chunks  of the stack
    kinds   what an action of each kind of the schedule takes, and `timed` what any does
    hop     seconds of a message between two ranks
    """

    ran: Ran
    first: int
    last: int
    chunks: Sequence[Chunk]
    kinds: Sequence[Timed]
    timed: Callable[[Action], Timed]
    hop: Callable[[int, int], Any]

    def counts(self) -> tuple[dict[str, int], dict[str, Any]]:
        """How often each pass and each send stands on it, and the seconds of each."""
        counts: Counter[str] = Counter()
        seconds: dict[str, Any] = {}
        tally = self._found(self.ran.critical(self.last))
        apart = len({self.hop(*item[1:]) for item in tally if isinstance(item, tuple)}) > 1
        for item, count in tally.items():
            if isinstance(item, tuple):
                _, source, target = item
                name, s = f"send_{source}_{target}" if apart else "send", self.hop(source, target)
            else:
                name, s = self._named(item)
            counts[name] += count
            seconds[name] = s
        order = sorted(counts, key=lambda name: (name.startswith("send"), name.partition("_")[2], "FBW".find(name[0])))
        return {name: counts[name] for name in order if counts[name]}, seconds

    def pulls(self, own: Own, tail: Tail, sends: Mapping[Any, int]) -> Counter[int]:
        """How often each call stands on it, those once per step and in the tail of the last rank, too.

        own    what the last rank does
        sends  the call that sends, by its act
        """
        once = [*own.single, *own.shared]
        pulls: Counter[int] = Counter({id(row.call): row.count for row in once})
        late = tail.path if tail.late_s else ()
        for _, timed in late[1:]:
            pulls.update(timed.busy.calls)
        for _, timed in late[:1]:
            pulls.update(timed.tail.calls)
        for item, count in self._found(self.ran.critical(self.last, late[0][0] if late else None)).items():
            if isinstance(item, tuple):
                pulls[sends[item[0]]] += count
            else:
                pulls.update(self.kinds[item].through.times(count).calls)
        return pulls

    def _found(self, path: Iterable[Place | Message]) -> dict[int | Channel, int]:
        """How often each kind of action stands on a path, and the messages of each channel.

        Less those before the first rank's first action: they lead to its start as well as to the end.
        """
        tally = Counter(map(self._sort, path))
        tally.subtract(map(self._sort, self.ran.critical(self.first, 0)))
        return {item: count for item, count in tally.items() if count}

    def _sort(self, task: Place | Message) -> int | Channel:
        """The channel of a message, the kind of an action."""
        return task.channel if isinstance(task, Message) else self.ran.schedule.kinds.of[task[0]][task[1]]

    def _named(self, kind: int) -> tuple[str, Any]:
        """An action by its acts and its chunk's place in the stack."""
        action, timed = self.ran.schedule.kinds.examples[kind], self.kinds[kind]
        acts, j = "".join(part.act for part in action), action[-1].microbatch
        where = self._place(self.chunks[action[0].chunk])
        plain = self.timed(tuple(part._replace(microbatch=-1) for part in action))
        odd = "" if timed.through.seconds == plain.through.seconds else f"_of_{j}"
        return f"{acts}{where}{odd}", timed.through.seconds

    def _place(self, chunk: Chunk) -> str:
        """Where a chunk stands, and its layers if those between the ends are unlike."""
        if chunk.first != chunk.last:
            return "_first" if chunk.first else "_last"
        apart = len({other.layers for other in self.chunks[1:-1]}) > 1
        return f"_{chunk.layers}" if apart else ""
