"""The edits that flags make: ``--tp 8`` sizes a mesh axis, ``--mesh data=4,tensor=8`` states them all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

from tpsim.fabric.placement import PAIRS, carriers_of
from tpsim.quantity import arguments
from tpsim.quantity.errors import InputError, did_you_mean
from tpsim.quantity.size import divisors
from tpsim.quantity.spec.text import scalar
from tpsim.question.edits import (
    ADDED,
    AXES,
    EXPERTS,
    FLAGS,
    PATHS,
    ROLES,
    SHORT_FOR,
    STAGES,
    Edit,
    Keys,
    flag_words,
)
from tpsim.question.foreign_names import IN_PYTHON, as_field, foreign_name, not_yet
from tpsim.question.scenario_file import on_host
from tpsim.question.serving_file import served_as


def flags_to_edits(flags: Mapping[str, Any], data: Mapping[str, Any]) -> list[Edit]:
    """The edits of flags on the scenario `data`; a flag that is None was not given.

    Raises InputError for a flag that tpsim does not have, or that this scenario cannot take.
    """
    options = {name: value for name, value in flags.items() if value is not None}
    for name, value in options.items():
        _known(name)
        if name in ROLES and not _is_count(str(value)) and isinstance(scalar(str(value)), int | float | None):
            _refuse_size(name, value)
    paths = _paths(data)
    options |= {"offload": on_host(options["offload"])} if "offload" in options else {}
    simple = [Edit(paths[name], value, _word(name, flags[name])) for name, value in options.items() if name in paths]
    sized = (_mesh_edits if "mesh" in options else _size_edits)(options, data)
    return [*sized, *_placement_edits(options), *simple]


def _paths(data: Mapping[str, Any]) -> dict[str, Keys]:
    """Flags that set one field of a scenario -> that field, as its kind of workload calls it."""
    return {**PATHS, **{flag: ("workload", field) for flag, (_, field) in served_as(data).items()}}


def statements(
    flags: Mapping[str, Any], data: Mapping[str, Any]
) -> Iterator[tuple[str, Callable[[Mapping[str, Any]], Any]]]:
    """The flags, each with what reads out of a scenario what it states there.

    data  a scenario of the same kind of workload
    """
    for name, value in flags.items():
        if value is None:
            continue
        if name == "placement":
            yield from ((edit.text, partial(at, edit.keys)) for edit in _placement_edits({name: value}))
        elif name in ROLES:
            yield _word(name, value), partial(_size if _is_count(str(value)) else _names, name)
        else:
            yield _word(name, value), partial(at, _paths(data).get(name, (name,)))


def at(keys: Keys, data: Any) -> Any:
    """What stands at a field, a map that a bare name is short for as that name; None if nothing does."""
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data.get(SHORT_FOR[keys[0]]) if isinstance(data, Mapping) and keys[0] in SHORT_FOR else data


def _size(role: str, data: Mapping[str, Any]) -> int | None:
    """The devices along the axes of a role; None if they are not known."""
    sizes = [at(("mesh", axis), data) for axis in _names(role, data)]
    return prod(sizes) if all(isinstance(size, int) for size in sizes) else None


NEEDED = {"model": "--model llama-3-8b", "hw": "--hw dgx-h100", "seq": "--seq 4096"}
"""Flags that ask without a scenario, each with an example."""


def bare_scenario(flags: Mapping[str, Any], overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The scenario that flags start from when there is no file: a mesh of data and tensor, both of one chip.

    overrides  ``path=value`` each: a workload that they state says itself what it reads
    """
    for name, value in flags.items():
        if value is not None:
            _known(name)
    stated = any(re.match(r"workload(\.(kind|seq|prompt|context))?=", text.strip()) for text in overrides)
    for name in ("model", "hw") if stated else NEEDED:
        if flags.get(name) is None:
            instead = "; or name a scenario (tpsim scenario list)" if name == "model" else ""
            remedy = f"add it: {NEEDED[name]}{instead}"
            raise InputError.one("missing-flag", f"--{name} is needed without a scenario", remedy=remedy)
    axes = parse_mesh(flags["mesh"]) if flags.get("mesh") else dict.fromkeys((ROLES[role] for role in AXES), 1)
    layout = {role: ROLES[role] for role in AXES if ROLES[role] in axes}
    return {"tpsim": "scenario/1", "mesh": axes, "layout": layout, "workload": {}}


def parse_mesh(text: str) -> dict[str, int]:
    """The axes of ``data=4,tensor=8``, major first.

    >>> parse_mesh("data=4, tensor=8e0")
    {'data': 4, 'tensor': 8}
    """
    arguments.text("mesh", text)
    axes: dict[str, int] = {}
    for part in text.split(","):
        name, equals, size = (piece.strip() for piece in part.partition("="))
        number = scalar(size)
        if not (name and equals and type(number) is int and abs(number) < 10**DIGITS):
            _refuse_mesh(text, f'"{part.strip()}" is not an axis and its size')
        if name in axes:
            _refuse_mesh(text, f"axis {name} is given twice")
        axes[name] = number
    return axes


