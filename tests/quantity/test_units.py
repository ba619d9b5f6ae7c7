"""Text with a unit to SI and back."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpsim.quantity.units import RULES, UnitError, parse, show


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("45 GB/s", "bytes_per_s", 45e9),
        ("400 Gbit/s", "bytes_per_s", 50e9),
        ("900GB/s", "bytes_per_s", 900e9),
        ("16 GiB", "bytes", 2**34),
        ("16 GB", "bytes", 16e9),
        ("2.3 kB", "bytes", 2300),
        ("1 KiB", "bytes", 1024),
        ("7 B", "bytes", 7),
        ("1 us", "seconds", 1e-6),
        ("1.5e3 GB/s", "bytes_per_s", 1.5e12),
        ("1 \u00b5s", "seconds", 1e-6),
        ("1 \u03bcs", "seconds", 1e-6),
        ("2.8e-6 s", "seconds", 2.8e-6),
        ("197 TFLOP/s", "flops_per_s", 197e12),
        ("1.5 PFLOP/s", "flops_per_s", 1.5e15),
        ("0.55", "ratio", 0.55),
        ("55 %", "ratio", 0.55),
        (0.55, "ratio", 0.55),
        ("8.03e9", "count", 8_030_000_000),
        (256, "count", 256),
    ],
)
def test_a_quantity_is_read_into_si_exactly(text, dimension, value):
    assert parse(text, dimension) == value


@pytest.mark.parametrize(
    ("text", "dimension", "message"),
    [
        ("45 gb/s", "bytes_per_s", '"gb/s" is not a unit of bandwidth: write 45 GB/s or 360 Gbit/s'),
        ("45", "bytes_per_s", "45 has no unit: write 45 GB/s or 360 Gbit/s"),
        (45, "bytes_per_s", "45 has no unit: write 45 GB/s or 360 Gbit/s"),
        (4.5e10, "bytes_per_s", "45000000000.0 has no unit: write 45 GB/s"),
        (1e-6, "seconds", "1e-06 has no unit: write 1 us"),
        (2, "seconds", "2 has no unit: write 2 s or 2 ms or 2 us"),
        ("45 mB/s", "bytes_per_s", '"mB/s" is not a unit of bandwidth: write 45 MB/s or 360 Mbit/s'),
        (
            "45 Gb/s",
            "bytes_per_s",
            '"Gb/s" is not a unit of bandwidth: write 45 Gbit/s if bits are meant, 45 GB/s if bytes',
        ),
        ("45 GB", "bytes_per_s", '"GB" is not a unit of bandwidth: write 45 GB/s or 360 Gbit/s'),
        ("1 KB", "bytes", '"KB" is not a unit of size: write 1 kB or 1 KiB'),
        ("16 Gbit", "bytes", '"Gbit" is not a unit of size: write 16 GB or 16 GiB'),
        ("2 min", "seconds", '"min" is not a unit of time: write 2 s or 2 ms or 2 us'),
        ("1 Ms", "seconds", '"Ms" is not a unit of time: write 1 ms'),
        ("312 TFLOPs", "flops_per_s", '"TFLOPs" is not a unit of compute rate: write 312 TFLOP/s'),
        ("5 GB", "ratio", '"5 GB" has a unit where a plain number is due: write 0.55 or 55 %'),
        ("nan", "seconds", '"nan" is not a number with a unit: write 1 us or 2.5 ms'),
        ("inf s", "seconds", '"inf s" is not a number with a unit: write 1 us or 2.5 ms'),
        ("1e400 B", "bytes", '"1e400 B" is not finite: write 16 GB or 80 GiB'),
        ("1e400", "bytes_per_s", '"1e400" is not finite: write 45 GB/s or 400 Gbit/s'),
        ("-", "bytes", '"-" is not a number with a unit: write 16 GB or 80 GiB'),
        ("-3 GB", "bytes", '"-3 GB" is negative: write 3 GB'),
        ("0 B", "bytes", '"0 B" is not positive: write 16 GB or 80 GiB'),
        ("1,000 GB", "bytes", '"1,000 GB" is not a number with a unit: write 1000 GB'),
        ("1,000,000.5 B", "bytes", '"1,000,000.5 B" is not a number with a unit: write 1000000.5 B'),
        ("11,2 s", "seconds", '"11,2 s" is not a number with a unit: write 11.2 s'),
        ("0,500 s", "seconds", '"0,500 s" is not a number with a unit: write 0.500 s'),
        ("1.000,5 s", "seconds", '"1.000,5 s" is not a number with a unit: write 1 us or 2.5 ms'),
        ("45 GB / s", "bytes_per_s", '"45 GB / s" is not a number with a unit: write 45 GB/s or 400 Gbit/s'),
        ("$5", "count", '"$5" is not a number with a unit: write 256 or 8.03e9'),
        ("", "bytes", '"" is not a number with a unit: write 16 GB or 80 GiB'),
        (True, "count", "true is not a quantity: write 256 or 8.03e9"),
        (None, "bytes", "nothing is given: write 16 GB or 80 GiB"),
        (["1 GB"], "bytes", "a list is not a quantity: write 16 GB or 80 GiB"),
    ],
)
def test_a_quantity_that_is_not_plainly_the_fields_is_refused_with_what_to_write(text, dimension, message):
    with pytest.raises(UnitError, match=f"^{re.escape(message)}$"):
        parse(text, dimension)


def test_zero_is_taken_only_where_it_is_asked_for():
    assert parse("0 s", "seconds", zero=True) == 0
    with pytest.raises(UnitError, match='"0 s" is not positive'):
        parse("0 s", "seconds")


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (45e9, "bytes_per_s", "45 GB/s"),
        (2**34, "bytes", "17.18 GB"),
        (999.96e9, "bytes", "1 TB"),
        (0.5, "bytes", "0.5 B"),
        (1e22, "bytes", "1e+22 B"),
        (0, "seconds", "0 s"),
        (2.8e-6, "seconds", "2.8 us"),
        (5000, "seconds", "5000 s"),
        (197e12, "flops_per_s", "197 TFLOP/s"),
        (0.123456, "ratio", "0.1235"),
        (8_030_261_248, "count", "8,030,261,248"),
    ],
)
def test_a_value_is_shown_with_four_digits_and_a_decimal_prefix(value, dimension, text):
    assert show(value, dimension) == text


dimensions = st.sampled_from(sorted(RULES))


@given(st.floats(1e-12, 1e25, exclude_min=True), dimensions)
def test_what_is_shown_is_read_back_to_four_digits(value, dimension):
    text = show(value, dimension).replace(",", "")
    assert math.isclose(parse(text, dimension, zero=True), value, rel_tol=5.01e-4)


@given(st.integers(1, 2**50), st.sampled_from(["B", "kB", "MB", "KiB"]))
def test_whole_bytes_are_exact(number, unit):
    factor = {"B": 1, "kB": 1000, "MB": 1_000_000, "KiB": 1024}[unit]
    assert parse(f"{number} {unit}", "bytes") == float(number * factor)


@given(st.text(max_size=12), dimensions)
def test_any_text_is_read_or_refused_with_a_remedy(text, dimension):
    try:
        value = parse(text, dimension)
    except UnitError as error:
        value, remedy = 1.0, error.remedy
    else:
        remedy = "write nothing else"
    assert value > 0
    assert remedy.startswith("write ")
