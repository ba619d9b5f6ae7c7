"""Scenarios that a random search of `verify` came upon: each once had a claim or a run that was wrong."""

from __future__ import annotations

from typing import Any

from tpsim.claims.verify import verify

ROWS_IN_BLOCKS: dict[str, Any] = {
    "tpsim": "scenario/1",
    "model": "mixtral-8x7b",
    "hardware": "dgx-h100",
    "mesh": {"data": 2, "context": 2},
    "layout": {"cp": "context", "ep": "context"},
    "practice": {"base": "xla", "rows": {"dtype": "fp8_128"}},
    "workload": {"global_batch": 16, "seq": 64, "microbatches": 8},
}


def test_bytes_that_are_no_whole_number_are_counted_whole():
    result = verify(ROWS_IN_BLOCKS)
    assert result.ok, result.verdict


KINDS = """\
tpsim: model/2
name: kinds
hidden: 64
vocab: 96
blocks:
  local: {attention: gqa, heads: 8, kv_heads: 8, head_dim: 8, mask: window, window: 8}
  global: {attention: gqa, heads: 8, kv_heads: 8, head_dim: 8}
  moe: {ffn: moe, kind: swiglu_clamped, experts: 8, top: 2, hidden: 32, bias: true}
  mlp: {ffn: mlp, kind: geglu, hidden: 96}
layers:
  - {repeat: 4, cycle: [[local, moe], [global, mlp]]}
norms: both
"""
STAGES_WITHOUT_LAYERS: dict[str, Any] = {
    "tpsim": "scenario/1",
    "hardware": "dgx-b200",
    "mesh": {"pipe": 4, "data": 2, "tensor": 2},
    "layout": {"pp": "pipe", "dp": "data", "tp": "tensor", "sequence_parallel": True, "ep": ["data", "tensor"]},
    "practice": "ideal",
    "pipeline": {"layers": [0, 5, 1, 2]},
    "workload": {"global_batch": 8, "seq": 128, "microbatches": 4},
}


def test_parameters_that_a_smaller_step_moves_again_are_moved_alone(tmp_path):
    (tmp_path / "kinds.yaml").write_text(KINDS)
    result = verify(STAGES_WITHOUT_LAYERS | {"model": str(tmp_path / "kinds.yaml")})
    assert result.ok, result.verdict


BENT = """\
tpsim: model/2
name: bent
hidden: 128
vocab: 96
blocks:
  local: {attention: gqa, heads: 4, kv_heads: 2, head_dim: 8, bias: all, sinks: true, mask: window, window: 16}
  moe: {ffn: moe, kind: swiglu_clamped, experts: 8, top: 2, hidden: 64, shared: 64, bias: true}
layers:
  - {repeat: 6, of: [local, moe]}
mtp: {of: [local, moe]}
norms: post
tie_embeddings: true
"""
A_BEND_NEARBY: dict[str, Any] = {
    "tpsim": "scenario/1",
    "hardware": "dgx-h100",
    "mesh": {"pipe": 2, "replica": 2, "shard": 2, "tensor": 2},
    "layout": {"pp": "pipe", "dp": ["replica", "shard"], "tp": "tensor", "zero": 3, "ep": "tensor"},
    "practice": "ideal",
    "pipeline": {"layers": [4, 2]},
    "workload": {"global_batch": 16, "seq": 64, "microbatches": 4},
}


def test_a_loss_that_bends_a_millionth_from_here_has_the_slope_that_it_has_here(tmp_path):
    """Bounds of an activation lie that near to one of its inputs."""
    (tmp_path / "bent.yaml").write_text(BENT)
    result = verify(A_BEND_NEARBY | {"model": str(tmp_path / "bent.yaml")})
    assert result.ok, result.verdict
