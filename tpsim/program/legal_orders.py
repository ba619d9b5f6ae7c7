"""Whether a schedule can be run: every pass once, behind what it needs, and messages in the order they are wanted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, product

from tpsim.program.schedules import SENDING, STEP, Act, Pass, PipelineSchedule, made
from tpsim.quantity.errors import InputError


def checked(schedule: PipelineSchedule) -> PipelineSchedule:
    """The schedule, if it can be run: refused with the first action that cannot. `verify` asks before it runs one.

    Every pass once, on its rank; B behind F and W behind B; W of a chunk in order of microbatches, for their sum is a
    chain; messages of a channel leave in the order in which they are wanted, or two-sided sends would deadlock.
    """
    for rank in range(schedule.ranks):
        if mistake := _mistake(schedule, rank):
            raise _refused(schedule, mistake)
    _messages_in_order(schedule)
    return schedule


def _before(act: Act, chunk: int, schedule: PipelineSchedule) -> Iterator[tuple[Act, int, int]]:
    """The passes that its rank must have done before it can run one of `act` and `chunk`: so many microbatches back."""
    if len(schedule.orders) == 1 and act != "W" and 0 <= chunk - STEP[act] < schedule.chunks:
        yield act, chunk - STEP[act], 0
    if act == "B":
        yield "F", chunk, 0
    if act == "W":
        yield "B", chunk, 0
        yield "W", chunk, 1


def _mistake(schedule: PipelineSchedule, rank: int) -> str:
    """The first action of a rank that cannot be run, or what is missing; "" if it can run all of its passes."""
    done: set[Pass] = set()
    for at, action in enumerate(schedule.orders[rank]):
        for part in action:
            if wrong := _wrong(schedule, rank, part, done):
                return f"{part}, action {at} of rank {rank}, {wrong}"
            done.add(part)
    chunks = range(rank, schedule.ranks * schedule.chunks, schedule.ranks)
    due = (Pass(act, chunk, j) for chunk in chunks for j in range(schedule.microbatches) for act in ("F", "B", "W"))
    return next((f"{part} is missing on rank {rank}" for part in due if part not in done), "")


def _wrong(schedule: PipelineSchedule, rank: int, part: Pass, done: set[Pass]) -> str:
    """Why a rank that has `done` these passes cannot run `part` now; "" if it can."""
    act, chunk, j = part
    if not (0 <= chunk < schedule.ranks * schedule.chunks and 0 <= j < schedule.microbatches):
        return "is none of this pipeline's"
    if chunk % schedule.ranks != rank:
        return f"belongs to rank {chunk % schedule.ranks}"
    if part in done:
        return "comes twice"
    before = (Pass(act, of, j - back) for act, of, back in _before(act, chunk, schedule) if j >= back)
    return next((f"comes before {earlier}" for earlier in before if earlier not in done), "")


def _messages_in_order(schedule: PipelineSchedule) -> None:
    """Refuse a channel (sender, receiver, F or B) whose messages leave in another order than they are wanted."""
    ranks, m = schedule.ranks, schedule.microbatches
    inside = range(ranks * schedule.chunks * m)
    passes = [
        {way: [chunk * m + j for act, chunk, j in chain.from_iterable(order) if act == way] for way in SENDING}
        for order in schedule.orders
    ]
    for rank, way in product(range(ranks), SENDING) if ranks > 1 else ():
        step, other = STEP[way] * m, (rank + STEP[way]) % ranks
        leaving = [number for number in passes[rank][way] if number + step in inside]
        wanted = [number - step for number in passes[other][way] if number - step in inside]
        if leaving != wanted:
            pair = next(pair for pair in zip(leaving, wanted, strict=True) if pair[0] != pair[1])
            sent, due = (made(Pass, (way, *divmod(number, m))) for number in pair)
            text = f"rank {other} wants the message of {due} where rank {rank} sends that of {sent}"
            raise _refused(schedule, text)


def _refused(schedule: PipelineSchedule, text: str) -> InputError:
    return InputError.one("illegal-schedule", f"schedule {schedule.name} cannot be run: {text}")
