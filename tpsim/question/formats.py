"""The formats of files that come in several versions or kinds, each as a whole: what editors check one by."""

from typing import Annotated

from pydantic import Field, RootModel

from tpsim.program.kinds_file import ModelFile2
from tpsim.program.model_file import ModelFile
from tpsim.question.scenario_file import ScenarioFile, WorkloadFields
from tpsim.question.serving_file import DecodeFields, PrefillFields, ReadPrompts, ServeFields


class ModelFiles(RootModel[Annotated[ModelFile | ModelFile2, Field(discriminator="tpsim")]]):
    """A model, of layers that are all alike (``model/1``) or of several kinds (``model/2``)."""


class AnyScenario(ScenarioFile):
    """A question: a model on a machine, cut over a mesh in a layout, for a workload."""

    workload: WorkloadFields | PrefillFields | DecodeFields | ServeFields  # type: ignore[assignment]  # what is asked of it depends on the kind of workload
    prefill: ReadPrompts = None
