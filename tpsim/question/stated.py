"""What a scenario states: its fields after flags and overrides, each with its place, before anything is looked up."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from tpsim.quantity import spec
from tpsim.quantity.errors import InputError, Place, Problem
from tpsim.quantity.spec import Document
from tpsim.quantity.spec.checked import header_problem
from tpsim.question.edits import Edit, edited, flag_words, read_override, refuse_text
from tpsim.question.flag_edits import at, bare_scenario, flags_to_edits, statements
from tpsim.question.foreign_names import foreign_name, not_yet
from tpsim.question.inputs import asked
from tpsim.question.scenario_file import PATHS_TO_FILES, ScenarioFile
from tpsim.question.serving_file import (
    PROMPTS,
    fields_of_workload,
    foreign_to,
    format_of,
    refuse_no_replies,
    refuse_unknown_kind,
)
from tpsim.report.record import Record

Extends = Callable[[Path], Document]
Source = str | Path | Document | Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Stated:
    """A scenario as it is stated.

    document  where its fields stand, flags and overrides included: what a change of it starts from
    overrides, flags  these, as they were given
    """

    file: ScenarioFile
    document: Document
    overrides: Sequence[str]
    flags: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What it calls itself, else what its file is called; "" of what no file holds."""
        return self.file.name or self.stem

    @property
    def stem(self) -> str:
        """What its file is called; "" of what no file holds: flags, a mapping, stdin."""
        path = self.document.path
        return Path(path).stem if self.document.sha256 and path != "-" else ""

    @property
    def asked(self) -> str:
        """How a command line asks for it again; "" for what neither a file nor flags hold, as what stdin asked."""
        path = self.document.path
        file = [asked("scenarios", path)] if self.stem else []
        words = [*file, *flag_words(self.flags)] if file or path == "flags" else []
        return shlex.join([*words, *(word for text in self.overrides for word in ("--set", text))] if words else [])

    def at(self, *keys: str) -> Place | None:
        """Where a key stands: in the flag or override that set it, else in the file."""
        return self.document.place(*keys)

    def at_key(self, *keys: str) -> Place | None:
        """Where the name of a field stands, for a name that is wrong itself."""
        return self.document.key_place(*keys)

    def extended(self, key: str, example: str) -> tuple[str, Path]:
        """What a field names, or the map in it extends, and the folder that a relative path there starts from."""
        stated = getattr(self.file, key)
        if isinstance(stated, str):
            return stated, self.document.folder(key)
        base = stated.get("extends")
        if not isinstance(base, str):
            message, remedy = f"a {key} map needs extends", f"add extends: {example}, or another one"
            raise InputError.one("missing-field", message, self.at(key), remedy)
        return base, self.document.folder(key, "extends")

    def changes(self, key: str) -> dict[str, Any]:
        """What it changes in the file that a field names."""
        stated = getattr(self.file, key)
        return {} if isinstance(stated, str) else {name: value for name, value in stated.items() if name != "extends"}

    def data(self, folder: Path = Path()) -> dict[str, Any]:
        """The fields as they are stated, with the scenario's name; files as one in `folder` names them."""
        data = {name: value for name, value in self.document.data.items() if name != "tpsim" and value is not None}
        data |= {key: self._file_in(folder, data[key], key) for key in PATHS_TO_FILES}
        if (section := data.get(PROMPTS)) and section.get("hardware"):
            data[PROMPTS] = {**section, "hardware": self._file_in(folder, section["hardware"], PROMPTS, "hardware")}
        work = data["workload"]
        if isinstance(ahead := work.get("speculation"), Mapping) and "draft" in ahead:
            draft = self._named_in(folder, str(ahead["draft"]), "workload", "speculation", "draft")
            data["workload"] = {**work, "speculation": {**ahead, "draft": draft}}
        return {**({"name": self.stem} if self.stem else {}), **data}

    def _file_in(self, folder: Path, stated: Any, *keys: str) -> Any:
        """A field that names a file, or a map that extends one, as a file in `folder` has it."""
        if isinstance(stated, Mapping):
            return {**stated, "extends": self._named_in(folder, stated["extends"], *keys, "extends")}
        return self._named_in(folder, str(stated), *keys)

    def _named_in(self, folder: Path, text: str, *keys: str) -> str:
        """A file as one in `folder` names it, instead of the folder of the file that states it."""
        anywhere = text == "-" or not spec.is_path(text)
        return text if anywhere else spec.path_from(folder, str(self.document.folder(*keys) / text))


def stated(scenario: Source, overrides: Sequence[str], flags: Mapping[str, Any], extends: Extends) -> Stated:
    """What a scenario, or flags alone, state after flags and then overrides; see `resolve`.

    extends  reads the file of a scenario that another one extends

    Raises InputError for what is no scenario, and for what tpsim cannot plan yet.
    """
    document = opened(scenario, flags, extends, overrides)
    document = changed(document, flags, [*map(read_override, overrides)])
    refuse_unknown_kind(document)
    refuse_no_replies(document)
    _refuse_not_yet(document)
    _refuse_overlap(document)
    file, document = spec.read(document, format_of(document.data), foreign=foreign_to(document.data))
    return Stated(file, document, overrides, flags)


