"""A real browser without a window, for tests that look at pages as a reader does: skipped where there is none."""

from __future__ import annotations

import shutil
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
"""What the machine's own browser may be called."""


@pytest.fixture(scope="module")
def browser():
    """Chromium: the machine's own, else playwright's."""
    api = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'tpsim[seen]'")
    own = next(filter(None, map(shutil.which, NAMES)), None)
    with api.sync_playwright() as started:
        try:
            opened = started.chromium.launch(executable_path=own, args=["--no-sandbox", "--disable-gpu"])
        except api.Error:
            pytest.skip("no browser: apt-get install chromium, or playwright install chromium")
        yield opened
        opened.close()


class Seen:
    """A page that is open, with what it asked for, what it complained of and what it did."""

    def __init__(self, page):
        self.page, self.asked, self.said = page, [], []
        page.on("request", lambda one: self.asked.append(one.url))
        page.on("console", lambda one: self.said.append(one.text))
        page.on("pageerror", lambda one: self.said.append(str(one)))
        page.on("dialog", lambda one: self.said.append(f"dialog {one.message}") or one.dismiss())

    def style(self, selector, name):
        """What a style of the first element comes to."""
        return self.page.eval_on_selector(selector, f"one => getComputedStyle(one)['{name}']")


@contextmanager
def looking(browser, file, width=1280, scheme="light"):
    """A file, opened as wide as a screen or a phone."""
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme, offline=True)
    seen = Seen(context.new_page())
    seen.page.goto(file.as_uri())
    yield seen
    context.close()
