"""Seconds, bytes and memory against sums done by hand: what a reader with pencil and paper would check first."""

from __future__ import annotations

from math import ceil, log2, sqrt

import pytest

from tpsim.answers.collective import collective
from tpsim.answers.plan import plan
from tpsim.cost.compute import compute, kernel_s
from tpsim.fabric.wires import Segment
from tpsim.machine import timing
from tpsim.machine.profile import load
from tpsim.quantity.errors import InputError

V = 2**28
MODELS = ("additive", "book")
MOVES = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute")


def nodes(g, count):
    return (Segment("nvlink", "nvlink", "switch", g), Segment("network", "network", "switch", count))


def axis(n, topology, index=0):
    return Segment("ici", f"ici.{index}", topology, n)


# A TPU v5e: launch 4.27 us, a hop 1 us, 45 GB/s per link and direction; chunks stream through the hops --------------


LAUNCH, HOP = 4.27e-6, 1e-6


def stream(hops, link):
    """Seconds of chunks that follow each other: all but the first hide the shorter of hop and bytes."""
    return max(hops * HOP, link) + min(hops * HOP, link) / hops


@pytest.mark.parametrize("n", [3, 4, 8, 16])
def test_a_closed_ring_of_v5e_uses_both_directions(n):
    half, link = n // 2, V * (n - 1) / (2 * n) / 45e9
    assert seconds("tpu-v5e", [axis(n, "ring")], "all_gather") == pytest.approx(LAUNCH + stream(half, link))
    assert seconds("tpu-v5e", [axis(n, "ring")], "all_reduce") == pytest.approx(LAUNCH + stream(2 * half, 2 * link))
    crossed = V * (n * n // 4) / (2 * n * n) / 45e9
    assert seconds("tpu-v5e", [axis(n, "ring")], "all_to_all") == pytest.approx(LAUNCH + stream(half, crossed))


@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_a_line_of_v5e_takes_twice_as_long_per_byte(n):
    link = V * (n - 1) / n / 45e9
    assert seconds("tpu-v5e", [axis(n, "line")], "all_gather") == pytest.approx(LAUNCH + stream(n - 1, link))
    slots = n * n // 4
    busiest = V * slots / n**2 / 45e9
    exchange = min(stream(slots, busiest), stream(n - 1, busiest))
    assert seconds("tpu-v5e", [axis(n, "line")], "all_to_all") == pytest.approx(LAUNCH + exchange)


def test_a_slice_of_8_by_16_has_one_and_a_half_axes():
    route = [axis(16, "ring"), axis(8, "line", 1)]
    assert seconds("tpu-v5e", route, "all_gather") == pytest.approx(LAUNCH + stream(15, V * 127 / 128 / (3 * 45e9)))


def test_an_axis_that_shares_its_links_moves_the_smallest_part():
    shared = Segment("ici", "ici.0", "ring", 4, 4)
    small, whole = 4 * (V / 16) * 3 / 8 / 45e9, V * 15 / 32 / 45e9
    gather = LAUNCH + stream(4 * 2, small) + stream(8, whole)
    assert seconds("tpu-v5e", [shared, axis(16, "ring", 1)], "all_gather") == pytest.approx(gather)
    assert seconds("tpu-v5e", [axis(16, "ring", 1), shared], "all_gather") == pytest.approx(gather)
    reduce = LAUNCH + stream(2 * 4 * 2, 2 * small) + 2 * stream(8, whole)
    assert seconds("tpu-v5e", [shared, axis(16, "ring", 1)], "all_reduce") == pytest.approx(reduce)


def test_the_book_divides_by_both_directions_of_every_closed_axis():
    W = 2 * 45e9
    cube = [axis(4, "ring", index) for index in range(3)]
    assert by_the_book("tpu-v4", cube[:1], "all_gather") == pytest.approx(V / W)
    assert by_the_book("tpu-v4", cube, "all_gather") == pytest.approx(V / (3 * W))
    assert by_the_book("tpu-v4", cube, "all_reduce") == pytest.approx(2 * V / (3 * W))
    assert by_the_book("tpu-v4", cube[:1], "all_to_all") == pytest.approx(V / (4 * W))
    assert by_the_book("tpu-v4", cube, "all_to_all") == pytest.approx(V / 16 / (4 * W))
    assert by_the_book("tpu-v4", [axis(4, "line")], "all_to_all") == pytest.approx(V / (2 * W))


# DGX: bytes over ports and cards, launch and hops of NCCL ---------------------------------------------------------


# Large arrays take the protocol simple: launch 3.5 us, latency 13.3 us, 2.88 us a step inside and 14 us between nodes.
START, PORT_HOP, CARD_HOP, CHUNK = 3.5e-6 + 13.3e-6, 2.88e-6, 14e-6, 2.46e-6
PORT, CARD, OWN = 0.8 * 300e9, 0.915 * 25e9, 765e9


def ramp(link, own=0.0, chunk=CHUNK):
    """Seconds beyond the links': the own share through memory, and the best pipeline of chunks."""
    return own / OWN + 2 * sqrt(chunk * (link + own / OWN))


def half(g):
    """A reduce-scatter or an all-gather among the ports: its link's seconds and its ramp's."""
    link = V * (g - 1) / g / PORT
    return link, ramp(link, V / g)


@pytest.mark.parametrize("count", [2, 4, 16])
def test_an_all_reduce_over_nodes_is_the_lesser_of_trees_and_flat_rings(count):
    g = 8
    n = g * count
    link, chunks = half(g)
    climb = V / g * min(count / 2, 2) / CARD
    hops = 2 * (g - 1) * PORT_HOP + 2 * ceil(log2(count)) * CARD_HOP
    tree = START + hops + max(2 * link, climb) + 2 * chunks + ramp(climb, chunk=14e-6)
    hops = 2 * (n - 1 - count) * PORT_HOP + 2 * count * CARD_HOP
    link = 2 * max(V * (g - 1) * (n - 1) / (g * n) / PORT, V * (n - 1) / (g * n) / CARD)
    flat = START + hops + link + ramp(link, V / n)
    run = timing.time(load("dgx-a100"), nodes(g, count), "all_reduce", V, protocol="simple")
    assert run.time_s == pytest.approx(min(tree, flat))


def test_two_nodes_gain_by_a_tree_what_a_flat_ring_sends_twice():
    tree, flat = (
        timing.time(load("dgx-a100"), nodes(8, 2), "all_reduce", V, algorithm=name) for name in ("tree", "flat-ring")
    )
    (nic,) = (stage.traffic.link_total for stage in tree.stages if stage.level == "network")
    assert flat.link_total == max(2 * V * 7 * 15 // (8 * 16), 2 * V * 15 // 16 // 8)
    assert (2 * V * 15 // 16 // 8) / nic == 1.875


def test_an_all_reduce_level_by_level_loads_the_inner_links_twice():
    g, count = 8, 2
    run = timing.time(load("dgx-a100"), nodes(g, count), "all_reduce", V, algorithm="ring")
    port = 2 * V * (g - 1) // g
    assert (run.link_total, run.link_serial) == (port, port)
    assert run.carried == port + 2 * V // g * (count - 1) // count
    link, chunks = half(g)
    card = 2 * V / g * (count - 1) / count / CARD
    inner = 2 * ((g - 1) * PORT_HOP + link + chunks)
    outer = 2 * (count - 1) * CARD_HOP + card
    assert run.pipelined_s == pytest.approx(run.launch_s + max(inner, outer))
    assert run.time_s == pytest.approx(run.launch_s + inner + outer - min(2 * link, card))


def test_a_superpod_is_as_fast_as_its_slowest_level_by_the_book():
    route = [Segment(name, name, "switch", n) for name, n in (("nvlink", 8), ("leaf", 32), ("spine", 4))]
    slowest = max(7 / 8 / 450e9, 31 / 32 / (8 * 50e9), 3 / 4 / 12.8e12)
    assert by_the_book("book-h100", route, "all_gather") == pytest.approx(V * slowest)
    assert by_the_book("book-h100", route, "all_reduce") == pytest.approx(2 * V * slowest)


@pytest.mark.parametrize("kind", MOVES)
@pytest.mark.parametrize("cost_model", MODELS)
def test_levels_of_one_device_cost_nothing(kind, cost_model):
    assert timing.time(load("dgx-h100"), nodes(1, 1), kind, V, cost_model=cost_model).time_s == 0


@pytest.mark.parametrize("choice", [{"algorithm": "tree"}, {"algorithm": "nonsense"}, {"launch": 1e-6}])
def test_a_choice_that_the_book_has_not_is_refused(choice):
    with pytest.raises(InputError) as error:
        timing.time(load("dgx-h100"), nodes(8, 2), "all_reduce", V, cost_model="book", **choice)
    ((what, value),) = choice.items()
    assert str(error.value) == (
        f"error[no-choice-by-the-book]: the cost model book has no {what} to choose: {value} would change nothing\n"
        f"  = leave the {what} out, or take the cost model additive"
    )


def test_a_switch_that_cannot_add_is_not_asked_to():
    forced = {"sizes": 2**20, "ranks": 8, "algorithm": "in-switch"}
    assert collective("all-reduce", hw="dgx-h100", **forced).rows[0]["algorithm"] == "in-switch"
    with pytest.raises(InputError) as error:
        collective("all-reduce", hw="dgx-a100", **forced)
    assert str(error.value) == (
        'error[unknown-algorithm]: "in-switch" is not an algorithm of all_reduce on nvlink 8\n'
        "  = known: ring, direct, doubling, one-shot, tree"
    )


@pytest.mark.parametrize(
    ("name", "whole", "factor"),
    [
        ("all-gather", 1, 7 / 8),
        ("reduce-scatter", 1, 7 / 8),
        ("all-reduce", 1, 14 / 8),
        ("all-to-all", 8, 7 / 8),
        ("permute", 8, 1),
    ],
)
def test_a_buffer_is_what_nccl_tests_call_size(name, whole, factor):
    size = 2**24
    (row,) = collective(name, hw="dgx-h100", ranks=8, sizes=size, buffer=True).rows
    assert (row["buffer_bytes"], row["logical_bytes"]) == (size, whole * size)
    assert row["algbw_bytes_per_s"] == pytest.approx(size / row["time_s"])
    assert row["busbw_bytes_per_s"] == pytest.approx(factor * row["algbw_bytes_per_s"])


# A step of Llama 3 70B: 80 layers, h 8192, f 28672, 8 kv heads of 128, vocabulary 128256 --------------------------

LAYERS, H, F, KV, VOCAB = 80, 8192, 28672, 8 * 128, 128256
PRODUCTS = 2 * H * H + 2 * H * KV + 3 * H * F
GAINS = LAYERS * 2 * H + H


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_each_zero_stage_holds_what_it_leaves_whole(zero):
    t, d = 8, 32
    held = (LAYERS * PRODUCTS + 2 * VOCAB * H) // t + GAINS
    memory = plan("llama3-70b-h100", overrides=[f"layout.zero={zero}"]).memory
    parameters, gradients, optimizer = (d if zero >= stage else 1 for stage in (3, 2, 1))
    assert memory.parameters_bytes * parameters == 2 * held
    assert memory.gradients_bytes * gradients == 4 * held
    assert memory.optimizer_bytes * optimizer == 12 * held


def test_the_flops_are_six_per_parameter_in_products_and_token_and_those_of_attention():
    result = plan("llama3-70b-h100")
    tokens, seq = 512 * 4096, 4096
    products = 6 * (LAYERS * PRODUCTS + VOCAB * H) * tokens
    attention = 3 * LAYERS * 2 * 2 * seq * H * tokens
    assert result.compute.useful_flops == products + attention
    # A causal kernel leaves out what its mask hides, and a fused one makes its scores again in backward.
    run = products + attention * 3.5 / 3 * (seq + 1) / (2 * seq)
    every = [one for one in result.memo.lowered(result.question).kernels if one.products]
    pauses = 2e-6 * sum(one.count(result.sizes) for one in every)
    worked = compute(every, result.sizes, result.question.machine, "bf16", 0.5).time_s
    assert worked - pauses == pytest.approx(run / 256 / (0.5 * 989e12), rel=1e-9)
    assert worked < result.step.compute_s < 1.1 * worked
    assert result.step.mfu == pytest.approx((products + attention) / (256 * 989e12 * result.step.time_s))


def test_gradients_hide_behind_the_last_backward_and_new_weights_do_not():
    result = plan("llama3-70b-h100")
    once = result.compute.seconds["backward"] / 4
    settled = [row for row in result.rows if row.call.op == "gradient" and row.call.axes == ("data",)]
    scattered = sum(row.busy_s for row in settled)
    assert scattered < once
    assert (
        0 < sum(row.exposed_s for row in settled) < 0.05 * scattered
    )  # of the last bucket nothing is left to hide behind
    gathered = [row for row in result.rows if row.phase == "update" and row.collective == "all_gather"]
    assert gathered
    assert all(row.exposed_s == row.busy_s for row in gathered)
    hidden = sum(row.hidden_s for row in result.rows)
    assert hidden > 0.95 * scattered  # calls on activations hide, too
    shown_s = result.step.communication_s - hidden
    assert result.step.time_s == pytest.approx(result.step.compute_s + shown_s + result.step.stragglers_s)


def test_products_reach_their_peak_by_the_book_unless_something_else_is_stated():
    asked = {"model": "llama-3-8b", "hw": "tpu-v5e", "tp": 16, "dp": 16, "batch": 256, "seq": 4096}
    additive, book = plan(**asked), plan(**asked, cost_model="book")
    kernels = [one for one in book.memo.lowered(book.question).kernels if one.products]
    at_peak = [kernel_s(one, book.sizes, book.question.machine, "bf16", 1.0) for one in kernels]
    flops = [one.run_flops(book.sizes) / 197e12 for one in kernels]
    assert all(s >= least for s, least in zip(at_peak, flops, strict=True))
    assert sum(s == pytest.approx(least) for s, least in zip(at_peak, flops, strict=True)) > len(flops) / 2
    assert additive.step.compute_s > book.step.compute_s > sum(flops)
    said = "matrix products reach their peak, as the cost model book has it"
    assert said in [one["text"] for one in book.assumptions]
    stated = plan("llama3-70b-h100", overrides=["cost_model=book"])
    assert stated.step.compute_s == plan("llama3-70b-h100").step.compute_s


def seconds(name, route, kind):
    return timing.time(load(name), tuple(route), kind, V).time_s


def by_the_book(name, route, kind):
    return timing.time(load(name), tuple(route), kind, V, cost_model="book").bandwidth_s


def test_an_algorithm_s_own_latency_takes_the_place_of_the_level_s():
    nvlink = [Segment("nvlink", "nvlink", "switch", 8)]
    ring, switch = (
        timing.time(load("dgx-h100"), nvlink, "all_reduce", 2**24, algorithm=name, protocol="simple")
        for name in ("ring", "in-switch")
    )
    assert ring.latency_s == pytest.approx(14 * 2.06e-6)
    assert (switch.steps, switch.latency_s) == (2, 0)
    assert (ring.launch_s, switch.launch_s) == (pytest.approx(10.9e-6), pytest.approx(17.6e-6))
