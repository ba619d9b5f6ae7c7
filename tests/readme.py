"""Runs the console and Python blocks of README.md and of the pages under docs/, and compares what they print.

A block is fenced as ``console``; a line that starts with ``$ `` is a command, what follows is its output. In one
fenced as ``pycon`` lines that start with ``>>> `` and ``... `` are Python, what follows is printed; one fenced as
``python`` is run and shows nothing. Blocks run in the page's order, those of Python with the names of those before. A
page that states files, in blocks fenced with a file's name (``json config.json``), runs in a folder that has these
alone; any other runs in the repository's root. ``--update`` writes what is printed instead, and the help of every
command into docs/cli.md.
"""

from __future__ import annotations

import difflib
import io
import os
import re
import shlex
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from doctest import DocTestParser
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from tpsim.cli.main import run, tpsim

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
CLI = ROOT / "docs" / "cli.md"
BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
RUN = re.compile(r"^```(console|pycon|python)\n(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^```\w+ (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ENVIRONMENT = {"COLUMNS": "110", "NO_COLOR": "1", "LC_ALL": "C.UTF-8"}
OPERATORS = frozenset("();<>|&")
"""What words of a shell are made of that are none of the command's."""


def pages():
    """README.md, and the pages under docs/ that have blocks to run."""
    return [README, *(page for page in sorted((ROOT / "docs").glob("*.md")) if RUN.search(page.read_text("utf-8")))]


def printed(command: str, folder: Path) -> str:
    """What `command` prints on stdout and stderr, run in `folder`: in this process where it needs no shell."""
    words = list(shlex.shlex(command, posix=True, punctuation_chars=True))
    if words[0] == "tpsim" and not any(set(word) <= OPERATORS for word in words):
        with chdir(folder), redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
            run(shlex.split(command)[1:])
        text = out.getvalue() + err.getvalue()
    else:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        environment = {**os.environ, **ENVIRONMENT, "PATH": path}
        done = subprocess.run(  # noqa: S602 (the commands are the pages' own)
            command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        text = done.stdout + done.stderr
    return "\n".join(line.rstrip() for line in text.splitlines())


def session(text: str, names: dict[str, object]) -> str:
    """A block of Python as a session shows it, with what each statement prints now."""
    shown = []
    for example in DocTestParser().get_examples(text):
        first, *rest = example.source.splitlines()
        with redirect_stdout(io.StringIO()) as out:
            exec(compile(example.source, "a page", "single"), names)  # noqa: S102 (the statements are the page's own)
        printed = (line.rstrip() for line in out.getvalue().splitlines())
        shown += [f">>> {first}", *(f"... {line}".rstrip() for line in rest), *printed]
    return "".join(f"{line}\n" for line in shown)


def executed(text: str) -> str:
    """A page with the output of every command and statement as it is now."""
    with TemporaryDirectory() as scratch:
        files = FILE.findall(text)
        for name, content in files:
            (Path(scratch) / name).write_text(content, encoding="utf-8")
        folder = Path(scratch) if files else ROOT

        names: dict[str, object] = {}

        def block(match: re.Match[str]) -> str:
            kind, body = match.groups()
            with chdir(folder), redirect_stdout(io.StringIO()):
                if kind == "python":
                    exec(compile(body, "a page", "exec"), names)  # noqa: S102 (the statements are the page's own)
                elif kind == "pycon":
                    body = session(body, names)
                else:
                    commands = [line for line in body.splitlines() if line.startswith("$ ")]
                    body = "".join(f"{command}\n{printed(command[2:], folder)}\n" for command in commands)
            return f"```{kind}\n{body}"

        return RUN.sub(block, text)


def helped(name: str, command: click.Command) -> list[str]:
    """The part of docs/cli.md about a command, and those of its commands."""
    inner = [(f"{name} {one.name}", one) for one in getattr(command, "commands", {}).values()]
    own = ["", f"## {name}", "", "```console", f"$ {name} --help", "```"]
    return [*own, *(line for pair in inner for line in helped(*pair))]


def reference() -> str:
    """docs/cli.md without what its commands print: a block per command."""
    head = CLI.read_text(encoding="utf-8").partition("\n## ")[0].rstrip()
    context = click.Context(tpsim)
    verbs = [(f"tpsim {name}", tpsim.get_command(context, name)) for name in tpsim.list_commands(context)]
    lines = ["", "## tpsim", "", "```console", "$ tpsim --help", "```"]
    return "\n".join([head, *lines, *(line for pair in verbs for line in helped(*pair))]) + "\n"


def main() -> int:
    """Compare, or update; 1 if a page differs."""
    os.environ.update(ENVIRONMENT)
    if "--update" in sys.argv:
        CLI.write_text(reference(), encoding="utf-8")
    differ = 0
    for page in pages():
        text = page.read_text(encoding="utf-8")
        now = executed(text)
        if "--update" in sys.argv:
            page.write_text(now, encoding="utf-8")
            continue
        name = str(page.relative_to(ROOT))
        sys.stdout.writelines(difflib.unified_diff(text.splitlines(True), now.splitlines(True), name, "printed"))
        blocks = len(RUN.findall(text))
        sys.stdout.write(f"{name}: {blocks} blocks, {'differ' if now != text else 'as printed'}\n")
        differ |= now != text
    return differ


if __name__ == "__main__":
    sys.exit(main())
