"""The verb `model`: which models the library has, and what was read from one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tpsim import __version__
from tpsim.program.parameters import GROUPS, parameter_counts
from tpsim.report.answer import Answer

if TYPE_CHECKING:
    from pathlib import Path

    from tpsim.program.model_file import ModelRead

SCHEMA = "tpsim.model/1"
LIST_SCHEMA = "tpsim.model-list/1"


@dataclass(frozen=True)
class ModelResult(Answer):
    """A model as it was read, with its parameters by group."""

    read: ModelRead

    @property
    def parameters(self) -> dict[str, int]:
        """Parameters by group, then their total; of the unpadded vocabulary, as published counts are."""
        counts = parameter_counts(self.read.model)
        by_group = {str(group): count for group, count in counts.items()}
        return {**by_group, "total": sum(counts.values())}

    @property
    def padding_parameters(self) -> int:
        """Parameters that the padding of the vocabulary adds."""
        return sum(parameter_counts(self.read.model, padded=True).values()) - self.parameters["total"]

    @property
    def verdict(self) -> str:
        """How many parameters it has."""
        return f"{self.read.model.name} has {self.parameters['total']:,} parameters"

    def records(self) -> list[dict[str, Any]]:
        """One row per group: its parameters and their share."""
        counts = self.parameters
        return [
            {
                "model": self.read.model.name,
                "group": group,
                "parameters": counts[group],
                "share": counts[group] / counts["total"],
            }
            for group in GROUPS
        ]

    def to_json(self) -> dict[str, Any]:
        """The whole document."""
        return {
            "schema": SCHEMA,
            "tpsim": __version__,
            "inputs": _inputs(self.read),
            "resolved": asdict(self.read.model),
            "result": {
                "parameters": self.parameters,
                "padding_parameters": self.padding_parameters,
                "source": self.read.source,
            },
            "assumptions": [{"text": note, "kind": "derived"} for note in self.read.notes],
            "not_modelled": [],
        }


@dataclass(frozen=True)
class ModelListResult(Answer):
    """The models of the library, by name."""

    models: tuple[ModelResult, ...]

    @property
    def verdict(self) -> str:
        """How many there are, and how to ask of another one."""
        return f"{len(self.models)} models; any other: --model path/to/config.json"

    def records(self) -> list[dict[str, Any]]:
        """One row per model: its sizes and its parameters."""
        return [_row(one) for one in self.models]

    def to_json(self) -> dict[str, Any]:
        """The whole document."""
        return {
            "schema": LIST_SCHEMA,
            "tpsim": __version__,
            "inputs": _inputs(*(one.read for one in self.models)),
            "resolved": {},
            "result": {"models": self.records()},
            "assumptions": [],
            "not_modelled": [],
        }


def model_list() -> ModelListResult:
    """Every model of the library."""
    from tpsim.program.model_file import model_names

    return ModelListResult(tuple(model_show(name) for name in model_names()))


def model_show(name_or_path: str | Path) -> ModelResult:
    """What is read from a model.

    name_or_path  of the library, a model file, or a Hugging Face config.json
    Raises InputError for what cannot be read as a dense model.
    """
    from tpsim.program.model_file import load_model

    return ModelResult(load_model(name_or_path))


def _inputs(*reads: ModelRead) -> list[dict[str, str]]:
    from tpsim.question.inputs import inputs

    return [{"path": path, "sha256": digest} for path, digest in inputs(*(read.document for read in reads))]


def _row(result: ModelResult) -> dict[str, Any]:
    model = result.read.model
    return {
        "model": model.name,
        "parameters": result.parameters["total"],
        "hidden": model.hidden,
        "layers": model.layers,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "ffn": model.ffn,
        "ffn_hidden": model.ffn_hidden,
        "vocab": model.vocab,
        "source": result.read.source,
    }