def changed(document: Document, flags: Mapping[str, Any], overrides: Sequence[Edit]) -> Document:
    """The document as flags, and then overrides, change it.

    Raises InputError for a flag that this scenario cannot take, and for one of which an override says something else:
    it may say more, as a switch of the practice that the flag names. Of several overrides of a field the last holds.
    """
    work = edited(document, [edit for edit in overrides if edit.keys[0] == "workload"]).data
    flagged = edited(document, flags_to_edits(flags, work))
    steps = list(accumulate(overrides, lambda document, edit: edited(document, [edit]), initial=flagged))
    for text, said in statements(flags, work):
        asked, *told = [said(step.data) for step in steps]
        if all(_kept(asked, then) for then in told[-1:]):
            continue
        edit = next(edit for edit, then in zip(overrides, told, strict=True) if not _kept(asked, then))
        if isinstance(edit.value, Mapping | None) or not isinstance(at(edit.keys, flagged.data), Mapping):
            message = f"{text} and {edit.text} contradict each other"
            raise InputError.one("stated-twice", message, edit.place, "leave one of the two out")
    return steps[-1]


def _kept(before: Any, after: Any) -> bool:
    """True if what was said is said still; of maps more may be."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return all(_kept(value, after.get(key)) for key, value in before.items())
    return before is None or before == after


def opened(scenario: Source, flags: Mapping[str, Any], extends: Extends, overrides: Sequence[str] = ()) -> Document:
    """A scenario as it is written, with what it extends; without one what flags start from. Raises InputError."""
    refuse_text("overrides", overrides)
    document = _document(scenario, flags, overrides)
    if wrong := _another_file(document):
        raise InputError([wrong])
    return spec.extended(document, lambda name, beside: extends(spec.named("scenarios", name, beside)))


def _another_file(document: Document) -> Problem | None:
    """What is wrong with a file that says that it is no scenario: a model, such as a config.json, or a machine."""
    if not {"tpsim", "model_type", "extends"} & document.data.keys():
        return _of_another_framework(document)
    config = "tpsim" not in document.data and "model_type" in document.data
    wrong = header_problem(document, ScenarioFile) if "tpsim" in document.data else None
    kind = "model" if config else str(document.data.get("tpsim")).partition("/")[0]
    if config:
        message = "this is a model's config.json where a scenario file is due"
        wrong = Problem("wrong-kind", message, document.key_place("model_type"))
    asked = spec.asked_by_flags(kind, shlex.quote(document.path))
    return replace(wrong, remedy=asked) if wrong and asked else wrong


TOLD = 4
"""Names of another framework that are answered with ours."""


def _of_another_framework(document: Document) -> Problem | None:
    """What is wrong with a file of another framework, such as DeepSpeed's: what of it tpsim calls otherwise."""
    theirs = {
        key: path for key in document.data if (path := foreign_name(key)) and key not in ScenarioFile.model_fields
    }
    wrong = header_problem(document, ScenarioFile) if theirs else None
    listed = ", ".join(f"{key} {path}" for key, path in [*theirs.items()][:TOLD])
    return wrong and replace(wrong, note=f"a scenario is a file of tpsim's own, which calls {listed}")


OF_TEXT = "yaml.safe_load(plan.to_yaml())"
"""How a scenario's text, in Python, is its content."""


def _document(scenario: Source, flags: Mapping[str, Any], overrides: Sequence[str]) -> Document:
    if isinstance(scenario, Document):
        return scenario
    if scenario is None:
        return Document(data=bare_scenario(flags, overrides), path="flags", text="", sha256="")
    if isinstance(scenario, Record):
        message, remedy = f"a {type(scenario).__name__} is an answer, not a scenario", f"of a plan: {OF_TEXT}"
        raise InputError.one("no-scenario", message, remedy=remedy)
    if isinstance(scenario, Mapping):
        return Document(data=dict(scenario), path="scenario", text="", sha256="")
    if isinstance(scenario, str) and "\n" in scenario:
        message, remedy = (
            "a scenario's text stands where its file or its name is due",
            f"write it to a file, or load it: {OF_TEXT}",
        )
        raise InputError.one("no-scenario", message, remedy=remedy)
    return spec.load(spec.named("scenarios", str(scenario)))


def _refuse_not_yet(document: Document) -> None:
    """Refuse fields of parallelisms that tpsim does not plan yet, before they are called unknown."""
    work = fields_of_workload(document.data)
    for section in ((), ("layout",), ("pipeline",), ("workload",)):
        fields = document.data.get(section[0]) if section else document.data
        known = work if section == ("workload",) else ()
        for key in fields if isinstance(fields, Mapping) else ():
            if key not in known and (feature := not_yet(key)):
                raise InputError.one(
                    "not-supported-yet",
                    f"{key}: {feature} is not supported yet",
                    document.key_place(*section, key),
                    "remove it; tpsim plans tensor, sequence, context, data and pipeline parallelism and ZeRO",
                )


REMEDY = "write practice: {overlap: {gradients: beside, weights: beside}}; sorts: tensor, gradients, weights, stages"
NOT_MODELLED_YET = {
    "shared": "exchanges beside what all tokens share alone",
    "pair": "exchanges beside another microbatch",
}


def _refuse_overlap(document: Document) -> None:
    """Refuse overlap by mesh axes, which is no assumption any more, and what a timeline does not model yet."""
    assume, practice = (document.data.get(key) for key in ("assume", "practice"))
    if isinstance(assume, Mapping) and "overlap" in assume:
        message = "assume.overlap is gone: what runs beside compute is a switch of practice, by sort of collective"
        raise InputError.one("overlap-is-practice", message, document.key_place("assume", "overlap"), REMEDY)
    rows = practice.get("rows") if isinstance(practice, Mapping) else None
    value = rows.get("overlap") if isinstance(rows, Mapping) else None
    if isinstance(value, str) and value in NOT_MODELLED_YET:
        message = f"overlap of rows: {value} ({NOT_MODELLED_YET[value]}) is not modelled yet"
        place = document.place("practice", "rows", "overlap")
        raise InputError.one("not-supported-yet", message, place, "write none or beside")
