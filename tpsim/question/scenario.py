"""From a scenario file, flags and overrides to a `Question`: every name looked up, every size checked."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpsim.algebra.mesh import Mesh
from tpsim.algebra.sharding import ShardingError
from tpsim.fabric.placement import Placement, place
from tpsim.machine import profile
from tpsim.machine.additive import Choice
from tpsim.program.layout import PRACTICES, STORED_AS, Dtypes, Practice
from tpsim.program.lower import lower
from tpsim.program.model_file import ModelRead, with_fields
from tpsim.program.parameters import parameter_count
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError, Place
from tpsim.quantity.spec import Document
from tpsim.quantity.spec.refusals import header_problem
from tpsim.question.assumed import (
    changes_of,
    guesses,
    left_open,
    machine_assumptions,
    model_assumptions,
    remarks,
    run_assumptions,
)
from tpsim.question.cut import Cut, cut, known_axis, mesh_of
from tpsim.question.edits import bare_scenario, edited, flags_to_edits, overridden
from tpsim.question.flags import flag_words
from tpsim.question.forced import refuse_foreign, shown_where_forced, written
from tpsim.question.foreign import FOREIGN, not_yet
from tpsim.question.inputs import asked, inputs, read_launch
from tpsim.question.limits import limits
from tpsim.question.pipeline import balance, pipeline
from tpsim.question.question import Assume, Limit, Overheads, Question, Workload
from tpsim.question.recompute import recompute_remarks, recomputing
from tpsim.question.scenario_file import (
    PATHS_TO_FILES,
    CollectivesFields,
    PracticeFields,
    ScenarioFile,
    WorkloadFields,
)
from tpsim.question.shelf import Shelf

if TYPE_CHECKING:
    from tpsim.machine.profile import Machine
    from tpsim.program.schedules import PipelineSchedule

__all__ = ["Assume", "Limit", "Question", "Workload", "resolve"]

Source = str | Path | Document | Mapping[str, Any] | None


def resolve(
    scenario: Source,
    *,
    overrides: Sequence[str] = (),
    flags: Mapping[str, Any] | None = None,
    shelf: Shelf | None = None,
) -> Question:
    """The question that a scenario asks.

    scenario   a library name, a file, a document, its data, or None for flags alone
    overrides  ``path=value`` each, e.g. ``layout.zero=3``; they come after the flags
    flags      model, hw, chips, tp, dp, sp, zero, batch, microbatches, seq, dtype, mesh, cost_model, planner, practice,
               recompute, placement; None values were not given
    shelf      machines and models that other scenarios of the same request have read

    Raises InputError for anything unknown, contradictory, uneven, or not supported yet.
    """
    shelf = shelf or Shelf()
    read = _read(scenario, overrides, flags or {}, shelf)
    file = read.file
    with _pointing_at(read.at("model")):
        base, model = _model(read, shelf)
    with _pointing_at(read.at("hardware")):
        base_machine, machine = _machine(read, shelf)
    mesh = mesh_of(file, model.model, read.at)
    workload = _workload(file, mesh)
    split = cut(file, model.model, workload, mesh, read.at)
    with _pointing_at(read.at("placement") if file.placement else read.at("mesh")):
        placement = _placement(read, machine, split)
    practice = recomputing(
        file.recompute, _practice(file.practice, split.layout.zero), model.model, split.layout, read.at
    )
    schedule, layers = pipeline(file, model.model, split, read.at, workload=workload, shelf=shelf)
    dtypes = _dtypes(file.workload)
    products = file.workload.dtype or dtypes.activations
    with _pointing_at(read.at("workload", "dtype")):
        machine.peak(products)
    forced_at = dict(_forced_at(read))
    with shown_where_forced(forced_at), _pointing_at(forced_at.get("launch")):
        force = _forced(file.collectives)
    assumptions = [
        *model_assumptions(model),
        *machine_assumptions(file, base_machine, machine),
        *split.assumptions,
        *run_assumptions(file, workload, machine, placement, practice),
    ]
    question = Question(
        name=file.name or read.name,
        model=model.model,
        base_model=base,
        base_machine=base_machine,
        machine=machine,
        mesh=split.mesh,
        axis_parents=split.parents,
        placement=placement,
        layout=split.layout,
        practice=practice,
        dtypes=dtypes,
        products=products,
        workload=workload,
        assume=_assume(read),
        require=file.require,
        limits=tuple(limits(file.require, read.at, read.at_key)),
        cost_model=file.cost_model,
        force=force,
        forced_at=forced_at,
        planner=file.planner,
        inputs=inputs(read.document, model.document, machine),
        assumptions=assumptions,
        resolved={},
        stated=_stated(read),
        guesses=guesses(assumptions, machine),
        left_open=tuple(left_open(file, workload, machine)),
        remarks=(*remarks(file, base_machine, machine), *recompute_remarks(practice)),
        asked=_asked(read.document, overrides, flags or {}),
        document=read.document,
        schedule=schedule,
        split=layers,
    )
    if file.shardings is not None:
        _check_program(question, read)
    if schedule and file.pipeline and file.pipeline.layers == "balanced":
        question = replace(question, split=balance(question, shelf))
    return replace(question, resolved=_resolved(question, file))


def _asked(document: Document, overrides: Sequence[str], flags: Mapping[str, Any]) -> str:
    """The words that ask for this scenario again; none for what neither a file nor flags hold."""
    file = [asked("scenarios", document.path)] if document.sha256 and document.path != "-" else []
    words = [*file, *flag_words(flags)] if file or document.path == "flags" else []
    return shlex.join([*words, *(word for text in overrides for word in ("--set", text))] if words else [])


def _check_program(question: Question, read: _Read) -> None:
    """A stated table must give a program: what the algebra forbids is refused at the table, with its reason."""
    try:
        lower(question.model, question.layout, question.practice, question.dtypes, question.mesh.order)
    except ShardingError as error:
        raise InputError.one(
            "forbidden-sharding",
            f"this table gives no program: {error}",
            read.at("shardings"),
            "shard another dim, or the same dim in the regions around",
        ) from None


@dataclass(frozen=True, slots=True)
class _Read:
    """A scenario file after flags and overrides: its fields and its document."""

    file: ScenarioFile
    document: Document

    @property
    def name(self) -> str:
        """The scenario's name: its file's."""
        return Path(self.document.path).stem

    def at(self, *keys: str) -> Place | None:
        """Where a key stands: in the flag or override that set it, else in the file."""
        return self.document.place(*keys)

    def at_key(self, *keys: str) -> Place | None:
        """Where the name of a field stands, for a name that is wrong itself."""
        return self.document.key_place(*keys)


def _read(scenario: Source, overrides: Sequence[str], flags: Mapping[str, Any], shelf: Shelf) -> _Read:
    document = _document(scenario, flags)
    if "tpsim" in document.data and (wrong := header_problem(document, ScenarioFile)):
        raise InputError([wrong])
    document = spec.extended(document, lambda name, beside: shelf.scenario(spec.named("scenarios", name, beside)))
    document = edited(document, flags_to_edits(flags, document.data))
    document = overridden(document, overrides)
    _refuse_not_yet(document)
    return _Read(*spec.read(document, ScenarioFile, foreign=FOREIGN))


def _document(scenario: Source, flags: Mapping[str, Any]) -> Document:
    if isinstance(scenario, Document):
        return scenario
    if scenario is None:
        return Document(data=bare_scenario(flags), path="flags", text="", sha256="")
    if isinstance(scenario, Mapping):
        return Document(data=dict(scenario), path="scenario", text="", sha256="")
    return spec.load(spec.named("scenarios", str(scenario)))


def _refuse_not_yet(document: Document) -> None:
    """Refuse fields of parallelisms that tpsim does not plan yet, before they are called unknown."""
    for section in ((), ("layout",), ("pipeline",), ("workload",)):
        fields = document.data.get(section[0]) if section else document.data
        for key in fields if isinstance(fields, Mapping) else ():
            if feature := not_yet(key):
                raise InputError.one(
                    "not-supported-yet",
                    f"{key}: {feature} is not supported yet",
                    document.key_place(*section, key),
                    "remove it; tpsim plans tensor, sequence, data and pipeline parallelism and ZeRO",
                )
    _refuse_overlap(document)


REMEDY = "write practice: {overlap: {gradients: beside, weights: beside}}; sorts: tensor, gradients, weights, stages"
NOT_MODELLED_YET = {
    "steady": "messages that block in warm-up and flush alone",
    "deferred": "a norm of gradients that the update does not wait for",
}


def _refuse_overlap(document: Document) -> None:
    """Refuse overlap by mesh axes, which is no assumption any more, and what a timeline does not model yet."""
    assume, practice = (document.data.get(key) for key in ("assume", "practice"))
    if isinstance(assume, Mapping) and "overlap" in assume:
        message = "assume.overlap is gone: what runs beside compute is a switch of practice, by sort of collective"
        raise InputError.one("overlap-is-practice", message, document.key_place("assume", "overlap"), REMEDY)
    stated = practice if isinstance(practice, Mapping) else {}
    overlap = stated.get("overlap")
    found: list[tuple[tuple[str, ...], Any]] = [(("clip",), stated.get("clip"))]
    found += [(("overlap", sort), value) for sort, value in overlap.items()] if isinstance(overlap, Mapping) else []
    for path, value in found:
        if isinstance(value, str) and value in NOT_MODELLED_YET:
            message = f"{' of '.join(path)}: {value} ({NOT_MODELLED_YET[value]}) is not modelled yet"
            remedy = "write none or norm" if path == ("clip",) else "write none or beside"
            raise InputError.one("not-supported-yet", message, document.place("practice", *path), remedy)


def _model(read: _Read, shelf: Shelf) -> tuple[ModelRead, ModelRead]:
    """The model's file, and the model with the fields that the scenario changes.

    Such as ``model: {extends: gpt2-xl, vocab_padded: 50304}``.
    """
    name, beside = _extended(read, "model", read.file.model, "llama-3-8b")
    found = shelf.model(name, beside=beside)
    if isinstance(read.file.model, str):
        return found, found
    fields = {key: value for key, value in read.file.model.items() if key != "extends"}
    return found, with_fields(found, fields, lambda *keys: read.at("model", *keys))


def _machine(read: _Read, shelf: Shelf) -> tuple[Machine, Machine]:
    """The machine's file, and the machine with the fields that the scenario changes.

    Such as ``hardware: {extends: dgx-h100, levels: {network: {link: {bandwidth: 800 Gbit/s}}}}``.
    """
    name, beside = _extended(read, "hardware", read.file.hardware, "dgx-h100")
    found = shelf.machine(spec.named("hardware", name, beside))
    if isinstance(read.file.hardware, str):
        return found, found
    return found, profile.with_fields(found, spec.part(read.document, "hardware"))


def _extended(read: _Read, key: str, asked: str | Mapping[str, Any], example: str) -> tuple[str, Path]:
    """What a field names, or the map in it extends, and the folder that a relative path there starts from."""
    if isinstance(asked, str):
        return asked, read.document.folder(key)
    base = asked.get("extends")
    if not isinstance(base, str):
        message, remedy = f"a {key} map needs extends", f"add extends: {example}, or another one"
        raise InputError.one("missing-field", message, read.at(key), remedy)
    return base, read.document.folder(key, "extends")


@contextmanager
def _pointing_at(place: Place | None, remedy: str = "") -> Iterator[None]:
    """Problems that know no place, because they were found far from the scenario, point at `place`.

    remedy  of those that have none
    """
    try:
        yield
    except InputError as error:
        raise InputError(
            one if one.place else replace(one, place=place, remedy=one.remedy or remedy) for one in error.problems
        ) from None


BIND_NOTHING = "name one of these, or leave it to tpsim: --set placement={}"
"""What to do about a level that a machine has not, as when a scenario is asked of another machine."""


def _stated(read: _Read) -> dict[str, Any]:
    """The fields as they are stated, flags and overrides included; files as the current folder names them."""
    data = {name: value for name, value in read.document.data.items() if name != "tpsim" and value is not None}

    for key in PATHS_TO_FILES:
        value = data[key]
        if isinstance(value, Mapping):
            data[key] = {**value, "extends": _named_here(read, value["extends"], key, "extends")}
        else:
            data[key] = _named_here(read, str(value), key)
    return {"name": read.name, **data}


def _named_here(read: _Read, text: str, *keys: str) -> str:
    """A file as the current folder names it, instead of the folder of the file that states it."""
    here = text == "-" or not spec.is_path(text)
    return text if here else spec.path_from(Path(), str(read.document.folder(*keys) / text))


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
    stated = {
        "activations": activations,
        "params": fields.param_dtype or activations,
        "gradients": fields.grad_dtype,
        "loss": fields.loss_dtype,
        "optimizer": fields.optimizer_dtype,
    }
    return Dtypes(**{name: dtype for name, dtype in stated.items() if dtype is not None})


def _practice(fields: PracticeFields, zero: int) -> Practice:
    """The bundle at a ZeRO stage, with the switches that are set one by one."""
    groups = ("overlap", "ahead", "bucket")
    changed = fields.model_dump(exclude={"base", *groups}, exclude_none=True)
    base = PRACTICES[fields.base]
    for name in groups:
        if (stated := getattr(fields, name)) is not None:
            changed[name] = replace(getattr(base, name), **stated.model_dump(exclude_none=True, exclude_unset=True))
    practice = replace(base, **changed)
    return replace(practice, overlap=practice.overlap.at(zero))


def _placement(read: _Read, machine: Machine, split: Cut) -> Placement:
    """The mesh on the machine; a split axis is placed where the axis it came from is.

    Each stated axis is placed alone first, so that an unknown level is shown where it is written.
    """
    stated = read.file.placement
    if stated is None:
        return _placed(machine, split, None, None)
    original = Mesh(dict.fromkeys(split.parents.get(axis, axis) for axis in split.mesh.axes))  # type: ignore[arg-type]
    for axis in stated:
        known_axis(axis, original, read.at_key, "placement", axis)
        with _pointing_at(read.at("placement", axis), BIND_NOTHING):
            place(machine.levels, Mesh({axis: 1}), {axis: stated[axis]})
    binding = {axis: stated[parent] for axis in split.mesh.axes if (parent := split.parents.get(axis, axis)) in stated}
    return _placed(machine, split, binding, stated)


def _placed(machine: Machine, split: Cut, binding: Any, stated: Any) -> Placement:
    """The mesh on the machine; what does not fit is said of the axes that the scenario names, not of their parts."""
    try:
        return place(machine.levels, split.mesh, binding, alone=True)
    except InputError:
        sizes: dict[str, int] = {}
        for axis, size in split.mesh.axes.items():
            whole = split.parents.get(axis, axis)
            sizes[whole] = sizes.get(whole, 1) * size
        place(machine.levels, Mesh(sizes), stated, alone=True)
        raise


LEAST_EFFICIENCY = 1e-6
"""The least share of peak that a scenario may state: a step of less outgrows the numbers that seconds have."""


def _assume(read: _Read) -> Assume:
    """What is assumed of the run."""
    fields = read.file.assume
    efficiency = fields.matmul_efficiency
    if efficiency and efficiency.value < LEAST_EFFICIENCY:
        message = f"products that reach {efficiency.value:g} of peak do not end"
        remedy = f"write a share of at least {LEAST_EFFICIENCY:g}"
        raise InputError.one("bad-value", message, read.at("assume", "matmul_efficiency"), remedy)
    beside = {name: one.value for name, one in fields.memory if one is not None}
    memory = Overheads(
        context_bytes=beside.get("context", 0),
        workspace_bytes=beside.get("workspace", 0),
        fragmentation=beside.get("fragmentation", 0),
    )
    launch = fields.kernel_launch
    if launch and launch.value and read.file.collectives.launch == "framework":
        message = "a framework's launch of collectives has the host's seconds in it, which assume.kernel_launch states"
        raise InputError.one("launched-twice", message, read.at("collectives", "launch"), "write threads, or graph")
    return Assume(
        matmul_efficiency=efficiency.value if efficiency else None,
        memory=memory,
        kernel_launch_s=launch.value if launch else 0,
    )


def _forced_at(read: _Read) -> Iterator[tuple[str, Place]]:
    for name, value in read.file.collectives:
        if value is not None and (place := read.at("collectives", name)):
            yield name, place


def _forced(fields: CollectivesFields) -> Choice:
    launch = None if fields.launch is None else read_launch(fields.launch)
    refuse_foreign(fields.algorithm)
    return Choice(launch, fields.algorithm, fields.protocol)


def _resolved(question: Question, file: ScenarioFile) -> dict[str, Any]:
    """What the scenario came to, as plain data: nothing here is left to a default that a reader must know."""
    laid, workload, stated = question.layout, question.workload, file.assume.matmul_efficiency
    return {
        "name": question.name,
        "model": {**asdict(question.model), "parameters": parameter_count(question.model)},
        "hardware": question.machine.name,
        **({CHANGES: changes} if (changes := changes_of(file)) else {}),
        "chips": question.mesh.devices,
        "mesh": dict(question.mesh.axes),
        "placement": list(question.placement.describe()),
        "layout": {
            "tp": list(laid.roles.get("tp", ())),
            "dp": list(laid.roles.get("dp", ())),
            "zero": laid.zero,
            "sequence_parallel": laid.sequence_parallel,
            **({"pp": list(laid.stages)} if question.schedule else {}),
        },
        **(_taking_turns(question.schedule, question.split) if question.schedule else {}),
        "shardings": {
            region: {dim: list(axes) for dim, axes in dims.items() if axes} for region, dims in laid.table.items()
        },
        "practice": {"base": file.practice.base, **asdict(question.practice)},
        "workload": asdict(workload),
        "dtypes": {"products": question.products, **asdict(question.dtypes)},
        "assume": {
            "matmul_efficiency": stated and stated.value,
            **({"memory": beside} if any((beside := asdict(question.assume.memory)).values()) else {}),
            **({"kernel_launch_s": launch} if (launch := question.assume.kernel_launch_s) else {}),
        },
        "require": dict(question.require),
        "cost_model": question.cost_model,
        "planner": question.planner,
        **forced(question),
    }


CHANGES = "hardware_changes"
"""The key under which is resolved what a scenario changes of its machine."""


def _taking_turns(schedule: PipelineSchedule, split: Sequence[int]) -> dict[str, dict[str, Any]]:
    """What the stages of a pipeline came to."""
    turns = {"schedule": schedule.name, "stages": schedule.ranks, "chunks": schedule.chunks}
    return {"pipeline": {**turns, "layers": list(split)}}


def forced(question: Question) -> dict[str, dict[str, Any]]:
    """What is forced on collectives, as a scenario writes it; nothing if nothing is."""
    given = written(question.force)
    return {"collectives": given} if given else {}
