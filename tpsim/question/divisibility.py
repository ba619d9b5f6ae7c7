"""Which layouts a model can take: every split must come out even, and what does not is refused with what would."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tpsim.program.dims import DIMS
from tpsim.quantity.errors import At, InputError, Place, Problem
from tpsim.quantity.size import divisors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tpsim.algebra.mesh import Mesh
    from tpsim.program.model import Model
    from tpsim.question.question import Workload
    from tpsim.question.scenario_file import ScenarioFile


def legal_tp(model: Model) -> list[int]:
    """The sizes that tensor parallelism of a model can have, its vocabulary aside, which is padded."""
    return [t for t in divisors(model.heads) if not [*_uneven(model, t)]]


def legal_text(model: Model) -> str:
    """Those sizes, as a remedy says them."""
    return "legal tp: " + listed(legal_tp(model))


def next_multiple(number: int, of: int) -> int:
    """The least multiple of `of` that is not below `number`.

    >>> next_multiple(50257, 8)
    50264
    """
    return -(-number // of) * of


def tp_place(tp: tuple[str, ...], at: At) -> Place | None:
    """Where the size of tp is stated: in the mesh if it is one axis, else where its axes are listed."""
    return at("mesh", tp[0]) if len(tp) == 1 else at("layout", "tp")


def tp_problems(model: Model, tp: int, place: Place | None) -> Iterator[Problem]:
    """What of the model does not divide by `tp`, which stands at `place`; if all else does, the vocabulary."""
    uneven = [*_uneven(model, tp)]
    for slug, message, note in uneven:
        yield Problem(slug, message, place, legal_text(model), note)
    if model.vocab_padded % tp and not uneven:
        padded = next_multiple(model.vocab, tp)
        yield Problem(
            "vocabulary-not-divisible",
            f"vocabulary {model.vocab_padded} of {model.name} is not divisible by tp {tp}",
            place,
            f"pad it: --set model.vocab_padded={padded}, or vocab_padded: {padded} in the model file",
            f"{padded} is the next multiple of {tp}",
        )


def _uneven(model: Model, tp: int) -> Iterator[tuple[str, str, str]]:
    """Slug, message and note of what cannot be split `tp` ways: heads, kv heads, ffn, shared experts."""
    if model.heads % tp:
        yield "heads-not-divisible", f"{model.heads} heads are not divisible by tp {tp}", ""
    elif model.kv_heads % tp and tp % model.kv_heads:
        message = f"{model.kv_heads} kv heads are neither divisible by tp {tp} nor divide it"
        yield "kv-heads-not-divisible", message, "kv heads that divide tp are replicated over the rest"
    if model.linear and not split_heads(model, tp):
        several = " and ".join(
            sorted({f"{block.heads} heads of {block.key_heads} key heads" for block in model.linear})
        )
        message = f"linear attention's {several} are not divisible by tp {tp}"
        yield (
            "heads-not-divisible",
            message,
            "tp splits key heads, or those of each key head, which all chips have then",
        )
    if model.ffn_hidden % tp:
        yield "ffn-not-divisible", f"ffn hidden {model.ffn_hidden} is not divisible by tp {tp}", ""
    if model.experts and (shared := model.experts.shared or 0) % tp:
        yield "experts-not-divisible", f"hidden size of shared experts {shared} is not divisible by tp {tp}", ""


def split_heads(model: Model, tp: int) -> str:
    """The dim of linear attention's heads that tp splits: of key heads, else of those of each; "" if neither does."""
    dims = [block.sizes for block in model.linear]
    return next((dim for dim in ("lg", "lr") if dims and not any(sizes[dim] % tp for sizes in dims)), "")


