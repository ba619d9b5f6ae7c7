"""What questions of one request share: the parts of a step that know nothing of what they differ in."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from tests.programs import told
from tpsim.program.kinds import one_each
from tpsim.program.stages import Chunk
from tpsim.question.memo import Memo, lowered
from tpsim.question.scenario import resolve

STEPS = {
    "gpt3-175b-a100-interleaved": {"dp": 2, "pp": 4, "tp": 8},
    "mixtral-8x7b-h100": {},
    "llama3-8b-v5e": {},
}


@pytest.mark.usefixtures("anew")
@pytest.mark.parametrize("name", STEPS)
def test_programs_that_begin_alike_are_those_that_each_is_alone(name):
    """ZeRO 0, 1 and 2 differ behind backward alone; 3 gathers weights in it; what is made again no update knows of."""
    memo = Memo()
    for zero, recompute in product((0, 1, 2, 3, 2), ("none", "selective", "full")):
        question = resolve(name, flags={**STEPS[name], "zero": zero}, overrides=[f"recompute={recompute}"], memo=memo)
        shared, alone = memo.lowered(question), lowered(question)
        assert told(shared.program) == told(alone.program)
        assert [one.array for one in shared.collectives] == [one.array for one in alone.collectives]
        assert [*changes(shared, question)] == [*changes(alone, question)]
    parts = {"forward": 2, "backward": 2 * 3, "gradients": 3 * 3, "turnover": 3 * 3, "stretches": 1}
    assert (len(memo.programs), Counter(part for part, *_ in memo.begun)) == (4 * 3, parts)
    (known,) = (made.known for (part, *_), made in memo.begun.items() if part == "stretches")
    written, trained = (
        Counter(what for what, *_ in known),
        sum(name.startswith("new.") for name in alone.program.results),
    )
    assert (written["end"], written["received"], written["applied"]) == (4, 4 * trained, 3 * trained)


def changes(lowered, question):
    """What actions make and free on a rank with two layers of each kind and both ends."""
    layers = tuple((kind, 2) for kind, _ in one_each(question.practice, question.model.stack))
    for acts in ("F", "B", "W", "BW"):
        for run, times in lowered.turnover().runs(Chunk(0, layers, first=True, last=True), acts):
            yield acts, [(str(array), sign) for array, sign in run], times
