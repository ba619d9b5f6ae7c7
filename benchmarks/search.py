"""Layouts weighed per second by a search, and its best ten held against plans of all that fit.

    python benchmarks/search.py [--brute] [SCENARIO CHIPS ..]

Seconds are those of the processor: of weighing (legality, memory, bounds) and of planning the most promising. `--brute`
plans every layout that fits, one by one, which takes minutes.
"""

from __future__ import annotations

import sys
import time

from tpsim.answers.plan import priced
from tpsim.answers.ranking import Ranking, held_at_peak
from tpsim.layouts.space import spaces
from tpsim.layouts.weighed import weigh
from tpsim.question.shelf import Shelf

SEARCHED = (("llama3-70b-h100", 64), ("llama3-70b-h100", 256), ("gpt3-175b-a100-interleaved", 1024))
TOP, PLANS = 10, 500


def measured(name: str, chips: int, *, brute: bool) -> None:
    """One search, and a line about it."""
    shelf = Shelf()
    began = time.process_time()
    several = spaces(name, flags={"chips": chips}, overrides=["require={}"], vary=["microbatches"], shelf=shelf)
    weighing = weigh(several, shelf, held_at_peak)
    weighed = time.process_time()
    ranking = Ranking(weighing, shelf, PLANS)
    best = ranking.best("step", TOP)
    planned = time.process_time()
    counts = f"{weighing.considered:>9,} {len(weighing.found):>9,} {len(ranking.fitting):>9,}"
    rate = weighing.considered / (weighed - began)
    seconds = f"{weighed - began:>8.2f} {rate:>9,.0f} {best.made:>6} {planned - weighed:>8.2f}"
    print(f"{name:<28} {chips:>6} {counts} {seconds} {float(best.best[0].plan.step.time_s):>9.4g}")  # noqa: T201
    if brute:
        compare(ranking, [float(one.plan.step.time_s) for one in best.best])


def compare(ranking: Ranking, found: list[float]) -> None:
    """The best ten of all plans, and those that the search has found; another is an error."""
    began, shelf = time.process_time(), ranking.shelf
    steps = (float(priced(one.space.question(one.layout, shelf), shelf).step.time_s) for one in ranking.fitting)
    best = sorted(steps)[:TOP]
    if any(abs(one - other) > 1e-9 * one for one, other in zip(best, found, strict=True)):
        sys.exit(f"brute force finds {best}, the search {found}")
    print(f"  as by {len(ranking.fitting):,} plans in {time.process_time() - began:.0f} s")  # noqa: T201


def main() -> None:
    """All searches."""
    words = [word for word in sys.argv[1:] if word != "--brute"]
    asked = list(zip(words[::2], map(int, words[1::2]), strict=True)) or SEARCHED
    heads = ("considered", "legal", "fit", "weigh s", "/s", "plans", "plan s", "best s")
    widths = (9, 9, 9, 8, 9, 6, 8, 9)
    print(f"{'scenario':<28} {'chips':>6} " + " ".join(f"{h:>{w}}" for h, w in zip(heads, widths, strict=True)))  # noqa: T201
    for name, chips in asked:
        measured(name, chips, brute="--brute" in sys.argv)


if __name__ == "__main__":
    main()
