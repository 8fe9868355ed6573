# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Sums of elements and of squares against Python's integers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from haan.config import Configuration
from haan.golden.statistics import sums

EXACT = Configuration()
WINDOW = EXACT.with_(accumulator="window")

patterns = arrays.arrays(np.uint16, st.tuples(st.integers(1, 3), st.integers(1, 40)))


def integer(pattern: int) -> int | None:
    """The number in units of 2^-24; None for infinities and NaNs."""
    value = float(np.uint16(pattern).view(np.float16))
    return int(value * 2**24) if np.isfinite(value) else None


@given(patterns, st.sampled_from([0, 28]), st.randoms())
def test_sums_are_exact(bits, dropped, random):
    mask = np.array([[random.random() < 0.8 for _ in row] for row in bits])
    for use in (None, mask):
        s1, s2, bad = sums(bits, use, WINDOW if dropped else EXACT)
        for row, there, *got in zip(bits.tolist(), mask.tolist(), s1, s2, bad, strict=True):
            numbers = [
                integer(z)
                for z, is_there in zip(row, there, strict=True)
                if is_there or use is None
            ]
            finite = [z for z in numbers if z is not None]
            squares = sum(z * z >> dropped << dropped for z in finite)
            assert got == [sum(finite), squares, len(finite) < len(numbers)]


@pytest.mark.parametrize("sign", [0, 0x8000])
def test_the_largest_sums_fit(sign):
    n = 65536
    s1, s2, _ = sums(np.full((1, n), 0x7BFF | sign, np.uint16), None, EXACT)
    z = 65504 * 2**24
    assert (s1[0], s2[0]) == (-n * z if sign else n * z, n * z * z)


def test_the_order_does_not_matter():
    random = np.random.default_rng(3)
    bits = (random.standard_normal((4, 769)) * 10.0 ** random.integers(-6, 4, 769)).astype(
        np.float16
    )
    for configuration in (EXACT, WINDOW):
        one = sums(bits.view(np.uint16), None, configuration)
        other = sums(bits[:, random.permutation(769)].view(np.uint16), None, configuration)
        assert all((a == b).all() for a, b in zip(one, other, strict=True))
