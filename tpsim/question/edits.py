"""Edits of a scenario from outside its file: overrides (``--set layout.tp=tensor``), and flags with their fields."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from tpsim.quantity import spec
from tpsim.quantity.errors import COMMAND_LINE, InputError, Place
from tpsim.question.scenario_file import PATHS_TO_FILES

if TYPE_CHECKING:
    from pathlib import Path

    from tpsim.quantity.spec import Document

Keys = tuple[str, ...]

SHORT_FOR: Mapping[str, str] = {**dict.fromkeys(PATHS_TO_FILES, "extends"), "practice": "base", "recompute": "base"}
"""A field whose bare name is short for a map -> the key of that map which the name belongs to."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One change: the field, its new value, the text that asked for it and where in that text the value starts.

    named   where the name of the field stands; at the value if nowhere else
    inside  where what stands inside the value does
    """

    keys: Keys
    value: Any
    text: str
    column: int = 1
    named: Place | None = None
    inside: Mapping[spec.Keys, spec.Spot] = field(default_factory=dict)

    @property
    def place(self) -> Place:
        """The edit as a place to point at."""
        return Place(COMMAND_LINE, 1, self.column, self.text, max(1, len(self.text) - self.column + 1))


def edited(document: Document, edits: Iterable[Edit]) -> Document:
    """The document with every edit made, in order; a mistake in an edited field points at the edit.

    Raises InputError when an edit goes into something that has no fields.
    """
    for edit in edits:
        document = _unfolded(document, edit.keys)
        document = spec.with_value(document, edit.keys, edit.value, edit.place, edit.named, inside=edit.inside)
    return document


def refuse_text(name: str, texts: Any) -> None:
    """Refuse what is no list of texts: of one text Python would take each letter for one, of a map its keys alone.

    Raises InputError.
    """
    if isinstance(texts, str):
        raise InputError.one("bad-usage", f"{name} is a list of texts", remedy=f'write {name}=["{texts}"]')
    if isinstance(texts, Mapping):
        written = [f'"{path}={_as_listed(value)}"' for path, value in texts.items()]
        raise InputError.one("bad-usage", f"{name} is a list of texts", remedy=f"write {name}=[{', '.join(written)}]")
    if not isinstance(texts, Collection) or not all(isinstance(text, str) for text in texts):
        raise InputError.one("bad-usage", f"{name} is a list of texts", remedy=f'write {name}=["layout.zero=3"]')


def _as_listed(value: Any) -> str:
    """A value of Python, or several of them, as the command line writes it."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def read_override(text: str) -> Edit:
    """The change that ``path=value`` asks for: keys joined by dots, and YAML. Raises InputError."""
    path, equals, value = text.partition("=")
    keys = tuple(key.strip() for key in path.split("."))
    named = Place(COMMAND_LINE, 1, len("--set ") + 1, f"--set {text}", len(path))
    if not equals or not all(keys):
        whole = replace(named, width=max(1, len(text)))
        raise InputError.one("bad-override", f'"{text}" sets nothing', whole, "write path=value: layout.zero=1")
    edit = Edit(keys, None, named.text, named.column + len(path) + 1, named)
    read, inside = _yaml(value, edit.place)
    return replace(edit, value=read, inside=inside)


def _yaml(text: str, place: Place) -> tuple[Any, dict[spec.Keys, spec.Spot]]:
    """What one value written as YAML stands for, and where its parts stand.

    ``> 40 %`` stands for itself: no text of one line folds lines.
    """
    if text.lstrip().startswith(">"):
        return text.strip(), {}
    try:
        document = spec.load(f"{FIELD}{text.strip() or 'null'}\n", name=place.file)
    except InputError as error:
        raise InputError([replace(error.problems[0], place=place)]) from None
    value = document.data["value"]
    glued = (
        [key for key, inside in value.items() if inside is None and ":" in str(key)] if isinstance(value, dict) else []
    )
    if glued:
        spaced = str(glued[0]).replace(":", ": ", 1)
        message = f'"{glued[0]}" is one word: YAML wants a space after the colon'
        raise InputError.one("bad-override", message, place, f"write {spaced}, with quotes around the whole")
    before = place.column + len(text) - len(text.lstrip()) - len(FIELD) - 1
    spots = document.spots.items() if "\n" not in text else ()
    return value, {at[1:]: _moved(spot, before, place.text) for at, spot in spots if len(at) > 1}


FIELD = "value: "
"""What stands before a value where it is read as the value of a field."""


def _moved(spot: spec.Spot, columns: int, text: str) -> spec.Spot:
    """The spot in a text that has so many columns more before it."""
    key = spot.key and replace(spot.key, column=spot.key.column + columns, text=text)
    return spec.Spot(key, replace(spot.value, column=spot.value.column + columns, text=text))


def _unfolded(document: Document, keys: Keys) -> Document:
    """The document with a bare name written as the map that it is short for, if `keys` lead into that map."""
    top = keys[0]
    short = document.data.get(top)
    if len(keys) == 1 or top not in SHORT_FOR or not isinstance(short, str):
        return document
    return spec.with_value(document, (top,), {SHORT_FOR[top]: short}, document.place(top))


