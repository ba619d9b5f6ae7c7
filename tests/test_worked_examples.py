"""Worked examples of a whole step, by the numbers under which they were written down, and the tests that hold them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

ORDERS, PEAK, KEPT, TIMELINE = (
    "cost/test_orders.py",
    "cost/test_peak.py",
    "program/test_kept.py",
    "cost/test_timeline.py",
)
EVENTS, STAGES, OFFLOAD = "cost/test_events.py", "answers/test_stages.py", "test_offload.py"

EXAMPLES = {
    "E1": ("the bubble of 1F1B", ORDERS, "test_the_bubble_is_the_share_that_its_paper_says"),
    "E2": ("the bubble of interleaving", ORDERS, "test_the_bubble_is_the_share_that_its_paper_says"),
    "E2, with sends": ("84.0", ORDERS, "test_a_step_ends_when_the_worked_example_says"),
    "E3": ("36 published rates of bubbles", ORDERS, "test_the_published_bubble_rates_come_out_to_four_digits"),
    "E4": ("ends of orders with sends", ORDERS, "test_a_step_ends_when_the_worked_example_says"),
    "E5": ("ZB-H2's parallelogram", ORDERS, "test_h2_leaves_the_bubble_of_a_parallelogram"),
    "E6": (
        "in flight",
        PEAK,
        "test_ranks_in_the_middle_of_1f1b_hold_as_many_microbatches_as_ranks_follow_and_those_of_gpipe_all",
    ),
    "E7": ("in flight, interleaved", PEAK, "test_interleaved_ranks_hold_fractions_of_their_layers"),
    "E8": ("in flight, zero bubble", PEAK, "test_zero_bubble_ranks_hold_what_waits_for_w_as_well"),
    "E10": ("a slow rank", ORDERS, "test_a_slow_rank_delays_the_step_more_the_later_it_stands"),
    "E11": ("a layer of the 22B", KEPT, "test_a_layer_of_the_22b_keeps_the_megabytes_of_the_paper"),
    "E11, ranks": ("first ranks", KEPT, "test_the_first_rank_keeps_the_activations_that_the_paper_says"),
    "E12": ("M_W over M_B", KEPT, "test_of_what_waits_for_b_a_share_goes_on_to_w"),
    "E13": ("Llama's bytes per token", KEPT, "test_a_llama_layer_keeps_so_many_bytes_per_token"),
    "E13, over t": ("sharded", KEPT, "test_a_llama_70b_layer_of_4096_tokens_over_8_keeps_so_many_bytes"),
    "E14": (
        "full against selective recompute",
        "test_published_steps.py",
        "test_what_selective_recompute_saves_over_full_is_within_4_percent_of_the_ratio",
    ),
    "E14, a layer": ("7.83 TFLOP", "test_published_layers.py", "test_a_layer_forward_has_the_flops_of_its_products"),
    "E15": ("bytes of a send", STAGES, "test_the_rank_that_ends_last_gives_the_sums_and_the_others_are_listed"),
    "E15, over t": ("of a shard", STAGES, "test_sequence_parallelism_sends_a_shard"),
    "E16": (
        "gathers ahead",
        TIMELINE,
        "test_forward_of_sharded_weights_waits_for_the_first_gather_and_the_longer_of_both",
    ),
    "E17": (
        "gradients by layer",
        TIMELINE,
        "test_of_gradients_by_layer_the_last_is_exposed_or_all_that_is_longer_than_compute",
    ),
    "E18": (
        "collective matmul",
        EVENTS,
        "test_a_product_in_eight_pieces_begins_with_its_own_and_hides_hops_behind_the_others",
    ),
    "E21": (
        "the tied embedding's gradient",
        STAGES,
        "test_the_rank_that_ends_last_gives_the_sums_and_the_others_are_listed",
    ),
    "E22": ("few microbatches", ORDERS, "test_a_step_ends_when_the_worked_example_says"),
    "E23": ("waves of tiles", "cost/test_compute.py", "test_tiles_are_dealt_out_in_whole_waves"),
    "E24": ("FLOPs of full recompute", KEPT, "test_full_recompute_is_four_thirds_of_the_flops"),
    "E24, selective": ("of selective", KEPT, "test_selective_recompute_runs_attentions_two_products_once_more"),
    "E25": (
        "states per parameter",
        PEAK,
        "test_states_are_18_bytes_per_parameter_and_7_and_a_half_over_eight_data_ranks",
    ),
    "E28": ("throughput from bubbles alone", ORDERS, "test_a_published_throughput_follows_from_bubbles_alone"),
    "E19": ("ZeRO-Offload", OFFLOAD, "test_ten_billion_parameters_as_the_worked_example_has_them"),
    "E30": ("blocking exchanges", ORDERS, "test_sends_that_block_are_exchanged_in_pairs"),
    "E31": ("lanes of their own", TIMELINE, "test_gradients_on_a_lane_of_their_own_never_delay_a_pipeline"),
    "E31, one lane": ("the counterexample", EVENTS, "test_gradients_in_one_lane_with_sends_are_slower_than_no_overlap"),
    "E31, levels": ("shares", TIMELINE, "test_buckets_over_the_network_hold_no_tensor_call_of_their_layers_up"),
}
"""Number -> what it is of, the file of its test, and the test; V placements are refused by name."""


def test_every_worked_example_of_what_is_built_is_listed():
    numbers = {int(name[1:].split(",")[0]) for name in EXAMPLES}
    assert numbers == {*range(1, 9), *range(10, 20), *range(21, 26), 28, 30, 31}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_worked_example_has_its_test(name):
    _, file, test = EXAMPLES[name]
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    found = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}
    assert any(isinstance(one, ast.Assert) for one in ast.walk(found[test]))
