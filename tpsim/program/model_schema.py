"""The format of model files in all its versions: what editors check one by."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, RootModel

from tpsim.program.kinds_file import ModelFile2
from tpsim.program.model_file import ModelFile


class ModelFiles(RootModel[Annotated[ModelFile | ModelFile2, Field(discriminator="tpsim")]]):
    """A model, of layers that are all alike (``model/1``) or of several kinds (``model/2``)."""
