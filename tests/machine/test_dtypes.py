"""Peaks per number format: f32 and tf32 of every machine that has them, and what a workload in tf32 means."""

from __future__ import annotations

import pytest

from tpsim.answers.plan import plan
from tpsim.cost.compute import compute
from tpsim.machine.profile import load
from tpsim.program.dtypes import DTYPE_BYTES, STORED_AS
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError
from tpsim.question.save import scenario_text
from tpsim.question.scenario import resolve

RATES = {
    "dgx-a100": (19.5, 156),
    "dgx-h100": (66.9, 494.7),
    "dgx-h200": (66.9, 494.7),
    "alps-gh200": (66.9, 494.7),
    "dgx-b200": (75, 1125),
    "dgx-b300": (75, 1125),
    "gb200-nvl72": (80, 1250),
    "gb300-nvl72": (80, 1250),
    "dgx2-v100": (15.7, None),
    "l40s-pcie": (91.6, 183),
    "rtx-pro-6000": (116.9, 233.9),
    "mi300x": (163.4, 653.7),
    "mi325x": (163.4, 653.7),
    "mi355x": (156.25, None),
    "trn2": (181, 667),
}
"""TFLOP/s of dense products in f32 and tf32, as vendors state them; see the sources of each profile."""


def flops(machine, dtype):
    return machine.chip.peak[dtype].value / 1e12 if dtype in machine.chip.peak else None


@pytest.mark.parametrize("name", RATES)
def test_peaks_in_f32_and_tf32_are_those_of_the_vendors(name):
    machine = load(name)
    assert (flops(machine, "f32"), flops(machine, "tf32")) == RATES[name]


@pytest.mark.parametrize("name", [name for name in spec.names("hardware") if not name.startswith(("book-", "tpu-"))])
def test_every_gpu_has_a_peak_in_f32_and_that_in_tf32_is_dense(name):
    """A sparse rate would show here: tensor cores do half of bf16 in tf32, Trainium as much."""
    machine = load(name)
    f32, tf32 = flops(machine, "f32"), flops(machine, "tf32")
    assert f32 is not None
    half = machine.chip.peak[next(iter({"bf16", "f16"} & set(machine.chip.peak)))].value / 1e12
    assert f32 < half / 2
    if tf32 is not None:
        assert f32 < tf32
        assert tf32 == pytest.approx(half if name.startswith("trn2") else half / 2, rel=0.02)


@pytest.mark.parametrize("name", sorted({*RATES, "hgx-h20"} - {"dgx2-v100", "trn2", "rtx-pro-6000"}))
def test_the_two_formats_of_sixteen_bits_are_equally_fast_and_whose_figure_that_is_is_said(name):
    """The open book lists both for each of them; one chip must not inherit another's."""
    peak = load(name).chip.peak
    assert peak["f16"].value == peak["bf16"].value
    assert peak["f16"].source


def test_a_chip_that_gave_a_format_up_has_no_peak_of_the_one_that_it_extends():
    assert "tf32" in load("mi300x").chip.peak
    with pytest.raises(InputError, match="mi355x states no peak for tf32"):
        load("mi355x").peak("tf32")


def test_a_workload_in_tf32_computes_at_its_peak_on_arrays_of_four_bytes():
    asked = {"model": "llama-3-8b", "hw": "dgx-h100", "tp": 4, "dp": 2, "seq": 1024}
    single, tensor = plan(None, dtype="f32", **asked), plan(None, dtype="tf32", **asked)
    question = tensor.question
    assert (question.products, question.dtypes) == ("tf32", single.question.dtypes)
    assert question.dtypes.params == question.dtypes.activations == "f32"
    assert tensor.memory == single.memory
    assert [row.wire_bytes_per_device for row in tensor.rows] == [row.wire_bytes_per_device for row in single.rows]
    assert tensor.compute.flops == single.compute.flops
    assert tensor.compute.time_s < single.compute.time_s
    assert question.resolved["dtypes"]["products"] == "tf32"
    assert "products in tf32, on arrays that are held and sent in f32" in [one.text for one in question.assumptions]


def test_compute_bound_products_take_their_flops_over_the_peak_in_tf32():
    asked = {"model": "llama-3-8b", "hw": "dgx-h100", "seq": 8192, "batch": 8, "practice": "xla"}
    result = plan(None, dtype="tf32", overrides=["assume.matmul_efficiency=0.55"], **asked)
    peak = load("dgx-h100").chip.peak["tf32"].value
    products = [one for one in result.memo.lowered(result.question).kernels if one.products]
    worked = compute(products, result.sizes, result.question.machine, "tf32", 0.55).time_s
    assert worked == pytest.approx(result.compute.flops / (0.55 * peak), rel=1e-3)
    assert result.step.mfu == pytest.approx(result.compute.useful_flops / (result.step.time_s * peak))


def test_parameters_may_be_kept_otherwise_and_no_array_is_in_tf32():
    question = resolve("llama3-70b-h100", overrides=["workload.dtype=tf32", "workload.param_dtype=bf16"])
    assert (question.dtypes.activations, question.dtypes.params) == ("f32", "bf16")
    assert set(STORED_AS.values()) <= set(DTYPE_BYTES)
    assert "tf32" not in DTYPE_BYTES
    with pytest.raises(InputError, match="param_dtype cannot be"):
        resolve("llama3-70b-h100", overrides=["workload.param_dtype=tf32"])


def test_tf32_is_saved_as_tf32():
    asked = resolve("llama3-70b-h100", overrides=["workload.dtype=tf32"])
    assert "dtype: tf32" in scenario_text(asked)
