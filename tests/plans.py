"""The plans of shipped scenarios, each asked for once by all tests of a process that only read them."""

from __future__ import annotations

from functools import cache

from tpsim.answers.plan import plan

planned = cache(plan)
