"""The flags that ask a question, of the command line and keywords in Python: names, types, and the fields they set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tpsim.question.edits import Keys


class Flags(TypedDict, total=False):
    """What changes a scenario, or asks without one; None was not given.

    model          library name, .yaml, or a Hugging Face config.json
    hw             machine: library name or .yaml
    chips          chips of the machine; an axis of -1 fills up to it
    mesh           mesh axes, major first: ``data=32,tensor=8``
    tp, dp         size of tensor and data parallelism, or the mesh axes that it takes: ``kv,rep``
    cp             size of context parallelism, or the mesh axes that it takes
    pp             stages of a pipeline, or the mesh axis that has them
    schedule       how they take turns
    chunks         of layers on each stage
    sp             sequence parallelism
    zero           ZeRO stage
    batch          global batch, in sequences
    microbatches   parts that the batch is computed in
    seq            tokens per sequence
    dtype          of activations and parameters
    placement      what carries a mesh axis, one or several: ``tensor=nvlink``
    practice       switches of a framework: megatron, fsdp2, xla, ideal
    recompute      what is not kept for backward: none, selective, full
    cost_model     additive or book
    planner        book or cheapest
    algorithm      forced on collectives that know it: ring, tree, in-switch
    protocol       forced: one of the machine's: ll, ll128, simple
    launch         launch latency: a harness of the profile, or ``15us``
    """

    model: str | Path | None
    hw: str | Path | None
    chips: int | None
    mesh: str | None
    tp: int | str | None
    dp: int | str | None
    cp: int | str | None
    pp: int | str | None
    schedule: str | None
    chunks: int | None
    sp: bool | None
    zero: int | None
    batch: int | None
    microbatches: int | None
    seq: int | None
    dtype: str | None
    placement: str | Sequence[str] | None
    practice: str | None
    recompute: str | None
    cost_model: Literal["additive", "book"] | None
    planner: Literal["book", "cheapest"] | None
    algorithm: str | None
    protocol: str | None
    launch: str | None


PATHS: Mapping[str, Keys] = {
    "model": ("model",),
    "hw": ("hardware",),
    "chips": ("chips",),
    "sp": ("layout", "sequence_parallel"),
    "zero": ("layout", "zero"),
    "schedule": ("pipeline", "schedule"),
    "chunks": ("pipeline", "chunks"),
    "batch": ("workload", "global_batch"),
    "microbatches": ("workload", "microbatches"),
    "seq": ("workload", "seq"),
    "dtype": ("workload", "dtype"),
    "cost_model": ("cost_model",),
    "algorithm": ("collectives", "algorithm"),
    "protocol": ("collectives", "protocol"),
    "launch": ("collectives", "launch"),
    "planner": ("planner",),
    "practice": ("practice",),
    "recompute": ("recompute",),
}
"""Flags that set one field -> that field; mesh, placement, tp and dp say more than one."""

STAGES, STAGES_AXIS = "pp", "pipe"
ADDED: Mapping[str, str] = {STAGES: STAGES_AXIS, "cp": "context"}
"""Roles that a scenario may be without, and the axis that each gets: stages major to all others, context beside tp."""

FLAGS: Mapping[str, str] = {
    **{".".join(keys): f"--{name.replace('_', '-')}" for name, keys in PATHS.items()},
    **{f"layout.{role}": f"--{role}" for role in ("tp", "dp", "cp", STAGES)},
    **{name: f"--{name}" for name in ("mesh", "placement")},
}
"""The flag of a scenario's field, by its path."""

AXES: Mapping[str, str] = {"dp": "data", "tp": "tensor"}
"""The axis that a role gets when flags alone make the mesh, major first."""


def flag_words(flags: Mapping[str, Any]) -> Iterator[str]:
    """The words of a command line that give these flags.

    >>> list(flag_words({"tp": 8, "sp": False, "zero": None, "placement": ("tensor=nvlink", "data=network")}))
    ['--tp', '8', '--no-sp', '--placement', 'tensor=nvlink', '--placement', 'data=network']
    """
    for name, value in flags.items():
        word = name.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{word}" if value else f"--no-{word}"
        elif value is not None:
            for each in value if isinstance(value, tuple | list) else (value,):
                yield from (f"--{word}", str(each))
