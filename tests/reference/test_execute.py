"""The sharded program equals the unsharded one, for every layout and switch; that one equals its derivative."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest

from tests.models import GEMMA, GPT, LLAMA, NEOX, QWEN
from tests.reference.judge import difference, run, unsharded
from tpsim.algebra.mesh import Mesh
from tpsim.algebra.moves import wire
from tpsim.algebra.reshard import Routes
from tpsim.program.frameworks import PRACTICES
from tpsim.program.layout import layout
from tpsim.program.op import Array, Reshard
from tpsim.program.practice import Practice
from tpsim.reference.execute import execute
from tpsim.reference.run import leaves

MODELS = {model.name: model for model in (LLAMA, GPT, NEOX, QWEN)}

SWITCHES = {
    "ideal": Practice(),
    "per-use": Practice(cotangents="per_use"),
    "regather": Practice(regather=True, reshard_after_forward=True),
    "per-microbatch": Practice(gradients="per_microbatch"),
    "per-step": Practice(gradients="per_step", zero1="all_reduce"),
    "gathered-fused": Practice(cross_entropy="gathered", qkv="fused"),
}


FEWER_HEADS = {**PRACTICES, "fused-per-use": Practice(cotangents="per_use", qkv="fused")}


# Any two of model, switches, sequence parallelism and stage of ZeRO meet; random layouts have the rest.
EVERY_TWO = [
    (model, switches, bool((i // 2 + j) % 2), (i + j) % 4)
    for (i, model), (j, switches) in product(enumerate(MODELS), enumerate(SWITCHES))
]


def test_any_two_choices_of_a_layout_meet():
    for left, right in combinations(range(4), 2):
        met = {(one[left], one[right]) for one in EVERY_TWO}
        assert met == {*product({one[left] for one in EVERY_TWO}, {one[right] for one in EVERY_TWO})}


@pytest.mark.parametrize(("model", "switches", "sequence_parallel", "zero"), EVERY_TWO)
def test_forward_gradients_and_update_equal_the_unsharded_program(model, switches, sequence_parallel, zero):
    mesh = Mesh({"D": 2, "X": 4})
    where = layout(tp=("X",), dp=("D",), zero=zero, sequence_parallel=sequence_parallel)
    practice = SWITCHES[switches]
    assert difference(run(MODELS[model], where, practice, mesh), unsharded(MODELS[model], practice)) < 1e-10


SPLIT = {"some": (LLAMA, 1), "none-split": (GEMMA, 0)}
FEWER = [
    (name, zero, zero > 0, [*SPLIT][(i // 2 + j) % 2])
    for i, name in enumerate(FEWER_HEADS)
    for j, zero in enumerate(((0, 2), (3, 0), (2, 3))[i % 3])
]


@pytest.mark.parametrize(("name", "zero", "sequence_parallel", "heads"), FEWER)
def test_fewer_kv_heads_than_tp_equal_the_unsharded_program(name, zero, sequence_parallel, heads):
    (model, kv_split), practice = SPLIT[heads], FEWER_HEADS[name]
    where = layout(tp=("X", "Y"), dp=("D",), zero=zero, sequence_parallel=sequence_parallel, kv_split=kv_split)
    sharded = run(model, where, practice, Mesh({"D": 2, "X": 4, "Y": 2}), layers=1)
    assert difference(sharded, unsharded(model, practice.under(where), layers=1)) < 1e-10


@pytest.mark.parametrize(("qkv", "fused", "names"), [("fused", "qkv", "kvq"), ("fused_kv", "kv", "kv")])
@pytest.mark.parametrize("model", [GPT, QWEN, GEMMA], ids=lambda model: model.name)
def test_a_fused_projection_is_the_separate_ones_side_by_side(model, qkv, fused, names):
    apart = unsharded(model, Practice())
    kinds = [f"{layer}.{kind}" for layer in range(2) for kind in "Wb"]
    values = {f"{kind}{fused}": slots(apart.inputs, apart, kind, names) for kind in kinds}
    together = unsharded(model, Practice(qkv=qkv), replaced=values)
    assert result(together, "loss") == pytest.approx(result(apart, "loss"), rel=1e-12)
    for kind in kinds:
        gradients = slots(lambda label, _: result(apart, f"grad.{label}"), apart, kind, names)
        assert result(together, f"grad.{kind}{fused}") == pytest.approx(gradients, rel=1e-9, abs=1e-12)


def slots(value, base, kind, names):
    """The values of projections beside each other before the head dim: one slot each, and one per query."""
    parts = {name: value(f"{kind}{name}", _shape(base, f"{kind}{name}")) for name in names}
    return np.concatenate([part if name == "q" else part[..., None, :] for name, part in parts.items()], axis=-2)


def result(run, name):
    return run.value(run.program.results[name])


def test_data_parallelism_over_two_axes_and_hybrid_sharding_equal_the_unsharded_program():
    both = layout(dp=("D", "F"), tp=("X",), zero=3, sequence_parallel=True)
    stored = {region: {"h": ("F",)} for region in ("stored", "grad", "state")}
    hybrid = type(both)(table={**both.table, **stored})
    for where in (both, hybrid):
        sharded = run(LLAMA, where, Practice(), Mesh({"D": 2, "F": 2, "X": 2}))
        assert difference(sharded, unsharded(LLAMA, Practice())) < 1e-10


def test_unsharded_gradients_equal_finite_differences():
    """Of one model, whose whole forward runs for every difference; of all others `verify`, which runs what is moved."""
    step, base = 1e-5, unsharded(NEOX, Practice())
    forward = replace(base.program, ops=tuple(op for op in base.program.ops if op.where.phase == "forward"))
    labels = [key.removeprefix("grad.") for key in base.program.results if key.startswith("grad.")]
    labels = [label for label in labels if not label.startswith("1.")]  # the second layer is as the first
    values = {label: base.inputs(label, _shape(base, label)) for label in labels}
    rng = np.random.default_rng(0)
    for label in labels:
        direction = rng.normal(size=values[label].shape)
        losses = []
        for sign in (1, -1):
            moved = {label: values[label] + sign * step * direction}
            shifted = execute(forward, Mesh({}), base.sizes, leaves(base.sizes, moved))
            losses.append(float(shifted.value(shifted.program.results["loss"])))
        derived = float(np.sum(base.value(base.program.results[f"grad.{label}"]) * direction))
        assert (losses[0] - losses[1]) / (2 * step) == pytest.approx(derived, rel=1e-5, abs=1e-8), label


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_the_cheapest_paths_equal_the_unsharded_program_too(zero):
    mesh = Mesh({"D": 2, "X": 2, "Y": 2})
    sizes = LLAMA.dims(sequences=4, seq=8)

    def fewest_bytes(move):
        return wire(move.kind, move.logical_elements(sizes, mesh.axes), move.ranks(mesh.axes))

    routes = Routes(mesh.order, fewest_bytes)
    where = layout(tp=("X", "Y"), dp=("D",), zero=zero, sequence_parallel=True, kv_split=1)
    sharded = run(LLAMA, where, Practice(), mesh, path=lambda x, to, _: routes.path(x.type, to))
    assert difference(sharded, unsharded(LLAMA, Practice())) < 1e-10


def test_the_judge_notices_a_collective_that_is_left_out():
    mesh, where = Mesh({"D": 2, "X": 4}), layout(tp=("X",), dp=("D",))
    sharded = run(LLAMA, where, Practice(), mesh)
    victim = next(op for op in sharded.program.ops if isinstance(op, Reshard) and op.output.name == "mlp.out")
    sharded.blocks[victim.output] = sharded.blocks[victim.inputs[0]]
    with pytest.raises(ValueError, match="replicas differ"):
        sharded.value(victim.output)


def _shape(base, label: str) -> tuple[int, ...]:
    array: Array = base.program.results[f"new.{label}"]
    return tuple(base.sizes[dim] for dim in array.dims)
