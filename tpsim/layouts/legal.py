"""The legal layouts of a space: those that `plan` does not refuse, by the same rules; the others counted by reason."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any

from tpsim.algebra.mesh import Mesh
from tpsim.cost.orders import MOST_ACTIONS
from tpsim.fabric.placement import place
from tpsim.layouts.space import CHUNKED, RECOMPUTES, STAGED, Layout
from tpsim.layouts.vary import ROLES
from tpsim.program.schedules import SCHEDULES
from tpsim.quantity.errors import InputError
from tpsim.question.cut import cut
from tpsim.question.divisibility import divisors
from tpsim.question.flags import STAGES
from tpsim.question.mesh import mesh_of
from tpsim.question.pipeline import pipeline
from tpsim.question.recompute import check_layers
from tpsim.question.scenario_file import LayoutFields, PipelineFields

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from tpsim.fabric.placement import Placement
    from tpsim.layouts.space import Space
    from tpsim.question.cut import Cut
    from tpsim.question.pipeline import Split
    from tpsim.question.question import Question
    from tpsim.question.shelf import Shelf

ALONE = 1
"""Ways of a role of one device: what is split over it makes no difference, so one of them is looked at."""


@dataclass(frozen=True)
class Laid:
    """A layout on its mesh: how the model is cut, the layers of each chunk, the axes with their sizes."""

    cut: Cut
    layers: Split
    axes: tuple[tuple[str, int], ...]

    @cached_property
    def table(self) -> Hashable:
        """What its program is made from, but for what is recomputed."""
        table = self.cut.layout.table
        return self.cut.mesh.order, tuple((region, tuple(dims.items())) for region, dims in table.items())


@dataclass(frozen=True, slots=True)
class Group:
    """Legal layouts of one traced program.

    example  the question of the first
    cells    per mesh and number of microbatches that they have: the question that its wires are read off
    layouts  all of them, each with the number of its cell, and the layers of its chunks
    """

    example: Question
    cells: list[Question]
    layouts: list[tuple[int, Layout, Split]]


@dataclass
class Legal:
    """What a space comes to.

    considered  layouts looked at
    refused     reason -> how many of them `plan` refuses
    groups      the others, by the program that they are traced as
    """

    space: Space
    shelf: Shelf
    considered: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    groups: list[Group] = field(default_factory=list)
    _known: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.base = self.space.question(None, self.shelf)
        if self.base.workload.global_batch and "workload.global_batch" in self.base.left_open:
            message = "layouts are compared at one batch, and the scenario states none"
            raise InputError.one("missing-batch", message, remedy="add it: --batch 512")
        self.file = self.base.stated.file
        self._collect()

    # What there is ----------------------------------------------------------------------------------------------

    def _values(self, name: str, all_: Sequence[Any], held: Any) -> Sequence[Any]:
        """The values that a field is looked at: those asked for, else all; one that is held has its own."""
        if name not in self.space.only:
            return (held,)
        return self.space.only[name] or all_

    def _meshes(self) -> Iterator[tuple[int, int, int]]:
        """(pp, dp, tp) of all meshes of so many chips."""
        if not self.space.chips:
            roles, mesh = self.base.layout.roles, self.base.mesh
            yield tuple(mesh.size(*roles.get(role, ())) for role in ROLES)  # type: ignore[misc]  # three
            return
        chips, only = self.space.chips, self.space.only
        for tp in only["tp"] or divisors(chips):
            for pp in only[STAGES] or divisors(chips // tp or 1):
                for dp in only["dp"] or (chips // (tp * pp),):
                    if pp * dp * tp == chips:
                        yield pp, dp, tp

    def refuse_nothing(self) -> None:
        """Where no layout can be made: raise what `plan` says of the first that is asked for."""
        pp, dp, tp = next(self._meshes(), (0, 0, 0))
        if pp:
            stated = self.file.pipeline
            schedule = next(iter(self._values("schedule", CHUNKED, stated and stated.schedule)))
            self.space.question(Layout(pp, dp, tp, 0, False, "none", schedule, 2, pp), self.shelf)
        only, places = self.space.only, self.space.places
        sizes = {role: only[role][0] for role in ROLES if only[role]}  # type: ignore[index]  # not none
        left = next((role for role in ("dp", STAGES, "tp") if role not in sizes), "")
        mesh = {ROLES[role]: sizes.get(role, -1) for role in ROLES if role in {*sizes, left}}
        given = next((places[f"mesh.{ROLES[role]}"] for role in sizes), None)
        file = self.file.model_copy(update={"mesh": mesh, "chips": self.space.chips})
        mesh_of(file, self.base.model, lambda *keys: places.get(".".join(keys), given))

    def _orders(self, pp: int) -> Iterator[tuple[str, int]]:
        """(schedule, chunks) of so many stages."""
        if pp == ALONE:
            yield "", 1
            return
        stated = self.file.pipeline or PipelineFields(chunks=1, layers="even")
        per_stage = self.base.model.layers // pp
        several = [v for v in divisors(per_stage or 1) if v > 1] if not self.base.model.layers % pp else []
        for schedule in self._values("schedule", (*STAGED, *CHUNKED), stated.schedule):
            known = SCHEDULES.get(schedule)
            all_ = several if known and known.several else (1,)
            yield from ((schedule, v) for v in self._values("chunks", all_, stated.chunks))

    def _parts(self, dp: int) -> Sequence[int]:
        batch = self.base.workload.global_batch
        return self._values("microbatches", divisors(batch // dp or 1), self.base.workload.microbatches)

    def _once(self, key: Hashable, found: Callable[..., Any], *args: Any) -> Any:
        """What `found` gives, or the reason why it refuses; asked once for equal keys."""
        if key not in self._known:
            try:
                self._known[key] = found(*args)
            except InputError as error:
                self._known[key] = error.problems[0].slug
        return self._known[key]

    # What is legal -----------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Every layout, refused by its first reason or put into the group of its program."""
        known: dict[Hashable, list[tuple[Layout, Laid]]] = defaultdict(list)
        recomputes = self._values("recompute", RECOMPUTES, "")
        for pp, dp, tp in self._meshes():
            copies = dp * self.base.mesh.size(*self.base.layout.roles.get("cp", ()))
            zeros = self._values("zero", range(4) if copies > ALONE else (0,), self.base.layout.zero)
            splits = self._values(
                "sequence_parallel", (False, True) if tp > ALONE else (False,), self.base.layout.sequence_parallel
            )
            for zero, split, m, (schedule, v) in product(zeros, splits, self._parts(dp), list(self._orders(pp))):
                self.considered += len(recomputes)
                found = self._laid(Layout(pp, dp, tp, zero, split, "", schedule, v, m))
                if isinstance(found, str):
                    self.refused[found] += len(recomputes)
                    continue
                for recompute in recomputes:
                    one = Layout(pp, dp, tp, zero, split, recompute, schedule, v, m)
                    known[zero, recompute, found.table, pp > ALONE].append((one, found))
        self.groups = [self._group(found) for found in known.values()]

    def _laid(self, one: Layout) -> Laid | str:
        """How the model is cut, and its stack; the reason why not."""
        made = self._once(("cut", *one[:5], one.microbatches), self._cut, one)
        if isinstance(made, str):
            return made
        axes = tuple(made.mesh.axes.items())
        placed = self._once(("placed", axes), self._placed, made)
        layers = () if one.pp == ALONE else self._once((one.pp, *one[6:]), self._layers, one, made)
        return next((reason for reason in (placed, layers) if isinstance(reason, str)), None) or self._once(
            ("laid", *one[:5], one.microbatches, layers), Laid, made, layers, axes
        )

    def _cut(self, one: Layout) -> Cut:
        """How the model is cut over a mesh. Raises InputError."""
        if self.space.chips:
            sizes = {ROLES[role]: getattr(one, role) for role in ROLES if role != STAGES or one.pp > ALONE}
            mesh = Mesh(sizes)
            pipe = (ROLES[STAGES],) if one.pp > ALONE else ()
            sends = self.file.layout.cut if self.file.layout else {}
            fields: LayoutFields | None = LayoutFields(pp=pipe, dp=(ROLES["dp"],), tp=(ROLES["tp"],), cut=sends)
        else:
            mesh, fields = self._stated_mesh(), self.file.layout
        if fields:
            fields = fields.model_copy(update={"zero": one.zero, "sequence_parallel": one.sequence_parallel})
        workload = replace(self.base.workload, microbatches=one.microbatches)
        return cut(self.file.model_copy(update={"layout": fields}), self.base.model, workload, mesh, _nowhere)

    def _stated_mesh(self) -> Mesh:
        """The mesh before an axis of it was split for kv heads."""
        sizes: dict[str, int] = {}
        for axis, size in self.base.mesh.axes.items():
            whole = self.base.axis_parents.get(axis, axis)
            sizes[whole] = sizes.get(whole, 1) * size
        return Mesh(sizes)

    def _placed(self, made: Cut) -> Placement:
        """Its mesh on the machine's wires. Raises InputError."""
        if not self.space.chips:
            return self.base.placement
        stated, wholes = self.file.placement or {}, {axis: made.parents.get(axis, axis) for axis in made.mesh.axes}
        binding = {axis: stated[whole] for axis, whole in wholes.items() if whole in stated}
        return place(self.base.machine.levels, made.mesh, binding or None, alone=True)

    def _layers(self, one: Layout, made: Cut) -> Split:
        """The layers of each chunk. Raises InputError where its stages cannot take turns."""
        stated = {} if self.file.pipeline is None else {"layers": self.file.pipeline.layers}
        turns = PipelineFields(schedule=one.schedule, chunks=one.chunks, **stated)
        few = replace(self.base.workload, microbatches=one.pp)  # the orders of all are made where one is planned
        file = self.file.model_copy(update={"pipeline": turns})
        known, layers = pipeline(file, self.base.model, made, _nowhere, workload=few, shelf=self.shelf)
        SCHEDULES[one.schedule].suits(one.pp, one.microbatches)
        actions = sum(map(len, known.orders)) // one.pp * one.microbatches if known else 0
        if actions > MOST_ACTIONS:
            raise InputError.one("too-many-actions", f"{actions:,} actions are too many")
        check_layers(self.base.practice, layers, _nowhere)
        return layers

    def _group(self, found: list[tuple[Layout, Laid]]) -> Group:
        """Layouts of one program: its cells are the meshes and numbers of microbatches that they have."""
        example = self.space.question(found[0][0], self.shelf)
        numbers: dict[Hashable, int] = {}
        cells: list[Question] = []
        layouts = []
        for layout, laid in found:
            key = (layout.pp, layout.dp, layout.tp, layout.microbatches)
            if key not in numbers:
                numbers[key] = len(cells)
                cells.append(self._cell(example, layout, laid))
            layouts.append((numbers[key], layout, laid.layers))
        return Group(example, cells, layouts)

    def _cell(self, example: Question, layout: Layout, laid: Laid) -> Question:
        """The example on another mesh, with other microbatches."""
        workload, made = replace(example.workload, microbatches=layout.microbatches), laid.cut
        return replace(
            example,
            mesh=made.mesh,
            axis_parents=made.parents,
            placement=self._known["placed", laid.axes],
            layout=made.layout,
            workload=workload,
        )


def _nowhere(*_keys: str) -> None:
    """Layouts that are tried stand in no file."""
