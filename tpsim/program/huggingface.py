"""A Hugging Face config.json read as a model; what it says that no rule of its family reads is refused, or listed."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from tpsim.program.config import Config, as_json
from tpsim.program.families import FAMILIES, FEW_BITS, ModelFamily
from tpsim.program.kinds_file import CYCLES, kind_names, merged
from tpsim.program.model import Attention, FeedForward, Latent, LayerKind, Mlp, Model, Moe, NoFeedForward
from tpsim.program.names import NAMES
from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpsim.program.linear import Linear
    from tpsim.quantity.spec import Document

ACTIVATIONS: Mapping[str, tuple[FeedForward | None, FeedForward | None]] = {
    "silu": ("swiglu", None),
    "swish": ("swiglu", None),
    "gelu": ("geglu", "gelu"),
    "gelu_new": ("geglu", "gelu"),
    "gelu_fast": ("geglu", "gelu"),
    "gelu_pytorch_tanh": ("geglu", "gelu"),
    "relu": (None, "relu"),
    "relu2": (None, "relu2"),
}
"""Activation -> the feed-forward it makes when gated, and when not (None: `Model` has no such one)."""


def read_config(document: Document) -> tuple[Model, tuple[str, ...]]:
    """The model that a config.json describes, and what was read into it or left out of it.

    A nested ``text_config`` is read and the rest of the file left aside, which a note says.

    Raises InputError for an unknown model_type, for keys about experts, attention, norms or sizes that no rule of it
    reads, for a size that is missing or not a positive whole number, and for a switch (activation, bias) that `Model`
    cannot express.
    """
    return _ConfigReading(document).imported()


class _ConfigReading(Config):
    """A config that becomes the model of its family."""

    def __init__(self, document: Document) -> None:
        super().__init__(document)
        self.family = _family(self)

    def imported(self) -> tuple[Model, tuple[str, ...]]:
        """The model and the notes."""
        self.refuse_nested_experts()
        self.refuse_misspelt(self.family.known)
        self._refuse_other_switches()
        model = self._model()
        self.refuse_unread({**FEW_BITS, "partial_rotary_factor": "", **self.family.known})
        for key in ("rotary_pct", "partial_rotary_factor"):
            if self.data.get(key, 1) != 1:
                self.notes.append(f"{key} {self.data[key]}: modelled as rotary on the whole head")
        return model, tuple(self.notes)

    def _model(self) -> Model:
        family, layers = self.family, self.size("layers")
        layers = len(family.layers(self)) if family.layers else layers
        vocab = self.size("vocab", family.default.get("vocab"))
        learned = family.model.get("positions") == "learned"
        softcap = self.positive("final_logit_softcapping", family.default.get("final_logit_softcapping"))
        hidden, heads = self.size("hidden"), self.size("heads", family.default.get("heads"))
        attention = self._latent(heads) if family.latent else None
        runs = [self._layer(layer, hidden, heads, attention) for layer in range(layers if self._differ(layers) else 1)]
        kinds = dict.fromkeys(runs) if len(runs) > 1 else {runs[0]: None}
        names = kind_names([_pair(kind) for kind in kinds])
        stack = merged((names[_pair(kind)], 1) for kind in runs)
        further = self.number("num_nextn_predict_layers", 0)
        return Model(
            name=self._name(),
            hidden=hidden,
            kinds={names[_pair(kind)]: kind for kind in kinds},
            stack=stack if len(runs) > 1 else ((stack[0][0], layers),),
            vocab=vocab,
            vocab_padded=vocab,
            max_positions=self.size("max_positions", family.default.get("max_positions")) if learned else None,
            tie_embeddings=self._flag("tie_embeddings"),
            parallel_residual=self._flag("parallel_residual"),
            logit_softcap=softcap,
            mtp=(stack[-1][0], further) if further else None,
            **family.model,
        )

    def _differ(self, layers: int) -> bool:
        differ = self.family.masks is not None or self.family.sparse is not None
        if differ and layers > CYCLES:
            self.refuse(NAMES["layers"][0], f"{layers} layers", f"write at most {CYCLES}")
        return differ

    def _layer(self, layer: int, hidden: int, heads: int, latent: Latent | None) -> LayerKind:
        family, sparse = self.family, self.family.sparse and self.family.sparse(self, layer)
        masks = family.masks(self, layer) if family.masks else {}
        attention = (
            self._linear(masks)
            or latent
            or Attention(
                heads=heads,
                kv_heads=self.size("kv_heads", family.default.get("kv_heads", heads)),
                head_dim=self._head_dim(hidden, heads),
                **{
                    **family.attention,
                    **self._switched_on(),
                    **{name: self.positive(key, family.default.get(key)) for name, key in family.numbers.items()},
                    **masks,
                },
            )
        )
        if family.alone and family.alone(self, layer):
            return LayerKind(attention, NoFeedForward())
        if sparse and self.size("experts"):
            return LayerKind(attention, self._moe())
        widening = family.widening and family.widening * hidden
        size = self.size(family.dense) if family.dense else self.size("ffn_hidden", widening)
        return LayerKind(attention, Mlp(kind=self._feed_forward(), hidden=size, bias=family.bias))

    def _linear(self, masks: Mapping[str, Any]) -> Linear | None:
        """The linear attention of a layer, if that is one."""
        if "linear" not in masks:
            return None
        from tpsim.program.linear import Linear

        sizes = masks["linear"]
        if sizes["heads"] % sizes["key_heads"]:
            message = f"{sizes['heads']} value heads are not divisible by {sizes['key_heads']} key heads"
            self.refuse("linear_num_key_heads", message, "every key head serves as many value heads")
        return Linear(**sizes)

    def _switched_on(self) -> dict[str, Any]:
        on = [fields for key, fields in self.family.flags.items() if self.flag(key, default=False)]
        return {name: value for fields in on for name, value in fields.items()}

    def _latent(self, heads: int) -> Latent:
        self.get("num_key_value_heads")  # as many as heads, and no heads of keys and values
        self.read.update(NAMES["head_dim"])
        sizes: dict[str, Any] = {name: self.size(name) for name in ("kv_rank", "nope", "rope", "value")}
        if self.family.indexed:
            named = {"index_heads": "index_n_heads", "index_dim": "index_head_dim", "top": "index_topk"}
            sizes |= {name: self.size(key) for name, key in named.items()}
        return Latent(heads=heads, query_rank=self.number("q_lora_rank", 0) or None, **sizes)

    def _moe(self) -> Moe:
        """A mixture of experts; keys that its family decides or has not are left to the defaults of `Moe`."""
        fixed, (_, narrow) = dict(self.family.moe), self.named_value("expert_hidden")
        hidden = self.size("expert_hidden" if narrow is not None else "ffn_hidden")
        self.read.update(NAMES["ffn_hidden"])
        shared = fixed.pop("shared", self.number(self._key("n_shared_experts"), 0)) * hidden
        shared = self.number(self.family.shared, 0) if self.family.shared else shared
        groups = {"groups": self.number(self._key("n_group"), 0), "top_groups": self.number("topk_group", 0)}
        normalise = self._key("norm_topk_prob")
        stated = {
            "score": self._score(),
            "normalise": None if self.get(normalise) is None else self.flag(normalise, default=True),
            **({} if self.get("topk_method") == "greedy" else groups),
            "shared": shared,
        }
        known = {"kind": self._feed_forward(), **fixed, **{name: value for name, value in stated.items() if value}}
        known |= {"normalise": False} if stated["normalise"] is False else {}
        known |= {"shared_gate": False} if "shared_gate" in known and not shared else {}
        return Moe(experts=self.size("experts"), top=self.size("top"), hidden=hidden, **known)

    def _score(self) -> str | None:
        """What makes scores of a router's logits; None where the config leaves it out."""
        key = self._key("scoring_func")
        value: str | None = self.get(key)
        if value not in (None, "softmax", "sigmoid"):
            self.refuse(key, f"{key}: {as_json(value)} is neither softmax nor sigmoid", "no other is modelled")
        return value

    def _key(self, usual: str) -> str:
        """The key that the family has for one that others have."""
        return self.family.others.get(usual, usual)

    def _refuse_other_switches(self) -> None:
        for key, expected in self.family.switches.items():
            if self.get(key) not in (expected, None):
                self.refuse(
                    key, f"{key}: {as_json(self.data[key])} is not supported yet", f"only {as_json(expected)} is"
                )

    def _head_dim(self, hidden: int, heads: int) -> int:
        key, value = self.named_value("head_dim")
        default = self.family.default.get("head_dim")
        if value is None and default is None:
            if hidden % heads:
                self.refuse(NAMES["heads"][0], f"hidden {hidden} is not divisible by {heads} heads", f"add {key}")
            return hidden // heads
        return self.size("head_dim", default)

    def _flag(self, name: str) -> bool:
        key, _ = self.named_value(name)
        default = self.family.default
        return name in default and self.flag(key, default=bool(default[name]))

    def _feed_forward(self) -> FeedForward:
        key, value = self.named_value("ffn")
        activation = value if value is not None else self.family.default["ffn"]
        gated, plain = ACTIVATIONS.get(activation, (None, None)) if isinstance(activation, str) else (None, None)
        ffn = gated if self.family.gated else plain
        if ffn is None:
            usable = [name for name, kinds in ACTIVATIONS.items() if kinds[0 if self.family.gated else 1]]
            self.refuse(key, f"{key}: {as_json(activation)} is not supported", "known: " + ", ".join(usable))
        return ffn

    def _name(self) -> str:
        """The published name where there is one, else the file's; of a plain config.json the folder's, or type."""
        published = self.data.get("_name_or_path") or self.document.data.get("_name_or_path")
        if isinstance(published, str):
            return PurePath(published).name
        path = PurePath(self.document.path)
        if path.stem != "config":
            return path.stem
        return self.data["model_type"] if path.parent.name in ("", "..") else path.parent.name


def _pair(kind: LayerKind) -> tuple[str, str]:
    """What tells kinds of one config apart."""
    own = kind.attention
    behind = "sparse" if isinstance(kind.ffn, Moe) else "alone" if isinstance(kind.ffn, NoFeedForward) else "dense"
    if own.keeps_state:
        return "linear", behind
    whole = "nope" if isinstance(own, Attention) and not own.rope else "whole"
    mask = own.mask if isinstance(own, Attention) and own.mask != "causal" else whole
    return mask, behind


def _family(config: Config) -> ModelFamily:
    model_type = config.data.get("model_type")
    known = ", ".join(sorted(FAMILIES))
    if model_type is None:
        raise InputError.one(
            "no-model-type",
            "the config has no model_type, so tpsim cannot tell which architecture it is",
            config.place(),
            note=f"known: {known}",
        )
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        # No nearest name: "gemma4" is no misspelt "gemma", and nobody types a model_type.
        raise InputError.one(
            "unknown-model-type",
            f"model_type {as_json(model_type)} is not known to tpsim",
            config.place("model_type"),
            remedy="write a tpsim: model/2 file if its blocks are known: tpsim schema model",
            note=f"known: {known}",
        )
    return FAMILIES[model_type]