class Flags(TypedDict, total=False):
    """What changes a scenario, or asks without one; None was not given.

    model          library name, .yaml, or a Hugging Face config.json
    hw             machine: library name or .yaml
    chips          chips of the machine; an axis of -1 fills up to it
    mesh           mesh axes, major first: ``data=32,tensor=8``
    tp, dp         size of tensor and data parallelism, or the mesh axes that it takes: ``kv,rep``
    cp             size of context parallelism, or the mesh axes that it takes
    pp             stages of a pipeline, or the mesh axis that has them
    schedule       how they take turns
    chunks         of layers on each stage
    sp             sequence parallelism
    zero           ZeRO stage
    batch          global batch, in sequences; of inference also ``largest``
    microbatches   parts that the batch is computed in
    seq            tokens per sequence
    dtype          of activations and parameters
    placement      what carries a mesh axis, one or several: ``tensor=nvlink``
    practice       switches of a framework: megatron, fsdp2, xla, ideal
    recompute      what is not kept for backward: none, selective, full
    offload        what lives on the host: none, state
    cost_model     additive or book
    planner        book or cheapest
    algorithm      forced on collectives that know it: ring, tree, in-switch
    protocol       forced: one of the machine's: ll, ll128, simple
    launch         launch latency: a harness of the profile, or ``15us``
    """

    model: str | Path | None
    hw: str | Path | None
    chips: int | None
    mesh: str | None
    tp: int | str | None
    dp: int | str | None
    cp: int | str | None
    ep: int | str | None
    pp: int | str | None
    schedule: str | None
    chunks: int | None
    sp: bool | None
    zero: int | None
    batch: int | Literal["largest"] | None
    microbatches: int | None
    seq: int | None
    dtype: str | None
    placement: str | Sequence[str] | None
    practice: str | None
    recompute: str | None
    offload: str | None
    cost_model: Literal["additive", "book"] | None
    planner: Literal["book", "cheapest"] | None
    algorithm: str | None
    protocol: str | None
    launch: str | None


PATHS: Mapping[str, Keys] = {
    "model": ("model",),
    "hw": ("hardware",),
    "chips": ("chips",),
    "sp": ("layout", "sequence_parallel"),
    "zero": ("layout", "zero"),
    "schedule": ("pipeline", "schedule"),
    "chunks": ("pipeline", "chunks"),
    "batch": ("workload", "global_batch"),
    "microbatches": ("workload", "microbatches"),
    "seq": ("workload", "seq"),
    "dtype": ("workload", "dtype"),
    "cost_model": ("cost_model",),
    "algorithm": ("collectives", "algorithm"),
    "protocol": ("collectives", "protocol"),
    "launch": ("collectives", "launch"),
    "planner": ("planner",),
    "practice": ("practice",),
    "recompute": ("recompute",),
    "offload": ("offload",),
}
"""Flags that set one field -> that field; mesh, placement, tp and dp say more than one."""

STAGES, EXPERTS = "pp", "ep"

ROLES: Mapping[str, str] = {STAGES: "pipe", "dp": "data", EXPERTS: "expert", "cp": "context", "tp": "tensor"}
"""The axis that a role gets when flags alone, or a search, make the mesh, major first; experts lie on a part of dp."""

ADDED, AXES = (STAGES, "cp"), ("dp", "tp")
"""Roles that a scenario may be without, and those that a mesh from flags alone always has."""

FLAGS: Mapping[str, str] = {
    **{".".join(keys): f"--{name.replace('_', '-')}" for name, keys in PATHS.items()},
    **{f"layout.{role}": f"--{role}" for role in ROLES},
    **{name: f"--{name}" for name in ("mesh", "placement")},
}
"""The flag of a scenario's field, by its path."""


def flag_words(flags: Mapping[str, Any]) -> Iterator[str]:
    """The words of a command line that give these flags.

    >>> list(flag_words({"tp": 8, "sp": False, "zero": None, "placement": ("tensor=nvlink", "data=network")}))
    ['--tp', '8', '--no-sp', '--placement', 'tensor=nvlink', '--placement', 'data=network']
    """
    for name, value in flags.items():
        word = name.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{word}" if value else f"--no-{word}"
        elif value is not None:
            for entry in value if isinstance(value, tuple | list) else (value,):
                yield from (f"--{word}", str(entry))


def without_layout(words: Iterable[str]) -> Iterator[str]:
    """The words of a command line without those that say how the work is cut: what a search looks for.

    >>> list(without_layout(["mine.yaml", "--dp", "8", "--sp", "--seq", "4096", "--set", "layout.zero=1"]))
    ['mine.yaml', '--seq', '4096']
    """
    rest = iter(words)
    for word in rest:
        if not word.startswith("--"):
            yield word
        elif word not in {"--sp", "--no-sp"}:
            value = next(rest)
            if word not in CUTS and not (word == "--set" and value.partition("=")[0].partition(".")[0] in CUT):
                yield from (word, value)


CUT = {"chips", "mesh", "placement", "layout", "shardings", "pipeline", "recompute", "offload"}
"""Fields of a scenario that say how its work is cut."""

CUTS = {"--microbatches", *(flag for path, flag in FLAGS.items() if path.partition(".")[0] in CUT)}
"""The flags of these."""
