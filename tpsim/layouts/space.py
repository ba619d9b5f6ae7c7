"""What a search varies and what it holds: fields that neither a file nor a flag states, and those that are freed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from tpsim.layouts.layout import MESH, SHARDS, ZERO_OVER, Layout, Order
from tpsim.layouts.vary import (
    NAMES,
    Varied,
    in_order,
    read_varied,
    refuse_mesh,
    refuse_stated,
    renamed,
    stands,
    stated_flags,
)
from tpsim.program.schedules import SCHEDULES
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError, Place
from tpsim.question.edits import FLAGS, PATHS, ROLES, STAGES, Edit, Keys, edited, read_override
from tpsim.question.scenario import resolve
from tpsim.question.scenario_file import ScenarioFile
from tpsim.question.serving import NOT_SERVED
from tpsim.question.serving_file import PROMPTS, format_of, served_as
from tpsim.question.stated import Source, changed, opened

if TYPE_CHECKING:
    from tpsim.machine.parts import Machine
    from tpsim.quantity.spec import Document
    from tpsim.question.memo import Memo
    from tpsim.question.question import Question

FREED = ("mesh", "placement", "layout", "shardings", "pipeline")
"""What a number of chips frees where a file states it."""

KEYS: Mapping[str, Keys] = {
    name: NAMES[name]
    for name in ("zero", "sequence_parallel", "recompute", *Order._fields, "microbatches", "placement")
}
"""What is searched beside the mesh, and the field that it is."""

SERVED = {name: NAMES[name] for name in ("sequence_parallel", "cache", "layers", "microbatches", "placement")}
"""The same of inference."""

SHARED = ("layout", "cp")
"""The axes that split the tokens of a sequence."""

SHORT: Mapping[str, str] = {"sp": "sequence_parallel"}

WHOLE = (STAGES, "dp", "tp")
"""The roles that every model and every sequence can have."""


@dataclass(frozen=True, slots=True)
class Space:
    """What is searched of one document.

    document  the scenario with its flags, and trivial values where something is searched: it can be planned
    chips     of the mesh, where that is searched; 0 where it is held
    only      what is searched -> the values that it may have; none: all that are legal
    held      what is not searched: field -> value, as stated
    varied    fields of this document that others of the same search have otherwise: path -> value
    places    of fields that flags and overrides state, and of sizes that are varied: path, or path=size -> where
    machine   instead of the one that the document names
    """

    document: Document
    chips: int
    only: Mapping[str, tuple[Any, ...] | None]
    held: Mapping[str, Any]
    varied: Mapping[str, Any]
    places: Mapping[str, Place]
    machine: Machine | None = None

    def values(self, name: str, all_: Sequence[Any], default: Any) -> Sequence[Any]:
        """The values that a field is looked at: those asked for, else all; one that is held has its own."""
        if name not in self.only:
            return (default,)
        return self.only[name] or all_

    def differs(self, other: Space) -> bool:
        """True if more than the chips of the two is another."""
        own, others = (replace(space, chips=0, varied={}, places={}) for space in (self, other))
        return own != others or bool(self.chips) != bool(other.chips)

    def question(self, layout: Layout | None, memo: Memo) -> Question:
        """The question of a layout; without one, of the document. Raises InputError."""
        question = resolve(self._bound(self.document) if layout is None else self.asked(layout), memo=memo)
        return question.on(self.machine) if self.machine else question

    def asked(self, layout: Layout) -> Document:
        """The scenario of a layout."""
        document = self.document
        for keys, value in self.fields(layout).items():
            if value is not None or stands(document.data, keys):
                document = spec.with_value(document, keys, value, None)
        return self._bound(document)

    def _bound(self, document: Document) -> Document:
        """Where the mesh is searched: without what is stated of wires of axes that others of its meshes have."""
        for axis in {*(document.data.get("placement") or {})} & {*ROLES.values()} - {*document.data["mesh"]}:
            document = spec.with_value(document, ("placement", axis), None, None) if self.chips else document
        return document

    def fields(self, layout: Layout) -> dict[Keys, Any]:
        """What a layout sets: field -> value; None takes it away."""
        stages = layout.pp > 1
        fields: dict[Keys, Any] = {}
        if self.chips:
            roles = {role: list(axes) if len(axes) > 1 else axes[0] for role, axes in layout.roles().items()}
            fields["mesh",] = layout.mesh()
            fields |= {("layout", role): roles.get(role) for role in ROLES}
            fields["layout", ZERO_OVER] = roles.get(ZERO_OVER)
            fields |= {} if "cp" in roles else {("layout", "context"): None}
            fields |= {} if stages else {("pipeline",): None}
        for name in self.only:
            if name not in MESH and (stages or name not in Order._fields):
                fields[NAMES[name]] = getattr(layout, name)
        if "placement" in self.only:
            fields["placement",] = {axis: [*levels] for axis, levels in layout.placement} or None
        return fields


def _keys(data: Mapping[str, Any]) -> Mapping[str, Keys]:
    """What is searched of a scenario beside the mesh."""
    return KEYS if format_of(data) is ScenarioFile else SERVED


def _roles(data: Mapping[str, Any]) -> Mapping[str, str]:
    """The roles of a mesh that is searched, and their axes: tokens of a sequence are not split in inference."""
    return {role: axis for role, axis in ROLES.items() if role != "cp" or format_of(data) is ScenarioFile}


def _refuse_unserved(sizes: Mapping[str, Any], outer: Sequence[Varied], data: Mapping[str, Any]) -> None:
    """Refuse to split what no plan of inference does: the tokens of a sequence, what ZeRO does. Raises InputError."""
    if format_of(data) is ScenarioFile:
        return
    places = {axis.path: (axis.keys, axis.place) for axis in outer}
    places |= {role: (NAMES[role], Edit(NAMES[role], size, f"--{role} {size}").place) for role, size in sizes.items()}
    why = {NAMES["cp"]: NOT_SERVED[SHARED], NAMES[SHARDS]: NOT_SERVED[NAMES[SHARDS]]}
    for name, (keys, place) in places.items():
        if keys in why:
            message = f"{name} says nothing of inference: {why[keys]}"
            raise InputError.one("not-for-inference", message, place, "leave it out")


def spaces(
    scenario: Source,
    *,
    flags: Mapping[str, Any],
    overrides: Sequence[str],
    vary: Sequence[str],
    memo: Memo,
) -> list[Space]:
    """The spaces of a search: one, or one for each choice of values of fields that are no part of a layout.

    Raises InputError where nothing says how many chips there are, and for what `plan` refuses to read.
    """
    varied = in_order(read_varied(vary))
    options = {name: value for name, value in flags.items() if value is not None}
    document = opened(scenario, {**_first(varied), **options}, memo.scenario, overrides)
    changes = list(map(read_override, overrides))
    asked_of = edited(document, changes).data
    own: dict[Keys, Keys] = {("workload", name): ("workload", served) for name, served in served_as(asked_of).values()}
    varied = renamed(varied, own)
    flagged = (replace(edit, keys=own.get(edit.keys, edit.keys)) for edit in stated_flags(options))
    stated = [*flagged, *changes]
    several = ("chips",) in varied
    free = "mesh" not in options and ("chips" in options or several or scenario is None or "mesh" not in document.data)
    document, chips, sizes = _edited(document, options, changes, free=free, several=several)
    asked = {name: varied[keys] for name, keys in _inner(free, asked_of).items() if keys in varied}
    asked = {name: axis for name, axis in asked.items() if name != "placement" or axis.edits is None}
    outer = [axis for axis in varied.values() if axis not in asked.values()]
    _refuse_unserved(sizes, outer, asked_of)
    if free:
        refuse_mesh(outer, changes)
    refuse_stated(varied.values(), stated)
    inner = {name: _sizes(axis) if name in MESH else axis.values for name, axis in asked.items()}
    inner |= {role: (_count(f"--{role} {size}", role, size),) for role, size in sizes.items()}
    places = {".".join(edit.keys): edit.place for edit in stated}
    places |= {".".join(axis.keys): (axis.edits or [axis])[0].place for name, axis in asked.items() if name in MESH}
    sized = (edit for name, axis in asked.items() if name in MESH for edit in axis.edits or ())
    places |= {f"{'.'.join(edit.keys)}={edit.value}": edit.place for edit in sized}
    cells = product(*(axis.edits or _none(axis) for axis in outer))
    made = [_space(document, chips, inner, cell, places) for cell in cells]
    for name, axis in asked.items():
        _refuse_implied(name, axis, made)
        if name not in MESH:
            axis.check(made[0].document)
    return made


def _refuse_implied(name: str, varied: Varied, made: Sequence[Space]) -> None:
    """Refuse to vary what another field of a scenario decides. Raises InputError."""
    if any(name not in space.only for space in made):
        by = "the split pipeline.layers" if name == "chunks" else "shardings"
        message = f"{varied.path} follows from {by}, which is stated, and is varied"
        raise InputError.one("stated-and-varied", message, varied.place, "leave it out, or free the layout: --chips N")


def _edited(
    document: Document, options: dict[str, Any], changes: Sequence[Edit], *, free: bool, several: bool
) -> tuple[Document, int, dict[str, Any]]:
    """The scenario as flags and overrides make it, how many chips it has, and the sizes that flags state of roles.

    free     the mesh is looked for: chips and roles are no edits then, but say what it may be
    several  numbers of chips are varied, and none need be stated
    """
    if not free:
        return changed(document, options, changes), 0, {}
    sizes = {role: options.pop(role) for role in ROLES if role in options and f"layout.{role}" in FLAGS}
    document = changed(_without(document, FREED), options, changes)
    stated, place = document.data.get("chips"), document.place("chips")
    if stated is None and not several:
        raise InputError.one("missing-chips", "nothing says how many chips there are", remedy="add it: --chips 64")
    chips = 0 if stated is None else _count("chips", "chips", stated, place)
    return _without(document, ("chips",)), chips, sizes


def _first(varied: Mapping[Keys, Varied]) -> dict[str, Any]:
    """The flags that there is no scenario without, where they are varied."""
    named = ((name, varied.get(PATHS[name])) for name in ("model", "hw", "seq"))
    return {name: axis.values[0] for name, axis in named if axis and axis.values}


def _without(document: Document, names: Sequence[str]) -> Document:
    return spec.with_data(document, {name: value for name, value in document.data.items() if name not in names})


def _inner(free: bool, data: Mapping[str, Any]) -> dict[str, Keys]:
    """What `--vary` may name of a layout, and the field that it is."""
    shards = (SHARDS,) if format_of(data) is ScenarioFile else ()
    return {**_keys(data), **({role: NAMES[role] for role in (*_roles(data), *shards)} if free else {})}


def _none(varied: Varied) -> tuple[Edit, ...]:
    message = f"{varied.path} has no values that a search knows"
    of_mesh = varied.path in MESH
    remedy = "search the mesh, too: --chips 64" if of_mesh else f"list them: --vary {varied.path}=VALUE,VALUE"
    raise InputError.one("missing-values", message, varied.place, remedy)


def _sizes(varied: Varied) -> tuple[int, ...] | None:
    if varied.edits is None:
        return None
    return tuple(_count(varied.path, varied.path, edit.value, edit.place) for edit in varied.edits)


def _count(text: str, name: str, size: Any, place: Place | None = None) -> int:
    if str(size).isdecimal() and int(size) > 0:
        return int(size)
    message = f"{text if text != name else f'{name} {size}'} is no size of a mesh that is searched"
    flag = f"--{name} 8" if name in ROLES else f"--vary {name}=8"
    remedy = f"give a size: {flag}; or the mesh: --mesh data=32,tensor=8"
    several = ",".join(map(str, size)) if isinstance(size, list | tuple) else str(size)
    if "," in several:
        remedy = f"search several: --vary {name}={several}"
    raise InputError.one("no-mesh", message, place, remedy)


def _space(
    document: Document,
    chips: int,
    inner: Mapping[str, tuple[Any, ...] | None],
    cell: Sequence[Edit],
    places: Mapping[str, Place],
) -> Space:
    for edit in cell:
        if edit.keys == ("chips",):
            chips = _count("chips", "chips", edit.value, edit.place)
        else:
            document = edited(document, [edit])
    data, keys = document.data, _keys(document.data)
    stated = {name for name in keys if stands(data, keys[name]) and name not in inner}
    if data.get("shardings") is not None:
        stated |= {"zero", "sequence_parallel", "cache"}
    if "layers" not in inner and isinstance((data.get("pipeline") or {}).get("layers"), list):
        stated |= {"chunks"}
    only: dict[str, tuple[Any, ...] | None] = {name: inner.get(name) for name in keys if name not in stated}
    if chips:
        only |= {name: inner.get(name) for name in (*_roles(data), *({SHARDS} & {*inner}))}
        document = _roomy(document)
    for name in keys if chips else ("zero", "sequence_parallel", "recompute", "cache"):
        if name in only and stands(data, keys[name]):
            document = spec.with_value(document, keys[name], None, None)
    document = document if chips else _plannable(document, only)
    varied = {".".join(edit.keys): edit.value for edit in cell}
    return Space(document, chips, only, dict(_held(data, only, varied)), varied, places)


def _plannable(document: Document, only: Mapping[str, tuple[Any, ...] | None]) -> Document:
    """The scenario with turns, chunks and microbatches that go together, as far as they are searched."""
    stated, layout = (document.data.get(name) or {} for name in ("pipeline", "layout"))
    schedule, chunks = stated.get("schedule"), stated.get("chunks")
    several = chunks not in (None, 1)
    chunked = several if "chunks" not in only else "schedule" not in only and schedule in CHUNKED
    asked = [value for value in only.get("chunks") or (2,) if value != 1]
    of_pipeline = {
        "schedule": schedule if (schedule in CHUNKED) == chunked else CHUNKED[0] if chunked else None,
        "chunks": chunks if several == chunked else next(iter(asked), None) if chunked else None,
    }
    for name, value in of_pipeline.items():
        if name in only and value != stated.get(name):
            document = spec.with_value(document, KEYS[name], value, None)
    if "layers" in only and stands(layout, (STAGES,)):
        document = spec.with_value(document, KEYS["layers"], "nearly-even", None)
    if chunked and "microbatches" in only and not stands(document.data, KEYS["microbatches"]):
        axis = layout.get(STAGES)
        stages = (document.data.get("mesh") or {}).get(*axis if isinstance(axis, list) else (axis,))
        document = spec.with_value(document, KEYS["microbatches"], stages, None) if stages else document
    return document


def _roomy(document: Document) -> Document:
    """The scenario on one chip, which it always fits as far as it divides."""
    stated = document.data.get("layout") or {}
    roles = {role: axis for role, axis in ROLES.items() if role in WHOLE or (role == "cp" and stated.get("context"))}
    document = spec.with_value(document, ("mesh",), dict.fromkeys(roles.values(), 1), None)
    for role, axis in roles.items():
        document = spec.with_value(document, ("layout", role), axis, None)
    return document


def _held(
    data: Mapping[str, Any], only: Mapping[str, tuple[Any, ...] | None], varied: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """What is stated and not searched, of the fields that a search could vary."""
    tables = {name: (name,) for name in ("mesh", "placement", "shardings", PROMPTS)} | {"cp": SHARED}
    for name, keys in {**tables, **_keys(data)}.items():
        path = ".".join(keys)
        if name not in only and path not in varied and not (name == "mesh" and "tp" in only) and stands(data, keys):
            value = data
            for key in keys:
                value = value[key]
            yield path, _but_for(varied, value, path)
    yield from ((name, values[0]) for name, values in only.items() if values and len(values) == 1)


def _but_for(varied: Mapping[str, Any], value: Any, path: str) -> Any:
    """A part of a scenario without what of it is varied."""
    inside = value.items() if isinstance(value, Mapping) else ()
    kept = {key: _but_for(varied, one, f"{path}.{key}") for key, one in inside if f"{path}.{key}" not in varied}
    return kept if isinstance(value, Mapping) else value


CHUNKED = tuple(name for name, maker in SCHEDULES.items() if maker.several)
"""Schedules of several chunks per stage."""
