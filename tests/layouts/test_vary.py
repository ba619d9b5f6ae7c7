"""What `--vary` asks for is checked as flags are, pointed at, and refused where something else states it."""

from __future__ import annotations

from collections import Counter

import pytest

from tpsim.answers.search import search
from tpsim.layouts.vary import read_varied, values
from tpsim.quantity.errors import InputError

ASKED = {"model": "gpt-tiny", "hw": "dgx-h100", "chips": 8, "seq": 16, "batch": 16, "top": 1}


def refused(*vary, overrides=(), **flags):
    with pytest.raises(InputError) as error:
        search(vary=vary, overrides=overrides, **{**ASKED, **flags})
    (problem,) = error.value.problems
    assert problem.place.text == f"--vary {vary[-1]}" if vary else f"--set {overrides[0]}"
    return problem.place.text[problem.place.column - 1 :], problem.slug, problem.message, problem.remedy + problem.note


@pytest.mark.parametrize(
    ("vary", "value", "slug", "message", "remedy"),
    [
        ("zero=", "", "missing-values", "a value of zero is missing", "list them: --vary zero=VALUE,VALUE"),
        ("batch=", "", "missing-values", "a value of batch is missing", "list them: --vary batch=VALUE,VALUE"),
        ("zero=1,9", "9", "bad-value", "layout.zero is 9", "it must be at most 3"),
        ("chunks=0", "0", "bad-value", "pipeline.chunks is 0", "it must be more than 0"),
        ("chunks=x", "x", "bad-value", 'pipeline.chunks is "x", not a whole number', "write a whole number"),
        ("schedule=null", "null", "bad-value", "pipeline.schedule is empty, not text", "write text"),
        (
            *("schedule=1f1b,foo", "foo", "unknown-schedule", '"foo" is not a schedule'),
            "known: gpipe, 1f1b, interleaved, zb-h1, zb-h2",
        ),
        ("microbatches=0", "0", "bad-value", "workload.microbatches is 0", "it must be more than 0"),
        (
            *("microbatches=x,1", "x,1", "bad-value", 'workload.microbatches is "x", not a whole number'),
            "write a whole number",
        ),
        (
            *("pipeline.layers=even,[1,3", "[1,3", "bad-yaml", "did not find expected ',' or ']'"),
            "close what is open, and quote what is text",
        ),
        (
            *("pipeline.layers=[1,3],[2,x]", "[2,x]", "bad-value", 'pipeline.layers[1] is "x", not a whole number'),
            "write a whole number",
        ),
        ("recompute={base: full}", "{base: full}", "bad-value", "recompute is varied by names", "write none or full"),
        *(
            (
                *(f"tp={value}", tail, "no-mesh", f"tp {wrong} is no size of a mesh that is searched"),
                "give a size: --tp 8; or the mesh: --mesh data=32,tensor=8",
            )
            for value, wrong, tail in [("0", "0", "0"), ("16,x", "x", "x")]
        ),
    ],
)
def test_a_value_is_refused_where_it_stands_with_the_remedy_of_the_flag(vary, value, slug, message, remedy):
    assert refused(vary) == (value, slug, message, remedy)


@pytest.mark.parametrize(
    ("vary", "stated", "said"),
    [
        ("zero=1", {"zero": 3}, "--zero 3"),
        ("layout.zero=1", {"zero": 3}, "--zero 3"),
        ("tp=0", {"tp": 8}, "--tp 8"),
        ("zero=1", {"overrides": ["layout={zero: 3}"]}, "--set layout={zero: 3}"),
        ("workload.seq=16,32", {}, "--seq 16"),
        ("hw=dgx-h100,dgx-a100", {}, "--hw dgx-h100"),
    ],
)
def test_a_field_is_stated_or_varied_but_not_both(vary, stated, said):
    path = vary.partition("=")[0]
    message = f"{path} is stated by {said} and varied"
    assert refused(vary, **stated) == (vary, "stated-and-varied", message, "leave one of the two out")


@pytest.mark.parametrize(
    ("scenario", "vary", "by"),
    [
        ("llama2-13b-hsdp-h100", "zero=1,3", "shardings"),
        ("llama2-13b-hsdp-h100", "sp", "shardings"),
        ("deepseek-v3-h100", "chunks=1,2", "the split pipeline.layers"),
    ],
)
def test_what_another_field_decides_is_not_varied_and_not_ignored(scenario, vary, by):
    with pytest.raises(InputError) as error:
        search(scenario, vary=[vary])
    (problem,) = error.value.problems
    path = vary.partition("=")[0]
    message = f"{path} follows from {by}, which is stated, and is varied"
    assert (problem.slug, problem.message, problem.place.text) == ("stated-and-varied", message, f"--vary {vary}")


