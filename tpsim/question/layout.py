"""The layout that a scenario states, on the mesh it needs: axes and their roles, kv heads split off, or a table."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd
from typing import TYPE_CHECKING, Any, Literal

from tpsim.fabric.placement import place
from tpsim.program.dims import DIMS, HELD
from tpsim.program.layout import REGIONS, Layout, cache_row, layout
from tpsim.quantity.errors import At, InputError, Problem, did_you_mean, unknown
from tpsim.question.context import context_problems, heads_axes
from tpsim.question.divisibility import (
    legal_text,
    split_heads,
    table_problems,
    tp_place,
    tp_problems,
    whole_dims,
    workload_problems,
)
from tpsim.question.question import Inference, Workload
from tpsim.question.routing import expert_axes, expert_problems
from tpsim.question.scenario_file import LayoutFields, ScenarioFile
from tpsim.question.serving import cache_problems, choice_problems, serving_problems
from tpsim.question.zero import (
    LATENTS,
    STATES,
    latent_notes,
    led,
    line_of,
    parts_of_latents,
    sharded_over,
    shared_by_microbatches,
    state_notes,
    whole_notes,
)
from tpsim.report.answer import Assumption

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from tpsim.algebra.mesh import Mesh
    from tpsim.algebra.moves import Axes
    from tpsim.fabric.placement import Binding, Placement
    from tpsim.fabric.wires import Wires
    from tpsim.program.model import Model


Also = Literal["cp", "dp", "kv"]
"""What may have axes in a table though they be of one device: tokens of a sequence, gradients and states of experts,
copies of kv heads, which get a part of the axis of tp."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The mesh after splits, where split axes came from, the layout on it, and what had to be assumed."""

    mesh: Mesh
    parents: Mapping[str, str]
    layout: Layout
    assumptions: tuple[Assumption, ...]

    def placed(self, levels: Sequence[Wires], binding: Binding | None) -> Placement:
        """Its mesh on wires of its own, by what a binding says of its axes, whole ones. Raises InputError."""
        own = {axis: on for axis, on in (binding or {}).items() if axis in self.mesh.unsplit(self.parents).axes}
        return place(levels, self.mesh, own, alone=True, parents=self.parents)


def cut(
    file: ScenarioFile, model: Model, workload: Workload, mesh: Mesh, at: At, *, also: Collection[Also] = ()
) -> Cut:
    """The layout that the scenario states, as roles or as a table, on the mesh it needs.

    also  what has its axes there though they be of one device; a plan leaves it out
    Raises InputError for unknown axes, an axis with two roles, and every split that does not come out even.
    """
    if file.layout is not None and file.shardings is not None:
        raise InputError.one(
            "layout-twice",
            "layout and shardings are given, and layout is short for a table of shardings",
            at("shardings"),
            "keep one of both",
        )
    if file.layout and file.layout.cache and workload.kind == "train":
        message = "layout.cache says nothing of training: it has no cache"
        raise InputError.one("not-for-training", message, at("layout", "cache"), "remove layout.cache")
    if file.shardings is not None:
        return _cut_by_table(file, model, workload, mesh, at)
    return _cut_by_roles(file, model, workload, mesh, at, also=also)


