"""Layouts weighed per second by a search, and its best ten held against plans of all that fit.

    python benchmarks/search.py [--brute | --million | --blocks | --heavy | --calculon] [SCENARIO CHIPS [VARY ..]]

Seconds are those of the processor: of legality, tracing, memory, bounds, and planning.

--brute     plans every layout that fits, one by one, which takes minutes; counts ties of the tenth, and what deadlocks.
            The best ten of llama3-70b-h100 on 64 chips were those of 7,456 plans, of llama3-8b-v5e on 256 of 4,079, of
            gpt3-175b-a100-interleaved on 1,024 of 2,924, of mixtral-8x22b-h100 on 64 of 1,720; none tied with a tenth
--million   a million layouts of more than 500 structures (schedule, stages, chunks, ZeRO, sequence parallelism,
            recompute) with more than 100 numbers of microbatches
--blocks    ten times as many, four numbers of chips and a length of sequences at a time, in two processes: 12.0
            million legal ones
--heavy     eight stages in four chunks each whose messages take long: bounds are alike, and too low. Of 435 that
            fit 125 are planned until no other can be among the ten, 15 s of a processor: held against the whole
--calculon  GPT-3 175B on 1,024 A100 over what Calculon's search covers (Isaev et al. 2023, optimal_execution.py):
            tensor, pipeline, data, interleaving, microbatches, recompute, sequence parallelism and whether it gathers
            again, a sharded optimizer, overlap of tensor and data parallelism. Its choice of a network per role is
            not in it, nor fused activations: kernels always are. Of 479,160 layouts 173,376 are legal and 48,720 fit;
            the best takes 18.16 s: tp 16, pp 4 in 8 chunks, dp 16, ZeRO 1 (stages block, as that scenario states)
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import wraps
from itertools import chain
from math import inf
from multiprocessing import Pool
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.__main__ import RARELY
from tpsim.answers import search
from tpsim.answers.plan import priced
from tpsim.answers.ranking import Ranking, weigh
from tpsim.layouts.bounds import Bounds
from tpsim.layouts.candidates import evaluate
from tpsim.layouts.legal import Legal
from tpsim.layouts.peaks import Peaks
from tpsim.layouts.space import spaces
from tpsim.quantity.errors import InputError
from tpsim.question.memo import Memo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpsim.layouts.candidates import Candidate


@dataclass(frozen=True)
class Searched:
    """A search: the words of its command line."""

    name: str
    chips: int
    vary: Sequence[str] = ()
    flags: Mapping[str, Any] = field(default_factory=dict)
    overrides: Sequence[str] = ()


SEARCHED = (
    Searched("llama3-70b-h100", 64),
    Searched("llama3-70b-h100", 64, ("microbatches",)),
    Searched("llama3-70b-h100", 256, ("microbatches",)),
    Searched("gpt3-175b-a100-interleaved", 1024, ("microbatches",)),
    Searched("llama3-70b-h100", 16384),
)
BRUTE = (
    Searched("llama3-70b-h100", 64, ("microbatches",)),
    Searched("llama3-8b-v5e", 256, ("microbatches", "zero=3")),
    Searched("gpt3-175b-a100-interleaved", 1024, ("microbatches", "recompute=selective,full", "zero=1")),
)
BATCH = 322_560
MILLION = Searched(
    "llama3-70b-h100", 0, ("microbatches", "cp=1", "chips=512,1024,2048,4096"), {"batch": BATCH, "seq": 512}
)
BLOCKS = [
    replace(MILLION, vary=("microbatches", "cp=1", "chips=128,256,512,1024"), flags={"batch": BATCH, "seq": seq})
    for seq in (512, 1024, 1536, 2048, 3072, 4096, 6144, 8192)
]
HEAVY = Searched(
    "gpt3-175b-a100-interleaved",
    64,
    (
        *("microbatches", "pp=8", "tp=2,4,8", "schedule=interleaved", "chunks=4", "zero=0,1", "recompute"),
        *("practice.regather=false,true", "practice.overlap.tensor=none,beside,split"),
    ),
    {"batch": 5040, "seq": 256},
    ("hardware={extends: dgx-a100, levels: {network: {link: {bandwidth: 0.5 GB/s}}}}",),
)
CALCULON = Searched(
    "gpt3-175b-a100-interleaved",
    1024,
    (
        *("microbatches", "schedule=1f1b,interleaved", "zero=0,1", "practice.regather=false,true", "recompute"),
        *("practice.overlap.tensor=none,beside,split", "practice.overlap.gradients=none,beside", "cp=1"),
    ),
)
TOP, PLANS = 10, 5000
EQUAL = 1e-9

spent: Counter[str] = Counter()
PARTS = (("legal", Legal, "__post_init__"), ("trace", Memo, "lowered"), ("memory", Peaks, "peak_bytes"))


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


class Found(NamedTuple):
    """How many layouts were legal, seconds of the best step, and those that none takes less than."""

    legal: int
    step_s: float
    least_s: float


def measured(one: Searched, *, brute: bool = False, plans: int = PLANS) -> Found:
    """One search, and a line about it."""
    memo = Memo()
    spent.clear()
    began = time.process_time()
    flags = {**one.flags, **({"chips": one.chips} if one.chips else {})}
    several = spaces(one.name, flags=flags, overrides=["require={}", *one.overrides], vary=one.vary, memo=memo)
    evaluation = evaluate(several, memo, weigh)
    weighed = time.process_time()
    parts = [spent[part] for part, *_ in (*PARTS, ("bounds",))]
    ranking = Ranking(evaluation, memo, plans)
    best = ranking.best("step", TOP)
    planned = time.process_time() - weighed
    refined = spent["bounds"] - parts[-1]
    counts = f"{evaluation.considered:>10,} {evaluation.legal:>10,} {evaluation.fitting:>9,}"
    times = " ".join(f"{s:>7.2f}" for s in (*parts[:-1], parts[-1] + refined, planned - refined))
    whole = weighed - began + planned
    step = float(best.best[0].plan.step.time_s) if best.best else inf
    known = f"within {1 - best.open_at / step:.2%} of the best" if best.open_at < step else "the best is known"
    gap = "" if best.open_at == inf else f"  ended early: {known}"
    print(f"{one.name:<28} {one.chips:>6} {counts} {times} {best.made:>6} {whole:>7.2f} {step:>9.4g}{gap}", flush=True)  # noqa: T201
    if brute:
        compare(ranking, [float(row.plan.step.time_s) for row in best.best])
    elif one in (MILLION, CALCULON):
        structures = {(id(each.group), each.order, each.pp) for each in evaluation.families}
        parts_of = {m for each in evaluation.families for m in each.microbatches.tolist()}
        layout = " ".join(f"{name} {value}" for name, value in best.best[0].candidate.layout._asdict().items())
        print(f"  {len(structures):,} structures, {len(parts_of)} numbers of microbatches; best {layout}")  # noqa: T201
    return Found(evaluation.legal, step, min(step, best.open_at))


def heavy() -> None:
    """A search that ends early, and the same left alone: none is better than the first has said that any can be."""
    early, whole = (measured(HEAVY, plans=plans) for plans in (search.PLANS, PLANS))
    if whole.step_s < early.least_s:
        sys.exit(f"{early.least_s} s was said to be the least, and {whole.step_s} s was found")
    nearer, said = (1 - one / early.step_s for one in (whole.step_s, early.least_s))
    print(f"  left alone it finds {nearer:.2%} less, where up to {said:.2%} were said to be possible")  # noqa: T201


def compare(ranking: Ranking, found: list[float]) -> None:
    """The best ten of all plans, and those that the search has found; another is an error."""
    began, memo = time.process_time(), ranking.memo
    fitting = [one for one in ranking.evaluation.candidates if one.room_bytes >= 0]
    steps = sorted(s for one in fitting if (s := planned_s(one, memo)) is not None)
    if any(abs(one - other) > EQUAL * one for one, other in zip(steps, found, strict=False)):
        sys.exit(f"brute force finds {steps[:TOP]}, the search {found}")
    tied = sum(abs(one - found[-1]) <= EQUAL * one for one in steps[TOP:])
    dead = f"; {len(fitting) - len(steps):,} deadlock" if len(fitting) > len(steps) else ""
    print(f"  as by {len(steps):,} plans in {time.process_time() - began:.0f} s; {tied} more tied with the last{dead}")  # noqa: T201


def planned_s(one: Candidate, memo: Memo) -> float | None:
    """Seconds of the step by plan; none where its stages deadlock, which a search knows of what it has planned."""
    try:
        return float(priced(one.space.question(one.layout, memo), memo).step.time_s)
    except InputError as error:
        if error.problems[0].slug != "deadlock":
            raise
    return None


def blocks() -> None:
    """Many searches, in two processes."""
    began = time.perf_counter()
    with Pool(2, maxtasksperchild=1) as pool:
        legal = sum(one.legal for one in pool.imap_unordered(measured, BLOCKS))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent_s = f"{time.perf_counter() - began:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of processors"
    print(f"  {legal:,} legal in {spent_s}; {used.ru_maxrss / 1e6:.2f} GB at most in a process")  # noqa: T201


def main() -> None:
    """All searches."""
    gc.set_threshold(*RARELY)  # as the command does
    for part in (*PARTS, ("bounds", Bounds, "step_s")):
        timed(*part)
    asked, words = {word for word in sys.argv[1:] if word[:2] == "--"}, [w for w in sys.argv[1:] if w[:2] != "--"]
    heads = ("considered", "legal", "fit", "legal s", "trace", "memory", "bounds", "plan", "plans", "all s", "best s")
    widths = (10, 10, 9, 7, 7, 7, 7, 7, 6, 7, 9)
    print(f"{'scenario':<28} {'chips':>6} " + " ".join(f"{h:>{w}}" for h, w in zip(heads, widths, strict=True)))  # noqa: T201
    if "--blocks" in asked:
        blocks()
        return
    if "--heavy" in asked:
        heavy()
        return
    named = {"--brute": BRUTE, "--million": [MILLION], "--calculon": [CALCULON]}
    lists = [list(named[word]) for word in named if word in asked] or [list(SEARCHED)]
    own = [Searched(words[0], int(words[1]), tuple(words[2:]))] if words else []
    for one in own or chain.from_iterable(lists):
        measured(one, brute="--brute" in asked)


if __name__ == "__main__":
    main()
