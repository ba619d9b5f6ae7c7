"""A path that an answer is to be written to: it gets the whole answer, or nothing changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.test_hostile_files import ran
from tpsim.cli import output

ASK = ["collective", "all-gather", "--hw", "dgx-h100", "--ranks", "8", "--sizes", "8MB"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def left() -> list[str]:
    return sorted(path.name for path in Path().rglob("*"))


@pytest.mark.parametrize(
    "path", ["none/answer.json", "folder.json", "file.txt/answer.json", "x" * 300 + ".json", "a\0.json"]
)
def test_a_path_that_cannot_be_written_is_refused_with_a_remedy_and_leaves_nothing(path):
    Path("folder.json").mkdir()
    Path("file.txt").write_text("old")
    code, out, err = ran(*ASK, "-o", "first.csv", "-o", path)
    assert (code, out, left()) == (2, "", ["file.txt", "folder.json"])
    assert err.startswith("error[cannot-write]: ")
    assert "\n  = " in err


def test_a_file_named_twice_is_written_once():
    assert ran(*ASK, "-o", "answer.json", "-o", "./answer.json", "-f", "json")[1] == Path("answer.json").read_text()


def test_two_names_of_one_file_are_refused():
    Path("answer.csv").symlink_to("answer.json")
    code, out, err = ran(*ASK, "-o", "answer.json", "-o", "answer.csv")
    assert (code, out, left()) == (2, "", ["answer.csv"])
    assert err == "error[same-file]: answer.json and answer.csv are one file\n  = name each file once\n"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device"), MemoryError()])
def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(monkeypatch, error):
    def interrupted(path, text, staged):
        honest(path, text[: len(text) // 2], staged)
        raise error

    honest = output._stage
    Path("answer.json").write_text("old")
    monkeypatch.setattr(output, "_stage", interrupted)
    code, out, _ = ran(*ASK, "-o", "answer.json")
    assert code in {2, 3, 130}
    assert (out, left(), Path("answer.json").read_text()) == ("", ["answer.json"], "old")


def test_a_question_that_is_refused_leaves_the_old_file():
    Path("answer.json").write_text("old")
    assert ran(*ASK[:-1], "8 apples", "-o", "answer.json")[0] == 2
    assert (left(), Path("answer.json").read_text()) == (["answer.json"], "old")


def test_a_lock_that_cannot_be_written_is_refused_with_its_path():
    code, _, err = ran("check", "llama3-8b-v5e", "--update", "--lock", "none/tpsim.lock")
    assert code == 2
    assert "none/tpsim.lock" in err
