"""Files found by name."""

from __future__ import annotations

import os

import pytest

from tpsim.quantity import spec
from tpsim.quantity.errors import InputError


@pytest.fixture
def memo(tmp_path, monkeypatch):
    """A package folder beside which the library stands, as in a checkout."""
    package = tmp_path / "repo" / "tpsim"
    for name in (
        "hardware/tpu-v5e",
        "hardware/dgx-h100",
        "hardware/chips/h100",
        "scenarios/models/llama-3-8b",
        "scenarios/first",
    ):
        path = (package.parent / name).with_suffix(".yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a: 1\n")
    monkeypatch.setattr("tpsim.quantity.spec.catalogue._PACKAGE", package)
    monkeypatch.delenv("TPSIM_PATH", raising=False)
    return package


def test_the_library_stands_beside_the_package_in_a_checkout(memo):
    assert spec.find("hardware", "tpu-v5e") == memo.parent / "hardware" / "tpu-v5e.yaml"
    assert spec.find("models", "llama-3-8b") == memo.parent / "scenarios" / "models" / "llama-3-8b.yaml"
    assert spec.names("scenarios") == ["first"]


def test_the_library_stands_in_the_package_when_installed(memo):
    inside = memo / "_data" / "hardware"
    inside.mkdir(parents=True)
    (inside / "tpu-v4.yaml").write_text("a: 1\n")
    assert spec.names("hardware") == ["tpu-v4"]


def test_folders_of_ones_own_are_searched_after_the_shipped_ones(memo, tmp_path, monkeypatch):
    own = tmp_path / "own"
    (own / "hardware").mkdir(parents=True)
    for path in (own / "lab.yaml", own / "hardware" / "rack.yaml", own / "tpu-v5e.yaml"):
        path.write_text("a: 1\n")
    monkeypatch.setenv("TPSIM_PATH", str(own))
    assert spec.names("hardware") == ["dgx-h100", "lab", "rack", "tpu-v5e"]
    assert spec.find("hardware", "lab") == own / "lab.yaml"
    assert spec.find("hardware", "tpu-v5e").parent == memo.parent / "hardware"


@pytest.mark.usefixtures("memo")
def test_a_folder_of_ones_own_may_hold_files_of_several_kinds(tmp_path, monkeypatch):
    """A scenario beside one's own machines was listed as a machine, and `tpsim hw list` refused to read it."""
    first, second = tmp_path / "a", tmp_path / "b"
    for path, text in {
        first / "mine.yaml": "# of mine\ntpsim: scenario/1\n",
        first / "lab.yaml": "tpsim: 'hardware/1'\n",
        second / "mine.yaml": "tpsim: hardware/1\n",
        second / "broken.yaml": "tpsim hardware/1\n",
    }.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.setenv("TPSIM_PATH", f"{first}{os.pathsep}{second}")
    assert spec.names("scenarios") == ["broken", "first", "mine"]
    assert spec.names("hardware") == ["broken", "dgx-h100", "lab", "mine", "tpu-v5e"]
    assert (spec.find("scenarios", "mine"), spec.find("hardware", "mine")) == (
        first / "mine.yaml",
        second / "mine.yaml",
    )


@pytest.mark.usefixtures("memo")
def test_a_name_of_something_else_is_said_to_be_that(memo):
    with pytest.raises(InputError) as error:
        spec.find("scenarios", "dgx-h100")
    assert str(error.value).splitlines() == [
        'error[unknown-scenario]: "dgx-h100" is a machine, not a scenario',
        "  = ask of it by flags: --model llama-3-8b --hw dgx-h100 --seq 4096",
        "  = known: first",
    ], memo


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(InputError) as error:
        spec.find("hardware", "TPU-v5e")
    assert str(error.value).splitlines()[:2] == [
        'error[unknown-machine]: "TPU-v5e" is not a machine',
        '  = did you mean "tpu-v5e"?',
    ]
    with pytest.raises(InputError, match=r"a file is named with its folder: \./my-file\.yaml"):
        spec.find("scenarios", "nonsense")


def test_a_folder_with_a_config_is_told_from_a_name_by_its_slash(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    with pytest.raises(InputError, match=r"there is a folder of that name, named with a slash: \./mine"):
        spec.find("models", "mine", beside=tmp_path)
    with pytest.raises(InputError, match="a file is named with its folder"):
        spec.find("hardware", "mine", beside=tmp_path)


def test_a_folder_of_tpsim_path_that_is_not_there_is_told_where_a_name_is_not_found(tmp_path, monkeypatch):
    monkeypatch.setenv("TPSIM_PATH", f"{tmp_path / 'mahcines'}{os.pathsep}{tmp_path}")
    with pytest.raises(InputError) as refused:
        spec.find("hardware", "my-cluster")
    assert f"\n  = no folder, though TPSIM_PATH has it: {tmp_path / 'mahcines'}" in str(refused.value)
    monkeypatch.setenv("TPSIM_PATH", str(tmp_path))
    with pytest.raises(InputError) as refused:
        spec.find("hardware", "my-cluster")
    assert "TPSIM_PATH" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "path"), [("tpu-v5e", False), ("./x", True), ("x.yaml", True), ("config.json", True), ("-", True)]
)
def test_a_path_is_told_from_a_name_by_its_slash_or_suffix(text, path):
    assert spec.is_path(text) is path


def test_the_library_of_this_checkout_has_models():
    assert "llama-3-8b" in spec.names("models")
