"""The facts that moved between two locks.

What a moved fact brings with it is no cause: the constants of another machine, the bundle of another practice, the
table of another layout.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, cast

from tpsim.guard.lock import Fact, Lock
from tpsim.guard.lock_parts import BASE, SECTIONS, AskedField, ConstantFact, FormulaFact
from tpsim.guard.moved_numbers import KIND, Moved, change, few, in_both, keys
from tpsim.guard.uses import DRAFT, PROFILE
from tpsim.program.practice import Rows
from tpsim.quantity.units import Dimension, parse
from tpsim.question.scenario_file import RoutingFields
from tpsim.question.serving_file import PROMPTS
from tpsim.report.numbers import counted
from tpsim.report.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tpsim.guard import lock

CauseKind = Literal["formula", "constant", "model", "scenario", "switch", "tolerance"]
Fixed = bool | float | str | None
"""What a fact or a number can be; None where it is not there."""


@dataclass(frozen=True, slots=True)
class CauseOfDrift(Record):
    """A fact that moved, and what it touches.

    Its name is ``dgx-h100.levels.nvlink.link.bandwidth`` or the scenario's field, of the section of a file; its note
    what else a reader should know; the scenarios are those whose numbers moved and that use it. A figure of a machine
    has a dimension. Formulas follow that moved because they are made of it: numbers made with them are, too. One that
    is silent moves no number.

    collectives  kinds over axes, e.g. `all_gather over tensor`
    step_relative  the largest relative change of a step that it touches
    """

    told: ClassVar[tuple[str, ...]] = (
        *("kind", "name", "old", "new", "change", "note", "scenarios", "collectives", "step_relative"),
    )

    kind: CauseKind
    name: str
    old: Fixed
    new: Fixed
    note: str | None = None
    scenarios: tuple[str, ...] = ()
    collectives: tuple[str, ...] = ()
    dimension: str = ""
    follows: tuple[str, ...] = ()
    step_relative: float | None = None
    section: str = ""
    silent: bool = False

    @property
    def change(self) -> str | None:
        """In words, with its sign; `new` from nothing, `gone` to nothing."""
        has_share = self.section != "layout"  # a stage or a role has none
        return change(self.old, self.new) or None if has_share else None

    def makes(self, number: Moved, *locks: Lock) -> bool:
        """True if a number that moved is made with the fact, before or after."""
        if self.silent:
            return False
        if self.kind == "scenario":
            own = self.section != DEMANDS or f"{self.name}.".startswith(f"{number.quantity}.")
            return own and number.scenario in self.scenarios
        facts = {self.name, *self.follows}
        return any(
            not facts.isdisjoint(used)
            for lock in locks
            for used in lock.made_with(number.scenario, number.part, number.quantity)
        )


DEMANDS = "require"
"""The section of a scenario's demands: each makes its own outcome, and no number."""

STILL = "no number moves"
"""What is said of a fact that makes no number."""


def causes(old: Lock, new: Lock) -> list[CauseOfDrift]:
    """Every fact that moved from `old` to `new`, formulas first; whom it touches is still open."""
    constants, models, switches, formulas = (
        list(_changed(old, new, kind)) for kind in ("constant", "model", "switch", "formula")
    )
    limits = old.tolerance, new.tolerance
    # Properties steer how seconds are made.
    structures = {
        name
        for constant in constants
        if PROFILE in {side.kind for side in (constant.old, constant.new) if side is not None}
        for name in constant.fact.owner
    }
    return [
        *_formulas(
            [formula for formula in formulas if None in formula or formula.old.samples != formula.new.samples],
            structures,
            (old, new),
        ),
        *_machines(constants),
        *(CauseOfDrift(change.fact.kind, str(change.fact), change.old, change.new) for change in [*models, *switches]),
        *_fields(old, new, switches),
        *([CauseOfDrift("tolerance", "tolerance", *limits, "of times alone")] if len({*limits}) > 1 else []),
    ]


class FactChange(NamedTuple):
    """A fact, what it was and what it is; None where it is not there."""

    fact: Fact
    old: Any
    new: Any


def _changed(old: Lock, new: Lock, kind: lock.FactKind) -> Iterator[FactChange]:
    """Facts that differ; those of an owner that only one side has came or went with it, and are no cause."""
    sides = [{fact: stated for fact, stated in side.facts.items() if fact.kind == kind} for side in (old, new)]
    before, after = sides
    owners = {fact.owner for fact in before} & {fact.owner for fact in after}
    for fact in sorted(before.keys() | after.keys(), key=str):
        if before.get(fact) != after.get(fact) and fact.owner in owners:
            yield FactChange(fact, before.get(fact), after.get(fact))


# Machines ---------------------------------------------------------------------------------------------------------


