"""Weights that are stored wider than activations: where they are cast, what travels, and what backward finds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.models import GPT, LLAMA, loops
from tpsim.cost.memory import memory, standing
from tpsim.cost.sizes import Sizes
from tpsim.program.dtypes import Dtypes
from tpsim.program.frameworks import PRACTICES
from tpsim.program.layout import Layout, layout
from tpsim.program.lifetimes import lifetimes
from tpsim.program.lower import lower
from tpsim.program.op import Leaf, Reshard, is_cast
from tpsim.program.transformer import parameter_count

MIXED = Dtypes(params="f32")
FSDP2 = PRACTICES["fsdp2"]
CASTING = ("fsdp2", "deepspeed", "xla", "ideal")


def derive(practice, dtypes=MIXED, zero=3, model=LLAMA):
    where = layout(dp=("D",), tp=("X",), zero=zero)
    return lower(model, where, practice, dtypes, ("D", "X"), layers=2, microbatches=2)


def gathers(program):
    """Of every gather of weights what makes the array that it reads."""
    makers = {op.output: op for op in program.ops}
    moved = [op for op in program.ops if isinstance(op, Reshard) and op.output.role == "param" and op.moves]
    return {op: makers[op.inputs[0]] for op in moved}


@pytest.mark.parametrize("model", [LLAMA, GPT], ids=["llama", "gpt"])
@pytest.mark.parametrize("base", CASTING)
def test_weights_are_cast_as_they_are_stored_and_travel_as_activations_are(base, model):
    """PyTorch FSDP2, _fsdp_collectives.py: shards are copied to param_dtype, and that is gathered."""
    found = gathers(derive(PRACTICES[base], model=model))
    assert found
    for gather, cast in found.items():
        (stored,) = cast.inputs
        assert is_cast(cast)
        assert (stored.dtype, cast.output.dtype, gather.output.dtype) == ("f32", "bf16", "bf16")
        assert (cast.output.type, cast.output.region) == (stored.type, "stored")
        assert f"{stored.name} is stored as {stored.type} in f32, cast to bf16 there and used as" in gather.because


def test_products_of_other_stacks_read_weights_as_they_are_stored():
    found = gathers(derive(PRACTICES["megatron"]))
    assert {(type(maker), gather.output.dtype) for gather, maker in found.items()} == {(Leaf, "f32")}


@pytest.mark.parametrize(
    "dtypes", [Dtypes(), Dtypes(params="fp8"), Dtypes(activations="f32", params="bf16")], ids=["alike", "fp8", "f32"]
)
def test_nothing_is_cast_that_is_no_wider_than_activations(dtypes):
    shapes = [
        [(type(op), str(op.output), op.output.dtype, op.where) for op in derive(practice, dtypes).ops]
        for practice in (FSDP2, replace(FSDP2, cast="products"))
    ]
    assert shapes[0] == shapes[1]


def test_what_is_gathered_again_is_cast_again_and_what_is_kept_is_not():
    again, kept = (derive(replace(FSDP2, reshard_after_forward=dropped)) for dropped in (True, False))
    for gather, cast in gathers(again).items():
        assert (cast.where.act, cast.where.again) == (gather.where.act, gather.where.again)
        assert (cast.where.again == "gather") == (gather.where.act != "F")
    assert {gather.where.act for gather in gathers(again)} == {"F", "B"}
    assert {op.where.act for op in kept.ops if is_cast(op)} == {"F"}


def test_a_cast_of_a_shard_is_gone_with_its_gather_and_one_of_a_whole_weight_is_kept_for_backward():
    for zero, acts in ((3, {"F"}), (0, {"F", "B"})):
        program = derive(FSDP2, zero=zero)
        alive = lifetimes(program)
        (cast,) = [
            op
            for op in program.ops
            if is_cast(op)
            and (op.output.name, op.where.layer) == ("W1", 0)
            and (op.where.act, op.where.microbatch) == ("F", 0)
        ]
        assert alive.makers[cast.output] is cast
        assert {op.where.act for op in alive.readers[cast.output]} == acts


@pytest.mark.parametrize("sent", ["f32", "bf16"])
@pytest.mark.parametrize("zero", [0, 3])
def test_gradients_are_made_as_activations_are_and_sent_as_stated(zero, sent):
    """FSDP2's reduce_dtype; what is updated is stored as it was."""
    program = derive(FSDP2, replace(MIXED, gradients=sent), zero=zero)
    makers = {op.output: op for op in program.ops}
    reduced = [op for op in program.ops if isinstance(op, Reshard) and op.output.name == "grad.W1" and op.moves]
    assert {op.output.dtype for op in reduced} == {sent}
    made = {x.dtype for op in program.ops if op.output.name == "grad.W1" for x in op.inputs if x.name == "d.W1"}
    assert made == {"bf16"}
    new = program.results["new.0.W1"]
    assert (new.dtype, makers[new].where.act) == ("f32", "U")
    assert not [op for op in program.ops if isinstance(op, Leaf) and op.output.name.startswith("master.")]


