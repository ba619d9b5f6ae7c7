"""Settings of all tests: no law may fail because a machine is slow, and CI draws the same examples every time."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("tpsim", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("tpsim")
