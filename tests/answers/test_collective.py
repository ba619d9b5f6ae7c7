"""The verb `collective`: rows with the keys that scripts rely on."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tpsim.answers.collective import collective
from tpsim.machine.profile import load
from tpsim.pages.collective import curve_facts
from tpsim.quantity.errors import InputError

KEYS = [
    "collective",
    "ranks",
    "logical_bytes",
    "buffer_bytes",
    "wire_bytes_per_device",
    "carried_bytes_per_device",
    "link_total_bytes",
    "link_serial_bytes",
    "steps",
    "time_s",
    "launch_s",
    "latency_s",
    "bandwidth_s",
    "ramp_s",
    "curve_s",
    "algbw_bytes_per_s",
    "busbw_bytes_per_s",
    "algorithm",
    "protocol",
]


def test_rows_have_the_keys_of_the_interface_in_their_order():
    result = collective("all-reduce", hw="dgx-h100", ranks=8, sizes="1MB")
    assert list(result.rows[0]) == KEYS
    assert list(result.to_frame().columns) == KEYS
    document = result.to_json()
    assert document["schema"] == "tpsim.collective/1"
    assert document["result"]["rows"] == [dict(row) for row in result.rows]
    assert document["inputs"][0]["path"] == "hardware/dgx-h100.yaml"


def test_both_spellings_of_a_collective_are_accepted():
    dash, underscore = (collective(name, hw="tpu-v5e", ranks=4) for name in ("all-gather", "all_gather"))
    assert dash.rows == underscore.rows
    assert dash.rows[0]["collective"] == "all_gather"


def test_a_gather_of_34_megabytes_on_one_axis_of_v5e_takes_559_us_by_the_book():
    result = collective("all-gather", hw="tpu-v5e", ranks=4, level="ici.0", sizes=33554432, cost_model="book")
    assert result.rows[0]["time_s"] == pytest.approx(559.2405e-6, rel=1e-6)
    assert result.route == "ici.0 4 (line)"


def test_bandwidths_are_those_of_nccl_tests():
    (row,) = collective("all-reduce", hw="dgx-h100", ranks=8, sizes=2**30).rows
    assert row["algbw_bytes_per_s"] == pytest.approx(2**30 / row["time_s"])
    assert row["busbw_bytes_per_s"] == pytest.approx(row["algbw_bytes_per_s"] * 2 * 7 / 8)
    assert row["time_s"] == pytest.approx(row["launch_s"] + row["latency_s"] + row["bandwidth_s"] + row["ramp_s"])


def test_buffers_of_an_all_to_all_are_a_part_of_the_whole_array():
    (row,) = collective("all-to-all", hw="dgx-h100", ranks=8, sizes=2**20, buffer=True).rows
    assert (row["logical_bytes"], row["buffer_bytes"]) == (2**23, 2**20)
    assert row["busbw_bytes_per_s"] == pytest.approx(row["algbw_bytes_per_s"] * 7 / 8)
    (gather,) = collective("all-gather", hw="dgx-h100", ranks=8, sizes=2**20, buffer=True).rows
    assert (gather["logical_bytes"], gather["buffer_bytes"]) == (2**20, 2**20)


def test_sizes_are_rounded_down_to_whole_elements_and_the_result_says_so():
    result = collective("all-gather", hw="dgx-h100", ranks=8, sizes="1000B,1600B")
    assert [row["logical_bytes"] for row in result.rows] == [992, 1600]
    assert result.assumptions[0].text == "1 size rounded down to multiples of 16 bytes: ranks x element"


def test_a_size_below_one_element_per_rank_is_refused():
    with pytest.raises(InputError) as error:
        collective("all-gather", hw="dgx-h100", ranks=8, sizes=10)
    assert str(error.value) == (
        "error[size-too-small]: 10 bytes are less than one element for each of 8 ranks\n  = give 16 bytes or more"
    )


def test_an_all_reduce_of_fewer_elements_than_ranks_is_answered_as_nccl_tests_measures_it():
    sizes = [row["logical_bytes"] for row in collective("all-reduce", hw="dgx-h100", ranks=8, sizes="2B,8B,1001B").rows]
    assert sizes == [2, 8, 1000]
    with pytest.raises(InputError, match="1 bytes are less than one element\n  = give 2 bytes or more"):
        collective("all-reduce", hw="dgx-h100", ranks=8, sizes=1)


def test_sizes_end_where_they_say_and_take_those_of_nccl_tests_which_is_said():
    result = collective("all-gather", hw="dgx-h100", ranks=8, sizes="1M:100M:x4,1MB:1GB:x10")
    assert (result.asked.sizes_bytes[-1], result.asked.sizes_bytes[-2]) == (10**9, 100 * 2**20)
    assert result.assumptions[0].text == "1M is 1 MiB, as nccl-tests writes it"


@pytest.mark.parametrize("sizes", [1e9, 10**9, [1e9], "1GB"])
def test_numbers_of_bytes_may_be_written_as_python_has_them(sizes):
    assert collective("all-reduce", hw="dgx-h100", ranks=8, sizes=sizes).asked.sizes_bytes == (10**9,)
    with pytest.raises(InputError, match=r"1\.5 is not a whole number of bytes"):
        collective("all-reduce", hw="dgx-h100", ranks=8, sizes=1.5)


def test_some_devices_of_each_node_can_be_asked_for():
    result = collective("all-gather", hw="dgx-h100", ranks=16, level="nvlink:4,network", sizes=2**20)
    assert result.route == "nvlink 4 x network 4"
    assert collective("all-gather", hw="tpu-v5e", ranks=16, level="ici.0:4,ici.1:4").route == (
        "ici.0 4 (line) x ici.1 4 (line)"
    )
    with pytest.raises(InputError, match="16 ranks, 3 of them on nvlink, do not fit on nvlink 8 x network"):
        collective("all-gather", hw="dgx-h100", ranks=16, level="nvlink:3,network")


def test_a_level_that_no_rank_lies_on_is_said():
    result = collective("all-gather", hw="dgx-h100", ranks=8, level="nvlink,network", sizes=2**20)
    assert result.notes == ("no rank lies on network: nvlink 8 holds all; --level nvlink:4,network says otherwise",)
    assert collective("all-gather", hw="dgx-h100", ranks=8, level="nvlink:4,network", sizes=2**20).notes == ()


def test_ranks_beyond_the_node_go_on_over_the_network():
    assert collective("all-gather", hw="dgx-h100", ranks=16, sizes=2**20).route == "nvlink 8 x network 2"
    assert collective("all-gather", hw="dgx-h100", ranks=2, level="network", sizes=2**20).route == "network 2"


def test_an_axis_of_a_torus_of_cubes_is_timed_as_part_of_one():
    result = collective("all-gather", hw="tpu-v4", ranks=4, level="ici.0", sizes=2**21, cost_model="book")
    assert result.rows[0]["time_s"] == pytest.approx(23.30169e-6, rel=1e-6)
    assert result.assumptions[0].text == "the slice has 4 chips along ici.1"


def test_chips_of_a_part_of_a_torus_are_told_where_a_slice_of_their_own_has_them():
    """What a newcomer has is the slice 4x8: 90 GB/s, where 16x2 of a larger one are 135."""
    within = collective("all-gather", hw="tpu-v5e", ranks=32, sizes="1GB")
    (said,) = [note for note in within.notes if "a slice of their own" in note]
    level = said.partition("--level ")[2]
    alone = collective("all-gather", hw="tpu-v5e", ranks=32, sizes="1GB", level=level)
    assert sorted(segment.n for segment in alone.placement.route(["ranks"])) == [4, 8]
    assert alone.notes == collective("all-gather", hw="tpu-v4", ranks=64, sizes="64MiB").notes == ()
    least = 31 / 32 * 1e9 / (2 * 45e9)  # each of two open axes takes in 45 GB/s
    assert alone.rows[0].time_s == pytest.approx(least, rel=0.01)
    assert within.rows[0].time_s == pytest.approx(least * 2 / 3, rel=0.01)


def test_two_axes_of_a_torus_are_used_together():
    result = collective("all-gather", hw="tpu-v5e", ranks=256, level="ici.0,ici.1", sizes=2**30)
    assert result.route == "ici.0 16 (ring) x ici.1 16 (ring)"
    assert result.rows[0]["link_total_bytes"] == 2**30 * 255 / 256 / 4


def test_one_rank_costs_nothing_and_has_no_bandwidth():
    (row,) = collective("all-reduce", hw="dgx-h100", ranks=1, sizes=2**20).rows
    assert (row["time_s"], row["busbw_bytes_per_s"]) == (0, None)


def test_the_verdict_states_the_largest_size():
    result = collective("all-gather", hw="book-h100", ranks=8, sizes="1MB,1GB", cost_model="book")
    assert result.verdict == "all_gather of 1 GB over nvlink 8 takes 1.944 ms, bus bandwidth 450 GB/s"


def test_guesses_that_the_seconds_rest_on_are_named():
    assumptions = collective("all-gather", hw="a3mega-h100", ranks=16, sizes=2**20).assumptions
    assert assumptions[-1].text == "a3mega-h100 guesses levels.network.link.efficiency"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "all-gahter"}, '"all_gahter" is not a collective\n  = did you mean "all_gather"?'),
        ({"hw": "dgx-h10"}, '"dgx-h10" is not a machine'),
        ({"dtype": "bf61"}, '"bf61" is not a dtype'),
        ({"level": "nvlnk"}, '"nvlnk" is not a level of the machine\n  = did you mean "nvlink"?'),
        ({"sizes": "1 mB"}, "write"),
        ({"ranks": 0}, "there cannot be 0 ranks"),
        (
            {"ranks": 16, "level": "nvlink"},
            ": 16 ranks do not fit on nvlink 8\n  = write --level nvlink,network, or ask for fewer ranks",
        ),
        (
            {"ranks": 8, "level": "nvlink:4"},
            ": 8 ranks do not fit on nvlink 4\n  = write --level nvlink:4,network, or ask for fewer ranks",
        ),
        (
            {"hw": "tpu-v5e", "ranks": 32, "level": "ici.0"},
            ": ranks 32 cannot be laid on ici of 16x16 evenly\n  = name another physical axis of it, or one more",
        ),
        ({"hw": "tpu-v2", "ranks": 1009}, ": 1009 ranks do not fit on ici 16x16\n  = ask for fewer ranks"),
        ({"algorithm": "tre"}, '"tre" is not an algorithm'),
    ],
)
def test_a_mistake_is_answered_with_a_remedy(change, message):
    asked = {"name": "all-gather", "hw": "dgx-h100", "ranks": 8, **change}
    with pytest.raises(InputError) as error:
        collective(asked.pop("name"), **asked)
    assert message in str(error.value)


def test_the_curve_says_the_floor_and_from_where_on_bandwidth_is_reached():
    result = collective("all-reduce", hw="dgx-h100", ranks=8, sizes="1MB")
    found = result.curve
    assert found.floor_s == collective("all-reduce", hw="dgx-h100", ranks=8, sizes="2B").rows[0]["time_s"]
    for size, share in ((found.half_peak_bytes, 0.5), (found.p95_peak_bytes, 0.95)):
        at, before = (
            collective("all-reduce", hw="dgx-h100", ranks=8, sizes=each).rows[0]["busbw_bytes_per_s"]
            for each in (size + 16, size - 16)
        )
        assert before < share * found.peak_busbw_bytes_per_s <= at
    assert found.peak_busbw_bytes_per_s == pytest.approx(2 * 7 / 8 * 8 / 9 * 0.689 * 450e9, rel=1e-4)


def test_the_curve_names_every_change_of_the_way_where_it_happens():
    ways = collective("all-gather", hw="dgx-a100", ranks=8, sizes="1MB").curve.ways
    assert [(way.algorithm, way.protocol) for way in ways] == [("ring", "ll"), ("ring", "ll128"), ("ring", "simple")]
    for before, after in pairwise(ways):
        rows = collective(
            "all-gather", hw="dgx-a100", ranks=8, sizes=[after.from_bytes - 16, after.from_bytes + 16]
        ).rows
        assert [row["protocol"] for row in rows] == [before.protocol, after.protocol]


def test_ways_that_differ_by_protocol_are_told_apart_on_the_page():
    facts = dict(curve_facts(collective("all-reduce", hw="l40s-pcie", ranks=8, sizes="1MB").curve))
    assert facts["taken"] == "ring with ll, ring with simple from 772.6 kB on"
    plain = dict(curve_facts(collective("all-gather", hw="tpu-v5e", ranks=16, level="ici.0", sizes="1MB").curve))
    assert " with " not in plain["taken"]


def test_a_collective_that_costs_nothing_has_no_curve():
    found = collective("all-reduce", hw="dgx-h100", ranks=1, sizes=2**20).curve
    assert (found.floor_s, found.peak_busbw_bytes_per_s, found.half_peak_bytes, found.ways) == (0, None, None, ())


def test_a_forced_protocol_and_a_harness_are_taken():
    (free,), (forced,) = (
        collective("all-gather", hw="dgx-h100", ranks=8, sizes=2**30, **choice).rows
        for choice in ({}, {"protocol": "ll", "launch": "graph"})
    )
    assert (free["protocol"], forced["protocol"]) == ("simple", "ll")
    assert forced["time_s"] > free["time_s"]
    assert forced["launch_s"] == load("dgx-h100").level("nvlink").protocols["ll"].latency.value
