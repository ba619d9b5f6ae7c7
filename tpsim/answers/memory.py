"""What the chips of a plan hold over a step, where it is most, and whether it fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tpsim.cost.memory import Memory, bucket_bytes, held_in, spare_bytes
from tpsim.cost.peak import Courses, Peak, peak
from tpsim.program.keeps import margin
from tpsim.quantity.units import show
from tpsim.report.record import Bytes, Count, Number, Of

if TYPE_CHECKING:
    from tpsim.cost.sizes import Sizes
    from tpsim.program.schedules import Action
    from tpsim.program.stages import Chunk
    from tpsim.question.memo import Lowered
    from tpsim.question.question import Question
    from tpsim.question.scenario_file import Overheads

Fit = Literal["fits", "does not fit", "fits only without the assumed overheads", "too close to say"]
"""The answer to the question whether a step fits."""


@dataclass(frozen=True, slots=True)
class ChipMemory(Memory):
    """What a chip of one rank holds, and what it has.

    spare_bytes, bucket_bytes  held all the time beside arrays of a step: by its stack, and in buffers of buckets
    peak_rank, peak_action  where all arrays together are most: the rank of the pipeline, 0 without, and what it runs
    host_capacity_bytes  what its host has for each of its chips, where all of these hold as much
    margin  how far off a peak of this stack may be, as a share
    """

    told: ClassVar[tuple[str, ...]] = (
        *(*Memory.told, "kept_bytes", "working_bytes", "working", "overhead_bytes", "peak_bytes", "peak_rank"),
        *("peak_action", "spare_bytes", "bucket_bytes", "capacity_bytes", "host_capacity_bytes?", "margin", "fits"),
        *("fit", "verdict"),
    )

    capacity_bytes: Bytes
    spare_bytes: Bytes
    bucket_bytes: Bytes
    peak: Peak
    peak_rank: Count
    peak_action: str
    overheads: Overheads
    margin: Number
    host_capacity_bytes: Bytes | None = None

    kept_bytes = Of[Bytes]("peak.kept", "at the peak: of arrays that a later action reads")

    @property
    def working_bytes(self) -> Bytes:
        """At the peak: of all other arrays that microbatches make, what is spare, and buffers."""
        return self.peak.total - self.kept_bytes + self.spare_bytes + self.bucket_bytes

    @property
    def working(self) -> Mapping[str, Bytes]:
        """What these are, in bytes; less than one is what rounding leaves of a part that is gone."""
        buckets = self.peak.parts["buckets"] + self.bucket_bytes
        own = [(part, size) for part, size in self.peak.parts.items() if part not in ("kept", "buckets")]
        return {part: size for part, size in (*own, ("buckets", buckets), ("spare", self.spare_bytes)) if size >= 1}

    @property
    def peak_bytes(self) -> Bytes:
        """What the arrays of a step take together where they are most: allocated, without overheads."""
        return self.static_bytes + self.peak.total + self.spare_bytes + self.bucket_bytes

    @property
    def parts(self) -> Mapping[str, Bytes]:
        """What the peak is made of; nothing is kept for a backward where there is a cache."""
        if self.cache_bytes is not None:
            return {"weights": self.parameters_bytes, "cache": self.cache_bytes, "working": self.working_bytes}
        return {"states": self.static_bytes, "kept": self.kept_bytes, "working": self.working_bytes}

    @property
    def overhead_bytes(self) -> Bytes:
        """What is assumed to stand beside arrays."""
        return self.overheads.beside(self.peak_bytes)

    @property
    def room_bytes(self) -> Any:
        """What a step leaves of the chip's memory, or of its host's if that is less; below 0 it outgrows it."""
        peak_bytes = self.peak_bytes
        own = self.capacity_bytes - float(peak_bytes + self.overheads.beside(peak_bytes))
        return own if self.host_room_bytes is None else min(own, self.host_room_bytes)

    @property
    def host_room_bytes(self) -> float | None:
        """What it leaves of its part of the host's memory; None where nothing is offloaded."""
        if self.host_bytes is None or self.host_capacity_bytes is None:
            return None
        return float(self.host_capacity_bytes - self.host_bytes)

    @property
    def states_fit(self) -> bool:
        """True if what is held from step to step is no more than the chip's memory."""
        return bool(self.static_bytes <= self.capacity_bytes)

    @property
    def fit(self) -> Fit:
        """Whether it fits, as far as a peak of this stack can be trusted."""
        near, far = (self.capacity_bytes * (1 + sign * self.margin) for sign in (-1, 1))
        whole = self.peak_bytes + self.overhead_bytes
        if not self.states_fit or self.peak_bytes > far or (self.host_room_bytes or 0) < 0:
            return "does not fit"
        if whole <= near:
            return "fits"
        overheads_decide = self.peak_bytes <= near and whole > far
        return "fits only without the assumed overheads" if overheads_decide else "too close to say"

    @property
    def fits(self) -> bool | None:
        """True or false; null where overheads decide it, or where it is too close to say."""
        return {"fits": True, "does not fit": False}.get(self.fit)

    @property
    def verdict(self) -> str:
        """Whether it fits, the peak, and what it is made of."""
        listed = ", ".join(f"{name} {show(float(size), 'bytes')}" for name, size in self.parts.items())
        return f"{self.brief} ({listed})"

    @property
    def brief(self) -> str:
        """Whether it fits, and the peak."""
        fit = {"does not fit": "DOES NOT FIT"}.get(self.fit, self.fit)
        beside = f" and overheads of {show(float(self.overhead_bytes), 'bytes')}" if self.overhead_bytes else ""
        capacity, host = show(self.capacity_bytes, "bytes"), ""
        if self.host_bytes is not None and self.host_capacity_bytes is not None:
            held, part = (show(float(each), "bytes") for each in (self.host_bytes, self.host_capacity_bytes))
            host = f", on the host {held} of {part}"
        return f"{fit}: peak {show(float(self.peak_bytes), 'bytes')}{beside} of {capacity}{host}"


