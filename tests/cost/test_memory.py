"""Bytes held by one chip."""

from __future__ import annotations

from tpsim.cost.memory import memory


def test_a_layer_s_parameters_and_gradients_are_held_once_per_layer_and_not_per_microbatch(program, sizes):
    held = memory(program, sizes)
    elements = 2 * 8192 * 28672 // 8 * 80
    assert held.parameters == 2 * elements
    assert held.gradients == 4 * elements
    assert held.optimizer == 0
    assert held.static == held.parameters + held.gradients


def test_a_program_without_a_vocabulary_has_no_logits(program, sizes):
    assert memory(program, sizes).logits == 0
