"""What `--vary` asks for: fields and values, read as overrides are; a field that is stated as well is refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tpsim.quantity import spec
from tpsim.quantity.errors import InputError, Place, unknown
from tpsim.question.edits import PATHS, ROLES, Edit, Keys, edited, flag_words, read_override, refuse_text
from tpsim.question.flag_edits import parse_mesh
from tpsim.question.foreign_names import FOREIGN, foreign_name
from tpsim.question.pipeline import known_schedule
from tpsim.question.scenario_file import ScenarioFile
from tpsim.question.serving_file import format_of

if TYPE_CHECKING:
    from tpsim.quantity.spec import Document

NAMES: Mapping[str, Keys] = {
    **PATHS,
    **{role: ("mesh", axis) for role, axis in ROLES.items()},
    "sequence_parallel": PATHS["sp"],  # as answers have it
    "cache": ("layout", "cache"),
    "shards": ("layout", "zero_over"),
    "layers": ("pipeline", "layers"),
    "placement": ("placement",),
}
"""What `--vary` calls a field instead of its path."""


@dataclass(frozen=True, slots=True)
class Varied:
    """A field with the values that it may have; no edits where it is only named.

    path   as it is written
    edits  one per value, each pointing at it
    """

    path: str
    keys: Keys
    place: Place
    edits: tuple[Edit, ...] | None

    @property
    def values(self) -> tuple[Any, ...] | None:
        """All values; none where the field is only named."""
        return None if self.edits is None else tuple(edit.value for edit in self.edits)

    def check(self, document: Document) -> None:
        """Refuse values that the field cannot have, as a flag's would be. Raises InputError."""
        for edit in self.edits or ():
            changed = edited(document, [edit])
            file, _ = spec.read(changed, format_of(changed.data), foreign=FOREIGN)
            if isinstance(edit.value, Mapping | list) and self.keys != NAMES["layers"]:
                raise InputError.one("bad-value", f"{self.path} is varied by names", edit.place, "write none or full")
            if file.pipeline:
                known_schedule(file.pipeline.schedule, edit.place)


def read_varied(texts: Sequence[str]) -> dict[Keys, Varied]:
    """``zero=1,3`` each, by field; equal values count once. Raises InputError for a field that is varied twice."""
    refuse_text("vary", texts)
    varied: dict[Keys, Varied] = {}
    for axis in map(_read, texts):
        if axis.keys in varied:
            remedy = f"list all values in one: --vary {axis.path}=VALUE,VALUE"
            raise InputError.one("varied-twice", f"{axis.path} is varied twice", axis.place, remedy)
        varied[axis.keys] = axis
    return varied


def renamed(varied: Mapping[Keys, Varied], names: Mapping[Keys, Keys]) -> dict[Keys, Varied]:
    """With other fields in the place of some: what training calls global_batch inference calls batch."""

    def field(axis: Varied) -> Varied:
        keys = names[axis.keys]
        return replace(axis, keys=keys, edits=axis.edits and tuple(replace(edit, keys=keys) for edit in axis.edits))

    return {names.get(keys, keys): field(axis) if keys in names else axis for keys, axis in varied.items()}


def in_order(varied: Mapping[Keys, Varied]) -> dict[Keys, Varied]:
    """By name, values by size: of layouts that are equally good the same comes first, however they are asked for."""
    return {
        keys: replace(axis, edits=axis.edits and tuple(sorted(axis.edits, key=_size)))
        for keys, axis in sorted(varied.items())
    }


def _size(edit: Edit) -> tuple[bool, float, str]:
    """Numbers come first, words by the alphabet."""
    number = isinstance(edit.value, int | float)
    return not number, edit.value if number else 0, repr(edit.value)