DIGITS = 18
"""Digits of a number that can be a size; a longer one is refused as a name that no axis has."""


def _is_count(text: str) -> bool:
    return text.isdecimal() and len(text) <= DIGITS


def _refuse_mesh(text: str, message: str) -> None:
    raise InputError.one("bad-mesh", message, Edit(("mesh",), text, f"--mesh {text}", 8).place, "write data=4,tensor=8")


def _refuse_size(role: str, value: object) -> None:
    place = Edit((role,), value, _word(role, value), len(f"--{role} ") + 1).place
    message = f'"{value}" is neither a number of devices nor a mesh axis'
    raise InputError.one("bad-size", message, place, f"write --{role} 8, or the name of an axis")


def _known(name: str) -> None:
    if name in PATHS or name in {"mesh", "placement", *ROLES}:
        return
    fields = {path.rpartition(".")[2]: path for path in FLAGS}
    if path := foreign_name(name) or fields.get(as_field(name)):
        flag = FLAGS.get(path.partition(",")[0])
        remedy = f"tpsim calls this {path}" + (f", as a flag {flag}" if flag else "")
        raise InputError.one("foreign-name", f"--{name} is not a flag of tpsim", remedy=remedy)
    if feature := not_yet(name):
        raise InputError.one("not-supported-yet", f"--{name}: {feature} is not supported yet")
    near = did_you_mean(name, [*PATHS, "mesh", "placement", *ROLES], form="--{}")
    raise InputError.one("unknown-flag", f"--{name} is not a flag", remedy=IN_PYTHON.get(name, near))


def _word(name: str, value: object) -> str:
    return " ".join(flag_words({name: value}))


def _named(role: str, axes: object) -> Edit:
    """The role of the axes that a flag names."""
    return Edit(("layout", role), str(axes).split(","), _word(role, axes))


def _mesh_edits(options: Mapping[str, Any], _: Mapping[str, Any]) -> Iterator[Edit]:
    """A mesh from a flag replaces the file's and decides the number of chips; a count beside it may only repeat it."""
    text, axes = _word("mesh", options["mesh"]), parse_mesh(options["mesh"])
    yield Edit(("mesh",), axes, text)
    if "chips" not in options and -1 not in axes.values():
        yield Edit(("chips",), None, text)
    for role in (role for role in (*ADDED, *AXES, EXPERTS) if role in options):
        size, word = str(options[role]), _word(role, options[role])
        if not _is_count(size):
            yield _named(role, options[role])
            continue
        if axes.get(ROLES[role]) != int(size):
            raise InputError.one(
                "size-given-twice",
                f"--{role} {size} does not agree with --mesh {options['mesh']}",
                Edit(("mesh",), size, f"{text} {word}").place,
                f"leave --{role} out, or name its axes: --{role} {next(iter(axes))}",
            )
        if role == EXPERTS and "dp" not in options:
            yield Edit(("layout", "dp"), [ROLES["dp"], ROLES[EXPERTS]], word)
        if role not in AXES:
            yield Edit(("layout", role), [ROLES[role]], word)


def _size_edits(options: Mapping[str, Any], data: Mapping[str, Any]) -> list[Edit]:
    """The flags of roles: a name gives the role to axes; a number sizes the axis that has it, or adds one.

    Of ep it parts the shards of dp, and experts lie on the inner part.
    """
    edits: list[Edit] = []
    given = {role: str(options[role]) for role in (*ADDED, *AXES) if role in options}
    counts = {role: size for role, size in given.items() if _is_count(size)}
    both = " ".join(_word(role, counts[role]) for role in AXES if role in counts)
    for role, size in given.items():
        text = both if role in AXES else _word(role, options[role])
        if role not in counts:
            edits.append(_named(role, options[role]))
        elif axis := _counted_axis(role, data, _sized(data, edits), text):
            edits.append(Edit(("mesh", axis), int(size), text))
        else:
            mesh = _with_axis(_sized(data, edits), role, int(size), _single_axis("tp", data))
            edits += [Edit(("layout", role), [ROLES[role]], text), Edit(("mesh",), mesh, text)]
    edits += _chips_edits(counts, options, data, both)
    if EXPERTS in options:
        many, text = str(options[EXPERTS]), _word(EXPERTS, options[EXPERTS])
        counted = _is_count(many)
        edits += _parted(int(many), text, data, _sized(data, edits)) if counted else [_named(EXPERTS, many)]
    return edits


def _chips_edits(
    counts: Mapping[str, str], options: Mapping[str, Any], data: Mapping[str, Any], both: str
) -> Iterator[Edit]:
    """Counts of both tp and dp make the chips; others keep the scenario's, and an axis is refilled.

    It is that of the one of them that is not counted, of dp if neither is.

    both  the flags of these two
    """
    others = [role for role in AXES if role not in counts]
    chips = options.get("chips") or data.get("chips") or _chips(data)
    if not others:
        yield from () if "chips" in options else [Edit(("chips",), None, both)]
    elif counts and isinstance(chips, int) and chips > 1:  # what is no number is refused where it stands
        text, refilled = both or _word(*[*counts.items()][-1]), _single_axis(others[0], data)
        if refilled:
            yield Edit(("mesh", refilled), -1, text)
        if refilled or not both:
            yield Edit(("chips",), chips, text)


