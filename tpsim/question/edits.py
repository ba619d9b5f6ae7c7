"""Edits of a scenario from outside its file: flags (``--tp 8``) and overrides (``--set layout.tp=tensor``)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

from tpsim.quantity import spec
from tpsim.quantity.errors import InputError, Place, did_you_mean
from tpsim.question.flags import flag_words
from tpsim.question.foreign import foreign_name, not_yet
from tpsim.question.scenario_file import PATHS_TO_FILES

if TYPE_CHECKING:
    from tpsim.quantity.spec import Document

Keys = tuple[str, ...]

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
}
"""Flags that set one field -> that field; mesh, placement, tp and dp say more than one."""

STAGES, STAGES_AXIS = "pp", "pipe"
"""The role of stages, and the axis that it gets, major to all others, where a scenario has none."""

FLAGS: Mapping[str, str] = {
    **{".".join(keys): f"--{name.replace('_', '-')}" for name, keys in PATHS.items()},
    **{f"layout.{role}": f"--{role}" for role in ("tp", "dp", STAGES)},
    **{name: f"--{name}" for name in ("mesh", "placement")},
}
"""The flag of a scenario's field, by its path."""

AXES: Mapping[str, str] = {"dp": "data", "tp": "tensor"}
"""The axis that a role gets when flags alone make the mesh, major first."""

SHORT_FOR: Mapping[str, str] = {**dict.fromkeys(PATHS_TO_FILES, "extends"), "practice": "base", "recompute": "base"}
"""A field whose bare name is short for a map -> the key of that map which the name belongs to."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One change: the field, its new value, the text that asked for it and where in that text the value starts.

    named  where the name of the field stands; at the value if nowhere else
    """

    keys: Keys
    value: Any
    text: str
    column: int = 1
    named: Place | None = None

    @property
    def place(self) -> Place:
        """The edit as a place to point at."""
        return Place("command line", 1, self.column, self.text, max(1, len(self.text) - self.column + 1))


def edited(document: Document, edits: Iterable[Edit]) -> Document:
    """The document with every edit made, in order; a mistake in an edited field points at the edit.

    Raises InputError when an edit goes into something that has no fields.
    """
    for edit in edits:
        document = _unfolded(document, edit.keys)
        document = spec.with_value(document, edit.keys, edit.value, edit.place, edit.named)
    return document


def overridden(document: Document, overrides: Sequence[str]) -> Document:
    """The document with ``path=value`` texts applied in order; values are YAML, paths are keys joined by dots.

    Raises InputError for a text that sets nothing, or that goes into something without fields.
    """
    return edited(document, map(read_override, overrides))


def read_override(text: str) -> Edit:
    """The change that ``path=value`` asks for; the value is YAML. Raises InputError."""
    path, equals, value = text.partition("=")
    keys = tuple(key.strip() for key in path.split("."))
    named = Place("command line", 1, len("--set ") + 1, f"--set {text}", len(path))
    if not equals or not all(keys):
        whole = replace(named, width=max(1, len(text)))
        raise InputError.one("bad-override", f'"{text}" sets nothing', whole, "write path=value: layout.zero=1")
    edit = Edit(keys, None, named.text, named.column + len(path) + 1, named)
    return replace(edit, value=_yaml(value, edit.place))


def _yaml(text: str, place: Place) -> Any:
    """What one value written as YAML stands for."""
    try:
        value = spec.load(f"value: {text.strip() or 'null'}\n", name=place.file).data["value"]
    except InputError as error:
        raise InputError([replace(error.problems[0], place=place)]) from None
    glued = [key for key, held in value.items() if held is None and ":" in str(key)] if isinstance(value, dict) else []
    if glued:
        spaced = str(glued[0]).replace(":", ": ", 1)
        message = f'"{glued[0]}" is one word: YAML wants a space after the colon'
        raise InputError.one("bad-override", message, place, f"write {spaced}, with quotes around the whole")
    return value