@pytest.mark.parametrize(
    ("stored", "sent"), [("f32", "bf16"), ("bf16", "f32")], ids=["sent as they are made", "sent in f32"]
)
@pytest.mark.parametrize("zero", [0, 2, 3])
def test_what_fsdp2_has_reduced_it_holds_as_parameters_are_stored(zero, stored, sent):
    """PyTorch FSDP2, _fsdp_collectives.py, foreach_reduce: sent in reduce_dtype, then brought to orig_dtype."""
    program = derive(FSDP2, Dtypes(params=stored, gradients=sent), zero=zero)
    reduced = [op for op in program.ops if isinstance(op, Reshard) and op.output.name == "grad.W1" and op.moves]
    assert {op.output.dtype for op in reduced} == {sent}
    assert program.results["grad.0.W1"].dtype == stored


HYBRID = {"*": {"b": ("R", "D")}, "state": {"h": ("D",)}, "grad": {"h": ("D",)}, "stored": {"h": ("D",)}}


@pytest.mark.parametrize(
    ("gradients", "microbatches", "each"),
    [("auto", 1, 2), ("auto", 2, 4), ("per_microbatch", 2, 2)],
    ids=["one microbatch", "waits", "summed in each"],
)
def test_shards_that_wait_for_the_sum_over_replicas_are_held_as_they_are_sent(gradients, microbatches, each):
    """FSDP2, foreach_reduce: partial_reduce_output is added up in reduce_dtype until all_reduce_grads is set.

    Then, and in every backward where that is set all the time, what was summed is brought to orig_dtype.
    """
    program = lower(LLAMA, Layout(HYBRID), replace(FSDP2, gradients=gradients), Dtypes(), ("R", "D"))
    (own,) = [x for x, where in standing(program).gradients.items() if (x.name, where.layer) == ("grad.W1", 0)]
    assert (own.dtype, own.type.sharded_axes) == ("bf16", ("D",))
    sizes = Sizes(LLAMA.dims(sequences=8, seq=8), {"R": 2, "D": 2}, loops(2, microbatches))
    elements = parameter_count(LLAMA, padded=True)
    assert memory(program, sizes).gradients_bytes == each * elements / 2


def test_what_others_have_reduced_they_hold_as_it_was_sent():
    for base in ("megatron", "deepspeed", "xla"):
        assert derive(PRACTICES[base], replace(MIXED, gradients="bf16")).results["grad.0.W1"].dtype == "bf16"


@pytest.mark.parametrize(
    ("zero", "gradients", "stored", "held_as"),
    [
        (3, "auto", "f32", "f32"),
        (3, "auto", "bf16", "bf16"),
        (2, "per_step", "f32", "whole"),
        (0, "auto", "f32", "f32"),
        (0, "per_microbatch", "bf16", "bf16"),
    ],
    ids=["shards, wider", "shards, narrower", "waits whole", "wider", "narrower"],
)
def test_a_chip_holds_what_is_reduced_as_stored_and_what_waits_for_it_as_it_is_sent(zero, gradients, stored, held_as):
    """Of a layer's W1; what is added up whole for shards at the end of a step is the larger buffer."""
    sent = {"f32": "bf16", "bf16": "f32"}[stored]
    program = derive(replace(FSDP2, gradients=gradients), Dtypes(params=stored, gradients=sent), zero=zero)
    (own,) = [x for x, where in standing(program).gradients.items() if (x.name, where.layer) == ("grad.W1", 0)]
    whole = held_as == "whole"
    assert (own.dtype, "D" in own.type.sharded_axes) == (sent if whole else held_as, zero > 0 and not whole)


@pytest.mark.parametrize(
    ("shards", "optimizer", "master"), [("bf16", "f32", "f32"), ("bf16", "bf16", "bf16"), ("f32", "bf16", "f32")]
)
def test_masters_are_no_coarser_than_the_optimizer_whatever_shards_are_at_rest_as(shards, optimizer, master):
    """What is whole all the step is gathered of them: FSDP2's ZeRO 1 with activations narrower than parameters."""
    dtypes = Dtypes(activations="fp8", params="fp8", shards=shards, optimizer=optimizer)
    states = [
        op.output for op in derive(FSDP2, dtypes, zero=1).ops if op.output.role == "state" and isinstance(op, Leaf)
    ]
    found = {kind: {x.dtype for x in states if x.name.startswith(kind)} for kind in ("master.", "moment.")}
    assert found == {"master.": {master}, "moment.": {optimizer}}
