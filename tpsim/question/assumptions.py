"""What a question takes for granted of its model, its machine and its run, and how many guesses it rests on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from tpsim.program.dtypes import DTYPE_BYTES, STORED_AS, Dtypes
from tpsim.program.frameworks import PRACTICES, SWITCH_SOURCES, unread
from tpsim.program.keeps import BUFFERS, BUFFERS_SOURCES, KEEPS, KEEPS_SOURCES, margin
from tpsim.quantity.units import show
from tpsim.question.idle import idle, idle_switches
from tpsim.question.recompute import SELECTIVE
from tpsim.question.routing import routing_assumptions
from tpsim.question.scenario_file import LayoutFields, ScenarioFile
from tpsim.question.serving_file import InferenceFields
from tpsim.question.zero import line_notes
from tpsim.report.answer import Assumption

if TYPE_CHECKING:
    from tpsim.machine.constant import Constant, Kind
    from tpsim.machine.parts import Machine
    from tpsim.program.practice import Practice
    from tpsim.question.question import Question

EFFICIENCY = "chip.matmul_efficiency"
"""The constant of a machine that a plan names among its assumptions, as a scenario may state another one."""


def assumptions(question: Question) -> Iterator[Assumption]:
    """What a question takes for granted: of its model, its machine, its cut, and all that it leaves open."""
    yield from _of_model(question)
    yield from _of_machine(question)
    yield from question.cut_notes
    for axis in question.idle_axes:
        size = question.mesh.axes[axis]
        yield Assumption(f"mesh axis {axis} ({size}) has no role: its chips repeat the same work", "derived")
    yield from line_notes(question)
    file, placement = question.stated.file, question.placement
    yield from _efficiency(file, question.machine)
    yield from _overheads(file)
    if price := question.price:
        yield Assumption(f"a chip hour costs {price.value:g}", _known(price.kind))
    yield from routing_assumptions(question)
    yield from _launch(file)
    if question.inference is None:
        yield _beside(question.practice, file)
        yield _keeps(question.practice, file)
        yield from _buffers(question.practice, file)
        yield from _unread(question)
    elif question.force.launch and not file.collectives.launch:
        yield Assumption(f"collectives are launched by {question.force.launch}, as a step of decoding is", "default")
    yield from (Assumption(text, "stated") for text in idle(question))
    yield from _formats(question)
    yield from _blocks(question)
    yield from _drafts(question)
    for field, noun in left_open(question).items():
        yield Assumption(f"{noun}: {field} is not stated", "guess")
    if usual := _usual(file):
        yield Assumption(f"where nothing else is stated: {', '.join(usual)}", "default")
    if placement.rule:
        yield Assumption(f"placement chosen by tpsim: {placement.rule}", "derived")
    yield from (Assumption(text, "derived") for text in placement.idle)
    if (work := question.inference) and file.workload.batch == "largest" and not work.fills:  # type: ignore[attr-defined]
        yield Assumption(f"batch {work.global_batch:,} is the largest that memory has room for", "derived")


def _formats(question: Question) -> Iterator[Assumption]:
    """What a number format is of: of products alone, or of all arrays in training, too, where a byte is unusual."""
    stated, of = question.stated.file.workload.dtype, question.dtypes.activations
    if stated is not None and stated in STORED_AS:
        yield Assumption(f"products in {stated}, on arrays that are held and sent in {STORED_AS[stated]}", "stated")
    if question.inference is None and DTYPE_BYTES[of] == 1:
        hint = "workload.dtype: fp8_128 has products of layers in fp8 alone"
        yield Assumption(f"all arrays in {of}, the stream among them: {hint}", "stated")


def _blocks(question: Question) -> Iterator[Assumption]:
    """What of a paged cache is empty."""
    if (work := question.inference) and work.block > 1:
        text = f"a cache in blocks of {work.block} tokens, of which the last of a sequence lacks half in the mean"
        yield Assumption(text, "stated")


def _drafts(question: Question) -> Iterator[Assumption]:
    """How many drafts are accepted, and what is taken for their model."""
    ahead, draft = question.inference and question.inference.speculation, question.draft
    if ahead:
        text = f"a drafted token is accepted with probability {ahead.acceptance:g}, whatever was drafted before it"
        yield Assumption(f"{text}: workload.speculation.acceptance", "guess")
    if ahead and draft:
        text = (
            f"{draft.model.name} drafts on the same chips, in the same number formats, a token of every sequence a step"
        )
        yield Assumption(text, "model")
        if draft.model.vocab != question.model.vocab:
            words = f"vocabularies of {question.model.vocab:,} and {draft.model.vocab:,} are of one tokenizer, padded"
            yield Assumption(words, "guess")


def _known(kind: Kind) -> Literal["stated", "derived", "guess"]:
    """What kind of knowledge a figure is, as assumptions say it: whoever has measured it, or sells it, states it."""
    return kind if kind in ("derived", "guess") else "stated"


def _of_model(question: Question) -> Iterator[Assumption]:
    """Its padding, and what reading its file left aside."""
    model = question.model
    if model.vocab_padded != model.vocab:
        yield Assumption(f"vocabulary {model.vocab} is padded to {model.vocab_padded}", "stated")
    yield from (Assumption(f"{model.name}: {note}", "derived") for note in question.base_model.notes)


def _overheads(file: ScenarioFile) -> Iterator[Assumption]:
    """What is assumed to stand in memory beside the arrays of a step."""
    for name, figure in file.assume.memory:
        if figure is not None:
            share = name == "fragmentation"
            much = f"{100 * figure.value:.3g} % of the arrays" if share else show(figure.value, "bytes")
            yield Assumption(f"memory beside arrays: {name} {much}", _known(figure.kind))


def _launch(file: ScenarioFile) -> Iterator[Assumption]:
    """What a host is assumed to take that launches kernels one by one."""
    if launch := file.assume.kernel_launch:
        text = f"a host launches kernel after kernel in {show(launch.value, 'seconds')} each, in no action ahead of it"
        source = f" ({launch.source})" if launch.source else ""
        yield Assumption(f"{text}{source}", _known(launch.kind))


def _beside(practice: Practice, file: ScenarioFile) -> Assumption:
    """What runs beside compute, and who says so."""
    suffixes = {"beside": "", "split": " (in pieces of products, too)", "forward": " (in forward)"}
    beside = [f"{sort}{suffixes[mode]}" for sort, mode in practice.overlap if mode in suffixes]
    text = f"collectives beside compute: {', '.join(beside) or 'none'}"
    if file.practice.overlap is not None:
        return Assumption(text, "stated")
    source = SWITCH_SOURCES[file.practice.base]["overlap"].source
    return Assumption(f"{text}, as {file.practice.base} has it ({source})", "default")


def _unread(question: Question) -> Iterator[Assumption]:
    """The switches of a bundle that nothing was read of, where they matter and the scenario does not state them."""
    stated = question.stated.file.practice
    open_ = [name for name in unread(stated.base) if getattr(stated, name, None) is None]
    idle_ = idle_switches(question)
    if names := [name for name in open_ if f"practice.{name}" not in idle_]:
        usual = "as is usual: nothing was read of them"
        yield Assumption(f"switches of {stated.base} {usual}: {', '.join(names)}", "guess")


def _keeps(practice: Practice, file: ScenarioFile) -> Assumption:
    """What the stack keeps in memory beside what its kernels need, and who says so."""
    listed = f"{', '.join(map(str, practice.keeps))} (bytes per element)" if practice.keeps else "nothing"
    text, off = f"kept beside what kernels need: {listed}", margin(practice.keeps)
    within = f"; a peak may be {100 * off.share:.3g} % off: {off.source}"
    if isinstance(file.practice.keeps, dict):
        return Assumption(f"{text}{within}", "stated")
    name = next(name for name, keeps in KEEPS.items() if keeps == practice.keeps)
    sentence = f"{text}, the list {name} ({KEEPS_SOURCES[name]}){within}"
    return Assumption(sentence, "stated" if file.practice.keeps else "default")


def _buffers(practice: Practice, file: ScenarioFile) -> Iterator[Assumption]:
    """The buffers that gradients are reduced in, or weights gathered in, and who says so."""
    fields, base = file.practice.bucket, PRACTICES[file.practice.base].buffers
    asked = None if fields is None else fields.buffers
    if practice.buffers or asked is not None:
        listed = ", ".join(f"{buffer.many} {buffer.of}" for buffer in practice.buffers) or "none"
        text = f"buffers of buckets: {listed}"
        if isinstance(asked, dict):
            yield Assumption(text, "stated")
        else:
            name = asked or next(name for name, buffers in BUFFERS.items() if buffers == base)
            yield Assumption(f"{text}, the list {name} ({BUFFERS_SOURCES[name]})", "stated" if asked else "default")


def _efficiency(file: ScenarioFile, machine: Machine) -> Iterator[Assumption]:
    stated, own = file.assume.matmul_efficiency, machine.chip.matmul_efficiency
    if stated is not None:
        text = f"matrix products reach {stated.value:.4g} of peak, whatever their shape"
        yield Assumption(text, _known(stated.kind))
    elif file.cost_model == "book":
        yield Assumption("matrix products reach their peak, as the cost model book has it", "stated")
    elif own.stated:
        text = f"matrix products reach {own.value:.4g} of peak on {machine.name}{_waves(machine)}"
        yield Assumption(text, "guess" if own.kind == "guess" else "stated")


def _waves(machine: Machine) -> str:
    """What the share of peak is of."""
    tile = machine.chip.tile
    if tile is None:
        return ", whatever their shape: it states no tile"
    return f", in whole waves of {tile.units.value} tiles of {tile.rows.value} by {tile.columns.value}"


def left_open(question: Question) -> dict[str, str]:
    """The fields that a run decides and the scenario does not state, each with what is guessed."""
    file = question.stated.file
    work, dtypes = file.workload, Dtypes()
    levels = question.machine.levels
    harness = next((next(iter(level.launch)) for level in levels if len(level.launch) > 1), "")
    launched = file.collectives.launch or question.force.launch or file.cost_model == "book" or not harness
    return {
        name: noun
        for name, noun, stated in (
            *_batch(question),
            ("workload.dtype", f"products and parameters in {dtypes.activations}", work.dtype),
            ("workload.grad_dtype", f"gradients in {dtypes.gradients}", question.inference or work.grad_dtype),
            ("practice", f"the switches of {file.practice.base}", "base" in file.practice.model_fields_set),
            ("collectives.launch", f"the launch latency of {harness}", launched),
        )
        if not stated
    }


def _batch(question: Question) -> Iterator[tuple[str, str, object]]:
    """The batch, and the parts that it is computed in: of inference there is one."""
    work = question.stated.file.workload
    if isinstance(work, InferenceFields):
        yield "workload.batch", "one sequence", "batch" in work.model_fields_set
        return
    batch = f"global batch {question.workload.global_batch}, one sequence per microbatch and data shard"
    yield "workload.global_batch", batch, work.global_batch is not None
    yield "workload.microbatches", "one microbatch", "microbatches" in work.model_fields_set


def _usual(file: ScenarioFile) -> list[str]:
    """What a scenario means by leaving a field out, where that moves numbers: no guess about the run, yet a choice."""
    work, layout, dtypes = file.workload, file.layout or LayoutFields(), Dtypes()
    served = isinstance(work, InferenceFields)
    switches: Mapping[str, bool] = {
        "ZeRO 0": served or file.shardings is not None or "zero" in layout.model_fields_set,
        "no sequence parallelism": file.shardings is not None or "sequence_parallel" in layout.model_fields_set,
        f"loss in {dtypes.loss}": served or work.loss_dtype is not None,
        f"optimizer state in {dtypes.optimizer}": served or work.optimizer_dtype is not None,
        f"cost model {file.cost_model}": "cost_model" in file.model_fields_set,
        f"planner {file.planner}": "planner" in file.model_fields_set,
    }
    return [noun for noun, stated in switches.items() if not stated]


def _of_machine(question: Question) -> Iterator[Assumption]:
    """What the scenario changes, what its profile leaves out, what is hard to believe."""
    machine = question.machine
    yield from (Assumption(text, "stated") for text in _changed(question))
    for constant in _left_out(question):
        yield Assumption(
            f"{constant.path} is {_shown(constant)}: {machine.name} does not state it ({constant.note})", "guess"
        )
    yield from (Assumption(f"{doubt.message}: {doubt.remedy}", "stated") for doubt in machine.doubts)


def remarks(question: Question) -> Iterator[str]:
    """What nobody may overlook: of the machine the same in few lines, what is stated or recomputed for nothing."""
    machine = question.machine
    yield from _changed(question)
    if left_out := [f"{constant.path} {_shown(constant)}" for constant in _left_out(question)]:
        yield f"{machine.name} leaves out what is guessed here: {', '.join(left_out)}"
    yield from (f"{doubt.message}: {doubt.remedy}" for doubt in machine.doubts)
    yield from idle(question)
    practice = question.practice
    if SELECTIVE in practice.recompute and practice.attention == "fused":
        kept = "it keeps one number per head and token, which this frees, and runs its forward once more"
        yield f"recompute of fused attention gains nothing: {kept}"
    if against := "; ".join(_against_whole_streams(question)):
        yield f"experts beside tensor parallelism without sequence parallelism: {against}; --sp splits tokens"


def _against_whole_streams(question: Question) -> Iterator[str]:
    """Why to train experts under tensor parallelism with sequence parallelism alone."""
    laid, mesh, tp = question.layout, question.mesh, question.layout.roles["tp"]
    if question.inference or not question.model.experts or laid.sequence_parallel or mesh.size(*tp) == 1:
        return
    home, width = ([axis for axis in axes if axis in tp] for axes in laid.homes)
    if mesh.size(*home) > 1 and mesh.size(*width) > 1:
        yield (
            f"what comes back from the router owes a sum over {', '.join(width)}, that from its experts over "
            f"{', '.join(tp)}, and each is paid by an all-reduce as wide as the stream"
        )
    if question.stated.file.practice.base == "megatron":
        yield "Megatron-LM refuses to train so (moe_layer.py)"


def _changed(question: Question) -> Iterator[str]:
    """Each field of the machine that the scenario changes, with what it was."""
    base = question.base_machine
    before = {constant.path: constant for constant in base.constants()}
    for path, value in _leaves(question.stated.changes("hardware")):
        yield f"{path} is {value} here" + (f"; {base.name} states {_shown(before[path])}" if path in before else "")


def _leaves(changes: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Every field that is changed, by its path; a figure with source and kind is one."""
    for key, value in changes.items():
        if isinstance(value, Mapping) and "value" not in value:
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value["value"] if isinstance(value, Mapping) else value


def _left_out(question: Question) -> list[Constant]:
    """The figures that tpsim guesses because the profile leaves them out, but an efficiency that something replaces."""
    missing = [constant for constant in question.machine.constants() if not constant.stated]
    replaced = question.matmul_efficiency is not None
    return [constant for constant in missing if not (replaced and constant.path.endswith("matmul_efficiency"))]


def _shown(constant: Constant) -> str:
    return show(constant.value, constant.dimension)


def guesses(question: Question, taken: Iterable[Assumption]) -> int:
    """Guesses among the assumptions, and those that the machine's profile states but the one that is an assumption.

    Those of its host are none where nothing lives there.
    """
    stated = [constant for constant in question.machine.constants() if constant.kind == "guess" and constant.stated]
    idle = () if question.practice.offload else ("host.", "chip.host.")
    return sum(constant.path != EFFICIENCY and not constant.path.startswith(idle) for constant in stated) + sum(
        assumption.kind == "guess" for assumption in taken
    )
