"""A plan with an algorithm, a protocol or a launch that is forced."""

from __future__ import annotations

import pytest

import tpsim
from tpsim.answers.collective import collective
from tpsim.machine.profile import load
from tpsim.pages.collective import page
from tpsim.pages.plan import page as plan_page
from tpsim.quantity.errors import InputError
from tpsim.question.save import scenario_data

SCENARIO = "llama3-70b-h100"


def chosen(**forced):
    plan = tpsim.plan(SCENARIO, **forced)
    return plan, {(row["collective"], row["axis"], row["algorithm"], row["protocol"]) for row in plan.collectives}


def test_an_algorithm_is_taken_by_the_collectives_that_know_it_and_by_no_other():
    _, ways = chosen(algorithm="tree")
    alone = {algorithm for kind, axis, algorithm, _ in ways if kind == "all_reduce" and "," not in axis}
    assert alone == {"tree"}  # of two levels each has a way of its own
    assert {algorithm for kind, _, algorithm, _ in ways if kind == "all_gather"} == {"ring"}


def test_a_protocol_is_taken_by_all():
    _, ways = chosen(protocol="simple")
    assert {protocol for *_, protocol in ways} == {"simple"}


def test_a_launch_is_saved_for_every_call():
    free, none = (tpsim.plan(SCENARIO, **forced) for forced in ({}, {"launch": "graph"}))
    calls = sum(row["count"] for row in free.collectives)
    saved = sum(row["time_s"] * row["count"] for row in free.collectives) - sum(
        row["time_s"] * row["count"] for row in none.collectives
    )
    assert saved == pytest.approx(load("dgx-h100").level("nvlink").launch["threads"].value * calls)
    assert none.step.time_s < free.step.time_s


def test_what_is_forced_is_part_of_the_question_and_of_its_file():
    plan, _ = chosen(protocol="simple", launch="15us")
    assert plan.to_json()["resolved"]["collectives"] == {"launch": "15 us", "protocol": "simple"}
    again = tpsim.plan(scenario_data(plan.question) | {"tpsim": "scenario/1"})
    assert again.step.time_s == plan.step.time_s
    assert "collectives" not in tpsim.plan(SCENARIO).to_json()["resolved"]


FORCED = {"algorithm": "ring", "protocol": "simple", "launch": "graph"}
SAID = "; with launch graph, algorithm ring, protocol simple"


def test_a_plan_says_on_its_page_what_is_forced():
    pages = [plan_page(tpsim.plan(SCENARIO, **forced), verbose=False) for forced in (FORCED, {})]
    assert [dict(page.facts)["pricing"] for page in pages] == [
        f"cost model additive, planner book{said}" for said in (SAID, "")
    ]


def test_a_collective_says_what_is_forced_on_its_page_and_in_its_document():
    for forced, said in ((FORCED, SAID), ({}, "")):
        result = collective("all-reduce", hw="dgx-h100", ranks=8, **forced)
        assert dict(page(result, verbose=False).facts)["pricing"] == f"cost model additive, bf16{said}"
        resolved = result.to_json()["resolved"]
        assert {name: resolved[name] for name in FORCED if name in resolved} == forced


@pytest.mark.parametrize(
    ("forced", "message"),
    [
        ({"algorithm": "NVLS"}, "--algorithm NVLS\n  | ^^^^^^^^^^^^^^^^ tpsim calls this in-switch"),
        ({"algorithm": "CollnetDirect"}, " tpsim calls this in-network"),
        ({"algorithm": "lockstep"}, '"lockstep" is not an algorithm of this plan\'s collectives'),
        ({"launch": "15 kB"}, "--launch 15 kB"),
        ({"protocol": "simple", "cost_model": "book"}, "the cost model book has no protocol to choose"),
    ],
)
def test_a_choice_that_nothing_has_is_refused(forced, message):
    with pytest.raises(InputError) as error:
        tpsim.plan(SCENARIO, **forced)
    assert message in str(error.value)


MISSPELLED = {
    "algorithm": ("rign", 'error[unknown-algorithm]: "rign" is not an algorithm', "ring"),
    "protocol": ("lll", 'error[unknown-protocol]: "lll" is not a protocol of dgx-h100', "ll"),
    "launch": ("thraeds", 'error[unknown-launch]: "thraeds" is not a launch of dgx-h100', "threads"),
}


@pytest.mark.parametrize("option", MISSPELLED)
@pytest.mark.parametrize("chips", [1, 7, 8])
def test_a_name_that_no_collective_could_have_is_refused_where_it_stands_though_none_is_priced(option, chips):
    """On one chip nothing is sent, and nothing fits; on 7 no layout is legal, and nothing was refused."""
    word, message, meant = MISSPELLED[option]
    with pytest.raises(InputError) as error:
        tpsim.search("llama3-405b-h100", chips=chips, vary=["layers=even"], **{option: word})
    asked = f"--{option} {word}"
    assert str(error.value).startswith(f"{message}\n --> command line:1:1\n  |\n1 | {asked}\n")
    assert f'{"^" * len(asked)} did you mean "{meant}"?' in str(error.value)
