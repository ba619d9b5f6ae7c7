"""The verb `verify`: runs scenarios on simulated devices at reduced size and holds every claim of their plans to it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tpsim.algebra.mesh import sized
from tpsim.algebra.moves import HOMEWARD
from tpsim.answers.derivation import values
from tpsim.answers.plan import PlanResult, priced
from tpsim.claims.cache_claims import cache_check
from tpsim.claims.checks import (
    Check,
    Verified,
    VerifyResult,
    arising,
    blocks_check,
    slopes_check,
    stopped,
    value_checks,
)
from tpsim.claims.claims import (
    Claim,
    Ledger,
    collectives_check,
    formulas,
    formulas_check,
    links_check,
    memory_check,
    ran,
)
from tpsim.claims.shrink import shrink
from tpsim.claims.trial import Stopped, Trial, dims_of, exact_bytes, injected, made, trial
from tpsim.cost.formula import evaluated
from tpsim.program.kinds import ALIKE
from tpsim.program.op import Leaf, Program
from tpsim.quantity import spec
from tpsim.quantity.size import over
from tpsim.question.folders import guarded
from tpsim.question.memo import Memo
from tpsim.question.prices import route_over
from tpsim.question.scenario import resolve
from tpsim.question.serving_file import PROMPTS
from tpsim.reference.compare import Misaligned, compared, slopes
from tpsim.reference.run import label
from tpsim.report.numbers import counted

if TYPE_CHECKING:
    from tpsim.answers.stages import Pipeline
    from tpsim.cost.rollup import Row
    from tpsim.quantity.progress import Progress
    from tpsim.quantity.spec import Document
    from tpsim.question.edits import Flags
    from tpsim.question.question import Question


def verify(
    *scenarios: str | Path | Document | Mapping[str, Any],
    overrides: Sequence[str] = (),
    progress: Progress | None = None,
    **flags: Unpack[Flags],
) -> VerifyResult:
    """Run every scenario at reduced size on simulated devices and hold its plan to what they do.

    scenarios  files, folders of them, library names or their content; every one is read before the first is run
    overrides  ``path=value`` each, for all of them, as ``--set`` takes them
    flags      as `plan` takes them, for all of them; without a scenario they ask the question
    progress   told before each run

    Raises InputError for a scenario that cannot be asked or cannot be shrunk.
    """
    documents = [document for scenario in scenarios for document in _inside(scenario)] if scenarios else [None]
    questions = [resolve(scenario, overrides=overrides, flags=flags) for scenario in documents]
    runs = []
    for done, question in enumerate(questions):
        if progress is not None:
            progress(done, len(questions), question.name)
        runs += [verified(question), *([of_prompts(question.prompts)] if question.prompts else [])]
    return VerifyResult(tuple(runs), tuple(dict.fromkeys(file for question in questions for file in question.inputs)))


def _inside(scenario: str | Path | Document | Mapping[str, Any]) -> Iterator[str | Path | Document | Mapping[str, Any]]:
    """The scenarios of a folder, else the one that is named; a library name comes before a folder called alike."""
    known = isinstance(scenario, str) and (not scenario or scenario in spec.names("scenarios"))
    if isinstance(scenario, str | Path) and not known and Path(scenario).is_dir():
        yield from guarded([str(scenario)], Path()).values()
    else:
        yield scenario


def verified(question: Question) -> Verified:
    """One question, made small, planned, run and judged."""
    memo = Memo()
    small, full = shrink(question, memo), priced(question, memo)
    try:
        seen = trial(small, full)
        arrays = tuple(compared(seen.sharded, seen.whole))
    except (Stopped, Misaligned) as error:
        return _verdict(question, small, [stopped(error)])
    lost = tuple(_not_home(seen.sharded.program))
    right = (*value_checks(arrays), blocks_check(arrays, lost), slopes_check(tuple(slopes(seen.whole))))
    cached = (cache_check(small, work),) if (work := small.inference) and work.serving.phase == "decode" else ()
    checks, notes = [*right, *_claims(seen), *cached], tuple(_notes(full, seen))
    return _verdict(question, small, checks, compared=arrays, collectives=len(made(seen.sharded)), notes=notes)


def of_prompts(question: Question) -> Verified:
    """The question of servers that read the prompts of others."""
    return replace(verified(question), name=f"{question.name}: {PROMPTS}")


def _not_home(program: Program) -> Iterator[str]:
    """New weights that do not lie as the weights that they replace: the next step could not begin."""
    stored = {label(op.output, op): op.output.type for op in program.ops if isinstance(op, Leaf)}
    for name, array in program.results.items():
        before = stored.get(name.removeprefix("new."))
        if name.startswith("new.") and array.type != before:
            yield f"{name} lies as {array.type}, what it replaces as {before}"


def _verdict(question: Question, small: Question, checks: Sequence[Check], **seen: Any) -> Verified:
    """What was run, with what was `seen` of it."""
    return Verified(
        name=question.name,
        asked=question.asked,
        mesh=small.mesh.axes,
        dims=dims_of(small),
        placement=tuple(small.placement.describe()),
        layers=small.model.layers,
        microbatches=small.workload.microbatches,
        devices=small.mesh.devices,
        full_size=", ".join(_sizes(question)),
        checks=arising(checks),
        **seen,
    )


def _sizes(question: Question) -> Iterator[str]:
    yield sized(question.mesh.axes)
    yield counted(question.model.layers, "layer")
    yield counted(question.workload.microbatches, "microbatch")


def _claims(seen: Trial) -> Iterator[Check]:
    """Collectives, links, formulas and memory of the plan against the calls and the arrays of the run."""
    plan, question, known = seen.plan, seen.plan.question, values(seen.plan)
    due = _printed(plan.pipeline) if plan.pipeline else None
    claims = [
        Claim(
            row,
            due[id(row.call)] if due else row.count,
            None if row.call.parts[0].move.travels else question.machine,
            () if row.collective in ("send", *HOMEWARD) else route_over(question, row.call.parts[0].move),
        )
        for row in plan.rows
    ]
    ledger = Ledger(claims, made(seen.sharded), known)
    sent = exact_bytes(sum(map(injected, ledger.made), Fraction(0)))
    both = f"{counted(ran([ledger]), 'call')} of {counted(len(claims), 'planned collective')}"
    yield collectives_check([ledger], f"{both}, {sent} injected per device: none missing, none extra")
    yield links_check([ledger])
    rows, layers = list(formulas(ledger)), list(_layer_formulas(plan, ledger))
    whose = f"{counted(len(rows), 'formula')} of calls and {len(layers)} of single layers"
    yield formulas_check([*rows, *layers], f"{whose} come to the bytes that were counted")
    yield memory_check(seen)


def _printed(pipeline: Pipeline) -> Counter[int]:
    """The calls that rows claim, of all stages together; of what several of them run at once, the calls of one."""
    counts: Counter[int] = Counter()
    for row in chain.from_iterable(stage.rows for stage in pipeline.step.told.stages):
        several = len(row.call.where.chunks) > 1  # one op of the program, on the devices of every stage that has them
        counts[id(row.call)] = row.count if several else counts[id(row.call)] + row.count
    return counts


def _layer_formulas(plan: PlanResult, ledger: Ledger) -> Iterator[str]:
    """Per phase of each layer in each microbatch: "" where the formula of a layer holds, else what does not."""
    repeated = [known for known in ledger.claims if known.row.call.per_layer and known.row.call.per_microbatch]
    if not all(claim.least_injected for claim in repeated):
        return
    loops, microbatches = plan.sizes.loops, range(plan.question.workload.microbatches)
    kinds = [kind for chunk in plan.question.stages.chunks for kind, n in chunk.stack for _ in range(n)]
    sums: dict[tuple[int | None, int | None, str], Fraction] = defaultdict(Fraction)
    for ran_call in ledger.made:
        where = ran_call.op.where
        for phase in (where.phase, "total"):
            sums[where.layer, where.microbatch, phase] += injected(ran_call)
    here = [kind for kind in dict.fromkeys(kinds) if loops[kind] != 0]
    for (phase, total), kind in product(plan.per_layer.items(), here):
        text = replace(total, rows=tuple(row for row in total.rows if row.call.where.kind == kind)).formula
        claimed = evaluated(text, ledger.known) * over(loops[ALIKE], loops[kind])  # it is of a mean layer of the rank
        own_layers = [layer for layer, own in enumerate(kinds) if own == kind]
        for layer, microbatch in product(own_layers, microbatches):
            seen = sums[layer, microbatch, phase]
            place = f"layer {layer}, microbatch {microbatch}, {phase}"
            yield "" if seen == claimed else f"{place}: {text} is {claimed}, counted {seen}"


def _notes(full: PlanResult, seen: Trial) -> Iterator[str]:
    """Where the run is not as the plan at full size: another load of experts, collectives by another algorithm.

    The algorithm's own is held by tests of `reference` only.
    """
    load, drop = full.question.assume.routing.load, full.question.assume.routing.drop
    if drop != "none":
        yield f"{full.question.name}: tokens choose experts evenly here, so that none of their rows is dropped"
    elif load != "balanced":
        yield f"{full.question.name}: tokens choose experts evenly here, the plan's load ({load}) is not run"
    pairs = [
        (_algorithm(large), _algorithm(small)) for large, small in zip(full.every_row, seen.plan.rows, strict=False)
    ]
    others = [large for large, small in pairs if large != small]
    if others:
        names = ", ".join(dict.fromkeys(others))
        number = f"{len(others)} of {counted(len(pairs), 'collective')}"
        yield f"{full.question.name}: {number} run another algorithm than at full size ({names})"


def _algorithm(row: Row) -> str:
    stages = " and ".join(dict.fromkeys(stage.algorithm for stage in row.timing.stages))
    return stages or row.timing.algorithm