def _counted_axis(role: str, data: Mapping[str, Any], mesh: Mapping[str, Any], text: str) -> str | None:
    """The axis that a count sizes, None where it adds one.

    Raises InputError for tp and dp of several axes, where a table states them, or their axis' name is another's.
    """
    if role in AXES and (_names(role, data) or "shardings" in data or ROLES[role] in mesh):
        return _axis_of(role, data, text)
    return _single_axis(role, data)


def _with_axis(mesh: Mapping[str, Any], role: str, size: int, beside: str | None) -> dict[str, Any]:
    """The mesh with an axis for a role: of tp last, of context before it, of others first."""
    axes = list(mesh)
    before_tp = axes.index(beside) if beside in axes and role not in (STAGES, "dp") else 0
    at = len(axes) if role == "tp" else before_tp
    return {axis: mesh.get(axis, size) for axis in (*axes[:at], ROLES[role], *axes[at:])}


MOST_PARTED = 10**9
"""Shards beyond which their divisors are not looked for: it would take long, and no machine has as many."""


def _parted(many: int, text: str, data: Mapping[str, Any], mesh: Mapping[str, Any]) -> Iterator[Edit]:
    """So many shards of dp for experts, the inner ones: on an axis of their own, there or new, unless these are all.

    mesh  as the flags beside it size it
    """
    shards, own = _names("dp", data), _names(EXPERTS, data)
    outer = [axis for axis in shards if axis not in own]
    if (len(outer), len(own)) != (1, 1) or own[0] not in shards:
        outer, own = [_axis_of("dp", data, text)], []
    known = {axis: size for axis, size in mesh.items() if isinstance(size, int)}
    if not {*outer, *own} <= known.keys():
        return  # an axis or a size that is none is refused where it stands
    sizes = [known[axis] for axis in (*outer, *own)]
    whole = -1 if -1 in sizes else prod(sizes)
    if whole != -1 and (not many or whole % many):
        message = f"experts lie on a part of dp: {whole} shards do not part by {many}"
        place = Edit((EXPERTS,), many, text, 6).place
        inside = [axis for axis in _names("tp", data) if known.get(axis, 1) > 1]
        others = f", or the axes that they lie on: --ep {','.join(inside)}" if inside else ""
        parts = divisors(whole) if whole < MOST_PARTED else [1]
        remedy = f"give a divisor: {', '.join(map(str, parts))}{others}"
        raise InputError.one("experts-not-divisible", message, place, remedy)
    if many == whole and not own:
        yield Edit(("layout", EXPERTS), outer, text)
        return
    at = {axis: at for at, axis in enumerate(mesh)}[outer[0]]
    left = {outer[0]: whole if whole == -1 else whole // many, (own or [ROLES[EXPERTS]])[0]: many}
    axes = [*list(mesh)[: at + 1], *(() if own else left), *list(mesh)[at + 1 :]]
    yield Edit(("mesh",), {axis: left.get(axis, mesh.get(axis)) for axis in axes}, text)
    yield Edit(("layout", "dp"), [*left], text)
    yield Edit(("layout", EXPERTS), [*left][1:], text)


def _sized(data: Mapping[str, Any], edits: Sequence[Edit]) -> dict[str, Any]:
    """The mesh of `data` with these edits made."""
    mesh = dict(data["mesh"]) if isinstance(data.get("mesh"), Mapping) else {}
    for edit in edits:
        if edit.keys == ("mesh",):
            mesh = dict(edit.value)
        elif edit.keys[0] == "mesh":
            mesh[edit.keys[1]] = edit.value
    return mesh


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
    names = _names(role, data)
    return names[0] if len(names) == 1 else None


def _names(role: str, data: Mapping[str, Any]) -> list[str]:
    """The axes that have the role in `data`; none where it states them in no way that can be read."""
    layout = data.get("layout")
    axes = layout.get(role) if isinstance(layout, Mapping) else None
    names = [axes] if isinstance(axes, str) else axes
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else []


def _chips(data: Mapping[str, Any]) -> int | None:
    """The product of the mesh, None if it is not known."""
    mesh = data.get("mesh")
    sizes = list(mesh.values()) if isinstance(mesh, Mapping) else []
    return prod(sizes) if all(isinstance(size, int) and size >= 1 for size in sizes) else None


def _placement_edits(options: Mapping[str, Any]) -> Iterator[Edit]:
    """``data=network,tensor=ici.0+ici.1``; a comma before a name without ``=`` adds a level too."""
    placements = options.get("placement", ())
    for text in placements if isinstance(placements, list | tuple) else [placements]:
        arguments.text("placement", text)
        for pair in PAIRS.split(text):
            axis, equals, levels = (piece.strip() for piece in pair.partition("="))
            edit = Edit(("placement", axis), carriers_of(levels), f"--placement {text}")
            if not (axis and equals and levels):
                raise InputError.one(
                    "bad-placement", f'"{pair}" places no axis on a level', edit.place, "write tensor=nvlink"
                )
            yield edit
