"""Writes a report of each verb that has pictures, and looks at it: on a screen, on a phone, light, dark, and on paper.

python docs/report_screenshots.py FOLDER    needs pip install 'tpsim[report,seen]' and a browser (chromium)
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright

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


if __name__ == "__main__":
    main(*sys.argv[1:])
