"""Scenarios of published runs have the sizes that their source states, one by one."""

from __future__ import annotations

import pytest

from tpsim.question.scenario import resolve

COLUMNS = ("layers", "hidden", "heads", "ffn", "seq", "chips", "tp", "pp", "chunks", "batch", "each", "recompute")

RUNS = {
    # Brown et al. 2020, table 2.1; Megatron-LM, examples/pretrain_gpt3_175B.sh at 090e141 (128 nodes of 8); chunks ours
    "gpt3-175b-a100-interleaved": (96, 12288, 96, 4 * 12288, 2048, 1024, 8, 16, 3, 1536, 1, ("full",)),
    # Korthikanti et al. 2022, table 3
    "megatron-530b-a100": (105, 20480, 128, 4 * 20480, 2048, 280, 8, 35, 3, 280, 1, ("attention",)),
    "megatron-1t-a100": (128, 25600, 160, 4 * 25600, 2048, 512, 8, 64, 1, 512, 1, ("attention",)),
    # Llama team 2024, tables 3 and 4; 16M tokens a step
    "llama3-405b-h100-pipeline": (126, 16384, 128, 53248, 8192, 8192, 8, 16, 8, 2048, 1, ()),
    # Llama team 2024, table 3; their layouts are ours
    "llama3-70b-h100-zb-h1": (80, 8192, 64, 28672, 4096, 256, 8, 4, 1, 512, 2, ()),
    "llama3-70b-v5p-slices": (80, 8192, 64, 28672, 4096, 256, 4, 4, 1, 512, 2, ()),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_scenario_of_a_published_run_has_its_sizes(name):
    asked = resolve(name)
    model, mesh, laid, work = asked.model, asked.mesh, asked.layout, asked.workload
    dims = work.dims(model)
    (kind,) = model.kinds.values()
    ways = {role: mesh.size(*axes) for role, axes in laid.roles.items()}
    batch = asked.stated.file.workload.global_batch
    found = (
        *(sum(many for _, many in model.stack), model.hidden, kind.attention.heads, dims["f"], dims["s"], mesh.devices),
        *(ways["tp"], ways["pp"], asked.stated.file.pipeline.chunks, batch),
        *(batch / ways["dp"] / work.microbatches, asked.practice.recompute),
    )
    assert dict(zip(COLUMNS, found, strict=True)) == dict(zip(COLUMNS, RUNS[name], strict=True))
