"""What tests of questions share."""

from __future__ import annotations

import pytest


@pytest.fixture
def case(request, tmp_path):
    """Writes the module's TEXT as a file, something in it replaced."""

    def written(old="", new=""):
        text = request.module.TEXT
        path = tmp_path / "case.yaml"
        path.write_text(text.replace(old, new) if old else text, encoding="utf-8")
        return path

    return written
