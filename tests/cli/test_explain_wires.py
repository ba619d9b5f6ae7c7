"""`tpsim explain COLLECTIVE --hw --ranks`: steps and link bytes on a machine's wires, beside an all-gather's."""

from __future__ import annotations

import json

import pytest


def derived(tpsim, *words):
    """Formula, value and reasons of each derivation by the first words of what it is."""
    ran = tpsim("explain", *words, "-f", "json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)["result"]["derivations"]
    return {one["what"].partition(" one ")[0]: (one["formula"], one["value"], one["because"]) for one in found}


def test_an_all_to_all_on_a_ring_of_16_is_a_quarter_of_an_all_gather_as_the_ring_grows(tpsim):
    found = derived(tpsim, "all-to-all", "--hw", "tpu-v5e", "--ranks", "16")
    assert found["steps of"][:2] == ("floor(n/2)", 8)
    assert found["bytes on the busiest link of"] == (
        "V*floor(n**2/4)/(2*n**2)",
        None,
        ["1/8 of V over these 16"],
    )
    formula, value, because = found["link bytes of"]
    assert (formula, because) == ("floor(n**2/4)/(n*(n - 1))", ["1/4 as n grows"])
    assert value == pytest.approx(4 / 15)


@pytest.mark.parametrize(
    ("words", "ratio", "grown"),
    [
        (("all-to-all", "--hw", "dgx-h100", "--ranks", "8"), "1/n", ["0 as n grows"]),
        (("all-reduce", "--hw", "tpu-v5e", "--ranks", "16"), "2", []),
        (("all-reduce", "--hw", "tpu-v5e", "--ranks", "8"), "n/(n - 1)", ["1 as n grows"]),
        (("all-to-all", "--hw", "l40s-pcie", "--ranks", "4"), "1/n", ["0 as n grows"]),
    ],
)
def test_other_wires_have_other_ratios(words, ratio, grown, tpsim):
    formula, _, because = derived(tpsim, *words)["link bytes of"]
    assert (formula, because) == (ratio, grown)


def test_over_several_axes_or_levels_the_numbers_of_devices_are_those_asked(tpsim):
    torus = derived(tpsim, "all-gather", "--hw", "tpu-v5e", "--ranks", "256", "--level", "ici.0,ici.1")
    assert torus["bytes on the busiest link of"][0] == "V*(n_0*n_1 - 1)/(4*n_0*n_1)"
    levels = derived(tpsim, "all-to-all", "--hw", "dgx-h100", "--ranks", "16")
    assert levels["bytes on the busiest link of"][2] == [
        "7/128 of V over these 16",
        "7/128 of V on nvlink",
        "1/32 of V on network",
    ]


def test_one_rank_has_no_links(tpsim):
    assert list(derived(tpsim, "all-gather", "--hw", "dgx-h100", "--ranks", "1")) == ["wire bytes of"]


def test_explain_and_collective_suggest_each_other_with_machine_ranks_and_level(tpsim):
    words = ("--hw", "tpu-v5e", "--ranks", "16", "--level", "ici.1")
    there = tpsim("collective", "all-to-all", *words).out.splitlines()[-1]
    assert there == "next: tpsim explain all_to_all --hw tpu-v5e --ranks 16 --level ici.1"
    back = tpsim("explain", "all-to-all", *words).out.splitlines()[-1]
    assert back == "next: tpsim collective all-to-all --hw tpu-v5e --ranks 16 --level ici.1"


@pytest.mark.parametrize(
    ("words", "remedy"),
    [(("--hw", "dgx-h100"), "add it: --ranks 8"), (("--ranks", "8"), "add it: --hw dgx-h100")],
)
def test_a_machine_and_its_ranks_belong_together(words, remedy, tpsim):
    ran = tpsim("explain", "all-gather", *words)
    assert ran.code == 2
    assert ran.err == (
        "error[missing-flag]: steps and link bytes of all-gather are those of so many ranks on a machine\n"
        f"  = {remedy}\n"
    )
