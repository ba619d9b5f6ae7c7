"""Copies of this process that work beside it: each has what was known when it was made, and keeps what it finds."""

from __future__ import annotations

import os
import struct
import sys
import threading
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection

State = TypeVar("State")

MOST = 8
"""Processes that share a search, whose programs are a few dozen."""

SIDES = LAST, FIRST = 1, 0
"""The side on which a process takes what is left."""

LEFT = struct.Struct("qq")
"""What processes pass on: the first of the numbers that nobody has taken, and the one behind the last."""


class Turn(NamedTuple):
    """Where a process takes numbers.

    there, here  the ends of the pipe that has what is left
    side         on which it takes
    original     the process that asks
    """

    there: int
    here: int
    side: int
    original: int


def processors() -> int:
    """Those that a search may use; one where a process cannot be copied as it stands."""
    return min(MOST, len(os.sched_getaffinity(0))) if sys.platform == "linux" else 1


class Copies(Generic[State]):
    """Processes forked from this one, which call functions of the state as it stood then.

    A process that runs several threads is not copied, for what these hold would never be let go; nor is one of a pool,
    which may have none of its own. Copies end when nothing refers to them any more.

    ends  where each is asked and tells
    turn  who reads the number in it takes that, and puts in the next one
    """

    def __init__(self, state: State, count: int) -> None:
        self.state = state
        self.ends: list[Connection] = []
        if count < 1 or threading.active_count() > 1:
            return
        from multiprocessing import current_process, get_context

        if current_process().daemon:
            return
        context = get_context("fork")
        self.turn = context.Pipe(duplex=False)
        for _ in range(count):
            here, there = context.Pipe()
            self.ends.append(here)
            copy = context.Process(target=_answer, args=(there, state, self.ends), daemon=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of the idle threads of numpy's products
                copy.start()
            there.close()

    def __getstate__(self) -> dict[str, Any]:
        """None of them, and nothing of what they know: they stay with the process that made them."""
        return {"state": None, "ends": []}

    def __len__(self) -> int:
        return len(self.ends)

    def ask(self, copy: int, function: Callable[..., Any], *asked: Any) -> None:
        """Have one of them call a function of its state; `told` gives what that comes to, in the order asked."""
        with _no_more():
            self.ends[copy].send((function, asked))

    def told(self, copy: int) -> Any:
        """What one of them was asked for. Raises what it raised, and InputError if it is no more."""
        with _no_more():
            value, error = self.ends[copy].recv()
        if error is not None:
            raise error
        return value

    def shared(
        self,
        function: Callable[..., Any],
        asked: Sequence[tuple[Any, ...]],
        here: Callable[[int], Any],
        begun: Callable[[int], None] = lambda _: None,
    ) -> list[tuple[int | None, Any]]:
        """What a function of the state makes of several things: who is free takes the next one.

        Every other process begins with the last, so that who takes several takes such as lie side by side. With each
        stands which copy made it; None if this process did.

        here   what this process makes of the one of a number instead
        begun  is told whenever this process begins with one how many others were begun with before
        """
        count = len(asked)
        made: dict[int, tuple[int | None, Any]] = {}
        if count < len(SIDES) or not self.ends:
            for at in range(count):
                begun(at)
                made[at] = None, here(at)
            return [*made.values()]
        turn = Turn(self.turn[0].fileno(), self.turn[1].fileno(), FIRST, os.getpid())
        os.write(turn.here, LEFT.pack(0, count))
        for copy in range(len(self)):
            self.ask(copy, _taken, turn._replace(side=SIDES[copy % len(SIDES)]), function, asked)
        for at, left in _taking(turn):
            begun(count - 1 - left)
            made[at] = None, here(at)
        for copy in range(len(self)):
            made |= {at: (copy, value) for at, value in self.told(copy).items()}
        os.read(turn.there, LEFT.size)
        return [made[at] for at in range(count)]


class Remote:
    """A function that a copy calls: it may begin before the value is asked for."""

    def __init__(self, copies: Copies[Any], copy: int, function: Callable[..., Any], *asked: Any) -> None:
        self.copies, self.copy, self.function, self.asked, self.begun = copies, copy, function, asked, False

    def begin(self, *more: Any) -> None:
        """Have the copy begin; whoever asks for the value next says the same."""
        self.copies.ask(self.copy, self.function, *self.asked, *more)
        self.begun = True

    def __call__(self, *more: Any) -> Any:
        """What the copy says."""
        if not self.begun:
            self.begin(*more)
        self.begun = False
        return self.copies.told(self.copy)


@contextmanager
def _no_more() -> Iterator[None]:
    """Raise InputError where a copy turns out to be no more."""
    try:
        yield
    except (EOFError, ConnectionError):
        message = "a process that shared the search was ended by the system, for want of memory perhaps"
        raise InputError.one("process-ended", message, remedy="search with one: --workers 1") from None


def _taken(state: Any, turn: Turn, function: Callable[..., Any], asked: Sequence[tuple[Any, ...]]) -> dict[int, Any]:
    """What a copy makes of those that it takes, as long as the process is there that it is a copy of."""
    made: dict[int, Any] = {}
    for at, _ in _taking(turn):
        if os.getppid() != turn.original:
            os._exit(0)
        made[at] = function(state, *asked[at])
    return made


def _taking(turn: Turn) -> Iterator[tuple[int, int]]:
    """The numbers that a process takes, until none is left, and how many are left then."""
    while True:
        first, behind = LEFT.unpack(os.read(turn.there, LEFT.size))
        some = first < behind
        os.write(turn.here, LEFT.pack(first + (some and turn.side == FIRST), behind - (some and turn.side == LAST)))
        if not some:
            return
        yield first if turn.side == FIRST else behind - 1, behind - first - 1


def _answer(end: Connection, state: Any, others: Sequence[Connection]) -> None:
    """A copy: call what it is asked for until nobody asks any more."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asks is interrupted, and asks no more
    nothing = os.open(os.devnull, os.O_WRONLY)
    for output in (1, 2):  # who reads what is printed need not wait until this process has ended, too
        os.dup2(nothing, output)
    for other in others:
        other.close()
    try:
        while True:
            function, asked = end.recv()
            try:
                end.send((function(state, *asked), None))
            except Exception as error:  # noqa: BLE001 - told to who asked
                end.send((None, error))
    except (EOFError, ConnectionError):
        os._exit(0)
