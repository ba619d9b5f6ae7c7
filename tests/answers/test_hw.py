"""The verb `hw` from Python: machines, one machine, and whether profiles are sound."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.machines import OWN
from tpsim.answers.hw import hw_list, hw_show, hw_validate
from tpsim.quantity.errors import InputError

SHIPPED = Path(__file__).parents[2] / "hardware"


@pytest.fixture
def own(tmp_path):
    """A user's own profile."""
    path = tmp_path / "mine.yaml"
    path.write_text(OWN, encoding="utf-8")
    return path


def test_a_shipped_profile_is_held_to_the_rule_by_its_path_too_but_not_one_of_a_folder_in_tpsim_path(own, monkeypatch):
    monkeypatch.setenv("TPSIM_PATH", str(own.parent))
    judged = hw_validate([str(SHIPPED / "tpu-v5e.yaml"), "tpu-v5e", "mine"])
    assert [one.strict for one in judged.profiles] == [True, True, False]
    assert judged.ok


def test_every_document_is_plain_json_and_names_its_inputs(own):
    for result in (hw_list(), hw_show("tpu-v5e"), hw_validate(["tpu-v5e", own])):
        document = result.to_json()
        assert json.loads(json.dumps(document)) == document
        assert "hardware/tpu-v5e.yaml" in [one["path"] for one in document["inputs"]]


def test_a_guess_has_no_source_and_is_counted(own):
    result = hw_show(own)
    assert result.guesses == len(result.records()) == 4 + 5  # as many are left out
    assert {(row["kind"], row["source"], row["title"]) for row in result.records()} == {("guess", None, None)}


def test_a_name_that_there_is_not_is_no_profile_to_judge():
    with pytest.raises(InputError, match=r'error\[unknown-machine\]: "tpu-v5x" is not a machine'):
        hw_validate(["tpu-v5x"])


def test_the_slices_of_a_torus_are_shown_with_their_ground_and_none_are_of_a_switch():
    ici, dcn = hw_show("tpu-v5p").to_json()["result"]["levels"]
    assert (ici["slices"], ici["slices_kind"], ici["slices_source"]) == (
        "2x2x1, 2x2x2, 2x2x4, 2x4x4, multiples of 4",
        "stated",
        "xpk",
    )
    assert (dcn["slices"], dcn["slices_kind"], dcn["slices_source"]) == (None, None, None)