def flags_to_edits(flags: Mapping[str, Any], data: Mapping[str, Any]) -> list[Edit]:
    """The edits of flags on the scenario `data`; a flag that is None was not given.

    Raises InputError for a flag that tpsim does not have, or that this scenario cannot take.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    for name in given:
        _known(name)
    simple = [Edit(PATHS[name], value, _flag(name, value)) for name, value in given.items() if name in PATHS]
    return [
        *_mesh_edits(given),
        *_stages_edits(given, data),
        *_size_edits(given, data),
        *_placement_edits(given),
        *simple,
    ]


def bare_scenario(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The scenario that flags start from when there is no file: a mesh of data and tensor, both of one chip."""
    for name, option in {"model": "--model llama-3-8b", "hw": "--hw dgx-h100", "seq": "--seq 4096"}.items():
        if flags.get(name) is None:
            word = "--" + name
            raise InputError.one("missing-flag", f"{word} is needed without a scenario", remedy=f"add it: {option}")
    axes = parse_mesh(flags["mesh"]) if flags.get("mesh") else dict.fromkeys(AXES.values(), 1)
    layout = {role: axis for role, axis in AXES.items() if axis in axes}
    return {"tpsim": "scenario/1", "mesh": axes, "layout": layout, "workload": {}}


def parse_mesh(text: str) -> dict[str, int]:
    """The axes of ``data=4,tensor=8``, major first.

    >>> parse_mesh("data=4, tensor=8")
    {'data': 4, 'tensor': 8}
    """
    axes: dict[str, int] = {}
    for part in text.split(","):
        name, equals, size = (piece.strip() for piece in part.partition("="))
        if not (name and equals and _is_count(size.removeprefix("-"))):
            _refuse_mesh(text, f'"{part.strip()}" is not an axis and its size')
        if name in axes:
            _refuse_mesh(text, f"axis {name} is given twice")
        axes[name] = int(size)
    return axes


DIGITS = 18
"""Digits of a number that can be a size; a longer one is refused as a name that no axis has."""


def _is_count(text: str) -> bool:
    return text.isdecimal() and len(text) <= DIGITS


def _refuse_mesh(text: str, message: str) -> None:
    raise InputError.one("bad-mesh", message, Edit(("mesh",), text, f"--mesh {text}", 8).place, "write data=4,tensor=8")


def _known(name: str) -> None:
    if name in PATHS or name in {"mesh", "placement", STAGES, *AXES}:
        return
    if path := foreign_name(name):
        raise InputError.one("foreign-name", f"--{name} is not a flag of tpsim", remedy=f"tpsim calls this {path}")
    if feature := not_yet(name):
        raise InputError.one("not-supported-yet", f"--{name}: {feature} is not supported yet")
    remedy = did_you_mean(name, [*PATHS, "mesh", "placement", STAGES, *AXES], form="--{}")
    raise InputError.one("unknown-flag", f"--{name} is not a flag", remedy=remedy)


def _flag(name: str, value: object) -> str:
    return " ".join(flag_words({name: value}))


def _mesh_edits(given: Mapping[str, Any]) -> Iterator[Edit]:
    """A mesh from a flag replaces the file's and decides the number of chips."""
    if "mesh" in given:
        text, axes = _flag("mesh", given["mesh"]), parse_mesh(given["mesh"])
        yield Edit(("mesh",), axes, text)
        if "chips" not in given and -1 not in axes.values():
            yield Edit(("chips",), None, text)


def _size_edits(given: Mapping[str, Any], data: Mapping[str, Any]) -> Iterator[Edit]:
    """The tp and dp flags: a number sizes the axis that has the role, a name or list of names gives the role.

    One number alone keeps the scenario's chips and refills the other role's axis; two numbers make the chips.
    """
    numbers = {role: given[role] for role in AXES if role in given and _is_count(str(given[role]))}
    for role in AXES:
        if role in given and role not in numbers:
            yield Edit(("layout", role), str(given[role]).split(","), _flag(role, given[role]))
    if not numbers or "mesh" in given:
        yield from _against_mesh(numbers, given)
        return
    text = " ".join(_flag(role, size) for role, size in numbers.items())
    for role, size in numbers.items():
        yield Edit(("mesh", _axis_of(role, data, text)), int(size), text)
    others = [role for role in AXES if role not in numbers]
    chips = given.get("chips") or data.get("chips") or _chips(data)
    if others and chips and chips > 1 and (axis := _single_axis(others[0], data)):
        yield Edit(("mesh", axis), -1, text)
        yield Edit(("chips",), chips, text)
    elif not others and "chips" not in given:
        yield Edit(("chips",), None, text)


