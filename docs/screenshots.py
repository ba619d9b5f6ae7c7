"""Looks at what tpsim shows: reports on a screen, on a phone, light, dark, and on paper; and terminals.

python docs/screenshots.py FOLDER    needs pip install 'tpsim[report,seen]' and a browser (chromium)
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.text import Text

from tpsim.cli.main import run

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LOG = Path(__file__).parents[1] / "tests" / "data" / "logs" / "all-reduce-8-debug.txt"
REPORTS = {
    "plan": "plan llama3-70b-h100",
    "pipeline": "plan llama3-70b-h100-zb-h1",
    "long-pipeline": "plan --model megatron-1t --hw dgx-a100 --chips 1024 --tp 8 --pp 128 --seq 2048 --batch 512 "
    "--microbatches 512",
    "search": "search llama3-70b-h100 --chips 256 --tp 8 --vary microbatches --recompute none --pareto step,memory",
    "collective": "collective all-reduce --hw dgx-h100 --ranks 8",
    "measured": f"collective all-reduce --hw dgx-h100 --ranks 8 --measured {LOG}",
    "diff": "diff llama3-70b-h100 --zero 3",
}
"""The request of each."""

SCREENS = {
    "plan": "plan llama3-70b-h100",
    "decode": "plan llama3-70b-h100-decode",
    "search": "search qwen2-7b-h100 --chips 64 --recompute none --top 5",
    "collective": "collective all-reduce --hw dgx-h100 --ranks 8",
    "diff": "diff llama3-70b-h100 --zero 3",
    "verify": "verify gpt3-175b-a100-tp8",
}
"""What is asked for on terminals."""

COLUMNS = (80, 120)

WIDTHS, SCHEMES = {"screen": 1280, "phone": 390}, ("light", "dark")


def main(folder: str) -> None:
    """Write reports and pictures of them into `folder`."""
    place = Path(folder).resolve()
    place.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, request in REPORTS.items():
            file = place / f"{name}.html"
            run([*request.split(), "-q", "-o", str(file)])
            looked_at(browser, file)
        for name, request in SCREENS.items():
            for columns in COLUMNS:
                screened(browser, place / f"{name}-{columns}-columns.png", request, columns)
        browser.close()


def looked_at(browser: Browser, file: Path) -> None:
    """Write a picture of a page for each width and scheme, and what a printer gets, beside it."""
    for name, width in WIDTHS.items():
        for scheme in SCHEMES:
            page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
            page.goto(file.as_uri())
            page.screenshot(path=file.with_name(f"{file.stem}-{name}-{scheme}.png"), full_page=True)
            if (name, scheme) == ("screen", "light"):
                page.pdf(path=file.with_suffix(".pdf"), format="A4")
            page.close()


def screened(browser: Browser, file: Path, request: str, columns: int) -> None:
    """Write a picture of what a terminal of so many columns shows, colours and all."""
    with Path(os.devnull).open("w") as nowhere:
        screen = Console(record=True, width=columns, file=nowhere)
        screen.print(Text.from_ansi(typed(request, columns)))
        drawn = screen.export_svg(title=f"tpsim {request}")
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.set_content(re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL))  # of a network that is not asked
    page.screenshot(path=file, full_page=True)
    page.close()


def typed(request: str, columns: int) -> str:
    """What a command writes to a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    command = [sys.executable, "-m", "tpsim", *request.split()]
    lines: list[str] = []
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm-256color"}):  # noqa: S603  # our own
        os.close(theirs)
        with os.fdopen(ours, errors="replace") as screen, suppress(OSError):  # nobody is left who writes
            lines.extend(screen)
    return "".join(lines)


if __name__ == "__main__":
    main(*sys.argv[1:])
