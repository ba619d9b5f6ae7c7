"""From a scenario file, flags and overrides to a `Question`: every name looked up, every size checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from tpsim.algebra.sharding import ShardingError
from tpsim.machine import profile
from tpsim.machine.additive import Choice
from tpsim.program.dtypes import STORED_AS, Dtypes
from tpsim.program.frameworks import PRACTICES
from tpsim.program.model_file import ModelRead, with_fields
from tpsim.program.practice import Practice, changed
from tpsim.program.transformer import unwritten
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError
from tpsim.question.assumptions import assumptions, guesses, left_open, remarks
from tpsim.question.context import check_shared, stated_context
from tpsim.question.divisibility import with_legal_tp
from tpsim.question.layout import Cut, cut
from tpsim.question.memo import Memo
from tpsim.question.mesh import mesh_of, placement_of, pointing_at
from tpsim.question.pipeline import balance, known_schedule, pipeline
from tpsim.question.prices import read_launch, refuse_foreign, refuse_unheard, shown_where_forced
from tpsim.question.question import Question, Told, Workload
from tpsim.question.recompute import buffered, check_dropped, check_layers, keeping, recomputing
from tpsim.question.requirements import limits
from tpsim.question.resolved import resolved
from tpsim.question.routing import check_routing, levelled
from tpsim.question.scenario_file import DTYPE_FIELDS, ScenarioFile, WorkloadFields
from tpsim.question.serving import inference_of, served, usual_launch
from tpsim.question.serving_file import PROMPTS
from tpsim.question.stated import Source, Stated, stated
from tpsim.question.zero import gathered_once, staged

if TYPE_CHECKING:
    from tpsim.algebra.mesh import Mesh
    from tpsim.fabric.placement import Placement
    from tpsim.machine.parts import Machine
    from tpsim.program.layout import Layout
    from tpsim.program.model import Model


def resolve(
    scenario: Source,
    *,
    overrides: Sequence[str] = (),
    flags: Mapping[str, Any] | None = None,
    memo: Memo | None = None,
) -> Question:
    """The question that a scenario asks.

    scenario   a library name, a file, a document, its data, or None for flags alone
    overrides  ``path=value`` each, e.g. ``layout.zero=3``; they may say more than the flags, and nothing else
    flags      model, hw, chips, tp, dp, sp, zero, batch, microbatches, seq, dtype, mesh, cost_model, planner, practice,
               recompute, placement; None values were not given
    memo      machines and models that other scenarios of the same request have read

    Raises InputError for anything unknown, contradictory, uneven, or not supported yet.
    """
    memo = memo or Memo()
    question = _checked(stated(scenario, overrides, flags or {}, memo.scenario), memo)
    if getattr(question.stated.file, PROMPTS, None):
        from tpsim.question.prompts import connected, server_of

        question = connected(replace(question, prompts=_checked(server_of(question.stated), memo)))
    if not question.inference or not question.inference.drafted:
        return question
    from tpsim.question.speculation import with_draft

    return with_draft(question, partial(resolve, memo=memo))


def _checked(read: Stated, memo: Memo) -> Question:
    """What is asked of servers that are alike, if that can be answered."""
    return _balanced(_stated_question(read, memo), memo)


def _told(question: Question) -> Told:
    """What a question tells of itself."""
    taken, opened, noted = tuple(assumptions(question)), tuple(left_open(question)), tuple(remarks(question))
    guessed = guesses(question, taken)
    if prompts := question.prompts:
        others = [one for one in prompts.assumptions if one not in taken]
        guessed += sum(one.kind == "guess" for one in others)
        guessed += guesses(prompts, ()) if prompts.machine != question.machine else 0
        taken += tuple(replace(one, text=f"{PROMPTS}: {one.text}") for one in others)
        noted += tuple(f"{PROMPTS}: {text}" for text in prompts.remarks if text not in noted)
    return Told(taken, guessed, opened, noted, resolved(question))


def _stated_question(read: Stated, memo: Memo) -> Question:
    """What is asked, file by file and part by part; not yet checked."""
    base_model, model = _model(read, memo)
    base_machine, machine = _machine(read, memo)
    try:
        workload, split, placement = _laid_out(read, model, machine)
    except InputError as error:
        lay = partial(_laid_out, model=model, machine=machine)
        raise with_legal_tp(error, read.file, model, lambda file: lay(replace(read, file=file))) from None
    practice = levelled(_practice(read, model, split.layout), split.layout, placement, read.at)
    schedule, layers = pipeline(read.file, model, split, read.at, workload=workload, memo=memo)
    if (best := read.file.require.best) and best.schedule:
        known_schedule(best.schedule, read.at("require", "best", "schedule"))
    return Question(
        stated=read,
        model=model,
        base_model=base_model,
        base_machine=base_machine,
        machine=machine,
        mesh=split.mesh,
        axis_parents=split.parents,
        cut_notes=split.assumptions,
        placement=placement,
        layout=split.layout,
        practice=practice,
        dtypes=gathered_once(_dtypes(read.file.workload), practice, split.layout.zero),
        workload=workload,
        limits=tuple(limits(read.file.require.limits, read.at, kind=workload.kind)),
        planner=read.file.planner,
        force=_forced(read, machine, usual_launch(read, workload, machine)),
        schedule=schedule,
        split=layers,
        tell=_told,
    )


def _laid_out(read: Stated, model: Model, machine: Machine) -> tuple[Workload, Cut, Placement]:
    """The workload, the layout on the mesh that it needs, and that mesh on the machine."""
    mesh = mesh_of(read.file, model, read.at)
    workload = inference_of(read, mesh) or _workload(read.file, mesh)
    split = cut(read.file, model, workload, mesh, read.at)
    return workload, split, placement_of(read, machine, split)


def _balanced(question: Question, memo: Memo) -> Question:
    """The question, if it can be answered, with its split mended where seconds are known, if that is asked for."""
    _check(question, memo)
    read = question.stated
    if question.schedule and read.file.pipeline and read.file.pipeline.layers == "balanced":
        question = replace(question, split=balance(question, memo))
    check_layers(question.practice, question.split or (question.model.layers,), read.at)
    return question


def _check(question: Question, memo: Memo) -> None:
    """Refuse dtypes that the machine has not, products that do not end, a table that gives no program, odd names."""
    read = question.stated
    with pointing_at(read.at("workload", "dtype")):
        question.machine.peak(question.products)
    if question.practice.offload:
        from tpsim.machine.host import hosted

        with pointing_at(read.at("offload")):
            hosted(question.machine)
    _check_assumed(read)
    check_routing(question, read.at)
    if read.file.shardings is not None:
        _check_program(question, memo)
    if read.file.recompute.drop and not question.inference:
        check_dropped(read.file.recompute.drop, memo.forward(question), read.at)


def _check_program(question: Question, memo: Memo) -> None:
    """A stated table must give a program: what the algebra forbids is refused at the table, with its reason."""
    try:
        memo.lowered(question)
    except ShardingError as error:
        raise InputError.one(
            "forbidden-sharding",
            f"this table gives no program: {error}",
            question.stated.at("shardings"),
            "shard another dim, or the same dim in the regions around",
        ) from None


def _model(read: Stated, memo: Memo) -> tuple[ModelRead, Model]:
    """The model's file, and the model with the fields that the scenario changes.

    Such as ``model: {extends: gpt2-xl, vocab_padded: 50304}``.
    """
    with pointing_at(read.at("model")):
        name, beside = read.extended("model", "llama-3-8b")
        base = memo.model(name, beside=beside)
        model = base.model
        if not isinstance(read.file.model, str):
            model = with_fields(base, spec.part(read.document, "model")).model
        for part in unwritten(model):
            message = f"{model.name} has {part}, which can be counted and is not planned yet"
            raise InputError.one("not-supported-yet", message, remedy=f"tpsim model show {name} counts it")
        if model.chooses and read.file.workload.kind == "train":
            message = f"{model.name} has an indexer, which chooses what attention reads: training is not planned yet"
            remedy = "a step of inference is: workload.kind decode; or leave index_heads, index_dim and top out"
            raise InputError.one("not-supported-yet", message, remedy=remedy)
        return base, model


def _machine(read: Stated, memo: Memo) -> tuple[Machine, Machine]:
    """The machine's file, and the machine with the fields that the scenario changes.

    Such as ``hardware: {extends: dgx-h100, levels: {network: {link: {bandwidth: 800 Gbit/s}}}}``.
    """
    with pointing_at(read.at("hardware")):
        name, beside = read.extended("hardware", "dgx-h100")
        base = memo.machine(name, beside=beside)
        changed = not isinstance(read.file.hardware, str)
        return base, profile.with_fields(base, spec.part(read.document, "hardware")) if changed else base


def _workload(file: ScenarioFile, mesh: Mesh) -> Workload:
    """What a step computes; where no batch is stated, one sequence per microbatch and data shard."""
    fields = file.workload
    shards = prod(mesh.axes.get(axis, 1) for axis in _data_axes(file))
    return Workload(
        kind=fields.kind,
        global_batch=fields.global_batch or shards * fields.microbatches,
        seq=fields.seq,
        microbatches=fields.microbatches,
    )


def _data_axes(file: ScenarioFile) -> tuple[str, ...]:
    """The mesh axes that split the batch, as far as they are stated."""
    if file.shardings is not None:
        return file.shardings.get("*", {}).get("b", ())
    return file.layout.dp if file.layout else ()


def _dtypes(fields: WorkloadFields) -> Dtypes:
    """The dtypes; parameters are kept as activations unless stated, the others have their own defaults."""
    activations = fields.dtype and STORED_AS.get(fields.dtype, fields.dtype)
    stated = {"activations": activations, "params": activations}
    stated |= {kind: dtype for kind, field in DTYPE_FIELDS.items() if (dtype := getattr(fields, field, None))}
    return Dtypes(**{name: dtype for name, dtype in stated.items() if dtype is not None})


def _practice(read: Stated, model: Model, laid: Layout) -> Practice:
    """The bundle at a ZeRO stage, with the switches that are set one by one, and what is recomputed and kept."""
    fields = read.file.practice
    groups = ("overlap", "ahead", "bucket", "rows")
    switches = fields.model_dump(exclude={"base", "keeps", *groups}, exclude_none=True)
    if context := stated_context(read.file, read.at):
        switches["context"] = context
    base, switches["staged"] = PRACTICES[fields.base], staged(fields)
    switches |= {name: changed(getattr(base, name), getattr(fields, name)) for name in groups}
    practice = replace(base, **switches)
    practice = practice if model.has_latents else replace(practice, latents="block", handed="latents")
    if model.tie_embeddings and practice.units == "ends":
        practice = replace(practice, units="root")  # torchtitan, distributed/fsdp.py: what is shared is one unit
    dtypes = _dtypes(read.file.workload)
    practice = practice if dtypes.narrows(dtypes.params) else replace(practice, cast="products")
    practice = practice if dtypes.params != dtypes.gradients else replace(practice, settled="sent")
    if read.file.workload.kind != "train":
        return served(practice)
    overlap = practice.overlap.at(laid.zero)
    buffers = buffered(read, practice, laid.zero, beside=overlap.gradients == "beside")
    practice = replace(practice, overlap=overlap, buffers=buffers)
    check_shared(practice, laid, model, read.at)
    practice = replace(practice, offload=tuple(name for name, home in read.file.offload if home == "host"))
    return keeping(read, recomputing(read, practice), model, laid, gathered_once(dtypes, practice, laid.zero))


LEAST_EFFICIENCY = 1e-6
"""The least share of peak that a scenario may state: a step of less outgrows the numbers that seconds have."""


def _check_assumed(read: Stated) -> None:
    efficiency = read.file.assume.matmul_efficiency
    if read.file.assume.kernel_launch_s and read.file.collectives.launch == "framework":
        message = "a framework's launch of collectives has the host's seconds in it, which assume.kernel_launch states"
        raise InputError.one("launched-twice", message, read.at("collectives", "launch"), "write threads, or graph")
    if efficiency and efficiency.value < LEAST_EFFICIENCY:
        message = f"products that reach {efficiency.value:g} of peak do not end"
        remedy = f"write a share of at least {LEAST_EFFICIENCY:g}"
        raise InputError.one("bad-value", message, read.at("assume", "matmul_efficiency"), remedy)


def _forced(read: Stated, machine: Machine, usual: str | None) -> Choice:
    """What is forced on collectives, its launch in seconds if it is a time; the usual launch where none is stated."""
    forced = read.file.collectives
    at_launch = None if forced.launch is None else read.at("collectives", "launch")
    with shown_where_forced(read):
        with pointing_at(at_launch):
            launch = usual if forced.launch is None else read_launch(forced.launch)
        refuse_foreign(forced.algorithm)
        choice = Choice(launch, forced.algorithm, forced.protocol)
        refuse_unheard(machine, choice)
        return choice
