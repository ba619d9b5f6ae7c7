"""The verb `hw`: which machines the library has, what one is made of, and whether a profile is sound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpsim import __version__
from tpsim.api.inputs import inputs
from tpsim.report.frame import frame

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas as pd

    from tpsim.machine.profile import Constant, Machine
    from tpsim.quantity.errors import Problem

SCHEMA, LIST_SCHEMA, VALIDATE_SCHEMA = "tpsim.hw/1", "tpsim.hw-list/1", "tpsim.hw-validate/1"


@dataclass(frozen=True)
class HwResult:
    """A machine and every constant of it."""

    machine: Machine

    def records(self) -> list[dict[str, Any]]:
        """One row per constant: where it stands, its value in SI, and where it is from."""
        return [constant_record(self.machine, one) for one in self.machine.constants()]

    @property
    def guesses(self) -> int:
        """Constants that nobody has stated or measured."""
        return sum(one.kind == "guess" for one in self.machine.constants())

    def to_frame(self) -> pd.DataFrame:
        """The records as a pandas DataFrame."""
        return frame(self.records())

    def to_json(self) -> dict[str, Any]:
        """The whole document."""
        machine = self.machine
        levels = [{"name": one.name, "topology": one.topology, "shape": list(one.shape), "steps": one.steps} for one in machine.levels]
        sources = {key: {"title": one.title, "read": one.read} for key, one in machine.sources.items()}
        result = {"levels": levels, "constants": self.records(), "sources": sources, "guesses": self.guesses}
        return _document(SCHEMA, [machine], {"hardware": machine.name}, result)


@dataclass(frozen=True)
class HwListResult:
    """The machines of the library."""

    machines: tuple[Machine, ...]

    def records(self) -> list[dict[str, Any]]:
        """One row per machine."""
        return [_row(machine) for machine in self.machines]

    def to_frame(self) -> pd.DataFrame:
        """The records as a pandas DataFrame."""
        return frame(self.records())

    def to_json(self) -> dict[str, Any]:
        """The whole document."""
        return _document(LIST_SCHEMA, self.machines, {}, {"machines": self.records()})


@dataclass(frozen=True)
class HwValidateResult:
    """What is wrong with profiles: (name, its problems)."""

    profiles: tuple[tuple[str, tuple[Problem, ...]], ...]

    @property
    def ok(self) -> bool:
        """True if every profile is sound."""
        return not any(problems for _, problems in self.profiles)

    def records(self) -> list[dict[str, Any]]:
        """One row per profile."""
        return [{"hardware": name, "ok": not found, "problems": len(found)} for name, found in self.profiles]

    def to_frame(self) -> pd.DataFrame:
        """The records as a pandas DataFrame."""
        return frame(self.records())

    def to_json(self) -> dict[str, Any]:
        """The whole document."""
        checks = [
            {"hardware": name, "ok": not found, "problems": [str(one) for one in found]} for name, found in self.profiles
        ]
        return _document(VALIDATE_SCHEMA, [], {}, {"ok": self.ok, "profiles": checks})


def hw_list() -> HwListResult:
    """Every machine of the library."""
    from tpsim.machine.profile import load, names

    return HwListResult(tuple(load(name) for name in names()))


def hw_show(name_or_path: str | Path) -> HwResult:
    """One machine; raises InputError with every mistake in its file."""
    from tpsim.machine.profile import load

    return HwResult(load(name_or_path))


def hw_validate(names: Sequence[str] = (), *, strict: bool = False) -> HwValidateResult:
    """Hold profiles against the rules; without names, all of the library.

    strict  True: constants of a user's own profile, too, must state source and kind, as those of the library must
    """
    from tpsim.machine.profile import names as library
    from tpsim.machine.profile import validate

    shipped = set(library())
    asked = tuple(names) or tuple(sorted(shipped))
    found = ((name, validate(name, shipped=strict or name in shipped)) for name in asked)
    return HwValidateResult(tuple((name, tuple(problems)) for name, problems in found))


def constant_record(machine: Machine, one: Constant) -> dict[str, Any]:
    """A constant in a row; `value` is in SI units."""
    source = machine.sources.get(one.source)
    return {
        "hardware": machine.name,
        "constant": one.path,
        "value": one.value,
        "dimension": one.dimension,
        "kind": one.kind,
        "source": one.source or None,
        "title": source.title if source else None,
        "note": one.note or None,
    }


def _row(machine: Machine) -> dict[str, Any]:
    constants = machine.constants()
    return {
        "hardware": machine.name,
        "bf16_flops_per_s": machine.chip.peak["bf16"].value if "bf16" in machine.chip.peak else None,
        "memory_bytes": machine.chip.memory_capacity.value,
        "memory_bytes_per_s": machine.chip.memory_bandwidth.value,
        "levels": ", ".join(f"{level.name} {'x'.join(map(str, level.shape)) or level.topology}" for level in machine.levels),
        "constants": len(constants),
        "guesses": sum(one.kind == "guess" for one in constants),
    }


def _document(schema: str, machines: Sequence[Machine], resolved: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": schema,
        "tpsim": __version__,
        "inputs": [{"path": path, "sha256": digest} for path, digest in inputs(*machines)],
        "resolved": resolved,
        "result": result,
        "assumptions": [],
        "not_modelled": [],
    }
