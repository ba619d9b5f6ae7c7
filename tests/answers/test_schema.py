"""The JSON Schemas: made from the code, committed, and true of shipped files and real outputs."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.changes import GUARDED
from tpsim.answers.collective import collective
from tpsim.answers.plan import plan
from tpsim.answers.schema import DESCRIBED, SchemaListResult, schema
from tpsim.answers.search import search
from tpsim.answers.shard import shard
from tpsim.calibrate.overlay import measured_collective
from tpsim.claims.verify import verify
from tpsim.claims.verify_expression import verify_expression
from tpsim.guard.check import check
from tpsim.guard.diff import diff
from tpsim.quantity import spec
from tpsim.report.formats import json_text

ROOT = Path(__file__).parents[2]
FILES = {
    "hardware": sorted((ROOT / "hardware").glob("*.yaml")),
    "chip": sorted((ROOT / "hardware" / "chips").glob("*.yaml")),
    "model": sorted((ROOT / "scenarios" / "models").glob("*.yaml")),
    "scenario": sorted((ROOT / "scenarios").glob("*.yaml")),
}
SHIPPED = [pytest.param(name, path, id=path.stem) for name, paths in FILES.items() for path in paths]
OUTPUTS = {
    "a plan": lambda: plan("llama3-70b-h100"),
    "a plan whose layers lie over a pod": lambda: plan("llama3-8b-v5e"),
    "a plan by the book, without communication": lambda: plan(
        model="gpt-tiny", hw="tpu-v5e", batch=1, seq=16, cost_model="book"
    ),
    "a plan with drafts": lambda: plan(
        "llama3-70b-h100-decode",
        overrides=["workload.speculation={tokens: 3, acceptance: 0.8, draft: llama-3-8b}"],
    ),
    "a search": lambda: search(
        model="gpt-tiny", hw="dgx-h100", chips=4, batch=8, seq=16, vary=["pp=1", "zero=0,1"], recompute="none", top=2
    ),
    "a shard in formulas": lambda: shard("A[I,J_X] . B[J_X,K] -> C[I,K]", "X=4"),
    "a shard in bytes": lambda: shard("A[I_X,J] -> A[I,J_X]", "X=4", dims="I=64,J=64"),
    "a shard in seconds": lambda: shard("A[I_X,J] . B[J_X,K] -> C[I,K]", "X=4", dims="I=64,J=64,K=64", hw="tpu-v5e"),
    "an array": lambda: shard("A[I_XY,J]", "X=4,Y=2", dims="I=64,J=64"),
    "an array in formulas": lambda: shard("A[I_XY,J]", "X=4,Y=2"),
    "a collective": lambda: collective("all-gather", hw="dgx-h100", ranks=8, sizes="8MB,64MB"),
    "a collective over two axes": lambda: collective("all-to-all", hw="tpu-v5p", ranks=16, level="ici.0,ici.1"),
    "a verification": lambda: verify("gpt3-175b-a100-tp8"),
    "a verified expression": lambda: verify_expression("A[I,J_X] . B[J_X,K] -> C[I,K]", hw="tpu-v5e"),
    "a difference": lambda: diff("llama3-70b-h100", overrides=["layout.zero=3"]),
    "no difference": lambda: diff("llama3-70b-h100", "llama3-70b-h100"),
    "a check": lambda: check([str(GUARDED / "scenarios")], lock=GUARDED / "none.lock", update=True),
    "a collective beside what a log measured": lambda: measured_collective(
        "all-reduce", hw="dgx-h100", ranks=8, log=ROOT / "tests" / "data" / "logs" / "all-reduce-8-debug.txt"
    ),
    "a collective of whole numbers": lambda: collective("permute", hw="dgx-h100", ranks=8, sizes="8MB", dtype="int32"),
    "a collective of one rank": lambda: collective("all-reduce", hw="dgx-h100", ranks=1, sizes="8MB"),
}


def closed(part):
    """A schema that also refuses fields that it does not name: readers must bear them, the writer must name them."""
    if isinstance(part, list):
        return [closed(one) for one in part]
    if not isinstance(part, dict):
        return part
    more = {"additionalProperties": False} if isinstance(part.get("properties"), dict) else {}
    return {**more, **{key: closed(value) for key, value in part.items()}}


@cache
def reader(name):
    return Draft202012Validator(schema(name).to_json())


def mistakes(made, document):
    return [f"{error.json_path}: {error.message}" for error in Draft202012Validator(made).iter_errors(document)]


@pytest.mark.parametrize("name", [one.name for one in DESCRIBED])
def test_the_committed_schema_is_the_one_that_the_code_makes(name):
    committed = (ROOT / "schema" / f"{name}.json").read_text(encoding="utf-8")
    assert committed == json_text(schema(name).to_json()), f"run: tpsim schema {name} -o schema/{name}.json"


def test_every_committed_schema_has_a_name():
    assert sorted(path.stem for path in (ROOT / "schema").iterdir()) == sorted(one.name for one in DESCRIBED)


@pytest.mark.parametrize("name", [one.name for one in DESCRIBED])
def test_every_schema_is_a_schema(name):
    made = schema(name).to_json()
    Draft202012Validator.check_schema(made)
    assert made["$id"] == f"{name}.json"
    assert made["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize(("name", "path"), SHIPPED)
def test_a_shipped_file_keeps_to_its_schema_and_names_it_in_its_first_line(name, path):
    document = spec.load(path)
    assert list(reader(name).iter_errors(document.data)) == []
    modeline = document.text.splitlines()[0]
    assert modeline.startswith("# yaml-language-server: $schema=")
    assert (path.parent / modeline.partition("=")[2]).resolve() == ROOT / "schema" / f"{name}.json"


def test_the_repositories_own_lock_keeps_to_its_schema():
    document = spec.load(ROOT / "tpsim.lock", most=spec.LARGE)
    assert mistakes(schema("lock").to_json(), document.data) == []
    assert mistakes(schema("lock").to_json(), {**document.data, "tolerance": 2}) != []


@cache
def output(name):
    """An answer of the list above, asked once."""
    return OUTPUTS[name]()


@pytest.mark.parametrize("asked", OUTPUTS)
def test_a_real_output_has_the_fields_of_its_schema_and_no_others(asked):
    document = json.loads(json_text(output(asked).to_json()))
    name = document["schema"].removeprefix("tpsim.").partition("/")[0]
    assert mistakes(closed(schema(name).to_json()), document) == []


@pytest.mark.parametrize("path", FILES["scenario"], ids=lambda path: path.stem)
def test_the_plan_of_a_shipped_scenario_has_the_fields_of_its_schema_and_no_others(path):
    document = json.loads(json_text(plan(path).to_json()))
    assert mistakes(closed(schema("plan").to_json()), document) == []


def test_a_field_added_to_an_output_is_no_mistake_to_a_reader():
    document = collective("all-gather", hw="dgx-h100", ranks=8, sizes="8MB").to_json()
    made = schema("collective").to_json()
    assert mistakes(made, {**document, "more": 1}) == []
    assert mistakes(closed(made), {**document, "more": 1}) != []


def test_the_schema_of_a_file_refuses_what_reading_refuses():
    machine = spec.load(ROOT / "hardware" / "tpu-v5e.yaml").data
    chip = spec.load(ROOT / "hardware" / "chips" / "tpu-v5e.yaml").data["chip"]
    bare = {**machine, "chip": {**chip, "peak": {"bf16": 197e12}}}
    made = schema("hardware").to_json()
    assert mistakes(made, {**machine, "levles": []}) == [
        "$: Additional properties are not allowed ('levles' was unexpected)"
    ]
    (wrong,) = mistakes(made, bare)
    assert wrong.startswith("$.chip: ")
    assert mistakes(made, {**machine, "chip": chip}) == []


def test_a_file_that_extends_another_need_not_repeat_it_except_in_lists():
    made = schema("hardware").to_json()
    own = {"tpsim": "hardware/1", "extends": "tpu-v5e", "name": "mine", "chip": {"memory": {"capacity": "32 GB"}}}
    assert mistakes(made, own) == []
    assert mistakes(made, {**own, "levels": [{"name": "ici", "topology": "torus"}]}) == [
        "$.levels[0]: 'link' is a required property"
    ]
    changed = {"link": {"bandwidth": "50 GB/s"}}
    assert mistakes(made, {**own, "levels": {"ici": changed}}) == []
    assert mistakes(made, {**own, "levels": {"ici": {"links": changed["link"]}}}) == [
        "$.levels.ici: Additional properties are not allowed ('links' was unexpected)"
    ]
    alone = {key: value for key, value in own.items() if key != "extends"}
    assert "$: 'levels' is a required property" in mistakes(made, alone)


def test_a_machine_names_its_chip_or_changes_it_in_place():
    made = schema("hardware").to_json()
    levels = [{"name": "port", "topology": "switch", "link": {"bandwidth": "450 GB/s"}}]
    own = {"tpsim": "hardware/1", "name": "mine", "levels": levels}
    assert mistakes(made, {**own, "chip": "h100"}) == []
    assert mistakes(made, {**own, "chip": {"extends": "h100", "memory": {"capacity": "94 GB"}}}) == []
    assert mistakes(made, {**own, "chip": {"memory": {"capacity": "94 GB"}}}) != []
    assert mistakes(made, {**own, "chip": {"extends": "h100", "memroy": {}}}) != []


def test_the_rows_of_a_schema_are_its_fields_with_their_paths():
    rows = {row["field"]: row for row in schema("hardware").records()}
    assert rows["levels[].link.bandwidth.value"] == {
        "schema": "hardware",
        "field": "levels[].link.bandwidth.value",
        "type": 'text as "45 GB/s"',
        "required": True,
        "description": None,
    }
    assert rows["levels[].link.bandwidth"]["description"] == "ONE link, ONE direction"
    assert rows["chip.peak.*.kind"]["type"] == "datasheet, stated, measured, derived, guess or null"
    assert rows["levels[].shape"]["required"] is False


def test_a_whole_number_is_not_shown_as_a_text():
    """`workload.seq` was shown as text, and `seq: "4096"` is refused."""
    types = {row["field"]: row["type"] for row in schema("scenario").records()}
    assert {types[f"workload.{name}"] for name in ("seq", "context", "prompt", "output")} == {"integer"}


def test_the_list_names_every_schema_and_what_it_is_of():
    document = SchemaListResult().to_json()
    assert document["schema"] == "tpsim.schema-list/1"
    assert [row["schema"] for row in document["result"]["schemas"]][:3] == ["hardware", "model", "scenario"]
    assert {row["describes"] for row in SchemaListResult().records()} == {"file", "output"}
