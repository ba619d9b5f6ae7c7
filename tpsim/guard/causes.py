"""The facts that moved between two locks.

What a moved fact brings with it is no cause: the constants of another machine, the bundle of another practice, the
table of another layout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from tpsim.guard.lock import ConstantFact
from tpsim.guard.moved import change, keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tpsim.guard.lock import FormulaFact, Lock

Kind = Literal["formula", "constant", "model", "scenario", "switch", "tolerance"]


@dataclass(frozen=True, slots=True)
class Cause:
    """A fact that moved, and what it touches.

    name         of the fact, e.g. ``dgx-h100.levels.nvlink.link.bandwidth``, or the scenario's field
    note         what else a reader should know: a source alone moved, what follows from it
    follows      names of formulas that moved because they are made of this one
    scenarios    whose numbers moved and that use the fact
    collectives  ``all_gather over tensor`` of those numbers
    dimension    of a figure of a machine, "" for anything else
    effect       the largest of the changes of the touched scenarios' steps, None if none moved
    """

    kind: Kind
    name: str
    old: Any
    new: Any
    note: str = ""
    scenarios: tuple[str, ...] = ()
    collectives: tuple[str, ...] = ()
    dimension: str = ""
    follows: tuple[str, ...] = ()
    effect: float | None = None

    @property
    def change(self) -> str:
        """From old to new in words; a stage or a role has no share."""
        return "" if self.name.startswith("layout.") else change(self.old, self.new)


def causes(old: Lock, new: Lock) -> list[Cause]:
    """Every fact that moved from `old` to `new`, formulas first; whom it touches is still open."""
    found = [*_machines(old, new), *_models(old, new), *_switches(old, new)]
    return [*_formulas(old, new, found), *found, *_inputs(old, new, found), *_tolerance(old, new)]


Facts = Mapping[str, Any]
Change = tuple[str, Any, Any]
"""A fact's name, what it was and what it is."""


def _changed(old: Facts, new: Facts, owner: Callable[[str], str]) -> Iterator[Change]:
    """Facts that differ; those of an owner that only one side has came or went with it, and are no cause."""
    owners = {owner(key) for key in old} & {owner(key) for key in new}
    for key in sorted(keys(old, new)):
        if old.get(key) != new.get(key) and owner(key) in owners:
            yield key, old.get(key), new.get(key)


def _owned(names: Iterable[str]) -> Callable[[str], str]:
    """Which of `names` a dotted fact belongs to; names may have dots of their own."""
    known = sorted(set(names), key=len, reverse=True)
    return lambda key: next((name for name in known if key.startswith(f"{name}.")), key.partition(".")[0])


def _used(lock: Lock, field_name: str) -> set[str]:
    return {str(one.inputs.get(field_name)) for one in lock.scenarios.values()}


def _machines(old: Lock, new: Lock) -> Iterator[Cause]:
    owner = _owned(_used(old, "hardware") | _used(new, "hardware"))
    found = [_of_machine(*one) for one in _changed(old.constants, new.constants, owner)]
    yield from (one for one in found if not one.note.endswith(STILL))
    yield from _together(one for one in found if one.note.endswith(STILL))


def _together(found: Iterable[Cause]) -> Iterator[Cause]:
    """Causes that move no number: those of one source or kind are one."""
    groups: dict[Any, list[Cause]] = {}
    for one in found:
        groups.setdefault((one.old, one.new, one.note), []).append(one)
    for first, *more in groups.values():
        said = f"{first.name} and {len(more)} more" if more else first.name
        yield replace(first, name=said)


def _of_machine(name: str, old: ConstantFact | None, new: ConstantFact | None) -> Cause:
    """A figure or property that moved; where its value stayed, its source or its kind did."""
    if old is None or new is None or old.value != new.value:
        note = "its source moved, too" if old and new and old.source != new.source else ""
        dimension = (new or old or ConstantFact(None, "", "")).dimension
        return Cause("constant", name, old and old.value, new and new.value, note, dimension=dimension)
    if old.source != new.source:
        return Cause("constant", name, old.source, new.source, f"source only: {STILL}")
    return Cause("constant", name, old.kind, new.kind, f"kind only: {STILL}")


STILL = "no number moves"
"""What the note of a fact ends with that makes no number."""


def _models(old: Lock, new: Lock) -> Iterator[Cause]:
    owner = _owned(_used(old, "model") | _used(new, "model"))
    yield from (Cause("model", *one) for one in _changed(old.models, new.models, owner))


def _switches(old: Lock, new: Lock) -> Iterator[Cause]:
    """A default, or a switch of a practice's bundle."""

    def owner(key: str) -> str:
        return ".".join(key.split(".")[: 2 if key.startswith("practice.") else 1])

    yield from (Cause("switch", *one) for one in _changed(old.switches, new.switches, owner))