def workload_problems(
    model: Model, workload: Workload, at: At, *, ways: tuple[int, int, int], zero: int, split: bool, shards: int = 0
) -> Iterator[Problem]:
    """What of the workload does not divide: the batch by dp and microbatches, the sequence by tp, hidden by shards.

    ways    the sizes of tp, dp and cp; cp splits the sequence, too
    zero    the ZeRO stage that splits hidden; 0 where parameters are filled up
    split   True under sequence parallelism
    shards  that ZeRO splits hidden over
    """
    tp, dp, cp = ways
    shared = f" x cp {cp}" if cp > 1 else ""
    batch, parts = workload.global_batch, dp * workload.microbatches
    if batch % parts:
        legal = "" if batch % dp else f"microbatches: {listed(divisors(batch // dp))}"
        too_many = legal and batch < parts
        yield Problem(
            "batch-not-divisible",
            f"global_batch {batch} is not divisible by dp {dp} x microbatches {workload.microbatches} = {parts}",
            at("workload", "microbatches" if too_many else "global_batch"),
            f"write {legal}" if too_many else ", or ".join(filter(None, (f"write {nearest(batch, parts)}", legal))),
        )
    if split and workload.seq % (tp * cp):
        yield Problem(
            "sequence-not-divisible",
            f"seq {workload.seq} is not divisible by tp {tp}{shared}, which sequence_parallel splits it over",
            at("workload", "seq"),
            f"write {nearest(workload.seq, tp * cp)}, or sequence_parallel: false",
        )
    if model.positions == "learned" and model.max_positions and workload.seq > model.max_positions:
        yield Problem(
            "sequence-too-long",
            f"seq {workload.seq} is longer than the {model.max_positions} positions that {model.name} has learned",
            at("workload", "seq"),
            f"write at most {model.max_positions}",
        )
    if zero and model.hidden % shards:
        some = shards != dp * cp
        noun = "shards" if some else f"dp{' x cp' if shared else ''}"
        yield Problem(
            "hidden-not-divisible",
            f"hidden {model.hidden} is not divisible by "
            + (f"the {shards} shards of zero_over" if some else f"dp {dp}{shared}, which zero {zero} splits it over"),
            at("layout", "zero_over" if some else "dp"),
            f"legal {noun}: {listed(divisors(model.hidden))}; or zero: 0",
            "practice: {padding: flat} fills parameters up",
        )


def table_problems(
    table: Mapping[str, Mapping[str, Sequence[str]]], mesh: Mesh, sizes: Mapping[str, int], at: At
) -> Iterator[Problem]:
    """The (region, dim) entries of a sharding table whose dim does not divide by its axes."""
    for region, dims in table.items():
        for dim, axes in dims.items():
            ways = mesh.size(*axes)
            if sizes[dim] % ways:
                factors = " x ".join(f"{axis} {mesh.axes[axis]}" for axis in axes)
                yield Problem(
                    "not-divisible",
                    f"{dim} = {sizes[dim]} ({DIMS[dim].meaning}) is not divisible by {factors}",
                    at("shardings", region, dim),
                    "legal: " + listed(divisors(sizes[dim])),
                )


def whole_dims(model: Model, *, tp: int, etp: int, dp: int) -> tuple[str, ...]:
    """Dims that ZeRO leaves whole for want of divisibility: those of biases that are too short for dp.

    These are the head dim and the ffn dim, and that of experts where they have biases.
    """
    candidates = {"d": (model.head_dim, dp), "f": (model.ffn_hidden, tp * dp)}
    if model.experts and model.experts.bias:
        candidates["y"] = (model.experts.hidden, etp * dp)
    return tuple(dim for dim, (size, ways) in candidates.items() if size % ways)


def nearest(number: int, of: int) -> str:
    """The multiples of `of` on either side of `number`."""
    above = next_multiple(number, of)
    below = above - of
    return f"{below} or {above}" if below > 0 else str(above)


def listed(numbers: Sequence[int]) -> str:
    """Numbers as a remedy lists them."""
    return ", ".join(map(str, numbers))


def with_legal_tp(
    error: InputError, file: ScenarioFile, model: Model, lay: Callable[[ScenarioFile], object]
) -> InputError:
    """The refusal of a tp, with those sizes of the model's that the rest of the scenario can be laid out with first.

    lay  lays out a scenario. Raises InputError for one that cannot be
    Where tp takes several axes, or no size helps, all that the model can have are listed, as they were.
    """
    every, told, axes = legal_tp(model), legal_text(model), file.layout.tp if file.layout else ()
    if len(axes) != 1 or all(problem.remedy != told for problem in error.problems):
        return error
    here = [tp for tp in every if _lies(file.model_copy(update={"mesh": {**file.mesh, axes[0]: tp}}), lay)]
    others = [tp for tp in every if tp not in here]
    if not here or not others:
        return error
    remedy = f"legal tp: {listed(here)}; with other sizes beside it also {listed(others)}"
    return InputError(
        replace(problem, remedy=remedy) if problem.remedy == told else problem for problem in error.problems
    )


def _lies(file: ScenarioFile, lay: Callable[[ScenarioFile], object]) -> bool:
    try:
        lay(file)
    except InputError:
        return False
    return True
