"""What a question came to, as plain data: nothing here is left to a default that a reader must know."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tpsim import __version__
from tpsim.algebra.mesh import as_flag
from tpsim.fabric.placement import in_one_line
from tpsim.program.model import as_stated
from tpsim.program.transformer import parameter_count
from tpsim.question.inputs import inputs
from tpsim.question.prices import written
from tpsim.question.serving_file import PROMPTS
from tpsim.question.zero import stated_over

if TYPE_CHECKING:
    from tpsim.question.question import Question

CHANGES = "hardware_changes"
"""The key under which is resolved what a scenario changes of its machine."""

FILES = "hardware_files"
"""The key under which is resolved which of the answer's inputs the machine was read from."""


def resolved(question: Question) -> dict[str, Any]:
    """The question's fields under the names that outputs have for them."""
    file, laid, schedule = question.stated.file, question.layout, question.schedule
    run_tokens = getattr(file.workload, "run_tokens", None)
    turns = schedule and {"schedule": schedule.name, "stages": schedule.ranks, "chunks": schedule.chunks}
    changes, forced = question.stated.changes("hardware"), written(question.force)
    return {
        "name": question.name,
        "model": {**as_stated(question.model), "parameters": parameter_count(question.model)},
        "hardware": question.machine.name,
        FILES: [path for path, _ in inputs(question.machine)],
        **({CHANGES: changes} if changes else {}),
        "chips": question.mesh.devices,
        "mesh": dict(question.mesh.axes),
        "placement": list(question.placement.describe()),
        "layout": {
            "tp": list(laid.roles.get("tp", ())),
            "dp": list(laid.roles.get("dp", ())),
            **({"cp": list(cp)} if (cp := laid.roles.get("cp")) else {}),
            "zero": laid.zero,
            **({"zero_over": list(over)} if (over := stated_over(question)) else {}),
            "sequence_parallel": laid.sequence_parallel,
            **({"pp": list(laid.stages)} if schedule else {}),
            **{role: list(laid.roles[role]) for role in ("ep", "etp") if role in laid.roles},
        },
        **({"pipeline": {**turns, "layers": list(question.split)}} if turns else {}),
        "shardings": {
            region: {dim: list(axes) for dim, axes in dims.items() if axes} for region, dims in laid.table.items()
        },
        "practice": {"base": file.practice.base, **question.practice.switches},
        "workload": {**computed(question), **({"run_tokens": run_tokens} if run_tokens else {})},
        "dtypes": {"products": question.products, **stored(question)},
        "assume": _assumed(question),
        "require": file.require.stated,
        "cost_model": question.cost_model,
        "planner": question.planner,
        **({"collectives": forced} if forced else {}),
        **({PROMPTS: _of_prompts(question.prompts)} if question.prompts else {}),
    }


OF_SERVER = ("hardware", CHANGES, "chips", "mesh", "placement", "layout", "pipeline", "shardings")
"""What servers that read prompts alone have of their own, beside how many they read at once."""


def _of_prompts(prompts: Question) -> dict[str, Any]:
    """What the servers that read prompts came to, as far as it may be another."""
    told = prompts.resolved
    return {**{name: told[name] for name in OF_SERVER if name in told}, "batch": told["workload"]["batch"]}


def computed(question: Question) -> dict[str, Any]:
    """What a step computes: of inference as it is stated, with the batch and the draft's layout that it comes to."""
    stated: Any = question.stated.file.workload
    if work := question.inference:
        data = {**stated.computed, "batch": stated.batch if work.fills else work.global_batch}
        laid = _draft(question)
        return {**data, "speculation": {**data["speculation"], "layout": laid}} if laid else data
    return asdict(question.workload)


def _draft(question: Question) -> dict[str, Any]:
    """Which axes split a draft, and what of its cache: as its model unless it is stated; empty without one.

    Of a table of shardings it is that.
    """
    if not question.draft:
        return {}
    roles, file = question.draft.layout.roles, question.draft.stated.file
    if file.shardings is not None:
        return {region: {dim: list(axes) for dim, axes in dims.items()} for region, dims in file.shardings.items()}
    own = {role: list(axes) for role, axes in roles.items() if axes or role in ("tp", "dp")}
    return {**own, **({"cache": file.layout.cache} if file.layout and file.layout.cache else {})}


def _assumed(question: Question) -> dict[str, Any]:
    """What is assumed, as far as it is stated; routing where there are experts."""
    assume, memory = question.stated.file.assume, question.stated.file.assume.memory.figures
    efficiency, price = assume.matmul_efficiency, assume.price_per_chip_hour
    without_copies = set() if question.practice.levels else {"copies"}
    routing = assume.routing.model_dump(exclude=without_copies, exclude_none=True)
    return {
        "matmul_efficiency": efficiency and efficiency.value,
        **({"mfu": assume.mfu} if assume.mfu != "full" else {}),
        **({"memory": memory} if any(memory.values()) else {}),
        **({"routing": routing} if question.model.experts else {}),
        **({"price_per_chip_hour": price.value} if price else {}),
        **({"kernel_launch_s": launch} if (launch := assume.kernel_launch_s) else {}),
    }


def stored(question: Question) -> dict[str, Any]:
    """Number formats: inference has no gradients, no loss and no optimizer, training no cache."""
    dtypes = question.dtypes
    if question.inference is None:
        return {name: value for name, value in asdict(dtypes).items() if value and name not in SERVED_ALONE}
    cache = dtypes.cache or dtypes.activations
    own = {name: dtype for name in ("experts", "vocab") if (dtype := getattr(dtypes, name))}
    return {"activations": dtypes.activations, "params": dtypes.params, **own, "cache": cache}


SERVED_ALONE = ("cache", "experts", "vocab")
"""Number formats that only inference states."""


def columns(question: Question) -> dict[str, Any]:
    """One value of each, as columns of tidy rows, so that rows of several plans can be put together."""
    layout, work = question.layout, question.workload
    return {
        "scenario": question.name,
        "model": question.model.name,
        "hardware": question.machine.name,
        "chips": question.mesh.devices,
        "mesh": as_flag(question.mesh.axes),
        "placement": in_one_line(question.placement.describe()),
        "zero": layout.zero,
        "sequence_parallel": layout.sequence_parallel,
        "global_batch": work.global_batch,
        "seq": work.seq,
        "microbatches": work.microbatches,
        "cost_model": question.cost_model,
        "planner": question.planner,
        "guesses": question.guesses,
        "tpsim": __version__,
    }
