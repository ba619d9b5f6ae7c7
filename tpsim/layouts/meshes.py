"""The meshes that a search looks at: every way to share so many chips out among the roles of a layout."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tpsim.layouts.group import ALONE
from tpsim.layouts.layout import SHARDS, Layout, Ways
from tpsim.layouts.reason import Reason, reason_of
from tpsim.layouts.space import CHUNKED, WHOLE
from tpsim.layouts.vary import NAMES
from tpsim.quantity.errors import InputError
from tpsim.quantity.size import divisors
from tpsim.question.divisibility import tp_problems, workload_problems
from tpsim.question.edits import EXPERTS, ROLES, STAGES
from tpsim.question.mesh import mesh_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpsim.layouts.space import Space
    from tpsim.question.memo import Memo
    from tpsim.question.question import Question


def meshes(space: Space, base: Question) -> Iterator[Ways]:
    """All meshes of so many chips, experts on a part of dp; that of the scenario where it is held."""
    if not space.chips:
        roles, mesh = base.layout.roles, base.mesh
        yield Ways(*(mesh.size(*roles.get(role, ())) for role in Ways._fields[:-1]))
        return
    chips, only = space.chips, space.only
    for tp in only["tp"] or divisors(chips):
        for cp in only.get("cp", (ALONE,)) or divisors(chips // tp or 1):
            for pp in only[STAGES] or divisors(chips // (tp * cp) or 1):
                for dp in only["dp"] or (chips // (tp * cp * pp),):
                    if pp * dp * cp * tp == chips:
                        experts = divisors(dp) if base.model.experts else (1,)
                        asked = None if _over_both(space, base) else only[EXPERTS]
                        yield from (Ways(pp, dp, cp, ep, tp) for ep in asked or experts if not dp % ep)


def barred(space: Space, base: Question, ways: Ways, microbatches: int) -> Reason | None:
    """Why every layout of a mesh is refused: `cut` asks heads, then the batch, before all else; None if some may do."""
    stated = base.stated.file.layout
    if base.inference or not space.chips or (stated and (stated.context or stated.cut)):
        return None
    sizes, work = (ways.tp, ways.dp, ways.cp), replace(base.workload, microbatches=microbatches)
    batch = workload_problems(base.model, work, nowhere, ways=sizes, zero=0, split=False)
    first = next((reason_of(problem) for problem in (*tp_problems(base.model, ways.tp, None), *batch)), None)
    return None if first == "sequence-too-long" else first


def nowhere(*_keys: str) -> None:
    """Layouts that are tried stand in no file."""


def hybrid(space: Space, ways: Ways) -> Iterator[Ways]:
    """A mesh with ZeRO over all data shards; or over each part of them that is looked at, with copies on the others."""
    every = ways.dp * ways.cp
    if every == ALONE or SHARDS not in space.only:
        yield ways
        return
    asked = space.only[SHARDS]
    yield from (ways._replace(shards=n if n < every else 0) for n in _shards(ways) if n in (asked or (n,)))


def _shards(ways: Ways) -> Iterator[int]:
    """Over how many devices ZeRO can shard: experts and the tokens of a sequence lie within these."""
    few = ways.ep * ways.cp
    yield from (few * n for n in divisors(ways.dp * ways.cp // few) if few * n > ALONE)


def refuse_no_mesh(spaces: Sequence[Space], bases: Sequence[Question]) -> None:
    """Refuse sizes that are asked for and that no mesh of any space has, where there are meshes. Raises InputError."""
    had: dict[str, set[int]] = {role: set() for role in (*ROLES, SHARDS)}
    for space, base in zip(spaces, bases, strict=True):
        for ways in meshes(space, base) if space.chips else ():
            experts = {ways.ep * (ways.tp if over else 1) for over in over_tp(space, base, ways)}
            sizes = {role: {n} for role, n in ways._asdict().items()} | {EXPERTS: experts, SHARDS: {*_shards(ways)}}
            had = {name: had[name] | sizes[name] for name in had}
    places, only, chips = spaces[0].places, spaces[0].only, sorted({space.chips for space in spaces})
    for role, n in ((name, size) for name in had if had["tp"] for size in only.get(name) or ()):
        if n not in had[role]:
            what = f"ZeRO over {n} of its devices" if role == SHARDS else f"{role} {n}"
            message = f"no mesh of {' or '.join(map(str, chips))} chips that is searched has {what}"
            known = ",".join(map(str, sorted(had[role])))
            remedy = f"search others: --vary {role}={known}" if known else "leave it out"
            raise InputError.one("no-mesh", message, places.get(f"{'.'.join(NAMES[role])}={n}"), remedy)


def over_tp(space: Space, base: Question, ways: Ways) -> list[bool]:
    """Whether experts lie over tp beside their part of dp, each way that is looked at: both of a searched mesh."""
    if not _over_both(space, base):
        return [False]
    devices = {False: ways.ep, True: ways.ep * ways.tp}
    return [over for over, n in devices.items() if n in (space.only[EXPERTS] or (n,)) and over <= (ways.tp > ALONE)]


def _over_both(space: Space, base: Question) -> bool:
    return bool(space.chips and base.model.experts)


def refuse_none(space: Space, base: Question, memo: Memo) -> None:
    """Where no layout can be made: raise what `plan` says of the first that is asked for."""
    file, only, places = base.stated.file, space.only, space.places
    if ways := next(meshes(space, base), None):
        schedule = next(iter(space.values("schedule", CHUNKED, file.pipeline and file.pipeline.schedule)))
        space.question(Layout(*ways, 0, False, "none", schedule, 2, None, ways.pp), memo)
    stated_of = {role: only[role] for role in ROLES if only.get(role)}
    sizes = {role: some[0] for role, some in stated_of.items() if some and (role in WHOLE or some != (ALONE,))}
    left = next((role for role in ("dp", STAGES, "tp") if role not in sizes), "")
    mesh = {axis: sizes.get(role, -1) for role, axis in ROLES.items() if role in {*sizes, left}}
    wrong = sorted(sizes, key=lambda role: not space.chips % sizes[role])
    fallback = next((places[f"mesh.{ROLES[role]}"] for role in wrong), None)
    file = file.model_copy(update={"mesh": mesh, "chips": space.chips})
    mesh_of(file, base.model, lambda *keys: places.get(".".join(keys), fallback))
