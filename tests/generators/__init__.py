"""Random valid inputs for property tests: meshes, types, reshards, products, programs and layouts, by hypothesis.

Each generator builds what it promises instead of filtering. All arrays that it describes split evenly.
"""

from tests.generators.chains import Chain, chains
from tests.generators.layouts import formats, practices, schemes, tables
from tests.generators.meshes import extents, meshes
from tests.generators.products import operands, products
from tests.generators.shardings import arrays, reshards, shardings

__all__ = [
    "Chain",
    "arrays",
    "chains",
    "extents",
    "formats",
    "meshes",
    "operands",
    "practices",
    "products",
    "reshards",
    "schemes",
    "shardings",
    "tables",
]