PIPED = {"model": "gpt-tiny", "hw": "dgx-h100", "seq": 16, "batch": 16, "mesh": "pipe=2,data=2", "pp": "pipe"}


@pytest.mark.parametrize(
    ("vary", "asked", "legal"),
    [
        (["schedule"], {"chunks": 2}, {("interleaved", 2)}),
        (["schedule=1f1b,interleaved"], {"chunks": 2}, {("interleaved", 2)}),
        (["chunks=1,2"], {"schedule": "interleaved"}, {("interleaved", 2)}),
        (["chunks"], {"schedule": "1f1b"}, {("1f1b", 1)}),
        ([], {"chunks": 2}, {("interleaved", 2)}),
        ([], {"schedule": "interleaved"}, {("interleaved", 2), ("interleaved", 3)}),
        (["schedule=1f1b,interleaved"], {}, {("1f1b", 1), ("interleaved", 2), ("interleaved", 3)}),
    ],
)
def test_turns_and_chunks_are_searched_beside_each_other_on_a_stated_mesh(vary, asked, legal):
    found = search(vary=vary, top=1000, overrides=["model.layers=4"], zero=0, recompute="none", **PIPED, **asked)
    assert {(row.schedule, row.chunks) for row in found.rows} == legal


def test_what_shards_nothing_is_one_layout_however_many_values_are_asked_for():
    """ZeRO over one data shard, sequence parallelism over one device: they were listed once per value."""
    asked = {"model": "gpt-tiny", "hw": "dgx-h100", "seq": 16, "batch": 16, "chips": 2, "pp": 1, "recompute": "none"}
    several = search(vary=["zero=1,3", "sp=true,false", "microbatches=1"], top=100, **asked)
    layouts = [(row.tp, row.dp, row.cp, row.zero, row.sequence_parallel) for row in several.rows]
    assert len(layouts) == len({*layouts}) == several.considered == several.legal
    assert {*layouts} == {(1, 2, 1, 1, False), (1, 2, 1, 3, False), (2, 1, 1, 0, False), (2, 1, 1, 0, True)}
    assert not any(row.tied for row in several.rows)


def test_a_field_is_varied_once():
    message, remedy = "zero is varied twice", "list all values in one: --vary zero=VALUE,VALUE"
    assert refused("zero=1", "zero=3") == ("zero=3", "varied-twice", message, remedy)


@pytest.mark.parametrize(
    ("vary", "name", "slug", "remedy"),
    [
        ("zeroo=1,3", "zeroo", "unknown-field", 'did you mean "zero"?'),
        ("=3", "=3", "unknown-field", "write one, or a path: zero=1,3"),
        ("seqlen=8", "seqlen", "foreign-name", "tpsim calls this workload.seq"),
        ("layot.zero=1", "layot.zero", "unknown-field", 'did you mean "layout"?'),
        ("layout.zeroo=1", "layout.zeroo", "unknown-field", 'did you mean "zero"?'),
    ],
)
def test_a_field_that_there_is_not_is_shown_with_the_nearest(vary, name, slug, remedy):
    with pytest.raises(InputError) as error:
        search(vary=[vary], **ASKED)
    (problem,) = error.value.problems
    place = problem.place
    assert (problem.slug, problem.remedy) == (slug, remedy)
    assert place.text[place.column - 1 :].startswith(name)
    assert place.width in (len(name), 1)


def test_equal_values_count_once():
    once, twice = (search(**ASKED, tp=2, pp=1, vary=[vary]).considered for vary in ("zero=1", "zero=1,1"))
    assert once == twice > 0


def test_a_comma_within_brackets_braces_or_quotes_parts_no_values():
    assert values("[1,3], [2,2],even") == ["[1,3]", " [2,2]", "even"]
    assert values("{a: [1,2], b: 3},4") == ["{a: [1,2], b: 3}", "4"]
    assert values("'a,b',\"c\\\",d\",it's,1") == ["'a,b'", '"c\\",d"', "it's", "1"]
    assert values("1],[2,3]") == ["1]", "[2,3]"]


