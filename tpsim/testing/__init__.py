"""Random valid inputs for property tests: meshes, types, reshards, products, programs and layouts, by hypothesis.

Each generator builds what it promises instead of filtering. All arrays that it describes split evenly.
"""

from importlib.util import find_spec

if find_spec("hypothesis") is None:
    raise ModuleNotFoundError(
        "tpsim.testing draws with the package hypothesis, which is not installed: pip install hypothesis",
        name="hypothesis",
    )

from tpsim.testing.chains import Chain, chains
from tpsim.testing.layouts import practices, tables
from tpsim.testing.meshes import extents, meshes
from tpsim.testing.products import operands, products
from tpsim.testing.shardings import arrays, reshards, shardings

__all__ = [
    "Chain",
    "arrays",
    "chains",
    "extents",
    "meshes",
    "operands",
    "practices",
    "products",
    "reshards",
    "shardings",
    "tables",
]