def _cut_by_roles(
    file: ScenarioFile, model: Model, workload: Workload, mesh: Mesh, at: At, *, also: Collection[Also]
) -> Cut:
    stated = file.layout or LayoutFields()
    tp, dp, cp = stated.tp, stated.dp, stated.cp
    _check_axes({"tp": tp, "dp": dp, "cp": cp, "pp": stated.pp}, mesh, at)
    for axis in stated.zero_over or ():
        known_axis(axis, mesh, at, "layout", "zero_over")
    fields = shared_by_microbatches(file, stated, mesh)
    heads = heads_axes(fields, at)
    for role, axes in (("ep", fields.ep), ("etp", fields.etp or ())):
        for axis in axes:
            known_axis(axis, mesh, at, "layout", role)
    ep, etp = expert_axes(fields, model, at)
    sizes = {**workload.at_peak.dims(model), "b": max(1, workload.sequences)}
    sends = {"cut": fields.cut}
    _check_table(sends, mesh, sizes, lambda *keys: at("layout", *keys[1:]))
    ways, shards, sharing = mesh.size(*tp), mesh.size(*dp), mesh.size(*cp)
    split_over = {"tp": tp, "cp": cp, "heads": heads, "ep": ep, "etp": etp}
    tp, cp, heads, ep, etp = (axes if role in also or mesh.size(*axes) > 1 else () for role, axes in split_over.items())
    over = sharded_over(stated, at)
    copies = mesh.size(*over)
    zero = fields.zero if copies > 1 else 0
    line = line_of(file, sizes, copies) if zero else "none"
    bare = zero if line == "none" else 0
    cached = cache_row(fields.cache or "heads", tp=tp, dp=dp)
    splits: dict[str, Any] = {"ways": (ways, shards, sharing), "split": fields.sequence_parallel}
    _raise_all(
        (
            *tp_problems(model, ways, tp_place(tp, at)),
            *_work_problems(model, workload, at, zero=bare, shards=copies, **splits),
            *(context_problems(file, model, workload, mesh, at, cp=cp, inside=(*tp, *heads) if heads else ())),
            *expert_problems(model, mesh, at, ep=ep, etp=etp),
            *table_problems(sends, mesh, sizes, lambda *keys: at("layout", *keys[1:])),
            *cache_problems(cached, mesh, _even(model, workload, sizes), at),
            *choice_problems(model, cached, mesh, at("layout", "cache")),
        )
    )
    split = _split_kv_heads(model, (*tp, *heads), mesh, at, always="kv" in also)
    left = whole_dims(model, tp=ways, dp=copies, etp=mesh.size(*etp)) if bare else ()
    parts = parts_of_latents(sizes, mesh, over, model.heads // ways) if bare and model.has_latents else {}
    besides: list[str] = [dim for dim in LATENTS if dim in sizes and dim not in parts]
    besides += [dim for dim in STATES if dim in sizes and not sizes[dim] % copies]
    if model.experts and model.experts.bias and "y" not in left:
        besides.append("y")
    roles = {"tp": tp, "cp": cp, "heads": heads, "ep": ep, "etp": etp, "sharding": over}
    idle = led(model) - ({"d"} if parts else set())  # where a latent leaves axes to others
    rest: dict[str, Any] = {"whole": idle.union(left), "line": line, "besides": besides, "parts": parts}
    rest |= {"experts": bool(model.experts), "latents": model.has_latents, "states": split_heads(model, ways)}
    layout = _laid_out(fields, split, roles, also, **rest)
    if cached:
        layout = Layout({**layout.table, "cache": split.renamed(cached)})
    notes = (
        *whole_notes(model, left, copies, (stated.zero, fields.zero), some=stated.zero_over is not None),
        *latent_notes(parts, mesh, over),
        *state_notes(sizes, copies if bare else 1),
    )
    return Cut(split.mesh, split.parents, layout, (*split.assumptions, *notes))


def _even(model: Model, workload: Workload, sizes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Sizes of which a cache's parts are equal: drafts, and what blocks lack, are as even as they can be."""
    if not isinstance(workload, Inference) or workload.even == workload:
        return sizes
    even = workload.even.at_peak.dims(model)
    return {**sizes, **{dim: even[dim] for dim in ("t", HELD) if dim in even}}


def _laid_out(
    fields: LayoutFields, split: _KvSplit, several: Mapping[str, Axes], also: Collection[Also], **rest: Any
) -> Layout:
    """The layout of roles on a mesh whose axes have been split for kv heads.

    ZeRO takes the data axes that experts lie on, and the others if these are of several devices: over one device it
    would gather what is whole.

    several  the axes of every role but those of dp and pp, none where they are of one device: these would be asked for
             sums and rows that are complete; and those that ZeRO shards over
    rest     as `layout` takes it
    """
    roles: dict[str, Any] = {**split.renamed(several)}
    over = roles.pop("sharding")
    data = tuple(axis for axis in (*fields.dp, *roles["cp"]) if axis in over)
    left = [axis for axis in data if axis not in roles["ep"]]
    all_ = split.mesh.size(*left) > 1 or ("dp" in also and len(left) < len(data))
    return layout(
        dp=fields.dp,
        sharding=data if all_ else tuple(axis for axis in data if axis not in left),
        pp=fields.pp,
        zero=fields.zero,
        sequence_parallel=fields.sequence_parallel and bool(roles["tp"]),
        cut=split.renamed(fields.cut),
        kv_split=split.kv_split,
        **roles,
        **rest,
    )


def _work_problems(
    model: Model, workload: Workload, at: At, *, zero: int, shards: int = 0, **split: Any
) -> Iterator[Problem]:
    """What of the workload does not divide."""
    if isinstance(workload, Inference):
        return serving_problems(model, workload, at, **split)
    return workload_problems(model, workload, at, zero=zero, shards=shards, **split)


@dataclass(frozen=True, slots=True)
class _KvSplit:
    """The mesh after kv heads have been split off, and how many leading axes of heads shard them (None: all)."""

    mesh: Mesh
    kv_split: int | None = None
    parents: Mapping[str, str] = field(default_factory=dict)
    assumptions: tuple[Assumption, ...] = ()

    def renamed(self, row: Mapping[str, Axes]) -> Mapping[str, Axes]:
        """Dims and their axes, each axis that has been split as its parts, in the order of the mesh."""
        return {dim: tuple(part for axis in axes for part in self._parts(axis)) for dim, axes in row.items()}

    def _parts(self, axis: str) -> Axes:
        return tuple(part for part in self.mesh.axes if self.parents.get(part, part) == axis)


def _split_kv_heads(model: Model, heads: Axes, mesh: Mesh, at: At, *, always: bool = False) -> _KvSplit:
    """Kv heads fewer than the ways to split heads lie on the leading axes and are replicated over the rest.

    One axis is split if needed. Legal because the kv heads divide the ways, as `tp_problems` and `context_problems`
    have found.

    heads   the axes of tp, then those of cp that split heads inside attention
    always  one axis is split though there are kv heads for all of it: the second part is one device then
    """
    ways = mesh.size(*heads)
    if not model.kv_heads % ways and not always:
        return _KvSplit(mesh)
    left, leading = gcd(model.kv_heads, ways), 0
    for axis in heads:
        if always or left % mesh.axes[axis]:
            break
        left //= mesh.axes[axis]
        leading += 1
    text = f"{model.kv_heads} kv heads over tp {ways}: keys and values are split {model.kv_heads} ways and replicated "
    text += f"{ways // model.kv_heads} times"
    if left == 1:
        rest = ", ".join(heads[leading:])
        return _KvSplit(mesh, leading, {}, (Assumption(f"{text} over {rest}", "derived"),))
    axis = heads[leading]
    if mesh.axes[axis] % left:
        raise InputError.one(
            "kv-heads-not-divisible",
            f"{model.kv_heads} kv heads do not fill the leading tp axes evenly",
            at("layout", "tp"),
            legal_text(model),
        )
    kv, rep = f"{axis}_kv", f"{axis}_rep"
    if taken := {kv, rep} & set(mesh.axes):
        raise InputError.one("axis-name-taken", f"axis {axis} must be split and {min(taken)} exists", at("mesh", axis))
    factors = {kv: left, rep: mesh.axes[axis] // left}
    note = f"{text}; mesh axis {axis} {mesh.axes[axis]} is read as {kv} {left} x {rep} {factors[rep]}"
    parents = {kv: axis, rep: axis}
    return _KvSplit(mesh.split(axis, factors), leading + 1, parents, (Assumption(note, "derived"),))


def _check_axes(roles: Mapping[str, Axes], mesh: Mesh, at: At) -> None:
    seen: dict[str, str] = {}
    for role, axes in roles.items():
        for axis in axes:
            known_axis(axis, mesh, at, "layout", role)
            if axis in seen:
                both = role if seen[axis] == role else f"{seen[axis]} and {role}"
                raise InputError.one(
                    "axis-used-twice",
                    f"mesh axis {axis} is used twice, in {both}",
                    at("layout", role),
                    "an axis has one role; split it in the mesh to share it",
                )
            seen[axis] = role


def known_axis(axis: str, mesh: Mesh, at: At, *keys: str) -> None:
    """Refuse a name that no mesh axis has."""
    if axis in mesh.axes:
        return
    number = axis.removeprefix("-").isdecimal()
    sizes = f"write its name here and its size in the mesh: mesh: {{NAME: {axis}}}"
    remedy = sizes if number else did_you_mean(axis, mesh.axes)
    raise InputError.one(
        "unknown-axis",
        f'"{axis}" is not a mesh axis' + (": layout names axes, the mesh sizes them" if number else ""),
        at(*keys),
        remedy,
        "axes of this mesh: " + ", ".join(mesh.axes),
    )


def _cut_by_table(file: ScenarioFile, model: Model, workload: Workload, mesh: Mesh, at: At) -> Cut:
    table = file.shardings or {}
    sizes = {**workload.at_peak.dims(model), "b": max(1, workload.sequences)}
    _check_table(table, mesh, sizes, at)
    heads = {**table.get("*", {}), **table.get("heads", {})}
    if all(mesh.size(*heads.get(dim, ())) > 1 for dim in ("s", "t")):
        raise InputError.one(
            "not-supported-yet",
            "heads split tokens as queries (s) and as keys (t): which device a mask leaves most scores is not counted",
            at("shardings", "heads" if "t" in table.get("heads", {}) else "*", "t"),
            "split one of both",
        )
    layout = Layout({region: dict(dims) for region, dims in table.items()})
    shards, cp = mesh.size(*layout.roles["dp"]), layout.roles.get("cp", ())
    problems = _work_problems(model, workload, at, ways=(1, shards, 1), zero=0, split=False)
    shared = context_problems(file, model, workload, mesh, at, cp=cp)
    chosen = choice_problems(model, table.get("cache", {}), mesh, at("shardings", "cache", "t"))
    _raise_all((*problems, *shared, *chosen, *table_problems(table, mesh, _even(model, workload, sizes), at)))
    return Cut(mesh, {}, layout, ())


def _check_table(table: Mapping[str, Mapping[str, Axes]], mesh: Mesh, sizes: Mapping[str, int], at: At) -> None:
    split = [name for name, dim in DIMS.items() if dim.split and name in sizes]
    for region, entries in table.items():
        if region not in REGIONS:
            raise unknown(region, "region of a sharding table", REGIONS, at("shardings", region), listing="regions")
        for dim, axes in entries.items():
            if dim not in split:
                place = at("shardings", region, dim)
                raise unknown(dim, "dim of a sharding table", split, place, listing="dims")
            for axis in axes:
                known_axis(axis, mesh, at, "shardings", region, dim)
            if len(set(axes)) < len(axes):
                raise InputError.one(
                    "axis-used-twice",
                    f"{dim} names a mesh axis twice",
                    at("shardings", region, dim),
                    "an axis splits a dim once",
                )


def _raise_all(problems: Sequence[Problem]) -> None:
    if problems:
        raise InputError(tuple(problems))
