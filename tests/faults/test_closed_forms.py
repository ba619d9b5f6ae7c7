"""A wrong factor in each closed form, put into its table, is counted on the links of its messages."""

from __future__ import annotations

import pytest

from tests.faults.judges import wrong_form, wrong_torus
from tests.reference.test_linkload import FIELDS, ONE_AXIS
from tpsim.machine.algorithms import FORMS, TORUS_FORMS

WRONG = {
    "twice": lambda value, _: 2 * value,
    "n for n - 1": lambda value, n: value * n / (n - 1) if n > 1 else value,
    "paid at n = 1": lambda value, n: value + (n == 1),
    "odd n alone": lambda value, n: value + (n % 2 if n > 1 else 0),
}
"""Ways in which a factor goes wrong."""


@pytest.mark.parametrize(("topology", "kind", "name"), ONE_AXIS)
@pytest.mark.parametrize("field", FIELDS)
def test_a_wrong_factor_in_a_closed_form_is_counted_on_links(monkeypatch, topology, kind, name, field):
    right = FORMS[topology][kind][name]
    assert wrong_form(topology, kind, name) == set()
    for fault in WRONG.values():

        def wrong(V, n, fault=fault):
            traffic = right(V, n)
            return traffic._replace(**{field: fault(getattr(traffic, field), n)})

        monkeypatch.setitem(FORMS[topology][kind], name, wrong)
        assert wrong_form(topology, kind, name) == {field}


TORI = [(kind, name) for kind, names in TORUS_FORMS.items() if kind != "permute" for name in names]
SHAPE, JOINED = (4, 3), (True, False)


@pytest.mark.parametrize(("kind", "name"), TORI)
@pytest.mark.parametrize("field", FIELDS)
def test_a_wrong_factor_in_a_form_of_a_torus_is_counted_on_links(monkeypatch, kind, name, field):
    right = TORUS_FORMS[kind][name]
    assert wrong_torus(kind, name, SHAPE, JOINED) == set()

    def wrong(V, axes):
        traffic = right(V, axes)
        return traffic._replace(**{field: 2 * getattr(traffic, field)})

    monkeypatch.setitem(TORUS_FORMS[kind], name, wrong)
    assert wrong_torus(kind, name, SHAPE, JOINED) == {field}
