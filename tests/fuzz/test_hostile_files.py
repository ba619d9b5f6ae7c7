"""Files that are no tpsim files, or would be the end of a careless reader, given to every verb that reads one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from tests.fuzz.verdict import ROOT, ran
from tpsim.quantity.spec import text

BOMB = "\n".join(["a0: &x0 [1, 1]"] + [f"a{n}: &x{n} [*x{n - 1}, *x{n - 1}]" for n in range(1, 45)])

CONTENTS: dict[str, tuple[bytes, str]] = {
    "ten-megabytes": (b"a: 1\n" * 2_000_000, "file-too-large"),
    "deep": (b"x: " + b"[" * 10_000 + b"]" * 10_000, "too-deep"),
    "deep-maps": (b"x: " + b"{a: " * 10_000 + b"1" + b"}" * 10_000, "too-deep"),
    "bomb": (BOMB.encode(), "file-too-large"),
    "binary": (bytes(range(256)) * 20, "not-utf8"),
    "zeros": (b"\0" * 1000, "bad-yaml"),
    "utf-16": ("tpsim: scenario/1\n".encode("utf-16"), "not-utf8"),
    "latin-1": ("title: café\n".encode("latin-1"), "not-utf8"),
    "empty": (b"", "empty-file"),
    "blank": (b"\n \n\n", "empty-file"),
    "comment": (b"# tpsim: scenario/1\n", "empty-file"),
    "one-long-line": (b"a: " + b"x" * 900_000, "missing-header"),
    "nothing-but-a-mark": (b"\xef\xbb\xbf", "empty-file"),
}
"""What a file holds -> the short name of its refusal."""

READERS = {
    "plan": lambda file: ["plan", file],
    "plan by flags": lambda file: ["plan", "--model", file, "--hw", file, "--seq", "8"],
    "explain": lambda file: ["explain", "step.time_s", file],
    "collective": lambda file: ["collective", "all-gather", "--hw", file, "--ranks", "4"],
    "shard": lambda file: ["shard", "A[I_X] -> A[I]", "--mesh", "X=4", "--dims", "I=8", "--hw", file],
    "hw show": lambda file: ["hw", "show", file],
    "model show": lambda file: ["model", "show", file],
    "check a scenario": lambda file: ["check", "--update", file],
    "check a lock": lambda file: ["check", "--lock", file],
    "diff": lambda file: ["diff", "llama3-8b-v5e", file],
}
"""Every verb that reads a file."""


def make_special(name: str) -> Path:
    """A path that is no readable file, in the current folder."""
    path = Path(f"{name}.yaml")
    if name == "folder":
        path.mkdir()
    elif name == "pipe":
        os.mkfifo(path)
    elif name != "absent":
        path.symlink_to({"link to itself": str(path), "link to a folder": ".", "link to nowhere": "nothing"}[name])
    return path


SPECIAL = {
    "absent": "there is no file",
    "folder": "is a folder, not a file",
    "link to a folder": "is a folder, not a file",
    "link to nowhere": "there is no file",
    "link to itself": "Too many levels of symbolic links",
    "pipe": "is a pipe",
}


def assert_refused(result: tuple[int, str, str], slugs: set[str]) -> None:
    code, out, err = result
    assert (code, out) == (2, "")
    assert err.partition("]")[0].removeprefix("error[") in slugs, err
    assert " = " in err or " ^ " in err or "^ " in err, err


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", CONTENTS)
def test_what_is_no_tpsim_file_is_refused_by_every_verb(name, reader):
    content, slug = CONTENTS[name]
    Path(f"{name}.yaml").write_bytes(content)
    alike = {slug, "no-scenarios", "no-lock"} if reader.startswith("check") else {slug}
    assert_refused(ran(*READERS[reader](f"{name}.yaml")), alike)
    assert [path.name for path in Path().iterdir()] == [f"{name}.yaml"]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", SPECIAL)
def test_what_cannot_be_read_is_refused_by_every_verb(name, reader):
    path = make_special(name)
    assert_refused(ran(*READERS[reader](str(path))), {"no-such-file", "unreadable-file", "no-scenarios", "no-lock"})


@pytest.mark.parametrize("name", SPECIAL)
def test_the_refusal_says_what_is_there_instead(name):
    assert SPECIAL[name] in ran("plan", str(make_special(name)))[2]


@pytest.mark.parametrize("reader", READERS)
def test_a_name_longer_than_the_system_takes_is_refused(reader):
    assert_refused(ran(*READERS[reader]("x" * 5000 + ".yaml")), {"unreadable-file", "no-scenarios", "no-lock"})


def test_a_file_without_permission_is_refused(monkeypatch):
    def denied(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied", "own.yaml")

    Path("own.yaml").write_text("tpsim: scenario/1\n")
    monkeypatch.setattr(Path, "open", denied)
    assert ran("plan", "own.yaml")[2] == (
        "error[unreadable-file]: own.yaml cannot be read: Permission denied\n  = check its permissions and its name\n"
    )


def test_a_file_too_large_is_refused_before_it_is_parsed(monkeypatch):
    def parsed(*_args, **_kwargs):
        raise AssertionError("parsed")

    monkeypatch.setattr(yaml, "parse", parsed)
    Path("large.yaml").write_bytes(b"a" * (text.WRITTEN.bytes + 1))
    Path("lock.yaml").write_bytes(b"a" * (text.LARGE.bytes + 1))
    assert_refused(ran("plan", "large.yaml"), {"file-too-large"})
    assert_refused(ran("check", "--lock", "lock.yaml"), {"file-too-large"})


def test_no_more_of_a_file_is_read_than_the_limit_and_one_byte():
    assert_refused(ran("plan", "/dev/zero/../zero"), {"unreadable-file", "no-such-file"})
    assert_refused(ran("plan", "/dev/zero"), {"file-too-large"})


def test_what_aliases_unfold_to_is_bounded_though_a_lock_may_be_long():
    Path("tpsim.lock").write_text(BOMB)
    code, _, err = ran("check")
    assert (code, "aliases unfold to more than 10,000 entries" in err) == (2, True)


@pytest.mark.parametrize("spelling", ["crlf", "mark", "both"])
def test_line_ends_and_marks_of_other_systems_change_no_answer(spelling):
    written = (ROOT / "scenarios" / "llama3-8b-v5e.yaml").read_bytes()
    if spelling != "mark":
        written = written.replace(b"\n", b"\r\n")
    if spelling != "crlf":
        written = b"\xef\xbb\xbf" + written
    Path("llama3-8b-v5e.yaml").write_bytes(written)
    assert ran("plan", "./llama3-8b-v5e.yaml", "-q") == ran("plan", "llama3-8b-v5e", "-q")


def test_a_link_to_a_file_is_that_file():
    Path("linked.yaml").symlink_to(ROOT / "scenarios" / "llama3-8b-v5e.yaml")
    assert ran("plan", "./linked.yaml", "-q") == ran("plan", "llama3-8b-v5e", "-q")
