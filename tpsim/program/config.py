"""A Hugging Face config.json as it is read: its keys, where they stand, and what no rule has read of them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from difflib import get_close_matches
from math import inf
from typing import Any, NoReturn

from tpsim.program.names import NAMES
from tpsim.quantity.errors import InputError, Place
from tpsim.quantity.spec import MOST, Document

MISSPELT = 0.87
"""Likeness (difflib's ratio) from which a key is taken for a misspelt one: a single slip in eight letters."""

MEANT = re.compile(
    r"expert|moe|rout|top_?k|group|scor|shared|sparse|dense|mlp|ffn|interm|attention|attn|softcap|head|rank|window|chunk"
    r"|norm|layer|hidden|size|dim|bias|nextn|mtp|soft_cap|sink|alibi|^swa|multi_query|^kv_|_kv$|_query|channels|^d_|depth"
    r"|width|position_embedding_type|block|conv_|_conv|mamba|ssm|altup"
)
"""What a key is about that a model could mean: one that no rule reads is refused, unless it says nothing."""

SILENT = re.compile(
    r"eps$|epsilon$|drop|_coef$|_loss|^output_|initializer|_implementation|^rotary_|^rope_|^chunk_size_feed_forward"
    r"|^ep_size|routed_scaling_factor|^scale_attn|^reorder_|^router_jitter|^attn_(temperature|scale)|^attention_multiplier"
)
"""What changes no size though it is called so: rates, tolerances, factors, ways to compute."""

ALWAYS_THERE = re.compile(
    r"^(_|architectures$|auto_map$|use_cache$|transformers_version$|task_|id2|label2)|dtype$|token_id$"
)
"""What configs have whatever the model."""

NOTHING: tuple[Any, ...] = (None, 0, False, [], {}, "")
"""Values that say that there is none of what a key is about."""

MEANT_BY_FALSE = re.compile(r"^(pre_norm|do_layer_norm_before|(use_)?rms_?norm|is_causal|gated)$")
"""What says that a model is another one by being false."""

LAYER_TYPES = ("full_attention", "sliding_attention", "chunked_attention")


class Config:
    """One config.json being read.

    data   the part of it that is read: its ``text_config`` if it has one
    read   keys that a rule has asked for
    notes  what was left out, in words
    """

    def __init__(self, document: Document) -> None:
        self.document = document
        root: Mapping[str, Any] = document.data
        nested = isinstance(root.get("text_config"), dict)
        self.path: tuple[str, ...] = ("text_config",) if nested else ()
        # A multimodal config ties its output in the root, not in the part that the output belongs to.
        tied = {key: root[key] for key in NAMES["tie_embeddings"] if key in root}
        self.data: Mapping[str, Any] = tied | root["text_config"] if nested else root
        self.notes: list[str] = ["only text_config is modelled, not the other parts of the config"] if nested else []
        self.read = {"model_type", *(key for name in ("max_positions", "ffn", "tie_embeddings") for key in NAMES[name])}

    def get(self, key: str) -> Any:
        """The value of a key, which is read by that; None without it."""
        self.read.add(key)
        return self.data.get(key)

    def number(self, key: str, default: int, *, least: int = 0) -> int:
        """A whole number of at least so much, or null, which is its default."""
        value = self.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
            self.refuse(key, f"{key}: {as_json(value)} is not a whole number", f"write {least} or more")
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false."""
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            self.refuse(key, f"{key}: {as_json(value)} is neither true nor false", "write true or false")
        return default if value is None else value

    def whole_numbers(self, key: str) -> list[int]:
        """A list of whole numbers; none where the config has none."""
        value = self.get(key) or []
        if not isinstance(value, list) or any(
            isinstance(number, bool) or not isinstance(number, int) for number in value
        ):
            self.refuse(key, f"{key}: {as_json(value)} is not a list of whole numbers", "write [0, 1, 2]")
        return value

    def layer_type(self, layer: int, kinds: Sequence[str] = LAYER_TYPES) -> str:
        """What ``layer_types`` says of a layer, one of some kinds; "" without it."""
        types = self.get("layer_types")
        if types is None:
            return ""
        if not isinstance(types, list):
            self.refuse(
                "layer_types", f"layer_types: {as_json(types)} is not a list", f'write ["{LAYER_TYPES[0]}", ...]'
            )
        if layer >= len(types):
            message = f"layer_types tells of {len(types)} layers, and the model has more"
            self.refuse("layer_types", message, "name the kind of each layer, or change the number of layers")
        if types[layer] not in kinds:
            message, known = f"layer kind {as_json(types[layer])} is not modelled", f"known: {', '.join(kinds)}"
            raise InputError.one("bad-config", message, self.place("layer_types", layer), remedy=known)
        return str(types[layer])

    def part(self, key: str, known: Collection[str]) -> Config:
        """A map inside of the config, read as the config is; known: its keys, others are refused."""
        value = self.get(key)
        if not isinstance(value, dict):
            self.refuse(key, f"{key}: {as_json(value)} is not a map of sizes", "write { ... }")
        for other in (other for other in value if other not in known):
            self.refuse_key((*self.path, key, other), value[other])
        inner = copy(self)
        inner.path, inner.data, inner.read = (*self.path, key), value, set()
        return inner

    def named_value(self, name: str) -> tuple[str, Any]:
        """The key that this config uses for `name` and its value; (preferred key, None) when it has none."""
        known = _keys(name)
        self.read.update(known)
        keys = [key for key in known if self.data.get(key) is not None]
        if not keys:
            return known[0], None
        first, *others = keys
        for other in others:
            if name != "ffn" and self.data[other] != self.data[first]:
                self.refuse(other, f"{first} and {other} are two names of one size and differ", "keep one")
        return first, self.data[first]

    def size(self, name: str, default: int | None = None) -> int:
        """A size by its name in `NAMES`, or by a key that only one family has."""
        key, value = self.named_value(name)
        if value is None and default is not None:
            return default
        if value is None:
            names = " or ".join(_keys(name))
            raise InputError.one("missing-field", f"the config has no {names}", self.place(), remedy=f"add {names}")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self.refuse(key, f"{key}: {as_json(value)} is not a positive whole number", "write a number of 1 or more")
        if value > MOST:
            self.refuse(key, f"{key}: {as_json(value)} is too large", f"it must be at most {MOST}")
        return int(value)

    def positive(self, key: str, default: float | None = None) -> float | None:
        """A number, or none where the config says null, or nothing that has no default."""
        value = self.data.get(key, default)
        self.read.add(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < inf):
            self.refuse(key, f"{key}: {as_json(value)} is not a positive number", "write a number, or null")
        return value

    # --- what is refused ---

    def refuse_misspelt(self, known: Collection[str]) -> None:
        """Refuse a key that is almost one that is read, and would mean its default; known: keys that are others."""
        read = {key for keys in NAMES.values() for key in keys}
        for key in (key for key in self.data if key not in {*read, *known} and not SILENT.search(key)):
            meant = get_close_matches(key, sorted(read - self.data.keys()), n=1, cutoff=MISSPELT)
            if meant and key != f"use_{meant[0]}":  # a switch is no slip
                self.refuse(key, f'"{key}" is not read', f'did you mean "{meant[0]}"?')

    def refuse_unread(self, known: Mapping[str, str]) -> None:
        """Refuse what no rule reads and a model could mean; list the rest.

        known  keys of the family that change no size, and what is left out where they say something
        """
        self.notes += [note for key, note in known.items() if note and self.data.get(key) not in NOTHING]
        self.read.update(known)
        no = {key for key, value in self.data.items() if value is False and MEANT_BY_FALSE.search(key)}
        meant = [key for key, value in self.data.items() if value not in NOTHING or key in no]
        unread = [key for key in meant if key not in self.read]
        for key in unread:
            if (MEANT.search(key) or self.data[key] is False) and not SILENT.search(key):
                self.refuse_key((*self.path, key), self.data[key])
        left = self.data.keys() - self.read
        usual = {key for key in left if key not in unread or ALWAYS_THERE.search(key)}
        silent = {key for key in left - usual if SILENT.search(key)}
        for keys, why in (
            (left - usual - silent, ""),
            (silent, ", for it changes no size"),
            (usual, ", for every config has it, or it says that there is none"),
        ):
            if keys:
                self.notes.append(f"not read{why}: {', '.join(sorted(keys))}")

    def refuse_nested_experts(self) -> None:
        """Refuse keys about experts elsewhere than in what is read."""
        for keys, value in _about_experts(self.document.data):
            if keys[:-1] != self.path:
                self.refuse_key(keys, value)

    def refuse_key(self, keys: tuple[str, ...], value: object) -> NoReturn:
        """Refuse what no rule reads."""
        message = f"{keys[-1]}: {as_json(value)}: no rule for {self.data['model_type']} reads this"
        remedy = "remove it if it changes no size, or write a tpsim: model/2 file"
        raise InputError.one("unread-key", message, self.document.place(*keys), remedy=remedy)

    def place(self, *keys: str | int) -> Place | None:
        """Where a key of what is read stands."""
        return self.document.place(*self.path, *keys)

    def refuse(self, key: str, message: str, remedy: str) -> NoReturn:
        """Refuse a key for what it says, or for not being there."""
        present = key in self.data
        raise InputError.one("bad-config", message, self.place(key) if present else self.place(), remedy=remedy)


def _about_experts(data: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every key about experts, however deep, that does not say that there are none."""
    for key, value in data.items() if isinstance(data, dict) else ():
        if "expert" in str(key).lower() and value not in NOTHING:
            yield (*path, str(key)), value
        yield from _about_experts(value, (*path, str(key)))


def _keys(name: str) -> tuple[str, ...]:
    """The keys of what has a name in `NAMES`; of anything else its own."""
    return NAMES.get(name, (name,))


def as_json(value: object) -> str:
    """A value as JSON writes it."""
    return json.dumps(value, default=str)