def test_splits_of_a_stack_are_varied_as_lists():
    asked = {**ASKED, "chips": 4, "batch": 1024}
    found = search(**asked, vary=["pipeline.layers=[1,3],[2,2]", "pp=2"], overrides=["model.layers=4"])
    assert {one.layout.layers for one in found.evaluation.candidates} == {(1, 3), (2, 2)}
    assert (found.best.layers, found.best.chunks) == ((2, 2), 1)
    chunked = search(**asked, vary=["layers=[1,1,1,1],[2,2]", "pp=2"], overrides=["model.layers=4"])
    legal = {one.layout.order for one in chunked.evaluation.candidates}
    assert [order for order in legal if order.layers == (1, 1, 1, 1)] == [("interleaved", 2, (1, 1, 1, 1))]
    assert "layers-not-split" in {refusal.reason for refusal in chunked.refused}  # four chunks of two that have one


def test_rules_that_cut_a_stack_alike_are_one_layout_and_of_one_stage_none_makes_a_difference():
    asked = {**ASKED, "chips": 4, "batch": 1024}
    several = ["layers=even,nearly-even,balanced", "pp=1,4", "schedule=1f1b"]
    found = search(**asked, vary=several, overrides=["model.layers=4"])
    layouts = Counter((one.layout.pp, one.layout.layers) for one in found.evaluation.candidates)
    assert layouts.keys() == {(1, None), (4, None), (4, "balanced")}
    assert layouts[4, None] == layouts[4, "balanced"]
    alone = search(**asked, vary=["pp=1"], overrides=["model.layers=4"])
    assert layouts[1, None] == len(alone.evaluation.candidates)


def test_a_pipeline_that_seconds_cannot_split_for_want_of_a_price_is_refused_alone():
    """One whose ends reach each other over no cable refused the whole search, where another rule is looked at, too."""
    model = {"extends": "llama-3-8b", "layers": 8, "tie_embeddings": True}
    asked = {"model": model, "hw": "tpu-v5e", "chips": 32, "batch": 32, "seq": 1024}
    several = ["tp=4", "pp=1,2,8", "cp=1", "zero=1", "microbatches=4", "recompute=none", "schedule=1f1b", "sp=true"]
    even, both = (search(**asked, vary=[*several, f"layers={of}"]) for of in ("even", "even,balanced"))
    (one,), (other,) = even.refused, both.refused
    assert (one.reason, other.reason) == ("no-closed-form", "no-closed-form")
    assert (one.layouts, other.layouts) == (1, 2)
    assert (even.considered, both.considered) == (3, 5)


def test_the_first_pipeline_whose_last_stage_does_not_reach_its_first_is_refused_too():
    """It was told from the others only once one of them had been asked for, and its plan ended the search."""
    model = {"extends": "llama-3-8b", "layers": 16}
    held = {"tp": 2, "cp": 4, "pp": 4, "zero": 1, "sp": False, "microbatches": 8, "recompute": "none", "chunks": 2}
    found = search(model=model, hw="tpu-v6e", chips=64, batch=32, seq=1024, schedule="interleaved", **held)
    (one,) = found.refused
    assert (one.reason, one.layouts, found.considered, found.legal) == ("no-closed-form", 1, 1, 0)
    assert one.example == "places 3 and 0 of mesh axis pipe are no neighbours on ici.1"


def test_flags_that_a_scenario_cannot_do_without_may_be_varied_instead():
    found = search(
        model="gpt-tiny", hw="dgx-h100", chips=8, batch=16, tp=2, vary=["seq=8,16", "pp=1"], by="tokens_per_s"
    )
    assert {row.varied["workload.seq"] for row in found.rows} <= {8, 16}
    assert found.considered > 0


@pytest.mark.parametrize("vary", ["mesh=foo", "layout.tp=tensor", "layout.dp=data", "layout.pp=pipe"])
def test_what_a_searched_mesh_sets_itself_is_not_varied(vary):
    message = f"{vary.partition('=')[0]} follows from tp, dp, pp, cp and ep where the mesh is searched"
    assert refused(vary, tp=2) == (vary, "mesh-is-searched", message, "give these: --tp 8, or --vary tp=4,8")


