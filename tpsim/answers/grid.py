"""Decoding at many batches and contexts at once: the same program and the same costs, evaluated on arrays of sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np

from tpsim.answers.stages import work_of
from tpsim.cost.collectives import travelling
from tpsim.cost.grid import step_s
from tpsim.cost.memory import memory
from tpsim.cost.peak import Courses, highest
from tpsim.cost.rollup import price
from tpsim.program.dims import HELD
from tpsim.quantity.errors import InputError
from tpsim.question.memo import Memo
from tpsim.question.prices import pricer, sizes_of
from tpsim.question.routing import routed
from tpsim.question.scenario import resolve
from tpsim.question.serving import serving_problems
from tpsim.report.answer import Answer
from tpsim.report.record import Of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import ArrayLike, NDArray

    from tpsim.quantity.spec import Document
    from tpsim.question.edits import Flags
    from tpsim.question.question import Inference, Question

    Array = NDArray[np.float64]


def grid(
    scenario: str | Path | Document | Mapping[str, Any] | None = None,
    *,
    batches: ArrayLike,
    contexts: ArrayLike,
    overrides: Sequence[str] = (),
    **flags: Unpack[Flags],
) -> GridResult:
    """Price a step of decoding at every batch with every context.

    scenario   of decoding, as `plan` takes it; its own batch and context stand for those that are given
    overrides  ``path=value`` each, as ``--set`` takes them
    flags      the command line's options by name
    batches    sequences, each a multiple of what the layout splits them into
    contexts   tokens of a sequence that attention reads, new ones included

    Raises InputError for a scenario of another workload, for batches that do not divide, and for what arrays cannot do.
    """
    question = resolve(scenario, overrides=overrides, flags=flags)
    rows, columns = _numbers("batches", batches), _numbers("contexts", contexts)
    work = _check(question, rows, columns)
    b, t = np.broadcast_arrays(rows[:, None], columns[None, :])
    return _priced(question, work, np.ascontiguousarray(b), np.ascontiguousarray(t))


def _numbers(name: str, values: ArrayLike) -> Array:
    """One or several numbers as an array. Raises InputError."""
    try:
        numbers = np.atleast_1d(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError):
        numbers = np.array([np.nan])
    if not np.isfinite(numbers).all():
        raise InputError.one("bad-value", f"{name} are not numbers", remedy=f"write {name}=[8, 16]")
    return numbers


def _priced(question: Question, work: Inference, batch: Array, context: Array) -> GridResult:
    whole = sizes_of(question)
    dims, loads = routed(question, work.read({**whole.dims, "b": batch}, context), whole.axes)
    sizes = replace(whole, dims=dims, peaks=loads)
    lowered = Memo().lowered(question)
    rows = price(travelling(lowered.collectives, question.mesh.axes), sizes, pricer(question))
    steps = work_of(question, lowered, sizes, rows, attributed=False)
    (chunk,) = question.stages.chunks
    full = replace(sizes, dims={**dims, **work.read(dims, context + (work.block - 1) / 2)})
    arrays = memory(lowered.program, full).static_bytes + highest(Courses(lowered.turnover(), full), chunk, "F")
    peak = arrays + question.assume.memory.beside(arrays)
    seconds, peaks = (np.asarray(each + 0 * batch, dtype=np.float64) for each in (step_s(steps)[0], peak))
    return GridResult(question, batch, context, seconds, peaks)


def _check(question: Question, batch: Array, context: Array) -> Inference:
    """The workload. What is no decoding, no number of sequences or tokens, or needs numbers one by one, is refused."""
    work, laid, mesh = question.inference, question.layout, question.mesh
    if work is None or work.kind != "decode":
        message = f"a grid is of steps of decoding, and {question.name} is a workload {question.workload.kind}"
        raise InputError.one("unsupported-grid", message, question.stated.at("workload"), "kind: decode")
    if work.drafted:
        message, place = "drafts cannot be priced in arrays", question.stated.at("workload", "speculation")
        raise InputError.one(
            "unsupported-grid", message, place, "plan them one by one, or search --vary workload.batch"
        )
    if question.schedule or work.microbatches > 1:
        message = "stages, and parts of a batch, cannot be priced in arrays"
        raise InputError.one("unsupported-grid", message, question.stated.at("layout", "pp"), "plan them one by one")
    if question.assume.kernel_launch_s:
        message = "a host that launches kernels one by one cannot be priced in arrays"
        place = question.stated.at("assume", "kernel_launch")
        raise InputError.one("unsupported-grid", message, place, "leave assume.kernel_launch out")
    held = work.read(work.dims(question.model), context).get(HELD, context)
    for dim, name, values in (("b", "batch", batch), ("t", "context", context), ("t", "tokens of a window", held)):
        for ways in sorted({mesh.size(*dims[dim]) for dims in laid.table.values() if dims.get(dim)} | {1}):
            wrong = values[(values % ways != 0) | (values < 1)]
            if wrong.size:
                message = f"{name} {wrong.flat[0]:g} is no multiple of {ways}, into which the layout splits it"
                raise InputError.one("not-divisible", message, remedy=f"write multiples of {ways}")
    if (context < work.seq).any():
        message = f"a context of {context.min():g} tokens is less than the {work.seq} that are new in a step"
        raise InputError.one("too-many-tokens", message, remedy=f"write at least {work.seq}")
    longest = replace(work, longest=int(context.max(initial=0)))
    if problems := (*serving_problems(question.model, longest, question.stated.at, ways=(1, 1, 1), split=False),):
        raise InputError(problems)
    return work


@dataclass(frozen=True)
class GridResult(Answer):
    """Steps of decoding, arrays over batches (rows) and contexts (columns).

    batch, context  sequences, and tokens that attention reads
    step_s          seconds of a step: of a token of every sequence
    peak_bytes      what a chip holds where that is most, assumed overheads included
    """

    schema = "tpsim.grid/1"
    told: ClassVar[tuple[str, ...]] = ("verdict", "rows")
    table = "rows"

    question: Question
    batch: Array
    context: Array
    step_s: Array
    peak_bytes: Array

    files = Of[Any]("question.inputs", "path and sha256 of every file that was read")
    resolved = Of[Any]("question.resolved", "what files, flags and defaults came to")
    assumptions = Of[Any]("question.assumptions", "what the question takes for granted")

    @property
    def tokens_per_s_user(self) -> Array:
        """New tokens of a sequence per second."""
        return np.asarray(self.question.workload.seq / self.step_s)

    @property
    def tokens_per_s_chip(self) -> Array:
        """New tokens of all sequences per second and chip."""
        return np.asarray(self.batch * self.tokens_per_s_user / self.question.mesh.devices)

    @property
    def fits(self) -> NDArray[np.bool_]:
        """True where a chip has room, however little."""
        return np.asarray(self.peak_bytes <= self.question.machine.chip.memory.capacity.value)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per batch and context."""
        columns = ("batch", "context", "step_s", "tokens_per_s_user", "tokens_per_s_chip", "peak_bytes", "fits")
        arrays = [getattr(self, name).ravel().tolist() for name in columns]
        return [dict(zip(columns, row, strict=True)) for row in zip(*arrays, strict=True)]

    @property
    def verdict(self) -> str:
        """How many steps were priced, and the one with most tokens per second and chip that fits."""
        fitting = np.where(self.fits, self.tokens_per_s_chip, 0)
        many = f"{self.question.name}: {self.step_s.size:,} steps of decoding"
        if not self.fits.any():
            return f"{many}, none of which fits"
        at = np.unravel_index(int(fitting.argmax()), fitting.shape)
        best = f"batch {self.batch[at]:,.0f} at {self.context[at]:,.0f} tokens"
        rates = f"{self.tokens_per_s_user[at]:,.1f} tokens/s per user, {self.tokens_per_s_chip[at]:,.0f} per chip"
        return f"{many}, {int(self.fits.sum()):,} of which fit; most per chip at {best}: {rates}"
