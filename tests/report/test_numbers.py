"""Numbers on a page: four significant digits, one unit per column, no exponent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpsim.report.numbers import cells, significant

FINITE = st.floats(min_value=1e-12, max_value=1e18)


@pytest.mark.parametrize(
    ("values", "kind", "unit", "texts"),
    [
        ([134217728, 1048576, None], "bytes", "MB", ["134.2", "1.049", ""]),
        ([134217728, 4], "bytes", "MB", ["134.2", "0.000004"]),
        ([0, 0], "bytes", "B", ["0", "0"]),
        ([2.8e-6, 1e-6], "seconds", "us", ["2.800", "1.000"]),
        ([9.897, 7.442], "seconds", "s", ["9.897", "7.442"]),
        ([0.125, 1, 0], "share", "%", ["12.5", "100.0", "0.0"]),
        ([1932, 8], "integer", "", ["1,932", "8"]),
        (["ring", None, 3], "text", "", ["ring", "", "3"]),
        ([8192, 33.55e6, 2.101e9], "bytes", "MB", ["0.008192", "33.55", "2101"]),
        ([8192, 8192, 2.101e9], "bytes", "kB", ["8.192", "8.192", "2,101,000"]),
        ([4, 33.55e6, 117.4e6], "bytes", "MB", ["0.000004", "33.55", "117.4"]),
        ([64e3, 1e6, 16e6, 1e9], "bytes", "MB", ["0.06400", "1.000", "16.00", "1000"]),
        ([0.05, 0.5, 1], "bar", "", ["█", "█" * 10, "█" * 20]),
        ([45e9], "bytes_per_s", "GB/s", ["45.00"]),
        ([], "seconds", "s", []),
    ],
)
def test_a_column_has_one_unit_and_four_digits(values, kind, unit, texts):
    assert cells(values, kind) == (unit, texts)


@given(FINITE)
def test_a_printed_number_is_within_half_a_digit(value):
    assert float(significant(value)) == pytest.approx(value, rel=0.5001e-3)


@given(st.lists(FINITE, min_size=1))
def test_no_value_of_a_column_is_printed_as_nought(values):
    assert all(float(text.replace(",", "")) > 0 for text in cells(values, "bytes")[1])


def test_a_share_that_rounds_to_nothing_has_no_sign():
    assert cells([-0.0001, 0.0001, -0.01], "share") == ("%", ["0.0", "0.0", "-1.0"])