def test_shards_of_zero_are_a_size_of_a_mesh_that_is_searched():
    known = "give a size: --vary shards=8; or the mesh: --mesh data=32,tensor=8"
    assert refused("shards=x") == ("x", "no-mesh", "shards x is no size of a mesh that is searched", known)
    value, slug, message, remedy = refused("shards=3", zero=3, tp=1, pp=1)
    assert (value, slug, remedy) == ("3", "no-mesh", "search others: --vary shards=2,4,8")
    assert message == "no mesh of 8 chips that is searched has ZeRO over 3 of its devices"


@pytest.mark.parametrize(
    ("vary", "has", "others"),
    [
        ("tp=2,3", "tp 3", "tp=2"),
        ("pp=5,1", "pp 5", "pp=1"),
        ("dp=2,16", "dp 16", "dp=2"),
        ("cp=3,2", "cp 3", "cp=2"),
        ("shards=2,3", "ZeRO over 3 of its devices", "shards=2,4,8"),
    ],
)
def test_a_size_among_others_that_no_mesh_has_is_refused_and_not_left_out(vary, has, others):
    value, slug, message, remedy = refused(vary)
    assert value.split(",")[0] == has.split(" of ")[0].split()[-1]  # the caret is at it
    assert (slug, message) == ("no-mesh", f"no mesh of 8 chips that is searched has {has}")
    assert remedy == f"search others: --vary {others}"


def test_a_size_that_a_mesh_of_some_number_of_chips_has_is_searched_there():
    asked = {
        **ASKED,
        "model": {"extends": "gpt-tiny", "heads": 12, "kv_heads": 12, "ffn": {"kind": "gelu", "hidden": 144}},
    }
    held = {"vary": ["tp=3,4", "pp=1", "cp=1", "microbatches=1", "zero=0"], "recompute": "none", "sp": False}
    found = search(**asked | {"chips": None, "batch": 12, "top": 9}, **held | {"vary": [*held["vary"], "chips=6,8"]})
    assert {(row.varied["chips"], row.tp) for row in found.rows} == {(6, 3), (8, 4)}
    with pytest.raises(InputError) as error:
        search(**asked | {"chips": None}, **held | {"vary": ["tp=3,5", "pp=1", "chips=6,8"]})
    assert error.value.problems[0].message == "no mesh of 6 or 8 chips that is searched has tp 5"


def test_devices_of_experts_that_no_mesh_has_are_refused():
    held = {"model": "mixtral-8x7b", "seq": 4096, "chips": 16}
    value, slug, message, remedy = refused("ep=8,3", **held, tp=2, pp=1)
    assert (value, slug, message) == ("3", "no-mesh", "no mesh of 16 chips that is searched has ep 3")
    assert remedy == "search others: --vary ep=8"


def test_a_mesh_that_there_cannot_be_is_refused_at_the_size_that_does_not_divide():
    value, slug, message, _ = refused("dp=3", pp=1)
    assert (value, slug) == ("3", "mesh-product")
    assert message == "the mesh is pipe 1 x data 3 x tensor -1 = a multiple of 3 chips, but chips is 8"


def test_shards_of_zero_are_no_field_of_a_held_mesh_nor_of_inference():
    value, *_, remedy = refused("shards", chips=None, mesh="data=8")
    assert (value, remedy) == ("shards", "search the mesh, too: --chips 64")
    value, slug, message, remedy = refused("shards=8", overrides=["workload.kind=decode"])
    assert (value, slug, remedy) == ("shards=8", "not-for-inference", "leave it out")
    assert message == "shards says nothing of inference: ZeRO shards gradients and what an optimizer holds"


def test_a_placement_is_not_varied_where_the_mesh_is_searched():
    _, slug, message, remedy = refused("placement.tensor=nvlink,network")
    assert (slug, message) == ("mesh-is-searched", "placement.tensor cannot be varied where the mesh is searched")
    assert remedy == "vary tp, dp, pp, cp, ep; or hold it: --placement"


def test_an_override_of_a_mesh_that_is_searched_is_refused_not_ignored():
    value, slug, message, _ = refused(overrides=["mesh.tensor=8"])
    assert (value, slug) == ("8", "mesh-is-searched")
    assert message == "mesh.tensor follows from tp, dp, pp, cp and ep where the mesh is searched"


def test_true_is_not_the_number_one_and_equal_values_count_once():
    (varied,) = read_varied(["hardware.chip.x=1,true,1,true,0"]).values()
    assert [repr(edit.value) for edit in varied.edits] == ["1", "True", "0"]
