"""How long a step is: from a rank's first action to its first of the next step, with ranks that end together or not."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cost.test_orders import span
from tpsim.cost.compute import Compute
from tpsim.cost.orders import run
from tpsim.cost.pipeline import Work
from tpsim.cost.rank_work import RankWork
from tpsim.cost.sizes import Sizes
from tpsim.cost.timed import Length, Timed
from tpsim.program.op import Where
from tpsim.program.schedules import SCHEDULES, pipeline_schedule
from tpsim.program.stages import Chunk, Stages


class Given(Work):
    """Ranks whose passes take given seconds, by act and chunk, and who have something together or nothing."""

    def timed(self, action):
        return Timed(Length(sum(self.clock.seconds[part.act, part.chunk] for part in action)))

    @property
    def settling(self):
        return frozenset()

    @property
    def gathered(self):
        return {}

    @property
    def begun(self):
        return [0] * self.stages.ranks

    @property
    def kinds(self):
        return [self.timed(action) for action in self.schedule.kinds.examples]

    @property
    def own(self):
        busy = self.clock.together_s
        together = [SimpleNamespace(busy_s=busy, call=None, count=1)] if busy else []
        works = [
            self.schedule.microbatches * sum(s for (_, chunk), s in self.clock.seconds.items() if chunk % ranks == rank)
            for ranks in [self.stages.ranks]
            for rank in range(ranks)
        ]
        return [RankWork((), Compute({"forward": s}, (), Sizes({}, {}, {})), 0, 0, [], together, []) for s in works]


def work(name, p, m, seconds, *, c=0.0, v=1, together_s=0.0):
    """The ranks of a schedule; seconds of each act, or of each act of each chunk."""
    each = (
        seconds
        if isinstance(seconds, dict)
        else {(a, k): seconds["FBW".find(a)] / v for a in "FBW" for k in range(p * v)}
    )
    chunks = tuple(Chunk(k % p, (("layer", k + 1),), k == 0, k == p * v - 1) for k in range(p * v))
    sends = [SimpleNamespace(call=SimpleNamespace(where=Where(act, "cut", "cut"))) for act in "FB"]
    clock = SimpleNamespace(seconds=each, together_s=together_s, rows=sends)
    return Given(pipeline_schedule(name, p, v, m), Stages(p, chunks), clock, None, lambda *_: c, False)


@pytest.mark.parametrize(
    ("p", "seconds", "beyond", "together"),
    [
        (4, (1, 1, 1), 0, 3),
        (8, (1, 1, 1), 0, 7),
        (16, (1, 1, 1), 0, 15),
        (4, (1, 1.2, 0.8), 1.8, None),
        (8, (1, 1.2, 0.8), 4.2, None),
        (4, (2, 3, 1), 9, None),
        (8, (2, 3, 1), 21, None),
    ],
)
def test_h2_takes_its_parallelogram_unless_all_ranks_end_together(p, seconds, beyond, together):
    """Qi et al. 2024: (p - 1) F more where the update waits for all ranks, at F = B = W."""
    m = 3 * p
    step = work("zb-h2", p, m, seconds).step()
    assert step.time_s - m * sum(seconds) == pytest.approx(beyond, abs=1e-9)
    for stage in step.told.stages:
        assert stage.compute.time_s + stage.bubble_s == pytest.approx(step.time_s, rel=1e-12)
    whole = work("zb-h2", p, m, seconds, together_s=0.5).step()
    assert whole.time_s == pytest.approx(step.ended_s + 0.5, rel=1e-12)
    if together is not None:
        assert whole.time_s - 0.5 - m * sum(seconds) == pytest.approx(together, abs=1e-9)


PIPELINES = [(name, 2 if maker.several else 1) for name, maker in SCHEDULES.items()]


@given(st.sampled_from(PIPELINES), st.integers(2, 4), st.integers(2, 3), st.sampled_from((0, 0.05, 0.3)), st.data())
def test_steps_that_follow_each_other_are_as_long_as_one_is_told(pipeline, p, times, c, data):
    """Six steps in a row, every rank beginning each as soon as it can: the last begins one step after the fifth.

    Never later than that; and no earlier where ranks are alike.
    """
    (name, v), m = pipeline, p * times
    alike = data.draw(st.booleans())
    drawn = data.draw(st.lists(st.floats(0.5, 2), min_size=3 * p * v, max_size=3 * p * v))
    each = {("FBW"[at % 3], at // 3): drawn[at % 3 if alike else at] for at in range(len(drawn))}
    asked = work(name, p, m, each, c=c, v=v)
    step = asked.step()
    assert step.time_s == pytest.approx(span(step.ran), rel=1e-12)
    assert eval(step.told.formula, dict(step.told.seconds)) == pytest.approx(step.time_s, rel=1e-9)  # noqa: S307

    def repeated(often):
        made = asked.schedule
        orders = tuple(
            tuple(
                tuple(part._replace(microbatch=part.microbatch + k * m) for part in action)
                for k in range(often)
                for action in order
            )
            for order in made.orders
        )
        many = replace(made, orders=orders, microbatches=often * m)
        return run(many, lambda action: sum(each[part.act, part.chunk] for part in action), lambda _: c, blocking=False)

    fifth, sixth = repeated(5), repeated(6)
    later = max(sixth.ends[rank][-1] - fifth.ends[rank][-1] for rank in range(p))
    assert later <= step.time_s * (1 + 1e-9)
    if alike:
        assert later == pytest.approx(step.time_s, rel=1e-9)
