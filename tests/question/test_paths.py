"""Every path belongs to the file that states it: a question is the same from whichever folder it is asked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tpsim.calibrate.fit import hw_fit
from tpsim.cli.main import run
from tpsim.machine.profile import load
from tpsim.quantity.errors import InputError
from tpsim.question.scenario import resolve

LOG = Path(__file__).parents[1] / "data" / "logs" / "all-reduce-8-debug.txt"

MODEL = (
    "tpsim: model/1\nname: {name}\nsource: {{title: a test}}\nhidden: 1024\nlayers: {layers}\nheads: 8\n"
    "ffn: {{kind: swiglu, hidden: 4096}}\nvocab: 512\n"
)
MACHINE = "tpsim: hardware/1\nname: {name}\nextends: {base}\nchip: {{memory: {{capacity: {size}}}}}\n"
STEP = "mesh: {data: 4, tensor: 2}\nlayout: {tp: tensor, dp: data}\nworkload: {global_batch: 8, seq: 128}\n"
CHANGED = "{extends: ../models/own.yaml, vocab: 1024}"
FOLDERS = (".", "asked/team", "decoy/team")
FITTED = ("fitted.yaml", "asked/machines/lab/fitted.yaml", "away/fitted.yaml")


def tree(root: Path, layers: int, size: str) -> None:
    """Scenarios in a folder that extend one in the folder above, with a model and machines in folders beside it."""
    files = {
        "models/own.yaml": MODEL.format(name="own", layers=layers),
        "machines/rack.yaml": MACHINE.format(name="rack", base="dgx-h100", size=size),
        "machines/lab/mine.yaml": MACHINE.format(name="mine", base="../rack.yaml", size=size),
        "base.yaml": f"tpsim: scenario/1\nmodel: ./models/own.yaml\nhardware: ./machines/lab/mine.yaml\n{STEP}",
        "team/case.yaml": f"tpsim: scenario/1\nextends: ../base.yaml\nmodel: {CHANGED}\n",
        "team/plain.yaml": "tpsim: scenario/1\nextends: ../base.yaml\n",
        "team/padded.yaml": "tpsim: scenario/1\nextends: ./case.yaml\nmodel: {vocab_padded: 2048}\n",
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@pytest.fixture(params=FOLDERS)
def here(request, tmp_path, monkeypatch):
    """The root of two trees of like names, asked from a folder of neither, of the right one and of the wrong one."""
    tree(tmp_path / "asked", layers=2, size="40 GB")
    tree(tmp_path / "decoy", layers=3, size="20 GB")
    tree(tmp_path, layers=5, size="10 GB")
    monkeypatch.chdir(tmp_path / request.param)
    return tmp_path


@pytest.mark.parametrize("case", ["plain", "case", "padded"])
@pytest.mark.parametrize("absolute", [True, False])
def test_a_chain_of_extends_over_folders_is_the_same_question_from_every_folder(here, case, absolute):
    path = here / "asked" / "team" / f"{case}.yaml"
    question = resolve(path if absolute else os.path.relpath(path))
    assert (question.model.layers, question.machine.chip.memory.capacity.value) == (2, 40e9)
    assert question.model.vocab_padded == {"plain": 512, "case": 1024, "padded": 2048}[case]
    links = {"plain": [], "case": [], "padded": ["team/case.yaml"]}[case]
    own = [*links, "base.yaml", "models/own.yaml", "machines/lab/mine.yaml", "machines/rack.yaml"]
    library = ["dgx-h100.yaml", "h100.yaml", "hopper.yaml"]
    assert [Path(read).resolve() for read, _ in question.inputs[1:-3]] == [here / "asked" / name for name in own]
    assert [Path(read).name for read, _ in question.inputs[-3:]] == library


def test_a_machine_that_extends_one_of_another_folder_is_the_same_from_every_folder(here):
    assert load(here / "asked/machines/lab/mine.yaml").chip.memory.capacity.value == 40e9
    assert load(os.path.relpath(here / "asked/machines/lab/mine.yaml")).level("nvlink").link.bandwidth.value == 450e9


def test_a_path_from_a_flag_is_one_from_the_current_folder(here, monkeypatch):
    monkeypatch.chdir(here / "asked" / "machines")
    flags = {"model": "../models/own.yaml", "hw": "rack.yaml"}
    question = resolve(here / "decoy" / "team" / "plain.yaml", flags=flags)
    assert (question.model.layers, question.machine.name) == (2, "rack")
    set_so = resolve(here / "decoy/team/plain.yaml", overrides=["model=../models/own.yaml", "hardware=rack.yaml"])
    assert (set_so.model, set_so.machine.chip) == (question.model, question.machine.chip)


def test_a_circle_over_folders_is_refused(here):
    for folder, other in (("one", "two"), ("two", "one")):
        (here / folder).mkdir()
        text = f"tpsim: hardware/1\nname: {folder}\nextends: ../{other}/m.yaml\n"
        (here / folder / "m.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="extends goes round in a circle: "):
        load(here / "one" / "m.yaml")


@pytest.mark.parametrize(("here", "out"), list(zip(FOLDERS, FITTED, strict=True)), indirect=["here"])
def test_a_fitted_profile_extends_its_base_from_where_it_lands(here, out):
    (here / "away").mkdir()
    base, landed = os.path.relpath(here / "asked/machines/lab/mine.yaml"), os.path.relpath(here / out)
    assert run(["hw", "fit", str(LOG), "--base", base, "-o", landed, "-q"]) == 0
    for folder in (*FOLDERS, "away"):
        os.chdir(here / folder)
        assert load(here / out).chip == load(here / "asked/machines/lab/mine.yaml").chip
        assert load(os.path.relpath(here / out)).chip.memory.capacity.value == 40e9


@pytest.mark.parametrize("here", FOLDERS[-1:], indirect=True)
def test_a_fitted_profile_keeps_the_name_of_a_library_machine_and_a_path_from_the_root(here):
    assert "\nextends: dgx-h100\n" in hw_fit([LOG], base="dgx-h100").to_yaml(here / "asked")
    rooted = str(here / "asked/machines/rack.yaml")
    assert f"\nextends: {rooted}\n" in hw_fit([LOG], base=rooted).to_yaml(here / "asked")


def test_a_saved_scenario_holds_from_every_folder(here, capsys):
    saved = here / "away.yaml"
    case = os.path.relpath(here / "asked/team/padded.yaml")
    assert run(["plan", case, "-q", "--save", os.path.relpath(saved)]) == 0
    for folder in FOLDERS:
        os.chdir(here / folder)
        question = resolve(saved)
        assert (question.model.layers, question.model.vocab_padded) == (2, 2048)
        assert question.machine.chip.memory.capacity.value == 40e9
    assert capsys.readouterr().err == ""