def chips(question: Question, lowered: Lowered, sizes: Sizes) -> Iterator[ChipMemory]:
    """What a chip of each rank holds, from a program with one traced layer and cut."""
    stages, buffers = question.stages, held_in(question.practice, question.dtypes.activations)
    whole = int(not question.layout.zero and question.mesh.size(*question.layout.data) > 1)
    capacity = float(question.machine.chip.memory.capacity.value)
    host = None
    if question.practice.offload:
        from tpsim.machine.host import share_bytes

        host = share_bytes(question.machine, question.mesh.devices)
    known: dict[tuple[Chunk, ...], dict[str, Any]] = {}
    for rank, (highest, action) in enumerate(peaks(question, lowered, sizes)):
        here = tuple(replace(chunk, rank=0) for chunk in stages.of(rank))
        if here not in known:  # ranks with chunks alike hold the same
            own, stands = sizes.of_stage(stages.loops(rank)), lowered.standing.on(partial(stages.runs, rank=rank))
            states = stands.memory(own)
            last, tied = any(chunk.last for chunk in here), question.model.tie_embeddings
            spare = spare_bytes(stands.parameters, own, dict(question.practice.keeps), last=last, tied=tied)
            known[here] = {
                "spare_bytes": spare,
                "bucket_bytes": bucket_bytes(buffers, stands.parameters_bytes(own), whole),
                **{field.name: getattr(states, field.name) for field in fields(Memory)},
            }
        yield ChipMemory(
            **known[here],
            capacity_bytes=capacity,
            peak=highest,
            peak_rank=rank,
            peak_action=action,
            overheads=question.assume.memory,
            host_capacity_bytes=host,
            margin=margin(question.practice.keeps).share,
        )


def peaks(question: Question, lowered: Lowered, sizes: Sizes) -> Iterator[tuple[Peak, str]]:
    """Where each rank holds most beside states, and what it runs there."""
    stages, buffers = question.stages, held_in(question.practice, question.dtypes.activations)
    courses = Courses(lowered.turnover(), sizes, question.practice.keeps, buffers)
    for rank, order in enumerate(question.orders.orders):
        highest = peak(courses, question.orders, rank, stages.chunks)
        yield highest, _in_words(order[highest.action], several=len(stages.chunks) > 1)


def fullest(chips: Iterable[ChipMemory]) -> ChipMemory:
    """That of the rank with the least room."""
    return min(chips, key=lambda memory: memory.room_bytes)


def _in_words(action: Action, *, several: bool) -> str:
    """``backward (B, W) of microbatch 3``, with its chunk where there are several."""
    first, acts = action[0], ", ".join(part.act for part in action)
    chunk = f" in chunk {first.chunk}" if several else ""
    name = "forward" if first.act == "F" else "backward"
    return f"{name} ({acts}) of microbatch {first.microbatch}{chunk}"
