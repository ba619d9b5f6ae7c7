"""Steps of inference on simulated devices: values, bytes, memory, and that decoding goes on where a prompt ends."""

from __future__ import annotations

import pytest

from tpsim.claims.verify import verify
from tpsim.reference import functions

SCENARIO = {
    "tpsim": "scenario/1",
    "name": "small",
    "model": "gpt-tiny",
    "hardware": "dgx-h100",
    "mesh": {"data": 2, "tensor": 2},
    "placement": {"data": "nvlink", "tensor": "nvlink"},
    "layout": {"tp": "tensor", "dp": "data"},
    "workload": {"kind": "decode", "batch": 8, "context": 16},
}
LATENT = """\
tpsim: model/2
name: latent
source: {title: none, read: 2026-11-22}
hidden: 64
vocab: 64
blocks:
  latent: {attention: mla, heads: 8, query_rank: 16, kv_rank: 16, nope: 8, rope: 4, value: 8}
  dense: {ffn: mlp, kind: swiglu, hidden: 128}
layers:
  - {repeat: 2, of: [latent, dense]}
"""
WINDOWS = """\
tpsim: model/2
name: windows
source: {title: none, read: 2026-11-22}
hidden: 64
vocab: 64
blocks:
  near: {attention: gqa, heads: 8, kv_heads: 4, head_dim: 8, mask: MASK, window: 8}
  far: {attention: gqa, heads: 8, kv_heads: 4, head_dim: 8, sinks: true}
  dense: {ffn: mlp, kind: swiglu, hidden: 128}
layers:
  - {repeat: 1, cycle: [[near, dense], [far, dense]]}
"""
ROWS = {
    "heads": ["layout.cache=heads"],
    "batch": ["layout.cache=batch"],
    "sequence": ["layout.cache=sequence"],
    "sequence, argmax, two tokens": ["layout.cache=sequence", "workload.sampling=argmax", "workload.tokens=2"],
    "kv heads fewer than tp, their copies by sequence": [
        "model={extends: gpt-tiny, kv_heads: 1}",
        "layout=null",
        "shardings={'*': {b: data, r: tensor, f: tensor, v: tensor}, cache: {t: tensor, r: []}}",
    ],
    "stages, one after the other": [
        "mesh={pipe: 2, tensor: 2}",
        "placement=null",
        "layout={tp: tensor, pp: pipe, cache: sequence}",
    ],
    "latents, absorbed": ["model=LATENT"],
    "latents, absorbed, by batch": ["model=LATENT", "layout.cache=batch"],
    "latents, absorbed, by sequence": ["model=LATENT", "layout.cache=sequence", "workload.cache_dtype=fp8_128"],
    "windows": ["model=WINDOW"],
    "windows, by batch, three tokens": ["model=WINDOW", "layout.cache=batch", "workload.tokens=3"],
    "windows, by sequence": ["model=WINDOW", "layout.cache=sequence"],
    "chunks": ["model=CHUNK"],
    "a prompt of windows behind cached tokens": [
        "workload={kind: prefill, batch: 8, prompt: 16, cached: 8}",
        "model=WINDOW",
    ],
    "scores that fall with the distance": [
        "model={extends: gpt-tiny, positions: alibi, max_positions: null}",
        "layout.cache=sequence",
    ],
    "a prompt": ["workload={kind: prefill, batch: 8, prompt: 16}", "layout.cache=sequence"],
    "a prompt behind cached tokens": [
        "workload={kind: prefill, batch: 8, prompt: 16, cached: 8}",
        "layout.cache=batch",
    ],
    "a prompt of latents behind cached tokens": [
        "workload={kind: prefill, batch: 8, prompt: 16, cached: 8, cache_dtype: fp8}",
        "model=LATENT",
    ],
    "a prompt of latents behind cached tokens, by batch": [
        "workload={kind: prefill, batch: 8, prompt: 16, cached: 8}",
        "model=LATENT",
        "layout.cache=batch",
    ],
    "a prompt of latents behind cached tokens, by sequence": [
        "workload={kind: prefill, batch: 8, prompt: 16, cached: 12}",
        "model=LATENT",
        "layout.cache=sequence",
    ],
    "a prompt, tokens split": ["workload={kind: prefill, batch: 8, prompt: 16}", "layout.sequence_parallel=true"],
    "a reply, in int8": ["workload={kind: serve, batch: 8, prompt: 8, output: 8, param_dtype: int8, cache_dtype: fp8}"],
}
"""Every way that the cache is split, phases and number formats: held against one device."""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Small models with latent attention, with windows and with chunks, as files."""
    folder = tmp_path_factory.mktemp("models")
    texts = {"LATENT": LATENT, "WINDOW": WINDOWS.replace("MASK", "window"), "CHUNK": WINDOWS.replace("MASK", "chunk")}
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return {name: str(folder / f"{name}.yaml") for name in texts}


def named(override, models):
    """An override with a model's file in the place of its name."""
    field, _, name = override.partition("=")
    return f"{field}={models.get(name, name)}"


@pytest.mark.parametrize("overrides", ROWS.values(), ids=ROWS)
def test_every_way_of_splitting_a_cache_gives_the_values_and_moves_the_bytes_that_are_claimed(overrides, models):
    """Of latents decoding is absorbed and a prompt is not: that both are equal is what the check of the cache says."""
    found = verify(SCENARIO, overrides=[named(one, models) for one in overrides])
    (run,) = found.runs
    assert found.ok, found.verdict
    checks = ["values", "blocks", "collectives", "links", "formulas", "memory"]
    decoding = overrides[0].startswith("workload={kind: prefill")
    assert [one.check for one in run.checks] == checks + ([] if decoding else ["cache"])
    assert run.difference < 1e-10


def test_a_mask_that_hides_too_little_is_seen_where_decoding_meets_the_prompt(monkeypatch):
    monkeypatch.setitem(functions.INDEX, "causal_mask", lambda _sizes, s, t: 0.0 * (s + t))
    (run,) = verify(SCENARIO).runs
    assert "cache" in [one.check for one in run.failed]


@pytest.mark.parametrize("mask", ["window", "chunk"])
def test_a_window_that_reads_what_stands_where_its_tokens_were_is_seen(mask, monkeypatch, models):
    """Every place of its cache is read, in whatever token's name."""
    monkeypatch.setitem(functions.INDEX, f"held_{mask}_mask", lambda _sizes, s, place: 0.0 * (s + place))
    (run,) = verify(SCENARIO, overrides=[f"model={models[mask.upper()]}", "workload.tokens=3"]).runs
    assert "cache" in [one.check for one in run.failed]


def test_rows_that_are_written_one_place_too_early_are_seen(monkeypatch):
    real = functions.past
    monkeypatch.setattr("tpsim.reference.local_ops.past", lambda sizes: max(0, real(sizes) - 1))
    (run,) = verify(SCENARIO).runs
    assert [one.check for one in run.failed] == ["cache"]
    assert run.failed[0].mismatches[0].startswith("step 0 differs by ")