def _machines(changes: Iterable[FactChange]) -> Iterator[CauseOfDrift]:
    causes = [_of_machine(*change) for change in changes]
    yield from (cause for cause in causes if not cause.silent)
    yield from _together(cause for cause in causes if cause.silent)


def _together(causes: Iterable[CauseOfDrift]) -> Iterator[CauseOfDrift]:
    """Causes that move no number: those of one source or kind are one."""
    groups: dict[Any, list[CauseOfDrift]] = {}
    for cause in causes:
        groups.setdefault((cause.old, cause.new, cause.note), []).append(cause)
    for group in groups.values():
        yield replace(group[0], name=few([cause.name for cause in group], 1))


def _of_machine(fact: Fact, old: ConstantFact | None, new: ConstantFact | None) -> CauseOfDrift:
    """A figure or property that moved; where its value stayed, its source or its kind did."""
    name = str(fact)
    if old is None or new is None or old.value != new.value:
        note = "its source moved, too" if old and new and old.source != new.source else None
        was, now = (None if side is None else side.value for side in (old, new))
        dimension = next((side.dimension for side in (new, old) if side is not None), "")
        return CauseOfDrift("constant", name, was, now, note, dimension=dimension)
    if old.source != new.source:
        return CauseOfDrift("constant", name, old.source, new.source, f"source only: {STILL}", silent=True)
    return CauseOfDrift("constant", name, old.kind, new.kind, f"kind only: {STILL}", silent=True)


# Formulas ---------------------------------------------------------------------------------------------------------

FORM = ("form",)
MADE_OF: Mapping[tuple[str, ...], set[tuple[str, ...]]] = {FORM: {("wire",)}, ("seconds",): {("wire",), FORM}}
"""Formulas that are made of others, by the owners of both: closed forms of wire bytes, seconds of both."""


def _formulas(changes: Sequence[FactChange], structures: set[str], locks: tuple[Lock, Lock]) -> Iterator[CauseOfDrift]:
    """Formulas whose samples moved; those that are made of another one that moved follow from it.

    structures  machines whose properties moved
    locks       that say what numbers are made with
    """
    moved = [change for change in changes if None not in change]
    families = {formula.fact.owner[:1] for formula in moved}

    def follows(fact: Fact) -> bool:
        made_of = MADE_OF.get(fact.owner[:1], set())
        return not families.isdisjoint(made_of) or (fact.owner[:1] == ("seconds",) and fact.owner[-1] in structures)

    following = [formula.fact for formula in moved if follows(formula.fact)]
    for formula in moved:
        if not follows(formula.fact):
            brought = tuple(_made_of(formula.fact, following, locks))
            verb = "follows" if len(brought) == 1 else "follow"
            note = f"{counted(len(brought), 'formula')} made of it {verb}" if brought else None
            # What runs a form is told so: it need not be known by its seconds, which have other forms as well.
            instead = () if formula.fact.owner[:1] == FORM else brought
            yield CauseOfDrift("formula", str(formula.fact), *_texts(formula.old, formula.new), note, follows=instead)
    gone = tuple(str(change.fact) for change in changes if change.new is None)
    came = tuple(str(change.fact) for change in changes if change.old is None)
    # A number that was there before is not made with a new one.
    for names, note, silent in ((gone, "gone", False), (came, f"new: {STILL}", True)):
        if names:
            yield CauseOfDrift("formula", few(names, 1), None, None, note, follows=names, silent=silent)


def _made_of(root: Fact, following: Iterable[Fact], locks: tuple[Lock, Lock]) -> Iterator[str]:
    """Those that are made of a formula; of a closed form the seconds beside which numbers are made with it."""
    beside = [used for lock in locks for used in lock.listed.values() if str(root) in used]
    for fact in following:
        own = root.owner[:1] in MADE_OF.get(fact.owner[:1], ())
        if own and (root.owner[:1] != FORM or any(str(fact) in used for used in beside)):
            yield str(fact)


def _texts(old: FormulaFact, new: FormulaFact) -> tuple[str, str]:
    """The texts where they tell the difference, else the samples that differ first."""
    if old.text and new.text and old.text != new.text:
        return old.text, new.text
    pairs = [pair for pair in zip(old.samples, new.samples, strict=False) if pair[0] != pair[1]]
    first = pairs[0] if pairs else (f"{len(old.samples)} samples", f"{len(new.samples)} samples")
    return (f"{old.text} (sample {first[0]})" if old.text else first[0]), f"sample {first[1]}"


# Scenarios --------------------------------------------------------------------------------------------------------


