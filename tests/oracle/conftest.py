"""The oracle: XLA compiles every question once per session, in a process of its own with eight devices on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import pytest

from tests.oracle.calls import Run, compiled
from tests.oracle.questions import FOUR, Question

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.oracle.questions import Layer

collect_ignore = ["layer.py", "partition.py"]  # they import jax, which must not start in this process

MINOR = "0.7"
"""The minor version of jax whose partitioner the tables describe; the extra `oracle` pins it."""

FLAGS = "--xla_force_host_platform_device_count=8 --xla_disable_hlo_passes=fusion"
"""Eight devices; operations stay apart, so that what reads a sum can be seen."""


def pytest_configure(config):
    config.addinivalue_line("markers", "oracle: compares with XLA's partitioner; needs the extra tpsim[oracle]")


@pytest.fixture(scope="session")
def texts(request) -> dict[str, str]:
    """The HLO of every question."""
    try:
        found = version("jax")
    except PackageNotFoundError:
        pytest.skip("jax is not installed: pip install -e '.[oracle]'")
    if not found.startswith(f"{MINOR}."):
        pytest.skip(f"jax {found} is installed, the tables are for {MINOR}: pip install -e '.[oracle]'")
    asked = subprocess.run(
        [sys.executable, "-m", "tests.oracle.partition"],
        cwd=request.config.rootpath,
        env={**os.environ, "XLA_FLAGS": FLAGS, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.returncode == 0, asked.stderr
    return json.loads(asked.stdout)


@pytest.fixture(scope="session")
def xla(texts) -> Callable[[Question | Layer], Run]:
    """What XLA makes of a question, on each device."""
    return lambda asked: compiled(texts[str(asked)], asked.mesh if isinstance(asked, Question) else FOUR)
