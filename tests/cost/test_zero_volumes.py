"""ZeRO's volumes, derived: elements per device and step for every weight of the model, embedding included.

Expected, each times (n-1)/n, psi parameters per tensor shard, m microbatches: data parallel and ZeRO-1 2 psi; ZeRO-2
(m+1) psi; ZeRO-3 3 m psi; ZeRO-3 keeping weights after forward 2 m psi; skipping synchronisation saves the scatters of
m-1 microbatches. Source: Rajbhandari et al. 2020, section 7, with the finite factor and gradient accumulation.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest

from tests.models import GPT, LLAMA, loops, parameters
from tpsim.algebra.moves import wire
from tpsim.cost.collectives import collectives
from tpsim.cost.sizes import Sizes
from tpsim.program.dtypes import Dtypes
from tpsim.program.layout import layout
from tpsim.program.lower import lower
from tpsim.program.practice import Practice

N, T, M = 4, 2, 3
KEPT = Practice()
DROPPED = Practice(reshard_after_forward=True)
SKIPPED = Practice(reshard_after_forward=True, gradients="per_step")


def elements(model, zero, practice, *, over="D", sequence_parallel=False):
    """Elements on the wire of one device per step and axis, by weight; its gradient's collectives included."""
    where = layout(tp=("T",), dp=("D",), zero=zero, sequence_parallel=sequence_parallel)
    program = lower(model, where, practice, Dtypes(), ("D", "T"))
    sizes = Sizes(model.dims(sequences=N, seq=8), {"D": N, "T": T}, loops(model.layers, M))
    sent: Counter[str] = Counter()
    for call in collectives(program, coalesce=False):
        if call.axes == (over,) and call.op != "activation":
            weight = call.array.removeprefix("grad.").removeprefix("new.")
            volume = call.parts[0].move.logical_elements(sizes.dims, sizes.axes)
            sent[weight] += wire(call.kind, volume, sizes.axes[over]) * call.count(sizes)
    return sent


def per_shard(model):
    """psi of each weight: its elements per tensor shard, over all layers."""
    sizes, heads = model.dims(sequences=1, seq=1), {"g", "f", "v"}
    psi = {}
    for parameter in parameters(model):
        count = Fraction(model.layers if parameter.places == ("layer",) else 1, T if heads & set(parameter.dims) else 1)
        for dim in parameter.dims:
            count *= sizes[dim]
        psi[parameter.name] = count
    return psi


@pytest.mark.parametrize("model", [LLAMA, GPT], ids=["llama", "gpt"])
@pytest.mark.parametrize(
    ("zero", "practice", "factor"),
    [
        (0, KEPT, 2),
        (1, KEPT, 2),
        (2, KEPT, M + 1),
        (3, DROPPED, 3 * M),
        (3, KEPT, 2 * M),
        (3, SKIPPED, 2 * M + 1),
    ],
    ids=["data-parallel", "zero-1", "zero-2", "zero-3", "zero-3-kept", "zero-3-no-sync"],
)
def test_every_weight_moves_its_zero_volume(model, zero, practice, factor):
    sent = elements(model, zero, practice)
    for weight, psi in per_shard(model).items():
        assert sent[weight] == factor * psi * Fraction(N - 1, N), weight


@pytest.mark.parametrize("model", [LLAMA, GPT], ids=["llama", "gpt"])
@pytest.mark.parametrize(
    ("zero", "gradients", "times"),
    [(1, "auto", 1), (2, "auto", 1), (3, "auto", 1), (3, "per_step", 1), (2, "per_microbatch", M)],
)
def test_weights_read_by_a_split_sequence_are_summed_over_it_once_per_step(model, zero, gradients, times):
    """Shards of them, as Megatron-LM does when the gradients of a step are complete (`finalize_model_grads`)."""
    sent = elements(model, zero, Practice(gradients=gradients), over="T", sequence_parallel=True)
    read = {"gain", "shift", "bo", "b2", "P"}
    owing = {name: psi for name, psi in per_shard(model).items() if name.split("_")[0] in read}
    assert sent == {name: 2 * times * psi / N * Fraction(T - 1, T) for name, psi in owing.items()}
