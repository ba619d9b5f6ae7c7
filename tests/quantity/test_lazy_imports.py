"""What the ground floor loads, and when: a command that reads no file must not pay for reading files."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"numpy", "pandas", "sympy", "pydantic", "rich", "yaml"}
STEPS = {
    "errors, units and sizes": "import tpsim.quantity.errors, tpsim.quantity.units, tpsim.quantity.size",
    "a quantity": "tpsim.quantity.units.parse('1 GB', 'bytes')",
    "a file": "import tpsim.quantity.spec",
}


def test_errors_units_and_sizes_load_nothing_heavy_and_reading_a_file_neither_numerics_nor_what_draws():
    told = f"import sys; print(*sorted({HEAVY} & sys.modules.keys()))"
    script = "\n".join(f"{step}\n{told}" for step in STEPS.values())
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert [set(line.split()) for line in ran.stdout.splitlines()] == [set(), set(), {"pydantic", "yaml"}]
