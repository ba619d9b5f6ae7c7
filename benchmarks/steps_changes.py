"""What changes between published runs, or layers, that differ in one thing: measured, and as tpsim predicts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

import tpsim
from steps_runs import DATA, Run, every, runs

if TYPE_CHECKING:
    from collections.abc import Sequence

DELTAS: Sequence[tuple[str, str, str]] = (
    ("korthikanti: 530B, one copy -> eight", "korthikanti_2022-006", "korthikanti_2022-009"),
    *(
        (
            f"korthikanti: {size}, full recompute -> sequence parallelism and selective",
            f"korthikanti_2022-{a}",
            f"korthikanti_2022-{b}",
        )
        for size, a, b in (("22B", "001", "002"), ("175B", "003", "004"), ("530B", "005", "006"), ("1T", "007", "008"))
    ),
    ("bigscience: 8 -> 80 GPUs, by stages", "bigscience_bloom_prequel-095", "bigscience_bloom_prequel-096"),
    ("bigscience: 80 -> 160 GPUs, by copies", "bigscience_bloom_prequel-096", "bigscience_bloom_prequel-097"),
    ("bigscience: batch 512 -> 1536", "bigscience_bloom_prequel-073", "bigscience_bloom_prequel-075"),
    *(
        (f"llm-foundry: H100, {size}, 128 -> {chips} GPUs", f"mosaicml_llm_foundry-{a}", f"mosaicml_llm_foundry-{b}")
        for size, chips, a, b in (
            ("70B", 256, "003", "002"),
            ("70B", 512, "003", "001"),
            ("7B", 512, "012", "010"),
            ("1B", 512, "018", "016"),
        )
    ),
    *(
        (f"maxtext: v5e, {size}, 1 -> 32 slices", f"maxtext_v5e_readme-{a}", f"maxtext_v5e_readme-{b}")
        for size, a, b in (("16B", "001", "021"), ("32B", "002", "022"), ("64B", "003", "023"), ("128B", "004", "024"))
    ),
    (
        "llm-foundry: A100-40, 70B, 128 -> 64 GPUs, half a batch",
        "mosaicml_llm_foundry-065",
        "mosaicml_llm_foundry-066",
    ),
    ("narayanan: 175B, 384 -> 1536 GPUs", "narayanan_sc21_t2-007", "narayanan_sc21_t2-009"),
    ("narayanan: 530B, 560 -> 2240 GPUs", "narayanan_sc21_t2-010", "narayanan_sc21_t2-012"),
)
"""What changed, and the runs before and behind it: what a model of communication is for."""

NEAR = 1.5
"""A change is predicted well if it is within this factor of the measured one."""


def near(seen: float, said: float) -> bool:
    """True for a change that is predicted well."""
    return 1 / NEAR <= said / seen <= NEAR


Kept = tuple[bool, str]
"""Of a layer whether its stream is split over tokens, and what is recomputed."""

LAYERS: Sequence[tuple[str, Kept, Kept]] = (
    ("korthikanti: layer of the 22B, sequence parallelism", (False, "none"), (True, "none")),
    ("korthikanti: layer of the 22B, no recompute -> full", (False, "none"), (False, "full")),
    ("korthikanti: layer of the 22B, no recompute -> selective", (False, "none"), (False, "selective")),
)
"""The same of a layer, forward and backward."""


def measured_layers() -> dict[Kept, float]:
    """Milliseconds of table 4 of Korthikanti et al."""
    rows = yaml.safe_load((DATA / "korthikanti_layers.yaml").read_text())
    return {(row["sequence_parallel"], row.get("recompute", "none")): row["forward"] + row["backward"] for row in rows}


def planned_layer(kept: Kept) -> float:
    """Milliseconds of a layer and microbatch: what one more of both adds to a step of the run of the 22B."""
    (run,) = (run for run in runs() if run.row["id"] == "korthikanti_2022-001")

    def step_s(layers: int, microbatches: int) -> float:
        row = {**run.row, "microbatches": microbatches, "sequence_parallel": kept[0], "recompute": kept[1]}
        other = Run({**row, "model": {**run.row["model"], "layers": layers}})
        return float(tpsim.plan(other.scenario()).step.time_s)

    return 1e3 * ((step_s(3, 2) - step_s(3, 1)) - (step_s(2, 2) - step_s(2, 1)))


def changes() -> list[tuple[str, float, float]]:
    """Of each of `DELTAS` and `LAYERS` the measured and the predicted change, percent."""
    named, layers = {run.row["id"]: run for run in every()}, measured_layers()
    told = {kept: planned_layer(kept) for kept in layers}
    pairs = [(what, named[first], named[second]) for what, first, second in DELTAS]
    steps = [(what, b.measured / a.measured, b.planned() / a.planned()) for what, a, b in pairs]
    single = [(what, layers[b] / layers[a], told[b] / told[a]) for what, a, b in LAYERS]
    return [(what, 100 * (seen - 1), 100 * (said - 1)) for what, seen, said in (*steps, *single)]


TRIED = """\
Ten of them grow with nodes or slices by more than is predicted. What was tried for it, and for the sets that are worst
left out, and is not in any prediction:

- **A growth per doubling of nodes** is of a stack and its network: -1.0 % in Narayanan's runs, 0.6 in Korthikanti's,
  1.7 in BigScience's, 2.8 in MaxText's, 3.5 in llm-foundry's. What the others tell brings 9 of 18 changes near instead
  of 8, and steps from 4 % off to 12 in Korthikanti's and to 16 and 20 in Narayanan's.
- **Gradients between slices that nothing hides** grow by 4.6, 4.9, 9.4 and 13.3 % from 1 to 32 slices, half of what was
  measured; v5e would be 5.2 % off and not 6.3, v5p 3.2 and not 6.9. But MaxText's scripts ask XLA to hide them.
- **Collectives that take units from the compute beside them**, as many as NCCL has channels (24 of 108 or 132): all
  signs are right and no more changes near; llm-foundry on H100 is 14.2 % off by Ampere's constants as they are, and
  7.7 and not 10.5 as shipped; BigScience, left out, 6.5 and not 5.8. Nothing in it is fitted, and it explains a tenth
  of the growth; plans of FSDP and tensor parallelism together would be up to a tenth slower.
- **Gradients added up by kernels of their own** in 16 bits, as Megatron-LM did before February 2022 and
  Megatron-DeepSpeed does (`param.main_grad.add_`), **and dropout** of 0.1, their default, in attention by a kernel of
  its own: by a third of BigScience's runs and a quarter of vTrain's, vTrain is 21.5 % off left out and not 24.8,
  Narayanan's second set 8.0 and not 4.4; the mean over Ampere's sets is 8.3 and not 7.8. Dropout brings the two changes
  of a layer that are far off to -2.1 and +5.2 %, which are near.
"""
"""What is said of them."""
