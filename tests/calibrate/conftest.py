"""The machine to which most logs of these tests belong."""

from __future__ import annotations

import pytest

from tests.machines import ISLAND


@pytest.fixture
def island(tmp_path, monkeypatch):
    """A user's machine of nodes of eight with cards between them, in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "island.yaml").write_text(ISLAND, encoding="utf-8")
    return "island.yaml"
