"""Published sweeps of layouts: how well the plans rank what was measured, and what their choice would have cost.

    python benchmarks/sweeps.py [LAUNCH]

LAUNCH is what the host takes for each kernel (`assume.kernel_launch`), as 80us: of small models it decides.
tau    Kendall's, of seconds per sequence: of all pairs of runs; of those of one model on as many chips; and of these of
       those that are measured more than 3 % apart, as runs of one layout are at times
regret how much longer a step of the layout that is planned to be the quickest took than the quickest that was measured
"""

from __future__ import annotations

import sys
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tpsim.answers.plan import priced
from tpsim.question.scenario import resolve
from tpsim.question.shelf import Shelf

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Row = Mapping[str, Any]
    Pair = tuple[float, float]

ROWS = Path(__file__).parents[1] / "tests" / "data" / "published_sweeps.yaml"
OF: Mapping[str, Row] = {"bloom-181b": {"vocab": 250000, "zero": 1}, "vtrain": {"vocab": 50257, "zero": 0}}
"""What all runs of a sweep have; both are of Megatron-DeepSpeed."""


NOISE = 0.03


def scenario(row: Row, launch: str) -> dict[str, Any]:
    """A run as a question.

    As in tests/test_published_steps.py sums over tensor run beside nothing yet; an A100 has the peak of bf16 for f16.
    ZeRO 1 over shards that do not divide the hidden size is refused; without it as much is sent.
    """
    of, heads = OF[row["sweep"]], row["heads"]
    multiple = 128 * row["tp"]
    sizes = {"hidden": row["hidden"], "layers": row["layers"], "heads": heads, "kv_heads": heads}
    vocab = {"vocab": of["vocab"], "vocab_padded": -(-of["vocab"] // multiple) * multiple}
    ffn = {"kind": "gelu", "hidden": 4 * row["hidden"]}
    stages = row["pp"] > 1
    zero = 0 if row["hidden"] % row["dp"] else of["zero"]
    layout = {"dp": "data", "tp": "tensor", "zero": zero}
    if stages:
        layout |= {"pp": "pipe", "cut": {"s": "tensor"}}
    workload = {"microbatches": row["batch"] // (row["dp"] * row["each"]), "dtype": "bf16", "grad_dtype": "bf16"}
    return {
        "tpsim": "scenario/1",
        "model": {
            "extends": "megatron-22b",
            "params": None,
            "head_dim": row["hidden"] // heads,
            "ffn": ffn,
            **sizes,
            **vocab,
        },
        "hardware": "dgx-a100",
        "mesh": {**({"pipe": row["pp"]} if stages else {}), "data": row["dp"], "tensor": row["tp"]},
        "layout": layout,
        **({"pipeline": {"schedule": "1f1b"}} if stages else {}),
        "practice": {"base": "megatron", "attention": "plain", "overlap": {"tensor": "none"}},
        "recompute": "full",
        **({"assume": {"kernel_launch": launch}} if launch else {}),
        "workload": {"global_batch": row["batch"], "seq": row["seq"], **workload},
    }


def tau(pairs: Iterable[tuple[Pair, Pair]], noise: float = 0) -> float:
    """Kendall's, of pairs of (planned, measured) whose measured seconds are farther apart than that share."""
    apart = [((a[0] - b[0]) * (a[1] - b[1]) > 0) for a, b in pairs if abs(a[1] / b[1] - 1) > noise and a[0] != b[0]]
    return 2 * sum(apart) / len(apart) - 1


def regret(runs: Sequence[Pair]) -> float:
    """What the choice of the quickest plan costs."""
    return min(runs)[1] / min(measured for _, measured in runs) - 1


def main() -> None:
    """All sweeps."""
    shelf, launch = Shelf(), "".join(sys.argv[1:])
    groups: dict[str, dict[Any, dict[Any, list[Pair]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in yaml.safe_load(ROWS.read_text(encoding="utf-8")):
        planned = float(priced(resolve(scenario(row, launch), shelf=shelf), shelf).step.time_s) / row["batch"]
        work = (row["hidden"], row["layers"], row["heads"], row["tp"] * row["pp"] * row["dp"])
        layout = tuple(row[name] for name in ("tp", "pp", "dp", "each", "batch"))
        groups[row["sweep"]][work][layout].append((planned, row["step_s"] / row["batch"]))
    heads = ("runs", "layouts", "tau", "one model", "apart", "regret", "worst", "off")
    print(f"{'sweep':<12} " + " ".join(f"{head:>9}" for head in heads))  # noqa: T201
    for name, works in groups.items():
        each = [
            [(runs[0][0], sum(one for _, one in runs) / len(runs)) for runs in layouts.values()]
            for layouts in works.values()
        ]
        flat = [one for runs in each for one in runs]
        costs = [regret(runs) for runs in each if len(runs) > 1]
        off = sorted(abs(planned / measured - 1) for planned, measured in flat)[len(flat) // 2]
        within = [pair for runs in each for pair in combinations(runs, 2)]
        count = sum(len(one) for layouts in works.values() for one in layouts.values())
        taus = (tau(combinations(flat, 2)), tau(within), tau(within, NOISE))
        shares = (sum(costs) / len(costs), max(costs), off)
        figures = [*(f"{one:>9.2f}" for one in taus), *(f"{one:>9.1%}" for one in shares)]
        print(f"{name:<12} {count:>9} {len(flat):>9} " + " ".join(figures))  # noqa: T201


if __name__ == "__main__":
    main()
