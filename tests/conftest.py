"""Settings of all tests: no law may fail because a machine is slow, and CI draws the same examples every time."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

settings.register_profile("tpsim", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("tpsim")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Workers start with a half each, so that files stay together for what their tests share; the faster helps out."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getvalue("dist") == "load" else None
