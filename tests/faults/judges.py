"""The judges of faults: what each says is wrong, one line per finding, nothing where all is right.

`verify` and `verify_expression` are the product's own; the laws are those of tests/reference, drawn the same way every
time or put to one example, and those of laws.py; links are counted message by message.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache, partial

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import tpsim
from tests.algebra import test_cheapest as cheapest
from tests.cost import test_orders as orders
from tests.cost import test_timeline as timeline
from tests.faults.laws import LAWS
from tests.generators import chains, meshes
from tests.machines import TORUS
from tests.models import LLAMA as LLAMA_SMALL
from tests.program import test_repetition as repeated
from tests.program import test_stages as stages
from tests.reference import test_linkload as proof
from tests.reference import test_program_properties as programs
from tests.reference import test_properties as moved
from tpsim.algebra.moves import wire
from tpsim.machine.algorithms import FORMS, TORUS_FORMS
from tpsim.program.frameworks import PRACTICES
from tpsim.program.practice import Practice
from tpsim.quantity.errors import InputError
from tpsim.reference.collectives import Stretch
from tpsim.reference.linkload import load

TP, SP, LLAMA, KV = "gpt3-175b-a100-tp8", "gpt3-175b-a100-tp8-sp", "llama3-70b-h100", "llama3-70b-kv-replication"
STAGES = "gpt3-175b-a100-pipeline"


def verify(scenario):
    """The failing checks of a scenario."""
    return lambda: said(tpsim.verify(scenario).runs[0])


def expression(text, mesh="X=4,Y=2", **where):
    """The failing checks of an expression."""
    return lambda: said(tpsim.verify_expression(text, mesh, **where).runs[0])


def said(run):
    return [f"{check.check}: {check.detail}" for check in run.failed]


def law(holds):
    """A law as a judge: what it says where it does not hold."""

    def judge():
        try:
            holds()
        except AssertionError as broken:
            return [f"broken: {broken}"]
        return []

    return judge


def drawn(test, examples, **strategies):
    """A law over random inputs, the same ones every time, without a search for the smallest that breaks it."""
    inner = test.hypothesis.inner_test

    def holds(**inputs):
        inner(**inputs)

    plain = settings(
        max_examples=examples, phases=[Phase.generate], derandomize=True, database=None, deadline=None, print_blob=False
    )
    return law(plain(given(**strategies)(holds)))


def findings(judge):
    """What a judge says; a fault that makes the product refuse its own work is noticed too."""
    try:
        return judge()
    except (ArithmeticError, InputError, LookupError, NotImplementedError, ValueError) as refusal:
        return [f"refused: {refusal}"]


# Links, message by message ---------------------------------------------------------------------------------------


counted_load = cache(load)
"""Of one form many faults are judged, by the same messages."""


def wrong_form(topology, kind, name, sizes=range(1, 8)):
    """The fields in which a closed form of one axis is not what its messages load links with."""
    wrong = set()
    for n in sizes:
        counted = counted_load(kind, (Stretch((proof.segment(topology, n),), name),))
        claimed = FORMS[topology][kind][name](Fraction(1), n)
        fields = {field: getattr(counted, field) for field in proof.FIELDS}
        if name in proof.STREAMED:  # its links never wait
            fields["link_serial"] = counted.link_total
        if name in proof.NOT_AS_INJECTED:
            fields["wire"] = wire(kind, Fraction(1), n)
        wrong |= {field for field, value in fields.items() if getattr(claimed, field) != value}
    return wrong


def wrong_torus(kind, name, shape, joined):
    """The fields in which a closed form of a torus is not what its messages load links with."""
    counted = counted_load(kind, (Stretch(proof.segments(shape, joined), name),))
    claimed = TORUS_FORMS[kind][name](Fraction(1), proof.axes(shape, joined))
    waits = counted.link_serial if name == "in-turn" else counted.link_total  # rotated parts are streamed
    serial = {"link_serial"} if claimed.link_serial != waits else set()
    return serial | proof.differences(claimed, counted, proof.IN_ALL).keys()


def levels(name, route, kind, algorithm=None):
    """Fields in which a run over several levels is not what its messages load links with."""
    return lambda: sorted(proof.as_priced(name, route, kind, algorithm, proof.IN_ALL))


NODES = proof.nodes(2, 3)
STRIDED = proof.slices(1, ("ring", 4), ("ring", 3, 2))

LINKS = {
    "links of a gather level by level": levels(proof.H100, NODES, "all_gather", "hierarchical"),
    "links of an all-reduce level by level": levels(proof.H100, NODES, "all_reduce", "hierarchical"),
    "links of an exchange level by level": levels(proof.H100, NODES, "all_to_all", "hierarchical"),
    "links of a flat ring": levels(proof.H100, NODES, "all_gather", "flat-ring"),
    "links of an exchange straight to everyone": levels(proof.H100, NODES, "all_to_all", "pairwise"),
    "links of interleaved groups": levels(proof.V5P, STRIDED, "all_gather"),
    "links of open and closed axes": levels(
        proof.V5P, proof.slices(1, ("ring", 4), ("line", 3)), "all_gather", "in-turn"
    ),
}


def hastily():
    """The cheapest way is found where the search ends as soon as it may."""
    with pytest.MonkeyPatch.context() as patch:
        cheapest.test_no_way_is_cheaper_than_the_first_plan_where_the_search_ends_as_soon_as_it_may(patch)


def published():
    """The first of the published bubble rates, and the share of an interleaved schedule."""
    orders.test_the_published_bubble_rates_come_out_to_four_digits(orders.RATES["rows"][0])
    orders.test_the_bubble_is_the_share_that_its_paper_says(64, 3, 7 / 192, 7 / 199)


PLAYED = {
    "law: every path": drawn(
        moved.test_every_path_carries_the_array_to_the_declared_blocks_in_the_claimed_messages,
        60,
        fabric=st.just(TORUS),
        data=st.data(),
        mesh=meshes(),
    ),
    "law: derived gradients": drawn(programs.test_derived_gradients_equal_central_differences, 40, chain=chains()),
    "law: sharded chains": drawn(
        programs.test_a_sharded_chain_and_its_gradients_equal_those_of_one_device, 100, chain=chains()
    ),
    "law: repeated work": drawn(
        repeated.test_nothing_but_keys_and_values_is_repeated_and_they_only_beyond_their_heads,
        20,
        data=st.data(),
        model=st.just(LLAMA_SMALL),
        qkv=st.just("fused"),
    ),
    "law: sums once per step": drawn(
        repeated.test_no_gradient_is_settled_in_a_microbatch_but_by_scattering_it_into_its_buffer,
        20,
        data=st.data(),
        model=st.just(LLAMA_SMALL),
        practice=st.just(Practice()),
    ),
    "law: the price of a product": drawn(
        moved.test_the_cheapest_product_is_never_dearer_than_the_book,
        30,
        data=st.data(),
        mesh=moved.SMALL,
        **moved.OBJECTIVES,
    ),
    "law: the cheapest way, hastily": law(hastily),
    "law: stages": drawn(
        stages.test_one_traced_layer_and_cut_stand_for_every_rank_op_by_op,
        10,
        model=st.just(LLAMA_SMALL),
        practice=st.just(PRACTICES["megatron"]),
        chosen=stages.layouts,
        stack=stages.stacks(),
    ),
    "law: published bubbles": law(published),
    "law: gradients by layer": law(
        partial(timeline.test_of_gradients_by_layer_the_last_is_exposed_or_all_that_is_longer_than_compute, 6, 6)
    ),
    "law: gradients that block": law(partial(timeline.test_gradients_that_block_are_exposed_whole, 6)),
    "law: what is in flight": law(orders.test_what_a_rank_keeps_is_read_off_its_order),
}

SHARED = {"hw": "tpu-v5e", "placement": {"X": "ici.0", "Y": "ici.0"}}
EXPRESSIONS = {
    "gather of two axes": expression("A[I_XY, J] -> A[I, J]"),
    "gather of two dims": expression("A[I_X, J_Y] -> A[I, J]"),
    "exchange beside another axis": expression("A[I_X, J_Y] -> A[I_XY, J]"),
    "axes in another order": expression("A[I_XY, J] -> A[I_YX, J]"),
    "inner part of a ring": expression("A[I_Y, J] -> A[I, J_Y]", "X=4,Y=4", **SHARED),
    "outer part of a ring": expression("A[I_X, J] -> A[I, J_X]", "X=4,Y=4", **SHARED),
}

SHIPPED = {f"verify {name}": verify(name) for name in (TP, SP, LLAMA, KV, STAGES)}

JUDGES = {
    **SHIPPED,
    **{f"verify {name}": judge for name, judge in EXPRESSIONS.items()},
    **LINKS,
    **PLAYED,
    **{one.__name__: law(one) for one in LAWS},
}

ALONE = [judge for judge in JUDGES if judge not in SHIPPED | PLAYED]
"""Those that nobody else asks of the product as it is: the others are tests of their own, by the same functions."""
