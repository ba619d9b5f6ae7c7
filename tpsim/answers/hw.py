"""The verb `hw`: which machines the library has, what one is made of, and whether a profile is sound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpsim.quantity import spec
from tpsim.quantity.arguments import checked
from tpsim.quantity.errors import InputError, Problem
from tpsim.question.inputs import files_of, shown
from tpsim.report.answer import Answer
from tpsim.report.numbers import counted

if TYPE_CHECKING:
    from tpsim.machine.constant import Constant
    from tpsim.machine.curve import MeasuredCurve
    from tpsim.machine.parts import Machine


@dataclass(frozen=True)
class HwResult(Answer):
    """A machine and every constant of it."""

    schema = "tpsim.hw/1"
    told = ("levels", "constants", "measured", "sources", "guesses")
    table = "constants"

    machine: Machine

    files = files_of(lambda answer: [answer.machine])

    @property
    def constants(self) -> list[dict[str, Any]]:
        """One row per constant: where it stands, its value in SI, and where it is from."""
        return [constant_record(self.machine, constant) for constant in self.machine.constants()]

    @property
    def guesses(self) -> int:
        """Constants that nobody has stated or measured."""
        return _guesses(self.machine)

    @property
    def verdict(self) -> str:
        """How many constants it has, and how many of them are guesses."""
        guesses = "1 of them a guess" if self.guesses == 1 else f"{self.guesses} of them guesses"
        return f"{len(self.constants)} constants, {guesses}; bandwidths are of one link in one direction"

    @property
    def levels(self) -> list[dict[str, Any]]:
        """What its levels are beside their constants; no algorithms are the plain ones of its topology."""
        return [
            {
                "name": level.name,
                "topology": level.topology,
                "shape": list(level.shape),
                "steps": level.steps,
                "wrap": str(level.wrap) if level.topology == "torus" else None,
                "wrap_kind": level.wrap.kind,
                "wrap_source": level.wrap.source,
                "slices": str(level.slices) if level.slices.known else None,
                "slices_kind": level.slices.kind,
                "slices_source": level.slices.source,
                "algorithms": list(level.algorithms),
                "alone": [name for name, tuning in level.algorithms.items() if tuning.alone],
            }
            for level in self.machine.levels
        ]

    @property
    def measured(self) -> list[dict[str, Any]]:
        """Its curves."""
        return [curve_record(curve) for curve in self.machine.measured]

    @property
    def sources(self) -> dict[str, dict[str, Any]]:
        """Where its constants are from."""
        return {
            key: {"title": source.title, "read": source.read or None, "sha256": source.sha256 or ()}
            for key, source in self.machine.sources.items()
        }

    @property
    def resolved(self) -> dict[str, str]:
        """What was asked for."""
        return {"hardware": self.machine.name}


@dataclass(frozen=True)
class HwListResult(Answer):
    """The machines of the library."""

    schema = "tpsim.hw-list/1"
    told = ("machines", "chips")
    table = "machines"

    each: tuple[Machine, ...]

    files = files_of(lambda answer: answer.each)

    @property
    def verdict(self) -> str:
        """How many there are, and how another one gets in."""
        count = f"{len(self.each)} machines, made of {len(self.chips)} chips"
        return f"{count}; your own: a .yaml file, or a folder in TPSIM_PATH"

    @property
    def machines(self) -> list[dict[str, Any]]:
        """One row per machine."""
        return [_row(machine) for machine in self.each]

    @cached_property
    def chips(self) -> list[dict[str, Any]]:
        """One row per chip file, or generation of chips, with the machines that are laid on it."""
        return [
            {"chip": name, "machines": [chip.name for chip in self.each if str(path) in dict(chip.below)]}
            for name in spec.names("chips")
            for path in [spec.find("chips", name)]
        ]


@dataclass(frozen=True, slots=True)
class Checked:
    """A profile held against the rules.

    strict    whether each constant had to state its source and kind
    machine   None if the file says no machine
    warnings  what is left out and guessed, and what is hard to believe: a profile may be sound with them
    """

    name: str
    strict: bool
    machine: Machine | None
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...] = ()

    def record(self) -> dict[str, Any]:
        """The profile in a row."""
        return {
            "hardware": self.name,
            "ok": not self.problems,
            "strict": self.strict,
            "problems": len(self.problems),
            "warnings": len(self.warnings),
            "constants": len(self.machine.constants()) if self.machine else None,
            "guesses": _guesses(self.machine) if self.machine else None,
        }


@dataclass(frozen=True)
class HwValidateResult(Answer):
    """What is wrong with profiles."""

    schema = "tpsim.hw-validate/1"

    profiles: tuple[Checked, ...]

    files = files_of(lambda answer: filter(None, (profile.machine for profile in answer.profiles)))

    @property
    def ok(self) -> bool:
        """True if every profile is sound."""
        return not self.problems

    @property
    def problems(self) -> list[Problem]:
        """What is wrong, profile by profile."""
        return [problem for profile in self.profiles for problem in profile.problems]

    @property
    def warnings(self) -> list[Problem]:
        """What to look at in profiles that may be sound, profile by profile."""
        return [warning for profile in self.profiles for warning in profile.warnings]

    @property
    def verdict(self) -> str:
        """How many are sound, and what to look at."""
        sound = sum(not profile.problems for profile in self.profiles)
        warned = f", {counted(len(self.warnings), 'warning')}" if self.warnings else ""
        return f"{sound} of {len(self.profiles)} profiles are sound{warned}"

    def records(self) -> list[dict[str, Any]]:
        """One row per profile."""
        return [profile.record() for profile in self.profiles]

    @property
    def result(self) -> dict[str, Any]:
        """Each profile with what is wrong with it, and what to look at."""
        checks = [
            {
                **profile.record(),
                "problems": [problem_record(problem) for problem in profile.problems],
                "warnings": [problem_record(problem) for problem in profile.warnings],
            }
            for profile in self.profiles
        ]
        return {"ok": self.ok, "profiles": checks}


def hw_list() -> HwListResult:
    """Every machine of the library."""
    from tpsim.machine.profile import load

    return HwListResult(tuple(load(name) for name in spec.names("hardware")))


@checked
def hw_show(name_or_path: str | Path) -> HwResult:
    """One machine.

    name_or_path  of the library, or a profile's file
    Raises InputError with every mistake in its file.
    """
    from tpsim.machine.profile import load

    return HwResult(load(name_or_path))


@checked
def hw_validate(names: str | Path | Sequence[str | Path] = (), *, strict: bool = False) -> HwValidateResult:
    """Hold profiles, and files of chips, against the rules.

    names   library names or files, one or several; none: all of the library
    strict  True: constants of a user's own profile, too, must state source and kind, as those that tpsim ships must

    Raises InputError for a name or file that there is not; what is wrong within a file is the answer.
    """
    asked = [names] if isinstance(names, str | Path) else names or spec.names("hardware")
    return HwValidateResult(tuple(_checked(str(name), strict=strict) for name in asked))


def _checked(name: str, *, strict: bool) -> Checked:
    from tpsim.machine.chips import check
    from tpsim.machine.profile import left_out, missing, read

    chip = name in spec.names("chips") and name not in spec.names("hardware")
    path = str(spec.named("chips" if chip else "hardware", name))
    asked = strict or spec.is_shipped(["hardware"], path)
    try:
        written = spec.load(Path(path))
        if written.data.get("tpsim") == CHIP:
            check(written, strict=asked)
            return Checked(name, asked, None, ())
        machine, document = read(written)
    except InputError as error:
        if any(problem.slug in NO_FILE for problem in error.problems):
            raise
        return Checked(name, asked, None, tuple(sorted(error.problems, key=_line)))
    problems = missing(machine, document) if asked else []
    warnings = [*([] if asked else left_out(machine, document)), *machine.doubts]
    return Checked(name, asked, machine, tuple(problems), tuple(sorted(warnings, key=_line)))


def _line(problem: Problem) -> int:
    return problem.place.line if problem.place else 0


CHIP = "chip/1"
"""What the file of a chip, which is no machine, begins with."""

NO_FILE = ("no-such-file", "unreadable-file")
"""Mistakes of the request rather than of the file."""


def _row(machine: Machine) -> dict[str, Any]:
    constants = machine.constants()
    return {
        "hardware": machine.name,
        "bf16_flops_per_s": machine.chip.peak["bf16"].value if "bf16" in machine.chip.peak else None,
        "memory_bytes": machine.chip.memory.capacity.value,
        "memory_bytes_per_s": machine.chip.memory.bandwidth.value,
        "levels": ", ".join(f"{level.name} {'x'.join(map(str, level.shape))}".strip() for level in machine.levels),
        "constants": len(constants),
        "guesses": _guesses(machine),
    }


def _guesses(machine: Machine) -> int:
    return sum(constant.kind == "guess" for constant in machine.constants())


def curve_record(curve: MeasuredCurve) -> dict[str, Any]:
    """A measured curve with its knots; seconds, and bytes of the whole array."""
    return {
        "collective": curve.kind,
        "route": [
            {"level": segment.level, "axis": segment.axis, "topology": segment.topology, "ranks": segment.n}
            for segment in curve.route
        ],
        "launch": curve.launch,
        "source": curve.source or None,
        "knots": [
            {"logical_bytes": knot.V, "predicted_s": knot.predicted, "fitted_s": knot.fitted} for knot in curve.knots
        ],
    }


def constant_record(machine: Machine, constant: Constant) -> dict[str, Any]:
    """A constant in a row; `value` is in SI units."""
    source = machine.sources.get(constant.source)
    return {
        "hardware": machine.name,
        "constant": constant.path,
        "value": constant.value,
        "dimension": constant.dimension,
        "kind": constant.kind,
        "source": constant.source or None,
        "title": source.title if source else None,
        "note": constant.note or None,
        "file": shown(constant.file) or None,
    }


def problem_record(problem: Problem) -> dict[str, Any]:
    """A problem in a row; `place` is ``my-cluster.yaml:14:7``."""
    place = problem.place
    return {
        "place": f"{place.file}:{place.line}:{place.column}" if place and place.line else place and place.file,
        "problem": problem.message,
        "remedy": problem.remedy or problem.note or None,
        "slug": problem.slug,
    }
