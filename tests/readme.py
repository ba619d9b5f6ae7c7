"""Runs the console blocks of README.md and compares what they print; ``--update`` writes what they print instead.

A block is fenced as ``console``; a line that starts with ``$ `` is a command, what follows is its output.
"""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
COLUMNS = "110"


def printed(command: str) -> str:
    """What `command` prints on stdout and stderr, run in the repository's root."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "COLUMNS": COLUMNS, "NO_COLOR": "1", "PATH": path}
    done = subprocess.run(  # noqa: S602 (the commands are the README's own)
        command, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    return "\n".join(line.rstrip() for line in (done.stdout + done.stderr).splitlines())


def executed(block: str) -> str:
    """The block with every command's output as it is now."""
    commands = [line for line in block.splitlines() if line.startswith("$ ")]
    return "".join(f"{command}\n{printed(command[2:])}\n" for command in commands)


def main() -> int:
    """Compare, or update; the number of blocks that differ."""
    text = README.read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    now = BLOCK.sub(lambda match: executed(match.group()), text)
    if "--update" in sys.argv:
        README.write_text(now, encoding="utf-8")
        return 0
    sys.stdout.writelines(difflib.unified_diff(text.splitlines(True), now.splitlines(True), "README.md", "printed"))
    sys.stdout.write(f"README: {len(blocks)} console blocks, {'differ' if now != text else 'as printed'}\n")
    return int(now != text or not blocks)


if __name__ == "__main__":
    sys.exit(main())
