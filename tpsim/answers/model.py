"""The verb `model`: which models the library has, and what was read from one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpsim.program.model import Moe, NoFeedForward, as_stated
from tpsim.program.transformer import mtp_count, parameter_count, parameter_counts
from tpsim.quantity import spec
from tpsim.quantity.arguments import checked
from tpsim.question.inputs import files_of
from tpsim.report.answer import Answer, noted
from tpsim.report.record import Of

if TYPE_CHECKING:
    from pathlib import Path

    from tpsim.program.model_file import ModelRead


@dataclass(frozen=True)
class ModelResult(Answer):
    """A model as it was read, with its parameters by group."""

    schema = "tpsim.model/1"
    told = ("parameters", "active", "active_without_embedding", "mtp_parameters", "padding_parameters", "source")

    read: ModelRead

    source = Of[str | None]("read.source", "where the model's figures are from")
    files = files_of(lambda answer: [answer.read.document])
    assumptions = noted("read.notes", "what reading took for granted")

    @property
    def parameters(self) -> dict[str, int]:
        """Parameters by group, then their total; of the unpadded vocabulary, as published counts are."""
        counts = parameter_counts(self.read.model)
        return {**counts, "total": sum(counts.values())}

    @property
    def active(self) -> int:
        """Parameters that work for a token: of experts those that are chosen."""
        return parameter_count(self.read.model, active=True)

    @property
    def active_without_embedding(self) -> int:
        """The same without the embedding's table, of which a token reads one column: many publish that."""
        return self.active - parameter_counts(self.read.model)["embedding"]

    @property
    def mtp_parameters(self) -> int:
        """Parameters of the modules that predict tokens further on, which stand beside all others."""
        return mtp_count(self.read.model)

    @property
    def padding_parameters(self) -> int:
        """Parameters that the padding of the vocabulary adds."""
        return sum(parameter_counts(self.read.model, padded=True).values()) - self.parameters["total"]

    @property
    def verdict(self) -> str:
        """How many parameters it has."""
        total, further = self.parameters["total"], ""
        if self.active != total:
            further = f", {self.active:,} work for a token ({self.active_without_embedding:,} without the embedding)"
        return f"{self.read.model.name} has {total:,} parameters{further}"

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
            for group in list(counts)[:-1]
        ]

    @property
    def resolved(self) -> dict[str, Any]:
        """The model as it is computed with."""
        return as_stated(self.read.model)


@dataclass(frozen=True)
class ModelListResult(Answer):
    """The models of the library, by name."""

    schema = "tpsim.model-list/1"
    told = ("models",)
    table = "models"

    each: tuple[ModelResult, ...]

    files = files_of(lambda answer: [model.read.document for model in answer.each])

    @property
    def verdict(self) -> str:
        """How many there are, and how to ask of another one."""
        return f"{len(self.each)} models; any other: --model path/to/config.json"

    @property
    def models(self) -> list[dict[str, Any]]:
        """One row per model: its sizes and its parameters."""
        return [_row(model) for model in self.each]


def model_list() -> ModelListResult:
    """Every model of the library."""
    return ModelListResult(tuple(model_show(name) for name in spec.names("models")))


@checked
def model_show(name_or_path: str | Path) -> ModelResult:
    """What is read from a model.

    name_or_path  of the library, a model file, or a Hugging Face config.json
    Raises InputError for what cannot be read as a dense model.
    """
    from tpsim.program.model_file import load_model

    return ModelResult(load_model(name_or_path))


def _row(result: ModelResult) -> dict[str, Any]:
    model = result.read.model
    behind = [kind.ffn for kind in model.kinds.values() if not isinstance(kind.ffn, NoFeedForward)]
    ffn = behind[-1] if behind else None
    many = f"{ffn.experts} x " if isinstance(ffn, Moe) else ""
    return {
        "model": model.name,
        "parameters": result.parameters["total"],
        "active": result.active,
        **{name: getattr(model, name) for name in ("hidden", "layers", "heads", "kv_heads", "head_dim")},
        "ffn": f"{many}{ffn.kind}" if ffn else "none",
        "ffn_hidden": ffn.hidden if ffn else 0,
        "vocab": model.vocab,
        "source": result.read.source,
    }
