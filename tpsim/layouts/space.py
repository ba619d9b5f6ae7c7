"""What a search varies and what it holds: fields that neither a file nor a flag states, and those that are freed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.program.schedules import SCHEDULES
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError
from tpsim.question.edits import Edit, edited, overridden, read_override
from tpsim.question.flag_edits import flags_to_edits
from tpsim.question.flags import PATHS, STAGES, STAGES_AXIS
from tpsim.question.recompute import DROPS
from tpsim.question.scenario import resolve
from tpsim.question.stated import opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.machine.profile import Machine
    from tpsim.quantity.spec import Document
    from tpsim.question.edits import Keys
    from tpsim.question.question import Question
    from tpsim.question.shelf import Shelf
    from tpsim.question.stated import Source

ROLES: Mapping[str, str] = {STAGES: STAGES_AXIS, "dp": "data", "tp": "tensor"}
"""The roles of a mesh that is searched, major first, and the axis that each gets."""

FREED = ("mesh", "placement", "layout", "shardings", "pipeline")
"""What a number of chips frees where a file states it."""

KEYS: Mapping[str, Keys] = {
    "zero": PATHS["zero"],
    "sequence_parallel": PATHS["sp"],
    "recompute": PATHS["recompute"],
    "schedule": PATHS["schedule"],
    "chunks": PATHS["chunks"],
    "microbatches": PATHS["microbatches"],
}
"""What is searched beside the mesh, and the field that it is."""

SHORT: Mapping[str, str] = {"sp": "sequence_parallel"}


class Layout(NamedTuple):
    """One layout. What is held has the value that it is held at.

    schedule, chunks  how stages take turns; "" and 1 without stages
    """

    pp: int
    dp: int
    tp: int
    zero: int
    sequence_parallel: bool
    recompute: str
    schedule: str
    chunks: int
    microbatches: int


@dataclass(frozen=True, slots=True)
class Space:
    """What is searched of one document.

    document  the scenario with its flags, and trivial values where something is searched: it can be planned
    chips     of the mesh, where that is searched; 0 where it is held
    only      what is searched -> the values that it may have; none: all that are legal
    held      what is not searched: field -> value, as stated
    varied    fields of this document that others of the same search have otherwise: path -> value
    machine   instead of the one that the document names
    """

    document: Document
    chips: int
    only: Mapping[str, tuple[Any, ...] | None]
    held: Mapping[str, Any]
    varied: Mapping[str, Any]
    machine: Machine | None = None

    def question(self, layout: Layout | None, shelf: Shelf) -> Question:
        """The question of a layout; without one, of the document. Raises InputError."""
        question = resolve(self.document if layout is None else self.asked(layout), shelf=shelf)
        return replace(question, machine=self.machine) if self.machine else question

    def asked(self, layout: Layout) -> Document:
        """The scenario of a layout."""
        document = self.document
        for keys, value in self.fields(layout).items():
            document = spec.with_value(document, keys, value, None)
        return document

    @property
    def _placed(self) -> Mapping[str, Any]:
        """What is stated of wires."""
        return self.document.data.get("placement") or {}

    def fields(self, layout: Layout) -> dict[Keys, Any]:
        """What a layout sets: field -> value; None takes it away."""
        stages = layout.pp > 1
        found: dict[Keys, Any] = {}
        if self.chips:
            roles = [role for role in ROLES if role != STAGES or stages]
            found["mesh",] = {ROLES[role]: getattr(layout, role) for role in roles}
            found |= {("layout", role): ROLES[role] if role in roles else None for role in ROLES}
            found |= {("placement", axis): None for axis in self._placed if axis not in found["mesh",]}
            found |= {} if stages else {("pipeline",): None}
        for name in self.only:
            if name in KEYS and (stages or name not in ("schedule", "chunks")):
                found[KEYS[name]] = getattr(layout, name)
        return found


def spaces(
    scenario: Source,
    *,
    flags: Mapping[str, Any],
    overrides: Sequence[str],
    vary: Sequence[str],
    shelf: Shelf,
) -> list[Space]:
    """The spaces of a search: one, or one for each choice of values of fields that are no part of a layout.

    Raises InputError where nothing says how many chips there are, and for what `plan` refuses to read.
    """
    document = opened(scenario, flags, shelf.scenario)
    given = {name: value for name, value in flags.items() if value is not None}
    varied = {edit.keys: (edit, values) for edit, values in map(_varied, vary)}
    several = ("chips",) in varied
    free = "mesh" not in given and ("chips" in given or several or scenario is None or "mesh" not in document.data)
    chips = 0
    if free:
        chips = int(given.pop("chips", 0) or document.data.get("chips") or 0)
        document = _without(document, (*FREED, "chips"))
    sizes = {role: given.pop(role) for role in ROLES if free and role in given}
    document = edited(document, flags_to_edits(given, document.data))
    document = overridden(document, overrides)
    if free and not chips:
        chips = int(document.data.get("chips") or 0)
    if free and not chips and not several:
        raise InputError.one("missing-chips", "nothing says how many chips there are", remedy="add it: --chips 64")
    inner = {name: varied.pop(keys)[1] for name, keys in _inner(free).items() if keys in varied}
    inner |= {role: (_count(role, size),) for role, size in sizes.items()}
    cells = product(*([(edit, one) for one in values or _none(edit)] for edit, values in varied.values()))
    return [_space(document, chips, inner, cell) for cell in cells]


def _without(document: Document, names: Sequence[str]) -> Document:
    return spec.with_data(document, {name: value for name, value in document.data.items() if name not in names})


def _inner(free: bool) -> dict[str, Keys]:
    """What `--vary` may name of a layout, and how its paths begin: by the field, or by the flag's name."""
    return {**KEYS, **({role: ("mesh", axis) for role, axis in ROLES.items()} if free else {})}


