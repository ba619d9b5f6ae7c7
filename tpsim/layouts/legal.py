"""The legal layouts of a space: those that `plan` does not refuse, by the same rules; the others counted by reason."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import product
from math import gcd
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from tpsim.algebra.mesh import Mesh
from tpsim.layouts.group import ALONE, Group, Turns
from tpsim.layouts.layout import ZERO_OVER, Bound, Laid, Layout, Parts, Site, Ways
from tpsim.layouts.meshes import barred, hybrid, meshes, nowhere, over_tp
from tpsim.layouts.orders import BALANCED, NEARLY_EVEN, orders
from tpsim.layouts.places import otherwise
from tpsim.layouts.reason import Reason, reason
from tpsim.program.layout import CacheLayout
from tpsim.program.layout import Layout as CutLayout
from tpsim.program.practice import ALL_SHARDED
from tpsim.program.schedules import DEFAULT, MOST_ACTIONS, SCHEDULES
from tpsim.quantity.errors import InputError
from tpsim.quantity.size import divisors
from tpsim.question.context import check_shared
from tpsim.question.edits import EXPERTS, ROLES, STAGES
from tpsim.question.layout import cut
from tpsim.question.pipeline import pipeline
from tpsim.question.recompute import DROPS, check_layers
from tpsim.question.routing import levelled
from tpsim.question.scenario_file import LayoutFields, PipelineFields
from tpsim.question.zero import at_stages

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from tpsim.fabric.placement import Placement
    from tpsim.layouts.space import Space
    from tpsim.question.layout import Also, Cut
    from tpsim.question.memo import Memo
    from tpsim.question.pipeline import Split
    from tpsim.question.question import Question

SHARED = CutLayout({"*": {"s": ("context",)}})
"""A layout that splits sequences."""


@dataclass
class Legal:
    """What a space comes to.

    considered  layouts looked at
    covered     layouts that are not looked at: they split sequences that as many more data shards can take
    refused     reason -> how many of them `plan` refuses
    groups      the others, by the program that they are traced as
    """

    space: Space
    memo: Memo
    considered: int = 0
    covered: int = 0
    refused: Counter[Reason] = field(default_factory=Counter)
    groups: list[Group] = field(default_factory=list)
    _known: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.base = self.space.question(None, self.memo)
        if self.base.workload.global_batch and {"workload.global_batch", "workload.batch"} & {*self.base.left_open}:
            message = "layouts are compared at one batch, and the scenario states none"
            several = "32, or several: --vary batch=8,32,128"
            raise InputError.one(
                "missing-batch", message, remedy=f"add it: --batch {several if self.base.inference else 512}"
            )
        if self.base.planner == "cheapest" and not self.base.inference:
            message = "search bounds layouts by the book's paths, and the planner cheapest takes others for each"
            remedy = "search with --planner book, then plan the best: --planner cheapest"
            raise InputError.one("book-paths-alone", message, self.base.stated.at("planner"), remedy)
        self.file = self.base.stated.file
        self._collect()

    # What there is ----------------------------------------------------------------------------------------------

    def _parts(self, ways: Ways) -> tuple[Sequence[Parts], int]:
        """Numbers of microbatches, together those that a cut of the model does not tell apart; how many are covered."""
        batch, dp = self.base.workload.global_batch, ways.dp
        work = self.base.inference
        some = divisors((1 if work.drafted or work.budget else ways.pp) if work else batch // dp or 1)
        every = self.space.values("microbatches", some, self.base.workload.microbatches)
        parts = [m for m in every if not self._covered(ways, m)]
        covered = len(every) - len(parts)
        if self.base.inference or self.file.shardings or (self.file.layout and self.file.layout.cut):
            return [(m,) for m in parts], covered  # what these, and what caches, split may be sequences
        halves = ([m for m in parts if bool(batch % (dp * m)) == odd] for odd in (False, True))
        return [tuple(half) for half in halves if half], covered

    def _covered(self, ways: Ways, m: int) -> bool:
        """True where a layout that is looked at lays the same tokens on each device, and splits fewer sequences.

        A microbatch of several sequences is split by as many more data shards: nothing else moves than does here, but
        for keys and values, which need not. Not where scores are products of their own: those that sum over queries
        have more tiles here, each of which ends sooner, so that they fill whole waves better.
        """
        batch, uneven = divmod(self.base.workload.global_batch, ways.dp * m)
        tiled = self.base.practice.attention == "plain"
        common = 1 if uneven or tiled or not self.space.chips else gcd(ways.cp, batch)
        instead = {"dp": ways.dp * common, "cp": ways.cp // common}
        return common > 1 and all(n in (self.space.only[role] or (n,)) for role, n in instead.items())

    def _once(self, key: Hashable, compute: Callable[..., Any], *args: Any) -> Any:
        """What `compute` gives, or the reason why it refuses; asked once for equal keys."""
        if key not in self._known:
            try:
                self._known[key] = compute(*args)
            except InputError as error:
                self._known[key] = reason(error)
        return self._known[key]

    # What is legal -----------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Every layout, refused by its first reason or put into the group of its program."""
        known: dict[Hashable, list[tuple[Layout, Laid, Split, Parts]]] = defaultdict(list)
        recomputes, held = self.space.values("recompute", (*DROPS,), ""), self.file.layout or LayoutFields()
        cached = self.base.inference and not self.file.shardings
        caches = self.space.values("cache", get_args(CacheLayout), held.cache or "heads") if cached else ("",)
        for ways in meshes(self.space, self.base):
            turns = orders(self.space, self.base, ways.pp)
            stated = _apart(self.space.values("zero", range(4), held.zero), ways.dp * ways.cp)
            zeros = dict.fromkeys(at_stages(zero, self.base.practice.staged, ways.pp) for zero in stated)
            splits = _apart(self.space.values("sequence_parallel", (False, True), held.sequence_parallel), ways.tp)
            sorts = list(product(_apart(caches, ways.tp), over_tp(self.space, self.base, ways)))
            parts, covered = self._parts_of(ways)
            stages = [(on, zero) for zero in zeros for on in (hybrid(self.space, ways) if zero else (ways,))]
            self.covered += covered * len(recomputes) * len(stages) * len(splits) * len(turns)
            many, free = len(recomputes) * len(stages) * len(splits) * len(sorts) * len(turns), list[Parts]()
            for some in parts:
                if why := barred(self.space, self.base, ways, some[0]):
                    self.considered += many * len(some)
                    self.refused[why] += many * len(some)
                else:
                    free.append(some)
            for (on, zero), sp, served, some in product(stages, splits, sorts, free if turns else ()):
                first = Layout._make((*on, zero, sp, recomputes[0], *turns[0], some[0], *served, ()))
                laids, apart = self._laid(first, some, max(zeros)), ways.pp == ALONE and self._share(zero)
                times = len(recomputes) * (1 if isinstance(laids, Reason) else len(laids))
                self.considered += times * len(some) * len(turns)
                if isinstance(laids, Reason):
                    self.refused[laids] += times * len(some) * len(turns)
                    continue
                for order in turns:
                    layout = first._replace(schedule=order.schedule, chunks=order.chunks, layers=order.layers)
                    split, legal, refused = self._taking_turns(layout, laids[0], some)
                    for why, count in refused.items():
                        self.refused[why] += times * count
                    for laid in laids if legal else ():
                        lies = layout._replace(placement=laid.bound)
                        known[zero, sp, served, apart, laid.table].append((lies, laid, split, legal))
        for cut_alike, members in known.items():
            self.groups += self._groups(cut_alike, recomputes, members)

    def _share(self, zero: int) -> bool:
        """True where the ends of the stack have something in common, so that those of one rank are another program.

        Both use an embedding, or weights that microbatches gather for both are freed at once.
        """
        model, units = self.base.model, self.base.practice.units
        return model.tie_embeddings or model.mtp is not None or (units == "root" and zero == ALL_SHARDED)

    def _taking_turns(self, layout: Layout, laid: Laid, parts: Parts) -> tuple[Split, Parts, Mapping[Reason, int]]:
        """How its stack is cut, with so many microbatches that is legal; of the others the reasons."""
        if layout.pp == ALONE:
            return (), parts, {}
        turns = self._once(("turns", layout.pp, layout.order, parts), self._turns, layout, laid, parts)
        return ((), (), {turns: len(parts)}) if isinstance(turns, Reason) else turns

    def _laid(self, layout: Layout, parts: Parts, zero: int) -> Sequence[Laid] | Reason:
        """The model cut on its mesh: as at the last ZeRO stage that is looked at, but for regions that this one shards.

        What that stage is refused for is no reason to refuse a layout without any.
        """

        def cut_at(zero: int, compute: Callable[..., Any], *args: Any) -> Any:
            return self._once(("laid", *layout.ways, zero, layout.sequence_parallel, *served, parts), compute, *args)

        served, last = (layout.cache, layout.over_tp), layout._replace(zero=zero)
        if not layout.zero < zero:
            return cut_at(layout.zero, self._on_mesh, layout)  # type: ignore[no-any-return]  # put there by it
        laids = cut_at(zero, self._on_mesh, last)
        if isinstance(laids, Reason):
            return laids if layout.zero else cut_at(layout.zero, self._on_mesh, layout)
        return cut_at(layout.zero, _at_zero, laids, layout.zero)  # type: ignore[no-any-return]  # as above

    def _on_mesh(self, layout: Layout) -> list[Laid]:
        """The model cut, and each way in which its mesh is laid on the machine's wires. Raises InputError."""
        also = self._also(layout)
        cut_ = self._cut(layout, also)
        if layout.cp > ALONE or "cp" not in also:
            check_shared(self.base.practice, cut_.layout, self.base.model, nowhere)
        axes, experts = tuple(cut_.mesh.axes.items()), cut_.mesh.size(*cut_.layout.roles.get(EXPERTS, ())) > ALONE
        if isinstance(found := self._once(("placed", axes, experts), self._placed, cut_), Reason):
            raise InputError.one(str(found), found.message)
        laids, first = [], None
        for bound, placement in found:
            try:
                levels = levelled(self.base.practice, cut_.layout, placement, nowhere).levels
                laids.append(Laid(cut_, bound, placement, levels))
            except InputError as error:
                first = first or error
        if first and not laids:
            raise first
        return laids

    def _also(self, layout: Layout) -> list[Also]:
        """What has axes though they be of one device, so that layouts with more of them have the same program."""
        some: Mapping[Also, bool] = {
            "dp": self.base.practice.copies == "fused",  # else a kernel copies what others gather
            "cp": self._context,
            "kv": self._copied and layout.tp > ALONE,
        }
        return [role for role, kept in some.items() if kept and self.space.chips]

    @cached_property
    def _context(self) -> bool:
        """True if some split sequences, as they may, and no heads with them: what kv heads lie on is another then."""
        stated = self.file.layout and self.file.layout.context
        heads = stated and (stated.heads or stated.all == "heads")
        refused = self._once("shared", check_shared, self.base.practice, SHARED, self.base.model, nowhere)
        able = not (heads or refused)
        return able and any(ways.cp > ALONE and self._parts_of(ways)[0] for ways in meshes(self.space, self.base))

    @cached_property
    def _copied(self) -> bool:
        """True if some copy kv heads, and have no fewer arrays, nor calls, for that: see `Practice.under`, `Update`."""
        heads, kv_heads, practice = self.base.model.heads, self.base.model.kv_heads, self.base.practice
        alike = practice.qkv != "fused" and not practice.coalesce and practice.clip == "none"
        return (
            alike
            and kv_heads > 1
            and any(kv_heads < ways.tp and not heads % ways.tp for ways in meshes(self.space, self.base))
        )

    def _parts_of(self, ways: Ways) -> tuple[Sequence[Parts], int]:
        return self._once(("parts", ways.dp, ways.cp, ways.pp), self._parts, ways)  # type: ignore[no-any-return]  # put there

    def _cut(self, layout: Layout, also: Sequence[Also]) -> Cut:
        """How the model is cut over a mesh, with an axis of stages, though it be of one device. Raises InputError."""
        mesh, fields = self.base.stated_mesh, self.file.layout
        if self.space.chips:
            mesh = Mesh(layout.mesh((STAGES, *also)))
            fields, roles = fields or LayoutFields(), layout.roles((STAGES, *also))
            freed = {ZERO_OVER: roles.get(ZERO_OVER), **({} if "cp" in roles else {"context": None})}
            fields = fields.model_copy(update={**freed, **{role: roles.get(role, ()) for role in ROLES}})
        if fields:
            splits = {"sequence_parallel": layout.sequence_parallel, "cache": layout.cache or None}
            fields = fields.model_copy(update={"zero": layout.zero, **splits})
        workload = replace(self.base.workload, microbatches=layout.microbatches)
        if self.base.inference and self.base.inference.fills:
            workload = replace(workload, global_batch=mesh.devices * layout.microbatches)
        file = self.file.model_copy(update={"layout": fields})
        return cut(file, self.base.model, workload, mesh, nowhere, also=also)

    def _placed(self, laid: Cut) -> list[tuple[Bound, Placement]]:
        """Its mesh on the machine's wires, in every way that is looked at. Raises InputError."""
        levels = self.base.machine.levels
        usual = (
            laid.placed(levels, self.space.document.data.get("placement")) if self.space.chips else self.base.placement
        )
        others = otherwise(levels, laid, usual) if "placement" in self.space.only else ()
        return [((), usual), *others]

    def _turns(self, layout: Layout, laid: Laid, parts: Parts) -> tuple[Split, Parts, Mapping[Reason, int]]:
        """The layers of each chunk, with how many microbatches its stages can take turns, and why not with others.

        Raises InputError where they never can.
        """
        rule = layout.layers or "even"
        turns = PipelineFields(schedule=layout.schedule or DEFAULT, chunks=layout.chunks, layers=rule)
        few = replace(self.base.workload, microbatches=layout.pp)  # the orders of all are made where one is planned
        file = self.file.model_copy(update={"pipeline": turns})
        known, split = pipeline(file, self.base.model, laid.cut, nowhere, workload=few, memo=self.memo)
        if not layout.schedule:
            return split, parts, {}
        actions = sum(map(len, known.orders)) // layout.pp if known else 0
        maker = SCHEDULES[layout.schedule]
        held_up = self.base.practice.overlap.blocks_stages(usual=maker.blocking) is True
        reasons = Counter[Reason]()
        legal = []
        for m in parts:
            try:
                maker.suits(layout.pp, m)
                if held_up and m > maker.meets(layout.pp):
                    raise InputError.one("deadlock", f"{layout.schedule} deadlocks with {m} microbatches")
                if actions * m > MOST_ACTIONS:
                    raise InputError.one("too-many-actions", f"{actions * m:,} actions are too many")
                check_layers(self.base.practice, split, nowhere)
                legal.append(m)
            except InputError as error:
                reasons[reason(error)] += 1
        return split, tuple(legal), reasons

    def _groups(
        self, cut_alike: Hashable, recomputes: Sequence[str], members: list[tuple[Layout, Laid, Split, Parts]]
    ) -> Iterator[Group]:
        """Layouts that are cut alike, of each program: its cells are the meshes with the numbers of microbatches."""
        first = next((layout for layout, *_ in members if layout.pp > ALONE), members[0][0])
        first = first._replace(microbatches=next(legal[0] for layout, *_, legal in members if layout == first))
        if first.layers == BALANCED:  # seconds split layers, and not all have a price
            first = first._replace(layers=NEARLY_EVEN)
        laids: dict[Site, Laid] = {}
        legal_of: dict[Site, set[int]] = defaultdict(set)
        of = [layout.site for layout, *_ in members]
        for site, (_, laid, _, legal) in zip(of, members, strict=True):
            laids.setdefault(site, laid)
            legal_of[site].update(legal)
        counts = {site: np.array(sorted(many)) for site, many in legal_of.items()}
        starts = dict(zip(counts, np.cumsum([0, *map(len, counts.values())]).tolist(), strict=False))
        numbers = {site: number for number, site in enumerate(counts)}
        turns = [
            Turns(numbers[site], layout.order, split, starts[site] + np.searchsorted(counts[site], legal))
            for site, (layout, _, split, legal) in zip(of, members, strict=True)
        ]
        on = np.repeat(np.arange(len(counts)), [len(many) for many in counts.values()])
        cells = np.concatenate([*counts.values()]).astype(float)
        several = [self.space] * len(counts)
        for recompute in recomputes:
            one = first._replace(recompute=recompute)
            told, resolve = (cut_alike, recompute, one.pp > ALONE), partial(self._resolved, one, laids)
            yield Group(told, self.base, several, one, resolve, list(counts), on, cells, turns)

    def _resolved(self, first: Layout, laids: Mapping[Site, Laid]) -> tuple[Question, list[Question]]:
        """The question of a layout, and one of each mesh."""
        example = laids[first.site].asked_as(self.space.question(first, self.memo))
        return example, [laid.asked_as(example) for laid in laids.values()]


def _at_zero(laids: Sequence[Laid], stage: int) -> list[Laid]:
    """A model that is cut over one mesh, at an earlier ZeRO stage."""
    cut_ = replace(laids[0].cut, layout=laids[0].cut.layout.at_zero(stage))
    return [replace(laid, cut=cut_) for laid in laids]


def _apart(values: Sequence[Any], devices: int) -> Sequence[Any]:
    """What is no other layout on a single device is looked at once."""
    return values if devices > ALONE else values[:1]