def _read(text: str) -> Varied:
    path, equals, listed = text.partition("=")
    keys = NAMES.get(path.strip()) or tuple(key.strip() for key in path.split("."))
    whole = Edit(keys, None, f"--vary {text}", len("--vary ") + 1)
    named = replace(whole.place, width=max(1, len(path)))
    name = path.strip()
    if "." not in name and not foreign_name(name) and not {name} & {*NAMES, *ScenarioFile.model_fields}:
        known = [*dict.fromkeys([*NAMES, *ScenarioFile.model_fields])]
        raise unknown(name, "field", known, named, "write one, or a path: zero=1,3")
    whole = replace(whole, named=named)
    edits: list[Edit] = []
    column = whole.column + len(path) + 1
    for value in values(listed) if equals else ():
        edit = replace(whole, column=column)
        if not value.strip():
            message, remedy = f"a value of {name} is missing", f"list them: --vary {name}=VALUE,VALUE"
            raise InputError.one("missing-values", message, edit.place, remedy)
        try:
            edit = replace(edit, value=read_override(f"{path}={value}").value)
        except InputError as error:
            raise InputError([replace(error.problems[0], place=edit.place)]) from None
        column += len(value) + 1
        if repr(edit.value) not in [repr(other.value) for other in edits]:  # True == 1, and says something else
            edits.append(edit)
    return Varied(name, keys, whole.place, tuple(edits) if equals else None)


def values(listed: str) -> list[str]:
    """What stands between commas; within brackets, braces and quotes, as YAML has them, a comma parts nothing.

    >>> values("[64, 64],[96, 32],even")
    ['[64, 64]', '[96, 32]', 'even']
    """
    parts, deep = [""], 0
    for part in re.findall(PARTS, listed):
        deep = max(0, deep + (part in ("[", "{")) - (part in ("]", "}")))
        if part == "," and not deep:
            parts.append("")
        else:
            parts[-1] += part
    return parts


PARTS = r"""(?<![^\s,\[{:])(?:'[^']*'|"(?:\\.|[^"\\])*")|."""
"""A quoted word, or a character."""


def stated_flags(flags: Mapping[str, Any]) -> Iterator[Edit]:
    """The fields that flags state, as `--vary` names them."""
    for name, value in flags.items():
        word = " ".join(flag_words({name: value}))
        if name in NAMES:
            yield Edit(NAMES[name], value, word)
        elif name == "mesh":
            yield Edit(("mesh",), parse_mesh(value), word)


def refuse_stated(varied: Iterable[Varied], stated: Sequence[Edit]) -> None:
    """Refuse fields that a flag or an override states, too. Raises InputError."""
    for axis in varied:
        for edit in stated:
            if states(edit, axis.keys):
                message = f"{axis.path} is stated by {edit.text} and varied"
                raise InputError.one("stated-and-varied", message, axis.place, "leave one of the two out")


def refuse_mesh(varied: Iterable[Varied], overrides: Iterable[Edit]) -> None:
    """Refuse to state or to vary what a search of the mesh sets itself. Raises InputError."""
    searched: list[Keys] = [("mesh",), *(("layout", role) for role in ROLES)]
    places = [(edit, edit.place) for edit in overrides]
    places += [(Edit(axis.keys, axis.path, ""), axis.place) for axis in varied]
    for edit, place in places:
        if any(states(edit, keys) for keys in searched):
            message = f"{'.'.join(edit.keys)} follows from tp, dp, pp, cp and ep where the mesh is searched"
            raise InputError.one("mesh-is-searched", message, place, "give these: --tp 8, or --vary tp=4,8")
    for axis in varied:
        if axis.keys[0] == "placement":
            message = f"{axis.path} cannot be varied where the mesh is searched"
            remedy = "vary tp, dp, pp, cp, ep; or hold it: --placement"
            raise InputError.one("mesh-is-searched", message, axis.place, remedy)


def states(edit: Edit, keys: Keys) -> bool:
    """True if an edit states a field, or a part of it."""
    if edit.keys[: len(keys)] == keys:
        return True
    return keys[: len(edit.keys)] == edit.keys and stands(edit.value, keys[len(edit.keys) :])


def stands(data: Any, keys: Keys) -> bool:
    """True if a field has a value."""
    for key in keys:
        if not isinstance(data, Mapping) or data.get(key) is None:
            return False
        data = data[key]
    return True
