"""What the ground floor loads, and when: a command that reads no file must not pay for reading files."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"numpy", "pandas", "sympy", "pydantic", "rich", "yaml"}


def loaded(code):
    """The heavy packages that a fresh interpreter has loaded after `code`."""
    script = f"{code}\nimport sys\nprint(*sorted({HEAVY} & sys.modules.keys()))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


@pytest.mark.parametrize("module", ["errors", "units", "size"])
def test_errors_units_and_sizes_load_nothing_heavy(module):
    assert loaded(f"import tpsim.quantity.{module}") == set()


def test_reading_a_quantity_loads_nothing_heavy():
    assert loaded("from tpsim.quantity.units import parse; parse('1 GB', 'bytes')") == set()


def test_reading_a_file_loads_neither_numpy_nor_pandas_nor_sympy_nor_rich():
    assert loaded("import tpsim.quantity.spec") == {"pydantic", "yaml"}