def _varied(text: str) -> tuple[Edit, tuple[Any, ...] | None]:
    """``workload.seq=2048,4096``: the field, and its values; none where only the field is named."""
    path, equals, listed = text.partition("=")
    names = {**{name: PATHS[name] for name in PATHS}, **{role: ("mesh", axis) for role, axis in ROLES.items()}}
    keys = names.get(path.strip()) or tuple(key.strip() for key in path.split("."))
    if not equals:
        return Edit(keys, None, f"--vary {text}"), None
    values = tuple(read_override(f"{path}={one}").value for one in listed.split(","))
    return Edit(keys, None, f"--vary {text}"), values


def _none(edit: Edit) -> tuple[Any, ...]:
    path = ".".join(edit.keys)
    message = f"{path} has no values that a search knows"
    raise InputError.one("missing-values", message, remedy=f"list them: --vary {path}=VALUE,VALUE")


def _count(role: str, size: Any) -> int:
    if str(size).isdecimal() and int(size) > 0:
        return int(size)
    message = f"--{role} {size} is no size of a mesh that is searched"
    raise InputError.one("no-mesh", message, remedy=f"give a size: --{role} 8; or the mesh: --mesh data=32,tensor=8")


def _space(
    document: Document, chips: int, inner: Mapping[str, tuple[Any, ...] | None], cell: Sequence[tuple[Edit, Any]]
) -> Space:
    for edit, value in cell:
        if edit.keys == ("chips",):
            chips = _count("chips", value)
        else:
            document = edited(document, [replace(edit, value=value)])
    data = document.data
    stated = {name for name, keys in KEYS.items() if _stands(data, keys) and name not in inner}
    if data.get("shardings") is not None:
        stated |= {"zero", "sequence_parallel"}
    if isinstance((data.get("pipeline") or {}).get("layers"), list):
        stated |= {"chunks"}
    only: dict[str, tuple[Any, ...] | None] = {name: inner.get(name) for name in KEYS if name not in stated}
    if chips:
        only |= {role: inner.get(role) for role in ROLES}
        document = _roomy(document)
    for name in (name for name in KEYS if name in only and _stands(data, KEYS[name])):
        document = spec.with_value(document, KEYS[name], None, None)
    varied = {".".join(edit.keys): value for edit, value in cell}
    return Space(document, chips, only, dict(_held(data, only, varied)), varied)


def _roomy(document: Document) -> Document:
    """The scenario on one chip, which it always fits as far as it divides."""
    stated = document.data.get("layout") or {}
    document = spec.with_value(document, ("mesh",), dict.fromkeys(ROLES.values(), 1), None)
    return spec.with_value(document, ("layout",), {**stated, **ROLES}, None)


def _stands(data: Any, keys: Keys) -> bool:
    for key in keys:
        if not isinstance(data, Mapping) or data.get(key) is None:
            return False
        data = data[key]
    return True


def _held(
    data: Mapping[str, Any], only: Mapping[str, tuple[Any, ...] | None], varied: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """What is stated and not searched, of the fields that a search could vary."""
    for name, keys in {"mesh": ("mesh",), "placement": ("placement",), "shardings": ("shardings",), **KEYS}.items():
        path = ".".join(keys)
        if name not in only and path not in varied and not (name == "mesh" and "tp" in only) and _stands(data, keys):
            value = data
            for key in keys:
                value = value[key]
            yield path, value
    yield from ((name, values[0]) for name, values in only.items() if values and len(values) == 1)


RECOMPUTES = tuple(DROPS)
"""What a search may recompute."""

STAGED = tuple(name for name, maker in SCHEDULES.items() if not maker.several)
CHUNKED = tuple(name for name, maker in SCHEDULES.items() if maker.several)
"""Schedules of one chunk per stage, and of several."""
