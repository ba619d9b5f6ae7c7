"""What ONE link is, topology by topology: one table, in the schema, in refusals and in `explain`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.machines import OWN
from tpsim.fabric.wires import ONE_LINK
from tpsim.machine.parts import Level

ROOT = Path(__file__).parents[2]


def test_every_topology_says_what_one_link_is():
    choices = Level.model_json_schema()["properties"]["topology"]
    assert list(ONE_LINK) == choices["enum"]
    assert choices["enumDescriptions"] == [*ONE_LINK.values()]
    assert "ONE for all its devices" in ONE_LINK["host"]


def test_the_schema_says_what_one_link_is_for_each_topology():
    topology = json.loads((ROOT / "schema" / "hardware.json").read_text())["$defs"]["Level"]["properties"]["topology"]
    assert topology["enumDescriptions"] == [*ONE_LINK.values()]
    assert all(f"{name}: {text}" in topology["description"] for name, text in ONE_LINK.items())


@pytest.mark.parametrize("line", ["    topology: hots\n", ""], ids=["wrong", "missing"])
def test_a_profile_with_a_wrong_topology_or_none_is_told_what_one_link_of_each_is(line, tpsim, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(OWN.replace("    topology: ring\n", line), encoding="utf-8")
    ran = tpsim("hw", "show", str(path))
    assert ran.code == 2
    assert [
        text for text in ran.err.splitlines() if text[4:] in {f"{name}: {what}" for name, what in ONE_LINK.items()}
    ] == [f"  = {name}: {what}" for name, what in ONE_LINK.items()]


@pytest.mark.parametrize("name", ONE_LINK)
def test_a_topology_is_explained_by_its_link_and_what_an_all_gather_puts_on_it(name, tpsim):
    ran = tpsim("explain", name)
    assert ran.code == 0
    assert f" because     {ONE_LINK[name]}\n" in ran.out


def test_all_that_the_devices_of_a_host_send_is_on_one_link(tpsim):
    """V(n-1)/n of an all-gather by each of n devices, in and out of the host's memory."""
    derivation = json.loads(tpsim("explain", "host", "-f", "json").out)["result"]["derivations"][0]
    assert derivation["formula"] == "2*V*(n - 1)"
    assert (
        json.loads(tpsim("explain", "switch", "-f", "json").out)["result"]["derivations"][0]["formula"] == "V*(n - 1)/n"
    )
