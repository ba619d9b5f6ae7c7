"""A Hugging Face config.json read as a dense model; what it says that a dense model cannot mean is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NoReturn

from tpsim.program.model import LARGEST, FeedForward, Model, dense
from tpsim.quantity.errors import InputError, Place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpsim.quantity.spec import Document

NAMES: Mapping[str, tuple[str, ...]] = {
    "hidden": ("hidden_size", "n_embd"),
    "layers": ("num_hidden_layers", "n_layer"),
    "heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "ffn": ("hidden_activation", "hidden_act", "activation_function"),
    "ffn_hidden": ("intermediate_size", "n_inner"),
    "vocab": ("vocab_size",),
    "max_positions": ("n_positions", "max_position_embeddings"),
    "tie_embeddings": ("tie_word_embeddings",),
    "parallel_residual": ("use_parallel_residual",),
}
"""Field of `Model` -> the keys that config.json files have for it, the preferred one first."""

ACTIVATIONS: Mapping[str, tuple[FeedForward | None, FeedForward | None]] = {
    "silu": ("swiglu", None),
    "swish": ("swiglu", None),
    "gelu": ("geglu", "gelu"),
    "gelu_new": ("geglu", "gelu"),
    "gelu_fast": ("geglu", "gelu"),
    "gelu_pytorch_tanh": ("geglu", "gelu"),
    "relu": (None, "relu"),
}
"""Activation -> the feed-forward it makes when gated, and when not (None: `Model` has no such one)."""


MISSPELT = 0.87
"""Likeness (difflib's ratio) from which a key is taken for a misspelt one: a single slip in eight letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What a model_type fixes, and what its config means when it leaves a key out.

    fixed    fields of `Model` that the architecture decides
    default  fields of `Model` that a config may leave out; `ffn` is the activation
    gated    True if the MLP multiplies two projections
    switches key of a switch -> the only value that is supported, which is also its default
    widening ffn hidden over hidden where a config leaves the former out, None if it may not
    """

    fixed: Mapping[str, Any]
    default: Mapping[str, Any]
    gated: bool
    switches: Mapping[str, bool] = field(default_factory=dict)
    widening: int | None = None


FAMILIES: Mapping[str, Family] = {
    "llama": Family(
        fixed={"norm": "rmsnorm"},
        default={"ffn": "silu", "tie_embeddings": False},
        gated=True,
        switches={"attention_bias": False, "mlp_bias": False},
    ),
    "mistral": Family(fixed={"norm": "rmsnorm"}, default={"ffn": "silu", "tie_embeddings": False}, gated=True),
    "qwen2": Family(
        fixed={"norm": "rmsnorm", "qkv_bias": True}, default={"ffn": "silu", "tie_embeddings": False}, gated=True
    ),
    "gemma": Family(
        fixed={"norm": "rmsnorm"},
        default={"ffn": "gelu_pytorch_tanh", "tie_embeddings": True, "head_dim": 256},
        gated=True,
        switches={"attention_bias": False},
    ),
    "gpt2": Family(
        fixed={"norm": "layernorm", "bias": True, "positions": "learned"},
        default={"ffn": "gelu_new", "tie_embeddings": True, "max_positions": 1024},
        gated=False,
        switches={"add_cross_attention": False},
        widening=4,
    ),
    "gpt_neox": Family(
        fixed={"norm": "layernorm", "bias": True},
        default={"ffn": "gelu", "tie_embeddings": False, "parallel_residual": True},
        gated=False,
        switches={"attention_bias": True},
    ),
}
"""model_type -> how its configs are read."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A model read from a config.json, and what was read into it or left out of it."""

    model: Model
    notes: tuple[str, ...] = ()


def read_config(document: Document) -> Imported:
    """The model that a config.json describes.

    A nested ``text_config`` is read and the rest of the file left aside, which a note says.

    Raises InputError for an unknown model_type, for any key about experts that says more than "none", for a size that
    is missing or not a positive whole number, and for a switch (activation, bias) that `Model` cannot express.
    """
    _refuse_experts(document)
    return _Config(document).imported()


class _Config:
    """One config.json being read: its keys, where they stand, and the notes made on the way."""

    def __init__(self, document: Document) -> None:
        self.document = document
        root: Mapping[str, Any] = document.data
        nested = isinstance(root.get("text_config"), dict)
        self.path: tuple[str, ...] = ("text_config",) if nested else ()
        # A multimodal config ties its output in the root, not in the part that the output belongs to.
        tied = {key: root[key] for key in NAMES["tie_embeddings"] if key in root}
        self.data: Mapping[str, Any] = tied | root["text_config"] if nested else root
        self.notes: list[str] = ["only text_config is modelled, not the other parts of the config"] if nested else []

    def imported(self) -> Imported:
        """The model and the notes."""
        family = self._family()
        self._refuse_misspelt(family)
        self._refuse_other_switches(family)
        model = self._model(family)
        self._note_what_is_left_out()
        return Imported(model, tuple(self.notes))

    def _model(self, family: Family) -> Model:
        hidden, heads = self._size("hidden"), self._size("heads")
        vocab = self._size("vocab")
        sizes: dict[str, Any] = {
            "kv_heads": self._size("kv_heads", heads),
            "head_dim": self._head_dim(family, hidden, heads),
            "ffn_hidden": self._ffn_hidden(family, hidden),
            "tie_embeddings": self._flag(family, "tie_embeddings"),
            "parallel_residual": self._flag(family, "parallel_residual"),
        }
        if family.fixed.get("positions") == "learned":
            sizes["max_positions"] = self._size("max_positions", family.default.get("max_positions"))
        return dense(
            name=self._name(),
            hidden=hidden,
            layers=self._size("layers"),
            heads=heads,
            vocab=vocab,
            vocab_padded=vocab,
            ffn=self._feed_forward(family),
            **sizes,
            **family.fixed,
        )

    def _family(self) -> Family:
        model_type = self.data.get("model_type")
        known = ", ".join(sorted(FAMILIES))
        if model_type is None:
            raise InputError.one(
                "no-model-type",
                "the config has no model_type, so tpsim cannot tell which architecture it is",
                self._place(),
                note=f"known: {known}",
            )
        if not isinstance(model_type, str) or model_type not in FAMILIES:
            # No nearest name: "gemma2" is no misspelt "gemma", and nobody types a model_type.
            raise InputError.one(
                "unknown-model-type",
                f"model_type {_text(model_type)} is not known to tpsim",
                self._place("model_type"),
                remedy="write a tpsim: model/1 file if it is a dense transformer",
                note=f"known: {known}",
            )
        return FAMILIES[model_type]

    def _refuse_misspelt(self, family: Family) -> None:
        """Refuse a key that is almost one that is read: left out, it would silently mean its default.

        Other keys are left alone; a config has many that say nothing about sizes.
        """
        read = {key for keys in NAMES.values() for key in keys} | family.switches.keys()
        for key in (key for key in self.data if key not in read):
            if meant := get_close_matches(key, sorted(read - self.data.keys()), n=1, cutoff=MISSPELT):
                self._refuse(key, f'"{key}" is not read', f'did you mean "{meant[0]}"?')

    def _refuse_other_switches(self, family: Family) -> None:
        for key, expected in family.switches.items():
            if self.data.get(key, expected) not in (expected, None):
                self._refuse(key, f"{key}: {_text(self.data[key])} is not supported yet", f"only {_text(expected)} is")

    def _value(self, name: str) -> tuple[str, Any]:
        """The key that this config uses for `name` and its value; (preferred key, None) when it has none."""
        given = [key for key in NAMES[name] if self.data.get(key) is not None]
        if not given:
            return NAMES[name][0], None
        first, *others = given
        for other in others:
            if name != "ffn" and self.data[other] != self.data[first]:
                self._refuse(other, f"{first} and {other} are two names of one size and differ", "keep one")
        return first, self.data[first]

    def _size(self, name: str, default: int | None = None) -> int:
        key, value = self._value(name)
        if value is None and default is not None:
            return default
        if value is None:
            names = " or ".join(NAMES[name])
            raise InputError.one("missing-field", f"the config has no {names}", self._place(), remedy=f"add {names}")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self._refuse(key, f"{key}: {_text(value)} is not a positive whole number", "write a number of 1 or more")
        if value > LARGEST:
            self._refuse(key, f"{key}: {_text(value)} is too large", f"it must be at most {LARGEST}")
        return value

    def _head_dim(self, family: Family, hidden: int, heads: int) -> int:
        key, value = self._value("head_dim")
        default = family.default.get("head_dim")
        if value is None and default is None:
            if hidden % heads:
                self._refuse(NAMES["heads"][0], f"hidden {hidden} is not divisible by {heads} heads", f"add {key}")
            return hidden // heads
        return self._size("head_dim", default)

    def _ffn_hidden(self, family: Family, hidden: int) -> int:
        return self._size("ffn_hidden", family.widening and family.widening * hidden)

    def _flag(self, family: Family, name: str) -> bool:
        key, value = self._value(name)
        if name not in family.default:
            return False
        if value is None:
            return bool(family.default[name])
        if not isinstance(value, bool):
            self._refuse(key, f"{key}: {_text(value)} is neither true nor false", "write true or false")
        return value

    def _feed_forward(self, family: Family) -> FeedForward:
        key, value = self._value("ffn")
        activation = value if value is not None else family.default["ffn"]
        gated, plain = ACTIVATIONS.get(activation, (None, None)) if isinstance(activation, str) else (None, None)
        ffn = gated if family.gated else plain
        if ffn is None:
            usable = [name for name, kinds in ACTIVATIONS.items() if kinds[0 if family.gated else 1]]
            self._refuse(key, f"{key}: {_text(activation)} is not supported", "known: " + ", ".join(usable))
        return ffn

    def _note_what_is_left_out(self) -> None:
        window = self.data.get("sliding_window")
        if isinstance(window, int) and self.data.get("use_sliding_window", True):
            self.notes.append(f"sliding-window attention ({window} tokens) is not modelled: attention reads all tokens")
        if self.data.get("rotary_pct", 1) != 1:
            self.notes.append(f"rotary_pct {self.data['rotary_pct']}: modelled as rotary on the whole head")

    def _name(self) -> str:
        """The published name if the config bears one, else the file's (its folder's for a plain config.json)."""
        published = self.data.get("_name_or_path") or self.document.data.get("_name_or_path")
        if isinstance(published, str):
            return PurePath(published).name
        path = PurePath(self.document.path)
        return path.parent.name if path.stem == "config" and path.parent.name else path.stem

    def _place(self, *keys: str) -> Place | None:
        return self.document.place(*self.path, *keys)

    def _refuse(self, key: str, message: str, remedy: str) -> NoReturn:
        present = key in self.data
        raise InputError.one("bad-config", message, self._place(key) if present else self._place(), remedy=remedy)


def _refuse_experts(document: Document) -> None:
    """Refuse any key about experts that does not say "none": such a model is not dense, whatever its model_type."""
    for keys, value in _expert_keys(document.data):
        raise InputError.one(
            "experts-not-supported",
            f"{keys[-1]}: {_text(value)}: models with experts are not supported yet",
            document.place(*keys),
            remedy="tpsim reads dense models; it will not read this one as dense",
        )


def _expert_keys(data: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not isinstance(data, dict):
        return
    for key, value in data.items():
        about_experts = "expert" in str(key).lower() or str(key).lower().startswith("moe_")
        if about_experts and value not in (None, 0, False):
            yield (*path, key), value
        yield from _expert_keys(value, (*path, key))


def _text(value: object) -> str:
    """A value as JSON writes it."""
    return json.dumps(value, default=str)