def _against_mesh(numbers: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[Edit]:
    """A mesh flag already gives the sizes; a tp or dp beside it may only repeat them."""
    axes = parse_mesh(given["mesh"]) if "mesh" in given else {}
    for role, size in numbers.items():
        if axes.get({**AXES, STAGES: STAGES_AXIS}[role]) != int(size):
            text = f"{_flag('mesh', given['mesh'])} {_flag(role, size)}"
            raise InputError.one(
                "size-given-twice",
                f"--{role} {size} does not agree with --mesh {given['mesh']}",
                Edit(("mesh",), size, text).place,
                f"leave --{role} out, or name its axes: --{role} {next(iter(axes))}",
            )
    yield from ()


def _stages_edits(given: Mapping[str, Any], data: Mapping[str, Any]) -> Iterator[Edit]:
    """The pp flag: a name gives the role to an axis; a number sizes the axis that has it, or adds one.

    A number alone keeps the scenario's chips and refills the axis of dp.
    """
    if STAGES not in given:
        return
    text, size = _flag(STAGES, given[STAGES]), str(given[STAGES])
    if not _is_count(size):
        yield Edit(("layout", STAGES), size.split(","), text)
        return
    if "mesh" in given:
        yield from _against_mesh({STAGES: size}, given)
        yield Edit(("layout", STAGES), [STAGES_AXIS], text)
        return
    if axis := _single_axis(STAGES, data):
        yield Edit(("mesh", axis), int(size), text)
    else:
        mesh = data.get("mesh")
        yield Edit(("layout", STAGES), [STAGES_AXIS], text)
        yield Edit(("mesh",), {STAGES_AXIS: int(size), **(mesh if isinstance(mesh, Mapping) else {})}, text)
    chips = given.get("chips") or data.get("chips") or _chips(data)
    if not any(_is_count(str(given.get(role))) for role in AXES) and chips and chips > 1:
        if refilled := _single_axis("dp", data):
            yield Edit(("mesh", refilled), -1, text)
        yield Edit(("chips",), chips, text)


def _axis_of(role: str, data: Mapping[str, Any], text: str) -> str:
    axis = _single_axis(role, data)
    if axis is None:
        raise InputError.one(
            "no-single-axis",
            f"the scenario has no single mesh axis with the role {role}",
            Edit((role,), None, text).place,
            f"give the sizes as --mesh and the role as --{role} AXIS",
        )
    return axis


def _single_axis(role: str, data: Mapping[str, Any]) -> str | None:
    """The one axis that has the role in `data`, None if there is none or more than one."""
    layout = data.get("layout")
    axes = layout.get(role) if isinstance(layout, Mapping) else None
    names = [axes] if isinstance(axes, str) else axes
    return names[0] if isinstance(names, list) and len(names) == 1 and isinstance(names[0], str) else None


def _chips(data: Mapping[str, Any]) -> int | None:
    """The product of the mesh, None if it is not known."""
    mesh = data.get("mesh")
    sizes = list(mesh.values()) if isinstance(mesh, Mapping) else []
    return prod(sizes) if all(isinstance(size, int) and size >= 1 for size in sizes) else None


def _placement_edits(given: Mapping[str, Any]) -> Iterator[Edit]:
    """``data=network,tensor=ici.0+ici.1``; a comma before a name without ``=`` adds a level too."""
    placements = given.get("placement", ())
    for text in [placements] if isinstance(placements, str) else placements:
        for pair in re.split(r",(?=[^,]*=)", text):
            axis, equals, levels = (piece.strip() for piece in pair.partition("="))
            edit = Edit(("placement", axis), re.split("[,+]", levels), f"--placement {text}")
            if not (axis and equals and levels):
                raise InputError.one(
                    "bad-placement", f'"{pair}" places no axis on a level', edit.place, "write tensor=nvlink"
                )
            yield edit


def _unfolded(document: Document, keys: Keys) -> Document:
    """The document with a bare name written as the map that it is short for, if `keys` lead into that map."""
    top = keys[0]
    short = document.data.get(top)
    if len(keys) == 1 or top not in SHORT_FOR or not isinstance(short, str):
        return document
    return spec.with_value(document, (top,), {SHORT_FOR[top]: short}, document.place(top))