def _fields(old: Lock, new: Lock, switches: Iterable[FactChange]) -> Iterator[CauseOfDrift]:
    """Fields of scenarios that moved by themselves, equal moves of several scenarios together."""
    groups: dict[tuple[AskedField, Any, Any, str], list[str]] = {}
    switched = set(switches)
    for name in in_both(old, new):
        before, after = old.scenarios[name].asked, new.scenarios[name].asked
        for field, *stated in own_fields(before, after, switched, new):
            own = [_of_its_file(field, lock.scenarios[name].asked, lock) for lock in (old, new)]
            dimension = next((fact.dimension for fact in own if fact), _dimension(field))
            was, other = (_in_place(*side, dimension) for side in zip(stated, own, strict=True))
            groups.setdefault((field, was, other, dimension), []).append(name)
    for (field, was, other, dimension), names in groups.items():
        yield CauseOfDrift(
            *("scenario", str(field), was, other, None, tuple(names)), dimension=dimension, section=field.section
        )


def _dimension(field: AskedField) -> str:
    """Of what is assumed, whose names end with their unit."""
    units = {"bytes": "bytes", "s": "seconds"} if field.section == "assume" else {}
    return units.get(field.name.rpartition("_")[2], "")


def _of_its_file(field: AskedField, asked: Mapping[AskedField, Any], lock: Lock) -> ConstantFact | None:
    """What a field of its machine or model is in their own file, which a scenario may change."""
    owner = str(asked.get(AskedField("", field.section)))
    if field.section == "hardware":
        return lock.constants.get(owner, {}).get(field.name)
    value = lock.models.get(owner, {}).get(field.name) if field.section == "model" else None
    return None if value is None else ConstantFact(value=value, kind="model")


def _in_place(stated: Any, own: ConstantFact | None, dimension: str) -> Any:
    """What a scenario states, a quantity as a number in SI units; what the file has where it states nothing."""
    if stated is None:
        return None if own is None else own.value
    return parse(stated, cast("Dimension", dimension)) if dimension and isinstance(stated, str) else stated


def own_fields(
    old: Mapping[AskedField, Any], new: Mapping[AskedField, Any], switched: set[FactChange], lock: Lock
) -> Iterator[tuple[AskedField, Any, Any]]:
    """The fields of one scenario that moved and that no switch and no other field moved, the kind of work first."""
    moved = {key: (old.get(key), new.get(key)) for key in keys(old, new) if old.get(key) != new.get(key)}
    base = new.get(BASE)
    for key, values in sorted(moved.items(), key=lambda field: field[0] != KIND):
        of_practice = Fact("switch", ("practice", str(base)), key.name if key.section == BASE.section else "")
        explained = any(
            (switch, *values) in switched for switch in (Fact("switch", ("default",), str(key)), of_practice)
        )
        bundled = BASE in moved and lock.facts.get(of_practice, MISSING) == values[1]
        if not (explained or bundled or _brought(key, values, moved, switched)):
            yield key, *values


PROGRAM = AskedField("", "program")
DRAFT_LAYOUT = "speculation.layout."
"""How fields of a workload begin that say where a draft lies: where its model does, unless a scenario states it."""

LEVELS = "rows.levels."
"""How fields of a practice begin that follow from how rows go and where."""

USUAL: Mapping[AskedField, Any] = {
    **{AskedField("practice", f"rows.{name}"): value for name, value in Rows()},
    AskedField("assume", "routing.copies"): RoutingFields().copies,
}
"""What fields are where nothing says so: they are told only beside others of their group."""

MISSING = object()
"""What no switch is set to."""


def _brought(
    key: AskedField, values: tuple[Any, Any], moved: Mapping[AskedField, tuple[Any, Any]], switched: set[FactChange]
) -> bool:
    """True for a field that another one brings with it: the structure, the table, the chips, the parameters' dtype.

    So is one that is told with its group, and was the same without.
    """
    if key.section == PROMPTS:  # a layout of its own
        own = {_of_prompts(other): pair for other, pair in moved.items() if other.section == PROMPTS}
        return _brought(_of_prompts(key), values, own, switched)
    told_alone = {None, USUAL.get(key), *((0,) if key.section not in SECTIONS.values() else ())}
    if key == PROGRAM or {*values} <= told_alone or key.name.startswith(LEVELS):
        return True
    if key.name.startswith(DRAFT_LAYOUT):
        as_model = moved.get(AskedField("layout", key.name.removeprefix(DRAFT_LAYOUT)))
        return as_model == values or (None in values and AskedField("workload", DRAFT) in moved)
    if key.section == "shardings":
        return bool(switched) or any(other != PROGRAM and other.section != "shardings" for other in moved)
    if key == AskedField("", "chips"):
        return any(other.section == "mesh" for other in moved)
    made_from = moved.get(AskedField("dtypes", "activations"))
    return key in {AskedField("dtypes", "params"), AskedField("dtypes", "products")} and made_from == values


def _of_prompts(key: AskedField) -> AskedField:
    """A field of servers that read prompts alone as it is called outside: ``mesh.tensor`` of the section `mesh`."""
    section, dot, name = key.name.partition(".")
    return AskedField(section, name) if dot else AskedField("", section)
