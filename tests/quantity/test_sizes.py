"""The sizes of a sweep: lists, ranges that end where they say, and how nccl-tests writes them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpsim.answers.collective_sizes import read_sizes
from tpsim.quantity.errors import InputError


def sizes(text):
    return list(read_sizes(text).bytes)


def test_sizes_are_a_list_of_ranges_that_double_and_end_where_they_say():
    assert sizes("1kB:5kB|8MB, 64MB") == [1000, 2000, 4000, 5000, 8_000_000, 64_000_000]
    assert sizes("1MB:1GB")[-2:] == [512_000_000, 1_000_000_000]
    assert sizes("64MB") == [64_000_000]
    assert sizes("4kB,1kB:4kB") == [1000, 2000, 4000]


def test_a_range_takes_a_factor_or_a_step():
    assert sizes("1MB:1GB:x10") == [10**6, 10**7, 10**8, 10**9]
    assert sizes("1kB:4kB:x1.5") == [1000, 1500, 2250, 3375, 4000]
    assert sizes("1MB:4MB:+1MB") == [1_000_000, 2_000_000, 3_000_000, 4_000_000]
    assert sizes("8B:30B:+8B") == [8, 16, 24, 30]


def test_a_size_without_its_b_is_read_as_nccl_tests_writes_it_and_that_is_said():
    found = read_sizes("8k:1M:x4,2g")
    assert found.bytes == (8192, 32768, 131072, 524288, 1048576, 2 * 2**30)
    assert found.notes == ("8k is 8 KiB, as nccl-tests writes it",)
    assert read_sizes("1M:4M:+1M").bytes == (2**20, 2 * 2**20, 3 * 2**20, 4 * 2**20)
    assert read_sizes("1MB,1MiB").notes == ()


@given(st.integers(1, 10**12), st.integers(0, 10**15), st.sampled_from(["", ":x2", ":x1.1", ":x3"]))
def test_any_range_rises_from_its_start_to_its_end(first, more, by):
    found = sizes(f"{first}B:{first + more}B{by}")
    assert (found[0], found[-1]) == (first, first + more)
    assert all(before < after for before, after in pairwise(found))


RANGES = "write FROM:TO doubles, FROM:TO:x4 grows fourfold, FROM:TO:+1MB by steps; each ends at TO"


@pytest.mark.parametrize(
    ("text", "entry", "message", "remedy"),
    [
        ("8MB:1kB", "8MB:1kB", '"8MB:1kB" ends below its start', "write 1kB:8MB"),
        ("8MB:1kB:x2", "8MB:1kB:x2", '"8MB:1kB:x2" ends below its start', "write 1kB:8MB:x2"),
        ("0.5B", "0.5B", '"0.5B" is not a whole number of bytes', "write 8 MB"),
        ("1MB|-8MB", "-8MB", '"-8MB" is negative', "write 8MB"),
        ("1kB, 0", "0", '"0 B" is not positive', "write 16 GB or 80 GiB"),
        ("1MB, 1024 ,8MB", "1024", "1024 has no unit", "write 1024 B, 1024 kB or 1024 MB"),
        ("1kB:1024", "1kB:1024", "1024 has no unit", "write 1024 B, 1024 kB or 1024 MB"),
        ("1kB,", "", '"" is not a number with a unit', "write 16 GB or 80 GiB"),
        ("1kB:1MB:2", "1kB:1MB:2", '"2" of "1kB:1MB:2" is neither a factor above 1 nor a step', RANGES),
        ("1MB:2MB:x2:x3", "1MB:2MB:x2:x3", '"1MB:2MB:x2:x3" is no range', RANGES),
        ("1B:1GB:+1B", "1B:1GB:+1B", '"1B:1GB:+1B" is more than 10,000 sizes', "write a larger step"),
    ],
)
def test_sizes_that_make_no_list_are_refused_with_a_caret(text, entry, message, remedy):
    with pytest.raises(InputError) as error:
        read_sizes(text)
    (problem,), line = error.value.problems, f"--sizes {text}"
    column = line.rindex(entry) if entry else len(line)
    assert (problem.message, problem.remedy) == (message, remedy)
    assert f"\n1 | {line.rstrip()}\n  | {' ' * column}{'^' * max(1, len(entry))} {remedy}" in str(error.value)
