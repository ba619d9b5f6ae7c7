"""Layouts weighed per second by a search, and its best ten held against plans of all that fit.

    python benchmarks/search.py [--brute] [SCENARIO CHIPS [VARY ..]]

Seconds are those of the processor: of legality, tracing, memory, bounds (all that is issued among them), and planning.
`--brute` plans every layout that fits, one by one, which takes minutes, and counts ties of the tenth.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from functools import wraps
from typing import TYPE_CHECKING, Any

from tpsim.answers.plan import priced
from tpsim.answers.ranking import Ranking, held_at_peak
from tpsim.layouts.bounds import Bounds
from tpsim.layouts.legal import Legal
from tpsim.layouts.peaks import Peaks
from tpsim.layouts.space import spaces
from tpsim.layouts.weighed import weigh
from tpsim.question.shelf import Shelf

if TYPE_CHECKING:
    from collections.abc import Sequence

SEARCHED: Sequence[tuple[str, int, tuple[str, ...]]] = (
    ("llama3-70b-h100", 64, ()),
    ("llama3-70b-h100", 64, ("microbatches",)),
    ("llama3-70b-h100", 256, ("microbatches",)),
    ("gpt3-175b-a100-interleaved", 1024, ("microbatches",)),
    ("llama3-70b-h100", 16384, ()),
)
BRUTE: Sequence[tuple[str, int, tuple[str, ...]]] = (
    ("llama3-70b-h100", 64, ("microbatches",)),
    ("llama3-8b-v5e", 256, ("microbatches", "zero=0,3")),
    ("gpt3-175b-a100-interleaved", 1024, ("microbatches", "recompute=full", "zero=0,1")),
)
TOP, PLANS = 10, 5000
EQUAL = 1e-9

spent: Counter[str] = Counter()
PARTS = (("legal", Legal, "__post_init__"), ("trace", Shelf, "lowered"), ("memory", Peaks, "peak_bytes"))


def timed(part: str, owner: Any, name: str) -> None:
    """Add what a method takes to a part."""
    method = getattr(owner, name)

    @wraps(method)
    def wrapped(*args: Any, **named: Any) -> Any:
        began = time.process_time()
        try:
            return method(*args, **named)
        finally:
            spent[part] += time.process_time() - began

    setattr(owner, name, wrapped)


def measured(name: str, chips: int, vary: Sequence[str], *, brute: bool) -> None:
    """One search, and a line about it."""
    shelf = Shelf()
    spent.clear()
    began = time.process_time()
    several = spaces(name, flags={"chips": chips}, overrides=["require={}"], vary=vary, shelf=shelf)
    weighing = weigh(several, shelf, held_at_peak)
    weighed = time.process_time()
    parts = [spent[part] for part, *_ in (*PARTS, ("bounds",))]
    ranking = Ranking(weighing, shelf, PLANS)
    best = ranking.best("step", TOP)
    planned = time.process_time() - weighed
    refined = spent["bounds"] - parts[-1]
    counts = f"{weighing.considered:>9,} {weighing.legal:>9,} {weighing.fitting:>9,}"
    times = " ".join(f"{one:>7.2f}" for one in (*parts[:-1], parts[-1] + refined, planned - refined))
    whole = weighed - began + planned
    step = float(best.best[0].plan.step.time_s)
    print(f"{name:<28} {chips:>6} {counts} {times} {best.made:>6} {whole:>7.2f} {step:>9.4g}")  # noqa: T201
    if brute:
        compare(ranking, [float(one.plan.step.time_s) for one in best.best])


def compare(ranking: Ranking, found: list[float]) -> None:
    """The best ten of all plans, and those that the search has found; another is an error."""
    began, shelf = time.process_time(), ranking.shelf
    fitting = [one for one in ranking.weighing.found if one.room_bytes >= 0]
    steps = sorted(float(priced(one.space.question(one.layout, shelf), shelf).step.time_s) for one in fitting)
    if any(abs(one - other) > EQUAL * one for one, other in zip(steps, found, strict=False)):
        sys.exit(f"brute force finds {steps[:TOP]}, the search {found}")
    tied = sum(abs(one - found[-1]) <= EQUAL * one for one in steps[TOP:])
    print(f"  as by {len(steps):,} plans in {time.process_time() - began:.0f} s; {tied} more tied with the last")  # noqa: T201


def main() -> None:
    """All searches."""
    for part in (*PARTS, ("bounds", Bounds, "step_s")):
        timed(*part)
    brute, words = "--brute" in sys.argv, [word for word in sys.argv[1:] if word != "--brute"]
    asked = [(words[0], int(words[1]), tuple(words[2:]))] if words else BRUTE if brute else SEARCHED
    heads = ("considered", "legal", "fit", "legal s", "trace", "memory", "bounds", "plan", "plans", "all s", "best s")
    widths = (9, 9, 9, 7, 7, 7, 7, 7, 6, 7, 9)
    print(f"{'scenario':<28} {'chips':>6} " + " ".join(f"{h:>{w}}" for h, w in zip(heads, widths, strict=True)))  # noqa: T201
    for name, chips, vary in asked:
        measured(name, chips, vary, brute=brute)


if __name__ == "__main__":
    main()