def _formulas(old: Lock, new: Lock, found: Sequence[Cause]) -> Iterator[Cause]:
    """Formulas whose samples moved; those that are made of another one that moved follow from it."""
    facts = old.formulas, new.formulas
    every = [one for one in _changed(*facts, formula_owner) if not _equal(*facts, one[0])]
    moved = [one for one in every if None not in one]
    names = [name for name, *_ in moved]
    structures = {one.name.split(".levels.")[0] for one in found if _is_structure(one)}
    roots = [one for one in moved if not _follows(one[0], names, structures)]
    following = tuple(name for name in names if name not in {root for root, *_ in roots})
    note = f"{len(following)} formulas made of it follow" if following else ""
    for name, before, after in roots:
        yield Cause("formula", name, *_formula_texts(before, after), note, follows=following)
    yield from _came_and_went(every)


def _came_and_went(found: Sequence[Change]) -> Iterator[Cause]:
    """Formulas of one side, as one cause each way: a number that was there before is not made with a new one."""
    gone = tuple(name for name, _, after in found if after is None)
    came = tuple(name for name, before, _ in found if before is None)
    for names, note in ((gone, "gone"), (came, f"new: {STILL}")):
        if names:
            first, *more = names
            yield Cause("formula", f"{first} and {len(more)} more" if more else first, None, None, note, follows=names)


def _is_structure(cause: Cause) -> bool:
    """True for a property of a machine's level that is no figure: it steers how seconds are made."""
    return cause.kind == "constant" and not cause.dimension and ".levels." in cause.name


def _equal(old: Mapping[str, FormulaFact], new: Mapping[str, FormulaFact], name: str) -> bool:
    """True for a formula that is only written in another way."""
    return name in old and name in new and old[name].samples == new[name].samples


def formula_owner(name: str) -> str:
    """What a formula comes and goes with: a program, a machine's levels, or tpsim itself.

    >>> formula_owner("program.1a2b.flops"), formula_owner("wire.permute")
    ('program.1a2b', 'wire')
    """
    parts = name.split(".")
    return ".".join(parts[:2]) if parts[0] == "program" else ".".join(parts[:-1]) if parts[0] == "seconds" else parts[0]


def _follows(name: str, moved: list[str], machines: set[str]) -> bool:
    """True for a formula that moved because what it is made of did: closed forms of wire bytes, seconds of both."""
    family = name.partition(".")[0]
    made_of = {"form": ("wire.",), "seconds": ("wire.", "form.")}.get(family, ())
    of_machine = family == "seconds" and any(f".{machine}." in name for machine in machines)
    return of_machine or any(other.startswith(made_of) for other in moved if made_of)


def _formula_texts(old: Any, new: Any) -> tuple[Any, Any]:
    """The texts where they tell the difference, else the samples that differ first."""
    texts = (old and old.text, new and new.text)
    if old is None or new is None or (texts[0] != texts[1] and all(texts)):
        return texts[0] or None, texts[1] or None
    pairs = [pair for pair in zip(old.samples, new.samples, strict=False) if pair[0] != pair[1]]
    first = pairs[0] if pairs else (f"{len(old.samples)} samples", f"{len(new.samples)} samples")
    return (f"{texts[0]} (sample {first[0]})" if texts[0] else first[0]), f"sample {first[1]}"


def _tolerance(old: Lock, new: Lock) -> Iterator[Cause]:
    if old.tolerance != new.tolerance:
        yield Cause("tolerance", "tolerance", old.tolerance, new.tolerance, "of times alone")


def _inputs(old: Lock, new: Lock, found: Sequence[Cause]) -> Iterator[Cause]:
    """Fields of scenarios that moved by themselves, equal moves of several scenarios together."""
    groups: dict[tuple[str, Any, Any], list[str]] = {}
    switched = {(one.name, one.old, one.new) for one in found if one.kind == "switch"}
    for name in (name for name in new.scenarios if name in old.scenarios):
        before, after = old.scenarios[name].inputs, new.scenarios[name].inputs
        for key, *values in own_fields(before, after, switched, new):
            groups.setdefault((key, *values), []).append(name)
    for (key, one, other), names in groups.items():
        yield Cause("scenario", key, one, other, scenarios=tuple(names))


def own_fields(old: Facts, new: Facts, switched: set[Change], lock: Lock) -> Iterator[Change]:
    """The fields of one scenario that moved and that no switch and no other field moved."""
    moved = {key: (old.get(key), new.get(key)) for key in keys(old, new) if old.get(key) != new.get(key)}
    base = new.get("practice.base")
    for key, values in moved.items():
        switches = (f"default.{key}", f"practice.{base}.{key.removeprefix('practice.')}")
        explained = any((name, *values) in switched for name in switches)
        bundled = "practice.base" in moved and lock.switches.get(switches[1], MISSING) == values[1]
        if not (explained or bundled or _brought(key, values, moved, switched)):
            yield key, *values


MISSING = object()
"""What no switch is set to."""


def _brought(key: str, values: tuple[Any, Any], moved: Mapping[str, tuple[Any, Any]], switched: set[Change]) -> bool:
    """True for a field that another one brings with it: the structure, the table, the chips, the parameters' dtype."""
    if key == "program":
        return True
    if key.startswith("shardings."):
        return bool(switched) or any(not other.startswith(("shardings.", "program")) for other in moved)
    if key == "chips":
        return any(other.startswith("mesh.") for other in moved)
    return key in {"dtypes.params", "dtypes.products"} and moved.get("dtypes.activations") == values
