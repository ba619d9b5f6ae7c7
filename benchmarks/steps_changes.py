"""What changes between published runs, or layers, that differ in one thing: measured, and as tpsim predicts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

import tpsim
from steps_fit import by_constants, foretold
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


def changes() -> list[tuple[str, float, float, float | None]]:
    """Of each of `DELTAS` and `LAYERS` the measured and the predicted change, percent.

    And of `DELTAS` what it is by constants that other sets come to.
    """
    named, layers = {run.row["id"]: run for run in every()}, measured_layers()
    told = {kept: planned_layer(kept) for kept in layers}
    pairs = [(what, named[first], named[second]) for what, first, second in DELTAS]
    steps = [(what, b.measured / a.measured, b.planned() / a.planned(), _by_others(a, b)) for what, a, b in pairs]
    single = [(what, layers[b] / layers[a], told[b] / told[a], None) for what, a, b in LAYERS]
    return [
        (what, 100 * (seen - 1), 100 * (said - 1), None if others is None else 100 * (others - 1))
        for what, seen, said, others in (*steps, *single)
    ]


def _by_others(a: Run, b: Run) -> float:
    """What a step is of another, by constants to which none of their sets has led."""
    seconds = by_constants(foretold(a.row["set"]))
    return seconds(b) / seconds(a)


SAME = "the same"

REASONS: Sequence[tuple[str, str, str, str]] = (
    (
        "BigScience, 8 -> 80 GPUs",
        "nine messages between stages, an eighth of a microbatch's per GPU, and 96 heads for 32",
        "+1.1",
        "its network: PCIe of all nodes was mended eight days later, for 1 to 5 %; the same runs in bf16 tell 9.9",
    ),
    (
        "v5e, 64B, 1 -> 32 slices",
        "slices: sums of gradients between them, and that they wait for each other",
        "+16.1",
        "from 16 to 32 slices a ring sends 3 % more, and the step takes 6 % longer, of the 128B 10 %",
    ),
    ("v5e, 128B, 1 -> 32 slices", SAME, "+20.7", "the same; MaxText's scripts ask XLA to hide the sums besides"),
    (
        "layer of the 22B, sequence parallelism",
        "norms, adds and dropout of an eighth; a gather and a scatter for an all-reduce",
        "-2.0",
        "times are printed to 0.1 ms: -3.1 is -2.6 to -3.6",
    ),
)
"""Of changes that are not near: what differs, what it comes to if nothing is hidden, and what is missing."""

REASONED = """\
What grows with nodes and slices though each chip does as much are stragglers (`chip.interruption`, see "Constants").
Left out: by the constants of other sets, to which neither run has led. "At most" is what a change that is not near
comes to if no gather and no sum of weights and gradients runs beside compute at all: no switch of overlap could say
more.
"""

TRIED = """\
What was tried, and is not in any prediction (but for the first with vTrain's table still among the sets, see "Not
scored"):

- **Other laws of waiting** than that of "Constants", of PyTorch's FSDP alone (T seconds of a step, K calls on weights
  and gradients, n ranks or N nodes; one factor each, fitted with all else; sets left out, mean in percent, and changes
  near): none 6.9 and 12; T log N 6.5 and 14; K log N 6.4 and 12; K sqrt(2 ln N), the largest of normal variables, 6.4
  and 12; T (N - 1) 6.3 and 13; K (N - 1), hops of rings, 6.5 and 13; sqrt(T K) log N 6.4 and 12; T sqrt(N) 6.3 and 14;
  K sqrt(N) 6.4 and 14; sqrt(T K n) 6.1 and 16; and of pauses whose tail falls as d^-1.5 or d^-3, 6.1 and 15, 6.2 and
  14. The law was chosen among these with all runs in view, not left out. Of slices of TPUs: T log of slices brings v5e
  left out from 6.5 to 15 % off, as v5p grows by 7 % a doubling and v5e by 3; by all chips instead of slices the two
  agree. Of Megatron's runs a growth comes out as none. With a model's own runs left out instead of a set, six of eight
  changes by nodes and slices are near, as with all: v5e's 64B is told 7.1 for 11.0 and 19.2.
- **A growth per doubling of nodes, one for all**: what the others tell brings one more change near, and steps from 4 %
  off to 12 in Korthikanti's and to 16 and 20 in Narayanan's.
- **Collectives that take units from the compute beside them**, as many as NCCL has channels (24 of 108 or 132): no more
  changes near; it explains a tenth of the growth; plans of FSDP and tensor parallelism together would be up to a tenth
  slower.
- **Waiting for the slowest chip.** Clusters of GPUs of one sort differ by 8 % from whisker to whisker, by 22 % at most
  (Sinha et al., SC22, arXiv 2208.11035): normal variables of 1.5 and 4.1 %, of which the largest of 128 is 3.8 and 10.6
  % above the mean, of 512 4.5 and 12.4 %. One more change is near by either (the 530B's; BigScience's, too, by the
  second, but A100-40's no more); sets left out go from 8.4 to 8.6 and 9.0 % off in the mean, Narayanan's table 2 from
  7.2 to 8.4 and 10.4. For what the 1B grows by chips would have to differ by 64 % in one deviation.
- **Hops of rings.** Steps of the 1B and 3B on H100 grow by 20 and 39 ms, 20 and 37 ms, from 128 to 256 to 512 GPUs,
  twice as much for twice the ranks, as rings do: 3 us per rank and collective, of which plans say 1.3, hidden. The
  70B's do not (344 and 440 ms), nor the 3B's on A100 of 40 GB (23 and 26 ms, from 32 to 64 to 128).
- **Launches that block.** BigScience's runs of 384 GPUs had CUDA_LAUNCH_BLOCKING=1 (chronicles-prequel.md, "dealing
  with JZ hanging"): a kernel is launched when the one before it has ended. 22 us between kernels, what a framework's
  call takes, bring every fourth of them from 8.3 to 7.1 % off; what it took nobody states, and its authors saw no
  difference.

What was wrong in how runs were asked for, and no longer is; none of it was chosen by these scores:

- Selene's network, of Narayanan's and Korthikanti's runs: its authors state what rings of gradients reach where 3,072
  GPUs make them at once, 12.9 TB/s over the cut that halves six replicas (arXiv 2104.04473, section 5.9): 12.6 GB/s per
  card of 25, if that counts both ways of 512 rings; one way alone would be more than cards carry. It brings the 530B's
  change near, and makes those three sets 0.4 to 0.7 points worse at the same constants.
- BigScience's stages handed on whole microbatches on every tensor rank; DeepSpeed of then hands on a share of each
  (runtime/pipe/engine.py @8eef742f0: is_pipe_partitioned). And its BF16_Optimizer, in runs from 02-28, casts gradients
  before it adds them (bf16_optimizer.py: update_hp_grads): a layout that had run in fp16 the day before took 5.0 %
  longer, with 96 heads 5.4, and plans say 5.8 of both. By the two its set is 1.7 points worse, and layouts are ranked
  better.
- MaxText's table for v5e is of 2023-10-31 (e47fa1b5d) and was never changed, v5p's of 2023-12-15 (76bd53b0f); base.yml
  of then is another model than since 3b2ac8113 (2024-02-14), of which sizes were: 2560 wide before it is scaled, heads
  of 256, 32,768 words, relu, attention and MLP side by side behind one norm; and seconds are by the FLOPs that train.py
  of then counts. The 128B then recomputed all of a layer on v5e (128b.sh: remat_policy=full), and kept what products
  make only from 125139c29 on, whose author saw "123 TFLOP/s (up from 106)" where the table has 110; on v5p it had two
  sequences per chip. Its stream is split over `tensor` along its width (base.yml, logical_axis_rules:
  activation_embed). By the model alone v5e left out goes from 14.3 to 7.6 % off, v5p from 9.9 to 4.2; with the next
  point to 6.6 and 4.7.
- XLA cuts no product to run beside a gather that other products share: its partitioner calls that no collective matmul
  (openxla/xla, xla/service/spmd/dot_handler.cc: check_users_sharding, the same in 2022), and MaxText's scripts change
  nothing of it (LIBTPU_INIT_ARGS ask for asynchronous gathers alone). A gather for queries, keys, values and the MLP is
  whole before any of them begins, beside whatever else there is to do; plans had cut them all.
- llm-foundry's weights are gathered in bf16 (Composer, distributed_training.rst: masters are cast before the gather),
  and gradients are reduced as they are made in runs by a Composer before 0.16.4 (mosaic_fsdp_utils.py: DEFAULT had no
  reduce_dtype; PyTorch, flat_param.py: then as parameters). Its `backward_prefetch` is BACKWARD_POST, which asks for
  the next weights behind what makes gradients (`practice.overlap.weights: forward`), but on 128 H100 and more
  (benchmarking/sweep.py: BACKWARD_PRE). At the same constants runs of A100 of 80 GB are 3.2 % off for 3.7, of 40 GB
  3.9 for 5.0, of H100 7.0 for 7.3.
- Megatron-LM's runs of 2021 and BigScience's before 02-28 were in fp16 and summed gradients as fp16
  (examples/sc21/CONFIG.sh; chronicles-prequel.md, "Rebalancing layers"); of Narayanan's table 1 the first four ran
  PyTorch's own data parallelism, beside backward (run_table_1.sh). All had dropout of 0.1, the default, in attention by
  a kernel of its own; a softmax is stored once.
- Gradients are added up by kernels of their own (`param.main_grad.add_`), and PyTorch's FSDP joins those of a module
  into one line, casts and divides it (`practice.copies`): llm-foundry's runs of few tokens were up to 22 % too fast.
"""
"""What is said of them."""
